"""A model as roofcast sees it: its layers, and its parameters by component."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from roofcast.modelspec.config import Config, read_config, short
from roofcast.modelspec.errors import MalformedModelError, UnknownArchitectureError
from roofcast.modelspec.layers import attention_layers, feed_forward_layers
from roofcast.modelspec.strictjson import quoted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roofcast.modelspec.attention import Attention
    from roofcast.modelspec.ffn import FeedForward

QUANTIZATION_KEYS: Final = ("quantization_config", "quantization", "compression_config")  # the last two: MLX, older
# parameters of a norm over its width
NORMS: Final[dict[str, int]] = {"rms": 1, "plain": 1, "layer": 2, "none": 0}


@dataclass(frozen=True, slots=True)
class Layer:
    """One decoder layer.

    Args:
        attention, feed_forward: its two parts.
        norm_parameters: of the norms of width h around them.
    """

    attention: Attention
    feed_forward: FeedForward
    norm_parameters: int

    def parameters(self, hidden: int) -> int:
        """All parameters of the layer. [parameter]"""
        return self.attention.parameters(hidden) + self.feed_forward.parameters + self.norm_parameters


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A decoder: layers, embeddings and head, counted as the reference implementation counts them.

    Args:
        model_type: the class's name in the config.
        known_class: whether what that class fixes in code is known, so that `parameters` is exact.
        layers: every decoder layer, in order.
        hidden, vocab: widths of the residual stream and of the vocabulary.
        tied: whether input and output embedding are one tensor.
        position_parameters: of a learned position table.
        head_bias_parameters: of a bias on the head.
        other_norm_parameters: of norms outside the layers.
        mtp_layers: multi-token-prediction layers in the files, beyond `layers` and not counted in them.
        max_context: tokens the config allows; None where it does not say. [token]
        dtype: the stored format that the config states; None where it states none.
        quantization: the method that the config names, None where weights are stored plainly.
    """

    model_type: str
    known_class: bool
    layers: tuple[Layer, ...]
    hidden: int
    vocab: int
    tied: bool
    position_parameters: int
    head_bias_parameters: int
    other_norm_parameters: int
    mtp_layers: int
    max_context: int | None
    dtype: str | None
    quantization: str | None

    @property
    def components(self) -> dict[str, int]:
        """Parameters by component; their sum is `parameters`. [parameter]"""
        feed_forward = [layer.feed_forward for layer in self.layers]
        experts = sum(ffn.expert_parameters for ffn in feed_forward)
        return {
            "embedding": self.vocab * self.hidden + self.position_parameters,
            "attention": sum(layer.attention.parameters(self.hidden) for layer in self.layers),
            "feed_forward": sum(ffn.parameters for ffn in feed_forward) - experts,
            "experts": experts,
            "norms": sum(layer.norm_parameters for layer in self.layers) + self.other_norm_parameters,
            "head": (0 if self.tied else self.vocab * self.hidden) + self.head_bias_parameters,
        }

    @property
    def parameters(self) -> int:
        """Parameters as the reference implementation counts: tied tensors once, no multi-token prediction. [parameter]

        P = embedding + L (attention + feed-forward + norms) + final norm + head, the sum of `components`.
        """
        return sum(self.components.values())

    @property
    def active_parameters(self) -> int:
        """Parameters that work on one token: of E routed experts k count, embeddings included. [parameter]

        P - sum over layers of (E - k) expert parameters.
        """
        idle = sum(layer.feed_forward.parameters - layer.feed_forward.active_parameters for layer in self.layers)
        return self.parameters - idle

    @property
    def non_embedding_parameters(self) -> int:
        """Active parameters without the embeddings and the head: the N of 2 N FLOP a token. [parameter]

        Source: Kaplan et al. 2020, arXiv:2001.08361, section 2.1.
        """
        parts = self.components
        return self.active_parameters - parts["embedding"] - parts["head"]

    @property
    def router_bias_parameters(self) -> int:
        """Parameters of the routers' correction biases, where the reference counts them. [parameter]"""
        return sum(getattr(layer.feed_forward, "router_bias", 0) for layer in self.layers)

    @property
    def attention_label(self) -> str:
        """Kinds of attention, joined with + where layers differ."""
        return "+".join(dict.fromkeys(layer.attention.label for layer in self.layers))

    @property
    def layer_map(self) -> tuple[tuple[int, Layer], ...]:
        """Runs of equal layers, in order: how many, and what they are."""
        runs: list[tuple[int, Layer]] = []
        for layer in self.layers:
            if runs and runs[-1][1] == layer:
                runs[-1] = (runs[-1][0] + 1, layer)
            else:
                runs.append((1, layer))
        return tuple(runs)

    @property
    def attention_counts(self) -> Counter[Attention]:
        """How many layers each distinct attention has; sums over layers are quick over it."""
        return Counter(layer.attention for layer in self.layers)


def build_spec(raw: Mapping[str, Any], *, counted_in_files: bool = False) -> ModelSpec:
    """Builds the model that a config.json describes.

    Args:
        raw: the keys of config.json.
        counted_in_files: whether weight headers are at hand; without them a class that is not in the table is
            refused, since its biases and norms, and so its parameters, would be a guess.

    Raises:
        MalformedModelError: keys missing, sizes that cannot be, heads that do not divide.
        UnknownArchitectureError: an architecture that is not understood, with the keys that say so.

    >>> spec = build_spec({"model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "vocab_size": 128256,
    ...     "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336})
    >>> spec.parameters, spec.non_embedding_parameters
    (8030261248, 6979588096)
    """
    config = read_config(raw)
    if not (config.known or counted_in_files):
        raise UnknownArchitectureError(_unknown_class(config))
    hidden, family = config.size("hidden"), config.family
    norm = NORMS[family.norm] * hidden
    vocab = _vocab(config)
    _refuse_other_embedding_width(config, hidden)
    around = _layer_norms(config) * norm
    layers = tuple(
        Layer(attention, feed_forward, around)
        for attention, feed_forward in zip(attention_layers(config), feed_forward_layers(config), strict=True)
    )
    final = config.flag("do_layer_norm_before", default=True)
    context = config.optional_size("context")
    return ModelSpec(
        model_type=config.model_type,
        known_class=config.known,
        layers=layers,
        hidden=hidden,
        vocab=vocab,
        tied=config.flag("tie_word_embeddings", default=family.tied),
        position_parameters=0 if family.positions is None else (config.size("context") + family.positions) * hidden,
        head_bias_parameters=vocab * config.trait(family.head_bias),
        other_norm_parameters=(final + family.embedding_norm) * norm,
        mtp_layers=_mtp_layers(config),
        max_context=context,
        dtype=config.dtype(),
        quantization=_quantization(raw),
    )


def _vocab(config: Config) -> int:
    """Rows of the embedding: the padded vocabulary where the file states one.

    Raises:
        MalformedModelError: padding makes it smaller.
    """
    vocab, plain = config.size("vocab"), config.size("vocab_size", 1)
    if vocab < plain:
        msg = f"{config.key_of('vocab')} is {vocab}, less than vocab_size {plain}"
        raise MalformedModelError(msg)
    return vocab


def _layer_norms(config: Config) -> int:
    """Norms of width h in a layer."""
    family = config.family
    if config.flag("new_decoder_architecture"):  # falcon 40B and 180B: one for attention, one for the feed-forward
        return config.size("num_ln_in_parallel_attn", 2)
    if family.single_norm_key and config.flag(family.single_norm_key):
        return 1
    return family.layer_norms


def _mtp_layers(config: Config) -> int:
    """Multi-token-prediction layers that the files hold beyond the decoder's."""
    return config.size("mtp_layers", 0, least=0) * config.size("mtp_transformer_layers", 1, least=0)


def _quantization(raw: Mapping[str, Any]) -> str | None:
    """The quantisation method that the config names."""
    for key in QUANTIZATION_KEYS:
        block = raw.get(key)
        if block is None or block == {}:
            continue
        if not isinstance(block, dict):
            msg = f"{key} is {short(block)}; it must be an object that names the method"
            raise MalformedModelError(msg)
        return next((str(block[name])[:60] for name in ("quant_method", "quant_algo") if block.get(name)), "unnamed")
    return None


def _unknown_class(config: Config) -> str:
    """Why a class that is not in the table cannot be counted from its config alone, and what would do."""
    what = (
        f"model_type {quoted(config.model_type)} is not known" if config.model_type else "config.json has no model_type"
    )
    return f"{what}: its parameters cannot be counted from its config alone; safetensors headers would tell"


def _refuse_other_embedding_width(config: Config, hidden: int) -> None:
    """OPT-350m embeds in another width than it works in; that is not understood yet."""
    width = config.size("word_embed_proj_dim", hidden)
    if width != hidden:
        msg = f"word_embed_proj_dim is {width}, not hidden_size {hidden}: projected embeddings are not understood"
        raise UnknownArchitectureError(msg)
