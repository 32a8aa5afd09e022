"""Rents of GPUs: every row has a source and a day, one rule says which counts, and a broken file is refused in one line."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from roofcast.cli.errors import BAD_INPUT, exit_code
from roofcast.hwdb.lookup import all_accelerators
from roofcast.hwdb.rents import (
    FOLDER,
    KINDS,
    Rent,
    RentFileError,
    UnknownProviderError,
    all_rents,
    in_order,
    providers,
    read_rent_file,
    rent_of,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

FILES: Final = sorted(FOLDER.glob("*.yaml"))
PAGE: Final = Path(__file__).parents[1] / "docs/rents.md"
STARTS, ENDS = "<!-- `make golden` writes this table. -->\n\n", "\n<!-- end of the table -->"
LOWEST, HIGHEST = 0.03, 30.0  # USD/h
OLD: Final = 18  # months
GOOD: Final = """\
schema: roofcast.rents/1
provider: acme
name: Acme
sources:
  page: {url: "https://acme.example/gpus", as_of: 2026-11}
rents:
  - {gpu: h100-sxm, kind: on-demand, price: 2.5, source: page}
"""


def rent(
    price: float, kind: str = "on-demand", as_of: str = "2026-10", provider: str = "Acme", *, second_hand: bool = True
) -> Rent:
    """What a provider asks for an H100."""
    return Rent("h100-sxm", price, provider, kind, as_of, "https://acme.example/gpus", second_hand)


def order(*rents: Rent) -> list[float]:
    """Prices in the order in which they count, which is the same whatever order they come in."""
    [found] = {tuple(one.price for one in in_order(way)) for way in permutations(rents)}
    return list(found)


# --- what is in the files


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_files_are_whole(path: Path) -> None:
    """Every file can be read, and every source of it is cited."""
    fields = yaml.safe_load(path.read_text(encoding="utf-8"))

    assert len(read_rent_file(path).rents) == len(fields["rents"])
    assert set(fields["sources"]) == {row["source"] for row in fields["rents"]}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_files_are_sorted(path: Path) -> None:
    """Rows stand by GPU and kind, sources by name, and a GPU and kind stand once: a newer price takes an older one's place."""
    fields = yaml.safe_load(path.read_text(encoding="utf-8"))
    rows = [(row["gpu"], list(KINDS).index(row["kind"])) for row in fields["rents"]]

    assert rows == sorted(set(rows))
    assert list(fields["sources"]) == sorted(fields["sources"])


def test_every_gpu_is_known() -> None:
    """A rent is of an accelerator of hwdb/accelerators, and of one that is no phone, Mac or TPU."""
    known = {one.id for one in all_accelerators().accelerators}

    assert set(all_rents()) - known == set()


def test_prices_are_plausible() -> None:
    """No rent is below 3 cents or above 30 dollars an hour, and none of a data-centre GPU of 80 GB below 50 cents."""
    every = [one for rents in all_rents().values() for one in rents]
    big = ("a100-80gb", "h100", "h200", "b200", "b300", "gb", "mi3")

    assert [one for one in every if not LOWEST <= one.price <= HIGHEST] == []
    assert [one for one in every if one.gpu.startswith(big) and one.price < 0.5] == []


def test_every_rent_says_where_it_is_from_and_of_when() -> None:
    """Every row has an address, a date, a provider of the list and a kind of the list."""
    every = [one for rents in all_rents().values() for one in rents]

    assert [one for one in every if not one.url.startswith("https://")] == []
    assert [one for one in every if one.as_of[:2] != "20"] == []
    assert {one.provider for one in every} == set(providers())
    assert {one.kind for one in every} == set(KINDS)


def test_many_gpus_have_a_rent() -> None:
    """At least 32 types have one: data-centre, workstation and consumer cards, AMD's and Intel's."""
    found = set(all_rents())

    assert len(found) >= 32
    assert found >= {"h100-sxm", "l4", "t4", "rtx-4090", "rtx-a6000", "mi300x", "mi325x", "mi355x", "gaudi2", "gaudi3"}


@pytest.mark.parametrize(
    ("gpu", "provider", "price", "kind", "as_of"),
    [
        ("h100-sxm", "AWS", 6.88, "on-demand", "2026-10-10"),  # p5.48xlarge: 55.04 / 8
        ("mi300x", "azure", 6.0, "on-demand", "2026-10-10"),  # ND96isr_MI300X_v5: 48 / 8
        ("gb200", "CoreWeave", 10.5, "on-demand", "2026-09-20"),  # 42 / 4
        ("gaudi3", "intel tiber", 2.49, "on-demand", "2025-02"),  # 19.92 / 8
        ("v100-sxm2-32gb", "aws", 3.9015, "on-demand", "2026-08-26"),  # p3dn.24xlarge: 31.212 / 8
        ("rtx-4090", "RunPod", 0.69, "on-demand", "2026-05-24"),
        ("rtx-3090", "runpod", 0.22, "community", "2026-10-01"),
        ("a10g", "aws", 1.006, "on-demand", "2026-06-17"),
    ],
)
def test_rents_of_well_known_gpus(gpu: str, provider: str, price: float, kind: str, as_of: str) -> None:
    """What a provider asks first; whole instances are divided by their GPUs."""
    found = rent_of(gpu, provider)

    assert found is not None
    assert (found.price, found.kind, found.as_of) == (price, kind, as_of)


@pytest.mark.parametrize("gpu", sorted(all_rents()))
def test_divided_instances_say_so(gpu: str) -> None:
    """What AWS, Azure, Google or CoreWeave rents by the instance has its name, or its number of GPUs, in the note."""
    by_instance = [one for one in all_rents()[gpu] if one.provider in {"AWS", "Azure", "Google Cloud", "CoreWeave"}]

    assert [one for one in by_instance if one.note is None and one.gpu != "gh200-96gb"] == []


def test_what_quotes_a_provider_is_marked() -> None:
    """A collection of prices is second hand; Intel's own page is not. The note and the address are those of the row."""
    quoted, own = rent_of("a10g", "AWS"), rent_of("gaudi2", "Intel Tiber AI Cloud")

    assert quoted is not None
    assert own is not None
    assert (quoted.second_hand, own.second_hand) == (True, False)
    assert (quoted.note, own.note) == ("g5.xlarge, with 4 vCPUs", "whole machine of 8, divided")
    assert own.url.startswith("https://github.com/intel/gaudi-reference-cloud/")


# --- which one counts


def test_on_demand_counts_before_cheaper_kinds() -> None:
    """On-demand, then community, then spot and reserved alike by their price."""
    found = order(rent(4, "on-demand"), rent(3, "community"), rent(2, "spot"), rent(1, "reserved"))

    assert found == [4, 3, 1, 2]


def test_first_hand_counts_before_second_hand() -> None:
    """Of the same kind and of about the same time, what the provider says itself comes first."""
    assert order(rent(2), rent(3, second_hand=False)) == [3, 2]


def test_the_lower_price_counts_first() -> None:
    """Of the same kind and hand, the lower; of the same price, the newer."""
    newer, older = rent(2, as_of="2026-10", provider="B"), rent(2, as_of="2026-05", provider="A")

    assert order(rent(3), rent(2), rent(2.5)) == [2, 2.5, 3]
    assert in_order([older, newer])[0] is newer


@pytest.mark.parametrize(("as_of", "found"), [("2025-04", [1, 3]), ("2025-03", [3, 1]), ("2025 Q2", [1, 3])])
def test_an_old_price_counts_last(as_of: str, found: list[float]) -> None:
    """18 months before the newest of its kind are within the rule, 19 are not, even of the provider's own page."""
    assert order(rent(3, as_of="2026-10-10"), rent(1, as_of=as_of, second_hand=False)) == found


def test_old_is_measured_within_a_kind() -> None:
    """An old on-demand price still counts before a new one of spot."""
    assert order(rent(3, as_of="2024-01"), rent(1, "spot", "2026-10")) == [3, 1]


RENTS: Final = st.builds(
    rent,
    price=st.sampled_from([0.5, 1.0, 2.0, 4.0]),
    kind=st.sampled_from(list(KINDS)),
    as_of=st.sampled_from(["2024-02", "2025 Q1", "2025-12-31", "2026-06", "2026-10-10"]),
    second_hand=st.booleans(),
)


def months(found: Rent) -> int:
    """Of a rent's last month, counted from the first day of 2024; of a quarter its third month."""
    year, rest = found.as_of[:4], found.as_of[5:]
    return 12 * (int(year) - 2024) + (3 * int(rest[1]) if rest.startswith("Q") else int(rest[:2]))


@given(st.lists(RENTS, min_size=1, max_size=6))
@settings(deadline=None)
def test_the_default_is_beaten_by_none(rents: Sequence[Rent]) -> None:
    """Nothing of a better kind is there; and what is cheaper in its kind is old, or second hand where it is first hand."""
    first, *rest = found = in_order(rents)
    alike = [one for one in rest if KINDS[one.kind] == KINDS[first.kind]]
    newest = max(months(one) for one in (first, *alike))

    assert sorted(map(repr, found)) == sorted(map(repr, rents))
    assert KINDS[first.kind] == min(KINDS[one.kind] for one in rents)
    assert newest - months(first) <= OLD
    for one in alike:
        old = newest - months(one) > OLD
        assert old or one.price >= first.price or (one.second_hand and not first.second_hand)


# --- names of providers


def test_a_provider_goes_by_its_name_or_its_file_in_any_case() -> None:
    """Spaces, dots, dashes and capitals make no difference, and all rents are of that provider."""
    names = ("google-cloud", "Google Cloud", "GOOGLE CLOUD", "googlecloud")

    assert len({str(sorted(all_rents(name))) for name in names}) == 1
    assert {one.provider for rents in all_rents("vast").values() for one in rents} == {"Vast.ai"}


def test_an_unknown_provider_is_told_the_nearest_and_all() -> None:
    """One line names the nearest and every known one, and is bad usage."""
    with pytest.raises(UnknownProviderError) as caught:
        all_rents("lamda")

    assert str(caught.value).startswith("no rents of 'lamda'; nearest: Lambda; known: Akash, AWS, Azure, ")
    assert exit_code(caught.value) == BAD_INPUT


def test_a_name_like_none_is_told_all() -> None:
    """Without a nearest one the known ones alone are told."""
    with pytest.raises(UnknownProviderError, match=r"^no rents of 'qqq'; known: Akash, .*, Vultr$"):
        rent_of("h100-sxm", "qqq")


def test_a_gpu_without_a_rent_has_none() -> None:
    """None of such a GPU, nor of a GPU that this provider does not have."""
    assert rent_of("apple-m1-max") is None
    assert rent_of("gaudi3", "RunPod") is None


# --- files that are wrong


@pytest.mark.parametrize(
    ("was", "now", "said"),
    [
        ("price: 2.5", "prise: 2.5", "rents.1.price is missing; rents.1.prise is not a field"),
        ("price: 2.5", "price: cheap", "rents.1.price: 'cheap' is no number; write US dollars for one GPU and hour"),
        ("price: 2.5", "price: 0", "rents.1.price: 0 is no rent; write US dollars for one GPU and hour, up to 100"),
        ("price: 2.5", "price: 250", "rents.1.price: 250 is no rent"),
        ("price: 2.5", "price: true", "rents.1.price: 'True' is no number"),
        ("price: 2.5", "price: 2_5", "line 7: 2_5 is no plain number; write it as 2.5"),
        (
            "kind: on-demand",
            "kind: ondemand",
            "rents.1.kind: 'ondemand' is no kind of rent; write one of on-demand, comm",
        ),
        ("gpu: h100-sxm", "gpu: H100 SXM", "rents.1.gpu is 'H100 SXM'; it should"),
        ("source: page", "source: pages", "source 'pages' is not among sources: page"),
        (
            "as_of: 2026-11",
            "as_of: Nov 2026",
            "sources.page.as_of: 'Nov 2026' is no date; write 2026-11-15, 2026-11 or 2026 Q4",
        ),
        ("as_of: 2026-11", "as_of: 2026", "sources.page.as_of: '2026' is no date"),
        ('url: "https://acme.example/gpus"', "url: acme", "sources.page.url is 'acme'; it should"),
        ("roofcast.rents/1", "roofcast.rents/2", "schema is 'roofcast.rents/2'; it should be 'roofcast.rents/1'"),
        ("provider: acme", "provider: acne", "provider is 'acne'; it must be 'acme', the file's name"),
        ("name: Acme", "name: [", "not readable as YAML, line "),
        ("name: Acme\n", "", "name is missing"),
    ],
)
def test_a_broken_file_is_refused_in_one_line(tmp_path: Path, was: str, now: str, said: str) -> None:
    """The line names the file, the field with its row, and what would be right."""
    path = tmp_path / "acme.yaml"
    path.write_text(GOOD, encoding="utf-8")
    assert read_rent_file(path).rents[0] == Rent(
        "h100-sxm", 2.5, "Acme", "on-demand", "2026-11", "https://acme.example/gpus"
    )
    assert was in GOOD
    path.write_text(GOOD.replace(was, now), encoding="utf-8")

    with pytest.raises(RentFileError) as caught:
        read_rent_file(path)

    assert str(caught.value).startswith(f"{path}: ")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert exit_code(caught.value) == BAD_INPUT


def test_a_price_that_stands_twice_is_refused(tmp_path: Path) -> None:
    """A GPU has one price of a kind in one source."""
    path = tmp_path / "acme.yaml"
    path.write_text(GOOD + GOOD.splitlines()[-1].replace("2.5", "3") + "\n", encoding="utf-8")

    with pytest.raises(RentFileError, match="rents: h100-sxm stands twice as on-demand of page; keep one"):
        read_rent_file(path)


# --- the page


def table() -> str:
    """The default price of every GPU, as docs/rents.md has it."""
    heads = ("GPU", "USD/h", "provider", "kind", "as of", "note")
    lines = [f"| {' | '.join(heads)} |", "|---|---:|---|---|---|---|"]
    for gpu, (first, *_) in all_rents().items():
        cells = (gpu, f"{first.price:.4g}", first.provider, first.kind, first.as_of, first.note or "")
        lines.append(f"| {' | '.join(cells)} |".replace("|  |", "| |"))
    return "\n".join(lines) + "\n"


def test_the_page_of_rents_is_golden(*, update_golden: bool) -> None:
    """docs/rents.md has the default of every GPU; `make golden` rewrites its table."""
    page = PAGE.read_text(encoding="utf-8")
    before, rest = page.split(STARTS)
    _, after = rest.split(ENDS)
    made = f"{before}{STARTS}{table()}{ENDS}{after}"
    if update_golden:
        PAGE.write_text(made, encoding="utf-8")

    assert PAGE.read_text(encoding="utf-8") == made, "make golden"
