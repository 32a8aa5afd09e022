"""A file of an accelerator is read whole or refused in one line that names it."""

from __future__ import annotations

import os
import textwrap
from typing import TYPE_CHECKING

import pytest
import yaml

from roofcast.hwdb.files import BUILT_IN, AcceleratorFileError, read_accelerator

if TYPE_CHECKING:
    from pathlib import Path

    from roofcast.hwdb.accelerator import Accelerator

MINIMAL = """\
id: my-card
name: My Card 24GB
memory: 24 GB
bandwidth: 1008 GB/s
peaks:
  fp16: 165.2 TFLOP/s
  bf16: 165.2 TFLOP/s
  int8: 660.6 TOP/s
sources:
  - title: The card's data sheet
    url: https://example.org/data-sheet
    facts: [peaks, memory, bandwidth]
"""


def read(folder: Path, text: str, name: str = "my-card") -> Accelerator:
    """Read a file of that text."""
    path = folder / f"{name}.yaml"
    path.write_text(textwrap.dedent(text), encoding="utf-8")
    return read_accelerator(path)


def refusal(folder: Path, text: str) -> str:
    """Give what is said of a file of that text, which must be refused."""
    with pytest.raises(AcceleratorFileError) as refused:
        read(folder, text)
    message = str(refused.value)
    assert message.startswith(str(folder / "my-card.yaml")), "the file is named"
    assert "\n" not in message, "one line"
    return message.removeprefix(str(folder / "my-card.yaml"))


def test_twelve_lines_are_enough(tmp_path: Path) -> None:
    """A file of 12 lines is a whole accelerator; what it leaves out is unknown."""
    card = read(tmp_path, MINIMAL)

    assert MINIMAL.count("\n") == 12
    assert (card.memory, card.bandwidth, card.driver_memory) == (24_000_000_000, 1008e9, None)
    assert round(card.ridge("bf16")) == 164
    assert card.flags.bf16 is None
    assert card.verified("peaks.bf16")


def test_flags_derive_from_the_compute_capability(tmp_path: Path) -> None:
    """A file that gives a compute capability need not state the flags, and one it states wins."""
    card = read(tmp_path, MINIMAL + "compute_capability: 8.9\nflags: {fp8: false}\n")

    assert (card.flags.bf16, card.flags.fp8, card.flags.flash_attention_3) == (True, False, False)
    assert card.compute_capability == "8.9"


@pytest.mark.parametrize(
    ("line", "instead", "said"),
    [
        ("memory: 24 GB", "memory: 24", "memory: '24' has no unit; write it like '80 GB'"),
        ("memory: 24 GB", "memory: 24 Gb", "did you mean GB?"),
        ("memory: 24 GB", "memory: -24 GB", "is not a quantity in B"),
        ("memory: 24 GB", "memory: 0 GB", "memory: '0 GB' is no size that hardware has; write 1 MB to 10 PB"),
        ("memory: 24 GB", "memory: 1e17 B", "memory: '1e17 B' is no size that hardware has"),
        ("memory: 24 GB", f"memory: {'9' * 50}", "has no unit"),
        ("bandwidth: 1008 GB/s", "bandwidth: 1e-300 B/s", "bandwidth: '1e-300 B/s' is no size that hardware has"),
        ("bandwidth: 1008 GB/s", "bandwidth: 1e18 B/s", "bandwidth: '1e18 B/s' is no size that hardware has"),
        ("  int8: 660.6 TOP/s", "  int8: 1e21 OP/s", "peaks.int8: '1e21 OP/s' is no size that hardware has"),
        ("sources:", "clock: 1 Hz\nsources:", "clock: '1 Hz' is no size that hardware has; write 1 MHz to 1 THz"),
        ("sources:", "sm_count: 9999999999\nsources:", "sm_count is 9999999999; it should be less than"),
        ("memory: 24 GB", "memry: 24 GB", "memory is missing; memry is not a field (did you mean memory?)"),
        ("bandwidth: 1008 GB/s", "bandwidth: 1008 GB", "'GB' is not a unit of B/s"),
        ("  int8: 660.6 TOP/s", "  int9: 660.6 TOP/s", "peaks: 'int9' is not a format (did you mean int8?)"),
        ("  int8: 660.6 TOP/s", "  int8: [1]", "peaks.int8: '[1]' is not a quantity in FLOP/s"),
        ("id: my-card", "id: My Card", "id is 'My Card'; it should match pattern"),
        ("id: my-card", "id: other-card", "id is 'other-card'; it must be 'my-card', the file's name"),
        ("name: My Card 24GB", "name: [a]", "name is ['a']; it should be a valid string"),
        ("    url: https://example.org/data-sheet", "    uri: https://example.org", "sources.1.uri is not a field"),
        ("    facts: [peaks, memory, bandwidth]", "    facts: [peeks]", "facts: 'peeks' is not a fact; known: peaks"),
        ("sources:", "unverified: [tpd]\nsources:", "unverified: 'tpd' is not a fact"),
        ("sources:", "compute_capability: sm_90\nsources:", "compute_capability is 'sm_90'"),
        ("sources:", "flags: yes\nsources:", "flags is True"),
        ("memory: 24 GB", "memory:", "memory: 'None' is not a quantity"),
        ("sources:", "scale_up: none\nsources:", "scale_up is 'none'; it should be a valid mapping"),
        ("sources:", "1: 2\nsources:", "1 is not a field"),
        ("sources:", "sm_count: 1.5\nsources:", "sm_count is 1.5; it should be a valid integer"),
    ],
)
def test_bad_fields(tmp_path: Path, line: str, instead: str, said: str) -> None:
    """A bad field is named in one line with what would be right."""
    assert said in refusal(tmp_path, MINIMAL.replace(line, instead))


@pytest.mark.parametrize("field", ["driver_memory", "visible_memory"])
@pytest.mark.parametrize(("reading", "share"), [("900 GB", "3750%"), ("8 GB", "33%"), ("27 GB", "112%")])
def test_readings_of_another_card(tmp_path: Path, field: str, reading: str, share: str) -> None:
    """A reading that the memory of the same file cannot give is refused: it is another card's."""
    message = refusal(tmp_path, f"{MINIMAL}{field}: {reading}\n")

    assert f"{field}: {float(reading[:-3]):.1f} GB is {share} of memory, 24.0 GB; it must be 50% to 112%" in message


@pytest.mark.parametrize("reading", ["20.5 GB", "24564 MiB", "26.8 GB"])
def test_readings_near_the_memory(tmp_path: Path, reading: str) -> None:
    """A reading somewhat under or over the marketed size is what drivers give."""
    assert read(tmp_path, f"{MINIMAL}visible_memory: {reading}\n").visible_memory is not None


def test_a_copy_with_other_memory(tmp_path: Path) -> None:
    """A copy of a built-in file whose memory alone was changed names both readings' first as wrong."""
    text = (BUILT_IN / "h100-sxm.yaml").read_text(encoding="utf-8").replace("id: h100-sxm", "id: my-card")

    assert read(tmp_path, text).visible_memory is not None
    assert "driver_memory: 85.5 GB is 1069% of memory, 8.0 GB" in refusal(
        tmp_path, text.replace("\nmemory: 80 GB", "\nmemory: 8 GB")
    )


@pytest.mark.parametrize("path", sorted(BUILT_IN.glob("*.yaml")), ids=lambda path: path.stem)
def test_built_in_files_keep_the_rules_of_the_users(path: Path, tmp_path: Path) -> None:
    """What is refused in a user's YAML is in no file of ours."""
    assert read(tmp_path, path.read_text(encoding="utf-8"), path.stem) == read_accelerator(path)


def test_all_bad_fields_at_once(tmp_path: Path) -> None:
    """Every bad field of a file is named, not the first alone."""
    message = refusal(tmp_path, "id: my-card\nmemory: 24\nbandwidth: fast\npeaks: {bf61: 1 TFLOP/s}\nspeed: 3\n")

    assert message.count(";") >= 6
    for field in ("name is missing", "memory:", "bandwidth:", "bf61", "speed is not a field", "sources is missing"):
        assert field in message


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty; it must map fields"),
        ("- a\n- b\n", "is a list; it must map fields"),
        ("just words", "is a str; it must map fields"),
        ("id: [\n", "not readable as YAML, line 2"),
        ("id: a\n\tname: b\n", "not readable as YAML, line 2"),
        ("id: !!python/object/apply:os.system [ls]\n", "not readable as YAML"),
        ("when: 2024-99-99\n", "not readable as YAML"),
        ("id: a\nid: b\n", "'id' is given twice, again in line 2"),
        ("a: {peaks: {bf16: 1, bf16: 2}}\n", "'bf16' is given twice, again in line 1"),
        ("a: &a [*a]\n", "line 1: a has an anchor (&) or an alias (*); write the value out"),
        ("id: a\nb: {c: [*d]}\n", "line 2: b has an anchor (&) or an alias (*)"),
        ("id: a\nnotes: [!!bool xyz]\n", "line 2: notes has a tag, !!bool; write the value alone"),
        ('id: a\nsm_count: !!int ""\n', "line 2: sm_count has a tag, !!int;"),
        ('name2: !!timestamp "abc"\n', "line 1: name2 has a tag, !!timestamp;"),
        (f"id: a\nsm_count: 0x{'f' * 5000}\n", "line 2: sm_count is too long for a number, 0xfff"),
        (f"id: a\nsm_count: {'9' * 5000}\n", "line 2: sm_count is too long for a number, 999"),
        (f"id: a\nnotes: {'[' * 13}{']' * 13}\n", "line 2: notes is nested too deeply"),
        ("[" * 5000, "not readable as YAML"),
    ],
)
def test_what_is_no_file_of_fields(tmp_path: Path, text: str, said: str) -> None:
    """A file that is not YAML, or not a mapping, is refused in one line."""
    assert said in refusal(tmp_path, text)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    """Bytes that are no text, and a folder in a file's place, are refused by name."""
    (tmp_path / "my-card.yaml").write_bytes(b"id: \xff\xfe")
    with pytest.raises(AcceleratorFileError, match=r"my-card\.yaml: not UTF-8 text \(byte 4\)"):
        read_accelerator(tmp_path / "my-card.yaml")
    with pytest.raises(AcceleratorFileError, match=r"cannot be read \(it is no plain file\)"):
        read_accelerator(tmp_path)


@pytest.mark.skipif(os.name != "posix", reason="pipes and devices are files there")
def test_files_that_never_end(tmp_path: Path) -> None:
    """A pipe and a device are refused before a byte is read."""
    os.mkfifo(tmp_path / "pipe.yaml")
    (tmp_path / "zero.yaml").symlink_to("/dev/zero")

    for name in ("pipe.yaml", "zero.yaml"):
        with pytest.raises(AcceleratorFileError, match=rf"{name}: cannot be read \(it is no plain file\)"):
            read_accelerator(tmp_path / name)


def test_large_files(tmp_path: Path) -> None:
    """A file of more than 1 MB is no accelerator; one of just 1 MB is read."""
    size = 1_000_000 - len(MINIMAL.encode()) - 1

    assert read(tmp_path, f"{MINIMAL}#{'x' * size}").id == "my-card"
    assert "is larger than 1 MB" in refusal(tmp_path, f"{MINIMAL}#{'x' * (size + 1)}")


def test_a_bomb_of_aliases(tmp_path: Path) -> None:
    """Nine levels of nine aliases, 387 million values, are refused at the first anchor."""
    levels = ["a0: &a0 [x]"] + [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10)]

    assert "line 13: a0 has an anchor" in refusal(tmp_path, MINIMAL + "\n".join(levels))


def test_many_bad_fields(tmp_path: Path) -> None:
    """Of very many bad fields the first are named and the rest are counted."""
    message = refusal(tmp_path, MINIMAL + "".join(f"f{n}: 1\n" for n in range(2000)))

    assert message.endswith("; f19 is not a field; and 1980 more")
    assert len(refusal(tmp_path, f"{MINIMAL}unverified: [{'x' * 5000}]\n")) < 1000


def test_file_names_in_upper_case(tmp_path: Path) -> None:
    """A file whose name is not in lower case is told its proper name."""
    with pytest.raises(
        AcceleratorFileError, match=r"My-Card\.yaml: ids are in lower case; name the file my-card\.yaml"
    ):
        read(tmp_path, MINIMAL, "My-Card")


def test_the_pure_loader_reads_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without libyaml the files read the same, and the same is refused."""
    paths = [BUILT_IN / f"{name}.yaml" for name in ("h100-sxm", "rtx-2080-ti", "gaudi3")]
    fast = [read_accelerator(path) for path in paths]
    monkeypatch.delattr(yaml, "CSafeLoader", raising=False)

    assert [read_accelerator(path) for path in paths] == fast
    assert "sm_count has a tag" in refusal(tmp_path, 'sm_count: !!int ""\n')
