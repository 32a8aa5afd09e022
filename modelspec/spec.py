"""A model as roofcast sees it: its layers, and its parameters by component."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from roofcast.modelspec.config import Config, listed, read_config
from roofcast.modelspec.errors import MalformedModelError, UnknownArchitectureError
from roofcast.modelspec.features import UNCOUNTED
from roofcast.modelspec.ffn import MoeFeedForward
from roofcast.modelspec.keys import ENCODER_TOKENS, is_off
from roofcast.modelspec.layers import NORMS, Layer, read_layers
from roofcast.modelspec.nested import text_model
from roofcast.modelspec.strictjson import quoted, short
from roofcast.modelspec.tower import Tower, find_encoder, find_wrapper

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roofcast.modelspec.attention import Attention
    from roofcast.modelspec.matrix import Matrix
    from roofcast.modelspec.nested import TextModel
    from roofcast.modelspec.state import Kept

QUANTIZATION_KEYS: Final = ("quantization_config", "quantization", "compression_config")  # the last two: MLX, older


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
        table_parameters: of further tables that tokens look up in: per-layer embeddings, spare rows.
        tables: these tables, as far as they have names.
        head_bias_parameters: of a bias on the head.
        other_norm_parameters: of norms outside the layers.
        other_parameters: of what belongs to no other component.
        other_matrices: those among these, outside the layers.
        max_context: tokens the config allows; None where it does not say. [token]
        dtype: the stored format that the config states; None where it states none.
        quantization: the method that the config names, None where weights are stored plainly.
        towers: what stands beside the decoder: vision and audio towers, projectors, an encoder.
        unknown_towers: class of a multimodal model whose towers are not known; empty where all are.
        uncounted: keys that add weights whose number is not known.
        draft: multi-token-prediction layers in the files, beyond `layers` and not counted in them.
        draft_parameters: of these layers, with what joins them to the decoder.
        drafting: whether they are in use: then their state and parameters count.
        undrafted: how many such layers the files hold where no public code tells what is in them.
        head_rows: rows of the head where these are not the vocabulary's; None where they are.
        assumptions: what had to be taken as given, a line each.
        unread: keys of the file that say something, but not to its class.
        warnings: where the class does not do what the file says, a line each.
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
    other_parameters: int
    max_context: int | None
    dtype: str | None
    quantization: str | None
    towers: tuple[Tower, ...] = ()
    unknown_towers: str = ""
    uncounted: tuple[str, ...] = ()
    table_parameters: int = 0
    tables: tuple[Matrix, ...] = ()
    other_matrices: tuple[Matrix, ...] = ()
    draft: tuple[Layer, ...] = ()
    draft_parameters: int = 0
    drafting: bool = False
    undrafted: int = 0
    head_rows: int | None = None
    assumptions: tuple[str, ...] = ()
    unread: tuple[str, ...] = field(default=(), compare=False)
    warnings: tuple[str, ...] = ()

    @property
    def total_known(self) -> bool:
        """Whether `parameters` is all that the model holds: towers are known, and no key adds weights that are not."""
        return not (self.unknown_towers or self.uncounted)

    @property
    def components(self) -> dict[str, int]:
        """Parameters by component; their sum is `parameters`. [parameter]"""
        feed_forward = [part for layer in self.layers for part in layer.feed_forwards]
        experts = sum(part.expert_parameters for part in feed_forward)
        mixing = (mixer.parameters(self.hidden) for layer in self.layers for mixer in layer.mixers)
        other = self.other_parameters + sum(layer.other_parameters for layer in self.layers)
        parts = {
            "embedding": self.vocab * self.hidden + self.position_parameters + self.table_parameters,
            "attention": sum(mixing),
            "feed_forward": sum(part.parameters for part in feed_forward) - experts,
            "experts": experts,
            "norms": sum(layer.norm_parameters for layer in self.layers) + self.other_norm_parameters,
            "head": (0 if self.tied else (self.head_rows or self.vocab) * self.hidden) + self.head_bias_parameters,
        }
        beside = {tower.component: tower.parameters for tower in self.towers}
        drafted = {"multi_token_prediction": self.draft_parameters * self.drafting}
        return {**parts, **{name: n for name, n in {"other": other, **beside, **drafted}.items() if n}}

    @property
    def parameters(self) -> int:
        """Parameters as the reference implementation counts: tied tensors once, no multi-token prediction. [parameter]

        P = embedding + L (attention + feed-forward + norms) + final norm + head, the sum of `components`; towers
        beside the decoder count, and with `drafting` multi-token prediction does too.
        """
        return sum(self.components.values())

    @property
    def decoder_parameters(self) -> int:
        """Parameters without what stands beside the decoder. [parameter]"""
        return self.parameters - sum(tower.parameters for tower in self.towers)

    @property
    def active_parameters(self) -> int:
        """Parameters that work on one token: of E routed experts k count, embeddings included. [parameter]

        P - sum over layers of (E - k) expert parameters.
        """
        working = [part for layer in self.active_layers for part in layer.feed_forwards]
        return self.parameters - sum(part.parameters - part.active_parameters for part in working)

    @property
    def non_embedding_parameters(self) -> int:
        """Active decoder parameters without embeddings and head: the N of 2 N FLOP a token. [parameter]

        Source: Kaplan et al. 2020, arXiv:2001.08361, section 2.1.
        """
        parts = self.components
        beside = sum(tower.parameters for tower in self.towers)
        return self.active_parameters - parts["embedding"] - parts["head"] - beside

    @property
    def repeated_parameters(self) -> int:
        """Parameters that work on one token once more, in every further pass of looped layers. [parameter]"""
        again = ((n * (layer.passes - 1), layer) for layer, n in self.layer_counts.items() if layer.passes > 1)
        return sum(times * layer.active_parameters(self.hidden) for times, layer in again)

    @property
    def borrowed_parameters(self) -> int:
        """Elements of matrices that work on one token in a layer and count in another: blocks that recur. [parameter]"""
        counts = self.layer_counts.items()
        return sum(n * layer.passes * part.elements for layer, n in counts for part in layer.borrowed(self.hidden))

    @property
    def router_bias_parameters(self) -> int:
        """Parameters of the routers' correction biases, where the reference counts them. [parameter]"""
        return sum(getattr(part, "router_bias", 0) for layer in self.layers for part in layer.feed_forwards)

    @property
    def active_layers(self) -> tuple[Layer, ...]:
        """The decoder's layers and, with `drafting`, those of multi-token prediction.

        Raises:
            UnknownArchitectureError: drafting, where what is in its layers is not known.
        """
        if self.drafting and self.undrafted:
            msg = f"what the multi-token-prediction layers of model_type {quoted(self.model_type)} hold is not known"
            raise UnknownArchitectureError(msg)
        return (*self.layers, *(self.draft if self.drafting else ()))

    @property
    def mtp_layers(self) -> int:
        """How many multi-token-prediction layers the files hold."""
        return len(self.draft) or self.undrafted

    @property
    def attention_label(self) -> str:
        """Kinds of attention, joined with + where layers differ."""
        return "+".join(dict.fromkeys(layer.label for layer in self.layers if layer.mixers)) or "none"

    @property
    def lead_mixer(self) -> Attention | None:
        """The first layer's mixer that has KV heads, else the first there is; None of a model without any."""
        every = [mixer for layer in self.layers for mixer in layer.mixers]
        return next((mixer for mixer in every if mixer.published_kv_heads), every[0] if every else None)

    @property
    def layer_map(self) -> tuple[tuple[int, Layer], ...]:
        """Runs of equal layers, in order: how many, and what they are."""
        return tuple((sum(1 for _ in run), layer) for layer, run in groupby(self.layers))

    @property
    def layer_counts(self) -> Counter[Layer]:
        """How many of each distinct layer there are; sums over layers are quick over it."""
        return Counter(self.active_layers)

    @property
    def kept(self) -> Counter[Kept]:
        """How many layers keep each distinct part of state."""
        parts: Counter[Kept] = Counter()
        for layer, count in self.layer_counts.items():
            for part in layer.state:
                parts[part] += count
        return parts

    @property
    def experts(self) -> tuple[MoeFeedForward, ...]:
        """The mixtures of experts, one a layer that has one."""
        return tuple(part for layer in self.layers for part in layer.feed_forwards if isinstance(part, MoeFeedForward))


def build_spec(
    raw: Mapping[str, Any], *, counted_in_files: bool = False, encoder_tokens: int | None = None
) -> ModelSpec:
    """Builds the model that a config.json describes.

    Args:
        raw: the keys of config.json.
        counted_in_files: whether weight headers are at hand; without them a class that is not in the table is
            refused, since its biases and norms, and so its parameters, would be a guess.
        encoder_tokens: tokens of the encoder, or of the images, that cross attention keeps. None is as many as the
            class always has; where only the input tells, parameters count but asking for the state is an error.

    Raises:
        MalformedModelError: keys missing, sizes that cannot be, heads that do not divide.
        UnknownArchitectureError: an architecture that is not understood, with the keys that say so.

    >>> spec = build_spec({"model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "vocab_size": 128256,
    ...     "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336})
    >>> spec.parameters, spec.non_embedding_parameters
    (8030261248, 6979588096)
    """
    text = text_model(raw)
    config = _config_of(text.raw, encoder_tokens, counted_in_files=counted_in_files)
    hidden, family = config.size("hidden"), config.family
    norm = NORMS[family.norm] * hidden
    vocab = _vocab(config)
    _refuse_other_embedding_width(config, hidden)
    _refuse_half(config)
    layers = read_layers(config)
    draft, draft_parameters, undrafted = _draft(config, layers)
    final = family.final_norm and config.flag("do_layer_norm_before", default=True)
    towers, unknown = _towers(raw, text, config)
    return ModelSpec(
        model_type=text.outer or config.model_type,
        known_class=config.known,
        layers=layers,
        hidden=hidden,
        vocab=vocab,
        tied=_tied(config),
        position_parameters=0 if family.positions is None else (config.size("context") + family.positions) * hidden,
        head_bias_parameters=vocab * config.trait(family.head_bias),
        other_norm_parameters=(final + family.embedding_norm) * norm,
        **_extra(config),
        max_context=config.optional_size("context"),
        dtype=config.dtype(),
        quantization=_quantization(text.raw),
        towers=towers,
        unknown_towers=unknown,
        uncounted=tuple(key for key in UNCOUNTED if not is_off(config.raw.get(key))),
        draft=draft,
        draft_parameters=draft_parameters,
        undrafted=undrafted,
        head_rows=config.size("unpadded_vocab_size") if config.trait_value("own_head_rows") else None,
        assumptions=_assumptions(text, config),
        unread=config.unread,
        warnings=_warnings(config),
    )


def _config_of(raw: Mapping[str, Any], encoder_tokens: int | None, *, counted_in_files: bool) -> Config:
    """The config of the text model, of a class that is known or whose files are at hand."""
    config = read_config(raw)
    if not (config.known or counted_in_files):
        raise UnknownArchitectureError(_unknown_class(config))
    return config if encoder_tokens is None else replace(config, raw={**config.raw, ENCODER_TOKENS: encoder_tokens})


def _draft(config: Config, layers: tuple[Layer, ...]) -> tuple[tuple[Layer, ...], int, int]:
    """The draft layers, their parameters, and how many there are of which no public code shows what they hold."""
    count = config.size("mtp_layers", 0, least=0)
    if not count or config.trait_value("draft_unknown"):
        return (), 0, count
    from roofcast.modelspec.draft import read_draft  # noqa: PLC0415 - few models have any

    return (*read_draft(config, layers), 0)


def _extra(config: Config) -> dict[str, Any]:
    """The fields of weights that no trait of the class tells: outside the layers, and of tables beside the embedding."""
    if not config.family.extras:
        return {"other_parameters": 0}
    from roofcast.modelspec.extras import model_extra  # noqa: PLC0415 - few classes have any

    return model_extra(config)


def _towers(raw: Mapping[str, Any], text: TextModel, config: Config) -> tuple[tuple[Tower, ...], str]:
    """What stands beside the decoder, and the class of a multimodal model of which that is not known."""
    encoder = find_encoder(config.model_type) if config.known and config.has("encoder") else None
    beside = encoder(text.raw) if encoder else ()
    if not text.outer:
        return beside, ""
    wrapper = find_wrapper(text.outer)
    return (beside + wrapper(raw, config.size("hidden")), "") if wrapper else (beside, text.outer)


def _assumptions(text: TextModel, config: Config) -> tuple[str, ...]:
    """What the file leaves to its class, a line each."""
    lines = list(text.notes)
    if text.completed:
        said = ", ".join(f"{key} {text.raw[key]}" for key in text.completed)
        lines.append(f"its nested text model leaves these to its class {quoted(config.model_type)}: {said}")
    if text.ties_unsaid and not config.family.tied:
        head = f"{_vocab(config) * config.size('hidden'):,}"
        lines.append(f"tie_word_embeddings is not stated: head taken as tied, as its class does; untied adds {head}")
    return tuple(lines)


def _warnings(config: Config) -> tuple[str, ...]:
    """What the class does against the file's word, a line each."""
    if not (config.trait_value("ties") and config.raw.get("tie_word_embeddings") is False):
        return ()
    head = f"{_vocab(config) * config.size('hidden'):,}"
    text = "tie_word_embeddings is false, but its class ties all the same: weight files may hold a head"
    return (f"{text} of {head} parameters more",)


def _tied(config: Config) -> bool:
    """Whether input and output embedding are one: as the class insists, else as the file says, else the default."""
    stated = config.flag("tie_word_embeddings", default=config.family.tied)
    stated = config.flag(config.trait_value("tie_key", ""), default=stated)
    fixed: bool | None = config.trait_value("ties")
    return stated if fixed is None else fixed


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


def _quantization(raw: Mapping[str, Any]) -> str | None:
    """The quantisation method that the config names."""
    for key in QUANTIZATION_KEYS:
        block = raw.get(key)
        if block is None or block == {}:
            continue
        if not isinstance(block, dict):
            msg = f"{key} is {short(block)}; it must be an object that names the method"
            raise MalformedModelError(msg)
        named = (str(block[name])[:60] for name in ("quant_method", "quant_algo") if block.get(name))
        return next(named, "MLX" if block.get("bits") and key == "quantization" else "unnamed")
    return None


def _unknown_class(config: Config) -> str:
    """Why a class that is not in the table cannot be counted from its config alone, and what would do."""
    what = (
        f"model_type {quoted(config.model_type)} is not known" if config.model_type else "config.json has no model_type"
    )
    return f"{what}: its parameters cannot be counted from its config alone; safetensors headers would tell"


def _refuse_half(config: Config) -> None:
    """An encoder or a decoder alone, or another head, is not the encoder-decoder that is counted."""
    names = config.raw.get("architectures")
    if not (config.known and config.has("encoder") and isinstance(names, list)):
        return
    others = [
        str(name) for name in names if re.search(r"(Encoder|Decoder)Model$|For(?!ConditionalGeneration)", str(name))
    ]
    if others:
        msg = f"architectures is {listed(others)}: only the whole encoder-decoder with its language head is understood"
        raise UnknownArchitectureError(msg)


def _refuse_other_embedding_width(config: Config, hidden: int) -> None:
    """OPT-350m embeds in another width than it works in; that is not understood yet."""
    width = config.size("word_embed_proj_dim", hidden)
    if width != hidden:
        msg = f"word_embed_proj_dim is {width}, not hidden_size {hidden}: projected embeddings are not understood"
        raise UnknownArchitectureError(msg)
