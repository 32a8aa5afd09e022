"""A model as JSON and back: equal, small, and refused in one line where the document is broken."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import replace
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import pytest

from roofcast import modelspec
from roofcast.modelspec.errors import MalformedModelError, UndeterminedModelError
from roofcast.modelspec.kinds import KINDS
from roofcast.modelspec.serial import FEED_FORWARDS, KIND, MIXERS, OPEN, SCHEMA, spec_from_json, spec_to_json
from roofcast.modelspec.spec import ModelSpec, build_spec
from tests.model_configs import CONFIGS, DEEPSEEK, FALCON, LLAMA, QWEN_MOE, is_one_line, outcome, published

NAMES = sorted(path.stem.replace("--", "/") for path in CONFIGS.glob("*.json"))
BUILT = {name: spec for name in NAMES if isinstance(spec := outcome(published(name), counted_in_files=True), ModelSpec)}
SMALL = {"llama": LLAMA, "qwen3_moe": QWEN_MOE, "deepseek_v3": DEEPSEEK, "falcon": FALCON}


def document(config: dict[str, Any] = LLAMA) -> Any:
    """Return the document of a config's model, fit to be changed."""
    return json.loads(json.dumps(spec_to_json(build_spec(config))))


def refusal(broken: object) -> str:
    """Return the one line with which a document is refused; fails where it is read."""
    with pytest.raises(MalformedModelError) as caught:
        spec_from_json(broken)
    assert is_one_line(str(caught.value))
    return str(caught.value)


# --- round trip


@pytest.mark.parametrize("name", BUILT)
def test_published_models_load_back_equal(name: str) -> None:
    """Through text and back, every published model is itself: layers, state, towers, draft and all counts."""
    spec = replace(BUILT[name], drafting=True)
    loaded = spec_from_json(json.loads(json.dumps(spec_to_json(spec))))

    assert loaded == spec
    assert (loaded.components, loaded.layer_counts) == (spec.components, spec.layer_counts)


def test_published_models_are_of_nearly_every_kind() -> None:
    """The round trip is seen on real files of these kinds; the property tests make the others."""
    used = {type(mixer) for spec in BUILT.values() for layer in spec.layers for mixer in layer.mixers}
    seen = {name for name, kind in KINDS.items() if kind.cls in used}

    assert set(KINDS) - seen <= {
        "cca",
        "mlstm",
        "ngram",
        "relative",
        "rwkv",
        "lightning",
        "shared_block",
        "blocks",
        "rg_lru",
        "routed_heads",
    }
    assert len(BUILT) >= len(NAMES) - 3


def test_a_document_holds_json_alone() -> None:
    """No tuple, no dataclass, no float: what is written is what is read."""
    written = spec_to_json(BUILT["Qwen/Qwen3.5-0.8B"])

    assert json.loads(json.dumps(written, allow_nan=False)) == written


@pytest.mark.parametrize("layers", [1, 100, 10_000])
def test_equal_layers_are_written_once(layers: int) -> None:
    """A model of a hundred equal layers has one layer in its table and a hundred indexes."""
    written = document({**LLAMA, "num_hidden_layers": layers})

    assert len(written["layer_table"]) == 1
    assert written["layers"] == [0] * layers
    assert len(json.dumps(written)) < 1500 + 3 * layers


def test_layers_keep_their_order_and_share_the_table_with_the_draft() -> None:
    """Dense first layers, mixtures after them, and prediction layers like the last."""
    written = document({**DEEPSEEK, "num_nextn_predict_layers": 1})

    assert written["layers"] == [0, 1, 1, 1]
    assert len(written["draft"]) == 1
    assert spec_from_json(written) == build_spec({**DEEPSEEK, "num_nextn_predict_layers": 1})


def test_every_kind_is_named_by_its_row() -> None:
    """The name in a document is the row of KINDS, and no class has a field of that key's name."""
    classes = [cls for names in OPEN.values() for cls in names.values()]

    assert {name: kind.cls for name, kind in KINDS.items()} == MIXERS
    assert [cls for cls in classes if KIND in {field.name for field in dataclasses.fields(cls)}] == []
    assert document()["layer_table"][0]["mixers"][0][KIND] == "grouped"
    assert document(DEEPSEEK)["layer_table"][0]["mixers"][0][KIND] == "latent"
    assert document(QWEN_MOE)["layer_table"][0]["feed_forwards"][0]["expert"][KIND] == "dense"


def test_every_feed_forward_has_a_name() -> None:
    """A class that feeds forward, wherever it stands, can be written."""
    modules = (import_module(f"roofcast.modelspec.{module.name}") for module in iter_modules(modelspec.__path__))
    found = [value for module in modules for value in vars(module).values() if isinstance(value, type)]
    classes = {cls for cls in found if dataclasses.is_dataclass(cls)}

    assert {cls for cls in classes if hasattr(cls, "expert_parameters")} == set(FEED_FORWARDS.values())


def test_an_encoder_of_unknown_length_loads_back_as_such() -> None:
    """What only the input tells is not asked for when a document is read, only when its state is."""
    spec = build_spec(published("shrunk/t5"))

    assert spec_from_json(spec_to_json(spec)) == spec
    with pytest.raises(UndeterminedModelError):
        _ = spec.kept


# --- broken documents


@pytest.mark.parametrize("broken", [None, [], "x", 7, True, 1.5])
def test_a_document_is_an_object(broken: object) -> None:
    """Anything else is refused by its kind."""
    assert "must be an object" in refusal(broken)


@pytest.mark.parametrize("schema", [None, "roofcast.modelspec/2", 1, ["roofcast.modelspec/1"], "x\ny" * 100])
def test_another_schema_is_refused(schema: object) -> None:
    """The version must be this one; both are named."""
    message = refusal({**document(), "schema": schema})

    assert message.startswith("schema is")
    assert SCHEMA in message


def test_a_missing_schema_is_refused() -> None:
    """A document that says no version is none."""
    assert refusal({}).startswith("schema is missing")


@pytest.mark.parametrize("name", sorted(set(document()) - {"schema"}))
def test_a_missing_field_is_named(name: str) -> None:
    """Every field of the document must be there."""
    assert refusal({key: value for key, value in document().items() if key != name}) == f"the document lacks {name}"


def test_an_extra_field_is_named() -> None:
    """What the schema does not have is a slip or another version: it is named, however strange."""
    assert "my_note" in refusal({**document(), "my_note": 1})
    assert "a\\nb" in refusal({**document(), "a\nb": 1})


WRONG: dict[tuple[str, str], list[object]] = {
    ("hidden", "a whole number from 0"): ["64", 64.0, True, None, -1, 2**63, [64], {}, 1e400],
    ("tied", "true or false"): [0, 1, "true", None],
    ("model_type", "a string"): [None, 1, ["llama"]],
    ("max_context", "a whole number from 0"): ["128", 1.5, False],
    ("towers", "a list"): [None, {}, "vision"],
    ("assumptions", "a string"): [[1], [None]],
    ("layers", "a list"): [None, "0", 0],
    ("layers", "a whole number from 0"): [[-1], ["0"], [0.0], [True], [[0]]],
    ("layer_table", "an object"): [[None], [[]], ["x"]],
}


@pytest.mark.parametrize(
    ("name", "right", "value"), [(*key, value) for key, values in WRONG.items() for value in values]
)
def test_a_value_of_another_type_is_refused(name: str, right: str, value: object) -> None:
    """Each field says what it is and what would be right."""
    message = refusal({**document(), name: value})

    assert message.startswith(name)
    assert message.endswith(f"it must be {right}")


def test_an_index_beyond_the_table_is_refused() -> None:
    """Layers are those of the table."""
    assert refusal({**document(), "layers": [0, 1]}).startswith("layers names layer 1 of layer_table, which has 1")
    assert refusal({**document(), "draft": [7]}).startswith("draft names layer 7")


@pytest.mark.parametrize("kind", ["Grouped", "", None, 1, ["grouped"], "dense", "x" * 1000])
def test_an_unknown_kind_lists_those_known(kind: object) -> None:
    """A kind that is no row, or that of a feed-forward, is refused with all rows."""
    broken = document()
    broken["layer_table"][0]["mixers"][0]["kind"] = kind
    message = refusal(broken)

    assert message.startswith("layer_table[0].mixers[0].kind is")
    assert message.endswith(f"known: {', '.join(KINDS)}")


def test_a_missing_kind_lists_those_known() -> None:
    """A mixer must say what it is."""
    broken = document()
    del broken["layer_table"][0]["mixers"][0]["kind"]

    assert "kind is missing; known: compressed, latent" in refusal(broken)


@pytest.mark.parametrize("config", SMALL.values(), ids=SMALL)
def test_a_nested_field_is_named_by_its_place(config: dict[str, Any]) -> None:
    """Every field of a mixer may be neither left out nor of a strange type."""
    for name in document(config)["layer_table"][0]["mixers"][0]:
        broken = document(config)
        broken["layer_table"][0]["mixers"][0][name] = [[]]
        assert refusal(broken).startswith(f"layer_table[0].mixers[0].{name} is a list; " if name != "kind" else "layer")
        del broken["layer_table"][0]["mixers"][0][name]
        assert name in refusal(broken)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("deepseek-ai/DeepSeek-V4-Pro", {"ratio": 5}),
        ("deepseek-ai/DeepSeek-V4-Pro", {"sliding_window": 0}),
        ("Qwen/Qwen3.5-0.8B", {"state_format": "fp7"}),
    ],
)
def test_fields_that_make_no_model_are_refused(name: str, changes: dict[str, Any]) -> None:
    """Right types are not enough: a ratio that no kind has, a window below one token, a format that none keeps."""
    broken = json.loads(json.dumps(spec_to_json(BUILT[name])))
    broken["layer_table"][0]["mixers"][0] |= changes

    assert refusal(broken)


@pytest.mark.parametrize("field", ["tables", "other_matrices"])
def test_matrices_beyond_what_they_are_part_of_are_refused(field: str) -> None:
    """A document cannot name matrices of parameters that it does not count."""
    matrix = {"name": "embed", "rows": 3, "columns": 2, "count": 1, "linear": False}

    assert "hold more than" in refusal({**document(), field: [matrix]})


def test_more_experts_at_work_than_there_are_are_refused() -> None:
    """Active parameters are among all parameters; no experts at all cannot be chosen from."""
    broken = document(QWEN_MOE)
    broken["layer_table"][0]["feed_forwards"][0]["top_k"] = 9
    assert "active" in refusal(broken)

    broken["layer_table"][0]["feed_forwards"][0] |= {"experts": 0, "top_k": 0}
    assert "cannot be counted" in refusal(broken)


def test_a_dtype_is_one_of_the_formats() -> None:
    """An unknown stored format lists the known ones."""
    assert refusal({**document(), "dtype": "bf17"}).startswith("dtype is 'bf17'; known: fp64, fp32")
