"""Embeddings of hashed n-grams that some layers mix into the residual's streams (per-layer embedding of Qwen4-Exp)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Final, Self

from roofcast.modelspec.errors import MalformedModelError
from roofcast.modelspec.keys import is_off
from roofcast.modelspec.matrix import Matrix
from roofcast.modelspec.plan import LINEAR, NGRAM, Slot, layer_numbers
from roofcast.modelspec.state import Kept, Keyless, fixed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from roofcast.modelspec.config import Config

LARGEST: Final = 10_000  # tables of a model, each of a prime number of rows; far above any model there is
# enough for every number below 3,215,031,751. Source: Jaeschke 1993, doi:10.1090/S0025-5718-1993-1192971-8
_WITNESSES: Final = (2, 3, 5, 7)


@dataclass(frozen=True, slots=True)
class NgramMemory(Keyless):
    """What a layer adds of the last tokens' n-grams: gated by each stream, then behind a dilated convolution.

    Args:
        streams, hidden: of the residual.
        width: of the n-grams' embeddings, all heads together.
        conv_kernel: columns of the convolution. [token]
        dilation: tokens from one column to the next; the longest n-gram. [token]
    """

    streams: int
    hidden: int
    width: int
    conv_kernel: int
    dilation: int

    label: ClassVar[str] = "n-gram memory"
    query_heads: ClassVar[int] = 0

    @property
    def state(self) -> tuple[Kept, ...]:
        """Tokens that the convolution reaches back: m h (k - 1) n in the model's format. [element]

        The ids of the last n - 1 tokens, which it hashes with the next one, are the sequence's own and not counted.

        >>> NgramMemory(4, 2048, 2048, 4, 3).state[0].elements
        73728
        """
        return (fixed(self.streams * self.hidden, (self.conv_kernel - 1) * self.dilation),)

    def parameters(self, hidden: int) -> int:
        """Projections to a key a stream and to one value, three norms, the convolution: w h (m + 1) + m h (3 + k).

        Its tables of embeddings are not in it: a token only looks up in them. [parameter]

        >>> NgramMemory(4, 2048, 2048, 4, 3).parameters(2048)
        21028864
        """
        return self.width * hidden * (self.streams + 1) + self.streams * hidden * (3 + self.conv_kernel)

    def matrices(self, hidden: int) -> tuple[Matrix, ...]:
        """Projections to a key a stream and to one value.

        >>> [(m.name, m.rows) for m in NgramMemory(4, 2048, 2048, 4, 3).matrices(2048)]
        [('ple.key_proj', 8192), ('ple.value_proj', 2048)]
        """
        keys = Matrix("ple.key_proj", self.streams * hidden, self.width)
        return keys, Matrix("ple.value_proj", hidden, self.width)

    def prefill_flops(self, tokens: float) -> float:
        """FLOP of the gates over a prompt: key times stream and gate times value, 3 n m h. [FLOP]

        The convolution's own are 2 for each of its weights.

        >>> NgramMemory(4, 2048, 2048, 4, 3).prefill_flops(1000)
        24576000
        """
        return 3 * tokens * self.streams * self.hidden

    def splits(self, tp: int) -> bool:
        """Whether `tp` devices can share the channels: it divides them."""
        return self.hidden % tp == 0

    @classmethod
    def read(cls, config: Config) -> Self:
        """The kind as a config states it.

        Raises:
            MalformedModelError: sizes that cannot be, or heads that do not divide the width.
        """
        width, heads = _width(config), _heads(config)
        if width % heads:
            msg = f"ple_embed_dim {width} must divide by its {heads} heads: (ngram_size - 1) x heads_per_ngram"
            raise MalformedModelError(msg)
        return cls(
            streams=config.size("hc_count", least=2),
            hidden=config.size("hidden"),
            width=width,
            conv_kernel=config.size("ple_conv_kernel_size", least=2),
            dilation=config.size("ngram_size", least=2),
        )


def remembering(config: Config, slots: tuple[Slot, ...]) -> tuple[Slot, ...]:
    """The layers, where those that ple_layer_ids numbers, from 1, begin with such a memory.

    Raises:
        MalformedModelError: layers that there are not, or that are not linear attention.
    """
    numbers = _layers(config)
    wrong = sorted(n for n in numbers if not 0 < n <= len(slots) or slots[n - 1].roles != (LINEAR,))
    if wrong:
        msg = f"ple_layer_ids has {wrong[0]}; it must number layers of linear attention, from 1 to {len(slots)}"
        raise MalformedModelError(msg)
    return tuple(
        replace(slot, roles=(NGRAM, *slot.roles)) if number in numbers else slot
        for number, slot in enumerate(slots, start=1)
    )


def ngram_tables(config: Config) -> tuple[Matrix, ...]:
    """Embeddings of hashed n-grams: in each layer that has them the rows of all heads, padded, times w / heads.

    Every head of every layer has a number of rows of its own: the next prime from ngram_vocab_size_base on.

    Raises:
        MalformedModelError: more tables than any model has.
    """
    layers, heads = len(_layers(config)), _heads(config)
    if not layers:
        return ()
    if layers * heads > LARGEST:
        msg = f"{layers} layers with {heads} n-gram heads each are more than {LARGEST} tables"
        raise MalformedModelError(msg)
    primes = _primes(config.size("ngram_vocab_size_base"))
    padded_to = config.size("make_ngram_vocab_size_divisible_by")
    rows = (sum(next(primes) for _ in range(heads)) for _ in range(layers))
    padded = sum(-(-count // padded_to) * padded_to for count in rows)
    return (Matrix("ple.ple_embedding.ngram_embedding", padded, _width(config) // heads, linear=False),)


def _layers(config: Config) -> frozenset[int]:
    """Numbers of the layers with n-grams, from 1; none where the key is off."""
    return frozenset() if is_off(config.raw.get("ple_layer_ids")) else frozenset(layer_numbers(config, "ple_layer_ids"))


def _heads(config: Config) -> int:
    """Heads that hash: so many for pairs, for triples and so on up to the longest n-gram."""
    return (config.size("ngram_size", least=2) - 1) * config.size("heads_per_ngram")


def _width(config: Config) -> int:
    return config.size("ple_embed_dim", config.size("hidden"))


def _primes(start: int) -> Iterator[int]:
    """Primes from a number on, itself included.

    >>> primes = _primes(20_000_000)
    >>> next(primes), next(primes)
    (20000003, 20000023)
    """
    number = start
    while True:
        if _is_prime(number):
            yield number
        number += 1


def _is_prime(number: int) -> bool:
    """Whether a number below 3,215,031,751 is prime, by the test of Miller and Rabin.

    >>> [n for n in range(30) if _is_prime(n)], _is_prime(561), _is_prime(25326001)
    ([2, 3, 5, 7, 11, 13, 17, 19, 23, 29], False, False)
    """
    if number < 2 or any(number % small == 0 for small in _WITNESSES):  # noqa: PLR2004 - the first prime
        return number in _WITNESSES
    twos = ((number - 1) & -(number - 1)).bit_length() - 1
    odd = (number - 1) >> twos
    return all(
        (power := pow(witness, odd, number)) == 1
        or any(pow(power, 2**step, number) == number - 1 for step in range(twos))
        for witness in _WITNESSES
    )
