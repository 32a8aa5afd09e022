"""The formulas of a page: behind every number that has one, each once, with its equation and source."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Final

import pytest

from roofcast.reports.page_formulas import term_of
from tests.pages import COMMANDS, data_of, squeezed

if TYPE_CHECKING:
    from roofcast.reports.document import Document
    from tests.pages import Element

# headings without a term: names, and settings that the row is of
NAMES: Final = frozenset(
    (
        *(
            "model",
            "attn",
            "L",
            "q/kv",
            "max ctx",
            "id",
            "GB",
            "GiB",
            "GB/s",
            "memory",
            "from",
            "context",
            "ctx",
            "batch",
        ),
        *("term", "format", "computed in", "TFLOP/s", "used", "lever", "change", "x", "share", "how it is counted"),
        *("at once", "vendor", "prompts", "hours", "input", "cached", "output", "as of", "source", "by", "group"),
        *("points", "quantity", "gpu", "engine", "weights", "tokens", "measured", "such as", "not counted, because"),
        *("layers that keep", "layers", "times", "h100-sxm", "h200-sxm", "b200", "bf16 TFLOP/s"),
    )
)


def test_every_function_stands_once(root: Element) -> None:
    """Later sections lead to it."""
    places = Counter(
        code.text
        for paragraph in root.all("p")
        if paragraph.attributes.get("class") == "source"
        for code in paragraph.all("code")[-1:]
    )
    links = [link.attributes["href"] for details in root.all("details") for link in details.all("a")]

    assert places.most_common(1)[0][1] == 1
    assert {"roofcast.calculators.cache.kv_bytes_per_token", "roofcast.calculators.step.estimate"} <= places.keys()
    assert "#formula-calculators.step.Estimate.intensity" in links
    assert len(links) > 5


def test_formulas_have_equation_and_source(root: Element) -> None:
    """Behind a heading, its term, the equation, the source and the function."""
    [entry] = [
        element
        for element in root.all("dd")
        if element.all("p")[0].attributes.get("id") == "formula-calculators.step.estimate"
    ]

    assert "the sum over its operations of max(F / peak, D / bandwidth)" in entry.text
    assert "Source: Williams, Waterman, Patterson, Roofline" in squeezed(entry.text)
    assert "Counted by roofcast.calculators.step.estimate" in squeezed(entry.text)
    assert "bound ms, bound bound_seconds" in [squeezed(term.text) for term in root.all("dt")]
    assert not [entry.text for entry in root.all("dd") if ">>>" in entry.text or "Raises:" in entry.text]


def test_an_engine_has_its_own_formulas(root: Element) -> None:
    """Of vLLM's memory those of vLLM, and none of another engine."""
    [part] = [part for part in root.all("section") if part.attributes.get("aria-labelledby") == "memory"]
    places = {code.text for code in part.all("code") if code.text.startswith("roofcast.calculators.engines.")}

    assert "roofcast.calculators.engines.vllm_weights.held_weights" in places
    assert not [place for place in places if re.search(r"sglang|llama_cpp|leftover|tgi|lmdeploy|tensorrt", place)]


@pytest.mark.parametrize("key", COMMANDS)
def test_every_number_has_a_formula_or_is_a_setting(whole: Document, key: str) -> None:
    """A heading that leads to no term is the name of something."""
    [section] = [section for section in whole.sections if section.key == key]
    served = section.document.inputs.get("engine", "none") != "none" and section.document.command == "fit"
    headings = {data_of(name) for table in section.document.tables for name in table.header if name}

    assert {name for name in headings if term_of(name, section.document.command, served=served) is None} <= NAMES


@pytest.mark.parametrize(
    ("command", "heading", "term"),
    [
        ("kv", "KiB/ token", "kv_bytes_per_token"),
        ("kv", "GiB @128k", "cache_bytes"),
        ("kv", "reserved GiB @max", "reserved_bytes"),
        ("kv", "weights GiB (bf16)", "weight_bytes"),
        ("fit", "budget", "budget_bytes"),
        ("fit", "reserve 10.0%", None),
        ("estimate", "TTFT bound ms", "ttft_seconds"),
        ("estimate", "80 % interval", "interval"),
        ("gpus", "decode b16 @4k 11.6 FLOP/B", "intensity"),
        ("gpus", "TPOT of 16", "tpot_seconds"),
        ("speculate", "x", "speedup"),
        ("levers", "x", None),
        ("attention", "flash GB", "flash_bytes"),
        ("attention", "flash MiB", "logsumexp_bytes"),
        ("validate", "weights", None),
        ("kv", "<script>", None),
    ],
)
def test_a_heading_means_what_its_command_means(command: str, heading: str, term: str | None) -> None:
    """The same word may stand for another quantity elsewhere, or for none."""
    assert term_of(heading, command) == term
