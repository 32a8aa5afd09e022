"""The user's files of prices: they add vendors, override models, and are refused in one line where they are wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from roofcast.hwdb.price_files import (
    BUILT_IN,
    PriceFileError,
    find_prices,
    read_price_file,
    usual_prices,
)
from roofcast.hwdb.prices import UnknownPriceError
from tests.price_lists import only

if TYPE_CHECKING:
    from pathlib import Path


FILES: Final = sorted(BUILT_IN.glob("*.yaml"))
OWN: Final = """\
schema: roofcast.prices/1
vendor: acme
name: Acme
sources:
  contract: {url: "https://acme.example/prices", as_of: 2026-11-01}
models:
  - id: acme-1
    name: Acme One
    aliases: [one]
    prices:
      - {source: contract, input: 1, output: 4}
"""

ROW: Final = "- {source: contract, input: 1, output: 4}"


@pytest.fixture(autouse=True, name="home")
def home_fixture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give every test an empty roofcast home of its own, and return its folder of prices."""
    monkeypatch.setenv("ROOFCAST_HOME", str(tmp_path))
    folder = tmp_path / "prices"
    folder.mkdir()
    return folder


def written(folder: Path, text: str = OWN, name: str = "acme.yaml") -> Path:
    """Write a file of prices."""
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def refused(path: Path) -> str:
    """What is said of a file that cannot be read, in one line."""
    with pytest.raises(PriceFileError) as caught:
        read_price_file(path)
    said = str(caught.value)
    assert "\n" not in said
    assert said.startswith(f"{path}: ")
    return said.removeprefix(f"{path}: ")


# --- the user's own


def test_a_users_file_adds_a_vendor(home: Path) -> None:
    """A file in the user's folder is found by vendor, id and alias, and listed with the rest."""
    written(home)

    assert [prices.model for prices in find_prices(["acme"])] == ["acme-1"]
    assert only("One").rows[0].output == 4
    assert only("acme/acme-1") in find_prices(["all"])


def test_a_users_file_overrides_a_model(home: Path) -> None:
    """A model of the user's replaces the built-in one whole, and keeps its rule of caches, aliases and rank."""
    text = OWN.replace("acme\n", "anthropic\n").replace("acme-1", "claude-opus-5-5").replace("{source: contract, input: 1", "{source: contract, input: 3, cached_input: 0.15")  # fmt: skip
    count = len(find_prices(["all"]))
    written(home, text)
    found = only("opus-5.5")

    assert [row.input for row in found.rows] == [3]
    assert (found.rows[0].cached_input, found.rows[0].cache_write["5m"]) == (0.15, 3.75)
    assert found.caching.minimum == 512
    assert only("one") == found
    assert found in usual_prices()
    assert len(find_prices(["all"])) == count


def test_a_new_model_of_a_known_vendor_has_its_rule(home: Path) -> None:
    """A model that the built-in file does not have keeps the vendor's rule of caches."""
    written(home, OWN.replace("acme\n", "deepseek\n"))

    assert only("acme-1").caching.step == 64


def test_a_rule_of_the_users_own_wins(home: Path) -> None:
    """A rule in the user's file replaces the built-in one."""
    text = OWN.replace("acme\n", "deepseek\n").replace("models:", "caching: {source: contract, minimum: 7}\nmodels:")
    written(home, text)

    assert (only("acme-1").caching.minimum, only("acme-1").caching.step) == (7, None)
    assert only("deepseek-v4-pro").caching.minimum == 64


def test_one_more_file_wins_over_the_folder(home: Path, tmp_path: Path) -> None:
    """A file that is named wins over those in the folder."""
    written(home)
    extra = written(tmp_path, OWN.replace("input: 1,", "input: 2,"), "other.yml")

    assert find_prices(["acme-1"], extra)[0].rows[0].input == 2
    assert only("acme-1").rows[0].input == 1


def test_a_file_that_was_read_later_moves_no_day_but_its_own(home: Path) -> None:
    """One of March 2027 is in force as it says, and the promotions of 2026 of others stay."""
    written(home, OWN.replace("2026-11-01", "2027-03-01"))

    assert only("gemini-3.8-flash").rows[0].input == 0.75
    assert only("acme-1").rows[0].input == 1
    assert only("acme-1").rows[0].unknown_on is None


def test_an_older_source_of_other_prices_completes_nothing(home: Path) -> None:
    """Cached input of 0.1 belongs to an input of 1; it says nothing of a newer row with an input of 2."""
    text = OWN.replace("models:", '  old: {url: "https://acme.example/old", as_of: 2025-11-01}\nmodels:')
    for now, cached in ((1, 0.1), (2, None)):
        rows = f"{ROW.replace('input: 1', f'input: {now}')}\n      {ROW.replace('contract', 'old')[:-1]}, cached_input: 0.1}}"
        written(home, text.replace(ROW, rows))

        assert [row.cached_input for row in only("acme-1").rows] == [cached]


def test_the_same_model_in_two_files_is_refused(home: Path) -> None:
    """Two files of the folder must not price the same model: neither would be passed over in silence."""
    written(home)
    written(home, name="b.yaml")

    with pytest.raises(PriceFileError, match=r"acme/acme-1 is in acme\.yaml too; keep one"):
        find_prices(["all"])


def test_hidden_and_other_files_are_passed_over(home: Path) -> None:
    """An editor's own files and texts are not read."""
    written(home, "{", ".hidden.yaml")
    written(home, "{", "notes.txt")

    assert {prices.vendor for prices in find_prices(["all"])} == {path.stem for path in FILES}


def test_a_folder_that_is_a_file(home: Path) -> None:
    """A folder that cannot be listed is one line."""
    home.rmdir()
    home.write_text("")

    with pytest.raises(PriceFileError, match="it must be a folder"):
        find_prices(["all"])


def test_no_folder_is_no_error(home: Path) -> None:
    """Without a folder there are the built-in files."""
    home.rmdir()

    assert {prices.vendor for prices in find_prices(["all"])} == {path.stem for path in FILES}


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("input: 1", "input: -1", "models.1.prices.1.input: -1 is no price; write 0 to 100,000"),
        ("input: 1", "input: .nan", "nan is no price"),
        ("input: 1", "input: .inf", "inf is no price"),
        ("input: 1", "input: 1e9", "1e9' is no number"),
        ("input: 1", "input: 1.0e+9", "1000000000.0 is no price"),
        ("input: 1", "input: true", "'True' is no number; write US dollars for a million tokens"),
        ("input: 1", "input: '1'", "'1' is no number"),
        ("input: 1", "input: 1:30", "line 11: 1:30 is no plain number; write it as 2.5"),
        ("input: 1", "input: 010", "line 11: 010 is no plain number"),
        ("input: 1, ", "", "models.1.prices.1.input is missing"),
        ("input: 1", "inptu: 2, input: 1", "models.1.prices.1.inptu is not a field"),
        ("vendor: acme", "vendor: Acme Inc", "vendor is 'Acme Inc'; it should match pattern"),
        ("roofcast.prices/1", "roofcast.prices/9", "schema is 'roofcast.prices/9'; it should be 'roofcast.prices/1'"),
        ("https://acme.example/prices", "ftp://acme.example", "sources.contract.url is 'ftp://acme.example'"),
        ("2026-11-01", "2026-13", "sources.contract.as_of: month must be in 1..12"),
        ("2026-11-01", "last week", "sources.contract.as_of: 'last week' is no date; write 2026-11-15, 2026-11 or"),
        ("2026-11-01", "1826-11-01", "1826-11-01 is no date of a price; write a year from 2000 to 2100"),
        ("source: contract", "source: other", "source 'other' is not among sources: contract"),
        ("input: 1", "from_date: 2026-13-01, input: 1", "not readable as YAML: month must be in 1..12"),
        ("input: 1", "from_date: 1, input: 1", "'1' is no date; write it as 2026-07-30"),
        ("input: 1", "from_date: 2026-02-01, to_date: 2026-02-01, input: 1", "from_date 2026-02-01 is not before"),
        ("input: 1", "up_to: 5, above: 5, input: 1", "up_to 5 is not more than above 5"),
        ("input: 1", "above: 5, input: 1", "acme-1: no tier is of 1 to 5 tokens"),
        ("input: 1", "up_to: 200k, input: 1", "models.1.prices.1.up_to is '200k'; it should be a valid integer"),
        ("input: 1", "peak: true, input: 1", "acme-1: rows of peak hours need rows of all others beside them"),
        ("input: 1", "cache_write: {5min: 1}, input: 1", "cache_write.5min"),
        (ROW, f"{ROW}\n      {ROW}", "acme-1: tiers overlap above 0 tokens"),
        (ROW, f"{ROW[:-1]}, up_to: 9}}\n      {ROW[:-1]}, above: 8}}", "acme-1: tiers overlap above 8 tokens"),
        (ROW, f"{ROW[:-1]}, up_to: 9}}\n      {ROW[:-1]}, above: 10}}", "acme-1: no tier is of 10 to 10 tokens"),
        (ROW, f"{ROW[:-1]}, peak: true}}\n      {ROW[:-1]}, peak: false}}", "acme-1 has rows of peak hours; say when"),
        ("    prices:", "    hours: {spans: ['1-4']}\n    prices:", "'1-4' is no span of a day; write it as 01:00-04:00"),
        ("    prices:", "    hours: {spans: ['01:00-04:00', '03:00-05:00']}\n    prices:", "spans overlap"),
        ("name: Acme One", "name: Acme One\n    name: Two", "'name' is given twice, again in line 9"),
        ("name: Acme One", "name: &a Acme One", "models has an anchor (&) or an alias (*); write the value out"),
        ("name: Acme One", "name: !!python/object:os.system x", "models has a tag"),
        ("aliases: [one]", "aliases: [one, one]", "models.1.aliases: the same stands twice"),
        ("models:\n", "models: []\nmore:\n", "models is []; it should have at least 1 item"),
    ],
)  # fmt: skip
def test_bad_files(home: Path, old: str, new: str, said: str) -> None:
    """What is wrong is said in one line that names the file, the field and what is right."""
    assert old in OWN

    assert said in refused(written(home, OWN.replace(old, new, 1)))


def test_the_same_id_twice(home: Path) -> None:
    """A model is given once, with all its rows."""
    text = OWN + OWN[OWN.index("  - id") :]

    assert "acme-1 stands twice" in refused(written(home, text))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty; it must map fields such as schema, vendor, name, sources, models to values"),
        (b"[1, 2]", "is a list; it must map fields"),
        (b"\xff\xfe\x00", "not UTF-8 text"),
        (b"a: [", "not readable as YAML"),
        (b"#" * 10_000_000, "is larger than 1 MB"),
        (b"a: " + b"[" * 20 + b"]" * 20, "a is nested too deeply"),
        (b"a: " + b"[" * 100_000, "not readable as YAML"),
        (b"a: &a [1]\nb: [*a, *a]\n", "a has an anchor (&) or an alias (*)"),
    ],
)
def test_files_that_are_none(home: Path, content: bytes, said: str) -> None:
    """What is no mapping of fields, too large, or made to break its reader, is one line."""
    path = home / "bad.yaml"
    path.write_bytes(content)

    assert said in refused(path)


def test_a_file_that_is_not_there(home: Path) -> None:
    """A file that is named and absent is one line."""
    assert "cannot be read" in refused(home / "absent.yaml")


def test_a_field_left_empty_is_as_one_left_out(home: Path) -> None:
    """`cached_input:` without a value is no price."""
    [offer] = read_price_file(written(home, OWN.replace("input: 1,", "input: 1, cached_input: , to_date: ,")))

    assert (offer.rows[0].cached_input, offer.rows[0].to_date) == (None, None)


def test_beyond_the_last_tier_there_is_no_price(home: Path) -> None:
    """A list whose tiers end has no price of longer prompts, and says how long they may be."""
    text = OWN.replace("input: 1,", "up_to: 100000, input: 1,")
    [found] = find_prices(["acme-1"], written(home, text, "x.txt"))

    with pytest.raises(UnknownPriceError, match="no price of a prompt of 100,001 tokens; at most 100,000"):
        found.row(100_001)
