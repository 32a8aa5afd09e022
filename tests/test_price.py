"""`roofcast price`: what its answers say, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest

from tests.running import answer, result, roofcast

ONE_K = ("--context", "1k", "--api", "none")
LLAMA = ("price", "llama-3.1-8b", "--gpu", "h100-sxm")
LISTS = """\
schema: roofcast.prices/1
vendor: acme
name: Acme
sources:
  contract: {url: "https://example.com/contract", as_of: 2026-11-01}
models:
  - id: large
    name: Large
    hours: {spans: ["01:00-04:00"], working_days: true}
    prices:
      - {source: contract, peak: false, input: 1.00, cached_input: 0.10, output: 4.00}
      - {source: contract, peak: true, input: 2.00, cached_input: 0.20, output: 8.00}
"""


@pytest.fixture
def acme(tmp_path: Any) -> str:
    """Return a file of prices that are easily reckoned with."""
    file = tmp_path / "acme.yaml"
    file.write_text(LISTS)
    return str(file)


def by(row: dict[str, Any], basis: str) -> dict[str, Any]:
    """Return the costs of a load by a basis."""
    return next(cost for cost in row["costs"] if cost["basis"] == basis)


def test_the_ratio_falls_with_the_load_as_the_roofline_has_it() -> None:
    """Llama 3.1 8B on an H100 at 1k context: 12.5, 7.7, 5.2 and 4.0 by the bound; what to expect is beside it."""
    rows = result(*LLAMA, *ONE_K, "--batch", "32,64,128,256")["loads"]
    bounds = [by(row, "bound")["output_over_input"] for row in rows]
    expected = [by(row, "expected")["output_over_input"] for row in rows]

    assert bounds == pytest.approx([12.5, 7.7, 5.2, 4.0], abs=0.05)
    assert expected == sorted(expected, reverse=True)
    assert all(2 < ratio < 13 for ratio in expected)


def test_costs_are_gpu_seconds_by_the_price_of_a_gpu() -> None:
    """At 3.60 dollars an hour a GPU-second is a tenth of a cent, on 8 GPUs as on one."""
    [row] = result("price", "llama-3.1-70b", "--gpu", "h100-sxm", "--tp", "8", *ONE_K, "--batch", "16", "--gpu-price", "3.60")["loads"]  # fmt: skip

    for cost in row["costs"]:
        assert cost["input_dollars"] == pytest.approx(cost["input_gpu_seconds"] * 0.001)
        assert cost["output_dollars"] == pytest.approx(cost["output_gpu_seconds"] * 0.001)
        made = (1024 * cost["input_dollars"] + 256 * cost["output_dollars"]) / 1e6
        assert cost["request_dollars"] == pytest.approx(made)
        assert cost["blended_dollars"] == pytest.approx(made / 1280 * 1e6)


def test_without_a_price_there_are_no_dollars() -> None:
    """Ratios and GPU-seconds stay; nothing is guessed."""
    data = answer(*LLAMA, *ONE_K, "--batch", "16")

    assert data["result"]["hourly"] is None
    assert by(data["result"]["loads"][0], "expected")["output_dollars"] is None
    assert by(data["result"]["loads"][0], "expected")["output_gpu_seconds"] > 0


def test_the_day_of_a_provider_closes() -> None:
    """608e9 tokens read, 56.3 % of them cached, 168e9 made; 226.75 nodes of 8 GPUs at 2 dollars an hour."""
    [day] = result(
        "price", "--api", "deepseek-reasoner", "--date", "2025-02-28", "--input-tokens", "608e9", "--prefix-hit", "56.3%",
        "--output-tokens", "168e9", "--gpus", "1814", "--gpu-price", "2",
    )["days"]  # fmt: skip

    assert day["cost_dollars"] == 226.75 * 8 * 2 * 24 == 87_072
    assert day["income_dollars"] == pytest.approx(562e3, rel=1e-3)
    assert day["output_dollars"] == pytest.approx(168e3 * 2.19)
    assert day["margin"] == pytest.approx(5.45, abs=0.01)


@pytest.mark.parametrize(("hours", "dollars"), [("off-peak", 1400), ("peak", 2800), ("2026-11-16T02:30", 2800)])
def test_a_day_is_priced_at_the_hours_that_are_asked(acme: str, hours: str, dollars: float) -> None:
    """A billion tokens in and 100 million out, at 1 and 4 dollars or at twice as much."""
    [day] = result(
        "price", "--prices", acme, "--api", "large", "--input-tokens", "1e9", "--output-tokens", "1e8", "--hours", hours
    )["days"]

    assert day["income_dollars"] == pytest.approx(dollars)
    assert day["hours"] == ("off-peak" if hours == "off-peak" else "peak")


def test_idle_hours_make_the_busy_ones_busier(acme: str) -> None:
    """A machine that has its load a tenth of the time must do ten times the mean then."""
    asked = (*LLAMA, "--mix", "1000:100", "--batch", "64", "--gpu-price", "3.60", "--prices", acme, "--api", "large")
    [always], [seldom] = (result(*asked, "--utilisation", share)["api_costs"] for share in ("100%", "10%"))

    assert seldom["own_request_dollars"] == pytest.approx(10 * always["own_request_dollars"])
    assert seldom["break_even_requests_per_second"] == always["break_even_requests_per_second"]
    assert seldom["break_even_batch"] > always["break_even_batch"]
    assert result(*asked, "--utilisation", "1%")["api_costs"][0]["reachable"] is False


def test_a_stated_context_does_not_make_requests_shorter() -> None:
    """Whatever decode attends to, a request needs room for its prompt and all of its output."""
    rows = result(*LLAMA, "--context", "1k", "--output", "4k", "--batch", "60,100,513", "--api", "none")["loads"]

    assert [row["fits"] for row in rows] == [True, True, False]


def test_the_break_even_load_costs_as_much_as_the_api(acme: str) -> None:
    """A request of 1,000 and 100 tokens is 0.14 cents there; an hour of 3.60 dollars is 2,571 of them."""
    found = result(
        *LLAMA, "--mix", "1000:100", "--batch", "64", "--gpu-price", "3.60", "--prices", acme, "--api", "large"
    )
    [cost] = found["api_costs"]
    [load] = found["workloads"]

    assert cost["request_dollars"] == pytest.approx(0.0014)
    assert cost["break_even_requests_per_second"] == pytest.approx(0.001 / 0.0014)
    assert cost["break_even_tokens_per_day"] == pytest.approx(0.001 / 0.0014 * 1100 * 86400)
    assert cost["reachable"] is True
    assert cost["own_request_dollars"] == pytest.approx(0.001 / load["requests_per_second"])
    assert cost["break_even_dollars_per_gpu_hour"] == pytest.approx(0.0014 * load["requests_per_second"] * 3600)


def test_a_load_that_the_deployment_does_not_do_is_not_reachable(acme: str) -> None:
    """A GPU for 10,000 dollars an hour would need more requests than it does."""
    [cost] = result(
        *LLAMA, "--mix", "1000:100", "--batch", "64", "--gpu-price", "10000", "--prices", acme, "--api", "large"
    )["api_costs"]

    assert cost["reachable"] is False
    assert cost["break_even_batch"] is None


@pytest.mark.parametrize(
    ("hours", "dollars"),
    [
        (None, 0.0014),
        ("off-peak", 0.0014),
        ("peak", 0.0028),
        ("2026-11-16T02:30", 0.0028),  # a Monday
        ("2026-11-16T04:00", 0.0014),
        ("2026-11-15T02:30", 0.0014),  # a Sunday
        ("2026-11-16T03:30+01:00", 0.0028),  # 02:30 in UTC
    ],
)
def test_peak_hours_have_their_own_prices(acme: str, hours: str | None, dollars: float) -> None:
    """1,000 tokens in and 100 out, at 1 and 4 dollars or at twice as much."""
    asked = ("--hours", hours) if hours else ()
    [cost] = result("price", "--mix", "1000:100", "--prices", acme, "--api", "large", *asked)["api_costs"]

    assert cost["request_dollars"] == pytest.approx(dollars)


def test_a_prefix_is_found_by_the_share_of_requests_that_hit(acme: str) -> None:
    """800 of 1,000 tokens, 90 % of requests: 720 cached, 280 read, the misses' too; writing costs what input does."""
    [cost] = result(
        "price", "--mix", "1000:100", "--shared-prefix", "800", "--hit-rate", "90%", "--prices", acme, "--api", "large"
    )["api_costs"]

    assert cost["request_dollars"] == pytest.approx((280 * 1.00 + 720 * 0.10 + 100 * 4.00) / 1e6)


def test_what_is_written_and_kept_pays_from_some_hits_on() -> None:
    """2 x input for an hour: 5 / 4.5 hits; 4.50 dollars a million tokens and hour over 1.25 - 0.125: 4 requests an hour."""
    costs = result(
        "price", "--mix", "10000:100", "--shared-prefix", "8000", "--cache-write", "1h", "--rate", "8/h", "--kept", "1h",
        "--api", "claude-opus-5,gemini-2.5-pro",
    )["api_costs"]  # fmt: skip
    notes = [note for cost in costs for note in cost["notes"]]
    [storage] = [term for cost in costs for term in cost["terms"] if term["term"] == "storage"]

    assert "a prefix that is written for 1h pays from 2 hits on" in notes
    assert "a prefix that is kept pays from 4 requests an hour on" in notes
    assert storage["dollars"] == pytest.approx(8000 * 4.50e-6 / 8)


def test_prices_alone_have_their_sources_and_dates() -> None:
    """Every row of every provider says where it was read and when."""
    rows = result("price", "--api", "all")["apis"]

    assert len(rows) > 100
    assert all(row["source"].startswith("http") and row["as_of"] for row in rows)
    assert {row["above_tokens"] for row in rows} >= {200_000, 272_000}
    assert any(row["cache_write_over_input"] == {"5m": 1.25, "1h": 2.0} for row in rows)
    assert any(row["storage_dollars"] for row in rows)


def test_a_mix_whose_longer_kind_would_not_fit_alone_is_priced(acme: str) -> None:
    """330 requests at once, half of 1,010 and half of 2,010 tokens, with every question that is asked of a load."""
    found = result(
        *LLAMA, "--mix", "1000:10,2000:10", "--batch", "330", "--gpu-price", "2", "--ratio", "5", "--rate", "3",
        "--prices", acme, "--api", "large",
    )  # fmt: skip

    assert [row["fits"] for row in found["loads"]] == [True, True]
    assert found["workloads"][0]["requests_per_second"] > 0
    assert found["rates"][0]["reachable"] is True


def test_what_fits_at_no_load_is_an_answer() -> None:
    """70 billion parameters in 16 bits on one H100: exit 0, rows with their reason, in CSV too."""
    asked = ("price", "llama-3.1-70b", "--gpu", "h100-sxm", "--ratio", "5", "--rate", "3", "--api", "none")
    text, lines = roofcast(*asked), roofcast(*asked, "--format", "csv").out.splitlines()

    assert text.code == 0
    assert "at no load: not one request fits" in text.out
    assert "not one request fits, and none is done a second" in text.out
    assert len(lines) == 4
    assert all("the GPU offers" in line for line in lines[1:])


def test_an_engines_own_budget_decides_what_fits() -> None:
    """As many requests of 1,280 tokens as `fit` says of vLLM fit, one more does not; without an engine more do."""
    machine = ("llama-3.1-70b", "--gpu", "h100-sxm", "--tp", "4")
    engine = ("--engine", "vllm", "--max-model-len", "1280", "--context", "1280")
    room = result("fit", *machine, *engine)["contexts"][0]["max_sequences"]
    asked = ("price", *machine, "--batch", f"{room},{room + 1}", "--api", "none")
    served = result(*asked, "--engine", "vllm")

    assert 350 < room < 400
    assert [row["fits"] for row in served["loads"]] == [True, False]
    assert [row["fits"] for row in result(*asked)["loads"]] == [True, True]
    assert [row["context"] for row in served["lengths"]] == [1024, 4096, 32768, 131072]


def test_one_load_does_not_decide_what_another_fits() -> None:
    """Each load has a server of its own: longer requests, or more of them, change nothing for the others."""
    asked = ("price", "qwen2.5-7b", "--gpu", "rtx-4090", "--engine", "vllm", "--api", "none")
    both = result(*asked, "--context", "1k,126k", "--batch", "16")["loads"]
    many = result(*asked, "--context", "1k", "--batch", "16,5000")["loads"]

    assert [row["fits"] for row in both] == [True, False]
    assert [row["fits"] for row in many] == [True, False]
    assert both[0]["costs"] == many[0]["costs"]


def test_a_day_before_all_prices_has_none() -> None:
    """Lists leave out what was read later: nothing is left of 2024, which is said and not shown as an empty page."""
    for api in ((), ("--api", "all"), ("--api", "google")):
        outcome = roofcast("price", "--date", "2024-01-01", *api)
        assert outcome.code == 2
        assert "2024-01-01" in outcome.complaint or "read later" in outcome.complaint
        assert "0001" not in outcome.complaint
    assert (
        "no prices of APIs are known to have been in force on 2024-01-01"
        in roofcast(*LLAMA, "--date", "2024-01-01").out
    )


def test_prices_of_a_day_before_they_were_read_are_assumed() -> None:
    """Nobody had read them, so that --strict refuses them."""
    asked = ("price", "--api", "claude-opus-5", "--date", "2024-01-01")

    assert "claude-opus-5: prices of 2024-01-01 are taken as those read later" in answer(*asked)["assumptions"][0]
    assert roofcast(*asked, "--strict").code == 3
    assert answer("price", "--api", "claude-opus-5")["assumptions"] == []


def test_csv_has_a_row_a_load_and_basis() -> None:
    """Bound, expected and both ends of the interval of two loads."""
    lines = roofcast(*LLAMA, *ONE_K, "--batch", "1,2", "--format", "csv").out.splitlines()

    assert len(lines) == 1 + 2 * 4
    assert lines[0].startswith("model,gpu,workload,")


def test_what_does_not_fit_is_said_and_has_no_cost() -> None:
    """Exit 0: that it does not fit is the answer."""
    outcome = roofcast(*LLAMA, "--context", "128k", "--batch", "1,100", "--api", "none")

    assert outcome.code == 0
    assert "not every load fits" in outcome.out
    assert "131072:256, 100 at once: the GPU offers 85.0 GB" in outcome.out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((*LLAMA, "--gpu-price", "-1"), "--gpu-price -1: it must be US dollars, 0 or more, such as 2.50"),
        ((*LLAMA, "--gpu-price", "nan"), "--gpu-price nan: it must be US dollars"),
        ((*LLAMA, "--gpu-price", "1e99"), "--gpu-price 1e99: it must be US dollars"),
        ((*LLAMA, "--gpu-price", "2", "--gpu-cost", "3"), "give one of them"),
        ((*LLAMA, "--years", "3"), "--years is what --gpu-cost is written off over"),
        ((*LLAMA, "--gpu-cost", "30000", "--years", "0"), "--years 0: it must be from 0.1 to 50"),
        ((*LLAMA, "--gpu-price", "2", "--pue", "1.2"), "give --power-price too"),
        ((*LLAMA, "--power-price", "0.1"), "--power-price alone is no machine's price"),
        ((*LLAMA, "--gpu-price", "2", "--utilisation", "0%"), "--utilisation 0%"),
        ((*LLAMA, "--rate", "5", "--gpu-price", "2", "--utilisation", "50%"), "leave --utilisation out"),
        ((*LLAMA, "--mix", "1000"), "--mix 1000: '1000' is no PROMPT:OUTPUT"),
        ((*LLAMA, "--mix", "1000:100x0"), "has no requests"),
        ((*LLAMA, "--mix", "1000:100", "--prompt", "1k"), "leave --prompt, --output and --context out"),
        ((*LLAMA, "--hit-rate", "50%"), "--hit-rate is of the requests that share --shared-prefix tokens"),
        ((*LLAMA, "--shared-prefix", "2k"), "--shared-prefix 2,048: it must be less than the prompt, 1,024 tokens"),
        ((*LLAMA, "--prefix-hit", "50%", "--shared-prefix", "8"), "give it, or --shared-prefix and --hit-rate"),
        ((*LLAMA, "--rate", "0"), "--rate 0: it must be requests a second above 0"),
        ((*LLAMA, "--ratio", "-5"), "--ratio -5: it must be from 0.01"),
        ((*LLAMA, "--ratio", "nan"), "--ratio nan: it must be from 0.01"),
        ((*LLAMA, "--api", "gpt-9000"), "gpt-9000"),
        ((*LLAMA, "--date", "yesterday"), "--date yesterday: it must be a day, such as 2026-11-15"),
        ((*LLAMA, "--hours", "noon"), "--hours noon: it must be peak, off-peak or a time in UTC"),
        ((*LLAMA, "--cache-write", "soon"), "--cache-write soon: it must be a lifetime, such as 5m or 1h"),
        ((*LLAMA, "--kept", "1h"), "give --rate too"),
        ((*LLAMA, "--prices", "/none/at/all.yaml"), "/none/at/all.yaml: cannot be read"),
        (("price", "llama-3.1-8b", "--gpu", "h1"), "h1"),
        ((*LLAMA, "--gpu-price", "2,50"), "--gpu-price 2,50: it must be US dollars"),
        ((*LLAMA, "--rate", "1,5"), "--rate 1,5: it must be requests a second"),
        ((*LLAMA, "--utilisation", "50%"), "give --gpu-price or --gpu-cost too"),
        ((*LLAMA, "--prefix-hit", ""), "--prefix-hit "),
        ((*LLAMA, "--hours", "0001-01-01T00:00+14:00"), "it must be peak, off-peak or a time in UTC"),
        ((*LLAMA, "--input-tokens", "1e9", "--output-tokens", "1e9"), "leave MODEL out"),
        (("price", "--tp", "8"), "--tp is of a deployment"),
        (("price", "--engine", "vllm"), "--engine is of a deployment"),
        (("price", "--rate", "5"), "--rate is of a deployment"),
        (("price", "--gpus", "8"), "--gpus is of a deployment"),
        (("price", "--api", "none"), "--api none without a MODEL asks nothing"),
        (("price", "--batch", "16"), "--batch is of a deployment; name its MODEL too"),
        (("price", "--gpu-price", "2"), "a price of GPUs is of a deployment"),
        (("price", "--input-tokens", "1e9"), "give both"),
        (
            ("price", "--input-tokens", "many", "--output-tokens", "1"),
            "--input-tokens many: it must be a number of tokens",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(arguments: tuple[str, ...], said: str) -> None:
    """Exit 2, naming the option and what would be right."""
    outcome = roofcast(*arguments)

    assert outcome.code == 2, outcome.out
    assert said in outcome.complaint


def test_an_unknown_model_cannot_be_answered() -> None:
    """Exit 3: a name that nothing goes by."""
    assert roofcast("price", "no-such-model", "--gpu", "h100-sxm").code == 3
