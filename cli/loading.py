"""What is sent to a service, as options give it: a trace, a rate, or clients that wait for their answers."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Final

import typer

from roofcast.calculators.errors import UsageError
from roofcast.cli import options
from roofcast.cli.loading_source import Source
from roofcast.hwdb.units import UnitError, parse_tokens

if TYPE_CHECKING:
    from roofcast.calculators.serving import lengths as made
    from roofcast.calculators.serving import loads
    from roofcast.calculators.serving.arrivals import Arrivals
    from roofcast.calculators.serving.job import Load

SEARCHED: Final = "max"  # of --rate: who simulates looks for it
DEFAULT_PROMPT: Final = "1024"
DEFAULT_OUTPUT: Final = "128"
LEAST_SCALE, MOST_SCALE = 1e-6, 1e6
MOST_REQUESTS: Final = 10_000_000
MANY: Final = 3000  # requests at each rate that is tried
MOST_CLIENTS: Final = 1 << 20
MOST_GROUPS: Final = 1 << 20
MOST_IDS: Final = 1 << 22  # blocks of all groups' prefixes

TraceFile = Annotated[
    str | None,
    typer.Option(
        "--trace",
        metavar="FILE",
        help="Requests: CSV arrival_seconds,prompt_tokens,output_tokens[,prefix_hashes], or a trace of Azure or BurstGPT "
        "(CSV) or Mooncake (JSON lines); '-': standard input.",
    ),
]
Rate = Annotated[
    str | None,
    typer.Option(
        "--rate",
        metavar="R",
        help="Open loop: requests a second, a schedule such as 2@0s,8@60s,2@120s, or max: the most that keeps a promise; with "
        "--trace in place of its times.",
    ),
]
Scale = Annotated[
    float | None, typer.Option("--scale", metavar="X", help="A trace's requests come X times as fast (default: 1).")
]
Requests = Annotated[
    int | None,
    typer.Option(
        "--requests",
        metavar="N",
        help="Requests at most (default: all of --trace; 1000 with --rate, more of a fast one, 3000 with max; 8 a client, 100 or more, with --concurrency).",
    ),
]
Concurrency = Annotated[
    int | None,
    typer.Option(
        "--concurrency", metavar="N", help="Closed loop: N clients, which send again as soon as they are answered."
    ),
]
PromptLengths = Annotated[
    str | None,
    typer.Option(
        "--prompt",
        metavar="LENGTH",
        help="Tokens of prompts: N, uniform:100-2000, or lognormal:161:0.8 (mean, sigma of the logarithm) (default: 1024).",
    ),
]
OutputLengths = Annotated[
    str | None, typer.Option("--output", metavar="LENGTH", help="Tokens of outputs, likewise (default: 128).")
]
Lengths = Annotated[
    str | None,
    typer.Option("--lengths", metavar="FILE", help="Draw prompts with their outputs from a trace of any format."),
]
Burstiness = Annotated[
    float | None,
    typer.Option(
        "--burstiness",
        metavar="G",
        help="Shape of --rate's gamma gaps: 1 is Poisson, less comes in bursts, inf is evenly spaced (default: 1).",
    ),
]
SharedPrefix = Annotated[
    str | None,
    typer.Option("--shared-prefix", metavar="N", help="First tokens of prompts that are equal within a group."),
]
PrefixGroups = Annotated[
    int | None,
    typer.Option("--prefix-groups", metavar="N", help="Groups, each with its own shared prefix (default: 1)."),
]
HashTokens = Annotated[
    int | None,
    typer.Option("--hash-tokens", metavar="N", help="Tokens of a prefix hash of --trace (default: 16; Mooncake: 512)."),
]
Stagger = Annotated[
    str | None,
    typer.Option(
        "--stagger",
        metavar="SHARE",
        help="Closed loop: outputs of one length vary by so much, as clients never stay in step (default: 3%).",
    ),
]
WarmUp = Annotated[
    int | None,
    typer.Option(
        "--warm-up",
        metavar="N",
        help="Leave the times of the first N requests out, such as those of a closed loop that all came at once.",
    ),
]
Seed = Annotated[int, typer.Option("--seed", metavar="N", help="Of chance: arrivals, lengths, groups.")]


@dataclass(frozen=True, slots=True)
class AskedLoad:
    """What is sent, as options give it; None is an option that is not given.

    Args:
        sources: files that were opened, by their option: standard input can be read only once.
    """

    trace: str | None = None
    rate: str | None = None
    scale: float | None = None
    requests: int | None = None
    concurrency: int | None = None
    prompt: str | None = None
    output: str | None = None
    lengths: str | None = None
    burstiness: float | None = None
    shared_prefix: str | None = None
    prefix_groups: int | None = None
    hash_tokens: int | None = None
    stagger: str | None = None
    warm_up: int | None = None
    seed: int = 0
    sources: dict[str, Source] = field(default_factory=dict, repr=False, compare=False)

    def check(self) -> None:
        """Refuses options that do not go together and numbers that cannot be, before any file is opened.

        Raises:
            UsageError, UnitError: naming the option.
        """
        if self.trace is None and self.rate is None and self.concurrency is None:
            raise UsageError(
                "nothing is sent; give --trace FILE, --rate R (open loop) or --concurrency N (closed loop)"
            )
        given = self._given()
        for option, others, why in CONFLICTS:
            other = next((other for other in others if other in given), None)
            if option in given and other is not None:
                raise UsageError(f"{option} and {other}: {why}")
        for option, needed in NEEDS:
            if option in given and needed not in given:
                raise UsageError(f"{option} needs {needed}")
        for option, count, most in (
            ("--requests", self.requests, MOST_REQUESTS),
            ("--hash-tokens", self.hash_tokens, options.MOST),
            ("--warm-up", self.warm_up, MOST_REQUESTS),
            ("--concurrency", self.concurrency, MOST_CLIENTS),
            ("--prefix-groups", self.prefix_groups, MOST_GROUPS),
        ):
            if (options.size(count, option) or 0) > most:
                raise UsageError(f"{option} {count:,}: it must be at most {most:,}")
        if self.scale is not None and not LEAST_SCALE <= self.scale <= MOST_SCALE:
            raise UsageError(f"--scale {self.scale:g}: it must be a number above 0, such as 2 for twice as fast")
        self._arrivals(1.0 if self.rate == SEARCHED else None)
        self._made()

    def _given(self) -> set[str]:
        """Options that are given."""
        return {option for option, name in OPTIONS.items() if getattr(self, name) is not None}

    def load(self, rate: float | None = None) -> Load:
        """What is sent.

        Args:
            rate: requests a second in place of --rate. [1/s]

        Raises:
            UsageError: options that do not go together, or a file that is no trace.
        """
        from roofcast.calculators.serving.loads import Sending, synthetic, traced
        from roofcast.cli.loading_notes import left_out, staggered, together, unreached

        self.check()
        arrivals = self._arrivals(rate)
        sending = Sending(arrivals, self.concurrency, self.requests or self._usual(arrivals), self.seed)
        if self.trace is not None:
            source = self._source("--trace", self.trace)
            if self.hash_tokens is not None and source.hash_tokens is None:
                raise UsageError(f"--hash-tokens {self.hash_tokens}: {self.trace} has no prefix hashes")
            load = traced(source.name, source.jobs, sending, source.hash_tokens, self.scale or 1.0)
            return replace(load, notes=lambda: [*left_out(source), *together(*self._clients)], warm=self.warm_up or 0)
        if self.lengths is None:
            made = self._made()
            load = synthetic(made, sending, self._shared())
            staggering = staggered(made, self.output or DEFAULT_OUTPUT, self._stagger)
            if (self.warm_up or 0) >= sending.count:
                raise UsageError(f"--warm-up {self.warm_up:,}: there are {sending.count:,} requests; leave some")
            notes = [*staggering, *together(*self._clients), *unreached(sending)]
            return replace(load, notes=lambda: notes, warm=self.warm_up or 0)
        source = self._source("--lengths", self.lengths)
        load = synthetic(source.pairs(), sending, self._shared())
        return replace(load, notes=lambda: [*left_out(source), *together(*self._clients)], warm=self.warm_up or 0)

    def _usual(self, arrivals: Arrivals | None) -> int | None:
        """Requests at one rate where none are asked for: as many as tell enough; None as others have them."""
        from roofcast.calculators.serving.loads import enough

        if self.trace is not None or arrivals is None:
            return None
        if self.rate == SEARCHED:
            return MANY
        first, *later = arrivals.stretches
        if later or math.isinf(first.rate) or self.lengths is not None:
            return None
        return enough(first.rate, self._made().output.mean)

    def parts(self) -> tuple[made.Apart | made.Pairs, Arrivals | None, loads.SharedPrefix | None]:
        """Lengths of requests that are made up, when they come, and what prompts share; of a closed loop they come at no time.

        Raises:
            UsageError: options that do not go together, or a file that is no trace.
        """
        self.check()
        lengths = self._made() if self.lengths is None else self._source("--lengths", self.lengths).pairs()
        return lengths, self._arrivals(None), self._shared()

    @property
    def inputs(self) -> dict[str, object]:
        """The question as `inputs` repeats it."""
        made_up = self.trace is None and self.lengths is None
        return {
            "trace": self.trace,
            "rate": None if self.rate is None else _plain(self.rate),
            "scale": self.scale if self.scale is not None or self.trace is None else 1.0,
            "requests": self.requests,
            "concurrency": self.concurrency,
            "prompt": _plain(self.prompt or DEFAULT_PROMPT) if made_up else None,
            "output": _plain(self.output or DEFAULT_OUTPUT) if made_up else None,
            "lengths": self.lengths,
            "burstiness": self._burstiness,
            "shared_prefix": None if self.shared_prefix is None else parse_tokens(self.shared_prefix),
            "prefix_groups": self.prefix_groups,
            "hash_tokens": self.hash_tokens,
            "warm_up": self.warm_up,
            "stagger": self._stagger if self.concurrency is not None and made_up else None,
            "seed": self.seed,
        }

    @property
    def _burstiness(self) -> float | str | None:
        """Infinity has no number in JSON."""
        return "inf" if self.burstiness == math.inf else self.burstiness

    @property
    def _clients(self) -> tuple[int | None, int | None]:
        """Clients of a closed loop, and the requests whose times are left out."""
        return self.concurrency, self.warm_up

    @property
    def _stagger(self) -> float:
        """Share by which outputs of one length vary; 0 in open loop. [-]"""
        from roofcast.calculators.serving.stagger import STAGGER

        if self.concurrency is None:
            return 0.0
        return STAGGER if self.stagger is None else options.share(self.stagger, "--stagger")

    def _source(self, option: str, path: str) -> Source:
        """A file that is a trace; the same one every time."""
        source = self.sources.setdefault(option, Source(option, path, self.hash_tokens))
        source.look()
        return source

    def _arrivals(self, rate: float | None) -> Arrivals | None:
        """When requests come; None in closed loop, and as a trace has them."""
        from roofcast.calculators.serving.arrivals import at_rate, check_shape, parse_rate

        shape = 1.0 if self.burstiness is None else self.burstiness
        try:
            check_shape(shape)
        except UsageError as error:
            raise UsageError(f"--burstiness {error}") from error
        if rate is None and self.rate is None:
            return None
        try:
            return parse_rate(self.rate or "", shape) if rate is None else at_rate(rate, shape)
        except UsageError as error:
            raise UsageError(f"--rate {error}") from error

    def _made(self) -> made.Apart:
        """Lengths that are made up."""
        from roofcast.calculators.serving.lengths import Apart, Fixed, Uniform, parse_lengths
        from roofcast.calculators.serving.stagger import staggered

        found = []
        texts = {"--prompt": self.prompt or DEFAULT_PROMPT, "--output": self.output or DEFAULT_OUTPUT}
        for option, text in texts.items():
            try:
                found.append(parse_lengths(text))
            except UsageError as error:
                raise UsageError(f"{option} {error}") from error
        prompt, output = found
        text = texts["--output"]
        if self._stagger and isinstance(output, Fixed):
            output = staggered(output.tokens, self._stagger)
            text = f"{output.least:,} to {output.most:,}" if isinstance(output, Uniform) else text
        shared = self._shared()
        if shared is not None and isinstance(prompt, Fixed) and prompt.tokens < shared.tokens and self.lengths is None:
            raise UsageError(
                f"--shared-prefix {self.shared_prefix}: it is longer than the prompt of {prompt.tokens:,} tokens; it is a "
                "part of --prompt"
            )
        return Apart(prompt, output, f"{texts['--prompt']} in, {text} out")

    def _shared(self) -> loads.SharedPrefix | None:
        """What prompts share."""
        from roofcast.calculators.serving.loads import BLOCK, SharedPrefix
        from roofcast.calculators.serving.trace_rows import MOST_TOKENS

        if self.shared_prefix is None:
            return None
        try:
            tokens = parse_tokens(self.shared_prefix)
        except UnitError as error:
            raise UsageError(f"--shared-prefix {error}") from error
        shared = SharedPrefix(tokens, self.prefix_groups or 1)
        if tokens > MOST_TOKENS or tokens // BLOCK * shared.groups > MOST_IDS:
            raise UsageError(
                f"--shared-prefix {self.shared_prefix}: {shared.groups:,} groups of {tokens:,} tokens are too many; at most "
                f"{MOST_IDS * BLOCK:,} tokens in all"
            )
        if tokens < BLOCK:
            raise UsageError(
                f"--shared-prefix {tokens}: it is shared by blocks of {BLOCK} tokens; give {BLOCK} or more"
            )
        return shared


def _plain(text: str) -> str | int | float:
    """A number as such; what is more than a number stays text."""
    for read in (parse_tokens, float):
        try:
            value = read(text)
        except ValueError:
            continue
        return value if math.isfinite(value) else text
    return text


OPTIONS: Final = {
    "--trace": "trace",
    "--rate": "rate",
    "--scale": "scale",
    "--requests": "requests",
    "--concurrency": "concurrency",
    "--prompt": "prompt",
    "--output": "output",
    "--lengths": "lengths",
    "--burstiness": "burstiness",
    "--shared-prefix": "shared_prefix",
    "--prefix-groups": "prefix_groups",
    "--hash-tokens": "hash_tokens",
    "--stagger": "stagger",
    "--warm-up": "warm_up",
}
# an option, those that it does not go with, and why
CONFLICTS: Final = (
    ("--rate", ("--concurrency",), "an open loop sends at a rate, a closed loop when clients are answered; give one"),
    ("--scale", ("--rate", "--concurrency"), "a trace's own times are scaled; give one"),
    (
        "--trace",
        ("--prompt", "--output", "--lengths"),
        "a trace has lengths of its own; --lengths FILE draws from them",
    ),
    ("--stagger", ("--trace", "--lengths"), "a file's outputs vary by themselves"),
    ("--trace", ("--shared-prefix",), "a trace says itself what its prompts share"),
    ("--lengths", ("--prompt", "--output"), "lengths are the file's; give one"),
)
# an option, and the one without which it means nothing
NEEDS: Final = (
    ("--scale", "--trace"),
    ("--hash-tokens", "--trace"),
    ("--burstiness", "--rate"),
    ("--stagger", "--concurrency"),
    ("--prefix-groups", "--shared-prefix"),
)
