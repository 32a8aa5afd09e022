"""Documents to make pages of, and a strict reader of the pages."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Final
from unittest.mock import patch

from roofcast.calculators.answer import remarks
from roofcast.reports.document import Document, Made, Section, plain
from roofcast.reports.outputs import OUTPUTS
from tests.running import roofcast

if TYPE_CHECKING:
    from collections.abc import Iterator

VOID: Final = frozenset(("meta", "link", "br"))
HOSTILE: Final = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(2)>',
    "</style><script>alert(3)</script>",
    "'-->]]><svg onload=alert(4)>",
    "javascript:alert(5)",
    "{{ 7 * 7 }}{% raw %}&lt;b&gt;&#60;",
)
# section -> the command that is behind it
COMMANDS: Final = {
    "memory": ("fit", "llama-3.1-8b", "--gpu", "h100-sxm", "--engine", "vllm", "--max-model-len", "8k"),
    "speed": ("estimate", "llama-3.1-8b", "--gpu", "h100-sxm", "--context", "4k"),
    "roofline": ("roofline", "llama-3.1-8b", "--gpu", "h100-sxm", "--context", "4k,32k"),
    "kv": ("kv", "llama-3.1-8b", "llama-2-7b", "deepseek-v3"),
    "gpus": ("gpus", "h100-sxm", "h200-sxm", "b200", "--model", "llama-3.1-8b"),
    "levers": ("levers", "llama-3.1-8b", "--gpu", "h100-sxm"),
    "price": ("price", "llama-3.1-8b", "--gpu", "h100-sxm", "--gpu-price", "2.5"),
    "validate": ("validate",),
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """As much of a verdict as a page looks at."""

    status: str


@dataclass(frozen=True, slots=True)
class Result:
    """A result with a verdict."""

    verdict: Verdict


def document_of(*arguments: str) -> Document:
    """Return the document that a command makes a page of."""
    made: list[Document] = []

    def kept(document: Document) -> str:
        made.append(document)
        return ""

    with patch.dict(OUTPUTS, {"html": kept}):
        outcome = roofcast(*arguments, "--format", "html")
    assert outcome.code == 0, outcome.err
    [document] = made
    return document


def report(status: str = "meets") -> Document:
    """Return a document with a section for each of the commands, their charts included."""
    documents = {key: document_of(*arguments) for key, arguments in COMMANDS.items()}
    return Document(
        command="report",
        inputs={"model": "llama-3.1-8b", "gpu": "h100-sxm", "contexts": [4096], "mtp": False, "revision": None},
        result=Result(Verdict(status)),
        records=(),
        lines=("llama-3.1-8b on h100-sxm: 104 at once", "decode: a token every 6.68 ms", "see --tpot and `fit`"),
        remarks=remarks(["a model is as its config says"], ["a warning of all"], ["a note of all"]),
        sections=tuple(
            Section(key, f"Of {key}", f"what {key} comes to", document) for key, document in documents.items()
        ),
        made=Made("roofcast report llama-3.1-8b --gpu h100-sxm --out 'a page.html'", "0.1.0", "2026-11-30"),
    )


def hostile(document: Document, name: str) -> Document:
    """Return a document in which a name from outside stands wherever one may stand."""
    shown = replace(document.tables[0], title=name, header=(name, *document.tables[0].header[1:]))
    named = replace(shown, rows=tuple((name, *row[1:]) for row in shown.rows))
    charts = tuple(replace(chart, says=name) for chart in document.charts)
    said = remarks([f"{name}: assumed"], [f"{name}: warned"], [f"{name}: noted"])
    part = replace(document, lines=(name,), tables=(named,), remarks=said, charts=charts)
    return replace(
        part,
        inputs={"model": name, name: [name]},
        sections=(Section("part", name, name, part),),
        made=Made(f"roofcast kv {name}", name, name),
    )


@dataclass(slots=True)
class Element:
    """An element of a page."""

    tag: str
    attributes: dict[str, str]
    children: list[Element | str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """All text in it."""
        return "".join(child if isinstance(child, str) else child.text for child in self.children)

    def walk(self) -> Iterator[Element]:
        """Itself and all elements in it, in their order."""
        yield self
        for child in self.children:
            if isinstance(child, Element):
                yield from child.walk()

    def all(self, *tags: str) -> list[Element]:
        """Return the elements of these names in it."""
        return [element for element in self.walk() if element.tag in tags]

    def one(self, tag: str) -> Element:
        """Return the only element of that name in it."""
        [element] = self.all(tag)
        return element


class _Reader(HTMLParser):
    """Builds the tree of a page; every element must be closed where it was opened."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root = Element("", {})
        self.open = [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), (tag, names)
        element = Element(tag, {name: value or "" for name, value in attrs})
        self.open[-1].children.append(element)
        if tag == "br":
            element.children.append("\n")
        if tag not in VOID:
            self.open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open[-1].tag == tag, (self.open[-1].tag, tag)
        self.open.pop()

    def handle_data(self, data: str) -> None:
        self.open[-1].children.append(data)

    def handle_comment(self, data: str) -> None:
        raise AssertionError(data)


def read(page: str) -> Element:
    """Return the tree of a page, whose elements are all closed in order and whose attributes are given once."""
    reader = _Reader()
    reader.feed(page)
    reader.close()
    assert reader.open == [reader.root]
    return reader.root.one("html")


def squeezed(text: str) -> str:
    """Return a text with each run of blanks as one."""
    return " ".join(text.split())


def attributes(root: Element) -> Iterator[tuple[Element, str, str]]:
    """Every attribute of a page, with its element."""
    for element in root.walk():
        for name, value in element.attributes.items():
            yield element, name, value


def cells(row: Element) -> list[str]:
    """Return the text of the cells of a row."""
    return [squeezed(cell.text) for cell in row.all("th", "td")]


def data_of(value: object) -> str:
    """Return a text as a page shows it: on one line, what cannot be printed as question marks."""
    return squeezed(plain(squeezed(str(value))))
