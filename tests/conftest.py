"""What every test may count on: no token, no network by accident, a home of its own, the same examples in CI."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from roofcast.reports.document import Document
    from tests.pages import Element

REPOSITORY = Path(__file__).resolve().parents[1]
UNWANTED = (
    "HF_HUB_OFFLINE",
    "HF_TOKEN",
    "HF_TOKEN_PATH",
    "HUGGINGFACE_HUB_CACHE",
    "HUGGING_FACE_HUB_TOKEN",
    "HF_HUB_CACHE",
    "FORCE_COLOR",
)

# Triton's interpreter runs the profiler's kernels on a processor; it is asked for before any of them is defined.
os.environ["TRITON_INTERPRET"] = "1"

hypothesis.settings.register_profile("dev", deadline=None)
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "dev")

# huggingface_hub reads these once, when it is imported: they are set before any test module is.
for _name in UNWANTED:
    os.environ.pop(_name, None)
os.environ["HF_HOME"] = tempfile.mkdtemp(prefix="roofcast-hf-")
atexit.register(shutil.rmtree, os.environ["HF_HOME"], ignore_errors=True)
os.environ["HF_ENDPOINT"] = "http://127.0.0.1:9"  # the discard port: a test that forgets its own Hub is refused
os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the switch behind `make golden`."""
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="rewrite tests/golden and the outputs printed in README.md and docs/ instead of comparing with them",
    )


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    """Whether this run rewrites the golden files instead of comparing with them."""
    return bool(request.config.getoption("--update-golden"))


@pytest.fixture
def repository() -> Path:
    """Return the folder that holds pyproject.toml."""
    return REPOSITORY


@pytest.fixture(autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the test an empty $ROOFCAST_HOME, plain text without colour, and an 80-column terminal."""
    folder = tmp_path_factory.mktemp("roofcast-home")
    monkeypatch.setenv("ROOFCAST_HOME", str(folder))
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    return folder


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Leave the machine's other threads to other tests."""
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def few_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time rounds of speculation by few repeats."""
    from roofcast.profiler import speculative, timing

    time_work = timing.time_work
    monkeypatch.setattr(timing, "LEAST", 2)
    monkeypatch.setattr(timing, "WARM", 1)
    monkeypatch.setattr(speculative, "time_work", lambda *given, **named: time_work(*given, **{**named, "span": 0.0}))


@pytest.fixture(scope="session")
def whole() -> Document:
    """Return a report with all sections, as the tests of pages look at it."""
    from tests.pages import report

    return report()


@pytest.fixture(scope="session")
def page(whole: Document) -> str:
    """Return the page of that report."""
    from roofcast.reports.page import render_page

    return render_page(whole)


@pytest.fixture(scope="session")
def root(page: str) -> Element:
    """Return the elements of that page."""
    from tests.pages import read

    return read(page)
