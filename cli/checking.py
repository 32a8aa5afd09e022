"""What `check` needs of the outside: models, machines and constants, each read once."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from roofcast.calculators.answer import Remarks, remarks
from roofcast.calculators.engines.flags import TAKES
from roofcast.calculators.errors import UsageError
from roofcast.cli.errors import exit_code
from roofcast.cli.session import Lookup, formats, load

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable

    from roofcast.calculators.check_load import Loaded
    from roofcast.calculators.check_memory import Room
    from roofcast.calculators.check_plan import Planned
    from roofcast.calculators.check_quantities import Case
    from roofcast.calculators.check_rows import Found
    from roofcast.calculators.deployment import Deployment, Ready
    from roofcast.calculators.engines.terms import EngineMemory, Served
    from roofcast.calculators.serving.job import Load
    from roofcast.calculators.serving.service import Service
    from roofcast.cli.deploy import Efficiencies
    from roofcast.cli.loading import AskedLoad
    from roofcast.hwdb.lookup import Match
    from roofcast.modelspec.formats import Format
    from roofcast.modelspec.model import Model
    from roofcast.modelspec.requested import Requested
    from roofcast.modelspec.sharding import Shards

#: flags that change what is computed, and not memory alone
TIMED_FLAGS: Final = ("dtype", "quantization")


@dataclass(slots=True)
class Setups:
    """Models and deployments of rules.

    Args:
        efficiencies: constants of expected times.
        offline: whether nothing is asked of the network.
        made: what was made, or what was wrong with it, by what it is made of.
        said: what was assumed, and what should be known.
        asked: contexts that were asked of a model, by what makes it, its weights, and whether an engine loads it.
    """

    efficiencies: Efficiencies
    offline: bool
    made: dict[Hashable, Any] = field(default_factory=dict)
    said: Remarks = field(default_factory=Remarks)
    asked: dict[tuple[Case, bool], list[int]] = field(default_factory=dict)

    def note(self, case: Case, *, in_memory: bool, contexts: Iterable[int]) -> None:
        """Notes what was asked of a model, for what is said of it in the end."""
        names = ("model", "revision", "encoder_tokens", "weights")
        key = type(case)(**{name: getattr(case, name) for name in names})
        self.asked.setdefault((key, in_memory and case.engine != "none"), []).extend(contexts)

    def of_models(self) -> Remarks:
        """What was assumed of each model, and which contexts are beyond its own."""
        from roofcast.calculators.remarks import model_remarks

        said = Remarks()
        for (case, served), contexts in self.asked.items():
            said += model_remarks(self.model(case), self.weights(case), contexts, files=not served)
        return said

    def _once(self, key: Hashable, make: Callable[[], Any]) -> Any:  # noqa: ANN401 - of many kinds
        """What was made of a key, or is now; what was wrong is raised again."""
        if key not in self.made:
            try:
                self.made[key] = make()
            except Exception as error:
                if exit_code(error) is None:
                    raise
                self.made[key] = error
        found = self.made[key]
        if isinstance(found, Exception):
            raise found
        return found

    def kind(self, name: str) -> list[Any]:
        """All that was made of a kind: model, gpu, cache, ready, room or plan."""
        return [
            found
            for key, found in self.made.items()
            if isinstance(key, tuple) and key[0] == name and not isinstance(found, Exception)
        ]

    def model(self, case: Case) -> Model:
        """The model."""
        lookup = Lookup(case.revision, self.offline, encoder_tokens=case.encoder_tokens)
        found: Model = self._once(("model", *model_key(case)), lambda: load(case.model, lookup))
        return found

    def match(self, case: Case) -> Match:
        """The accelerator."""
        from roofcast.cli.machine import find_machine, machine_remarks

        def make() -> Match:
            found = find_machine(case.gpu)
            self.said += machine_remarks(found)
            return found

        found: Match = self._once(("gpu", case.gpu), make)
        return found

    def weights(self, case: Case) -> Requested | None:
        """The format asked for its weights."""
        return formats(case.weights, None)[0]

    def cache(self, case: Case) -> Format:
        """The format of its cache: as asked, else as the engine takes it from the checkpoint."""
        from roofcast.calculators.cache_format import cache_format

        def make() -> Format:
            found, said = cache_format(self.model(case), formats(None, case.kv)[1], case.engine)
            self.said += said
            return found

        found: Format = self._once(("cache", *model_key(case), case.engine, case.kv), make)
        return found

    def ready(self, case: Case) -> Ready:
        """The deployment, as `estimate` takes it; flags that quantise or set a dtype are in it."""
        timed = replace(type(case.flags)(), **{name: getattr(case.flags, name) for name in TIMED_FLAGS})
        key = "ready", *model_key(case), *machine_key(case), case.network, case.weights, case.kv, timed

        def make() -> Ready:
            from roofcast.cli.deploy import with_constants

            return with_constants(self.bare(case), self.efficiencies)

        found: Ready = self._once(key, make)
        # stages and replicas without an engine, and engines that are not modelled, have no rules of memory here: then all
        # that is beside the weights counts
        ruled = case.engine in TAKES or (case.engine == "none" and _plainly_cut(case))
        return replace(found, holding=self.room(case)) if ruled else found

    def bare(self, case: Case) -> Ready:
        """The same without constants of expected times, and without what its memory holds; not kept."""
        from roofcast.calculators.deployment import prepare

        timed = replace(type(case.flags)(), **{name: getattr(case.flags, name) for name in TIMED_FLAGS})
        model = self.model(case)
        if timed.given:
            found: Ready = self._served(model, case, timed).ready
            return found
        return prepare(model, self._deployment(case))

    def loaded_by_engine(self, case: Case) -> Served:
        """The model as its engine loads it; not kept."""
        found: Served = self._served(self.model(case), case, case.flags)
        return found

    def _deployment(self, case: Case, shards: Shards | None = None) -> Deployment:
        from roofcast.calculators.deployment import Deployment

        accelerator = self.match(case).accelerator
        cut, kv = shards or shards_of(case), self.cache(case)
        return Deployment(accelerator, kv, self.weights(case), cut, case.engine, case.network)

    def room(self, case: Case) -> Room:
        """Memory, as `fit` answers."""
        key = "room", *model_key(case), *machine_key(case), case.weights, case.kv, case.reserve, case.flags
        found: Room = self._once(key, lambda: self._room(case))
        return found

    def _room(self, case: Case) -> Room:
        from roofcast.calculators.check_memory import plain_room, served_room
        from roofcast.calculators.fit import Machine
        from roofcast.cli.fit import of_the_machine

        model = self.model(case)
        match = self.match(case)
        accelerator = match.accelerator
        if case.engine == "none" or accelerator.compute_capability is None:
            used = [form for form in (self.cache(case), self.weights(case)) if form is not None]
            self.said += of_the_machine(match, model, used)
        if case.engine == "none":
            memory = accelerator.memory, accelerator.visible_memory
            machine = Machine(accelerator.id, _plain_count(case), *memory, case.reserve)
            found = plain_room(model, machine, self.weights(case), self.cache(case))
        else:
            found = served_room(self._served(model, case, case.flags))
        self.said += found.said
        return found

    def served(self, case: Case) -> tuple[Served, EngineMemory | None]:
        """The deployment with its engine's flags, and what the engine makes of a device's memory; None without its rules."""
        from roofcast.calculators.engines.registry import engine_memory
        from roofcast.calculators.engines.terms import Served

        served = Served(self.ready(case), case.flags)
        if case.engine not in TAKES:
            return served, None
        return served, engine_memory(case.engine, self._served(self.model(case), case, case.flags))

    def loaded(self, case: Case) -> Loaded:
        """The deployment after its load; the same one for all percentiles and limits of it."""
        from roofcast.calculators.check_load import loaded

        def make() -> Loaded:
            asked = asked_load(case)
            load = asked.load()
            service, said = self.service(case, load)
            done = loaded(service, load)
            self.said += said + remarks(notes=load.notes())
            return done

        made: Loaded = self._once(("loaded", replace(case, percentile=None, ttft=None, tpot=None)), make)
        return made

    def most_requests(self, case: Case) -> Found:
        """The most requests a second that keep limits."""
        from roofcast.calculators.check_load import most_requests
        from roofcast.calculators.serving.result import Goal
        from roofcast.cli.loading import MANY

        def make() -> Found:
            asked = asked_load(replace(case, rate=1.0, requests=case.requests or MANY))
            goal = Goal(case.ttft, case.tpot, None, case.percentile or 100.0)
            service, said = self.service(case, asked.load())
            self.said += said
            return most_requests(service, asked.load, goal)

        made: Found = self._once(("most", case), make)
        return made

    def planned(self, case: Case) -> Planned:
        """The cheapest deployment that keeps limits under a load; the same one for all limits of cost."""

        def make() -> Planned:
            from roofcast.cli.checking_plan import planned

            return planned(self, case)

        found: Planned = self._once(("plan", case), make)
        return found

    def service(self, case: Case, load: Load | None = None) -> tuple[Service, Remarks]:
        """The deployment as `simulate` has it by default, of bounds alone where that is the basis; and what is assumed.

        Args:
            case: the deployment.
            load: what is sent, which may say what prompts share.
        """
        from roofcast.calculators.check_quantities import BOUND, without_constants
        from roofcast.calculators.serving.service import DEFAULT, service_of
        from roofcast.cli.simulating import AskedScheduling

        served, memory = self.served(case)
        if case.basis == BOUND:
            served = replace(served, ready=replace(served.ready, expectation=None))
        elif served.ready.expectation is None:
            raise without_constants(case)
        wanted = DEFAULT if load is None else AskedScheduling().options(case, load)
        wanted = replace(
            wanted, tokens=case.max_num_batched_tokens, reserve=case.reserve, kv_tokens=self.plain_tokens(case)
        )
        return service_of(served, memory, wanted)

    def plain_tokens(self, case: Case) -> int | None:
        """Tokens that `fit` finds room for without an engine; None with one, and where `fit` has no such number."""
        if case.engine != "none" or not _plainly_cut(case):
            return None
        room = self.room(case)
        return room.tokens if room.left else None

    def _served(self, model: Model, case: Case, flags: Any) -> Any:  # noqa: ANN401 - Flags in, Served out
        """The model as the engine loads it."""
        from roofcast.calculators.engines.serving import serve
        from roofcast.cli.fit_engine import Ask, attention_within

        ask = Ask(case.engine, flags, {}, None)
        shards, within = attention_within(shards_of(case), ask, model)
        served, said = serve(model, self._deployment(case, shards), within, kv_asked=case.kv is not None)
        self.said += said
        return served


def asked_load(case: Case) -> AskedLoad:
    """What is sent, as `simulate` would be asked."""
    from roofcast.cli.loading import AskedLoad

    made = case.trace is None
    return AskedLoad(
        trace=case.trace,
        rate=None if case.rate is None else repr(case.rate),
        requests=case.requests,
        stagger=None if case.stagger is None else repr(case.stagger),
        concurrency=case.concurrency,
        prompt=str(case.prompt) if made else None,
        output=str(case.output) if made else None,
    )


def model_key(case: Case) -> tuple[Hashable, ...]:
    """What makes a model."""
    return case.model, case.revision, case.encoder_tokens


def machine_key(case: Case) -> tuple[Hashable, ...]:
    """What makes a machine under an engine."""
    return case.gpu, case.gpus, case.tp, case.pp, case.ep, case.dp, case.engine


def shards_of(case: Case) -> Shards:
    """How the model is cut.

    Raises:
        UsageError: numbers that do not multiply.
    """
    from roofcast.cli.deploy import Machine

    return Machine(case.gpu, case.gpus, case.tp, case.pp, case.ep, case.dp, None, case.engine).shards()


def _plainly_cut(case: Case) -> bool:
    """Whether all GPUs share every layer."""
    return (case.pp, case.ep, case.dp) == (1, 1, 1)


def _plain_count(case: Case) -> int:
    """GPUs that share every layer, without an engine.

    Raises:
        UsageError: another cut is asked, or gpus and tp differ.
    """
    other = next((f"{name} {getattr(case, name)}" for name in ("pp", "ep", "dp") if getattr(case, name) != 1), None)
    if other:
        raise UsageError(f"{other}: without an engine all GPUs share every layer; engine: vllm knows it")
    return shards_of(case).tp
