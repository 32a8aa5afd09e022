"""Charts on a page: in its colours, with their text, described, small; and colours that text stands out in."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from roofcast.reports.charts import KINDS, Chart
from roofcast.reports.page_svg import drawing, variables
from roofcast.reports.plot_profile import profile_chart
from roofcast.reports.theme import DARK, LEGIBLE, LIGHT, contrast, legible
from tests.pages import read, squeezed
from tests.plan_cases import usual
from tests.profile_values import both_result
from tests.test_plot_exchanges import result as exchanged
from tests.test_plot_simulate import BASE

if TYPE_CHECKING:
    from roofcast.reports.document import Document
    from roofcast.reports.page_svg import Drawing


@pytest.fixture(scope="module")
def charts(whole: Document) -> list[Chart]:
    """Return one chart of each kind."""
    every = [chart for section in whole.sections for chart in section.document.charts]
    every += [Chart("series", BASE, "over time"), Chart("spread", BASE, "over requests")]
    drawn = {chart.kind: chart for chart in every}
    drawn["profile"] = Chart("profile", both_result(), "measured")
    drawn["plan"] = Chart("plan", usual(), "cost against time")
    drawn["exchanges"] = Chart("exchanges", exchanged([1024, 1 << 20, 1 << 28]), "bus bandwidth")
    return list(drawn.values())


@pytest.fixture(scope="module")
def drawings(charts: list[Chart]) -> dict[str, Drawing]:
    """Return each kind of chart as it stands on a page, numbered in their order."""
    return {chart.kind: drawing(chart, number) for number, chart in enumerate(charts)}


def css_of(page: str) -> str:
    """Return the style sheet of a page."""
    return read(page).one("style").text


def palette(css: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return the colours of a style sheet by name, light and dark."""
    light, dark = (dict(re.findall(r"--([\w-]+):\s*(#[0-9a-fA-F]{6})", block)) for block in css.split("@media", 2)[:2])
    return light, light | dark


def test_every_kind_of_chart_is_looked_at(charts: list[Chart]) -> None:
    """What follows holds of all of them."""
    assert {chart.kind for chart in charts} == KINDS.keys()


def test_charts_have_the_colours_of_the_page_alone(drawings: dict[str, Drawing]) -> None:
    """Every colour of a chart is a variable, and every variable has a value in both schemes."""
    known = [set(re.findall(r"--([\w-]+):", variables(theme))) for theme in (LIGHT, DARK)]

    assert known[0] == known[1]
    for kind, drawn in drawings.items():
        svg = drawn.svg
        painted = set(re.findall(r"(?:fill|stroke):([^;\"]+)", svg))
        assert "var(--ground)" in painted
        for paint in painted:
            name = re.fullmatch(r"var\(--([\w-]+)\)", paint)
            assert (name and name[1] in known[0]) or paint == "none" or paint.startswith("url(#c"), (kind, paint)
        assert not re.search(r"#[0-9a-fA-F]{6}|rgb|hsl", svg), kind


def test_charts_keep_their_text(drawings: dict[str, Drawing]) -> None:
    """As text, which can be searched and read out, of a size that is told."""
    figure = profile_chart(both_result())
    read_out = {squeezed(text.text) for text in read(f"<html>{drawings['profile'].svg}</html>").all("text")}

    for text in figure.texts:
        assert {squeezed(line) for line in text.get_text().splitlines()} <= read_out


def test_charts_are_described(charts: list[Chart], drawings: dict[str, Drawing]) -> None:
    """Each is an image with a name, and its sentence as description."""
    for chart in charts:
        shown = drawings[chart.kind]
        svg = read(f"<html>{shown.svg}</html>").one("svg")
        named = {element.attributes["id"]: element.text for element in svg.all("title", "desc")}
        assert svg.attributes["role"] == "img"
        assert named[svg.attributes["aria-labelledby"]] == f"{chart.kind} chart" == shown.name
        assert named[svg.attributes["aria-describedby"]] == chart.says == shown.says
        assert svg.attributes.keys() <= {"viewbox", "role", "aria-labelledby", "aria-describedby"}


def test_charts_are_small_and_their_numbers_short(drawings: dict[str, Drawing]) -> None:
    """Two decimals of a point are finer than any screen; no chart takes more than 60 KB."""
    for kind, drawn in drawings.items():
        svg = drawn.svg
        assert len(svg) < 60_000, kind
        assert not re.search(r' (?:d|x|y|width|height|points)="[^"]*\d\.\d{3}', svg), kind
        assert "rotate(-0" not in svg, kind


def test_two_charts_share_no_names(charts: list[Chart]) -> None:
    """The same chart twice on a page: clip paths and marks are each one's own."""
    ids = [set(re.findall(r' id="([^"]+)"', drawing(charts[0], number).svg)) for number in (1, 2)]

    assert len(ids[0]) == len(ids[1]) > 2
    assert not ids[0] & ids[1]


def test_wide_charts_are_wide(drawings: dict[str, Drawing]) -> None:
    """Those of nine inches take the full width; cards stand two side by side."""
    assert {kind for kind, drawn in drawings.items() if drawn.wide} == {"roofline", "points", "profile", "plan"}


def test_the_schemes_are_those_of_the_charts(page: str) -> None:
    """Light without a question, dark for screens that ask for it, so that paper is light."""
    css = css_of(page)
    light, dark = palette(css)

    assert variables(LIGHT) in css.split("@media")[0]
    assert f"@media screen and (prefers-color-scheme: dark) {{\n  :root {{\n    {variables(DARK)};" in css
    assert (light["ground"], dark["ground"]) == (LIGHT.ground, DARK.ground)
    assert light.keys() == dark.keys()


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_text_stands_out(page: str, scheme: int) -> None:
    """4.5 to 1 at least on the page and on panels."""
    colours = palette(css_of(page))[scheme]
    text = {"ink", "muted", "link", "good", "bad", "warn"}

    for name in text | {name for name in colours if name.startswith("t-")}:
        assert contrast(colours[name], colours["ground"]) >= LEGIBLE, name
    for name in text:
        assert contrast(colours[name], colours["panel"]) >= LEGIBLE, name


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_a_colour_of_text_is_as_near_as_it_may_be(theme: object) -> None:
    """One that stands out stays; another is mixed with ink until it does."""
    chosen = LIGHT if theme is LIGHT else DARK
    for colour in (*chosen.contexts, chosen.faint, chosen.ink):
        text = legible(colour, chosen)
        assert contrast(text, chosen.ground) >= LEGIBLE
        assert (text == colour) == (contrast(colour, chosen.ground) >= LEGIBLE)


def test_contrast_is_that_of_the_guideline() -> None:
    """Black on white is 21, a colour on itself 1, whichever comes first; #767676 is the lightest grey for text on white."""
    assert contrast("#000000", "#ffffff") == contrast("#ffffff", "#000000") == pytest.approx(21)
    assert contrast("#0072b2", "#0072b2") == 1
    assert contrast("#767676", "#ffffff") >= LEGIBLE > contrast("#777777", "#ffffff")
