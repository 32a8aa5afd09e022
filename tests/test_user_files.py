"""The user's own files add to the built-in accelerators and replace them, and are never passed over."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

import pytest

from roofcast.hwdb.files import AcceleratorFileError, home_folder
from roofcast.hwdb.lookup import all_accelerators, find_accelerator

if TYPE_CHECKING:
    from pathlib import Path

CARD = """\
id: {id}
name: {name}
aliases: [{alias}]  # comment
memory: 24 GB
bandwidth: 1008 GB/s
peaks: {{bf16: 165.2 TFLOP/s}}
sources: [{{title: Data sheet}}]
"""


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give every test an empty roofcast home of its own."""
    monkeypatch.setenv("ROOFCAST_HOME", str(tmp_path))
    folder = tmp_path / "accelerators"
    folder.mkdir()
    return folder


def write(folder: Path, card: str, *, name: str = "Some Card", alias: str = "some") -> None:
    """Put a card's file into the user's folder."""
    (folder / f"{card}.yaml").write_text(CARD.format(id=card, name=name, alias=alias), encoding="utf-8")


def test_user_files_add(own_folder: Path) -> None:
    """A file in the user's folder is an accelerator like any other."""
    write(own_folder, "zx-1", name="Zeta X1", alias="Zeta Accelerator X1")

    assert find_accelerator("zeta_accelerator_x1").accelerator.id == "zx-1"
    assert find_accelerator("zx-1").accelerator.name == "Zeta X1"
    assert "zx-1" in [card.id for card in all_accelerators().accelerators]
    assert len(all_accelerators().accelerators) == 96


def test_user_files_override(own_folder: Path) -> None:
    """A user's file replaces the built-in one of its id, and its aliases win."""
    write(own_folder, "h100-sxm", name="My H100", alias="my h100")
    write(own_folder, "zx-1", alias="4090")

    assert find_accelerator("h100-sxm").accelerator.name == "My H100"
    assert find_accelerator("4090").accelerator.id == "zx-1"
    assert len(all_accelerators().accelerators) == 96


@pytest.mark.parametrize(
    "text",
    [
        "sources: [{{title: Data sheet}}]\naliases: [{alias}]\n",
        "sources:\n  - title: Data sheet\naliases:\n  - {alias}\n",
        "sources: [{{title: Data sheet}}]\naliases: ['{alias}', other]\n",
        "sources: [{{title: Data sheet}}]\n'aliases':\n  - {folded}\n",
        "aliases: [{alias}]\nsources: [{{title: Data sheet}}]\n",
    ],
)
@pytest.mark.parametrize(("name", "alias"), [("h100", "h100"), ("My 4th GPU", "my 4th gpu")])
def test_aliases_anywhere(own_folder: Path, text: str, name: str, alias: str) -> None:
    """An alias of a user's file is found wherever in the file it stands."""
    head = "id: mine\nname: Mine\nmemory: 24 GB\nbandwidth: 1008 GB/s\npeaks: {bf16: 1 TFLOP/s}\n"
    tail = text.format(alias=alias, folded=alias.replace(" ", "\n    "))
    (own_folder / "mine.yaml").write_text(head + tail, encoding="utf-8")

    assert find_accelerator(name).accelerator.id == "mine"


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["H100-SXM.yaml"], r"H100-SXM\.yaml: ids are in lower case; name the file h100-sxm\.yaml"),
        (["h100-sxm.YAML"], r"h100-sxm\.YAML: ids are in lower case; name the file h100-sxm\.yaml"),
        (["h100-sxm.yaml", "h100-sxm.yml"], r"h100-sxm\.yaml and h100-sxm\.yml have the same id, h100-sxm; keep one"),
        (["H100-sxm.yml", "h100-sxm.yaml"], r"H100-sxm\.yml and h100-sxm\.yaml have the same id, h100-sxm; keep one"),
    ],
)
def test_files_that_would_be_passed_over(own_folder: Path, names: list[str], said: str) -> None:
    """A user's file is never ignored for its name, nor does one of two files win: its card is refused."""
    for name in names:
        (own_folder / name).write_text(CARD.format(id="h100-sxm", name="Mine", alias="mine"), encoding="utf-8")

    for asked in ("h100-sxm", "mine"):
        with pytest.raises(AcceleratorFileError, match=said):
            find_accelerator(asked)
    assert find_accelerator("l4").accelerator.id == "l4"
    assert [re.search(said, problem) is not None for problem in all_accelerators().problems] == [True]


def test_devices_written_as_text(own_folder: Path) -> None:
    """A number of devices in quotes is read, and by an alias too."""
    (own_folder / "twin.yaml").write_text(
        CARD.format(id="twin", name="Twin", alias="gemini") + "devices: '2'\n", encoding="utf-8"
    )

    assert find_accelerator("gemini", 12e9).accelerator.devices == 2


@pytest.mark.parametrize(
    "line",
    [
        "notes: [!!bool xyz]",
        'sm_count: !!int ""',
        'name2: !!timestamp "abc"',
        f"sm_count: 0x{'f' * 5000}",
        "bandwidth2: 1e-300 B/s",
        "notes: &a [*a]",
    ],
)
def test_no_file_stops_the_listing(own_folder: Path, line: str) -> None:
    """A file that cannot be read is one line beside the others."""
    write(own_folder, "broken")
    with (own_folder / "broken.yaml").open("a", encoding="utf-8") as file:
        file.write(f"{line}\n")
    listing = all_accelerators()

    assert len(listing.accelerators) == 95
    assert [line.partition(":")[0] in problem and "broken.yaml" in problem for problem in listing.problems] == [True]


def test_broken_files_of_other_cards_do_no_harm(own_folder: Path) -> None:
    """A broken file stops neither an id nor an alias of another card; a listing warns of it."""
    (own_folder / "broken.yaml").write_text("id: broken\nmemory: [", encoding="utf-8")
    (own_folder / "notes.txt").write_text("not ours", encoding="utf-8")
    listing = all_accelerators()

    assert find_accelerator("h100-sxm").accelerator.id == "h100-sxm"
    assert find_accelerator("h100").accelerator.id == "h100-sxm"
    assert find_accelerator("RTX 4090 24GB").accelerator.id == "rtx-4090"
    assert len(listing.accelerators) == 95
    assert [problem for problem in listing.problems if "broken.yaml: not readable as YAML, line " in problem] == [
        *listing.problems
    ]
    assert len(listing.problems) == 1


@pytest.mark.parametrize("name", ["broken", "the broken one", "BROKEN"])
def test_broken_files_that_are_needed(own_folder: Path, name: str) -> None:
    """A broken file is an error as soon as its card is asked for."""
    (own_folder / "broken.yaml").write_text("id: broken\naliases: [the broken one]\nmemory: 24\n", encoding="utf-8")

    with pytest.raises(AcceleratorFileError, match=r"broken\.yaml: .*memory: '24' has no unit"):
        find_accelerator(name)


@pytest.mark.parametrize("line", ["aliases: 5", "ambiguous_aliases: [a]", "memory_variants: 3 GB", "devices: many"])
def test_malformed_names(own_folder: Path, line: str) -> None:
    """Names of the wrong kind are a broken file, not a crash."""
    (own_folder / "broken.yaml").write_text(f"id: broken\nname: odd one\n{line}\n", encoding="utf-8")

    with pytest.raises(AcceleratorFileError, match=line.partition(":")[0]):
        find_accelerator("odd one")
    assert find_accelerator("RTX 4090 24GB").accelerator.id == "rtx-4090"


def test_a_folder_that_is_a_file(tmp_path: Path, own_folder: Path) -> None:
    """A file in the folder's place is an error that says so; no folder at all is none."""
    own_folder.rmdir()
    assert len(all_accelerators().accelerators) == 95

    (tmp_path / "accelerators").write_text("", encoding="utf-8")
    with pytest.raises(AcceleratorFileError, match="it must be a folder"):
        find_accelerator("h100-sxm")


def test_a_home_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """The home of a user that the system does not know is refused in one line that names the variable."""
    monkeypatch.setenv("ROOFCAST_HOME", "~no-such-user/x")

    with pytest.raises(AcceleratorFileError, match=r"ROOFCAST_HOME=~no-such-user/x: no such user's home"):
        find_accelerator("h100-sxm")


@pytest.mark.parametrize(
    ("platform", "variables", "folder"),
    [
        ("linux", {"ROOFCAST_HOME": "/data/rc"}, "/data/rc"),
        ("linux", {"ROOFCAST_HOME": "~/rc"}, "/home/me/rc"),
        ("linux", {"ROOFCAST_HOME": ""}, "/home/me/.config/roofcast"),
        ("linux", {"XDG_CONFIG_HOME": "/cfg"}, "/cfg/roofcast"),
        ("darwin", {"XDG_CONFIG_HOME": "/cfg"}, "/home/me/Library/Application Support/roofcast"),
        ("win32", {"APPDATA": "/roaming"}, "/roaming/roofcast"),
        ("win32", {}, "/home/me/AppData/Roaming/roofcast"),
    ],
)
def test_home_folder(monkeypatch: pytest.MonkeyPatch, platform: str, variables: dict[str, str], folder: str) -> None:
    """The user's folder is $ROOFCAST_HOME, else where the platform keeps configuration."""
    for name in ("ROOFCAST_HOME", "XDG_CONFIG_HOME", "APPDATA"):
        monkeypatch.delenv(name, raising=False)
    for name, value in ({"HOME": "/home/me"} | variables).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "platform", platform)

    assert home_folder().as_posix() == folder
