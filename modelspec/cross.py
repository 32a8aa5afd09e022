"""Attention to an encoder's output: its keys and values are made once and stay."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from roofcast.modelspec.errors import MalformedModelError, UndeterminedModelError
from roofcast.modelspec.heads import read_grouped
from roofcast.modelspec.keys import ENCODER_TOKENS
from roofcast.modelspec.plan import FULL
from roofcast.modelspec.state import CACHE, Kept, Steady, fixed

if TYPE_CHECKING:
    from roofcast.modelspec.attention import GroupedAttention
    from roofcast.modelspec.config import Config
    from roofcast.modelspec.matrix import Matrix
    from roofcast.modelspec.plan import Slot


@dataclass(frozen=True, slots=True)
class CrossAttention(Steady):
    """Attention of a decoder to the tokens of an encoder, or of an image.

    Args:
        geometry: heads, widths, biases and norms.
        encoder_tokens: tokens of the other side that the state is counted for; 0 is none (a prompt of text alone),
            None where only the input tells.
        gate_parameters: of the gates around it.
    """

    geometry: GroupedAttention
    encoder_tokens: int | None
    gate_parameters: int = 0

    @property
    def label(self) -> str:
        """Cross attention."""
        return "cross"

    @property
    def query_heads(self) -> int:
        """Heads of Q."""
        return self.geometry.query_heads

    @property
    def published_kv_heads(self) -> int:
        """KV heads as the config states them."""
        return self.geometry.kv_heads

    @property
    def window(self) -> int | None:
        """It sees all of the encoder's tokens."""
        return None

    @property
    def state(self) -> tuple[Kept, ...]:
        """Keys and values of every encoder token, from the first decoded token on: E n_kv (d_k + d_v) elements.

        Raises:
            UndeterminedModelError: nothing says how many there are.

        >>> from roofcast.modelspec.attention import GroupedAttention
        >>> CrossAttention(GroupedAttention(6, 6, 64, 64), 1500).state[0].elements  # a decoder layer of Whisper-tiny
        1152000
        """
        one, tokens = self.geometry, self._tokens()
        if not tokens:
            return ()
        return (fixed(one.kv_heads, tokens * (one.head_dim + one.value_head_dim), CACHE),)

    def parameters(self, hidden: int) -> int:
        """Weights of Q, K, V and output as in self-attention, and the gates. [parameter]"""
        return self.geometry.parameters(hidden) + self.gate_parameters

    def matrices(self, hidden: int) -> tuple[Matrix, ...]:
        """Q, K, V and output as in self-attention; gates are single numbers.

        >>> from roofcast.modelspec.attention import GroupedAttention
        >>> CrossAttention(GroupedAttention(6, 6, 64, 64), 1500).matrices(384)[0].name
        'cross_attn.q_proj'
        """
        own = self.geometry.matrices(hidden)
        return tuple(replace(matrix, name=matrix.name.replace("self_attn", "cross_attn", 1)) for matrix in own)

    def prefill_flops(self, tokens: float) -> float:
        """FLOP of Q K^T and P V: 2 n E n_q (d_k + d_v). [FLOP]

        Raises:
            UndeterminedModelError: as `state`.
        """
        one = self.geometry
        return 2 * tokens * self._tokens() * one.query_heads * (one.head_dim + one.value_head_dim)

    def splits(self, tp: int) -> bool:
        """Whether `tp` devices can share the heads."""
        return self.geometry.splits(tp)

    def _tokens(self) -> int:
        if self.encoder_tokens is None:
            msg = (
                "its decoder keeps keys and values of every encoder token, and no key says how many these are: "
                "give --encoder-tokens N"
            )
            raise UndeterminedModelError(msg)
        return self.encoder_tokens


def read_cross(config: Config, slot: Slot, role: str) -> CrossAttention:
    """Attention to an image's or an encoder's tokens."""
    del role
    geometry = read_grouped(config, slot, FULL)
    if config.trait_value("cross_qk_norm"):
        geometry = replace(geometry, qk_norm_parameters=2 * geometry.head_dim)
    gates = config.trait_value("cross_gate_parameters", 0)
    return CrossAttention(geometry, _encoder_tokens(config), gate_parameters=gates)


def _encoder_tokens(config: Config) -> int | None:
    """Tokens of the other side: as asked, else as the class always has; None where only the input tells.

    Raises:
        MalformedModelError: more than the encoder has positions.
    """
    limit = config.optional_size("encoder_limit")
    always = limit if config.trait_value("encoder_is_full") else config.trait_value("encoder_tokens")
    if config.value(ENCODER_TOKENS) is None:
        return None if always is None else int(always)
    tokens = config.size(ENCODER_TOKENS, least=0)
    if limit is not None and tokens > limit:
        msg = f"{tokens} encoder tokens are more than {config.key_of('encoder_limit')}, {limit}"
        raise MalformedModelError(msg)
    return tokens
