"""The techniques that `levers` compares: each a deployment, a model or a workload with one thing changed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from roofcast.calculators.deployment import prepare, reshaped
from roofcast.calculators.drafts import HeadAsked, Shape, drafter_of, usual_method
from roofcast.calculators.rounds import Acceptance, Speculation, best_round, least_acceptance, timed_lengths
from roofcast.modelspec.attention import GroupedAttention
from roofcast.modelspec.errors import ModelError
from roofcast.modelspec.formats import FORMATS
from roofcast.modelspec.latent import LatentAttention
from roofcast.modelspec.requested import find_requested
from roofcast.modelspec.state import CACHE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from roofcast.calculators.deployment import Deployment, Ready
    from roofcast.calculators.drafts import Drafter
    from roofcast.calculators.rounds import Timed
    from roofcast.hwdb.accelerator import Accelerator
    from roofcast.modelspec.attention import Attention
    from roofcast.modelspec.spec import ModelSpec

SINKS: Final = 4  # first tokens that a sliding window keeps. Source: Xiao et al. 2023, arXiv:2309.17453, section 3.2
WINDOWS: Final = (4096, 1024)  # the first that is shorter than the context
GROUPS: Final = 8  # KV heads of the usual GQA
ACCEPTANCES: Final = (
    0.6,
    0.8,
)  # of drafted tokens. Source: EAGLE-3, arXiv:2503.01840, figure 7; vLLM's logs from .57 on
KV_SAYS: Final = {
    "fp8": "a byte an element (scales a tensor not counted); attention multiplies in FP8 where the device can",
    "int8": "a byte an element (scales not counted); attention still multiplies in 16 bits",
    "kivi2": "KIVI, arXiv:2402.02750: keys scaled a channel, values a token, a 16-bit scale and zero point for 32 elements: "
    "3 bits an element, not 2, and the last 128 tokens in 16 bits",
}
WIDENED_SAYS: Final = "multiplied in 16 bits, so a prefill that arithmetic bounds gains nothing over 16-bit weights, and loses against FP8"
WEIGHT_SAYS: Final = {
    "bf16": "stored and multiplied in 16 bits",
    "fp8": "weights and activations in FP8 where the device multiplies it: prefill too; else weights are widened",
    "int4": f"weights alone (scales not counted): {WIDENED_SAYS}",
    "q8_0": f"llama.cpp's 8.5 bits: {WIDENED_SAYS}",
    "q4_k_m": f"llama.cpp's mix of 4.5 and 6.6 bits: {WIDENED_SAYS}",
}


@dataclass(frozen=True, slots=True)
class Base:
    """What the techniques are compared with.

    Args:
        ready: the deployment.
        batch, context: of decode.
        prompt: of prefill. [token]
        others: accelerators to compare with.
        usable: share of a device's memory that weights and cache may take. [-]
    """

    ready: Ready
    batch: int
    context: int
    prompt: int
    others: tuple[Accelerator, ...] = ()
    usable: float = 1.0


@dataclass(frozen=True, slots=True)
class Change:
    """One technique.

    Args:
        lever: its kind.
        change: what is changed, in words.
        make: makes the changed deployment; may raise what says why it cannot be.
        says: what it bounds, costs or forgets.
        batch: sequences; None is the base's.
        cached: share of the prompt that is in the cache. [-]
        speedup: of decode at a batch, where a step yields several tokens; None is 1. [-]
        held: tokens of each sequence beyond the context. [token]
    """

    lever: str
    change: str
    make: Callable[[], Ready]
    says: str = ""
    batch: int | None = None
    cached: float = 0.0
    speedup: Callable[[int], float] | None = None
    held: int = 0


def _with(base: Base, deployment: Deployment) -> Callable[[], Ready]:
    return lambda: prepare(base.ready.model, deployment)


def _same(base: Base) -> Callable[[], Ready]:
    return lambda: base.ready


def of_cache(base: Base) -> Iterator[Change]:
    """The cache in fewer bits: FP8, INT8, and 2 bits with all that it takes."""
    used = base.ready.deployment.kv
    cached = any(part.format == CACHE for part, _ in base.ready.kept)
    for name, says in KV_SAYS.items() if cached else ():
        if FORMATS[name].bytes_per_element < used.bytes_per_element or FORMATS[name].bits < used.bits:
            yield Change(
                "kv", f"KV cache in {name}", _with(base, replace(base.ready.deployment, kv=FORMATS[name])), says
            )


def of_weights(base: Base) -> Iterator[Change]:
    """Weights in fewer bits than they have."""
    deployment, model = base.ready.deployment, base.ready.model
    whole, held = model.weight_bytes(deployment.weights).value, model.parameters_in_files or model.parameters.value
    used = 8 * whole / held if whole and held else 0.0  # [bit] a parameter
    for name, says in WEIGHT_SAYS.items():
        bits = FORMATS["q4_k" if name == "q4_k_m" else name].bytes_per_element * 8
        if bits < used * 0.95:
            changed = replace(deployment, weights=find_requested(name))
            yield Change("weights", f"weights in {name}", _with(base, changed), says)


def of_batch(base: Base) -> Iterator[Change]:
    """One sequence, and four times as many: weights are read once for all of them."""
    for batch in dict.fromkeys((1, 4 * base.batch)):
        if batch != base.batch:
            yield Change(
                "batch", f"batch {batch:,}", _same(base), "weights are read once a step for all sequences", batch
            )


def of_devices(base: Base) -> Iterator[Change]:
    """Twice and four times the devices that share every layer."""
    deployment = base.ready.deployment
    for times in (2, 4):
        shards = replace(deployment.shards, tp=deployment.shards.tp * times)
        says = f"{shards.devices} GPUs: heads and widths are split among them, sums over the group are added"
        yield Change("tp", f"tensor parallel {shards.tp}", _with(base, replace(deployment, shards=shards)), says)


def of_attention(base: Base) -> Iterator[Change]:
    """Another attention: as if the model had been trained with it; its weights change too."""
    spec = base.ready.model.spec
    for name, (turn, says) in ATTENTIONS.items():
        changed = reformed(spec, turn)
        if changed != spec:
            turned = dict.fromkeys(
                mixer.label for layer in spec.layers for mixer in layer.mixers if turn(mixer) != mixer
            )
            yield Change("attention", f"{name} instead of {'+'.join(turned)}", _reshape(base, changed), says)


def _reshape(base: Base, spec: ModelSpec) -> Callable[[], Ready]:
    return lambda: reshaped(base.ready, spec)


def reformed(spec: ModelSpec, turn: Callable[[Attention], Attention]) -> ModelSpec:
    """The model with every mixer turned into another."""
    made = {layer: replace(layer, mixers=tuple(map(turn, layer.mixers))) for layer in dict.fromkeys(spec.layers)}
    return replace(spec, layers=tuple(made[layer] for layer in spec.layers))


def with_kv_heads(heads: int | None) -> Callable[[Attention], Attention]:
    """Turns attention of per-head keys, or a latent, into one of so many KV heads; None is as many as query heads."""

    def turn(mixer: Attention) -> Attention:
        if isinstance(mixer, GroupedAttention):
            count = heads or mixer.query_heads
            return replace(mixer, kv_heads=count) if mixer.query_heads % count == 0 else mixer
        if isinstance(mixer, LatentAttention) and mixer.query_heads % (heads or 1) == 0:
            count = heads or mixer.query_heads
            return GroupedAttention(mixer.query_heads, count, mixer.head_dim, mixer.value_head_dim, window=mixer.window)
        return mixer

    return turn


def with_latent(mixer: Attention) -> Attention:
    """Turns attention of per-head keys into MLA of DeepSeek's proportions: d_c = 4 d, d_rope = d / 2.

    Source: DeepSeek-V2, arXiv:2405.04434, section 2.1.4, table 1.
    """
    if not isinstance(mixer, GroupedAttention):
        return mixer
    width = mixer.head_dim
    return LatentAttention(
        query_heads=mixer.query_heads,
        kv_lora_rank=4 * width,
        q_lora_rank=None,
        qk_nope_head_dim=width,
        qk_rope_head_dim=width // 2,
        value_head_dim=mixer.value_head_dim,
        window=mixer.window,
        stores=mixer.stores,
    )


# what if the model had this attention -> how each mixer turns, and what that means
ATTENTIONS: Final[dict[str, tuple[Callable[[Attention], Attention], str]]] = {
    "MHA": (with_kv_heads(None), "keys and values for every query head: 1 FLOP a byte of attention in decode"),
    "GQA-8": (with_kv_heads(GROUPS), "8 KV heads; what-if: the model would have to be trained so"),
    "MQA": (with_kv_heads(1), "one KV head, which tensor parallelism replicates; what-if: trained so"),
    "MLA": (
        with_latent,
        "one latent of 4 d and a RoPE key of d / 2 for all heads, whole on every GPU; what-if: trained so",
    ),
}


def of_window(base: Base) -> Iterator[Change]:
    """A sliding window with attention sinks, where the context is longer than it."""
    window = next((w for w in WINDOWS if w + SINKS < base.context), None)
    if window is None:
        return
    changed = reformed(base.ready.model.spec, _windowed(window + SINKS))
    says = (
        f"StreamingLLM, arXiv:2309.17453: cache and time a token stop growing at {window + SINKS:,} tokens; "
        f"all but the last {window:,} and the first {SINKS} are forgotten, so the context it can use does not grow"
    )
    if changed != base.ready.model.spec:
        yield Change("window", f"window {window:,} + {SINKS} sinks", _reshape(base, changed), says)


def _windowed(width: int) -> Callable[[Attention], Attention]:
    def turn(mixer: Attention) -> Attention:
        if not isinstance(mixer, GroupedAttention | LatentAttention):
            return mixer
        return replace(mixer, window=min(width, mixer.window or width))

    return turn


def of_prefix(base: Base) -> Iterator[Change]:
    """Part of the prompt already in the cache."""
    for share in (0.5, 0.9):
        says = "prefill computes the rest alone, reading what is cached; decode is not changed"
        yield Change("prefix", f"{share:.0%} of the prompt cached", _same(base), says, cached=share)


def of_speculation(base: Base) -> Iterator[Change]:
    """Tokens drafted by the model's own prediction, or an EAGLE-3 head, at two chances of being accepted."""
    ready = base.ready
    if ready.deployment.shards.pp > 1:  # how stages would share the drafting is not counted
        return
    try:
        drafter = drafter_of(usual_method(ready), ready, HeadAsked())
    except ModelError:  # no head is known for its widths
        return
    asked = Speculation(ready, drafter, base.context, (Shape(1),))
    timed = timed_lengths(asked, base.batch)
    for rate in ACCEPTANCES:
        best = best_round(timed, Acceptance(rate))
        longest = max(1, best[0]) if best else 1  # larger batches want no longer drafts, and their tokens must fit
        yield Change(
            "speculation",
            f"{_drafted(best)}, {rate:.0%} accepted",
            _drafting(base, drafter),
            _speculation_says(drafter, timed),
            speedup=partial(_speed, replace(asked, longest=longest), rate),
            held=longest,
        )


def _drafted(best: tuple[int, float] | None) -> str:
    """How much is drafted; nothing is said of it where nothing fits."""
    if best is None:
        return "drafting"
    return f"{best[0]} token{'s' * (best[0] > 1)} drafted" if best[0] else "no gain from drafting"


def _speed(asked: Speculation, rate: float, batch: int) -> float:
    best = best_round(timed_lengths(asked, batch), Acceptance(rate))
    return best[1] if best else 1.0


def _drafting(base: Base, drafter: Drafter) -> Callable[[], Ready]:
    """The deployment with the draft's weights and cache beside the model's."""
    ready = base.ready
    kept = drafter.kept.kept if drafter.kept else ()
    return lambda: replace(
        ready, weight_bytes=ready.weight_bytes + drafter.weights(Shape(1)), kept=(*ready.kept, *kept)
    )


def _speculation_says(drafter: Drafter, timed: Sequence[Timed]) -> str:
    even = least_acceptance(timed)
    pays = "it never pays at this batch" if even is None else f"some length pays above an acceptance of {even:.2f}"
    pays = pays if any(one.cost is not None for one in timed) else "it does not fit"
    taken = f" ({'; '.join(drafter.assumptions)})" if drafter.assumptions else ""
    return (
        f"{drafter.name} drafts{taken}, one step verifies; as many sequences as fit draft the length that is best for them; "
        f"{pays}; measured rounds cost more than this counts, see `roofcast speculate`"
    )


def of_devices_of_another_kind(base: Base) -> Iterator[Change]:
    """Other accelerators, as many of them."""
    for other in base.others:
        deployment = replace(base.ready.deployment, accelerator=other)
        yield Change("gpu", other.id, _with(base, deployment), f"{other.bandwidth / 1e12:.3g} TB/s")


LEVERS: Final[tuple[Callable[[Base], Iterator[Change]], ...]] = (
    of_cache,
    of_weights,
    of_batch,
    of_devices,
    of_attention,
    of_window,
    of_prefix,
    of_speculation,
    of_devices_of_another_kind,
)
