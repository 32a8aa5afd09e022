"""Holds what a config implies against the weight tensors: layers, and the rows of key and value projections.

A class that nobody has checked may do in code what no key says, and any file may lie. The projections cannot hide:
their rows are what a token adds to the cache.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from roofcast.modelspec.attention import GroupedAttention
from roofcast.modelspec.errors import UnknownArchitectureError
from roofcast.modelspec.strictjson import quoted

if TYPE_CHECKING:
    from collections.abc import Iterator
    from collections.abc import Set as AbstractSet

    from roofcast.modelspec.attention import Attention
    from roofcast.modelspec.layers import Layer
    from roofcast.modelspec.spec import ModelSpec
    from roofcast.modelspec.weights import Tensor, WeightFiles

LAYER: Final = r"(?:(?:^|\.)(?:layers|h|blocks)|^blk)\.(?P<layer>\d{1,6})\."
_PROJECTION: Final = (
    r"(?:^|\.)layers\.(?P<layer>\d{1,6})\.(?:\w+\.)*(?P<name>[kv]_proj|kv_a_proj_with_mqa)\.(?P<part>\w+)$"
)
# the same in GGUF files, whose shapes count elements whatever their type; some models have the three in one matrix
_GGUF_PROJECTION: Final = r"blk\.(?P<layer>\d{1,6})\.(?P<name>attn_k|attn_v|attn_qkv|attn_kv_a_mqa)\.weight"
_GGUF_KEYS: Final = r"blk\.(?P<layer>\d{1,6})\.attn_[kv](?:_norm)?\.weight"
_FUSED: Final = "qkv_proj"
_GGUF_NAMES: Final = {"attn_k": "k_proj", "attn_v": "v_proj", "attn_qkv": _FUSED, "attn_kv_a_mqa": "kv_a_proj_with_mqa"}
# modules beside a decoder, whose layers have numbers of their own
_TOWERS: Final = r"vision|visual|vit|vpm|apm|audio|speech|image|encoder|tower|talker"
BESIDE: Final = rf"(?:^|\.)(?:{_TOWERS})\w*\."
_ELSEWHERE: Final = rf"(?:^|\.)(?:{_TOWERS}|draft|mtp|nextn)\w*\."
# parts of state-space, recurrent, convolutional, indexed and compressed attention layers
_OTHER_STATE: Final = (
    r"\.(?:A_log|dt_bias|dt_proj|conv1d|ssm\w*|mamba|indexer|compressor|time_mix\w*|x_proj|cross_attn)\."
)
# what a layer of softmax attention and feed-forward has: projections, norms, sinks and gates, anything that feeds forward
_PLAIN_PARTS: Final = (
    r"(?:self_attn|self_attention|attention|attn)\.(?:[qkvo]_proj|out_proj|[qk]_norm|[qk]_layernorm|q_[ab]_proj|"
    r"q_a_layernorm|kv_a_proj_with_mqa|kv_a_layernorm|kv_b_proj|sinks?|rotary_emb|rotary_pos_emb)(?:\.|$)|"
    r"(?:mlp|mlps|feed_forward|ffn|block_sparse_moe|moe|experts|shared_mlp|shared_experts?|gate)\.|"
    r"\w*(?:norm|ln)\w*(?:\.|$)|"
    r"attn_(?:[qkv]|qkv|output|sinks|rot_embd|q_[ab]|k_b|v_b|kv_b|kv_a_mqa)\.|ffn_\w+\.|exp_probs_b\."
)
# the part of a projection that tells its rows -> the dimension that has them
_ROWS: Final = {"weight": 0, "weight_packed": 0, "scales": -1}
_AFFINE: Final = "biases"  # beside scales: MLX, whose scales are [rows, groups] where GPTQ and AWQ have [groups, rows]
_MATRIX: Final = 2  # dimensions; bitsandbytes stores [n, 1], which tells nothing
_WHOLE: Final = frozenset({"F64", "F32", "F16", "BF16", "F8_E4M3", "F8_E5M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ"})


def confirm_attention(spec: ModelSpec, files: WeightFiles) -> None:
    """Refuses a model of an unknown class unless its tensors confirm every layer's attention.

    Raises:
        UnknownArchitectureError: they do not, or the files do not tell, or hold parts of another kind of layer.
    """
    what = f"model_type {quoted(spec.model_type)} is not known"
    for tensor in files.tensors:
        if re.search(_OTHER_STATE, f"{tensor.name}."):
            name = quoted(tensor.name)
            raise UnknownArchitectureError(f"{what}, and {name} is of a layer that roofcast does not understand")
    strange = next((t.name for t in files.tensors if _strange_part(t.name, len(spec.layers))), None)
    if strange:
        raise UnknownArchitectureError(
            f"{what}, and {quoted(strange)} is of no attention or feed-forward that it names"
        )
    for number, layer in enumerate(spec.layers):
        if not _confirmable(layer):
            kind = layer.label or "lack of attention"
            raise UnknownArchitectureError(f"{what}, and no tensor could confirm layer {number}'s {kind}")
    beyond = layers_beyond(spec, files)
    if beyond:
        raise UnknownArchitectureError(f"{what}, and {beyond}")
    problem = next(_contradictions(spec, files, all_layers=True), None)
    if problem:
        raise UnknownArchitectureError(f"{what}, and {problem}")


def _strange_part(tensor: str, layers: int) -> bool:
    """Whether a tensor of a decoder layer belongs to none of the parts that plain layers have.

    >>> _strange_part("model.layers.0.self_attn.q_conv1d.weight", 4), _strange_part("model.layers.0.mlp.up.weight", 4)
    (True, False)
    """
    match = re.search(LAYER, tensor)
    if not match or int(match["layer"]) >= layers or re.search(_ELSEWHERE, tensor[: match.end()]):
        return False
    return re.match(_PLAIN_PARTS, tensor[match.end() :]) is None


def contradiction(spec: ModelSpec, files: WeightFiles) -> str | None:
    """What the tensors of a known class say against its config, None where they agree or do not tell."""
    return layers_beyond(spec, files) or next(_contradictions(spec, files, all_layers=False), None)


def unread_elements(spec: ModelSpec, files: WeightFiles) -> int:
    """Elements of keys and values in layers that read an earlier layer's: GGUF files of Gemma 3n and 4 hold them."""
    readers = {
        number
        for number, layer in enumerate(spec.layers)
        if layer.mixers and not any(getattr(mixer, "stores", True) for mixer in layer.mixers)
    }
    found = ((re.match(_GGUF_KEYS, tensor.name), tensor) for tensor in files.tensors) if readers else ()
    return sum(tensor.elements for match, tensor in found if match and int(match["layer"]) in readers)


def layers_beyond(spec: ModelSpec, files: WeightFiles) -> str | None:
    """Layers in the files that neither the decoder nor its multi-token prediction accounts for."""
    names = (tensor.name for tensor in files.tensors if not re.search(_ELSEWHERE, tensor.name))
    numbers = {int(match["layer"]) for match in (re.search(LAYER, name) for name in names) if match}
    expected = len(spec.layers) + spec.mtp_layers
    if not numbers or max(numbers) < expected:
        return None
    return f"the weight files hold layer {max(numbers)}, but the config has {len(spec.layers)} layers"


def _contradictions(spec: ModelSpec, files: WeightFiles, *, all_layers: bool) -> Iterator[str]:
    """One line for each projection whose rows are not those implied; with `all_layers` absence counts too."""
    rows: dict[tuple[int, str], set[int]] = {}
    affine = {t.name.rpartition(".")[0] for t in files.tensors if t.name.endswith(f".{_AFFINE}")}
    for tensor in files.tensors:
        found = _rows_of(tensor, affine)
        if found:
            rows.setdefault(found[0], set()).add(found[1])
    for number, layer in enumerate(spec.layers):
        fused = (number, _FUSED) in rows and (number, "k_proj") not in rows
        for name, expected in _fused(layer) if fused else _implied(layer):
            seen = rows.get((number, name), set())
            if seen == {expected} or (not seen and not all_layers):
                continue
            said = " and ".join(map(str, sorted(seen))) + " rows" if seen else "no such tensor"
            yield f"layer {number}'s {name} does not confirm its attention: {said}, not {expected} rows"


def _implied(layer: Layer) -> dict[tuple[str, int], None]:
    """Projections that fill the layer's cache, with the rows that its mixers imply, each once."""
    found = ((name, n) for mixer in layer.mixers for name, n in _rows_implied(mixer).items())
    return dict.fromkeys(found)


def _fused(layer: Layer) -> dict[tuple[str, int], None]:
    """Queries, keys and values in one matrix, with the rows that softmax attention implies; nothing of other layers."""
    found = {
        (_FUSED, mixer.query_heads * mixer.head_dim * (1 + mixer.doubled_query) + sum(_rows_implied(mixer).values()))
        for mixer in layer.mixers
        if isinstance(mixer, GroupedAttention) and mixer.stores
    }
    return dict.fromkeys(found)


def _rows_implied(mixer: Attention) -> dict[str, int]:
    """Rows of the projections that fill one mixer's cache; none of a kind that has no such projections."""
    return dict(getattr(mixer, "projection_rows", ()))


def _confirmable(layer: Layer) -> bool:
    """Whether projections could confirm all of a layer's state: each mixer fills its cache by them, and has no index."""
    return bool(layer.mixers) and all(_rows_implied(m) and not getattr(m, "index", None) for m in layer.mixers)


def _rows_of(tensor: Tensor, affine: AbstractSet[str]) -> tuple[tuple[int, str], int] | None:
    """Layer, projection and rows that a tensor tells, None where it tells nothing of them."""
    stored = re.fullmatch(_GGUF_PROJECTION, tensor.name)
    if stored and len(tensor.shape) == _MATRIX:
        return (int(stored["layer"]), _GGUF_NAMES[stored["name"]]), tensor.shape[0]
    match = re.search(_PROJECTION, tensor.name)
    if not match or match["part"] not in _ROWS or len(tensor.shape) != _MATRIX or re.search(_ELSEWHERE, tensor.name):
        return None
    if match["part"] == "weight" and tensor.dtype not in _WHOLE:
        packed_rows = tensor.dtype == "U8" and tensor.shape[1] > 1  # nvfp4 packs two columns into one byte
        if not packed_rows:
            return None
    across = 0 if tensor.name.rpartition(".")[0] in affine else _ROWS[match["part"]]
    return (int(match["layer"]), match["name"]), tensor.shape[across]
