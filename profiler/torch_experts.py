"""Routed experts in plain torch: tokens sorted by expert, then a grouped product where the device has one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roofcast.profiler.fp8 import narrowed, widened

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from roofcast.profiler.kernels import Chosen, Weight
    from roofcast.profiler.runtime import Runtime

    #: rows sorted by expert, weights of all, and where the rows of each end -> each expert's product of its rows
    Product = Callable[[Runtime, Tensor, Weight, Tensor], Tensor]


def routed(runtime: Runtime, x: Tensor, chosen: Chosen, weights: tuple[Weight, Weight], out: Tensor) -> None:
    """Routed experts, out[T, h] = sum over k of weight_k down_k(silu(gate_k x) up_k x).

    On CUDA a grouped product over the sorted tokens, which never waits for the device; in formats that it does not take,
    every expert on every token. Elsewhere one expert after the other.

    Args:
        runtime: the device.
        x: [T, h].
        chosen: experts and weights of each token.
        weights: gate and up, [E, 2 f, h], and down, [E, h, f].
        out: [T, h].
    """
    torch, top_k = runtime.torch, chosen.experts.shape[1]
    experts = chosen.experts.reshape(-1).long()
    ordered, order = experts.sort(stable=True)
    ends = torch.searchsorted(ordered, torch.arange(1, weights[0].data.shape[0] + 1, device=x.device), out_int32=True)
    product = _product(runtime, x)
    rows = x[order // top_k]  # [T k, h], expert by expert
    gate, up = product(runtime, rows, weights[0], ends).chunk(2, dim=-1)
    made = product(runtime, torch.nn.functional.silu(gate) * up, weights[1], ends)
    made.mul_(chosen.weights.reshape(-1)[order][:, None])
    back = torch.empty_like(made)
    back[order] = made
    torch.sum(back.view(x.shape[0], top_k, -1), dim=1, out=out)


def _product(runtime: Runtime, x: Tensor) -> Product:
    if not runtime.on_cuda:
        return _one_by_one
    fits = x.dtype == runtime.torch.bfloat16 and hasattr(runtime.torch, "_grouped_mm")
    return _grouped if fits else _every


def _one_by_one(runtime: Runtime, rows: Tensor, weight: Weight, ends: Tensor) -> Tensor:
    torch = runtime.torch
    out: Tensor = torch.empty((rows.shape[0], weight.data.shape[1]), dtype=rows.dtype, device=rows.device)
    first = 0
    for expert, last in enumerate(ends.tolist()):
        if last > first:
            out[first:last] = rows[first:last] @ _wide(weight, rows, expert).t()
        first = last
    return out


def _grouped(runtime: Runtime, rows: Tensor, weight: Weight, ends: Tensor) -> Tensor:
    torch, turned = runtime.torch, weight.data.transpose(1, 2)
    if weight.scale is None:
        made: Tensor = torch._grouped_mm(rows, turned, offs=ends)  # noqa: SLF001 - its public name is newer
        return made
    narrow, size = narrowed(rows, weight.data.dtype)
    scaled: Tensor = torch._scaled_grouped_mm(  # noqa: SLF001 - likewise
        narrow, turned, size[:, 0], weight.scale, offs=ends, out_dtype=rows.dtype
    )
    return scaled


def _every(runtime: Runtime, rows: Tensor, weight: Weight, ends: Tensor) -> Tensor:
    """Every expert on every row, of which each keeps one: E times the work, and no waiting."""
    torch = runtime.torch
    owner = torch.searchsorted(ends, torch.arange(rows.shape[0], device=rows.device, dtype=ends.dtype), right=True)
    data = weight.data if weight.scale is None else widened(weight.data, weight.scale, rows.dtype)
    every = torch.matmul(rows, data.transpose(1, 2))  # [E, T k, outputs]
    made: Tensor = every[owner, torch.arange(rows.shape[0], device=rows.device)]
    return made


def _wide(weight: Weight, rows: Tensor, expert: int) -> Tensor:
    data = weight.data[expert]
    return data if weight.scale is None else widened(data, weight.scale[expert], rows.dtype)
