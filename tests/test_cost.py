"""What tokens cost: times of the deployment as worked by hand, and laws that hold of any of them."""

from __future__ import annotations

from functools import cache
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofcast.calculators.cost import (
    Load,
    Tariff,
    TokenTimes,
    electricity,
    load_times,
    request_seconds,
    request_times,
    token_costs,
)
from roofcast.calculators.deployment import Deployment, Ready, prepare
from roofcast.calculators.errors import UsageError
from roofcast.calculators.phases import Asked, answer_point, most_sequences
from roofcast.calculators.price import (
    Loads,
    Own,
    held_row,
    hourly_cost,
    length_rows,
    load_rows,
    rate_row,
    ratio_row,
    workload_row,
)
from roofcast.calculators.workload import Request, Workload
from roofcast.hwdb.lookup import find_accelerator
from roofcast.modelspec.formats import FORMATS
from roofcast.modelspec.sharding import Shards
from roofcast.modelspec.step import DECODE, PREFILL
from tests.checkpoints import catalogued
from tests.expecting import known

BOUND = "bound"
H100 = find_accelerator("h100-sxm").accelerator
PEAK, BANDWIDTH = 989.4e12, 3.35e12
LLAMA = 32 * (2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336)  # weights of all matrices in the layers
HEAD = 128256 * 4096
KIB_A_TOKEN = 131072  # B of the cache, 2 x 32 layers x 8 heads x 128 x 2 B
TOKENS = st.integers(1, 8192)


@cache
def llama() -> Ready:
    """Llama 3.1 8B on an H100, bounds alone."""
    return prepare(catalogued("llama-3.1-8b"), Deployment(H100, FORMATS["bf16"]))


@cache
def deepseek() -> Ready:
    """DeepSeek-V3 on 8 H200, with constants of expected times."""
    return known("deepseek-v3", "h200-sxm", "vllm", Shards(tp=8, ep=8))


def at_1k(batch: int) -> TokenTimes:
    """Times of the bound at 1k context."""
    return load_times(llama(), Load(Request(1024, 256), batch, context=1024)).times[BOUND]


def test_a_decoded_token_takes_its_share_of_weights_and_its_own_cache() -> None:
    """Bytes of the layers and the head, read once for all, and 128 KiB a token of context, over the bandwidth."""
    by_hand = (2 * (LLAMA + HEAD) / 64 + KIB_A_TOKEN * 1024) / BANDWIDTH

    assert at_1k(64).output == pytest.approx(by_hand, rel=0.002)


def test_a_token_of_a_prompt_takes_its_arithmetic() -> None:
    """Two FLOP a weight, and of causal attention 4 x 32 layers x 4096 wide x half the prompt, over the peak."""
    by_hand = (2 * LLAMA + 4 * 32 * 4096 * 512) / PEAK

    assert at_1k(64).input == pytest.approx(by_hand, rel=0.01)


@pytest.mark.parametrize(("batch", "ratio"), [(32, 12.5), (64, 7.7), (128, 5.2), (256, 4.0)])
def test_output_costs_several_times_what_input_does_and_less_the_larger_the_load(batch: int, ratio: float) -> None:
    """Llama 3.1 8B on an H100 at 1k context, by the bound."""
    made = at_1k(batch)

    assert made.output / made.input == pytest.approx(ratio, abs=0.05)


def test_a_request_takes_its_prefill_and_its_steps_and_nothing_else() -> None:
    """What its tokens take adds up to what the batch's steps take, over the batch."""
    request = Request(4096, 200, prefix=3072)
    times = load_times(llama(), Load(request, 16)).times[BOUND]
    prefill = answer_point(llama(), Asked(PREFILL, 16, 4096, cached=0.75)).bound
    step = answer_point(llama(), Asked(DECODE, 16, 4196)).bound

    assert prefill is not None
    assert step is not None
    assert request_seconds(times, request) == pytest.approx((prefill + 200 * step) / 16, rel=1e-9)


def test_a_cached_token_takes_the_attention_to_it_and_little_else() -> None:
    """Of half a prompt of 1,024: each of 512 tokens attends to 512 more, 4 x 32 x 4096 FLOP each, a cached token's 512."""
    by_hand = 4 * 32 * 4096 * 512 / PEAK

    assert at_1k(64).cached == pytest.approx(by_hand, rel=0.25)  # the cache is read too, and attention's own bound
    assert at_1k(64).cached < 0.03 * at_1k(64).input


@pytest.mark.parametrize(
    "request_", [Request(1000, 100), Request(1000, 100, 800, 0.5), Request(1000, 100, 800), Request(64, 9)]
)
def test_a_requests_time_is_that_of_its_tokens(request_: Request) -> None:
    """What is reckoned for the request as a whole is what its tokens take, with expected times too."""
    for ready in (llama(), deepseek()):
        load = Load(request_, 24)
        tokens = load_times(ready, load).times

        assert request_times(ready, load) == pytest.approx(
            {basis: request_seconds(times, request_) for basis, times in tokens.items()}, rel=1e-9
        )


def test_a_mix_is_timed_where_only_one_of_its_kinds_would_fit() -> None:
    """330 sequences of 2,010 tokens do not fit, 330 of which half are of 1,010 do: both kinds have their times."""
    mix = Workload("mix", (Request(1000, 10), Request(2000, 10)))
    rows = load_rows(Loads(Own(llama(), (330,)), mix))

    assert load_times(llama(), Load(Request(2000, 10), 330)).times == {}
    assert [row.fits for row in rows] == [True, True]
    assert all(row.costs for row in rows)


def test_requests_that_miss_the_cache_pay_whole_prompts() -> None:
    """A hit rate of a half takes the mean of a prefill with the prefix cached and of one without."""
    hit, half, miss = (
        request_seconds(load_times(llama(), Load(one, 8, 1100)).times[BOUND], one)
        for one in (
            Request(1000, 100, 800, 1.0),
            Request(1000, 100, 800, 0.5),
            Request(1000, 100, 800, 0.0),
        )
    )

    assert half == pytest.approx((hit + miss) / 2, rel=1e-9)
    assert miss > hit
    assert miss == pytest.approx(
        request_seconds(load_times(llama(), Load(Request(1000, 100), 8, 1100)).times[BOUND], Request(1000, 100)),
        rel=1e-9,
    )


def test_what_does_not_fit_has_no_times() -> None:
    """A thousand sequences of 100,000 tokens are refused with what they would take."""
    made = load_times(llama(), Load(Request(100_000, 100), 1000))

    assert made.times == {}
    assert "offers 85.0 GB" in made.reason


def test_expected_costs_are_never_below_the_bound() -> None:
    """And the interval stands around them."""
    for batch in (1, 64, 256):
        times = load_times(deepseek(), Load(Request(1024, 256), batch, 1024)).times

        assert times["bound"].output <= times["low"].output <= times["expected"].output <= times["high"].output
        assert times["bound"].input <= times["low"].input <= times["expected"].input <= times["high"].input


def test_costs_are_times_by_the_price_of_the_machine() -> None:
    """At 7.20 dollars an hour a second is 0.2 cents: 1,000 tokens of 10 us, 100 of 50 us."""
    made = token_costs(TokenTimes(10e-6, 1e-6, 50e-6), Request(1000, 100), 0.002)

    assert made.request == pytest.approx((0.010 + 0.005) * 0.002)
    assert made.blended == pytest.approx(made.request / 1100 * 1e6)


@given(st.integers(1, 400), st.integers(512, 8192), st.integers(1, 2000))
def test_the_ratio_falls_with_the_load(batch: int, prompt: int, output: int) -> None:
    """Twice the sequences share the weights of a step, while prompts beyond the ridge are bound by compute already."""
    one, two = (
        load_times(llama(), Load(Request(prompt, output), count, 64)).times.get(BOUND) for count in (batch, 2 * batch)
    )

    if one and two:
        assert two.output / two.input <= one.output / one.input * 1.001  # the head of each prompt is shared too


@given(TOKENS, TOKENS, st.floats(0.01, 100), st.floats(1.0, 10.0))
def test_cost_is_proportional_to_the_price(prompt: int, output: int, price: float, times: float) -> None:
    """A GPU that costs x times as much makes tokens x times as dear."""
    spent, request = TokenTimes(1e-5, 1e-6, 1e-4), Request(prompt, output)
    one, more = (token_costs(spent, request, dollars) for dollars in (price, price * times))

    assert more.request == pytest.approx(one.request * times)
    assert min(one.input, one.output) <= one.blended * (1 + 1e-12)
    assert one.blended <= max(one.input, one.output) * (1 + 1e-12)


def test_the_load_that_gives_a_ratio_is_the_least() -> None:
    """Output costs at most 5 times input there, and more with one sequence less."""
    workload = Workload("1k", (Request(1024, 256),), 1024)
    row = ratio_row(Loads(Own(llama(), (64,)), workload), 5.0, BOUND)

    assert row.batch is not None
    assert (
        at_1k(row.batch).output / at_1k(row.batch).input <= 5 < at_1k(row.batch - 1).output / at_1k(row.batch - 1).input
    )
    assert 128 < row.batch < 256


def test_a_ratio_that_no_load_gives_says_what_is_reached() -> None:
    """At 128k tokens each sequence's own cache costs more than 5 times what a token of the prompt does."""
    workload = Workload("128k", (Request(131072, 256),), 131072)
    row = ratio_row(Loads(Own(llama(), (1,)), workload), 0.5, BOUND)

    assert row.batch is None
    assert row.reached is not None
    assert row.reached > 0.5
    assert row.largest == most_sequences(llama(), 131072)


def test_a_mix_takes_the_mean_of_its_kinds() -> None:
    """Three requests of one kind and one of another."""
    kinds = Request(1000, 100, weight=3), Request(100, 1000)
    mix = Workload("mix", kinds)
    row = workload_row(Loads(Own(llama(), (32,)), mix), 32)
    each = [request_seconds(load_times(llama(), Load(one, 32, reserved=mix.held)).times[BOUND], one) for one in kinds]

    assert row.requests_per_second == pytest.approx(4 / (3 * each[0] + each[1]))
    assert row.tokens_per_second == pytest.approx(1100 * 4 / (3 * each[0] + each[1]))


def test_a_mix_with_more_output_costs_more_a_request() -> None:
    """1,000 tokens in and 100 out against 100 in and 1,000 out: decode is what costs."""
    own = Own(llama(), (64,))
    reading, writing = (Loads(own, Workload("w", (Request(*one),))).rate(64) for one in ((1000, 100), (100, 1000)))

    assert reading > 3 * writing


def test_rent_and_write_off_and_power_make_the_hour() -> None:
    """8 GPUs at 2 dollars; 35,064 dollars over 4 years are a dollar an hour, 700 W at 0.1 dollars with PUE 1.3 0.091."""
    rented = hourly_cost(Tariff(gpu_price=2.0), H100, 8)
    owned = hourly_cost(Tariff(gpu_cost=35_064, years=4, power_price=0.1, pue=1.3, utilisation=0.5), H100, 8)

    assert rented is not None
    assert rented.dollars_per_hour == 16.0
    assert owned is not None
    assert owned.dollars_per_hour == pytest.approx(8 * 1.091)
    assert owned.dollars_per_busy_hour == pytest.approx(16 * 1.091)
    assert electricity(700, 0.1, 1.3) == pytest.approx(0.091)
    assert hourly_cost(Tariff(), H100, 8) is None


def test_power_of_an_unknown_machine_is_refused() -> None:
    """Without a TDP electricity has no price."""
    with pytest.raises(UsageError, match="TDP of h100-sxm is not known"):
        hourly_cost(Tariff(gpu_price=2.0, power_price=0.1), H100.model_copy(update={"tdp": None}), 1)


def test_costs_of_a_load_by_hand() -> None:
    """GPU-seconds are those of all GPUs; dollars are seconds by the hour's price; energy is the TDP by the time."""
    hourly = hourly_cost(Tariff(gpu_price=3.6), H100, 1)
    (row,) = load_rows(Loads(Own(llama(), (64,), hourly=hourly), Workload("1k", (Request(1024, 256),), 1024)))
    cost = row.costs[0]

    assert cost.output_gpu_seconds == pytest.approx(at_1k(64).output * 1e6)
    assert cost.output_dollars == pytest.approx(at_1k(64).output * 1e6 * 0.001)
    assert cost.output_joules_per_token == pytest.approx(at_1k(64).output * 700)


def test_all_of_the_hour_is_paid_however_few_requests_come() -> None:
    """One request a second at 3.60 dollars an hour costs a tenth of a cent, two half of that."""
    hourly = hourly_cost(Tariff(gpu_price=3.6), H100, 1)
    loads = Loads(Own(llama(), (64,), hourly=hourly), Workload("w", (Request(1000, 100),)))
    one, two = (rate_row(loads, rate) for rate in (1.0, 2.0))

    assert one.request_dollars == pytest.approx(0.001)
    assert two.request_dollars == pytest.approx(0.0005)
    assert one.batch is not None
    assert loads.rate(one.batch) >= 1
    ten = rate_row(loads, 10.0).batch
    assert ten is not None
    assert loads.rate(ten) >= 10 > loads.rate(ten - 1)
    assert rate_row(loads, 1e6).reachable is False


def test_what_keeping_tokens_costs_is_the_hour_over_what_fits() -> None:
    """Of the memory that CUDA sees, what the weights leave, in tokens of 128 KiB."""
    hourly = hourly_cost(Tariff(gpu_price=2.0), H100, 1)
    held = held_row(Own(llama(), (1,), hourly=hourly), 1024)

    assert held is not None
    assert held.bytes_per_token == KIB_A_TOKEN
    assert held.tokens == most_sequences(llama(), 1024) * 1024
    assert held.dollars == pytest.approx(2.0 / held.tokens * 1e6)


def test_length_makes_prompts_dearer_and_crowds_sequences_out() -> None:
    """Each longer context costs more a token, of prompts and of output, and no more sequences fit."""
    rows = length_rows(Own(llama(), (64,)), [1024, 32768, 131072])

    assert [row.context for row in rows] == [1024, 32768, 131072]
    for short, long in pairwise(rows):
        assert long.input_gpu_seconds > short.input_gpu_seconds
        assert long.output_gpu_seconds > short.output_gpu_seconds
        assert long.batch <= short.batch
    assert rows[-1].batch == min(64, most_sequences(llama(), 131072))
    assert rows[-1].input_ratio == pytest.approx(rows[-1].input_gpu_seconds / rows[0].input_gpu_seconds)
