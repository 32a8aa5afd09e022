"""Bytes of weight files by component, told by the names of published checkpoints."""

from __future__ import annotations

from typing import Final

import pytest

from roofcast.modelspec.components import (
    COMPONENTS,
    Stored,
    as_stored,
    component_differences,
    stored_components,
)
from roofcast.modelspec.weights import Tensor, WeightFiles, collect, summarise
from tests.checkpoints import LLAMA_3_1_8B, TINY, TINY_PARAMETERS, decoder_tensors, deepseek_v3_tensors

LAYERS: Final = 40  # of the decoder in the tests of names

# component -> names of published files (org/model where one is not obvious) and of GGUF
NAMES: Final = {
    "embedding": """
        model.embed_tokens.weight model.language_model.embed_tokens.weight language_model.model.embed_tokens.weight
        wte.weight transformer.wte.weight transformer.wpe.weight wpe.weight transformer.word_embeddings.weight
        word_embeddings.weight gpt_neox.embed_in.weight model.tok_embeddings.weight tok_embeddings.weight embed.weight
        transformer.embedding.word_embeddings.weight backbone.embeddings.weight backbone.embedding.weight shared.weight
        model.decoder.embed_tokens.weight model.decoder.embed_positions.weight decoder.embed_tokens.weight
        rwkv.embeddings.weight encoder.embed_tokens.weight model.embed_tokens_per_layer.weight token_embd.weight
        position_embd.weight per_layer_token_embd.weight transformer.embd.wte.weight""",
    "attention": """
        model.layers.3.self_attn.q_proj.weight model.layers.3.self_attn.q_proj.bias model.layers.3.self_attn.q_norm.weight
        model.layers.3.self_attn.kv_a_proj_with_mqa.weight model.layers.3.self_attn.kv_a_layernorm.weight
        model.layers.3.self_attn.indexer.wq_b.weight model.layers.3.self_attn.sinks model.layers.3.self_attn.gate_proj.weight
        h.3.attn.c_attn.weight transformer.h.3.attn.c_proj.bias transformer.h.3.self_attention.query_key_value.weight
        h.3.self_attention.dense.weight gpt_neox.layers.3.attention.query_key_value.weight
        transformer.blocks.3.attn.Wqkv.weight transformer.blocks.3.norm_attn_norm.attn.Wqkv.weight
        transformer.encoder.layers.3.self_attention.query_key_value.weight model.layers.3.attention.wqkv.weight
        layers.3.attention.wo.weight layers.3.attn.wq_a.weight layers.3.attn.kv_norm.weight layers.3.attn.attn_sink
        layers.3.attn.compressor.wkv.weight layers.3.attn.indexer.compressor.ape transformer.h.3.mixer.Wqkv.weight
        backbone.layers.3.mixer.in_proj.weight backbone.layers.3.mixer.conv1d.weight backbone.layers.3.mixer.A_log
        backbone.layers.3.mixer.norm.weight backbone.layers.3.mixer.q_proj.weight model.layers.3.mamba.dt_proj.bias
        model.layers.3.linear_attn.in_proj_qkvz.weight model.layers.3.linear_attn.dt_bias model.layers.3.conv.conv.weight
        rwkv.blocks.3.attention.time_decay rwkv.blocks.3.attention.ln_x.weight model.layers.3.temporal_block.rg_lru.a_param
        model.decoder.layers.3.encoder_attn.k_proj.weight decoder.block.3.layer.1.EncDecAttention.k.weight
        decoder.block.3.layer.0.SelfAttention.q.weight language_model.model.layers.3.cross_attn.q_proj.weight
        model.layers.3.self_attention.experts.input_linear.weight
        blk.3.attn_q.weight blk.3.attn_q_norm.weight blk.3.attn_qkv.bias blk.3.attn_kv_a_mqa.weight blk.3.attn_sinks.weight
        blk.3.attn_kv_a_norm.weight blk.3.ssm_in.weight blk.3.ssm_a blk.3.ssm_conv1d.bias blk.3.ssm_norm.weight
        blk.3.indexer.proj.weight blk.3.shortconv.conv.weight blk.3.time_mix_w1.weight dec.blk.3.cross_attn_k.weight""",
    "feed_forward": """
        model.layers.3.mlp.gate_proj.weight model.layers.3.mlp.gate.weight model.layers.3.mlp.gate.e_score_correction_bias
        model.layers.3.mlp.shared_experts.up_proj.weight model.layers.3.mlp.shared_expert.down_proj.weight
        model.layers.3.mlp.shared_expert_gate.weight model.layers.3.feed_forward.w1.weight layers.3.feed_forward.w3.weight
        h.3.mlp.c_fc.weight transformer.h.3.mlp.dense_h_to_4h.weight gpt_neox.layers.3.mlp.dense_4h_to_h.bias
        transformer.blocks.3.ffn.up_proj.weight transformer.blocks.3.ffn.router.layer.weight layers.3.ffn.gate.tid2eid
        transformer.encoder.layers.3.mlp.dense_h_to_4h.weight layers.3.ffn.shared_experts.w1.weight
        backbone.layers.3.mixer.up_proj.weight backbone.layers.3.mixer.gate.weight model.decoder.layers.3.fc1.weight
        backbone.layers.3.mixer.shared_experts.down_proj.weight backbone.layers.3.mixer.fc1_latent_proj.weight
        model.layers.3.block_sparse_moe.gate.weight model.layers.3.mlp.router.weight model.layers.3.router.proj.weight
        model.layers.3.shared_mlp.input_linear.weight model.layers.3.share_expert.up_proj.weight model.layers.3.moe.gate.weight
        model.layers.3.feed_forward.shared_expert.up_proj.weight decoder.block.3.layer.2.DenseReluDense.wi_0.weight
        rwkv.blocks.3.feed_forward.receptance.weight model.layers.3.mlp.moe_statics.e_score_correction_bias
        blk.3.ffn_up.weight blk.3.ffn_gate_inp.weight blk.3.ffn_up_shexp.weight blk.3.ffn_gate_inp_shexp.weight
        blk.3.exp_probs_b.bias blk.3.channel_mix_key.weight""",
    "experts": """
        model.layers.3.mlp.experts.17.up_proj.weight model.layers.3.block_sparse_moe.experts.7.w1.weight
        transformer.blocks.3.ffn.experts.mlp.w1 layers.3.ffn.experts.17.w2.weight model.layers.3.mlp.experts.gate_up_proj
        model.layers.3.mlp.experts.gate_up_proj_blocks model.layers.3.mlp.experts.down_proj_bias
        model.layers.3.feed_forward.experts.down_proj backbone.layers.3.mixer.experts.5.up_proj.weight
        model.layers.3.block_sparse_moe.input_linear.weight model.layers.3.moe.up_proj.weight
        model.layers.3.mlp.switch_mlp.up_proj.weight model.layers.3.experts.gate_up_proj
        blk.3.ffn_up_exps.weight blk.3.ffn_gate_up_exps.weight blk.3.ffn_down_exps.bias blk.3.ffn_up_chexps.weight""",
    "norms": """
        model.norm.weight model.layers.3.input_layernorm.weight model.layers.3.post_attention_layernorm.weight norm.weight
        model.layers.3.pre_feedforward_layernorm.weight h.3.ln_1.weight transformer.h.3.ln_attn.bias ln_f.weight
        transformer.blocks.3.norm_attn_norm.norm_2.weight transformer.blocks.3.norm_1.weight transformer.norm_f.weight
        word_embeddings_layernorm.weight gpt_neox.final_layer_norm.bias transformer.encoder.final_layernorm.weight
        transformer.encoder.layers.3.input_layernorm.weight layers.3.ffn_norm.weight layers.3.attn_norm.weight
        backbone.layers.3.norm.weight backbone.norm_f.weight model.layers.3.operator_norm.weight
        decoder.block.3.layer.1.layer_norm.weight decoder.final_layer_norm.weight rwkv.blocks.0.pre_ln.weight
        model.decoder.layers.3.encoder_attn_layer_norm.weight lm_head.ln.weight
        blk.3.attn_norm.weight blk.3.ffn_norm.weight blk.3.post_ffw_norm.weight output_norm.weight token_embd_norm.weight""",
    "head": """
        lm_head.weight lm_head.bias language_model.lm_head.weight output.weight embed_out.weight head.weight proj_out.weight
        transformer.output_layer.weight score.weight thinker.lm_head.weight lm_head.linear.weight""",
    "scales": """
        model.layers.3.mlp.up_proj.weight_scale_inv model.layers.3.self_attn.k_scale model.layers.3.mlp.up_proj.qzeros
        model.layers.3.mlp.up_proj.g_idx model.layers.3.mlp.experts.gate_up_proj_scales lm_head.weight_scale
        model.layers.3.mlp.up_proj.weight.absmax model.layers.3.mlp.up_proj.weight.quant_state.bitsandbytes__nf4
        model.layers.3.mlp.experts.7.up_proj.input_scale model.layers.3.mlp.up_proj.weight_shape
        vision_tower.encoder.layers.3.mlp.fc1.weight_scale""",
    "multi_token_prediction": """
        model.layers.40.eh_proj.weight model.layers.40.mlp.experts.3.up_proj.weight model.layers.41.self_attn.q_proj.weight
        model.layers.40.embed_tokens.weight model.layers.40.shared_head.head.weight mtp.layers.0.self_attn.q_proj.weight
        mtp.fc.weight mtp.0.attn.wq_a.weight model.mtp_layers.0.input_layernorm.weight mtp.0.ffn.experts.3.w1.weight
        model.layers.40.mlp.up_proj.weight_scale_inv blk.40.nextn.eh_proj.weight blk.40.attn_q.weight""",
    "encoder": """
        model.encoder.layers.3.self_attn.q_proj.weight encoder.block.3.layer.0.SelfAttention.q.weight encoder.final_layer_norm.weight
        model.encoder.conv1.weight enc.blk.3.attn_q.weight enc.output_norm.weight""",
    "vision": """
        model.vision_tower.vision_model.encoder.layers.41.mlp.fc1.weight visual.blocks.41.attn.qkv.weight visual.merger.mlp.0.weight
        vision_model.encoder.layers.41.norm1.weight mlp1.0.weight model.mm_projector.0.weight vpm.encoder.layers.3.mlp.fc1.weight
        multi_modal_projector.linear_1.weight model.embed_vision.embedding_projection.weight resampler.query
        model.language_model.visual.patch_embed.proj.weight model.visual.deepstack_merger_list.0.norm.weight
        v.blk.41.attn_q.weight mm.0.weight v.patch_embd.weight""",
    "audio": """
        audio_tower.layers.41.self_attn.q_proj.weight thinker.audio_tower.conv1.weight apm.layers.3.fc1.weight
        model.embed_audio.embedding_projection.weight audio_projection_layer.linear1.weight a.blk.41.attn_q.weight mm.a.fc.weight""",
    "other": """
        model.layers.3.layer_scalar model.layers.3.self_attn.rotary_emb.inv_freq model.per_layer_model_projection.weight
        layers.3.hc_attn_fn hc_head_fn talker.model.layers.41.mlp.up_proj.weight token2wav.code2wav.input_embed.proj.weight
        decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight model.altup_projections.0.weight rope_freqs.weight
        model.layers.3.laurel.linear_left.weight blk.3.layer_output_scale.weight something""",
}


def files_of(*tensors: Tensor) -> WeightFiles:
    """The headers of one file that holds these."""
    return collect({"model.safetensors": tensors}, "x")


def bytes_of(files: WeightFiles, layers: int = LAYERS) -> dict[str, int]:
    """Component -> bytes."""
    return {part.component: part.bytes for part in stored_components(files, layers)}


@pytest.mark.parametrize(("component", "name"), [(key, name) for key, names in NAMES.items() for name in names.split()])
def test_published_names_tell_the_component(component: str, name: str) -> None:
    """A name of any family's checkpoint, or of a GGUF file, says which component its tensor belongs to."""
    assert bytes_of(files_of(Tensor(name, "BF16", (2, 2)))) == {component: 8}


@pytest.mark.parametrize(
    ("files", "layers"),
    [
        pytest.param(decoder_tensors(TINY), 2, id="plain"),
        pytest.param(decoder_tensors(LLAMA_3_1_8B), 32, id="llama"),
        pytest.param(deepseek_v3_tensors(), 61, id="fp8, with multi-token prediction"),
        pytest.param({name: ("F32", [3]) for names in NAMES.values() for name in names.split()}, LAYERS, id="names"),
    ],
)
def test_components_add_up_to_the_files(files: dict[str, tuple[str, list[int]]], layers: int) -> None:
    """Bytes, elements and numbers of tensors of all components are those of the files."""
    held = files_of(*(Tensor(name, dtype, tuple(shape)) for name, (dtype, shape) in files.items()))
    parts = stored_components(held, layers)

    assert sum(part.bytes for part in parts) == held.bytes
    assert sum(part.tensors for part in parts) == len(held.tensors)
    assert {d: sum(p.elements.get(d, 0) for p in parts) for d in held.elements} == dict(held.elements)
    assert [part.component for part in parts] == [name for name in COMPONENTS if name in {p.component for p in parts}]


def test_a_small_decoder_by_hand() -> None:
    """h 64, 2 KV heads of 16 of 4, f 96, V 100, 2 layers in bf16: every component by hand."""
    tensors = (Tensor(name, dtype, tuple(shape)) for name, (dtype, shape) in decoder_tensors(TINY).items())

    got = bytes_of(files_of(*tensors), 2)
    assert got == {
        "embedding": 2 * 100 * 64,
        "attention": 2 * 2 * (2 * 64 * 64 + 2 * 32 * 64),
        "feed_forward": 2 * 2 * 3 * 64 * 96,
        "norms": 2 * 5 * 64,
        "head": 2 * 100 * 64,
    }
    assert sum(got.values()) == 2 * TINY_PARAMETERS


def test_deepseek_v3_by_hand() -> None:
    """Experts are 58 x 256 x 3 x 7168 x 2048 bytes in fp8; multi-token prediction has a layer, two embeddings, a norm."""
    tensors = (Tensor(name, dtype, tuple(shape)) for name, (dtype, shape) in deepseek_v3_tensors().items())
    parts = {part.component: part for part in stored_components(files_of(*tensors), 61)}

    assert parts["experts"] == Stored("experts", 653_908_770_816, {"F8_E4M3": 653_908_770_816}, 3 * 58)
    assert parts["embedding"].bytes == parts["head"].bytes == 2 * 129280 * 7168
    assert parts["scales"].elements.keys() == {"F32"}
    # attention, experts with the shared one, router, embedding, head and the projection of both, norms, all with scales
    attention = 7168 * 1536 + 1536 * 24576 + 7168 * 576 + 512 * 32768 + 16384 * 7168
    blocks = 56 * 12 + 12 * 192 + 56 * 5 + 4 * 256 + 128 * 56 + 257 * 3 * 56 * 16
    plain = 256 * 7168 + 2 * 129280 * 7168 + 2 * 7168 * 7168 + 5 * 7168 + 1536 + 512
    draft = attention + 257 * 3 * 7168 * 2048 + 4 * blocks + 2 * plain + 4 * 256
    assert parts["multi_token_prediction"].bytes == draft


def test_a_projector_is_of_the_tower_that_is_there() -> None:
    """`multi_modal_projector` is of sound where there is sound and no picture, else of pictures."""
    projector = Tensor("multi_modal_projector.linear.weight", "BF16", (4, 4))
    sound = Tensor("audio_tower.conv1.weight", "BF16", (2, 2))
    picture = Tensor("vision_tower.patch.weight", "BF16", (2, 2))

    assert bytes_of(files_of(projector, sound)) == {"audio": 40}
    assert bytes_of(files_of(projector, picture)) == {"vision": 40}
    assert bytes_of(files_of(projector, sound, picture)) == {"vision": 40, "audio": 8}


def test_masks_and_scales_are_told_by_what_they_are() -> None:
    """A causal mask is no attention weight, and `scale`, `biases` and powers of two are a quantiser's."""
    files = files_of(
        Tensor("h.0.attn.bias", "F32", (1, 1, 4, 4)),
        Tensor("h.0.attn.c_attn.bias", "F32", (3,)),
        Tensor("model.layers.0.mlp.up_proj.weight", "U32", (4, 1)),
        Tensor("model.layers.0.mlp.up_proj.scales", "F16", (4, 1)),
        Tensor("model.layers.0.mlp.up_proj.biases", "F16", (4, 1)),
        Tensor("layers.0.ffn.w1.scale", "F8_E8M0", (5,)),
    )

    assert bytes_of(files) == {"attention": 12, "feed_forward": 16, "scales": 8 + 8 + 5, "other": 64}


def test_dtypes_stand_in_the_order_of_their_bytes() -> None:
    """The dtype that most bytes have is named first."""
    files = files_of(
        Tensor("model.layers.0.mlp.gate.weight", "F32", (3,)),
        Tensor("model.layers.0.mlp.up_proj.weight", "F8_E4M3", (13,)),
    )

    assert list(stored_components(files, 1)[0].elements) == ["F8_E4M3", "F32"]


def test_a_summary_tells_no_components() -> None:
    """Without names of tensors there is nothing to tell."""
    assert stored_components(summarise({"BF16": 100}, "hub summary"), 1) == ()


def test_an_endless_name_is_other() -> None:
    """A name longer than any model's is not searched for parts: expressions that look for two of them would not end."""
    name = "model.layers.3." + "share_" * 300_000

    assert bytes_of(files_of(Tensor(name, "BF16", (2, 2)))) == {"other": 8}


def test_towers_of_a_spec_take_the_names_of_stored_ones() -> None:
    """A projector is of its tower, and what has no component of its own is other."""
    counted = {"experts": 7, "high_resolution_vision": 1, "vision": 2, "video": 3, "audio_projector": 4, "talker": 5}

    assert as_stored(counted) == {"experts": 7, "vision": 6, "audio": 4, "other": 5}


@pytest.mark.parametrize(
    ("stored", "implied", "lines"),
    [
        ({"experts": 1000.0}, {"experts": 1000.0}, ()),
        ({"experts": 1000.0}, {"experts": 999.5}, ()),
        ({"experts": 1024.0}, {"experts": 1022.0}, ("experts: the files hold 1 KiB, the config implies 1,022 B",)),
        ({"scales": 2.0**21}, {}, ("scales: the files hold 2 MiB, the config implies nothing",)),
        ({"head": 0.0}, {"head": 3 * 2.0**30}, ("head: the files hold nothing, the config implies 3 GiB",)),
        ({"head": 2.0**44}, {"head": 2.0**29}, ("head: the files hold 16,384 GiB, the config implies 512 MiB",)),
        ({"experts": 1e9, "norms": 9000}, {"experts": 1e9, "norms": 0}, ()),
        (
            {"experts": 1e9, "feed_forward": 20_480},
            {"experts": 1e9, "feed_forward": 0},
            ("feed-forward: the files hold 20 KiB, the config implies nothing",),
        ),
    ],
)
def test_components_that_differ_are_named(
    stored: dict[str, float], implied: dict[str, float], lines: tuple[str, ...]
) -> None:
    """A line for more than 0.1 % of the component and 0.001 % of the files; both sizes stand in it."""
    assert component_differences(stored, implied) == lines


def test_components_that_differ_name_their_dtypes() -> None:
    """What the files hold stands with its dtypes, the most bytes first; a component without tensors has none."""
    stored, implied = {"attention": 4.0 * 2**30, "head": 0.0}, {"attention": 2.0**30, "head": 2.0**30}
    lines = component_differences(stored, implied, {"attention": {"BF16": 2, "F32": 1}})

    assert lines == (
        "attention: the files hold 4 GiB (BF16, F32), the config implies 1 GiB",
        "head: the files hold nothing, the config implies 1 GiB",
    )
