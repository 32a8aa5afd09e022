"""PyTorch's backends of attention on a device: each one alone, and why one cannot run."""

from __future__ import annotations

import warnings
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from roofcast.profiler.errors import OutOfMemoryError, UnavailableError
from roofcast.profiler.runtime import first_line
from roofcast.profiler.timing import memory_guard

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import Tensor

    from roofcast.profiler.runtime import Runtime

#: name here -> name in torch.nn.attention.SDPBackend
BACKENDS: Final = {
    "math": "MATH",
    "efficient": "EFFICIENT_ATTENTION",
    "flash": "FLASH_ATTENTION",
    "cudnn": "CUDNN_ATTENTION",
}
FUSED: Final = ("cudnn", "flash", "efficient")
#: beginning of the line with which torch heads its reasons against a backend
HEADINGS: Final = {"efficient": "memory efficient", "flash": "flash attention", "cudnn": "cudnn attention"}
SCORE_COPIES: Final = 3  # of the score matrix that math keeps at once, in fp32


class BackendError(UnavailableError):
    """A backend that cannot run these heads here; the message says why."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """What attention is computed from.

    Args:
        query: [B, H, n, D].
        key: [B, K, S, D].
        value: [B, K, S, V].
        scale: of scores.
        causal: whether a query sees no later key; n = S then.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    scale: float
    causal: bool

    @property
    def group(self) -> int:
        """Query heads that share a KV head."""
        return int(self.query.shape[1] // self.key.shape[1])

    def expanded(self) -> Inputs:
        """The same with every KV head repeated for each of its query heads."""
        key, value = (one.repeat_interleave(self.group, 1) for one in (self.key, self.value))  # [B, H, S, D]
        return replace(self, key=key, value=value)


@contextmanager
def only(backend: str) -> Iterator[None]:
    """Leaves torch one backend of attention."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    with sdpa_kernel(getattr(SDPBackend, BACKENDS[backend])):
        yield


def attend(runtime: Runtime, inputs: Inputs) -> Tensor:
    """Attention by whichever backend torch may take: softmax(scale Q K^T) V, [B, H, n, V]."""
    grouped = {"enable_gqa": True} if inputs.group > 1 else {}
    out: Tensor = runtime.torch.nn.functional.scaled_dot_product_attention(
        inputs.query, inputs.key, inputs.value, is_causal=inputs.causal, scale=inputs.scale, **grouped
    )
    return out


def accepted(runtime: Runtime, backend: str, inputs: Inputs) -> Inputs:
    """The inputs as a backend takes them: as they are, or with KV heads expanded where it knows no groups.

    Raises:
        BackendError: it takes them in neither way.
        OutOfMemoryError: the device has not enough memory.
    """
    _refuse_large(runtime, backend, inputs)
    why = _refusal(runtime, backend, inputs)
    if why is None:
        return inputs
    if inputs.group > 1:
        with memory_guard(runtime):
            wider = inputs.expanded()
        if _refusal(runtime, backend, wider) is None:
            return wider
    raise BackendError(f"{backend}: {why}")


def _refuse_large(runtime: Runtime, backend: str, inputs: Inputs) -> None:
    """Tells before a host's memory runs out, which the system would answer by ending the program."""
    if backend != "math" or runtime.on_cuda:
        return
    batch, heads, n, _ = inputs.query.shape
    needed, free = SCORE_COPIES * 4 * batch * heads * n * inputs.key.shape[2], runtime.free_bytes()
    if needed > free:
        raise OutOfMemoryError(
            f"out of memory on {runtime.machine.name}: scores take {needed / 2**30:.1f} GiB and {free / 2**30:.1f} GiB are free"
        )


def _refusal(runtime: Runtime, backend: str, inputs: Inputs) -> str | None:
    """Why a backend does not run; None where it does."""
    if runtime.kind == "cpu" and backend in {"efficient", "cudnn"}:
        return "PyTorch has it on GPUs only; on a CPU there are math and flash"
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            with memory_guard(runtime), only(backend):
                attend(runtime, inputs)
                runtime.synchronize()
        except (
            RuntimeError,
            TypeError,
            AttributeError,
        ) as error:  # an older torch knows no groups, or not this backend
            lines = [first_line(one.message) for one in said if isinstance(one.message, Warning)]
            return reason(backend, lines) or first_line(error)
    return None


def reason(backend: str, lines: Sequence[str]) -> str | None:
    """The first useful of the lines that torch warns with, which stand under a heading for each backend.

    >>> reason("flash", ["Memory efficient kernel not used because:", "Memory Efficient attention has been runtime disabled.",
    ...     "Flash attention kernel not used because:", "Expected query, key and value to be bf16"])
    'Expected query, key and value to be bf16'
    """
    ours = False
    for line in lines:
        if "not used because" in line:
            ours = line.lower().startswith(HEADINGS.get(backend, backend))
        elif ours and "runtime disabled" not in line:
            return line
    return None
