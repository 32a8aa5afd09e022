"""Which backends of PyTorch's scaled_dot_product_attention take a head on a device, and why the others do not."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from roofcast.hwdb.accelerator import SDPA_LEAST

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from roofcast.hwdb.accelerator import Accelerator

SDP_UTILS: Final = "https://github.com/pytorch/pytorch/blob/main/aten/src/ATen/native/transformers/cuda/sdp_utils.cpp"
NARROW: Final = "takes heads up to"
AMPERE: Final = (8, 0)
NEWEST: Final = (12, 1)
WIDER: Final = 256  # of cuDNN later than 9.22; keys of 192 beside values of 128 from 9.11 on
FP32: Final = "fp32"
_TAKES_ALL: Final = "takes all; keeps the whole score matrix"


@dataclass(frozen=True, slots=True)
class Heads:
    """Heads of one kind of attention.

    Args:
        query_heads, kv_heads: of Q, and of K and V.
        key_width, value_width: of a key (and query) and of a value head. [element]
    """

    query_heads: int
    kv_heads: int
    key_width: int
    value_width: int

    @property
    def width(self) -> float:
        """The d of formulas: the mean of both widths, which keeps 4 N d and 4 N^2 d exact where they differ. [element]"""
        return (self.key_width + self.value_width) / 2

    @property
    def share(self) -> float:
        """KV heads a query head."""
        return self.kv_heads / self.query_heads


@dataclass(frozen=True, slots=True)
class Backend:
    """One backend of NVIDIA devices, as a recent PyTorch chooses.

    Args:
        name: as in torch.nn.attention.SDPBackend, in small letters.
        least, most: compute capabilities.
        formats: number format -> compute capability from which it takes it; empty is any.
        widest: head that it takes; None is any. [element]
        equal: whether keys and values must be as wide.
        wider: major versions of the compute capability on which later builds take heads up to `WIDER`.
        steps: format, major version of the compute capability from which, what a head's width must be a multiple of.
        says: what else it depends on.
    """

    name: str
    least: tuple[int, int]
    most: tuple[int, int] | None
    formats: Mapping[str, tuple[int, int]]
    widest: int | None = None
    equal: bool = False
    steps: tuple[tuple[str, int, int], ...] = ()
    wider: tuple[int, ...] = ()
    says: str = ""


def _formats(**least: tuple[int, int]) -> Mapping[str, tuple[int, int]]:
    return MappingProxyType(least)


# Source of all rows: SDP_UTILS at commit 001f694a; releases differ
BACKENDS: Final[tuple[Backend, ...]] = (
    Backend(
        "flash",
        SDPA_LEAST["flash"],
        NEWEST,
        _formats(fp16=AMPERE, bf16=AMPERE),
        widest=256,
        equal=True,
        says="FlashAttention-2's kernels; takes no attn_mask",
    ),
    Backend(
        "cudnn",
        AMPERE,
        NEWEST,
        _formats(fp16=AMPERE, bf16=AMPERE),
        widest=128,
        steps=(("fp16", 0, 8), ("bf16", 0, 8)),
        wider=(9, 10),
        says="where PyTorch is built with cuDNN 9 or later",
    ),
    Backend(
        "memory_efficient",
        SDPA_LEAST["memory_efficient"],
        NEWEST,
        _formats(fp16=SDPA_LEAST["memory_efficient"], fp32=SDPA_LEAST["memory_efficient"], bf16=AMPERE),
        steps=(("fp16", 7, 8), ("bf16", 7, 8), (FP32, 8, 4)),  # where tensor cores are used
        says="takes an attn_mask",
    ),
    Backend("math", SDPA_LEAST["math"], None, _formats(), says=_TAKES_ALL),
)


@dataclass(frozen=True, slots=True)
class SdpaRow:
    """One backend for one kind of head on one device."""

    gpu: str
    """Id of the accelerator."""
    attention: str
    """Kind of head."""
    backend: str
    """As in torch.nn.attention.SDPBackend; of other vendors the library that stands behind it."""
    runs: bool | None
    """Whether it takes these heads; null where the build decides."""
    reason: str | None
    """Why not; null where it does."""
    says: str
    """What else it depends on."""
    source: str
    """Where its limits were read."""


def refusal(backend: Backend, heads: Heads, number_format: str, capability: tuple[int, int]) -> str | None:
    """Why a backend does not take such heads on such a device; None where it does.

    >>> heads = Heads(32, 8, 128, 128)
    >>> refusal(BACKENDS[0], heads, "fp16", (7, 5))
    'needs compute capability 8.0, this has 7.5'
    >>> refusal(BACKENDS[0], heads, "fp32", (8, 0))
    'takes fp16 and bf16, not fp32'
    """
    return next(_refusals(backend, heads, number_format, capability), None)


def _refusals(backend: Backend, heads: Heads, number_format: str, capability: tuple[int, int]) -> Iterator[str]:
    if capability < backend.least:
        yield f"needs compute capability {_shown(backend.least)}, this has {_shown(capability)}"
    if backend.most is not None and capability > backend.most:
        yield f"is for compute capability up to {_shown(backend.most)}, this has {_shown(capability)}"
    if backend.formats and number_format not in backend.formats:
        yield f"takes {' and '.join(backend.formats)}, not {number_format}"
    if capability < backend.formats.get(number_format, capability):
        yield f"takes {number_format} from compute capability {_shown(backend.formats[number_format])} on"
    widest = max(heads.key_width, heads.value_width)
    if backend.widest is not None and widest > backend.widest:
        yield f"{NARROW} {backend.widest}, these are {widest}"
    if backend.equal and heads.key_width != heads.value_width:
        yield f"needs keys as wide as values, these are {heads.key_width} and {heads.value_width}"
    for wanted, major, step in backend.steps:
        odd = any(width % step for width in (heads.key_width, heads.value_width))
        if number_format == wanted and capability[0] >= major and odd:
            yield f"takes widths in multiples of {step}"


def _shown(capability: tuple[int, int]) -> str:
    return f"{capability[0]}.{capability[1]}"


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """A backend of devices without a compute capability: what is known of it."""

    vendor: str
    architectures: tuple[str, ...]  # beginnings of the architecture's name; () is all
    backend: str
    says: str
    source: str
    runs: bool | None = None  # None where the build decides


_TRANSFORMERS: Final = "https://github.com/pytorch/pytorch/blob/main/aten/src/ATen/native"
ELSEWHERE: Final[tuple[Elsewhere, ...]] = (
    Elsewhere(
        "amd",
        (),
        "flash",
        "AOTriton (heads up to 512 from 0.9 on) or Composable Kernel, as built",
        SDP_UTILS,
    ),
    Elsewhere("amd", (), "memory_efficient", "AOTriton or Composable Kernel, as built; no grouped queries", SDP_UTILS),
    Elsewhere(
        "intel",
        ("Xe",),
        "overrideable",
        "oneDNN: fp32, bf16 and fp16, heads up to 576",
        f"{_TRANSFORMERS}/mkldnn/xpu/Attention.cpp",
    ),
    Elsewhere(
        "apple",
        (),
        "mps",
        "kernels without a score matrix for few queries and some widths, else one that keeps it",
        f"{_TRANSFORMERS}/mps/operations/Attention.mm",
    ),
    *(
        Elsewhere(vendor, architectures, "math", _TAKES_ALL, f"{_TRANSFORMERS}/transformers/attention.cpp", runs=True)
        for vendor, architectures in (("amd", ()), ("intel", ("Xe",)), ("apple", ()))
    ),
)


def sdpa_rows(accelerator: Accelerator, attention: str, heads: Heads, number_format: str) -> list[SdpaRow]:
    """The backends for one kind of head on one device; of other vendors than NVIDIA those that are known of."""
    capability = accelerator.capability
    if capability is None:
        return [
            SdpaRow(accelerator.id, attention, one.backend, one.runs, None, one.says, one.source)
            for one in ELSEWHERE
            if one.vendor == accelerator.vendor
            and (not one.architectures or (accelerator.architecture or "").startswith(one.architectures))
        ]
    return [
        _row(accelerator.id, attention, one, refusal(one, heads, number_format, capability), (heads, capability))
        for one in BACKENDS
    ]


def _row(gpu: str, attention: str, backend: Backend, why: str | None, of: tuple[Heads, tuple[int, int]]) -> SdpaRow:
    heads, capability = of
    widest = max(heads.key_width, heads.value_width)
    maybe = why is not None and why.startswith(NARROW) and capability[0] in backend.wider and widest <= WIDER
    return SdpaRow(
        gpu=gpu,
        attention=attention,
        backend=backend.name,
        runs=None if maybe else why is None,
        reason=f"{why}; later builds take up to {WIDER}" if maybe else why,
        says=backend.says,
        source=SDP_UTILS,
    )
