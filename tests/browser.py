"""A real, headless Chromium that opens pages from disk, and what it has to say of them."""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NoReturn

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, Dialog, Page

PROGRAMS: Final = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS: Final = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
#: functions of the page that tests call: what a text's colour is, what it stands on, how far both are apart
SCRIPT: Final = """
const parsed = colour => {
  const parts = colour.match(/[\\d.]+/g).map(Number);
  return colour.startsWith('color(') ? [...parts.slice(0, 3).map(part => part * 255), parts[3] ?? 1]
    : [parts[0], parts[1], parts[2], parts[3] ?? 1];
};
const over = (top, under, share = 1) =>
  [0, 1, 2].map(i => top[i] * top[3] * share + under[i] * (1 - top[3] * share)).concat(1);
const linear = channel => channel / 255 <= 0.04045 ? channel / 255 / 12.92 : ((channel / 255 + 0.055) / 1.055) ** 2.4;
const luminance = colour => 0.2126 * linear(colour[0]) + 0.7152 * linear(colour[1]) + 0.0722 * linear(colour[2]);
const contrast = (one, other) => {
  const [low, high] = [luminance(one), luminance(other)].sort((a, b) => a - b);
  return (high + 0.05) / (low + 0.05);
};
const ground = element => {
  const layers = [];
  for (let at = element; at; at = at.parentElement) layers.push(parsed(getComputedStyle(at).backgroundColor));
  return layers.reverse().reduce((under, top) => over(top, under), [255, 255, 255, 1]);
};
const opacity = element => {
  let share = 1;
  for (let at = element; at && at.tagName !== 'svg'; at = at.parentElement) share *= +getComputedStyle(at).opacity;
  return share;
};
// what is painted under the middle of a text of a chart, in the order of painting
const behind = text => {
  const svg = text.ownerSVGElement, box = text.getBoundingClientRect();
  const middle = new DOMPoint(box.x + box.width / 2, box.y + box.height / 2);
  let colour = ground(svg);
  for (const shape of svg.querySelectorAll('path, rect')) {
    if (shape.closest('defs, pattern, clipPath')) continue;
    if (!(text.compareDocumentPosition(shape) & Node.DOCUMENT_POSITION_PRECEDING)) continue;
    const style = getComputedStyle(shape);
    if (style.fill === 'none' || style.fill.startsWith('url')) continue;
    if (!shape.isPointInFill(middle.matrixTransform(shape.getScreenCTM().inverse()))) continue;
    colour = over(parsed(style.fill), colour, +style.fillOpacity * opacity(shape));
  }
  return colour;
};
const texts = () => {
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), found = new Set();
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (walker.currentNode.data.trim() && !element.closest('style, title, desc')) found.add(element);
  }
  return [...found];
};
const faint = least => texts().map(element => {
  const style = getComputedStyle(element), drawn = element instanceof SVGElement;
  const under = drawn ? behind(element) : ground(element);
  const colour = over(parsed(drawn ? style.fill : style.color), under, drawn ? +style.fillOpacity * opacity(element) : 1);
  return [element.tagName, element.textContent.trim().slice(0, 40), contrast(colour, under)];
}).filter(([, , found]) => found < least);
"""


@dataclass(slots=True)
class Opened:
    """A page that is open, and what happened since: messages of warnings and errors, requests, dialogs."""

    page: Page
    address: str
    messages: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    dialogs: list[str] = field(default_factory=list)

    def ask(self, expression: str) -> Any:
        """Return the value of an expression in the page, which may call the functions above."""
        return self.page.evaluate(f"(() => {{ {SCRIPT}; return {expression}; }})()")


def missing(reason: str) -> NoReturn:
    """Skip, or fail in CI, where nothing of a browser may be missing."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"{reason}; .ci/run installs it")
    pytest.skip(reason)


@contextmanager
def browser() -> Iterator[Browser]:
    """Start the Chromium of this machine, and end it."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        missing("no playwright")
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        missing("no chromium")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=program, args=list(ARGUMENTS))
        try:
            yield started
        finally:
            started.close()


@contextmanager
def opened(started: Browser, path: Path, *, width: int = 1200, **settings: Any) -> Iterator[Opened]:
    """Open a file without a network; what the browser reports from the first byte on is kept."""
    context = started.new_context(viewport={"width": width, "height": 800}, offline=True, **settings)
    try:
        shown = Opened(context.new_page(), path.as_uri())
        watch(shown)
        shown.page.goto(shown.address, wait_until="load")
        yield shown
    finally:
        context.close()


def watch(shown: Opened) -> None:
    """Keep what happens to a page."""
    page = shown.page
    page.on("console", lambda said: shown.messages.append(f"{said.type}: {said.text}"))
    page.on("pageerror", lambda error: shown.messages.append(str(error)))
    page.on("request", lambda request: shown.requests.append(request.url))
    page.on("dialog", lambda dialog: refuse(shown, dialog))


def refuse(shown: Opened, dialog: Dialog) -> None:
    """Keep what a dialog says, and close it."""
    shown.dialogs.append(dialog.message)
    dialog.dismiss()
