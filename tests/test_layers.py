"""From keys to layers: KV heads under every convention, windows, norms on heads, which layers are mixtures."""

from __future__ import annotations

from typing import Any

import pytest

from roofcast.modelspec.attention import Attention, GroupedAttention
from roofcast.modelspec.config import read_config
from roofcast.modelspec.errors import MalformedModelError, UnknownArchitectureError
from roofcast.modelspec.ffn import DenseFeedForward, FeedForward, MoeFeedForward
from roofcast.modelspec.latent import LatentAttention
from roofcast.modelspec.layers import read_layers
from roofcast.modelspec.spec import build_spec
from tests.model_configs import DEEPSEEK, FALCON, LLAMA, MISSING, QWEN_MOE, changed, refusal


def attentions(config: dict[str, Any]) -> list[Attention]:
    """Return the one mixer of every layer."""
    return [layer.mixers[0] for layer in read_layers(read_config(config))]


def feeds(config: dict[str, Any]) -> list[FeedForward]:
    """Return the one feed-forward of every layer."""
    return [layer.feed_forwards[0] for layer in read_layers(read_config(config))]


def attention(config: dict[str, Any]) -> GroupedAttention:
    """Return the attention of the first layer, which must be grouped."""
    first = attentions(config)[0]
    assert isinstance(first, GroupedAttention)
    return first


def windows(**changes: Any) -> list[int | None]:
    """Return the window of each of the 4 layers of a small config."""
    return [layer.window for layer in attentions(changed(LLAMA, **changes))]


def sparse(config: dict[str, Any]) -> list[bool]:
    """Return which layers are mixtures of experts."""
    return [isinstance(layer, MoeFeedForward) for layer in feeds(config)]


def mixture(config: dict[str, Any]) -> MoeFeedForward:
    """Return the feed-forward of the last layer, which must be a mixture."""
    last = feeds(config)[-1]
    assert isinstance(last, MoeFeedForward)
    return last


def dense(config: dict[str, Any]) -> DenseFeedForward:
    """Return the feed-forward of the first layer, which must be dense."""
    first = feeds(config)[0]
    assert isinstance(first, DenseFeedForward)
    return first


# its code lives in its own repository, so every key of the family counts
KIMI = {**DEEPSEEK, "model_type": "kimi_k2"}
MINIMAX = {"model_type": "minimax_m2", "head_dim": 8, "num_local_experts": 8, "num_experts_per_tok": 2}
GPT = {"n_embd": 64, "n_layer": 4, "n_head": 8, "vocab_size": 500, "n_positions": 128}
CHATGLM = {
    **changed(LLAMA, num_key_value_heads=MISSING, model_type="chatglm"),
    "multi_query_attention": True,
    "multi_query_group_num": 2,
}


@pytest.mark.parametrize(
    ("config", "heads"),
    [
        (LLAMA, 2),
        (changed(LLAMA, num_key_value_heads=None, model_type="granite"), 8),
        (FALCON, 2),  # 40B and 180B: a count of groups
        (changed(FALCON, new_decoder_architecture=False), 1),  # 7B: one
        (changed(FALCON, new_decoder_architecture=MISSING, multi_query=MISSING), 1),  # the class's default
        (changed(FALCON, new_decoder_architecture=False, multi_query=False), 8),  # RW-1B: the count is not read
        ({**GPT, "model_type": "gpt_bigcode", "multi_query": True}, 1),
        ({**GPT, "model_type": "gpt_bigcode", "multi_query": False}, 8),
        ({**GPT, "model_type": "gpt_bigcode"}, 1),
        ({**GPT, "model_type": "gpt2"}, 8),
        (CHATGLM, 2),
        ({**CHATGLM, "multi_query_attention": False}, 8),  # chatglm-6b's group number is not read
    ],
)
def test_kv_heads_under_every_convention(config: dict[str, Any], heads: int) -> None:
    """A count, a switch for one, a switch for groups, or as many as query heads."""
    assert attention(config).kv_heads == heads


def test_group_number_must_divide() -> None:
    """ChatGLM's groups divide its heads as KV heads do."""
    with pytest.raises(MalformedModelError, match="does not divide num_attention_heads 8"):
        attention({**CHATGLM, "multi_query_group_num": 3})


@pytest.mark.parametrize(
    ("changes", "head_dim", "value_dim"),
    [
        ({}, 8, 8),
        ({"head_dim": 16}, 16, 16),
        ({"model_type": "baichuan", "kv_channels": 32}, 32, 32),
        ({"head_dim": None}, 8, 8),
        ({"model_type": "baichuan", "head_dim": 24, "v_head_dim": 16}, 24, 16),
        ({"head_dim": 24, "v_head_dim": 16}, 24, 24),  # none of Llama's
        ({"model_type": "qwen3"}, 128, 128),
        ({"model_type": "gemma"}, 256, 256),
    ],
)
def test_head_dim_is_stated_or_derived(changes: dict[str, Any], head_dim: int, value_dim: int) -> None:
    """The file's head size, else the class's, else the width over the heads; values as wide unless said otherwise."""
    found = attention({**LLAMA, **changes})

    assert (found.head_dim, found.value_head_dim) == (head_dim, value_dim)


@pytest.mark.parametrize(
    ("changes", "parameters"),
    [
        ({}, 0),
        ({"model_type": "qwen3", "head_dim": 8}, 8 + 8),
        ({"model_type": "olmo2"}, 8 * 8 + 2 * 8),
        (MINIMAX, 8 * 8 + 2 * 8),
        ({**MINIMAX, "use_qk_norm": False}, 8 * 8 + 2 * 8),  # its class always has them
        ({"model_type": "cohere"}, 0),
        ({"model_type": "cohere", "use_qk_norm": True}, 8 * 8 + 2 * 8),
        ({"model_type": "persimmon"}, 2 * (8 + 8)),
        ({"model_type": "persimmon", "qk_layernorm": False}, 0),
    ],
)
def test_norms_on_queries_and_keys(changes: dict[str, Any], parameters: int) -> None:
    """One width for all heads, one for each head, or with biases, as the class has it and its key switches it."""
    assert attention({**LLAMA, **changes}).qk_norm_parameters == parameters


@pytest.mark.parametrize(
    ("model_type", "changes", "qkv", "output"),
    [
        ("llama", {}, False, False),
        ("llama", {"attention_bias": True}, True, True),
        ("qwen2", {}, True, False),
        ("qwen2", {"attention_bias": False}, True, False),  # the class has them whatever the file says
        ("glm", {"head_dim": 8}, True, False),
        ("glm", {"head_dim": 8, "attention_bias": False}, False, False),
        ("gpt_neox", {}, True, True),
        ("gpt_neox", {"attention_bias": False}, False, False),
        ("starcoder2", {}, True, True),
        ("starcoder2", {"use_bias": False}, False, False),
        ("seed_oss", {"head_dim": 8}, True, False),
        ("seed_oss", {"head_dim": 8, "attention_out_bias": True}, True, True),
        ("mistral", {"attention_bias": True}, False, False),
    ],
)
def test_biases_of_attention(model_type: str, changes: dict[str, Any], qkv: bool, output: bool) -> None:
    """Biases are fixed by the class, or switched by the key that the class reads."""
    found = attention({**LLAMA, "model_type": model_type, **changes})

    assert (found.qkv_bias, found.output_bias) == (qkv, output)


def test_a_latent_rank_makes_it_mla() -> None:
    """What has kv_lora_rank is MLA, whatever its class is called, and its published KV heads are its query heads."""
    for config in (DEEPSEEK, {**DEEPSEEK, "model_type": "kimi_k2"}):
        layers = attentions(config)
        assert set(layers) == {LatentAttention(4, 16, 24, 8, 4, 8)}
        assert len(layers) == 4


@pytest.mark.parametrize(("value", "rank"), [(24, 24), (None, None), (MISSING, 1536)])
def test_query_latent_may_be_null(value: object, rank: int | None) -> None:
    """Null is a plain query projection (V2-Lite); an absent key is the class's 1536."""
    found = attentions(changed(DEEPSEEK, q_lora_rank=value))[0]

    assert isinstance(found, LatentAttention)
    assert found.q_lora_rank == rank


def test_bias_of_latent_attention() -> None:
    """attention_bias is read by MLA too."""
    found = attentions({**DEEPSEEK, "attention_bias": True})[0]

    assert isinstance(found, LatentAttention)
    assert found.bias


ALL = [None] * 4
QWEN2 = {"model_type": "qwen2", "use_sliding_window": True, "sliding_window": 32}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"model_type": "mistral", "sliding_window": 32}, [32] * 4),
        ({"model_type": "mistral", "sliding_window": None}, ALL),
        ({"model_type": "mistral", "sliding_window": 127}, [127] * 4),
        ({"model_type": "mistral", "sliding_window": 128}, ALL),  # never reached within the context
        ({"model_type": "phi3", "sliding_window": 262_144}, ALL),
        ({"model_type": "mistral", "sliding_window": 4096, "max_position_embeddings": MISSING}, [4096] * 4),
        ({**QWEN2, "max_window_layers": 0}, [32] * 4),
        ({**QWEN2, "max_window_layers": 3}, [None, None, None, 32]),  # the first layers see all
        ({**QWEN2, "max_window_layers": 4}, ALL),
        ({**QWEN2, "max_window_layers": 28}, ALL),
        ({**QWEN2, "use_sliding_window": False, "max_window_layers": 0}, ALL),
        ({**QWEN2, "sliding_window": None, "max_window_layers": 0}, ALL),
        (
            {
                "sliding_window": 32,
                "use_sliding_window": True,
                "layer_types": ["sliding_attention", "full_attention"] * 2,
                "model_type": "qwen3",
            },
            [32, None, 32, None],
        ),
        ({"sliding_window": 32, "layer_types": ["full_attention"] * 4}, ALL),
        ({"sliding_window": None, "layer_types": ["full_attention"] * 4}, ALL),
        ({"layer_types": None}, ALL),
    ],
)
def test_windows_of_the_layers(changes: dict[str, Any], expected: list[int | None]) -> None:
    """A window is of all layers, of those from max_window_layers on, of those listed, or of none."""
    assert windows(**changes) == expected


@pytest.mark.parametrize("model_type", ["qwen2", "qwen3", "qwen3_moe", "smollm3"])
def test_a_class_whose_windows_are_off_by_default(model_type: str) -> None:
    """These classes slide only where use_sliding_window says so; the width alone switches nothing."""
    experts = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16} if "moe" in model_type else {}

    assert windows(model_type=model_type, sliding_window=32, max_window_layers=0, head_dim=8, **experts) == ALL


def test_qwen2_slides_from_layer_28_where_the_file_does_not_say() -> None:
    """The class's max_window_layers is 28, so a shorter model has no layer that slides."""
    assert windows(**QWEN2) == ALL


def test_mistral_slides_by_default() -> None:
    """The class's window is 4096 where the key is absent; null is none."""
    assert windows(model_type="mistral", max_position_embeddings=32_768) == [4096] * 4
    assert windows(model_type="mistral", max_position_embeddings=32_768, sliding_window=None) == ALL


def test_which_layers_of_an_unknown_class_slide_is_not_guessed() -> None:
    """A window without layer_types is refused of a class that is not in the table; with them it is read."""
    config = {**LLAMA, "model_type": "brand_new", "sliding_window": 32}
    error = refusal(config, counted_in_files=True)

    assert isinstance(error, UnknownArchitectureError)
    assert "sliding_window" in str(error)
    spec = build_spec({**config, "layer_types": ["sliding_attention"] * 4}, counted_in_files=True)
    assert {layer.mixers[0].window for layer in spec.layers} == {32}


def test_layers_of_two_kinds_are_told_apart() -> None:
    """Runs of equal layers make the map, in order."""
    spec = build_spec({**LLAMA, "model_type": "qwen2", **QWEN2, "max_window_layers": 3})

    assert [(count, layer.mixers[0].window) for count, layer in spec.layer_map] == [(3, None), (1, 32)]
    assert sorted(spec.layer_counts.values()) == [1, 3]
    assert spec.attention_label == "GQA"


@pytest.mark.parametrize("kind", [0, 2, "lightning"])
def test_lightning_attention_is_not_understood(kind: object) -> None:
    """attn_type_list with anything but 1 is MiniMax-01's lightning attention."""
    error = refusal({**LLAMA, "attn_type_list": [1, 1, kind, 1]})

    assert isinstance(error, UnknownArchitectureError)
    assert "attn_type_list" in str(error)
    assert build_spec({**LLAMA, "attn_type_list": [1] * 4}) == build_spec(LLAMA)


MPT = {"model_type": "mpt", "d_model": 64, "n_layers": 4, "n_heads": 8, "vocab_size": 500, "expansion_ratio": 4}


@pytest.mark.parametrize("nested", [{"kv_n_heads": 2}, {"attn_type": "multiquery_attention"}, {"qk_ln": True}])
def test_attention_nested_in_attn_config_is_not_overlooked(nested: dict[str, Any]) -> None:
    """MPT may nest fewer KV heads or norms on queries and keys; what is not read is refused."""
    error = refusal({**MPT, "attn_config": nested})

    assert isinstance(error, UnknownArchitectureError)
    assert "attn_config" in str(error)
    assert attention({**MPT, "attn_config": {"alibi": True, "attn_type": "multihead_attention"}}).kv_heads == 8


def test_dense_widths_under_every_name() -> None:
    """The width is stated, is a multiple of the stream's, or is stated for both halves of a gate (Qwen 1)."""
    assert dense(LLAMA) == DenseFeedForward(64, 96)
    assert dense({**GPT, "model_type": "gpt2"}) == DenseFeedForward(64, 256, gated=False, bias=True)
    assert dense({**GPT, "model_type": "gpt2", "n_inner": 100}).intermediate == 100
    assert dense({**MPT, "expansion_ratio": 2}) == DenseFeedForward(64, 128, gated=False)
    assert dense({**LLAMA, "model_type": "qwen", "intermediate_size": 192}).intermediate == 96


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "1111"),
        ({"decoder_sparse_step": 2}, "0101"),
        ({"decoder_sparse_step": 4}, "0001"),
        ({"decoder_sparse_step": 5}, "0000"),
        ({"mlp_only_layers": [0, 3]}, "0110"),
        ({"mlp_only_layers": [1], "decoder_sparse_step": 2}, "0001"),
        ({"decoder_sparse_step": MISSING, "mlp_only_layers": [2]}, "1101"),
        ({"decoder_sparse_step": MISSING, "mlp_only_layers": MISSING}, "1111"),
    ],
)
def test_sparse_layers_by_step(changes: dict[str, Any], expected: str) -> None:
    """Every s-th layer is a mixture but for those listed; without either every layer is one."""
    assert "".join(str(int(layer)) for layer in sparse(changed(QWEN_MOE, **changes))) == expected


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "0111"),
        ({"first_k_dense_replace": 0}, "1111"),
        ({"first_k_dense_replace": 3}, "0001"),
        ({"first_k_dense_replace": 9}, "0000"),
        ({"moe_layer_freq": 2}, "0010"),
        ({"first_k_dense_replace": 0, "moe_layer_freq": 3}, "1001"),
        ({"moe_layer_freq": [0, 1, 0, 1]}, "0101"),
        ({"first_k_dense_replace": MISSING, "num_dense_layers": 2}, "0011"),
    ],
)
def test_sparse_layers_by_first_dense(changes: dict[str, Any], expected: str) -> None:
    """The first k layers are dense, then every f-th is a mixture, or a list of 0 and 1 says which."""
    assert "".join(str(int(layer)) for layer in sparse(changed(KIMI, **changes))) == expected


ERNIE = {
    **LLAMA,
    "model_type": "ernie4_5_moe",
    "moe_num_experts": 4,
    "moe_k": 2,
    "moe_num_shared_experts": 0,
    "moe_intermediate_size": 32,
    "moe_layer_start_index": 1,
}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "0111"),
        ({"moe_layer_end_index": 2}, "0110"),
        ({"moe_layer_end_index": -1}, "0111"),
        ({"moe_layer_interval": 2}, "0101"),
        ({"moe_layer_start_index": 0, "moe_layer_end_index": 0}, "1000"),
        ({"moe_layer_start_index": 4}, "0000"),
    ],
)
def test_sparse_layers_by_range(changes: dict[str, Any], expected: str) -> None:
    """Every i-th layer from a start to an end index is a mixture."""
    assert "".join(str(int(layer)) for layer in sparse({**ERNIE, **changes})) == expected


def test_shared_experts_are_one_wide_one() -> None:
    """Two shared experts of 32 are one of 64; a width of its own wins; none is none."""
    assert mixture(DEEPSEEK).shared == DenseFeedForward(64, 32)
    assert mixture({**DEEPSEEK, "n_shared_experts": 2}).shared == DenseFeedForward(64, 64)
    assert mixture({**DEEPSEEK, "n_shared_experts": 0}).shared is None
    assert mixture(QWEN_MOE).shared is None
    shared = mixture({**QWEN_MOE, "model_type": "qwen2_moe", "shared_expert_intermediate_size": 128})
    assert shared.shared == DenseFeedForward(64, 128)
    assert shared.shared_gate
    assert not mixture(DEEPSEEK).shared_gate


def test_experts_without_a_width_of_their_own() -> None:
    """Mixtral's experts are as wide as intermediate_size says."""
    mixtral = {**LLAMA, "model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2}

    assert mixture(mixtral) == MoeFeedForward(DenseFeedForward(64, 96), 8, 2)


def test_routed_experts_have_no_biases() -> None:
    """Of a class with mlp_bias the dense layers and the shared expert have biases, routed experts none."""
    config = {**LLAMA, "model_type": "hy_v3", "mlp_bias": True, "num_experts": 4, "num_experts_per_tok": 2}
    config |= {"num_shared_experts": 1, "moe_intermediate_size": 32}
    first, last = dense(config), mixture(config)

    assert first.bias
    assert not last.expert.bias
    assert last.shared is not None
    assert last.shared.bias
