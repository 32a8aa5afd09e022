"""Every printed term leads to its formula: the docstring of the function that counts it."""

from __future__ import annotations

import doctest
import inspect
import json
import re
from importlib import import_module

import pytest

from roofcast.calculators.errors import UsageError
from roofcast.calculators.explain import HEADINGS, TERMS, explain
from roofcast.calculators.explain_served import SERVED, place_of
from roofcast.cli.app import COMMANDS
from tests.running import roofcast

# the counted quantities that JSON and tables print; what is only repeated from a source (layers, memory) has no formula
PRINTED = (
    "kv_bytes_per_token",
    "window_bytes",
    "state_bytes",
    "cache_bytes",
    "reserved_bytes",
    "page_tokens",
    "expected_experts",
    "parameters",
    "parameters_in_files",
    "active_parameters",
    "non_embedding_parameters",
    "stored_components",
    "implied_components",
    "requested_components",
    "kv_format",
    "weight_bytes",
    "budget_bytes",
    "kv_bytes",
    "kv_tokens",
    "kv_bytes_per_sequence",
    "max_sequences",
    "prefill_flops",
    "attention_share",
    "crossover_tokens",
    "ridge",
    "bound_seconds",
    "full_seconds",
    "bound_by",
    "intensity",
    "full_intensity",
    "attention_intensity",
    "flops",
    "bytes",
    "activation_bytes",
    "tokens_per_second",
    "ttft_seconds",
    "tpot_seconds",
    "fits",
    "memory_bytes",
    "tokens_per_round",
    "textbook_speedup",
    "textbook_drafted",
    "measured_acceptance",
    "break_even_acceptance",
    "cost_ratio",
    "step_bytes",
    "draft_seconds",
    "verify_seconds",
    "verify_ratio",
    "round_cost",
    "speedup",
    "textbook_optimism",
    "roofline_optimism",
    "chi_square",
    "compulsory_bytes",
    "standard_bytes",
    "flash_bytes",
    "algorithm_bytes",
    "tiled_bytes",
    "product_flops",
    "memory_elements",
    "standard_over_flash",
    "standard_intensity",
    "flash_intensity",
    "tiled_intensity",
    "compute_seconds",
    "standard_seconds",
    "flash_seconds",
    "score_bytes",
    "math_score_bytes",
    "math_peak_bytes",
    "logsumexp_bytes",
    "efficient_bytes",
    "blocks",
    "busy_share",
    "wave_efficiency",
    "splits",
    "workspace_bytes",
)
# of `fit` with a serving engine; names of an engine's memory terms are printed too, and looked for in its answers
SERVED_PRINTED = (
    "kv_tokens",
    "kv_bytes_per_sequence",
    "blocks",
    "block_tokens",
    "groups",
    "page_bytes",
    "blocks_per_request",
    "max_concurrency",
    "max_sequences",
)
# engine -> models that have every term it prints
ENGINES = {
    "vllm": ("qwen3-30b-a3b",),
    "sglang": ("llama-3.1-8b", "qwen3.5-9b"),
    "tensorrt-llm": ("llama-3.1-8b",),
    "tgi": ("llama-3.1-8b",),
    "lmdeploy": ("llama-3.1-8b",),
    "llama.cpp": ("llama-3.1-8b",),
    "ollama": ("llama-3.1-8b",),
}
UNCOUNTED = frozenset({"free", "overhead", "left"})  # sums of the lines around them, and what no source counts
# two quantities with an operator between them, or an equals sign
EQUATION = re.compile(
    r"[\w)\]] = [\w(]|[\w)\]%] (?:x|\+|-|/|\*|>=|<=) [\w(]|\b\d [A-Z]\b|sum of|sum over|floor\(|min\("
)
UNIT = re.compile(r"\[(?:-|[A-Za-z]+(?:/[A-Za-z]+)?)\]")
CHOICES = frozenset({"kv_format", "bound_by", "visible"})  # a name that is chosen and not counted
COUNTS = CHOICES | frozenset({"parameters", "parameters_in_files", "max_sequences"})  # a plain count needs no unit


def counted_by(term: str) -> object:
    """Return the function or property that counts a term."""
    return found(*TERMS[term])


def found(module: str, path: str) -> object:
    """Return a function or property by its module and name."""
    target: object = import_module(module)
    for name in path.split("."):
        target = inspect.getattr_static(target, name)
    return target


def docstring(term: str) -> str:
    """Return the docstring behind a term."""
    return inspect.getdoc(counted_by(term)) or ""


@pytest.mark.parametrize("term", TERMS)
def test_every_term_resolves(term: str) -> None:
    """`--explain TERM` prints the first sentence of the docstring and where the function is."""
    module, path = TERMS[term]

    assert docstring(term).splitlines()[0] in explain(term)
    assert f"{module}.{path}" in explain(term)


@pytest.mark.parametrize("term", sorted(TERMS.keys() - CHOICES))
def test_every_term_has_its_equation(term: str) -> None:
    """The docstring behind a term says how the number is made, before any example."""
    assert EQUATION.search(docstring(term).partition(">>>")[0]), docstring(term)


@pytest.mark.parametrize("term", sorted(TERMS.keys() - COUNTS))
def test_every_term_has_its_unit(term: str) -> None:
    """The docstring behind a term names the unit in brackets, `[B]`, unless it is a plain count."""
    assert UNIT.search(docstring(term).partition(">>>")[0]), docstring(term)


@pytest.mark.parametrize("term", SERVED)
def test_every_term_of_an_engine_resolves(term: str) -> None:
    """`--explain TERM` prints every function of the engines that counts a term, with its first sentence."""
    text = explain(term)

    assert SERVED[term][0] in text
    for name in SERVED[term][1]:
        module, path = place_of(name)
        assert (inspect.getdoc(found(module, path)) or "?").splitlines()[0] in text
        assert f"Counted by {module}.{path}" in text


@pytest.mark.parametrize("term", sorted(SERVED.keys() - CHOICES))
def test_every_term_of_an_engine_has_its_equation_and_unit(term: str) -> None:
    """What is printed of a term of an engine says how it is made, and its unit."""
    text = explain(term).partition(", with a serving engine: ")[2]

    assert EQUATION.search(text), text
    assert UNIT.search(text), text


@pytest.mark.parametrize(
    ("engine", "model"), [(engine, model) for engine, models in ENGINES.items() for model in models]
)
def test_every_line_of_an_engines_memory_is_a_term(engine: str, model: str) -> None:
    """The name of every line of the memory table is a term to ask for, but for what is only a sum or assumed whole."""
    outcome = roofcast("fit", model, "--gpu", "h200-sxm", "--engine", engine, "--format", "json")

    names = {term["name"] for term in json.loads(outcome.out)["result"]["terms"]}
    assert "kv" in names
    assert {HEADINGS.get(name, name) for name in names - UNCOUNTED} <= SERVED.keys()


@pytest.mark.parametrize("term", SERVED_PRINTED)
def test_every_quantity_that_an_engine_prints_is_a_term(term: str) -> None:
    """The key that a number of an engine has in JSON is the term to ask for."""
    assert term in SERVED


@pytest.mark.parametrize("heading", HEADINGS)
def test_every_heading_leads_to_a_term(heading: str) -> None:
    """A heading stands for a term that can be explained."""
    assert HEADINGS[heading] in TERMS.keys() | SERVED.keys()


def test_a_name_that_two_commands_use_has_both_formulas() -> None:
    """`blocks` are thread blocks of `attention` and blocks of an engine's cache: both are told."""
    text = explain("blocks")

    assert "Counted by roofcast.calculators.flash_decoding.decode_blocks" in text
    assert "available // page // g" in text


def test_errors_are_left_out_and_sources_kept() -> None:
    """What a function raises is of no interest to who asks for a formula; a source after it is."""
    text = explain("budget")

    assert "Raises:" not in text
    assert "UsageError" not in text
    assert "Source: vLLM, v1/worker/gpu_worker.py" in text


def test_the_activation_peak_has_formulas_and_sources() -> None:
    """`fit --explain activation` tells the layers' part, the sampler's and the experts', each with its source."""
    text = roofcast("fit", "--explain", "activation").out

    assert "max(forward, sampler)" in text
    assert "N b (3 h + w)" in text
    assert "S V (b + r)" in text
    assert text.count("Source: ") >= 3


@pytest.mark.parametrize("term", PRINTED)
def test_every_printed_quantity_is_a_term(term: str) -> None:
    """The key that a number has in JSON is the term to ask for."""
    assert term in TERMS


@pytest.mark.parametrize("term", TERMS)
def test_parameters_match_the_signature(term: str) -> None:
    """Names under `Args:` are the function's own, all but self."""
    target = counted_by(term)
    section = re.search(r"^Args:\n(?P<names>(?:[ ]+.*\n?)+)", docstring(term), re.MULTILINE)
    if section is None or not inspect.isfunction(target):
        return
    named = re.findall(r"^ +([\w, ]+):", section["names"], re.MULTILINE)
    documented = {name.strip() for group in named for name in group.split(",")}

    assert documented == inspect.signature(target).parameters.keys() - {"self"}


@pytest.mark.parametrize(
    "term", [term for term, (module, _) in TERMS.items() if module.endswith(("cache", "flops", "paging"))]
)
def test_formulas_of_the_architecture_have_a_worked_example(term: str) -> None:
    """The docstring of a formula over an architecture carries a doctest, a number checked by hand."""
    assert doctest.DocTestParser().get_examples(docstring(term))


def test_an_unknown_term() -> None:
    """What cannot be explained is refused with the nearest term and the list of all."""
    with pytest.raises(UsageError, match=r"crossover_tokens") as refused:
        explain("crossover_token")

    assert all(term in str(refused.value) for term in (*TERMS, *SERVED))


@pytest.mark.parametrize("command", [name for name in COMMANDS if name != "schema"])
def test_explain_needs_nothing_else(command: str) -> None:
    """Every command explains without a MODEL or --gpu, on stdout, and leaves with 0."""
    outcome = roofcast(command, "--explain", "cache_bytes")

    assert (outcome.code, outcome.err) == (0, "")
    assert "min(T, W)" in outcome.out


def test_explaining_nothing_known_is_bad_usage() -> None:
    """An unknown term exits 2 with one line."""
    outcome = roofcast("kv", "--explain", "fortune")

    assert outcome.code == 2
    assert "fortune" in outcome.complaint
