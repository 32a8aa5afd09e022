"""Laws of the calculators that hold for every architecture, machine and length."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofcast.calculators.cache import cache_bytes, kv_bytes_per_token, residual_bytes, state_bytes, window_bytes
from roofcast.calculators.fit import FitResult, Machine, fit, shares
from roofcast.calculators.flops import (
    attention_flops,
    attention_share,
    crossover_tokens,
    linear_flops_per_token,
    prefill_flops,
)
from roofcast.calculators.kv import kv_model
from roofcast.calculators.paging import PAGE, page_tokens, reserved_bytes
from roofcast.calculators.rules import Rule, check_rules, parse_rule
from roofcast.modelspec.formats import FORMATS, Format
from roofcast.modelspec.model import Model, load_model
from roofcast.modelspec.source import Checkpoint

if TYPE_CHECKING:
    from roofcast.modelspec.spec import ModelSpec

CONTEXTS = st.integers(1, 2**20)
formats = st.sampled_from(sorted(FORMATS.values(), key=lambda f: f.bytes_per_element))
plain_formats = formats.filter(lambda f: not f.residual)  # of few tokens, those kept in 16 bits weigh more than bits do


@st.composite
def grouped(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a dense decoder with MHA, GQA or MQA, windows in all, some or no layers."""
    kv_heads, group = draw(st.sampled_from([1, 2, 4, 8])), draw(st.sampled_from([1, 2, 4, 8]))
    layers = draw(st.integers(1, 12))
    config = {
        "model_type": draw(st.sampled_from(["llama", "mistral", "qwen2"])),
        "num_hidden_layers": layers,
        "num_attention_heads": kv_heads * group,
        "num_key_value_heads": kv_heads,
        "hidden_size": kv_heads * group * draw(st.sampled_from([64, 128])),
        "intermediate_size": 64 * draw(st.integers(1, 400)),
        "vocab_size": draw(st.integers(1, 300_000)),
        "max_position_embeddings": 2**20,
        "torch_dtype": draw(st.sampled_from(["bfloat16", "float16", "float32"])),
        "tie_word_embeddings": draw(st.booleans()),
    }
    window = draw(st.one_of(st.none(), st.integers(1, 2**19)))
    if window is not None and config["model_type"] != "llama":
        config["sliding_window"] = window
        if config["model_type"] == "qwen2":
            config |= {"use_sliding_window": True, "max_window_layers": draw(st.integers(0, layers))}
    return config


@st.composite
def latent(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a decoder with MLA and experts."""
    experts, layers = draw(st.integers(2, 64)), draw(st.integers(1, 12))
    return {
        "model_type": "deepseek_v3",
        "num_hidden_layers": layers,
        "num_attention_heads": 2 ** draw(st.integers(0, 7)),
        "hidden_size": 64 * draw(st.integers(1, 112)),
        "kv_lora_rank": 64 * draw(st.integers(1, 8)),
        "q_lora_rank": draw(st.one_of(st.none(), st.just(1536))),
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
        "intermediate_size": 64 * draw(st.integers(1, 300)),
        "moe_intermediate_size": 64 * draw(st.integers(1, 32)),
        "n_routed_experts": experts,
        "n_shared_experts": draw(st.integers(1, 2)),
        "num_experts_per_tok": draw(st.integers(1, experts)),
        "first_k_dense_replace": draw(st.integers(0, layers)),
        "vocab_size": draw(st.integers(1, 300_000)),
        "max_position_embeddings": 2**20,
        "torch_dtype": "bfloat16",
    }


@st.composite
def hybrid(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a decoder whose layers are linear attention and softmax attention, in any order, with a draft layer."""
    kv_heads, key_heads = 2 ** draw(st.integers(0, 3)), 2 ** draw(st.integers(0, 4))
    kinds = draw(st.lists(st.sampled_from(["linear_attention", "full_attention"]), min_size=1, max_size=12))
    return {
        "model_type": "qwen3_5_text",
        "num_hidden_layers": len(kinds),
        "layer_types": kinds,
        "hidden_size": 64 * draw(st.integers(1, 64)),
        "num_attention_heads": kv_heads * 2 ** draw(st.integers(0, 3)),
        "num_key_value_heads": kv_heads,
        "head_dim": draw(st.sampled_from([64, 128, 256])),
        "linear_num_key_heads": key_heads,
        "linear_num_value_heads": key_heads * draw(st.sampled_from([1, 2, 4])),
        "linear_key_head_dim": draw(st.sampled_from([64, 128])),
        "linear_value_head_dim": draw(st.sampled_from([64, 128])),
        "linear_conv_kernel_dim": draw(st.integers(1, 8)),
        "intermediate_size": 64 * draw(st.integers(1, 300)),
        "mtp_num_hidden_layers": 1,
        "vocab_size": draw(st.integers(1, 300_000)),
        "max_position_embeddings": 2**20,
        "torch_dtype": "bfloat16",
    }


def loaded(config: dict[str, Any], *, drafting: bool = False) -> Model:
    """Return the model of a config without weight files."""
    return load_model(Checkpoint("m", config, None, None, "file m"), drafting=drafting)


models = st.builds(loaded, st.one_of(grouped(), latent(), hybrid()), drafting=st.booleans())
specs = models.map(lambda model: model.spec)


@st.composite
def machines(draw: st.DrawFn) -> Machine:
    """Draw one accelerator, from a phone's to a wafer's."""
    memory = draw(st.floats(6, 13).map(lambda exponent: 10**exponent))
    visible = draw(st.one_of(st.none(), st.floats(0.8, 1.1).map(lambda part: part * memory)))
    return Machine("g", 1, memory, visible, draw(st.floats(0, 0.99)))


def fitted(model: Model, machine: Machine, kv: Format, *contexts: int) -> FitResult:
    """Return the answer of `fit` in bf16 or as the config states."""
    return fit(model, machine, weights=None, kv=kv, contexts=contexts)[0]


def sequences(result: FitResult) -> list[int]:
    """Return the sequences at each context."""
    return [row.max_sequences for row in result.contexts]


@given(specs, formats, CONTEXTS, CONTEXTS)
def test_cache_never_falls_with_context(spec: ModelSpec, kv: Format, one: int, other: int) -> None:
    """A longer context never takes less, and takes more wherever a layer has no window."""
    short, long = sorted((one, other))
    grows = kv_bytes_per_token(spec, kv) > 0

    assert cache_bytes(spec, kv, long) >= cache_bytes(spec, kv, short) > 0
    assert (cache_bytes(spec, kv, long) > cache_bytes(spec, kv, short)) or not grows or long == short


@given(specs, plain_formats, plain_formats, CONTEXTS)
def test_cache_never_falls_with_bits(spec: ModelSpec, one: Format, other: Format, context: int) -> None:
    """More bytes an element never make a smaller cache."""
    few, many = sorted((one, other), key=lambda f: f.bytes_per_element)

    assert cache_bytes(spec, few, context) <= cache_bytes(spec, many, context)


@given(specs, formats, CONTEXTS)
def test_cache_is_what_grows_and_what_is_capped(spec: ModelSpec, kv: Format, context: int) -> None:
    """Bytes at a context are at most T x bytes a token + full windows + states, and exactly that once windows are full.

    What a format keeps of the last tokens in 16 bits comes on top.
    """
    bound = context * kv_bytes_per_token(spec, kv) + window_bytes(spec, kv)
    bound += state_bytes(spec, kv) + residual_bytes(spec, kv, context)
    longest = max((part.cap or 0 for part in spec.kept), default=0)

    assert cache_bytes(spec, kv, context) <= bound * (1 + 1e-12)
    assert context < longest or cache_bytes(spec, kv, context) == pytest.approx(bound)


@given(grouped(), st.integers(1, 2**19), CONTEXTS)
def test_a_window_never_adds(config: dict[str, Any], window: int, context: int) -> None:
    """The same model with a window in every layer keeps the cache of min(T, W) tokens."""
    base = {k: v for k, v in config.items() if k not in {"sliding_window", "use_sliding_window", "max_window_layers"}}
    base |= {"model_type": "mistral", "sliding_window": None}  # the class has a window where the key is absent
    plain, windowed = loaded(base).spec, loaded(base | {"sliding_window": window}).spec

    assert cache_bytes(windowed, FORMATS["bf16"], context) == cache_bytes(plain, FORMATS["bf16"], min(context, window))
    assert attention_flops(windowed, context) <= attention_flops(plain, context)


@given(specs, formats, CONTEXTS, st.sampled_from([1, 2, 4, 8, 16]))
def test_shares_add_up_to_no_less_than_the_whole(spec: ModelSpec, kv: Format, context: int, tp: int) -> None:
    """tp devices together hold the whole cache or more; exactly the whole where KV heads divide."""
    together = tp * cache_bytes(spec, kv, context, tp)
    heads = {part.heads for part in spec.kept}

    assert together >= cache_bytes(spec, kv, context) * (1 - 1e-12)
    assert any(n % tp for n in heads) or together == pytest.approx(cache_bytes(spec, kv, context))


@given(specs, formats, CONTEXTS, st.sampled_from([1, 2, 4, 8, 16]))
def test_pages_are_never_less_than_the_cache(spec: ModelSpec, kv: Format, context: int, tp: int) -> None:
    """What is reserved is at least what is kept, and does not change within a page."""
    page = page_tokens(spec, kv, tp)
    reserved = reserved_bytes(spec, kv, context, tp)

    assert reserved >= cache_bytes(spec, kv, context, tp) * (1 - 1e-12)
    assert page is None or page % PAGE == 0
    assert reserved == reserved_bytes(spec, kv, -(-context // (page or 1)) * (page or 1), tp)


@given(hybrid(), formats, CONTEXTS)
def test_drafting_adds_a_layer(config: dict[str, Any], kv: Format, context: int) -> None:
    """With multi-token prediction in use there is more state, and more parameters, never less."""
    alone, drafting = (loaded(config, drafting=used).spec for used in (False, True))

    assert cache_bytes(drafting, kv, context) > cache_bytes(alone, kv, context)
    assert drafting.parameters == alone.parameters + alone.draft_parameters > alone.parameters
    assert drafting.active_parameters > alone.active_parameters


@given(specs, CONTEXTS)
def test_a_prompt_is_weights_and_attention(spec: ModelSpec, tokens: int) -> None:
    """prefill_flops is its two terms, and the share is the second over both."""
    linear, attention = linear_flops_per_token(spec) * tokens, attention_flops(spec, tokens)

    assert prefill_flops(spec, tokens) == linear + attention
    assert attention_share(spec, tokens) == pytest.approx(attention / (linear + attention))
    assert linear == 2 * spec.non_embedding_parameters * tokens


@given(specs, CONTEXTS, CONTEXTS)
def test_work_grows_with_the_prompt(spec: ModelSpec, one: int, other: int) -> None:
    """A longer prompt is never less work, and attention's share of it never falls."""
    short, long = sorted((one, other))

    assert prefill_flops(spec, long) >= prefill_flops(spec, short)
    assert attention_share(spec, long) >= attention_share(spec, short) * (1 - 1e-12)


@given(specs)
def test_the_crossover_solves_its_equation(spec: ModelSpec) -> None:
    """One token before it attention costs less than 2 N n, one after it more; without one, attention stays below."""
    tokens = crossover_tokens(spec)
    if tokens is None:
        assert attention_share(spec, 2**30) < 0.5
        return
    before, after = max(tokens - 1, 0), tokens + 1

    assert attention_flops(spec, before) <= linear_flops_per_token(spec) * before
    assert attention_flops(spec, after) >= linear_flops_per_token(spec) * after


@given(models, machines(), formats, CONTEXTS)
def test_sequences_fit_and_one_more_does_not(model: Model, machine: Machine, kv: Format, context: int) -> None:
    """N sequences take no more than the room, N + 1 take more than it."""
    result = fitted(model, machine, kv, context)
    [row] = result.contexts
    room = result.memory.kv_bytes

    assert row.max_sequences * row.kv_bytes_per_sequence <= max(room, 0) * (1 + 1e-9)
    assert (row.max_sequences + 1) * row.kv_bytes_per_sequence > room * (1 - 1e-9)
    assert result.fits is (row.max_sequences >= 1) is (result.reason is None)


@given(models, machines(), formats, CONTEXTS)
def test_memory_adds_up(model: Model, machine: Machine, kv: Format, context: int) -> None:
    """Budget = memory x (1 - reserve) = weights + room."""
    memory = fitted(model, machine, kv, context).memory

    assert memory.budget_bytes == pytest.approx(machine.memory * (1 - machine.reserve))
    assert memory.weight_bytes + memory.kv_bytes == pytest.approx(memory.budget_bytes)


@given(models, machines(), st.floats(1, 10), formats, CONTEXTS)
def test_more_memory_never_fits_less(model: Model, machine: Machine, more: float, kv: Format, context: int) -> None:
    """A larger memory takes at least as many sequences and tokens."""
    larger = replace(machine, memory=machine.memory * more)
    few, many = fitted(model, machine, kv, context), fitted(model, larger, kv, context)

    assert sequences(few) <= sequences(many)
    assert (few.kv_tokens or 0) <= (many.kv_tokens or 0)


@given(models, machines(), st.floats(0, 0.99), formats, CONTEXTS)
def test_a_larger_reserve_never_fits_more(
    model: Model, machine: Machine, reserve: float, kv: Format, context: int
) -> None:
    """Keeping more free leaves room for at most as many."""
    small, large = sorted((machine.reserve, reserve))

    assert sequences(fitted(model, replace(machine, reserve=small), kv, context)) >= sequences(
        fitted(model, replace(machine, reserve=large), kv, context)
    )


@given(models, machines(), formats, st.lists(CONTEXTS, min_size=2, max_size=6, unique=True))
def test_longer_contexts_never_fit_more(model: Model, machine: Machine, kv: Format, contexts: list[int]) -> None:
    """Rows sorted by context have sequences that never rise; each row is what it would be alone."""
    rows = fitted(model, machine, kv, *sorted(contexts)).contexts
    counts = [row.max_sequences for row in rows]

    assert counts == sorted(counts, reverse=True)
    assert rows[-1] == fitted(model, machine, kv, rows[-1].context).contexts[0]


@given(models, machines(), plain_formats, plain_formats, CONTEXTS)
def test_a_smaller_cache_format_never_fits_less(
    model: Model, machine: Machine, one: Format, other: Format, context: int
) -> None:
    """Fewer bytes an element take at least as many sequences."""
    few, many = sorted((one, other), key=lambda f: f.bytes_per_element)

    assert sequences(fitted(model, machine, few, context)) >= sequences(fitted(model, machine, many, context))


@given(models, machines(), formats, CONTEXTS, st.data())
def test_more_gpus_never_fit_fewer(
    model: Model, machine: Machine, kv: Format, context: int, data: st.DataObject
) -> None:
    """Sharing over more GPUs never fits fewer: weights shrink, and neither KV heads nor a latent grow."""
    divisors = shares(model.spec)
    one, other = data.draw(st.sampled_from(divisors)), data.draw(st.sampled_from(divisors))
    few, many = sorted((one, other))
    counts = [sequences(fitted(model, replace(machine, count=n), kv, context)) for n in (few, many)]

    assert counts[0] <= counts[1]


@given(models, st.floats(0.01, 2), formats, CONTEXTS)
def test_the_number_of_gpus_named_is_the_least_that_does(model: Model, part: float, kv: Format, context: int) -> None:
    """Where a number of GPUs is named it fits on them, and on no smaller number that divides the heads."""
    machine = Machine("g", 1, part * float(model.weight_bytes(None).value or 0), None, 0.1)
    does = [n for n in shares(model.spec) if fitted(model, replace(machine, count=n), kv, context).fits]
    reason = fitted(model, machine, kv, context).reason

    if does[:1] == [1]:
        assert reason is None
    else:
        assert reason is not None
        assert (f"{does[0]} GPUs" in reason) if does else ("GPUs" not in reason)


@given(models, formats, formats, st.lists(CONTEXTS, min_size=1, max_size=4))
def test_kv_repeats_the_calculators(model: Model, weights: Format, kv: Format, contexts: list[int]) -> None:
    """A row of `kv` is what each calculator says on its own, weights in a format are parameters x bytes."""
    row, _ = kv_model(model, weights=weights, kv=kv, contexts=contexts)

    assert row.cache_bytes == {str(c): cache_bytes(model.spec, kv, c) for c in contexts}
    assert row.kv_bytes_per_token == kv_bytes_per_token(model.spec, kv)
    assert row.weight_bytes == model.spec.parameters * weights.bytes_per_element
    assert row.active_parameters == model.spec.active_parameters <= model.spec.parameters


@given(models, machines(), formats, CONTEXTS, st.integers(1, 2**40))
def test_a_rule_is_met_up_to_what_there_is(
    model: Model, machine: Machine, kv: Format, context: int, least: int
) -> None:
    """`sequences>=n@c` passes for every n up to the row's sequences and for no other."""
    result = fitted(model, machine, kv, context)

    [checked] = check_rules([Rule("a rule", "sequences", least, context)], result)

    assert checked.passed is (least <= sequences(result)[0])


@given(st.integers(1, 10**12), st.integers(1, 10**12))
def test_rules_are_read_as_written(least: int, context: int) -> None:
    """A rule written out reads back."""
    text = f"sequences>={least}@{context}"

    assert parse_rule(text) == Rule(text, "sequences", least, context)
