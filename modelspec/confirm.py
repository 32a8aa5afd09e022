"""Holds the attention that a config implies against the weight tensors, where the model class is not known.

A class that nobody has checked may do in code what no key says. Its key and value projections cannot hide: their
rows are what a token adds to the cache.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from roofcast.modelspec.attention import GroupedAttention
from roofcast.modelspec.errors import UnknownArchitectureError
from roofcast.modelspec.strictjson import quoted

if TYPE_CHECKING:
    from roofcast.modelspec.spec import ModelSpec
    from roofcast.modelspec.weights import WeightFiles

_PROJECTION: Final = r"(?:^|\.)layers\.(?P<layer>\d+)\.(?:\w+\.)*(?P<name>[kv]_proj|kv_a_proj_with_mqa)\.weight$"
# parts of state-space, recurrent, convolutional, indexed and compressed attention layers
_OTHER_STATE: Final = (
    r"\.(?:A_log|dt_bias|dt_proj|conv1d|ssm\w*|mamba|indexer|compressor|time_mix\w*|x_proj|cross_attn)\."
)


def confirm_attention(spec: ModelSpec, files: WeightFiles) -> None:
    """Checks that every layer's key and value projections have the rows that its attention implies.

    Raises:
        UnknownArchitectureError: they do not, or the files do not tell, or hold parts of another kind of layer.
    """
    what = f"model_type {quoted(spec.model_type)} is not known"
    rows: dict[tuple[int, str], int] = {}
    for tensor in files.tensors:
        if re.search(_OTHER_STATE, f"{tensor.name}."):
            raise UnknownArchitectureError(
                f"{what}, and {quoted(tensor.name)} is of a layer that roofcast does not understand"
            )
        match = re.search(_PROJECTION, tensor.name)
        if match and tensor.shape:
            rows[int(match["layer"]), match["name"]] = tensor.shape[0]
    for number, layer in enumerate(spec.layers):
        attention = layer.attention
        if isinstance(attention, GroupedAttention):
            k_rows, v_rows = attention.kv_heads * attention.head_dim, attention.kv_heads * attention.value_head_dim
            implied = {"k_proj": k_rows, "v_proj": v_rows}
        else:
            implied = {"kv_a_proj_with_mqa": attention.elements_per_token}
        for name, expected in implied.items():
            found = rows.get((number, name))
            if found != expected:
                seen = "no such tensor" if found is None else f"{found} rows"
                raise UnknownArchitectureError(
                    f"{what}, and layer {number}'s {name} does not confirm its attention: {seen}, not {expected} rows"
                )
