"""Draft heads: parameters as published, work by hand, and what a round of each runs."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from roofcast.calculators.deployment import Deployment, Ready, prepare
from roofcast.calculators.draft_models import check_vocabulary, draft_model
from roofcast.calculators.drafts import (
    METHODS,
    Drafter,
    HeadAsked,
    Shape,
    drafter_of,
    given_cost,
)
from roofcast.calculators.errors import UsageError
from roofcast.hwdb.lookup import find_accelerator
from roofcast.modelspec.drafting import eagle3_head, like
from roofcast.modelspec.errors import UnknownArchitectureError
from roofcast.modelspec.formats import FORMATS
from roofcast.modelspec.program import build_program
from roofcast.modelspec.sharding import Shards
from roofcast.modelspec.spec import build_spec
from roofcast.modelspec.storage import uniform
from tests.checkpoints import DEEPSEEK_V3, LLAMA_3_1_8B, catalogued, loaded

H100 = find_accelerator("h100-sxm").accelerator
BF16 = FORMATS["bf16"]


@cache
def on(name: str, gpu: str = "h100-sxm", **shards: int) -> Ready:
    """A model of the catalogue on a GPU."""
    accelerator = find_accelerator(gpu).accelerator
    return prepare(catalogued(name), Deployment(accelerator, BF16, shards=Shards(**shards)))


def head(method: str, name: str = "llama-3.1-8b") -> Drafter:
    """A head on a model."""
    return drafter_of(method, on(name), HeadAsked())


# parameters in 10^9 as the EAGLE README prints them, and by hand 2 h^2 + 2 h n d + 2 h n_kv d + 3 h i + h
EAGLES = (
    ("vicuna-7b", 0.24, 2 * 4096**2 + 4 * 4096**2 + 3 * 4096 * 11008 + 4096),
    ("vicuna-13b", 0.37, 2 * 5120**2 + 4 * 5120**2 + 3 * 5120 * 13824 + 5120),
    ("llama-2-70b", 0.99, 2 * 8192**2 + 2 * 8192**2 + 2 * 8192 * 1024 + 3 * 8192 * 28672 + 8192),
)


@pytest.mark.parametrize(("name", "published", "counted"), EAGLES)
def test_eagle_heads_are_as_large_as_published(name: str, published: float, counted: int) -> None:
    """0.24, 0.37 and 0.99 billion; embedding and head are the target's and not counted."""
    made = head("eagle", name)

    assert made.parameters == counted
    assert round(counted / 1e9, 2) == published
    assert made.bytes == 2 * counted


def test_an_eagle3_head_is_as_large_as_published() -> None:
    """A head of width 2,560 holds 202,700,416 elements: 202,516,480 parameters, 32,000 + 151,936 entries of two tables."""
    raw = {
        "model_type": "llama", "hidden_size": 2560, "num_hidden_layers": 1, "num_attention_heads": 32,
        "num_key_value_heads": 8, "head_dim": 80, "intermediate_size": 9728, "vocab_size": 151936,
        "tie_word_embeddings": False,
    }  # fmt: skip
    made = eagle3_head(build_spec(raw), uniform(BF16), Shards(), 32000)

    assert made.parameters + 32000 + 151936 == 202_700_416
    assert made.bytes == 2 * made.parameters


def test_the_eagle3_head_of_an_8b_by_hand() -> None:
    """3 h^2, queries over 2 h, keys and values over 2 h, output, three of the feed-forward, 32,000 rows, four norms."""
    counted = 3 * 4096**2 + 2 * 4096**2 + 2 * 2 * 4096 * 1024 + 4096**2 + 3 * 4096 * 14336 + 32000 * 4096 + 4 * 4096

    assert head("eagle3").parameters == counted == 424_689_664


def test_medusa_heads_by_hand() -> None:
    """h^2 + h of a residual block and V h of a head, each; four of them for a 7B are 0.59 billion."""
    each = 4096**2 + 4096 + 32000 * 4096

    assert head("medusa", "vicuna-7b").parameters == each
    assert round(4 * each / 1e9, 3) == 0.591


def test_deepseeks_own_prediction() -> None:
    """README_WEIGHTS prints 11.5 billion of its own without the joining projection of 2 x 7168^2, 0.10 billion."""
    ready = on("deepseek-v3", "h200", tp=8)
    made = drafter_of("mtp", ready, HeadAsked())

    assert made.parameters == pytest.approx(11.5e9 + 2 * 7168**2, rel=0.002)
    assert made.kept is not None
    assert [(part.width, n) for part, n in made.kept.kept] == [(576, 1)]  # one layer's latent


def test_deepseeks_prediction_reads_its_layer_and_the_head() -> None:
    """For a token of one sequence on one of 8 GPUs: its MoE layer's 8 + 1 experts in FP8, MLA, and 129,280 rows in BF16.

    Experts 9 x 3 x 7168 x 2048 / 8; q_b, kv_b, o split, q_a and kv_a whole, in FP8; eh_proj and the router whole in BF16.
    """
    ready = on("deepseek-v3", "h200", tp=8)
    made = drafter_of("mtp", ready, HeadAsked())
    experts = 9 * 3 * 7168 * 2048 / 8
    split = (1536 * 128 * 192 + 512 * 128 * 256 + 128 * 128 * 7168) / 8
    whole = 7168 * 1536 + 7168 * 576
    plain = 2 * (2 * 7168**2 + 256 * 7168 + 129280 * 7168 / 8)

    assert made.step_bytes == pytest.approx(experts + split + whole + plain, rel=0.002)  # scales and norms beside


def test_chains_of_two_modules_run_one_a_step() -> None:
    """A model with two prediction modules reads one of them for each drafted token, and holds both."""
    models = [loaded(DEEPSEEK_V3 | {"num_nextn_predict_layers": count}) for count in (1, 2)]
    made = [drafter_of("mtp", prepare(model, Deployment(H100, BF16)), HeadAsked()) for model in models]

    assert made[1].step_bytes == pytest.approx(made[0].step_bytes)
    assert made[1].parameters == 2 * (made[0].parameters or 0)
    assert made[1].bytes == pytest.approx(2 * made[0].bytes)


def test_what_an_eagle_step_reads() -> None:
    """The head's own weights and the target's 128,256 rows, and as many columns of one row of the embedding."""
    made = head("eagle")

    assert made.step_bytes == pytest.approx(made.bytes + 2 * 128256 * 4096 + 2 * 4096)


def test_eagle3_projects_hidden_states_once_a_round() -> None:
    """A round of k tokens reads the head k times, 3 h^2 once: 2 x 3 x 4096^2 B at 3.35 TB/s, 30 us."""
    made = head("eagle3")
    one, two = (made.seconds(Shape(k), 1, 1024) for k in (1, 2))

    assert one - (two - one) == pytest.approx(2 * 3 * 4096**2 / 3.35e12, rel=1e-3)


def test_medusa_runs_once() -> None:
    """All heads in one pass: k of them read k times the weights, and no cache."""
    made = head("medusa")

    assert made.seconds(Shape(4), 1, 1 << 17) == pytest.approx(4 * made.bytes / 3.35e12, rel=1e-3)
    assert made.cache(64, 4096) == 0


def test_n_grams_cost_nothing() -> None:
    """No model, no bytes, no time."""
    made = head("ngram")

    assert (made.seconds(Shape(10), 64, 4096), made.bytes, made.step_bytes) == (0, 0, 0)


def test_a_draft_model_runs_k_decode_steps() -> None:
    """Llama 3.2 1B's weights and its cache at 4,096 tokens, 16 x 2 x 8 x 64 x 2 B each, over 3.35 TB/s, five times."""
    made = draft_model(on("llama-3.1-8b"), catalogued("llama-3.2-1b"), None, None)
    weights = 2 * 1_235_814_400
    cache = 4096 * 16 * 2 * 8 * 64 * 2

    assert made.seconds(Shape(5), 1, 4096) == pytest.approx(5 * (weights + cache) / 3.35e12, rel=1e-3)
    assert made.cache(2, 4096) == 2 * cache


def test_a_drafts_own_tensor_parallelism() -> None:
    """A draft on one of four GPUs reads four times what a quarter of it does."""
    target, model = on("llama-3.1-70b", tp=4), catalogued("llama-3.1-8b")
    shared, alone = (draft_model(target, model, None, tp).step_bytes for tp in (None, 1))

    assert alone == pytest.approx(4 * shared, rel=1e-3)


def test_another_vocabulary_is_refused() -> None:
    """A draft must speak the target's tokens."""
    with pytest.raises(UsageError, match=r"151,936 tokens.*128,256"):
        draft_model(on("llama-3.1-8b"), catalogued("qwen2.5-0.5b"), None, None)


def test_padding_is_no_other_vocabulary() -> None:
    """Qwen2.5 0.5B has 151,936 rows and 72B 152,064: 128 of padding, which is said."""
    said = check_vocabulary(catalogued("qwen2.5-72b"), catalogued("qwen2.5-0.5b"))

    assert "151,936" in said
    assert "not checked" in check_vocabulary(catalogued("llama-3.1-70b"), catalogued("llama-3.1-8b"))


def test_a_model_without_prediction_has_none_to_draft_with() -> None:
    """`mtp` needs layers of it."""
    with pytest.raises(UnknownArchitectureError, match="no multi-token-prediction"):
        head("mtp")


def test_an_unknown_method_lists_those_there_are() -> None:
    """By the names that vLLM gives them."""
    with pytest.raises(UsageError, match=", ".join(METHODS)):
        drafter_of("hydra", on("llama-3.1-8b"), HeadAsked())


def test_a_latent_has_no_heads_to_copy() -> None:
    """DeepSeek-V3's head gets h / 128 = 56 query and 8 KV heads, as published ones have, and says so."""
    spec, assumed = like(catalogued("deepseek-v3").spec)

    assert (spec.layers[0].mixers[0].query_heads, spec.layers[0].mixers[0].published_kv_heads) == (56, 8)
    assert "56 query and 8 KV heads" in assumed[0]


def test_experts_tell_the_width_of_a_head() -> None:
    """Qwen3-30B-A3B has experts alone: 8 of width 768 work on a token, and its published head is twice as wide, 12,288."""
    spec, assumed = like(catalogued("qwen3-30b-a3b").spec)
    part = spec.layers[0].feed_forwards[0]

    assert getattr(part, "intermediate", None) == 2 * 8 * 768
    assert "12,288" in assumed[0]


def test_a_head_of_another_model_is_refused() -> None:
    """A config of another width or vocabulary is of a head for another model."""
    other = build_spec({**LLAMA_3_1_8B, "hidden_size": 5120, "num_hidden_layers": 1, "num_attention_heads": 40})

    with pytest.raises(UsageError, match="trained for it"):
        drafter_of("eagle", on("llama-3.1-8b"), HeadAsked(layer=other, name="h"))


def test_a_heads_config_counts_one_layer() -> None:
    """Some published configs of heads state the target's number of layers; the head has one."""
    stated = build_spec({**LLAMA_3_1_8B, "num_hidden_layers": 32})

    assert drafter_of("eagle", on("llama-3.1-8b"), HeadAsked(layer=stated)).parameters == head("eagle").parameters


def test_a_head_in_fewer_bits() -> None:
    """FP8 weights of a head are half of BF16's, the target's head stays as it is."""
    made = drafter_of("eagle3", on("llama-3.1-8b"), HeadAsked(weights=FORMATS["fp8"]))

    assert made.bytes == pytest.approx(head("eagle3").bytes / 2)


def test_heads_are_split_like_the_layers() -> None:
    """On two GPUs each has half of a head's layer and of its rows, and the joining projection whole."""
    whole, half = (drafter_of("eagle", on("llama-3.1-8b", tp=tp), HeadAsked()) for tp in (1, 2))
    join = 2 * 2 * 4096**2

    assert half.bytes == pytest.approx((whole.bytes - join) / 2 + join, rel=1e-3)


def test_a_tree_takes_more_positions_a_step() -> None:
    """Sixty nodes in six steps are ten each, or as many as asked; a chain's steps take one."""
    assert (Shape(6, 60).beside, Shape(6, 60, 4).beside, Shape(4).beside) == (10, 4, 1)
    assert (Shape(6, 60).positions, Shape(4).positions) == (60, 4)


def test_a_given_cost_runs_nothing() -> None:
    """Its time is a share of the target's, wherever that runs."""
    assert given_cost(0.05).cost_ratio == 0.05
    with pytest.raises(UsageError, match="draft cost"):
        given_cost(-0.05)


def test_heads_add_nothing_to_the_target() -> None:
    """The target's own program is the one without drafting, however its draft was made."""
    ready = on("deepseek-v3", "h200", tp=8)
    plain = build_program(replace(ready.model.spec, drafting=False), ready.storage, ready.deployment.shards)
    drafter_of("mtp", ready, HeadAsked())

    assert ready.program == plain
