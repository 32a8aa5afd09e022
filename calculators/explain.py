"""The formula behind every printed term: its function's docstring, equation and source included."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass
from importlib import import_module
from typing import Final

from roofcast.calculators.errors import UsageError
from roofcast.calculators.explain_headings import HEADINGS, MATRICES
from roofcast.calculators.explain_served import SERVED, place_of
from roofcast.modelspec.nearest import nearest

__all__ = ["HEADINGS", "MATRICES", "TERMS", "Counted", "counted", "explain"]

_RAISES: Final = re.compile(r"\n+Raises:\n(?:[ ]+\S.*(?:\n|$))+")
# term as printed -> module and name of the function that counts it
TERMS: Final[dict[str, tuple[str, str]]] = {
    "kv_bytes_per_token": ("roofcast.calculators.cache", "kv_bytes_per_token"),
    "window_bytes": ("roofcast.calculators.cache", "window_bytes"),
    "state_bytes": ("roofcast.calculators.cache", "state_bytes"),
    "cache_bytes": ("roofcast.calculators.cache", "cache_bytes"),
    "reserved_bytes": ("roofcast.calculators.paging", "reserved_bytes"),
    "page_tokens": ("roofcast.calculators.paging", "page_tokens"),
    "expected_experts": ("roofcast.modelspec.ffn", "MoeFeedForward.distinct_experts"),
    "parameters": ("roofcast.modelspec.spec", "ModelSpec.parameters"),
    "active_parameters": ("roofcast.modelspec.spec", "ModelSpec.active_parameters"),
    "non_embedding_parameters": ("roofcast.modelspec.spec", "ModelSpec.non_embedding_parameters"),
    "parameters_in_files": ("roofcast.modelspec.model", "count_in_files"),
    "stored_components": ("roofcast.modelspec.components", "stored_components"),
    "implied_components": ("roofcast.calculators.stored", "implied_by_component"),
    "requested_components": ("roofcast.calculators.stored", "requested_by_component"),
    "kv_format": ("roofcast.calculators.cache_format", "cache_format"),
    "weight_bytes": ("roofcast.modelspec.model", "Model.weight_bytes"),
    "budget_bytes": ("roofcast.calculators.budget", "budget_bytes"),
    "kv_bytes": ("roofcast.calculators.budget", "kv_bytes"),
    "kv_bytes_per_sequence": ("roofcast.calculators.cache", "cache_bytes"),
    "max_sequences": ("roofcast.calculators.budget", "max_sequences"),
    "kv_tokens": ("roofcast.calculators.budget", "kv_tokens"),
    "prefill_flops": ("roofcast.calculators.flops", "prefill_flops"),
    "attention_flops": ("roofcast.calculators.flops", "attention_flops"),
    "attention_share": ("roofcast.calculators.flops", "attention_share"),
    "crossover_tokens": ("roofcast.calculators.flops", "crossover_tokens"),
    "ridge": ("roofcast.hwdb.accelerator", "Accelerator.ridge"),
    "bound_seconds": ("roofcast.calculators.step", "estimate"),
    "expected_seconds": ("roofcast.calculators.expected.expectation", "Expectation.seconds"),
    "expected_tokens_per_second": ("roofcast.calculators.phases", "Point.expected_rate"),
    "kernel_seconds": ("roofcast.calculators.expected.expectation", "Expectation.seconds"),
    "host_seconds": ("roofcast.calculators.expected.host", "HostConstants.seconds"),
    **dict.fromkeys(
        ("low_seconds", "high_seconds", "interval"), ("roofcast.calculators.expected.interval", "interval")
    ),
    "spread": ("roofcast.calculators.expected.expectation", "Expectation.spread"),
    "elementwise_expected": ("roofcast.calculators.expected.stream", "stream_seconds"),
    "gemm": ("roofcast.calculators.expected.gemm", "gemm_seconds"),
    "moe": ("roofcast.calculators.expected.experts", "experts_seconds"),
    "attn_decode": ("roofcast.calculators.expected.attention", "decode_seconds"),
    "attn_prefill": ("roofcast.calculators.expected.attention", "prefill_seconds"),
    "collective": ("roofcast.calculators.expected.links", "link_seconds"),
    "median_error": ("roofcast.calculators.validate", "group_of"),
    "decode_seconds": ("roofcast.calculators.predict", "decode_seconds"),
    "prefill_seconds": ("roofcast.calculators.predict", "prefill_seconds"),
    "batch_seconds": ("roofcast.calculators.predict", "batch_seconds"),
    "output_tokens_per_second": ("roofcast.calculators.predict", "output_tokens_per_second"),
    "served_tpot": ("roofcast.calculators.predict", "tpot_seconds"),
    "served_ttft": ("roofcast.calculators.predict", "ttft_seconds"),
    "overlapped_seconds": ("roofcast.calculators.step", "Estimate.overlapped"),
    "full_seconds": ("roofcast.calculators.roofline", "timed"),
    "bound_by": ("roofcast.calculators.step", "Estimate.bound_by"),
    "intensity": ("roofcast.calculators.step", "Estimate.intensity"),
    "full_intensity": ("roofcast.calculators.step", "Estimate.full_intensity"),
    "attention_intensity": ("roofcast.calculators.roofline_table", "attention_intensity"),
    "flops": ("roofcast.modelspec.ops", "step_ops"),
    "bytes": ("roofcast.modelspec.op", "Op.bytes"),
    "activation_bytes": ("roofcast.modelspec.op", "Op.activation_bytes"),
    "fits": ("roofcast.calculators.phases", "shortage"),
    "memory_bytes": ("roofcast.calculators.deployment", "offered_memory"),
    "ttft_seconds": ("roofcast.calculators.phases", "answer_point"),
    "tpot_seconds": ("roofcast.calculators.phases", "answer_point"),
    "tokens_per_second": ("roofcast.calculators.phases", "Point.rate"),
    "most_sequences": ("roofcast.calculators.phases", "most_sequences"),
    "embedding": ("roofcast.modelspec.ops", "gather_op"),
    **dict.fromkeys(
        (
            "attn.qkv",
            "attn.up",
            "attn.index",
            "attn.out",
            "ffn.gate_up",
            "ffn.down",
            "ffn.shared",
            "moe.router",
            "other",
        ),
        ("roofcast.modelspec.ops", "dense_op"),
    ),
    "cross.kv": ("roofcast.modelspec.ops", "cross_op"),
    **dict.fromkeys(("moe.gate_up", "moe.down"), ("roofcast.modelspec.ops", "experts_op")),
    "attn.prefill": ("roofcast.modelspec.ops", "prefilled"),
    "attn.decode": ("roofcast.modelspec.ops", "decoded"),
    "elementwise": ("roofcast.modelspec.ops", "elementwise_op"),
    "head": ("roofcast.modelspec.ops", "head_op"),
    "tp.all_reduce": ("roofcast.calculators.parallel", "all_reduce"),
    "tp.reduce_scatter": ("roofcast.calculators.parallel", "reduce_scatter"),
    **dict.fromkeys(("tp.logits", "tp.all_gather"), ("roofcast.calculators.parallel", "all_gather")),
    **dict.fromkeys(("ep.dispatch", "ep.combine"), ("roofcast.calculators.parallel", "all_to_all")),
    "pp.send": ("roofcast.calculators.parallel", "point_to_point"),
    "exchanged_bytes": ("roofcast.calculators.parallel", "exchange_cost"),
    "compulsory_bytes": ("roofcast.calculators.attention_io", "compulsory_accesses"),
    "standard_bytes": ("roofcast.calculators.attention_io", "standard_accesses"),
    "flash_bytes": ("roofcast.calculators.attention_io", "flash_accesses"),
    "algorithm_bytes": ("roofcast.calculators.attention_io", "algorithm_accesses"),
    "tiled_bytes": ("roofcast.calculators.attention_io", "tiled_accesses"),
    "product_flops": ("roofcast.calculators.attention_io", "product_flops"),
    "standard_over_flash": ("roofcast.calculators.attention_rows", "standard_over_flash"),
    "standard_intensity": ("roofcast.calculators.attention_rows", "standard_intensity"),
    "flash_intensity": ("roofcast.calculators.attention_rows", "flash_intensity"),
    "tiled_intensity": ("roofcast.calculators.attention_rows", "tiled_intensity"),
    "memory_elements": ("roofcast.calculators.flash_generations", "block_memory"),
    "compute_seconds": ("roofcast.calculators.roofline", "compute_seconds"),
    **dict.fromkeys(("standard_seconds", "flash_seconds"), ("roofcast.calculators.roofline", "memory_seconds")),
    "memory_seconds": ("roofcast.calculators.roofline", "memory_seconds"),
    "link_seconds": ("roofcast.calculators.parallel", "exchange_cost"),
    "score_bytes": ("roofcast.calculators.attention_memory", "score_bytes"),
    "math_score_bytes": ("roofcast.calculators.attention_memory", "math_score_bytes"),
    "math_peak_bytes": ("roofcast.calculators.attention_memory", "math_peak_bytes"),
    "logsumexp_bytes": ("roofcast.calculators.attention_memory", "logsumexp_bytes"),
    "efficient_bytes": ("roofcast.calculators.attention_memory", "efficient_bytes"),
    "workspace_bytes": ("roofcast.calculators.attention_memory", "split_workspace_bytes"),
    **dict.fromkeys(("blocks", "split_blocks"), ("roofcast.calculators.flash_decoding", "decode_blocks")),
    **dict.fromkeys(("busy_share", "split_busy_share"), ("roofcast.calculators.flash_decoding", "busy_share")),
    "splits": ("roofcast.calculators.split_rules", "fewest_splits"),
    **dict.fromkeys(
        ("wave_efficiency", "split_wave_efficiency"), ("roofcast.calculators.split_rules", "wave_efficiency")
    ),
    **dict.fromkeys(("index.prefill", "index.decode"), ("roofcast.modelspec.ops", "index_op")),
    "tokens_per_round": ("roofcast.calculators.speculative", "expected_tokens"),
    "tokens_by_position": ("roofcast.calculators.speculative", "tokens_by_position"),
    "textbook_speedup": ("roofcast.calculators.speculative", "textbook_speedup"),
    "textbook_drafted": ("roofcast.calculators.rounds", "textbook_best"),
    "best_drafted": ("roofcast.calculators.rounds", "best_round"),
    "measured_acceptance": ("roofcast.calculators.speculative", "acceptance_from_tokens"),
    "break_even_acceptance": ("roofcast.calculators.speculative", "break_even_acceptance"),
    "cost_ratio": ("roofcast.calculators.rounds", "textbook_cost_ratio"),
    "draft_seconds": ("roofcast.calculators.drafts", "Drafter.seconds"),
    "step_bytes": ("roofcast.calculators.drafts", "Drafter.step_bytes"),
    **dict.fromkeys(("verify_seconds", "verify_ratio"), ("roofcast.calculators.rounds", "timed_round")),
    "round_cost": ("roofcast.calculators.rounds", "Timed.cost"),
    "speedup": ("roofcast.calculators.rounds", "Timed.speedup"),
    **dict.fromkeys(
        ("textbook_optimism", "roofline_optimism"), ("roofcast.calculators.measured_rounds", "measured_row")
    ),
    "acceptance": ("roofcast.calculators.rejection", "acceptance_rate"),
    **dict.fromkeys(
        ("link_bytes_per_second", "best_bytes_per_second"), ("roofcast.calculators.profile_exchanges", "bus_bytes")
    ),
    **dict.fromkeys(("latency_seconds", "worst_error"), ("roofcast.calculators.profile_exchanges", "fitted")),
    "cache_read_seconds": ("roofcast.calculators.attention_rows", "cache_read_seconds"),
    "measured_round_cost": ("roofcast.calculators.measured_rounds", "measured_row"),
    "positions": ("roofcast.calculators.drafts", "Shape.positions"),
    "chi_square": ("roofcast.calculators.rejection", "check_rule"),
    "bytes_per_element": ("roofcast.modelspec.formats", "Format.bytes_per_element"),
    **dict.fromkeys(
        (
            "input_gpu_seconds",
            "cached_input_gpu_seconds",
            "output_gpu_seconds",
            "output_over_input",
            "cached_over_input",
        ),
        ("roofcast.calculators.cost", "load_times"),
    ),
    **dict.fromkeys(
        ("input_dollars", "cached_input_dollars", "output_dollars", "blended_dollars", "own_request_dollars"),
        ("roofcast.calculators.cost", "token_costs"),
    ),
    **dict.fromkeys(
        ("simulated_times", "itl_seconds", "e2e_seconds", "queue_seconds"),
        ("roofcast.calculators.serving.live", "Tally.finish"),
    ),
    "goodput_requests_per_second": ("roofcast.calculators.serving.simulate", "keeping"),
    "kv_utilisation": ("roofcast.calculators.serving.simulate", "_cache"),
    "prefix_hit_rate": ("roofcast.calculators.serving.simulate", "_prefix"),
    "most_requests_per_second": ("roofcast.calculators.serving.highest", "highest"),
    "step_seconds": ("roofcast.calculators.serving.steps", "StepTimes"),
    "requests_per_second": ("roofcast.calculators.cost", "request_seconds"),
    "joules_per_token": ("roofcast.calculators.cost", "energy_per_token"),
    "dollars_per_hour": ("roofcast.calculators.price", "hourly_cost"),
    "write_off": ("roofcast.calculators.cost", "write_off"),
    "power": ("roofcast.calculators.cost", "electricity"),
    "workload_requests_per_second": ("roofcast.calculators.price", "workload_row"),
    "ratio_batch": ("roofcast.calculators.price", "ratio_row"),
    "rate_dollars": ("roofcast.calculators.price", "rate_row"),
    "input_ratio": ("roofcast.calculators.price", "length_rows"),
    "held_dollars": ("roofcast.calculators.price", "held_row"),
    "request_dollars": ("roofcast.calculators.api_cost", "request_cost"),
    **dict.fromkeys(
        ("break_even_requests_per_second", "break_even_batch", "break_even_dollars_per_gpu_hour"),
        ("roofcast.calculators.price_apis", "api_cost"),
    ),
    "income_dollars": ("roofcast.calculators.api_cost", "bill"),
}


@dataclass(frozen=True, slots=True)
class Counted:
    """A function that counts a term.

    Args:
        text: its docstring, without doctest and errors.
        place: its module and name.
    """

    text: str
    place: str


def explain(term: str) -> str:
    """The docstrings of the functions that count a term, which may be named by the heading of its column.

    Raises:
        UsageError: no such term.
    """
    term = HEADINGS.get(term.strip().lower(), term)
    known = dict.fromkeys((*TERMS, *SERVED))
    if term not in known:
        near = nearest(term, known)
        hint = f"; nearest: {', '.join(near)}" if near else ""
        raise UsageError(f"nothing to explain under {term!r}{hint}; terms: {', '.join(known)}")
    parts = []
    if term in TERMS:
        what = f"{MATRICES[term]}\n\n" if term in MATRICES else ""
        parts.append(f"{term}: {what}{_told(counted(*TERMS[term]))}")
    if term in SERVED:
        what, places = SERVED[term]
        parts.append(f"{term}, with a serving engine: {what}")
        parts += [_told(counted(*place_of(name))) for name in places]
    return "\n\n".join(parts)


def _told(function: Counted) -> str:
    return f"{function.text}\n\nCounted by {function.place}"


def counted(module: str, path: str) -> Counted:
    """A function of a term, by its module and name.

    Raises:
        UsageError: docstrings are stripped.
    """
    target: object = import_module(module)
    for name in path.split("."):
        target = inspect.getattr_static(target, name)
    text = inspect.getdoc(target)
    if not text:
        raise UsageError("formulas stand in docstrings, which python -OO strips; run without it")
    # the doctest is for the tests, the errors for those who call it
    text = _RAISES.sub("\n", text.partition(">>>")[0].rstrip() + "\n").rstrip()
    return Counted(text, f"{module}.{path}")
