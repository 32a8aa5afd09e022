"""Towers of Muse Spark, Inkling 1 and 2 and dots3 note: vision transformers, folded patches, audio in convolutions.

Counts and class defaults were checked against the reference implementation (transformers 5.24, meta device).
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations, pairwise
from math import ceil, isqrt, log, prod
from operator import getitem
from typing import Any, Final

from roofcast.modelspec.errors import UnknownArchitectureError
from roofcast.modelspec.tower import Tower
from roofcast.modelspec.towers import (
    Block,
    Reader,
    TowerClass,
    encoder_layer,
    feed_forward,
    linear,
    norm,
    pair,
    patch_embedding,
    read_block,
    top_block,
    width_of,
)

VISION: Final = "vision_config"
AUDIO: Final = "audio_config"
CHANNELS: Final = 3  # of a colour image
CLOSE: Final = 1e-4  # distances that the reference's single precision may not tell apart
MOST_LAYERS: Final = 1_000  # of a tower whose layers differ; far above any model there is
MOST_STEPS: Final = 16  # of folding a patch; far above that of any model
# Source of all defaults: the classes' configuration_*.py in transformers 5.24.
SPARK_VISION: Final = TowerClass(
    (),
    {
        "patch_size": 14, "pos_emb_height": 32, "pos_emb_width": 32, "num_attention_heads": 16,
        "num_hidden_layers": 50, "hidden_size": 1536, "intermediate_size": 8960, "patch_temporal": 2,
    },
)  # fmt: skip
SPARK_AUDIO: Final = TowerClass(
    (),
    {
        "patch_sizes": (16, 6, 5, 4), "hidden_sizes": (256, 512, 1024, 2048), "depths": (2, 2, 2, 2),
        "num_hidden_layers": 4, "mlp_ratio": 4.0, "conv_kernel_size": 7, "out_hidden_size": 8192,
    },
)  # fmt: skip
SPARK_TOP: Final = {"out_hidden_size": 6144, "projector_hidden_size": 4096}
INKLING_VISION: Final = TowerClass(
    (),
    {"patch_size": 40, "temporal_patch_size": 2, "num_channels": 3, "num_hidden_layers": 24},
    {"n_layers": "num_hidden_layers"},
)
INKLING_AUDIO: Final = TowerClass(
    (), {"n_mel_bins": 80, "mel_vocab_size": 256}, {"num_codebooks": "n_mel_bins", "codebook_size": "mel_vocab_size"}
)
INKLING_2: Final = TowerClass(
    ("inkling2_vision",),
    {
        "hidden_size": 1024, "intermediate_size": None, "num_hidden_layers": 23, "num_attention_heads": 16,
        "num_channels": 3, "patch_size": 20, "mlp_ratio": 4.0, "spatial_merge_size": 2, "posemb_grid_size": 32,
        "projection_hidden_dim": 4096, "projector_bias": False,
    },
    {"native_patch_size": "patch_size", "adapter_merge_size": "spatial_merge_size"},
)  # fmt: skip
DOTS_VISION: Final = TowerClass(
    (),
    {
        "hidden_size": 1536, "intermediate_size": 4224, "num_hidden_layers": 42, "num_attention_heads": 24,
        "num_channels": 3, "patch_size": 14, "moe_intermediate_size": 2112, "spatial_merge_size": 2,
        "attention_bias": False, "mlp_bias": False, "num_local_experts": 64, "adapter_in_dim": 1536,
        "adapter_out_dim": 5120, "adapter_merge_size": 2,
    },
    {"embed_dim": "hidden_size", "num_heads": "num_attention_heads", "use_bias": "attention_bias"},
)  # fmt: skip
DOTS_AUDIO: Final = TowerClass(
    (),
    {
        "hidden_size": 1280, "intermediate_size": 5120, "num_hidden_layers": 32, "num_attention_heads": 20,
        "feature_size": 128, "downsample_hidden_size": 480, "attention_bias": True, "adapter_input_size": 1280,
        "adapter_out_dim": 5120,
    },
    {
        "whisper_adapter_in_dim": "adapter_input_size", "whisper_adapter_out_dim": "adapter_out_dim",
        "adapter_output_size": "adapter_out_dim",
    },
)  # fmt: skip
# sizes that published files of dots3 note nest in the names of Whisper
WHISPER: Final = {
    "d_model": "hidden_size", "encoder_attention_heads": "num_attention_heads", "encoder_layers": "num_hidden_layers",
    "encoder_ffn_dim": "intermediate_size", "num_mel_bins": "feature_size",
}  # fmt: skip
# experts of the layers where a file of dots3 note does not list them; -1 is a dense layer
DOTS_EXPERTS: Final = (*(-1,) * 25, *range(4, 65, 4), 64)


def muse_spark(config: Mapping[str, Any], hidden: int) -> tuple[Tower, ...]:
    """Muse Spark: a transformer over patches of two frames, a projector, and a pyramid of convolutions over samples.

    Raises:
        MalformedModelError: sizes that cannot be.
    """
    block, top = read_block(config, VISION, SPARK_VISION), top_block(config, SPARK_TOP)
    width = width_of(block)
    patch = block.size("patch_temporal") * CHANNELS * block.size("patch_size") ** 2
    positions = block.size("pos_emb_height") * block.size("pos_emb_width") * width
    layers = block.size("num_hidden_layers") * encoder_layer(width, block.size("intermediate_size"))
    vision = linear(patch, width, bias=False) + positions + 2 * norm(width) + layers
    inner = top.size("projector_hidden_size")
    return (
        *pair(vision, inner * (top.size("out_hidden_size") + inner + hidden)),
        Tower("audio", _pyramid(config, hidden)),
    )


def _pyramid(config: Mapping[str, Any], hidden: int) -> int:
    """Muse Spark's audio: in every stage patches of the last one, and blocks of a convolution and a feed-forward."""
    block = read_block(config, AUDIO, SPARK_AUDIO)
    count, kernel, ratio = block.size("num_hidden_layers"), block.size("conv_kernel_size"), block.number("mlp_ratio")
    if count > MOST_LAYERS:
        raise block.wrong("num_hidden_layers", f"at most {MOST_LAYERS}")
    patches, widths, depths = (block.sizes(key, count) for key in ("patch_sizes", "hidden_sizes", "depths"))
    total, inputs = 0, 1  # samples of one channel
    for patch, width, depth in zip(patches, widths, depths, strict=True):
        mixing = linear(kernel, 1) * width + norm(width, bias=False)
        total += linear(inputs * patch, width) + norm(width, bias=False)
        total += depth * (mixing + feed_forward(width, int(width * ratio)))
        inputs = width
    _same_width(block, "out_hidden_size", hidden)
    return total + norm(inputs, bias=False) + linear(inputs, hidden) + norm(hidden, bias=False)


def _same_width(block: Block, key: str, width: int) -> None:
    """Raises where a tower does not end in the width that it must."""
    if block.size(key) != width:
        raise block.wrong(key, f"the width that reads it, {width}")


def inkling(config: Mapping[str, Any], hidden: int) -> tuple[Tower, ...]:
    """Inkling: patches folded step by step into one vector, and a table of mel values.

    Raises:
        MalformedModelError: sizes that cannot be.
        UnknownArchitectureError: layers whose folds are not understood.
    """
    block, audio = read_block(config, VISION, INKLING_VISION), read_block(config, AUDIO, INKLING_AUDIO)
    last = block.size("num_hidden_layers") - 1
    vision = norm(hidden, bias=False)
    for layer, (start, end) in enumerate(pairwise(_folds(block))):
        folded = start[3] * prod(after // before for before, after in zip(start[:3], end[:3], strict=True))
        width = hidden if layer == last else end[3]
        vision += linear(folded, width, bias=False) + (0 if layer == last else norm(width, bias=False))
    table = audio.size("n_mel_bins") * audio.size("mel_vocab_size") * hidden
    return Tower("vision", vision), Tower("audio", table + norm(hidden, bias=False))


def _folds(block: Block) -> tuple[tuple[int, int, int, int], ...]:
    """Frames, height, width and channels after each layer: of all steps those nearest to an even progression.

    Raises:
        UnknownArchitectureError: two choices are as near.
    """
    layers, channels = block.size("num_hidden_layers"), block.size("num_channels")
    patch, frames = block.size("patch_size"), block.size("temporal_patch_size")
    steps = [(1, 1, 1, channels)]
    steps += [(1, side, side, ceil(side * side * channels / 64) * 64) for side in _products(patch)]
    # the reference widens steps in time by 64 without rounding; they are the last layer's, whose width is another
    steps += [(n, patch, patch, patch * patch * channels * n * 64) for n in _products(frames)]
    if layers > MOST_LAYERS:
        raise block.wrong("num_hidden_layers", f"at most {MOST_LAYERS}")
    whole = log(patch * patch * frames * channels)
    distances = [[abs(whole * at / layers - log(prod(step[:3]))) for step in steps] for at in range(layers + 1)]
    chosen = _nearest(distances) if layers >= len(steps) else _assigned(distances)
    if chosen is None:
        msg = f"{block.where('num_hidden_layers')} is {layers}: how these layers fold a patch of {patch} by {frames} is not understood"
        raise UnknownArchitectureError(msg)
    return (steps[0], *(steps[step] for step in chosen[1:-1]), steps[-1])


def _nearest(distances: list[list[float]]) -> tuple[int, ...] | None:
    """The nearest step for each layer; None where two are as near."""
    rows = distances[1:-1]
    if any(len(row) > 1 and sorted(row)[1] - min(row) < CLOSE for row in rows):
        return None
    return (0, *(row.index(min(row)) for row in rows), 0)


def _assigned(distances: list[list[float]]) -> tuple[int, ...] | None:
    """Steps in order, one for each layer and each once, that are nearest together; None where two choices are as near.

    As distances on a line they have a best choice in order; it is the only one unless two layers may swap theirs.
    """
    if len(distances[0]) > MOST_STEPS:
        return None
    choices = combinations(range(len(distances[0])), len(distances))
    ranked = sorted((sum(map(getitem, distances, choice)), choice) for choice in choices)
    total, best = ranked[0]
    if len(ranked) > 1 and ranked[1][0] - total < CLOSE:
        return None
    swaps = (
        distances[one][best[two]] + distances[two][best[one]] - distances[one][best[one]] - distances[two][best[two]]
        for one, two in combinations(range(len(best)), 2)
    )
    return None if any(more < CLOSE for more in swaps) else best


def _products(number: int) -> list[int]:
    """Running products of a number's prime factors, the largest first.

    >>> _products(40), _products(1)
    ([5, 10, 20, 40], [])
    """
    factors: list[int] = []
    rest = number
    for prime in range(2, isqrt(number) + 1):
        while rest % prime == 0:
            factors.append(prime)
            rest //= prime
    factors += [rest] if rest > 1 else []
    factors.reverse()
    return [prod(factors[: last + 1]) for last in range(len(factors))]


def inkling2(config: Mapping[str, Any], hidden: int) -> tuple[Tower, ...]:
    """Inkling 2: a transformer with a class token and scaled branches, and a projector of merged patches.

    Raises:
        MalformedModelError: sizes that cannot be.
    """
    block = read_block(config, VISION, INKLING_2)
    width, stated = width_of(block), block.values["intermediate_size"]
    inner = int(width * block.number("mlp_ratio")) if stated is None else block.size("intermediate_size")
    if "text_hidden_size" in block.values:
        _same_width(block, "text_hidden_size", hidden)
    patch = block.size("num_channels") * block.size("patch_size") ** 2
    positions = (block.size("posemb_grid_size") ** 2 + 2) * width  # with the class token and its position
    layers = block.size("num_hidden_layers") * (encoder_layer(width, inner) + 2 * width)
    vision = linear(patch, width, bias=False) + positions + norm(width) + layers
    bias, middle = block.flag("projector_bias"), block.size("projection_hidden_dim")
    merged = block.size("spatial_merge_size") ** 2 * width
    return pair(vision, linear(merged, middle, bias=bias) + linear(middle, hidden, bias=bias))


def dots3_note(config: Mapping[str, Any], hidden: int) -> tuple[Tower, ...]:
    """dots3 note: a transformer whose later layers route, and one over audio, each with a projector.

    Raises:
        MalformedModelError: sizes that cannot be, lists of another length.
        UnknownArchitectureError: keys of layers that are not understood.
    """
    return (*_dots_vision(read_block(config, VISION, DOTS_VISION), hidden), *_dots_audio(config, hidden))


def _dots_vision(block: Block, hidden: int) -> tuple[Tower, ...]:
    width, experts = width_of(block), _dots_experts(block)
    bias, dense_bias = block.flag("attention_bias"), block.flag("mlp_bias")
    if dense_bias and any(experts):
        raise block.wrong("mlp_bias", "false where layers route")
    head = width // block.size("num_attention_heads")
    around = linear(width, 3 * width, bias=bias) + linear(width, width, bias=bias)
    around += 2 * norm(head, bias=False) + 2 * norm(width, bias=False)
    dense = feed_forward(width, block.size("intermediate_size"), gated=True, bias=dense_bias)
    routed = feed_forward(width, block.size("moe_intermediate_size"), gated=True, bias=False) + width  # and the router
    kernel = (block.size("patch_size"),) * 2
    vision = patch_embedding(block.size("num_channels"), width, kernel) + 2 * norm(width, bias=False)
    vision += sum(around + (count * routed if count else dense) for count in experts)
    _same_width(block, "adapter_in_dim", width)
    _same_width(block, "adapter_out_dim", hidden)
    _same_width(block, "adapter_merge_size", block.size("spatial_merge_size"))
    merged = block.size("adapter_merge_size") ** 2 * width
    return pair(vision, norm(width) + linear(merged, merged) + linear(merged, hidden))


def _dots_experts(block: Block) -> tuple[int, ...]:
    """Experts of every vision layer, 0 where it is dense: as a list says, else by names and per_layer_config."""
    names, counts = block.values.get("mlp_layer_types"), block.values.get("pyramid_num_routed")
    layers = block.size("num_hidden_layers")
    if counts is not None or names is None:
        listed = Block(block.name, {"pyramid_num_routed": DOTS_EXPERTS if counts is None else counts})
        routed = tuple(max(0, count) for count in listed.indexes("pyramid_num_routed"))
    else:
        routed = tuple(block.size("num_local_experts") * (name == "sparse") for name in _names(block))
    if len(routed) != layers:
        key = (
            "num_hidden_layers"
            if counts is None and names is None
            else "mlp_layer_types"
            if counts is None
            else "pyramid_num_routed"
        )
        raise block.wrong(key, f"of as many layers as there are: {layers} layers, {len(routed)} listed")
    own = block.values.get("per_layer_config")
    if own is None:
        return routed
    by_layer = _experts_of_layers(block, own)
    plain = block.size("num_local_experts")
    return tuple(by_layer.get(layer, plain) if count else 0 for layer, count in enumerate(routed))


def _names(block: Block) -> tuple[str, ...]:
    value = block.values["mlp_layer_types"]
    if not isinstance(value, (list, tuple)) or not set(map(str, value)) <= {"dense", "sparse"}:
        raise block.wrong("mlp_layer_types", "a list of dense and sparse")
    return tuple(value)


def _experts_of_layers(block: Block, own: object) -> dict[int, int]:
    """Experts that per_layer_config states of single layers."""
    if not isinstance(own, Mapping) or not all(str(key).isdecimal() and len(str(key)) < 6 for key in own):  # noqa: PLR2004
        raise block.wrong("per_layer_config", "an object by layer")
    found = {}
    for layer, entry in own.items():
        if not isinstance(entry, Mapping) or set(entry) - {"num_local_experts", "num_experts_per_tok"}:
            msg = f"{block.where('per_layer_config')} states other sizes than experts of layer {layer}, which is not understood"
            raise UnknownArchitectureError(msg)
        if "num_local_experts" in entry:
            found[int(layer)] = Block(f"{block.where('per_layer_config')}.{layer}", entry).size("num_local_experts")
    return found


def _dots_audio(config: Mapping[str, Any], hidden: int) -> tuple[Tower, ...]:
    block = read_block(config, AUDIO, DOTS_AUDIO)
    nested = block.values.get("whisper_config") or {}
    if not isinstance(nested, Mapping):
        raise block.wrong("whisper_config", "an object")
    own = {name: nested[key] for key, name in WHISPER.items() if key in nested}
    block = Block(block.name, {**block.values, **own})
    width, bias = width_of(block), block.flag("attention_bias")
    stem, rows = block.size("downsample_hidden_size"), ceil(block.size("feature_size") / 8)
    convolutions = patch_embedding(1, stem, (3, 3)) + 2 * patch_embedding(stem, stem, (3, 3))
    layer = 3 * linear(width, width, bias=bias) + linear(width, width, bias=False) + 2 * norm(width, bias=False)
    layer += feed_forward(width, block.size("intermediate_size"), gated=True)
    audio = convolutions + linear(stem * rows, width, bias=False) + norm(width, bias=False)
    _same_width(block, "adapter_input_size", width)
    _same_width(block, "adapter_out_dim", hidden)
    projector = norm(width) + linear(width, hidden) + linear(hidden, hidden)
    return pair(audio + block.size("num_hidden_layers") * layer, projector, "audio")


NEWEST_C_WRAPPERS: Final[dict[str, Reader]] = {
    "dots3_note": dots3_note,
    "inkling2": inkling2,
    "inkling2_loop": inkling2,
    "inkling_mm_model": inkling,
    "muse_spark": muse_spark,
}
