"""Set-ups of papers on serving, as near as the simulator can be brought to them, and the most that each sustains.

Published data sets of lengths are not at hand: log-normal lengths with the medians that a paper states stand for them,
drawn anew where they are longer than its limit. Which sigma is assumed is said where it is.
"""

from __future__ import annotations

import json
from array import array
from dataclasses import dataclass, field
from functools import cache
from random import Random
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from roofcast.calculators.check_quantities import Case
from roofcast.calculators.engines.flags import Flags
from roofcast.calculators.serving.arrivals import at_rate
from roofcast.calculators.serving.chat_lengths import SHAREGPT, ChatLengths
from roofcast.calculators.serving.highest import highest
from roofcast.calculators.serving.lengths import Apart, Pairs, parse_lengths
from roofcast.calculators.serving.loads import Sending, synthetic
from roofcast.calculators.serving.result import Goal
from roofcast.calculators.serving.service import DEFAULT, Options, service_of
from roofcast.calculators.serving.simulate import result_of, run
from roofcast.cli.checking import Setups
from roofcast.cli.deploy import efficiency_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from roofcast.calculators.serving.loads import SharedPrefix
    from roofcast.calculators.serving.result import SimulateResult
    from roofcast.calculators.serving.service import Service
    from roofcast.calculators.serving.simulate import Ran

Lengths = Apart | Pairs

#: GPT-3 175B in the shape of OPT's. Source: Brown et al. 2020, arXiv:2005.14165, table 2.1 (96 layers, 12,288, 96 heads)
GPT_175B: Final[dict[str, Any]] = {
    "model_type": "opt", "hidden_size": 12288, "num_hidden_layers": 96, "num_attention_heads": 96, "ffn_dim": 49152,
    "vocab_size": 50272, "max_position_embeddings": 2048, "word_embed_proj_dim": 12288, "do_layer_norm_before": True,
    "torch_dtype": "float16",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Setup:
    """Machines of a paper.

    Args:
        model: name, or path of a config.
        gpu: id of the accelerator.
        tp, pp, dp: how its GPUs share the model; replicas.
        flags: of vLLM, whose rules of memory apply.
    """

    model: str
    gpu: str
    tp: int = 1
    pp: int = 1
    dp: int = 1
    flags: dict[str, Any] = field(default_factory=dict)

    def service(self, options: Options = DEFAULT, **flags: Any) -> Service:
        """What answers requests there."""
        case = Case(
            model=self.model, gpu=self.gpu, gpus=self.tp * self.pp * self.dp, tp=self.tp, pp=self.pp, dp=self.dp,
            engine="vllm", flags=Flags(**{**self.flags, **flags}),
        )  # fmt: skip
        served, memory = _setups().served(case)
        service, _ = service_of(served, memory, options)
        assert not service.reason, service.reason
        return service


@cache
def _setups() -> Setups:
    """Models and deployments, made once."""
    return Setups(efficiency_of("expected"), offline=True)


def gpt_175b(folder: Path) -> str:
    """A config of GPT-3 175B."""
    path = folder / "gpt-175b.json"
    path.write_text(json.dumps(GPT_175B))
    return str(path)


def paired(lengths: ChatLengths, count: int = 4000) -> Pairs:
    """Prompts with their outputs, drawn once."""
    drawn = list(lengths.pairs(count, Random(0)))  # noqa: S311 - no secret
    return Pairs(array("i", [one for one, _ in drawn]), array("i", [one for _, one in drawn]), "drawn")


def apart(prompt: str, output: str) -> Apart:
    """Prompts and outputs as the command takes them."""
    return Apart(parse_lengths(prompt), parse_lengths(output), f"{prompt} in, {output} out")


def at(service: Service, lengths: Lengths, rate: float, requests: int = 300) -> Ran:
    """A service after requests that come at a rate."""
    return run(service, synthetic(lengths, Sending(at_rate(rate, 1.0), requests=max(1000, requests))))


def saturated(
    service: Service, lengths: Lengths, clients: int, requests: int, shared: SharedPrefix | None = None
) -> SimulateResult:
    """A service that is never short of requests."""
    load = synthetic(lengths, Sending(concurrency=clients, requests=requests), shared)
    return result_of(run(service, load), Goal())


def capacity(
    service: Service, lengths: Lengths, keeps: Callable[[Ran], bool], requests: int = 300, start: float = 1.0
) -> float:
    """The most requests a second that keep a promise with a queue that does not grow, within 3 %; from `start` on. [1/s]"""
    found = highest(lambda rate: _stable(ran := at(service, lengths, rate, requests)) and keeps(ran), start, 0.03)
    assert found.rate is not None
    assert found.beyond is not None
    return found.rate


def _stable(ran: Ran) -> bool:
    return result_of(ran, Goal()).stable


def promise(goal: Goal) -> Callable[[Ran], bool]:
    """Whether a goal is met."""

    def keeps(ran: Ran) -> bool:
        kept = result_of(ran, goal).kept
        return kept is not None and kept.met

    return keeps


def normalised(ran: Ran) -> list[float]:
    """Normalised latency, end to end over output tokens, of each request. [s]

    Source: Yu et al. 2022, Orca, section 6.2; Kwon et al. 2023, section 6.1. The outputs follow from the three times.
    """
    tally = ran.tally
    return [
        whole / (1 if each < 0 else round((whole - first) / each) + 1)
        for whole, first, each in zip(tally.e2e, tally.ttft, tally.tpot, strict=True)
    ]


def median_latency(limit: float) -> Callable[[Ran], bool]:
    """Whether half of all requests take at most so long a token. [s]"""
    return lambda ran: median(normalised(ran)) <= limit


def mean_latency(limit: float) -> Callable[[Ran], bool]:
    """Whether requests take at most so long a token in the mean. [s]"""
    return lambda ran: (every := normalised(ran)) != [] and sum(every) / len(every) <= limit


#: Yu et al. 2022, section 6.2: uniform
ORCA: Final = apart("uniform:32-512", "uniform:1-128")
#: medians of 1,730 and 415, and of 7,059 and 208 tokens. Source: Agrawal et al. 2024, arXiv:2403.02310, table 2; all sigmas
#: are assumed
OPENCHAT: Final = paired(ChatLengths(2600, 450, 0.85, 0.4, 8192))
ARXIV: Final = paired(ChatLengths(7700, 245, 0.42, 0.55, 16384))
#: as `occupancy` has it
CHATS: Final = paired(SHAREGPT)
#: means of Azure's conversations of 2023; sigmas are assumed
CONVERSATIONS: Final = paired(ChatLengths(1155, 211, 0.6, 0.9, 4096))
#: Zhong et al. 2024, arXiv:2401.09670, figure 1
FIGURE_1: Final = apart("512", "64")
