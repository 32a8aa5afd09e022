"""Checkpoints that are not what their config says, or hold what is no number: what is said of them, on the CPU."""

from __future__ import annotations

import pickle
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from roofcast.calculators.profiled_texts import Texts  # noqa: E402 - after the skip
from roofcast.profiler import checkpoint as timed  # noqa: E402
from roofcast.profiler.checkpoint_faults import loaded_plain, other_shapes, why_not_loaded  # noqa: E402
from roofcast.profiler.checkpoint_load import load_checkpoint  # noqa: E402
from roofcast.profiler.checkpoint_rounds import text_rounds  # noqa: E402
from roofcast.profiler.errors import UnavailableError  # noqa: E402
from roofcast.profiler.runtime import open_runtime  # noqa: E402
from roofcast.profiler.timing import Budget  # noqa: E402
from tests.local_checkpoints import change_config, fill_weights, pickled, write_checkpoint  # noqa: E402
from tests.running import refused, roofcast  # noqa: E402

if TYPE_CHECKING:
    from pathlib import Path

    from tests.running import Outcome

SMALL = ("--device", "cpu", "--prompt", "8", "--batch", "1", "--context", "12", "--steps", "2")
FEW = Texts(new=4, random=1, length=8)
CPU = open_runtime("cpu")
pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Repeat a prompt no more than need be."""
    monkeypatch.setattr(timed, "SPAN", 0.0)


@pytest.fixture
def changing(tmp_path: Path) -> Path:
    """Give a tiny Llama that a test may break."""
    return write_checkpoint(tmp_path / "llama")


def measured(folder: Path, *more: str) -> Outcome:
    """Run the command on a folder."""
    return roofcast("profile", "checkpoint", str(folder), *SMALL, *more)


def test_layers_that_the_config_has_not_are_warned_of(changing: Path) -> None:
    """Files of two layers, a config of one: 9 tensors of the second are named in the answer, and it is measured."""
    change_config(changing, num_hidden_layers=1)
    outcome = measured(changing, "--format", "json")
    said = (
        f"{changing}: 9 tensors of its files have no place in LlamaForCausalLM as its config makes it, and were left out: "
        "model.layers.1.input_layernorm.weight, model.layers.1.mlp.down_proj.weight and 7 more"
    )

    assert outcome.code == 0
    assert said in outcome.data["warnings"]


def test_real_text_tells_what_was_left_out(changing: Path) -> None:
    """Once of target and once of draft."""
    assert load_checkpoint(CPU, changing).facts.notes == ()
    change_config(changing, num_hidden_layers=1)
    (one,) = text_rounds(CPU, (changing, changing), (1,), FEW, Budget()).done

    assert len(one.notes) == 2
    assert all(note.startswith(f"{changing}: 9 tensors of its files have no place") for note in one.notes)


def test_what_transformers_knows_to_leave_is_no_warning(changing: Path) -> None:
    """Old files keep frequencies of rotary positions in every layer; no word of them."""
    path = pickled(changing)
    found = torch.load(path, weights_only=True)
    torch.save(found | {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(4)}, path)

    assert load_checkpoint(CPU, changing).facts.notes == ()


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"vocab_size": 64}, "lm_head.weight is [96, 32] in its files and [64, 32] by its config, and 1 more"),
        ({"hidden_size": 64}, "lm_head.weight is [96, 32] in its files and [96, 64] by its config, and 20 more"),
    ],
)
def test_other_shapes_are_named(changed: dict[str, Any], words: str, changing: Path) -> None:
    """The first tensor with both shapes; transformers' option and its report are not spoken of."""
    change_config(changing, **changed)
    outcome = measured(changing)

    refused(outcome, 3, str(changing), words)
    assert "ignore_mismatched_sizes" not in outcome.complaint


def test_shapes_told_in_another_way_are_one_line(changing: Path) -> None:
    """Versions of transformers whose report or error is another."""
    said = "shapes of its weights are not those of its config"

    assert other_shapes({}) is None
    assert other_shapes({"mismatched_keys": [("lm_head.weight",)]}) == said
    assert why_not_loaded(RuntimeError("You set `ignore_mismatched_sizes` to `False`"), changing) == said


class Calling:
    """What a pickle would call."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Call print."""
        return print, ("run",)


@pytest.mark.parametrize(
    "content", [b"no pickle", b"", pickle.dumps({"a": Calling()}), None], ids=["text", "empty", "calls", "cut"]
)
def test_a_broken_bin_is_one_line(content: bytes | None, changing: Path) -> None:
    """Neither torch's advice to read it unsafely, nor its inner errors, are quoted; nothing of it is run."""
    path = pickled(changing)
    path.write_bytes(path.read_bytes()[:-500] if content is None else content)
    outcome = measured(changing)

    refused(outcome, 3, str(changing), "its pytorch_model.bin cannot be read as plain tensors")
    assert "weights_only" not in outcome.complaint


@pytest.mark.parametrize(
    ("dtype", "advice"),
    [
        ("float32", "some logits are no numbers, as its weights may be; its time means nothing"),
        ("bfloat16", "some logits are no numbers; its time means nothing (--weights fp32 may help)"),
        ("float16", "some logits are no numbers; its time means nothing (--weights bf16 or fp32 may help)"),
    ],
)
def test_only_wider_formats_are_advised(dtype: str, advice: str, tmp_path: Path) -> None:
    """Weights that are no numbers, in each format."""
    folder = write_checkpoint(tmp_path / dtype, dtype=dtype)
    fill_weights(folder, "model.norm.weight", float("nan"))
    outcome = measured(folder)

    refused(outcome, 3)
    assert outcome.complaint == f"prefill of 1 at 8: {advice}"


def test_a_cache_is_not_blamed_for_logits_that_are_no_numbers(changing: Path) -> None:
    """Real text of a draft whose weights are no numbers says so, and which folder it is."""
    target = write_checkpoint(changing.parent / "target")
    fill_weights(changing, "model.norm.weight", float("nan"))

    with pytest.raises(UnavailableError) as caught:
        text_rounds(CPU, (target, changing), (1,), FEW, Budget())
    assert str(caught.value) == (
        f"{changing}: some logits of LlamaForCausalLM in fp32 are no numbers, as its weights may be"
    )


def test_plain_weights_of_a_config_that_says_quantised_are_warned_of(changing: Path) -> None:
    """A method that transformers does not know: it loads plain weights, and they are counted as such."""
    change_config(changing, quantization_config={"quant_method": "zzz"})
    found = measured(changing, "--format", "json").data

    assert (
        f"{changing}: its config says that it is quantised by zzz, and transformers loaded plain weights"
        in (found["warnings"])
    )
    assert {row["weights"] for row in found["result"]["measurements"]} == {"fp32"}
    assert loaded_plain(SimpleNamespace(is_quantized=True), changing) is None
    assert loaded_plain(SimpleNamespace(is_quantized=False), changing) is not None
