"""A chart as a part of a page: SVG whose text is text, whose colours follow the page's, and that loads nothing."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from xml.etree import ElementTree as ET

from roofcast.reports.charts import chart_file
from roofcast.reports.document import plain
from roofcast.reports.theme import LIGHT, legible

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from roofcast.reports.charts import Chart
    from roofcast.reports.theme import Theme

WIDE: Final = 400.0  # points from which on a chart takes the full width
BLACK: Final = "#000000"  # what matplotlib leaves out
# what a chart is drawn with; nothing else of a file goes on a page
ELEMENTS: Final = frozenset(("svg", "g", "defs", "path", "use", "text", "tspan", "rect", "clipPath", "pattern"))
ATTRIBUTES: Final = frozenset(
    (
        *("id", "d", "x", "y", "width", "height", "viewBox", "transform", "style", "href", "clip-path"),
        *("patternUnits", "points"),
    )
)
COORDINATES: Final = ("d", "x", "y", "width", "height", "points")
PAINTS: Final = ("fill", "stroke")  # attributes of old that are written as style
# what a page says of all charts, or what is so anyway
NEEDLESS: Final[Mapping[str, str | None]] = {"font-family": None, "stroke-dashoffset": "0"}
STILL: Final = re.compile(r"rotate\(-?0(?:\.0+)? [^)]*\)\s*")  # turned by nothing
NUMBER: Final = re.compile(r"-?\d+\.\d{3,}(?!e)")
COLOUR: Final = re.compile(r"#[0-9a-fA-F]{6}\b")
NAMED: Final = re.compile(r"url\(#([^)]+)\)")


@dataclass(frozen=True, slots=True)
class Drawing:
    """A chart on a page.

    Args:
        svg: its elements, escaped by the writer of XML.
        says: what it shows.
        name: what it is, in two words.
        wide: whether it takes the full width.
    """

    svg: str
    says: str
    name: str
    wide: bool


def drawing(chart: Chart, number: int) -> Drawing:
    """A chart drawn for a page, on which it is the one of that number.

    Raises:
        UsageError: matplotlib does not start.
    """
    root = ET.fromstring(chart_file(chart, ".svg"))  # noqa: S314 - ours, not a file from outside
    name, says = f"{chart.kind} chart", plain(chart.says)
    width, height = (float(edge) for edge in root.get("viewBox", "0 0 1 1").split()[2:])
    _clean(root)
    _lift(root)
    _rename(root, f"c{number}-")
    root.attrib.clear()
    root.attrib.update(
        {
            "viewBox": f"0 0 {width:g} {height:g}",
            "role": "img",
            "aria-labelledby": f"c{number}-title",
            **({"aria-describedby": f"c{number}-desc"} if says else {}),
        }
    )
    _describe(root, f"c{number}", name, says)
    return Drawing(svg=ET.tostring(root, encoding="unicode"), says=says, name=name, wide=width > WIDE)


def variables(theme: Theme) -> str:
    """The colours of charts as variables of a style sheet; those of text, `t-`, are legible on the ground.

    >>> variables(LIGHT)[:72]
    '--ground:#ffffff;--ink:#222222;--faint:#8a8a8a;--c0:#0072B2;--c1:#D55E00'
    """
    shapes = {"ground": theme.ground, "ink": theme.ink, "faint": theme.faint}
    shapes |= {f"c{number}": colour for number, colour in enumerate(theme.contexts)}
    text = {f"t-{name}": legible(colour, theme) for name, colour in shapes.items() if name not in {"ground", "ink"}}
    return ";".join(f"--{name}:{colour}" for name, colour in {**shapes, **text}.items())


def _names(theme: Theme) -> dict[str, str]:
    """Colour as a chart has it -> its variable."""
    contexts = {colour.lower(): f"c{number}" for number, colour in enumerate(theme.contexts)}
    return {
        theme.ground.lower(): "ground",
        theme.ink.lower(): "ink",
        theme.faint.lower(): "faint",
        BLACK: "ink",
    } | contexts


NAMES: Final = _names(LIGHT)


def _clean(root: ET.Element) -> None:
    """Leaves what is drawn: names without namespaces, colours by name, numbers as exact as a screen is."""
    for parent in list(root.iter()):
        for child in list(parent):
            if _local(child.tag) not in ELEMENTS:
                parent.remove(child)
    for element in root.iter():
        element.tag = _local(element.tag)
        element.attrib = _attributes(element)
        element.tail = None
        if element.tag not in {"text", "tspan"}:
            element.text = None


def _attributes(element: ET.Element) -> dict[str, str]:
    given = {_local(name): value for name, value in element.attrib.items()}
    style = ";".join(
        [*(f"{paint}:{given[paint]}" for paint in PAINTS if paint in given), *filter(None, [given.get("style")])]
    )
    kept = {name: value for name, value in given.items() if name in ATTRIBUTES}
    if style:
        kept["style"] = _style(style, text=element.tag == "text")
    if "transform" in kept:
        kept["transform"] = STILL.sub("", kept["transform"])
    for name in COORDINATES:
        if name in kept:
            kept[name] = NUMBER.sub(_rounded, " ".join(kept[name].split())).replace(" L ", "L").replace(" z", "z")
    return {name: value for name, value in kept.items() if value}


def _style(style: str, *, text: bool) -> str:
    """Declarations without those that are needless, and with colours by name.

    >>> _style("fill: #ffffff; font-family: 'DejaVu Sans'; stroke: #0072b2", text=False)
    'fill:var(--ground);stroke:var(--c0)'
    >>> _style("fill: #E69F00", text=True)
    'fill:var(--t-c4)'
    """
    pairs = (part.partition(":") for part in style.split(";") if ":" in part)
    said = {name.strip(): value.strip() for name, _, value in pairs}
    kept = {name: value for name, value in said.items() if NEEDLESS.get(name, "") not in {None, value}}

    def variable(found: re.Match[str]) -> str:
        name = NAMES.get(found[0].lower())
        if name is None:
            return found[0]
        return f"var(--t-{name})" if text and name not in {"ground", "ink"} else f"var(--{name})"

    return ";".join(f"{name}:{COLOUR.sub(variable, value)}" for name, value in kept.items())


def _rounded(found: re.Match[str]) -> str:
    """A number to the hundredth of a point.

    >>> NUMBER.sub(_rounded, "M 282.804894 -0.001 7.100001")
    'M 282.8 0 7.1'
    """
    text = f"{float(found[0]):.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def _lift(root: ET.Element) -> None:
    """Takes away groups that only group."""
    used = set(_references(root))
    for element in root.iter():
        if element.get("id") not in {None, *used}:
            del element.attrib["id"]
    for parent in list(root.iter()):
        parent[:] = [child for old in parent for child in _lifted(old)]
    # a group that nothing is left of
    for parent in root.iter():
        for child in [child for child in parent if child.tag in {"g", "defs"} and not len(child)]:
            parent.remove(child)


def _lifted(element: ET.Element) -> Iterator[ET.Element]:
    if element.tag == "g" and not element.attrib:
        for child in element:
            yield from _lifted(child)
    else:
        yield element


def _references(root: ET.Element) -> Iterator[str]:
    for element in root.iter():
        for value in element.attrib.values():
            yield from NAMED.findall(value)
        if element.get("href", "").startswith("#"):
            yield element.get("href", "")[1:]


def _rename(root: ET.Element, prefix: str) -> None:
    """Names that no other chart of the page has, short ones; a reference to elsewhere is dropped."""
    short = {old: f"{prefix}{number}" for number, old in enumerate(_identified(root))}
    for element in root.iter():
        for name, value in list(element.attrib.items()):
            if name == "id":
                element.set(name, short[value])
            elif name == "href":
                element.set(name, f"#{short[value[1:]]}" if value[:1] == "#" and value[1:] in short else "#")
            elif "url(" in value:
                element.set(name, NAMED.sub(lambda found: f"url(#{short.get(found[1], '')})", value))


def _identified(root: ET.Element) -> list[str]:
    return list(dict.fromkeys(name for element in root.iter() if (name := element.get("id"))))


def _describe(root: ET.Element, key: str, name: str, says: str) -> None:
    """Name and description, for those who do not see it."""
    described = [("title", name), *([("desc", says)] if says else [])]
    for place, (tag, text) in enumerate(described):
        element = ET.Element(tag, {"id": f"{key}-{tag}"})
        element.text = text
        root.insert(place, element)


def _local(name: str) -> str:
    """A name without its namespace.

    >>> _local("{http://www.w3.org/2000/svg}path")
    'path'
    """
    return name.rpartition("}")[2]
