"""How a checkpoint stores its matrices, read from the quantisation that its config states."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from roofcast.modelspec.errors import MalformedModelError, UndeterminedModelError
from roofcast.modelspec.matrix import EXPERTS, HEAD
from roofcast.modelspec.module_names import Place, names_of
from roofcast.modelspec.nested import text_model
from roofcast.modelspec.spec import QUANTIZATION_KEYS
from roofcast.modelspec.spelling import SPELLINGS
from roofcast.modelspec.strictjson import kind_of, quoted, short

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from roofcast.modelspec.matrix import Placed
    from roofcast.modelspec.module_names import Names
    from roofcast.modelspec.schemes import Scheme

    Block = Mapping[str, Any]
    Reader = Callable[["Stated"], "Packing"]

# what a default reaches: linear layers outside the head, those inside decoder layers, routed experts, every matrix
LINEAR: Final = "linear"
LINEAR_AND_HEAD: Final = "linear and head"
LAYERS: Final = "layers"
ROUTED: Final = "experts"
EVERY: Final = "every"
_REACHES: Final[Mapping[str, Callable[[Placed], bool]]] = {
    LINEAR: lambda placed: placed.matrix.linear and placed.component != HEAD,
    LINEAR_AND_HEAD: lambda placed: placed.matrix.linear,
    LAYERS: lambda placed: placed.matrix.linear and placed.layer is not None,
    ROUTED: lambda placed: placed.component == EXPERTS or ".experts." in f".{placed.matrix.name}",
    EVERY: lambda _: True,
}
MOST_GROUPS: Final = 256  # ways of storing that one checkpoint may mix
LONGEST: Final = 1 << 16  # side of a block
# words of a list of exceptions that name what stands beside the decoder
_BESIDE: Final = (
    "vis",
    "vit",
    "vpm",
    "tower",
    "projector",
    "audio",
    "image",
    "apm",
    "resampler",
    "connector",
    "talker",
)


@dataclass(frozen=True, slots=True)
class Rule:
    """Modules that a list names, and how they are stored; None is plainly."""

    names: Names
    scheme: Scheme | None


@dataclass(frozen=True, slots=True)
class Packing:
    """How a checkpoint stores its matrices.

    Args:
        method: as the config names it.
        rules: lists of modules; the first that names a matrix decides.
        default: of matrices that no rule names and that `reach` reaches; None is plainly.
        reach: which these are.
        divides: columns that a matrix must be a multiple of to be packed at all.
        spares_towers: whether towers beside the decoder are known to be stored plainly.
        assumptions: what the config leaves open, a line each.
    """

    method: str
    rules: tuple[Rule, ...]
    default: Scheme | None
    reach: str
    divides: int = 1
    spares_towers: bool = True
    assumptions: tuple[str, ...] = ()

    def shares(self, placed: Placed) -> tuple[tuple[float, Scheme | None], ...]:
        """Shares of a matrix's experts (all of any other matrix) and how each is stored. [-]"""
        matrix, left = placed.matrix, 1.0
        found: list[tuple[float, Scheme | None]] = []
        if matrix.columns % self.divides:
            return ((1.0, None),)
        for rule in self.rules:
            share = min(rule.names.share(placed.layer, matrix.name, matrix.count), left)
            if share > 0:
                found.append((share, rule.scheme))
                left -= share
            if left <= 0:
                return tuple(found)
        return (*found, (left, self.default if _REACHES[self.reach](placed) else None))


@dataclass(frozen=True, slots=True)
class Stated:
    """A quantisation as a config states it.

    Args:
        block: the object that states it.
        key: where it stands.
        raw: the config around it.
        place: of what model its lists are.
        nested: whether it is the text model's own, and says nothing of what stands beside.
    """

    block: Block
    key: str
    raw: Block
    place: Place
    nested: bool = False

    def size(self, key: str, default: int | None = None, *, block: Block | None = None) -> int:
        """A whole number above 0, or 0 for one stated as -1: all of them.

        Raises:
            UndeterminedModelError: absent without a default.
            MalformedModelError: no such number.
        """
        value = (self.block if block is None else block).get(key)
        if value is None and default is not None:
            return default
        if value is None:
            msg = f"{self.key} does not state {key}"
            raise UndeterminedModelError(msg)
        if type(value) is not int or not (0 < value <= 1 << 20 or value == -1):
            msg = f"{self.key}: {key} is {short(value)}; it must be a whole number above 0"
            raise MalformedModelError(msg)
        return max(value, 0)

    def bits(self, block: Block | None = None, key: str = "bits") -> int:
        """Bits of an element, 1 to 16.

        Raises:
            MalformedModelError: none, or no such number.
        """
        bits = self.size(key, block=block)
        if not 1 <= bits <= 16:  # noqa: PLR2004 - no quantiser has more
            msg = f"{self.key}: {key} is {bits}; it must be between 1 and 16"
            raise MalformedModelError(msg)
        return bits

    def pair(self, key: str, value: object) -> tuple[int, int]:
        """Rows and columns of a block.

        Raises:
            MalformedModelError: it is no list of two whole numbers.
        """
        match value:
            case [int(rows), int(columns)] if 0 < rows <= LONGEST and 0 < columns <= LONGEST:
                return int(rows), int(columns)
        msg = f"{self.key}: {key} is {short(value)}; it must be two whole numbers, as [128, 128]"
        raise MalformedModelError(msg)

    def names(self, *keys: str) -> Names:
        """The modules that the first of these keys lists.

        Raises:
            MalformedModelError: it is no list of names.
        """
        key = next((key for key in keys if self.block.get(key)), keys[0])
        listed: object = self.block.get(key) or []
        if isinstance(listed, str):
            listed = [listed]
        if not isinstance(listed, list) or not all(isinstance(name, str) for name in listed):
            msg = f"{self.key}: {key} is {short(listed)}; it must be a list of names of modules"
            raise MalformedModelError(msg)
        return names_of(listed, self.place)

    def spared(self, *keys: str) -> tuple[Rule, ...]:
        """The rule that leaves the modules of such a list plain; none of an empty one.

        Raises:
            MalformedModelError: it is no list of names.
        """
        return rules((self.names(*keys), None))

    def spares_towers(self, *keys: str) -> bool:
        """Whether a list of exceptions names what stands beside the decoder."""
        lists = (self.block.get(key) for key in keys)
        listed = [str(name) for found in lists if isinstance(found, list) for name in found]
        return any(word in name for name in listed for word in _BESIDE)

    def part(self, key: str, block: Block | None = None) -> Block:
        """An object within it, empty where absent.

        Raises:
            MalformedModelError: it is none.
        """
        value = (self.block if block is None else block).get(key)
        if value is None:
            return {}
        if not isinstance(value, dict):
            msg = f"{self.key}: {key} is {short(value)}; it must be an object"
            raise MalformedModelError(msg)
        return value


def stated(raw: Block, layers: int) -> Stated | None:
    """The quantisation that a config states, None where it states none.

    Raises:
        MalformedModelError: it is no object.
    """
    text = text_model(raw).raw
    for key in QUANTIZATION_KEYS:
        block = text.get(key)
        if not block:
            continue
        if not isinstance(block, dict):
            msg = f"{key} is {kind_of(block)}; it must be an object"
            raise MalformedModelError(msg)
        inner = block.get("quantization")  # hf_quant_config.json as a whole
        whole = inner if isinstance(inner, dict) and "quant_algo" in inner else block
        place = Place(layers, SPELLINGS.get(str(text.get("model_type"))))
        return Stated(whole, key, text, place, nested=not any(raw.get(name) for name in QUANTIZATION_KEYS))
    return None


def read_packing(raw: Block, layers: int) -> Packing | None:
    """How a checkpoint stores its matrices, None where its config states no quantisation.

    Args:
        raw: the keys of config.json, with those of hf_quant_config.json where that states it.
        layers: of the decoder.

    Raises:
        MalformedModelError: the quantisation is stated in a way that cannot be.
        UndeterminedModelError: its method is not understood.
    """
    found = stated(raw, layers)
    if found is None:
        return None
    from roofcast.modelspec.quantizers import READERS  # noqa: PLC0415 - it needs the types above

    name = method_of(found)
    reader = READERS.get(name)
    if reader is None:
        said = found.block.get("quant_method")
        shown = quoted(said if isinstance(said, str) and said else name)
        msg = f"quantisation {shown} is not understood; known: {', '.join(READERS)}"
        raise UndeterminedModelError(msg)
    packing = reader(found)
    return replace(packing, spares_towers=packing.spares_towers or found.nested)


def method_of(found: Stated) -> str:
    """The method by its name or, where a file names none, by what it has."""
    block = found.block
    named = block.get("quant_method")
    if isinstance(named, str) and named:
        return named.lower().replace("_", "-")
    by_key = (
        ("quant_algo", "modelopt"),
        ("quantized_layers", "modelopt"),
        ("kv_cache_quant_algo", "modelopt"),
        ("config_groups", "compressed-tensors"),
        ("bits", "mlx"),
    )
    return next((method for key, method in by_key if key in block), "unnamed")


def rules(*pairs: tuple[Names, Scheme | None]) -> tuple[Rule, ...]:
    """Rules of these lists, empty ones left out."""
    return tuple(Rule(names, scheme) for names, scheme in pairs if names.exact or names.starts or names.wild)


def grouped(found: Stated, named: Iterable[tuple[str, Scheme | None]]) -> tuple[Rule, ...]:
    """Rules of modules named one by one, those with one scheme together."""
    by_scheme: dict[Scheme | None, list[str]] = {}
    for name, scheme in named:
        by_scheme.setdefault(scheme, []).append(name)
    if len(by_scheme) > MOST_GROUPS:
        msg = f"{found.key} has modules of {len(by_scheme):,} kinds; at most {MOST_GROUPS} are understood"
        raise UndeterminedModelError(msg)
    return rules(*((names_of(names, found.place), scheme) for scheme, names in by_scheme.items()))
