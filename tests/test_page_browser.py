"""Pages in a real browser: nothing loads, nothing complains, all can be seen, reached, read and printed."""

from __future__ import annotations

import io
import os
import re
from itertools import pairwise
from typing import TYPE_CHECKING, Final
from unicodedata import normalize
from unittest.mock import patch

import pytest

from roofcast.reports.page import render_page
from tests.browser import browser, opened
from tests.pages import COMMANDS, HOSTILE, document_of, hostile, report

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser

    from roofcast.reports.document import Document
    from tests.browser import Opened

TELEPHONE: Final = 360  # pixels
PAGE: Final = (688, 1016)  # pixels of A4 within its margins
LEAST: Final = 8.0  # pixels of text in charts
FOCUSED: Final = """(() => { const at = document.activeElement;
  return [at.tagName.toLowerCase(), at.className, at.getAttribute('href') || at.textContent.trim().slice(0, 30)]; })()"""


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """Return one browser for all tests of this file."""
    with browser() as started:
        yield started


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Give the whole file an empty $ROOFCAST_HOME."""
    folder = tmp_path_factory.mktemp("home")
    with patch.dict(os.environ, {"ROOFCAST_HOME": str(folder), "NO_COLOR": "1", "COLUMNS": "80"}):
        yield folder


@pytest.fixture(scope="module")
def whole(home: Path) -> Document:
    """Return a report of all sections."""
    assert home.is_dir()
    return report()


@pytest.fixture(scope="module")
def path(whole: Document, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the page of the report, under a name that an address must quote."""
    file = tmp_path_factory.mktemp("pages") / "a report & more.html"
    file.write_text(render_page(whole), encoding="utf-8")
    return file


@pytest.fixture
def page(chromium: Browser, path: Path) -> Iterator[Opened]:
    """Open the report."""
    with opened(chromium, path) as shown:
        yield shown


def test_nothing_is_asked_for_and_nothing_complains(page: Opened) -> None:
    """One request, that of the file itself, with every expander open and after a print; no message at all."""
    page.page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    page.page.mouse.wheel(0, 5000)
    page.page.pdf()

    assert page.requests == [page.address]
    assert page.messages == []
    assert page.dialogs == []
    assert page.page.evaluate("performance.getEntriesByType('resource').length") == 0
    assert page.page.evaluate("document.scripts.length") == 0


def test_every_chart_is_there(page: Opened, whole: Document) -> None:
    """With a name and a caption, and drawn: each path in it has a size, each text is where it can be seen."""
    charts = [chart for section in whole.sections for chart in section.document.charts]
    images = page.page.get_by_role("img").all()

    assert len(images) == len(charts) == page.page.locator("figure").count() > 6
    for image, chart in zip(images, charts, strict=True):
        box = image.bounding_box()
        assert box is not None
        assert box["width"] > 300
        assert box["height"] > 150
        assert image.is_visible()
        assert image.locator("text").count() > 5, chart.kind
        outside = image.evaluate(
            """svg => { const frame = svg.getBoundingClientRect(); return [...svg.querySelectorAll('text')].filter(text => {
              const box = text.getBoundingClientRect();
              return box.left < frame.left - 1 || box.right > frame.right + 1 || box.top < frame.top - 1
                || box.bottom > frame.bottom + 1; }).map(text => text.textContent); }"""
        )
        assert outside == [], chart.kind
    captions = page.page.locator("figcaption").all_inner_texts()
    assert [" ".join(caption.split()) for caption in captions] == [" ".join(chart.says.split()) for chart in charts]


def test_expanders_open_by_click_and_by_key(page: Opened) -> None:
    """Closed at first; a click, Enter and the space bar turn each over."""
    expanders = page.page.locator("details")

    assert expanders.count() > 8
    assert page.page.locator("details[open]").count() == 0
    for number, expander in enumerate(expanders.all()[:6]):
        summary, content = expander.locator("summary"), expander.locator(":scope > :not(summary)").first
        assert not content.is_visible()
        if number % 3 == 0:
            summary.click()
        else:
            summary.focus()
            page.page.keyboard.press("Enter" if number % 3 == 1 else "Space")
        assert content.is_visible(), summary.inner_text()


def test_the_keyboard_reaches_everything(page: Opened) -> None:
    """Tab goes to the skip link first, then contents, expanders and what scrolls, in the order of the page, in sight."""
    wanted = page.page.evaluate(
        "[...document.querySelectorAll('a[href], summary, [tabindex=\"0\"]')].filter(one => one.checkVisibility()).length"
    )
    reached = []
    for _ in range(wanted):
        page.page.keyboard.press("Tab")
        reached.append(tuple(page.page.evaluate(FOCUSED)))
        style = page.ask("getComputedStyle(document.activeElement).outlineStyle")
        assert style == "solid", reached[-1]

    assert reached[0] == ("a", "skip", "#main")
    assert [href for tag, _, href in reached[1 : 4 + len(COMMANDS)] if tag == "a"] == [
        f"#{key}" for key in (*COMMANDS, "page-assumptions", "page-asked", "page-made")
    ]
    assert sum(tag == "summary" for tag, _, _ in reached) == page.page.locator("summary").count()
    assert sum(kind == "scroll" for _, kind, _ in reached) == page.page.locator("[tabindex='0']").count() > 8
    assert len(reached) == wanted


def test_the_skip_link_leads_to_the_answer(page: Opened) -> None:
    """It shows when it has the focus, and Enter moves the focus past the header."""
    page.page.keyboard.press("Tab")
    box = page.page.locator(".skip").bounding_box()

    assert box is not None
    assert box["y"] >= 0
    page.page.keyboard.press("Enter")
    assert page.page.evaluate("document.activeElement.id") == "main"


def test_links_lead_to_their_places(page: Opened) -> None:
    """Those of the contents to a heading, those to a formula above into the expander, which opens."""
    from playwright.sync_api import expect

    page.page.get_by_role("navigation").get_by_role("link").nth(3).click()
    assert page.page.locator(":target").evaluate("one => one.tagName") == "H2"
    expect(page.page.locator(":target")).to_be_in_viewport()
    link = page.page.locator("dd a").first
    place = page.page.locator(f"[id='{(link.get_attribute('href') or '')[1:]}']")
    assert not place.is_visible()
    link.evaluate("one => { one.closest('details').open = true; }")
    link.click()
    assert place.is_visible()


def test_the_structure_can_be_read_out(page: Opened) -> None:
    """One h1, no level left out; landmarks; tables with captions and scopes; regions, figures and images with names."""
    levels = page.page.evaluate("[...document.querySelectorAll('h1, h2, h3, h4')].map(one => +one.tagName[1])")

    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    for role in ("banner", "navigation", "main", "contentinfo"):
        assert page.page.get_by_role(role).count() == 1, role
    assert page.ask("[...document.querySelectorAll('table')].filter(one => !one.caption?.textContent).length") == 0
    assert page.ask("[...document.querySelectorAll('th')].filter(one => !one.scope || !one.textContent).length") == 0
    assert (
        page.ask("[...document.querySelectorAll('figure')].filter(one => !one.querySelector('figcaption')).length") == 0
    )
    tree = page.page.locator("body").aria_snapshot()
    assert not re.search(r"^\s*- (?:img|region|link)(?::|\s*$)", tree, re.MULTILINE)
    assert page.ask("document.documentElement.lang") == "en"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_stands_out(chromium: Browser, path: Path, scheme: str) -> None:
    """4.5 to 1 at least against what it stands on, that of charts as well, in both schemes."""
    with opened(chromium, path, color_scheme=scheme) as shown:
        shown.page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
        grounds = shown.ask("luminance(ground(document.body))")

        assert (grounds > 0.9) == (scheme == "light")
        assert shown.ask("texts().length") > 500
        assert shown.ask("faint(4.5)") == []


def test_it_is_usable_on_a_telephone(chromium: Browser, path: Path) -> None:
    """360 pixels: the page itself does not scroll sideways, text of charts can be read, wide ones scroll by themselves."""
    with opened(chromium, path, width=TELEPHONE, is_mobile=True, has_touch=True) as shown:
        shown.page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
        small = shown.ask(
            """[...document.querySelectorAll('svg text')].map(text =>
               [text.textContent, parseFloat(getComputedStyle(text).fontSize) * text.ownerSVGElement.getScreenCTM().a])
               .filter(([, size]) => size < %s)"""
            % (LEAST - 0.01)
        )
        wide = shown.ask(
            "[...document.querySelectorAll('.wide .scroll')].map(one => [one.scrollWidth, one.clientWidth])"
        )
        cards = shown.ask(
            "[...document.querySelectorAll('figure:not(.wide) .scroll')].map(one => [one.scrollWidth, one.clientWidth])"
        )

        assert shown.ask("document.scrollingElement.scrollWidth") <= TELEPHONE
        assert small == []
        assert len(wide) == 2
        assert all(content > frame for content, frame in wide)
        assert len(cards) > 4
        assert all(content <= frame <= TELEPHONE for content, frame in cards)


def test_cards_stand_side_by_side_where_there_is_room(page: Opened) -> None:
    """The two of the sweep on one line; a wide chart over the whole width."""
    places = page.ask(
        "[...document.querySelectorAll('#speed ~ .charts figure')].map(one => one.getBoundingClientRect())"
    )

    assert len(places) == 2
    assert places[0]["top"] == places[1]["top"]
    assert places[0]["right"] < places[1]["left"]
    assert page.ask("document.querySelector('.wide svg').getBoundingClientRect().width") > 1000


def printed(page: Opened) -> str:
    """Return the text of the pages that a printer gets, of which there are some."""
    from pypdf import PdfReader

    reader = PdfReader(io.BytesIO(page.page.pdf(prefer_css_page_size=True)))
    assert 5 < len(reader.pages) < 40
    return normalize("NFKC", " ".join(" ".join(sheet.extract_text().split()) for sheet in reader.pages))


def test_it_prints_whole(page: Opened) -> None:
    """The verdict, every heading, notes, the command; formulas only where they were opened, which are pages of their own."""
    formula = "the sum over its operations of max(F / peak, D / bandwidth)"

    text = printed(page)
    page.page.evaluate("document.querySelectorAll('.formulas').forEach(one => one.open = true)")
    opened = printed(page)

    for said in (
        "meets",
        "llama-3.1-8b on h100-sxm: 104 at once",
        *(f"Of {key}" for key in COMMANDS),
        "a note of all",
        "Throughput against latency",
        "roofcast report llama-3.1-8b",
    ):
        assert said in text, said
    assert formula not in text
    assert formula in opened


def test_paper_is_light_and_charts_are_not_cut(chromium: Browser, path: Path) -> None:
    """Whatever the screen's scheme is; each chart fits on a page with its caption, and no table is wider than one."""
    with opened(chromium, path, width=PAGE[0], color_scheme="dark") as shown:
        shown.page.emulate_media(media="print", color_scheme="dark")
        heights = shown.ask("[...document.querySelectorAll('figure')].map(one => one.getBoundingClientRect().height)")
        broken = shown.ask(
            "[...document.querySelectorAll('figure')].filter(o => getComputedStyle(o).breakInside !== 'avoid').length"
        )

        assert shown.ask("luminance(ground(document.body))") > 0.9
        assert shown.ask("faint(4.5)") == []
        assert max(heights) < PAGE[1]
        assert broken == 0
        assert shown.ask("document.scrollingElement.scrollWidth") <= PAGE[0]


def test_movement_is_left_out_where_it_is_unwanted(chromium: Browser, tmp_path: Path) -> None:
    """Links jump instead of gliding."""
    path = tmp_path / "page.html"
    path.write_text(render_page(document_of("levers", "gpt2", "--gpu", "h100-sxm")), encoding="utf-8")
    for wanted, behaviour in (("reduce", "auto"), ("no-preference", "smooth")):
        with opened(chromium, path, reduced_motion=wanted) as shown:
            assert shown.ask("getComputedStyle(document.documentElement).scrollBehavior") == behaviour


def test_hostile_names_are_text(chromium: Browser, home: Path) -> None:
    """Nothing runs, nothing is asked for, and the names are on the page as they are."""
    name, file = " ".join(HOSTILE), home / "hostile.html"
    file.write_text(render_page(hostile(document_of("kv", "llama-3.1-8b"), name)), encoding="utf-8")
    with opened(chromium, file) as shown:
        for place in ("title", "h1", "h2", "desc", "caption", "figcaption", "th", "pre", "li", ".lead"):
            texts = shown.page.evaluate(
                "place => [...document.querySelectorAll(place)].map(one => one.textContent)", place
            )
            assert any(name in text for text in texts), place
        assert name in shown.page.inner_text("main")
        assert shown.page.evaluate("document.querySelectorAll('script, img, iframe, object, base, form').length") == 0
        assert (shown.dialogs, shown.messages, shown.requests) == ([], [], [shown.address])
