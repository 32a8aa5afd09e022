"""Weights in a format of the user's choosing: one for all parameters, or the mix that a quantiser makes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from roofcast.modelspec.formats import FORMATS, no_such

if TYPE_CHECKING:
    from roofcast.modelspec.formats import Format
    from roofcast.modelspec.ggml_mix import Mix

    Requested = Format | Mix

_OF_GGML: Final = r"(?:iq|tq|q)\d.*"


def find_requested(name: str) -> Requested:
    """What `--weights` names: a format for all parameters, or what llama-quantize writes under a name.

    Names of ggml (q4_0, q8_0, q4_k_m ...) are files that mix types: q4_0 has its output in q6_k.

    Raises:
        UnknownFormatError: there is neither.

    >>> find_requested("bf16").name, find_requested("Q4_K_M").type
    ('bf16', 'Q4_K')
    """
    key = name.strip().lower()
    weights = {name: known for name, known in FORMATS.items() if not known.residual}
    if key in weights and not re.fullmatch(_OF_GGML, key):
        return weights[key]
    from roofcast.modelspec.ggml_mix import MIXES, mix_of  # noqa: PLC0415 - few ask for one

    found = mix_of(key) or weights.get(key)
    if found:
        return found
    raise no_such(name, (*weights, *(mix for mix in MIXES if mix not in weights)))
