"""A ModelSpec as JSON and back: equal layers written once, kinds named by their row in `KINDS`."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from functools import cache
from types import NoneType
from typing import TYPE_CHECKING, Any, Final, TypeVar, get_args, get_origin, get_type_hints

from roofcast.modelspec.attention import Attention
from roofcast.modelspec.config import listed
from roofcast.modelspec.errors import MalformedModelError, UndeterminedModelError
from roofcast.modelspec.ffn import DenseFeedForward, FeedForward, MoeFeedForward
from roofcast.modelspec.formats import FORMATS
from roofcast.modelspec.indexer import Indexer
from roofcast.modelspec.kinds import KINDS
from roofcast.modelspec.layers import Layer
from roofcast.modelspec.linear import LinearFeedForward
from roofcast.modelspec.matrix import Matrix
from roofcast.modelspec.shared import SharedFeedForward
from roofcast.modelspec.spec import ModelSpec
from roofcast.modelspec.state import CACHE, FP32, MODEL
from roofcast.modelspec.strictjson import kind_of, short
from roofcast.modelspec.tower import Tower

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roofcast.modelspec.state import Kept

T = TypeVar("T")

SCHEMA: Final = "roofcast.modelspec/1"
KIND: Final = "kind"  # the key of a value that names its class
TABLE: Final = "layer_table"  # the distinct layers; `layers` and `draft` are indexes into it
LARGEST: Final = 2**63 - 1  # far above any count there is; a document beyond it is a slip
FEED_FORWARDS: Final[dict[str, type]] = {
    "dense": DenseFeedForward,
    "moe": MoeFeedForward,
    "linear": LinearFeedForward,
    "shared": SharedFeedForward,
}
MIXERS: Final[dict[str, type]] = {name: kind.cls for name, kind in KINDS.items()}
# what a field is declared as -> the classes that its value may have, by the name that `kind` gives
OPEN: Final[dict[type, Mapping[str, type]]] = {Attention: MIXERS, FeedForward: FEED_FORWARDS}
NAME_OF: Final = {cls: name for names in OPEN.values() for name, cls in reversed(list(names.items()))}
SCALARS: Final[dict[type, str]] = {int: "a whole number from 0", str: "a string", bool: "true or false"}
_TYPES: Final = {cls.__name__: cls for cls in (*OPEN, *NAME_OF, Indexer, Layer, Matrix, Tower)}


def spec_to_json(spec: ModelSpec) -> dict[str, Any]:
    """The model as plain JSON values; `spec_from_json` makes an equal one of them.

    >>> from roofcast.modelspec.spec import build_spec
    >>> document = spec_to_json(build_spec({"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 32,
    ...     "num_attention_heads": 8, "num_key_value_heads": 8, "intermediate_size": 96, "vocab_size": 500}))
    >>> document["schema"], len(document["layer_table"]), document["layers"][-1]
    ('roofcast.modelspec/1', 1, 0)
    >>> document["layer_table"][0]["mixers"][0]["kind"], spec_from_json(document).parameters
    ('grouped', 1182272)
    """
    numbers: dict[Layer, int] = {}
    lists = {name: [numbers.setdefault(layer, len(numbers)) for layer in layers] for name, layers in _lists(spec)}
    own = {name: _plain(getattr(spec, name)) for name in _field_types(ModelSpec) if name not in lists}
    return {"schema": SCHEMA, **own, TABLE: [_plain(layer) for layer in numbers], **lists}


def spec_from_json(data: object) -> ModelSpec:
    """The model that a document of `spec_to_json` holds.

    Raises:
        MalformedModelError: another schema, unknown kinds, fields missing, extra or of a wrong type, or values that
            no model has.

    >>> spec_from_json({"schema": "roofcast.modelspec/2"})
    Traceback (most recent call last):
    roofcast.modelspec.errors.MalformedModelError: schema is 'roofcast.modelspec/2'; it must be 'roofcast.modelspec/1'
    """
    document = _object(data, "the document")
    if document.get("schema") != SCHEMA:
        shown = _shown(document["schema"]) if "schema" in document else "missing"
        msg = f"schema is {shown}; it must be {SCHEMA!r}"
        raise MalformedModelError(msg)
    types = _field_types(ModelSpec)
    _check_names(document, ("schema", TABLE, *types), "the document")
    table = _read(tuple[Layer, ...], document[TABLE], TABLE)
    values: dict[str, Any] = {}
    for name, declared in types.items():
        is_list = declared == tuple[Layer, ...]
        values[name] = _look_up(document[name], table, name) if is_list else _read(declared, document[name], name)
    spec = ModelSpec(**values)
    _check_sense(spec)
    return spec


def _lists(spec: ModelSpec) -> list[tuple[str, tuple[Layer, ...]]]:
    """The fields that hold layers."""
    return [(name, getattr(spec, name)) for name, kind in _field_types(ModelSpec).items() if kind == tuple[Layer, ...]]


@cache
def _field_types(cls: type) -> dict[str, Any]:
    """Fields of a dataclass and their types."""
    hints = get_type_hints(cls, localns=_TYPES)
    return {field.name: hints[field.name] for field in fields(cls)}


def _plain(value: Any) -> Any:  # noqa: ANN401 - JSON
    """A value as JSON has it: objects for dataclasses, lists for tuples."""
    if isinstance(value, tuple):
        return [_plain(entry) for entry in value]
    if not is_dataclass(value):
        return value
    cls: type = type(value)
    named = {KIND: NAME_OF[cls]} if cls in NAME_OF else {}
    return {**named, **{name: _plain(getattr(value, name)) for name in _field_types(cls)}}


def _read(declared: Any, value: object, where: str) -> Any:  # noqa: ANN401 - what the type says
    """The value that a field of that type has."""
    options = [option for option in get_args(declared) if option is not NoneType]
    if get_origin(declared) is tuple:
        if not isinstance(value, list):
            raise _wrong(value, "a list", where)
        return tuple(_read(options[0], entry, f"{where}[{index}]") for index, entry in enumerate(value))
    if options:  # a type or None
        return None if value is None else _read(options[0], value, where)
    if declared not in SCALARS:
        return _read_object(declared, value, where)
    if type(value) is not declared or (type(value) is int and not 0 <= value <= LARGEST):
        raise _wrong(value, SCALARS[declared], where)
    return value


def _read_object(declared: type[T], value: object, where: str) -> T:
    """A dataclass of the declared type, or of the class that its `kind` names."""
    found = _object(value, where)
    allowed = OPEN.get(declared, {NAME_OF[declared]: declared} if declared in NAME_OF else {})
    kind = found.get(KIND)
    if allowed and not (isinstance(kind, str) and kind in allowed):
        shown = _shown(kind) if KIND in found else "missing"
        msg = f"{where}.{KIND} is {shown}; known: {', '.join(allowed)}"
        raise MalformedModelError(msg)
    cls: type = allowed[str(kind)] if allowed else declared
    types = _field_types(cls)
    _check_names(found, (*types, KIND) if allowed else tuple(types), where)
    made: T = cls(
        **{name: _read(kind_of_field, found[name], f"{where}.{name}") for name, kind_of_field in types.items()}
    )
    return made


def _object(value: object, where: str) -> dict[str, object]:
    if not isinstance(value, dict):
        raise _wrong(value, "an object", where)
    return value


def _check_names(found: Mapping[str, object], wanted: tuple[str, ...], where: str) -> None:
    """Raises unless an object has these fields and no others."""
    missing = [name for name in wanted if name not in found]
    if missing:
        msg = f"{where} lacks {listed(missing)}"
        raise MalformedModelError(msg)
    extra = [str(name) for name in found if name not in wanted]
    if extra:
        msg = f"{where} has {listed(extra)}, which {SCHEMA} does not; it has {', '.join(wanted)}"
        raise MalformedModelError(msg)


def _look_up(value: object, table: tuple[Layer, ...], where: str) -> tuple[Layer, ...]:
    """The layers that a list of indexes into the table stands for."""
    indexes = _read(tuple[int, ...], value, where)
    beyond = next((index for index in indexes if index >= len(table)), None)
    if beyond is not None:
        msg = f"{where} names layer {beyond} of {TABLE}, which has {len(table)}, counted from 0"
        raise MalformedModelError(msg)
    return tuple(table[index] for index in indexes)


def _check_sense(spec: ModelSpec) -> None:
    """Raises where fields of the right type make no model: heads of nothing, a ratio that no kind has."""
    try:
        active, parameters = spec.active_parameters, spec.parameters
        parts = {part for layer in spec.layer_counts for part in _state(layer)}
        counts = [part.entries(1) for part in parts]
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        msg = f"its layers cannot be counted: {short(str(error))} ({type(error).__name__})"
        raise MalformedModelError(msg) from error
    if not 0 <= active <= parameters or min(counts, default=0) < 0:
        msg = f"its layers count {active} active of {parameters} parameters, or state below 0, which no model does"
        raise MalformedModelError(msg)
    held = [(layer.other_matrices, layer.other_parameters) for layer in spec.layer_counts]
    held += [(spec.other_matrices, spec.other_parameters), (spec.tables, spec.table_parameters)]
    if any(sum(matrix.elements for matrix in matrices) > whole for matrices, whole in held):
        msg = "its other_matrices or tables hold more than other_parameters and table_parameters say"
        raise MalformedModelError(msg)
    strange = sorted({part.format for part in parts} - {CACHE, MODEL, FP32})
    if strange:
        msg = f"state has format {listed(strange)}; known: {CACHE}, {MODEL}, {FP32}"
        raise MalformedModelError(msg)
    if spec.dtype is not None and spec.dtype not in FORMATS:
        msg = f"dtype is {_shown(spec.dtype)}; known: {', '.join(FORMATS)}"
        raise MalformedModelError(msg)


def _state(layer: Layer) -> tuple[Kept, ...]:
    """What a layer keeps, its label and work asked for too; none where only the input tells how much."""
    try:
        for mixer in layer.mixers:
            if mixer.label:
                mixer.prefill_flops(1.0)
    except UndeterminedModelError:
        return ()
    return layer.state


def _wrong(value: object, right: str, where: str) -> MalformedModelError:
    return MalformedModelError(f"{where} is {_shown(value)}; it must be {right}")


def _shown(value: object) -> str:
    """A stranger's value on a line: containers by kind alone."""
    return short(value) if isinstance(value, (int, float, str)) and not isinstance(value, bool) else kind_of(value)
