"""Weights of single model classes that no trait tells: of a layer, and of the whole model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from roofcast.modelspec.errors import UnknownArchitectureError
from roofcast.modelspec.matrix import Matrix
from roofcast.modelspec.ngram import ngram_tables
from roofcast.modelspec.strictjson import quoted, short

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from roofcast.modelspec.config import Config


MLLAMA_ROWS: Final = 8  # of its embedding beyond the vocabulary: the image token and spare ones


def _hyper_connection_layer(config: Config, layer: int | None, sparse: bool) -> int:
    """DeepSeek-V4: two hyper-connections a layer, m streams: ((2 + m) m) (m h) + (2 + m) m + 3 each. [parameter]"""
    del layer, sparse
    streams = config.size("hc_mult")
    mixes = (2 + streams) * streams
    return 2 * (mixes * streams * config.size("hidden") + mixes + 3)


def _gated_residual_layer(config: Config, layer: int | None, sparse: bool) -> int:
    """Qwen4-Exp: two gated residuals a layer over m streams of h, rank r: m h (1 + 2 r + m) each. [parameter]"""
    del layer, sparse
    streams = config.size("hc_count", least=2)
    return 2 * (_gated_residual_model(config) + streams**2 * config.size("hidden"))


def _gated_residual_model(config: Config) -> int:
    """Qwen4-Exp: streams come together before the head: m h (1 + 2 r), a norm and a gate of rank r. [parameter]"""
    return config.size("hc_count", least=2) * config.size("hidden") * (1 + 2 * config.size("hc_lowrank"))


def _hyper_connection_head(config: Config) -> int:
    """DeepSeek-V4, Hy4: streams come together before the head: m (m h) + m + 1. [parameter]"""
    streams = config.size("hc_mult")
    return streams * streams * config.size("hidden") + streams + 1


def _residual_scales(config: Config, layer: int | None, sparse: bool) -> int:
    """ZAYA: scale and bias of hidden states and of the residual, after attention and after experts: 8 h. [parameter]"""
    del layer, sparse
    return 8 * config.size("hidden")


def _zaya_model(config: Config) -> int:
    """ZAYA: scale and bias of the embedding, and every router but the first one scales the last's states."""
    return 2 * config.size("hidden") + (config.size("layers") - 1) * config.size("router_hidden_size")


def _gemma3n_layer(config: Config, layer: int | None, sparse: bool) -> int:
    """Gemma 3n: a scale and a norm of AltUp, a norm of LAuReL and one of the per-layer input: 3 h and h. [parameter]"""
    del layer, sparse
    return 3 * config.size("hidden") + _per_layer_norm(config)


def _gemma3n_matrices(config: Config) -> tuple[Matrix, ...]:
    """Gemma 3n: AltUp over n streams, n h + n^2 + n^3, LAuReL of rank r, 2 h r, and the per-layer input."""
    hidden, streams, rank = config.size("hidden"), config.size("altup_num_inputs"), config.size("laurel_rank")
    return (
        Matrix("altup.modality_router", streams, hidden),
        Matrix("altup.correction_coefs", streams, streams),
        Matrix("altup.prediction_coefs", streams**2, streams),
        Matrix("laurel.linear_left", rank, hidden),
        Matrix("laurel.linear_right", hidden, rank),
        *_per_layer_input(config),
    )


def _gemma4_layer(config: Config, layer: int | None, sparse: bool) -> int:
    """Gemma 4: the per-layer input's norm, and three more where experts stand beside the feed-forward. [parameter]"""
    del layer
    if config.flag("enable_moe_block"):
        config.size("experts")  # without these it is neither dense nor of experts
        config.size("expert_width")
    return _per_layer_norm(config) + 3 * config.size("hidden") * sparse


def _per_layer_width(config: Config) -> int:
    return config.size("hidden_size_per_layer_input", 0, least=0)


def _per_layer_norm(config: Config) -> int:
    return config.size("hidden") if _per_layer_width(config) else 0


def _per_layer_input(config: Config) -> tuple[Matrix, ...]:
    """A gate down to the per-layer width p and a projection back: 2 h p; none where p is 0."""
    hidden, width = config.size("hidden"), _per_layer_width(config)
    if not width:
        return ()
    return Matrix("per_layer_input_gate", width, hidden), Matrix("per_layer_projection", hidden, width)


def _per_layer_table(config: Config) -> tuple[Matrix, ...]:
    """An embedding of width p for every layer: V_p L p."""
    width = _per_layer_width(config)
    if not width:
        return ()
    rows = config.size("vocab_size_per_layer_input")
    return (Matrix("embed_tokens_per_layer", rows, config.size("layers") * width, linear=False),)


def _per_layer_projection(config: Config) -> tuple[Matrix, ...]:
    """What makes all layers' inputs of the hidden state: h L p; its norm of p is no matrix."""
    width = _per_layer_width(config)
    rows = config.size("layers") * width
    return (Matrix("per_layer_model_projection", rows, config.size("hidden")),) if width else ()


def _gemma3n_projections(config: Config) -> tuple[Matrix, ...]:
    """Gemma 3n: per-layer inputs, and what spreads to and gathers from n - 1 further streams: 2 (n - 1) h^2."""
    hidden, streams = config.size("hidden"), config.size("altup_num_inputs")
    names = ("altup_projections", "altup_unembed_projections")
    further = (Matrix(f"{name}.{number}", hidden, hidden) for name in names for number in range(streams - 1))
    return (*_per_layer_projection(config), *further)


def _position_biases(config: Config) -> int:
    """T5: biases by distance, a bucket and head each. [parameter]"""
    return config.size("relative_attention_num_buckets") * config.size("query_heads")


def _position_biases_of_layer(config: Config, layer: int | None, sparse: bool) -> int:
    """UMT5: as T5, in every layer. [parameter]"""
    del layer, sparse
    return _position_biases(config)


def _own_embeddings(config: Config) -> tuple[Matrix, ...]:
    """BART: untied, encoder and decoder each have an embedding beside the shared one: 2 V h."""
    if config.flag("tie_word_embeddings", default=config.family.tied):
        return ()
    rows, hidden = config.size("vocab"), config.size("hidden")
    return tuple(Matrix(f"{half}.embed_tokens", rows, hidden, linear=False) for half in ("encoder", "decoder"))


def _receptance(config: Config) -> tuple[Matrix, ...]:
    """RWKV-4: channel mixing has a receptance beside its two matrices: h^2; its two mixes, 2 h, are none."""
    return (Matrix("feed_forward.receptance", config.size("hidden"), config.size("hidden")),)


def _norm_biases(config: Config, layer: int | None, sparse: bool) -> int:
    """xLSTM: its two norms have biases where projections do: 2 h. [parameter]"""
    del layer, sparse
    return 2 * config.size("hidden") * config.flag("use_bias")


def _sandwich(config: Config, layer: int | None, sparse: bool) -> int:
    """LFM3: norms after convolution or attention and after the feed-forward as well: 2 h. [parameter]"""
    del layer, sparse
    return 2 * config.size("hidden") * config.flag("use_sandwich_norm", default=True)


def _lambdas(config: Config, layer: int | None, sparse: bool) -> int:
    """DiffLlama: four vectors that weigh the two attentions of a head: 4 d. [parameter]"""
    del layer, sparse
    return 4 * config.size("head_dim", config.size("hidden") // config.size("query_heads"))


def _inner_norms(config: Config, layer: int | None, sparse: bool) -> int:
    """BitNet: norms before the output and the down projection: h + i. [parameter]"""
    del layer, sparse
    return config.size("hidden") + config.size("intermediate")


def _adaptive_norm(config: Config, layer: int | None, sparse: bool) -> int:
    """Voxtral Realtime: the delay scales what the feed-forward reads, through a bottleneck of 32: 64 h. [parameter]"""
    del layer, sparse
    return 2 * 32 * config.size("hidden")


def _normed_experts(config: Config, layer: int | None, sparse: bool) -> int:
    """A.X K1: a norm after the experts of a sparse layer: h. [parameter]"""
    del layer
    return config.size("hidden") * sparse


def _post_norms(config: Config, layer: int | None, sparse: bool) -> int:
    """HyperCLOVA X: norms after attention and after the feed-forward as well: 2 h. [parameter]"""
    del layer, sparse
    return 2 * config.size("hidden") * config.flag("use_post_norm", default=True)


def _dynamic_mask(config: Config, layer: int | None, sparse: bool) -> int:
    """Doge: a decay a KV head, a projection of values to one number each, and a scale of both residuals. [parameter]

    n + n n d, with biases n more, and 2 h.
    """
    del layer, sparse
    hidden, query_heads = config.size("hidden"), config.size("query_heads")
    if config.flag("is_moe"):
        config.size("experts")  # without a number it would be dense
    heads, head_dim = config.size("kv_heads", query_heads), config.size("head_dim", hidden // query_heads)
    return heads * (1 + heads * head_dim + config.flag("attention_bias")) + 2 * hidden


def _gated_norms(config: Config, layer: int | None, sparse: bool) -> int:
    """A.X K2: a gate of rank r on the norm before attention, and before experts: 2 h r each. [parameter]"""
    del layer
    return 2 * config.size("hidden") * config.size("gated_norm_rank") * (1 + sparse)


def _independent_connections(config: Config, layer: int | None, sparse: bool) -> int:
    """Hy4: two hyper-connections a layer that do not mix their m streams: 2 m (m h) + 2 m + 2 each. [parameter]"""
    del layer, sparse
    streams = config.size("hc_mult")
    return 2 * (2 * streams * streams * config.size("hidden") + 2 * streams + 2)


def _learned_frequencies(config: Config) -> int:
    """Mistral Large 4: a learned factor on every frequency of RoPE: d_rope / 2. [parameter]"""
    rope = config.raw.get("rope_parameters")
    for where in (config.raw, rope if isinstance(rope, dict) else {}):
        if where.get("partial_rotary_factor") not in (None, 1):  # its queries and keys would not fit its frequencies
            msg = f"partial_rotary_factor is {short(where['partial_rotary_factor'])}, but model_type {quoted(config.model_type)} has no such thing"
            raise UnknownArchitectureError(msg)
    return -(-config.size("qk_rope_head_dim") // 2)


def _residual_gates(config: Config, layer: int | None, sparse: bool) -> int:
    """Muse Spark: two gates of the residual, 2 h, and norms before and after the experts, 2 h_moe. [parameter]"""
    del layer
    return 2 * (config.size("hidden") + config.size("latent_width") * sparse)


def _block_queries(config: Config, layer: int | None, sparse: bool) -> int:
    """Inkling 2: a query that gathers the experts' input from earlier blocks: h; and the gates of looped layers."""
    del sparse
    from roofcast.modelspec.loops import loop_parameters  # noqa: PLC0415 - only this class may have one

    return config.size("hidden") + loop_parameters(config, layer)


LAYER_EXTRAS: Final[Mapping[str, Callable[[Config, int | None, bool], int]]] = {
    "adaptive_norm": _adaptive_norm,
    "dynamic_mask": _dynamic_mask,
    "gated_norms": _gated_norms,
    "gemma3n": _gemma3n_layer,
    "gated_streams": _gated_residual_layer,
    "gemma4": _gemma4_layer,
    "hyper_connections": _hyper_connection_layer,
    "independent_connections": _independent_connections,
    "inkling": lambda *_: 1,  # the scale of the feed-forward, or of its experts
    "inkling2": _block_queries,
    "inner_norms": _inner_norms,
    "jetmoe": lambda config, *_: 2 * config.size("hidden"),  # JetMoE: a bias on what each set of experts adds
    "lambdas": _lambdas,
    "muse_spark": _residual_gates,
    "norm_biases": _norm_biases,
    "normed_experts": _normed_experts,
    "post_norms": _post_norms,
    "rwkv": lambda config, *_: 2 * config.size("hidden"),  # RWKV-4: two mixes of channel mixing
    "sandwich": _sandwich,
    "streams": _hyper_connection_layer,  # GLM-5.3: as DeepSeek-V4's, but streams are averaged before the head
    "two_alphas": lambda *_: 2,  # Apertus: the two slopes of its activation
    "umt5": _position_biases_of_layer,
    "zaya": _residual_scales,
}
MODEL_EXTRAS: Final[Mapping[str, Callable[[Config], int]]] = {
    "gemma3n": _per_layer_width,  # a norm
    "gated_streams": _gated_residual_model,
    "gemma4": _per_layer_width,
    "hyper_connections": _hyper_connection_head,
    "independent_connections": _hyper_connection_head,
    "learned_frequencies": _learned_frequencies,
    "inkling2": lambda config: config.size("hidden"),  # the query that gathers what the head reads
    "t5": _position_biases,
    "zaya": _zaya_model,
}
# matrices of a layer, of the model outside its layers, and tables beside the embedding that a token only looks up in;
# what they hold adds to the weights above
LAYER_MATRICES: Final[Mapping[str, Callable[[Config], tuple[Matrix, ...]]]] = {
    "gemma3n": _gemma3n_matrices,
    "gemma4": _per_layer_input,
    "rwkv": _receptance,
}
MODEL_MATRICES: Final[Mapping[str, Callable[[Config], tuple[Matrix, ...]]]] = {
    "gemma3n": _gemma3n_projections,
    "gemma4": _per_layer_projection,
}
TABLES: Final[Mapping[str, Callable[[Config], tuple[Matrix, ...]]]] = {
    "bart": _own_embeddings,
    "gemma3n": _per_layer_table,
    "gated_streams": ngram_tables,
    "gemma4": _per_layer_table,
    "mllama": lambda config: (Matrix("embed_tokens", MLLAMA_ROWS, config.size("hidden"), linear=False),),
}


def layer_extra(config: Config, layer: int | None, *, sparse: bool) -> tuple[int, tuple[Matrix, ...]]:
    """Weights of one layer that no trait of its class tells, and those matrices in it that have a name. [parameter]"""
    row = LAYER_EXTRAS.get(config.family.extras)
    matrices = _listed(LAYER_MATRICES, config)
    return (row(config, layer, sparse) if row else 0) + _size(matrices), matrices


def model_extra(config: Config) -> dict[str, Any]:
    """Fields of a `ModelSpec`: weights outside the layers that no trait of the class tells, and which are matrices."""
    row = MODEL_EXTRAS.get(config.family.extras)
    matrices, tables = _listed(MODEL_MATRICES, config), _listed(TABLES, config)
    return {
        "other_parameters": (row(config) if row else 0) + _size(matrices),
        "other_matrices": matrices,
        "table_parameters": _size(tables),
        "tables": tables,
    }


def _listed(rows: Mapping[str, Callable[[Config], tuple[Matrix, ...]]], config: Config) -> tuple[Matrix, ...]:
    row = rows.get(config.family.extras)
    return row(config) if row else ()


def _size(matrices: tuple[Matrix, ...]) -> int:
    return sum(matrix.elements for matrix in matrices)
