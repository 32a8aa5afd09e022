"""Encoder stacks of encoder-decoder models: hand-worked counts, the reference's counts, broken files."""

from __future__ import annotations

import json
from math import inf, nan
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from roofcast.modelspec.encoders import ENCODERS, EncoderReader
from roofcast.modelspec.errors import MalformedModelError, ModelError

if TYPE_CHECKING:
    from collections.abc import Mapping

REFERENCE: Final = json.loads((Path(__file__).parent / "fixtures" / "reference_towers.json").read_text())["models"]
ROWS: Final = [row for row in REFERENCE if "hidden" not in row]
NAMES: Final = [f"{row['config']['model_type']}-{index % 3}" for index, row in enumerate(ROWS)]
DEEP: Final[list[Any]] = json.loads("[" * 900 + "]" * 900)
BAD: Final[tuple[Any, ...]] = (
    DEEP,
    None,
    -1,
    0,
    1.5,
    nan,
    inf,
    10**400,
    True,
    "many-of-them",
    "gated",
    [],
    [1, [2]],
    {},
    {"a": {"b": 1}},
)


@pytest.mark.parametrize("row", ROWS, ids=NAMES)
def test_random_configs_have_the_references_count(row: Mapping[str, Any]) -> None:
    """Whatever the sizes and whatever keys are absent, the encoder is the reference implementation's."""
    (encoder,) = ENCODERS[row["config"]["model_type"]](row["config"])

    assert encoder.parameters == row["parameters"]


def test_the_encoder_of_t5_small_is_its_matrices() -> None:
    """60,506,624 in the checkpoint: 32128 * 512 shared, 25,175,808 of the decoder, the rest is the encoder."""
    layer = 4 * 512 * 8 * 64 + 2 * 512 * 2048 + 2 * 512
    decoder = 6 * (8 * 512 * 512 + 2 * 512 * 2048 + 3 * 512) + 32 * 8 + 512

    (encoder,) = ENCODERS["t5"]({"d_model": 512, "num_layers": 6})

    assert encoder.parameters == 6 * layer + 32 * 8 + 512
    assert encoder.parameters == 60_506_624 - 32_128 * 512 - decoder


def test_a_gated_feed_forward_has_three_matrices() -> None:
    """Flan-T5 and mT5 gate theirs; `d_kv` times heads need not be the width."""
    sizes = {"d_model": 512, "d_kv": 64, "num_heads": 6, "d_ff": 1024, "num_layers": 8}
    layer = 4 * 512 * 6 * 64 + 3 * 512 * 1024 + 2 * 512

    (encoder,) = ENCODERS["t5"]({**sizes, "feed_forward_proj": "gated-gelu"})

    assert encoder.parameters == 8 * layer + 32 * 6 + 512
    assert ENCODERS["mt5"]({}) == (encoder,)  # mT5-small's sizes are the class's


def test_umt5_has_a_bias_table_a_layer() -> None:
    """UMT5 and mT5 differ by the tables of all layers but one."""
    (umt5,), (mt5,) = ENCODERS["umt5"]({}), ENCODERS["mt5"]({})

    assert umt5.parameters - mt5.parameters == 7 * 32 * 6


def test_the_encoder_of_whisper_tiny_is_its_matrices() -> None:
    """80 mel bins, 1500 learned positions, four layers of 384 whose keys have no bias."""
    d, inner = 384, 1536
    layer = 4 * d * d + 3 * d + 2 * d * inner + inner + d + 4 * d

    (encoder,) = ENCODERS["whisper"]({})

    assert encoder.parameters == 80 * 3 * d + d + 3 * d * d + d + 1500 * d + 4 * layer + 2 * d


def test_mbart_has_one_norm_more_than_bart() -> None:
    """BART-large's encoder: 1026 positions, a norm, twelve layers of 1024; mBART norms once more."""
    layer = 4 * (1024**2 + 1024) + 2 * 1024 * 4096 + 4096 + 1024 + 4 * 1024

    assert ENCODERS["bart"]({})[0].parameters == 1026 * 1024 + 2 * 1024 + 12 * layer
    assert ENCODERS["mbart"]({})[0].parameters == ENCODERS["bart"]({})[0].parameters + 2 * 1024


@pytest.mark.parametrize("row", ROWS, ids=NAMES)
def test_one_more_encoder_layer_adds_one_layer(row: Mapping[str, Any]) -> None:
    """The encoder grows by the same at each layer more and does not see the decoder's."""
    config = dict(row["config"])
    key = "num_layers" if "t5" in config["model_type"] else "encoder_layers"
    config.pop("num_hidden_layers", None)
    reader = ENCODERS[config["model_type"]]
    counts = [reader({**config, key: layers})[0].parameters for layers in (1, 2, 3)]
    decoders = {"num_decoder_layers": 9, "decoder_layers": 9, "decoder_ffn_dim": 8, key: 2}

    assert 0 < counts[1] - counts[0] == counts[2] - counts[1]
    assert reader({**config, **decoders})[0].parameters == counts[1]


@pytest.mark.parametrize("row", ROWS, ids=NAMES)
def test_any_broken_value_is_an_answer_or_one_clean_line(row: Mapping[str, Any]) -> None:
    """Each value replaced by each kind of wrong one: a whole number of parameters, or an error of one short line."""
    reader = ENCODERS[row["config"]["model_type"]]
    for key in row["config"]:
        for wrong in BAD:
            assert is_clean(reader, {**row["config"], key: wrong}), (key, wrong)


@pytest.mark.parametrize("wrong", ["", "gated-", "-gelu", "up-gelu", "gated-gelu-new", None, 3])
def test_a_feed_forward_that_is_no_activation_is_refused(wrong: object) -> None:
    """An activation's name, with `gated-` before it or not; all else is no feed-forward."""
    with pytest.raises(MalformedModelError, match="feed_forward_proj"):
        ENCODERS["t5"]({"feed_forward_proj": wrong})


def is_clean(reader: EncoderReader, config: Mapping[str, Any]) -> bool:
    """Whether a reader answers with a whole number, or refuses in one line."""
    try:
        (encoder,) = reader(config)
    except ModelError as error:
        return 0 < len(str(error)) < 300 and "\n" not in str(error)
    return type(encoder.parameters) is int and encoder.parameters >= 0
