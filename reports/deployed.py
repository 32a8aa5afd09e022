"""What the pages of a model on a deployment share: names of devices, the set-up, what a step is called."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from roofcast.modelspec.step import DECODE, MIXED, PREFILL
from roofcast.reports.numbers import context_name, count

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roofcast.calculators.estimate import Layout, Weights

DECIDED: Final = {DECODE: "TPOT", PREFILL: "TTFT"}  # what the time of a phase decides
MEANT: Final = {
    DECODE: "a token of each sequence, after ctx tokens: time per output token (TPOT)",
    PREFILL: "all prompts of ctx tokens: time to first token (TTFT)",
    MIXED: "decode after ctx tokens, and a chunk of a prompt beside it",
}
BOUNDS_ONLY: Final = (
    "times are bounds: the least that peak and bandwidth allow; `roofcast estimate` says what to expect"
)


def on_devices(gpu: str, layout: Layout) -> str:
    """The devices.

    >>> from roofcast.calculators.estimate import Layout
    >>> on_devices("h200-sxm", Layout(8, 8, 1, 1, 1))
    '8 x h200-sxm'
    """
    return gpu if layout.gpus == 1 else f"{layout.gpus} x {gpu}"


def layout_words(layout: Layout) -> str:
    """How several devices share a model; empty of one.

    >>> from roofcast.calculators.estimate import Layout
    >>> layout_words(Layout(16, 8, 1, 16, 2))
    'tensor parallel 8, expert parallel 16, 2 replicas'
    """
    words = {
        f"tensor parallel {layout.tp}": layout.tp,
        f"pipeline of {layout.pp} stages": layout.pp,
        f"expert parallel {layout.ep}": layout.ep,
        f"{layout.dp} replicas": layout.dp,
    }
    return ", ".join(text for text, devices in words.items() if devices > 1)


def setup_lines(layout: Layout, stored: Weights, inputs: Mapping[str, Any]) -> list[str]:
    """Layout, formats and engine."""
    kv, engine = inputs.get("kv"), inputs.get("engine") or "none"
    bits = f"{stored.bits:.1f} bits each, " if stored.bits else ""
    weights = f"{inputs.get('weights') or 'as stored'} ({bits}multiplied in {' and '.join(stored.formats) or 'none'})"
    return [*([layout_words(layout)] if layout.gpus > 1 else []), f"weights {weights}, KV cache {kv}, engine {engine}"]


def step_name(phase: str, batch: int, context: int) -> str:
    """A row in words.

    >>> step_name("decode", 16, 131072)
    'decode of 16 at 128k'
    """
    return f"{phase} of {count(batch)} at {context_name(context)}"


def phase_title(phase: str) -> str:
    """Heading of a phase's table.

    >>> phase_title("prefill")
    'prefill: all prompts of ctx tokens: time to first token (TTFT)'
    """
    return f"{phase}: {MEANT.get(phase, '')}"
