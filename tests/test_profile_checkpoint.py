"""`profile checkpoint` on the CPU: tiny real checkpoints that transformers writes and reads; no time is asserted."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from jsonschema import Draft202012Validator  # noqa: E402 - after the skip

from roofcast.calculators.profile_checkpoint import against_transformers, point_row, work_of  # noqa: E402
from roofcast.calculators.profiled_checkpoint import CheckpointFacts, CheckpointPoint  # noqa: E402
from roofcast.cli.profiling_saved import read_saved  # noqa: E402
from roofcast.hwdb.lookup import find_accelerator  # noqa: E402
from roofcast.profiler import checkpoint as timed  # noqa: E402
from roofcast.profiler import runtime as runtimes  # noqa: E402
from roofcast.profiler.checkpoint import Asked, profile_checkpoint  # noqa: E402
from roofcast.profiler.checkpoint_files import check_folder, loaded_bytes  # noqa: E402
from roofcast.profiler.checkpoint_load import load_checkpoint  # noqa: E402
from roofcast.profiler.errors import OutOfMemoryError  # noqa: E402
from roofcast.profiler.runtime import open_runtime  # noqa: E402
from roofcast.profiler.timing import Budget  # noqa: E402
from roofcast.reports.schema import json_schema  # noqa: E402
from tests.checkpoints import catalogued  # noqa: E402
from tests.local_checkpoints import KINDS, WORDS, change_config, write_checkpoint  # noqa: E402
from tests.profile_values import sample  # noqa: E402
from tests.running import answer, refused, roofcast  # noqa: E402

if TYPE_CHECKING:
    from pathlib import Path

    from tests.running import Outcome

SMALL = ("--device", "cpu", "--prompt", "8,16", "--batch", "1,2", "--context", "12", "--steps", "4")
pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Repeat a prompt no more than need be."""
    monkeypatch.setattr(timed, "SPAN", 0.0)


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a folder of a tiny Llama, which no test changes."""
    return write_checkpoint(tmp_path_factory.mktemp("checkpoint") / "llama")


@pytest.fixture
def changing(tmp_path: Path) -> Path:
    """Give another that a test may break."""
    return write_checkpoint(tmp_path / "llama")


def measured(folder: Path, *more: str) -> Outcome:
    """Run the command on a folder."""
    return roofcast("profile", "checkpoint", str(folder), *SMALL, *more)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_timed(kind: str, tmp_path: Path) -> None:
    """Prompts and steps of each kind of model run, their work is counted, and stderr is silent."""
    folder = write_checkpoint(tmp_path / kind, kind)
    outcome = measured(folder, "--format", "json")
    found = outcome.data["result"]["checkpoint"]

    assert all(line.startswith("roofcast: warning: ") for line in outcome.err.splitlines()), outcome.err
    assert [(row["phase"], row["batch"], row["context"]) for row in found["points"]] == [
        ("prefill", 1, 8),
        ("prefill", 1, 16),
        ("decode", 1, 12),
        ("decode", 2, 12),
    ]
    assert [row["problem"] for row in found["points"]] == [None] * 4
    assert all(row["bytes"] for row in found["points"])


def test_json_validates_and_is_read_again(llama: Path, tmp_path: Path) -> None:
    """The schema holds, a saved file is read back, and `compare --from` says that no step is in it."""
    path = tmp_path / "checkpoint.json"
    found = answer("profile", "checkpoint", str(llama), *SMALL)
    path.write_text(json.dumps(found))

    Draft202012Validator(json_schema("profile")).validate(found)
    assert read_saved(str(path)).what == "checkpoint"
    refused(roofcast("profile", "compare", "--from", str(path)), 2, "it holds no step of")


def test_bytes_are_weights_and_cache(llama: Path) -> None:
    """A decode step in fp32 reads all weights but the embedding's other rows, and a cache that grows with the batch.

    By hand: a layer has 4 matrices of attention (32 x 32, 2 x 32 x 16, 32 x 32), 3 of 32 x 64, and the head is 96 x 32:
    2 (3,072 + 6,144) + 3,072 = 21,504 elements of 4 bytes; norms are 5 x 32. The cache has 2 x 2 x 2 x 8 x 4 = 256 bytes
    a token.
    """
    found = answer("profile", "checkpoint", str(llama), *SMALL)["result"]["checkpoint"]
    one, two = (row for row in found["points"] if row["phase"] == "decode")

    assert found["parameters"] == 21_504 + 160 + WORDS * 32
    assert found["weight_bytes"] == 4 * found["parameters"]
    cache = two["bytes"] - one["bytes"]  # 13 tokens at the middle of 12 to 15, and a row of the embedding
    assert cache == pytest.approx(256 * 13, abs=256 + 128)
    assert one["bytes"] == pytest.approx(4 * 21_504 + cache, rel=0.02)
    assert one["bytes_per_second"] == pytest.approx(one["bytes"] / one["time"]["seconds"])
    assert two["tokens_per_second"] == pytest.approx(2 / two["time"]["seconds"])


def test_weights_are_loaded_as_asked(llama: Path) -> None:
    """In bf16 the same parameters take half of the memory."""
    found = answer("profile", "checkpoint", str(llama), *SMALL, "--weights", "bf16")["result"]

    assert (found["weights"], found["checkpoint"]["dtype"]) == ("bf16", "bf16")
    assert found["checkpoint"]["weight_bytes"] == 2 * found["checkpoint"]["parameters"]
    assert {row["weights"] for row in found["measurements"]} == {"bf16"}


def test_steps_begin_at_the_context(llama: Path) -> None:
    """The cache holds the context less one before the first timed step, and a token more after each."""
    loaded, fed = load_checkpoint(open_runtime("cpu"), llama), list[tuple[int, int]]()

    class Spying:
        """The model, telling how many tokens it reads after how many."""

        def __call__(self, **given: Any) -> Any:
            cache = given[loaded.cache_name]
            fed.append((given["input_ids"].shape[1], 0 if cache is None else cache.get_seq_length()))
            return loaded.model(**given)

    swept = profile_checkpoint(replace(loaded, model=Spying()), Asked((4,), ((1, 10),), 5), Budget())

    assert [one.sample.repeats for one in swept.done if one.sample][-1] == 5
    assert fed[-5:] == [(1, 9), (1, 10), (1, 11), (1, 12), (1, 13)]


def test_validate_predicts_as_under_transformers(llama: Path, tmp_path: Path) -> None:
    """A saved file's measurements are predicted for engine transformers, where the device is in the database."""
    path = tmp_path / "checkpoint.json"
    found = answer("profile", "checkpoint", str(llama), *SMALL)
    rows = found["result"]["measurements"]
    assert [(row["engine"], row["quantity"]) for row in rows] == [
        ("transformers", "prefill_seconds"),
        ("transformers", "prefill_seconds"),
        ("transformers", "decode_seconds"),
        ("transformers", "decode_seconds"),
    ]
    assert [row["context"] for row in rows] == [None, None, 13, 13]
    for row in rows:
        row["gpu"] = "rtx-4090"
    path.write_text(json.dumps(found))
    points = answer("validate", str(path), "--offline")["result"]["points"]

    assert len(points) == 4
    assert all(point["expected"] >= point["bound"] > 0 for point in points)


def test_estimates_are_those_of_the_database() -> None:
    """On an RTX 4090 a decode step of Llama 3.1 8B has the bound that `estimate` prints, by constants of transformers."""
    facts = CheckpointFacts("a", "5.0", "sdpa", "bf16", 1, 1)
    model, device = catalogued("llama-3.1-8b"), find_accelerator("rtx-4090").accelerator
    work = work_of(model, facts)
    point = CheckpointPoint("decode", 1, 1024, sample(30e-3), steps=1)
    row = point_row(point, work, against_transformers(device, model, work, facts))
    printed = answer(
        *("estimate", "llama-3.1-8b", "--gpu", "rtx-4090", "--engine", "transformers", "--offline"),
        *("--phase", "decode", "--batch", "1", "--context", "1024"),
    )["result"]["phases"][0]

    assert row.bound_seconds == pytest.approx(printed["bound_seconds"], rel=1e-3)
    assert row.expected_seconds == pytest.approx(printed["expected_seconds"], rel=1e-3)
    assert row.of_datasheet == pytest.approx(row.bytes / 30e-3 / 1.008e12 if row.bytes else None)


def test_a_known_device_has_estimates_beside_times(llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shares of the data sheet, bound and expected time; constants of another device are among the assumptions."""
    known = replace(open_runtime("cpu").machine, accelerator="h200-sxm", name="NVIDIA H200")
    monkeypatch.setattr(runtimes, "_machine", lambda *_: known)
    found = answer("profile", "checkpoint", str(llama), *SMALL)
    text = measured(llama).out

    rows = found["result"]["checkpoint"]["points"]
    assert all(row["expected_seconds"] >= row["bound_seconds"] > 0 for row in rows)
    assert rows[2]["of_datasheet"] == pytest.approx(rows[2]["bytes_per_second"] / 4.8e12)
    assert any("of h200-sxm under transformers not measured" in line for line in found["assumptions"])
    assert {row["gpu"] for row in found["result"]["measurements"]} == {"h200-sxm"}
    assert "expect" in text
    assert all(len(line) <= 80 for part in text.split("\n\nexpect:")[0].split("\n\n")[1:] for line in part.splitlines())


def test_what_cannot_be_counted_is_timed_all_the_same(changing: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where roofcast cannot tell the work, bytes are null and a warning says why."""
    from roofcast.modelspec.errors import UndeterminedModelError

    def load(*_: object) -> object:
        raise UndeterminedModelError("a kind of layer that is not known")

    monkeypatch.setattr("roofcast.cli.profiling_checkpoint.load", load)
    outcome = measured(changing, "--format", "json")

    assert outcome.code == 0
    assert [row["bytes"] for row in outcome.data["result"]["checkpoint"]["points"]] == [None] * 4
    assert "bytes of a step are not known: a kind of layer that is not known" in outcome.err


def test_folders_that_are_no_checkpoint_are_one_line(tmp_path: Path, changing: Path) -> None:
    """No folder, no config, no weights, a piece that is not there, a file cut short: exit 3, or 2 where it is malformed."""
    weights = changing / "model.safetensors"
    refused(measured(tmp_path / "nothing"), 3, "nothing", "no such folder")
    refused(measured(weights), 2, "a file; give the checkpoint's folder")
    refused(measured(tmp_path), 3, "no config.json in it")
    whole = weights.read_bytes()
    weights.write_bytes(whole[:3000])
    refused(measured(changing), 2, "model.safetensors", "cut short")
    weights.unlink()
    refused(measured(changing), 3, "no weights in it")
    index = {
        "metadata": {},
        "weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"},
    }
    (changing / "model.safetensors.index.json").write_text(json.dumps(index))
    (changing / "model-00001-of-00002.safetensors").write_bytes(whole)
    refused(measured(changing), 3, "model-00002-of-00002.safetensors is not there, which its index names")
    (changing / "model.safetensors.index.json").write_text("[]")
    refused(measured(changing), 3, "cannot be read as an index")


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"model_type": "newest"}, "does not know its architecture"),
        ({"model_type": "newest", "auto_map": {"AutoConfig": "a.B", "AutoModelForCausalLM": "a.C"}}, "code of its own"),
        ({"model_type": "vit", "architectures": None}, "no causal language model"),
        ({"num_hidden_layers": 3}, "lack weights that LlamaForCausalLM has: model.layers.2."),
        ({"hidden_size": 64}, "cannot load it"),
    ],
)
def test_what_transformers_refuses_is_one_line(changed: dict[str, Any], words: str, changing: Path) -> None:
    """An architecture unknown or with its own code, another kind of model, weights that are not those of the config."""
    change_config(changing, **changed)

    refused(measured(changing), 3, words)


def test_no_code_of_a_checkpoint_is_run(changing: Path) -> None:
    """A file of Python beside a config that names it is never imported."""
    change_config(changing, model_type="own", auto_map={"AutoConfig": "own.Own", "AutoModelForCausalLM": "own.Own"})
    (changing / "own.py").write_text("from pathlib import Path\nPath(__file__).with_name('ran').touch()\n")

    refused(measured(changing), 3, "never done here")
    assert not (changing / "ran").exists()


def test_an_encoder_keeps_no_cache(tmp_path: Path) -> None:
    """A BERT loads as a causal model, and answers without a cache: one line."""
    sizes = {
        "hidden_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 64,
        "vocab_size": 64,
    }
    model = transformers.BertForMaskedLM(transformers.BertConfig(**sizes))
    transformers.utils.logging.disable_progress_bar()
    model.save_pretrained(tmp_path / "bert")

    refused(measured(tmp_path / "bert"), 3, "keeps no cache to decode from")


def test_options_are_checked_before_torch(llama: Path) -> None:
    """Exit 2, naming the option."""
    refused(measured(llama, "--weights", "int4"), 2, "--weights int4", "bf16, fp16, fp32")
    refused(measured(llama, "--steps", "0"), 2, "--steps 0", "1 to 10,000")
    refused(roofcast("profile", "checkpoint", str(llama), "--context", "1k,2k"), 2, "--context 1k,2k")
    refused(roofcast("profile", "checkpoint", str(llama), "--prompt", "0"), 2, "--prompt")


def test_a_table_of_positions_ends_where_it_ends(tmp_path: Path) -> None:
    """A GPT-2 of 64 positions has no row of 128 tokens' time, says why, and times the rest."""
    folder = write_checkpoint(tmp_path / "gpt2", "gpt2")
    outcome = measured(folder, "--prompt", "16,128")

    assert outcome.code == 0
    assert "did not run" in outcome.out
    assert "its table of positions has 64 rows, fewer than 128 tokens" in outcome.out


def test_prompts_beyond_the_config_are_warned_of(llama: Path) -> None:
    """Rotary positions go on: the time stands, with a warning."""
    outcome = measured(llama, "--prompt", "300")

    assert outcome.code == 0
    assert "300 tokens are beyond the 256 that its config allows" in outcome.out


def test_what_does_not_fit_is_a_row(llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that does not fit leaves the others; where none fits the exit code is 3."""
    real = timed._decoded

    def short(loaded: Any, batch: int, context: int, steps: int) -> Any:
        if batch > 1:
            raise OutOfMemoryError("out of memory on a device")
        return real(loaded, batch, context, steps)

    monkeypatch.setattr(timed, "_decoded", short)
    outcome = measured(llama)
    assert outcome.code == 0
    assert "decode of 2 at 12 did not run: out of memory on a device" in outcome.out
    monkeypatch.setattr(timed, "_decoded", lambda *_: short(None, 2, 1, 1))
    monkeypatch.setattr(timed, "_prompted", lambda *_: short(None, 2, 1, 1))
    outcome = measured(llama)
    assert outcome.code == 3
    assert outcome.complaint == "nothing could be measured: out of memory on a device"


def test_weights_that_do_not_fit_are_refused_before_loading(llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their size is told from the files, in the format asked for."""
    stored, half = loaded_bytes(check_folder(str(llama))), loaded_bytes(llama, "bf16")
    assert stored == (llama / "model.safetensors").stat().st_size
    assert half == 2 * (21_504 + 160 + WORDS * 32)
    monkeypatch.setattr(runtimes.Runtime, "free_bytes", lambda _: stored // 2 + 2000)

    refused(measured(llama), 3, "its weights take", "are free on")
    assert measured(llama, "--weights", "bf16").code == 0


def test_a_spent_budget_and_an_interrupt_keep_what_is_done(llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C in the second prompt: the first is printed, exit 130; no budget measures nothing, exit 3."""
    real, calls = timed._prompted, list[int]()

    def interrupted(loaded: Any, tokens: int) -> Any:
        calls.append(tokens)
        if len(calls) > 1:
            raise KeyboardInterrupt
        return real(loaded, tokens)

    monkeypatch.setattr(timed, "_prompted", interrupted)
    outcome = measured(llama)
    assert outcome.code == 130
    assert "interrupted: not measured: prefill of 1 at 16, decode of 1 at 12, decode of 2 at 12" in outcome.out
    outcome = measured(llama, "--budget", "0.000001")
    assert outcome.code == 3
    assert outcome.complaint == "nothing could be measured: the budget is spent"


def test_an_interrupt_while_loading_prints_nothing(llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit 130; there is no time to print."""

    def interrupted(*_: object) -> object:
        raise KeyboardInterrupt

    monkeypatch.setattr("roofcast.profiler.checkpoint_load.load_checkpoint", interrupted)
    outcome = measured(llama)

    assert (outcome.code, outcome.out) == (130, "")


def test_without_transformers_one_line_tells_the_extra(llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit 3, with what to install."""
    monkeypatch.setitem(sys.modules, "transformers", None)
    outcome = measured(llama)

    assert outcome.code == 3
    assert "pip install 'roofcast[checkpoint]'" in outcome.complaint


def test_quantised_weights_are_left_as_they_are(changing: Path) -> None:
    """What transformers lacks for them is one line, and no other format can be asked."""
    change_config(changing, quantization_config={"quant_method": "gptq", "bits": 4, "group_size": 128})

    refused(measured(changing, "--weights", "bf16"), 2, "is quantised, and loaded as it is")
    refused(measured(changing), 3, "transformers", "cannot load it")


def test_csv_has_a_row_a_point(llama: Path) -> None:
    """Each with the model, its format and the version of transformers."""
    lines = measured(llama, "--format", "csv").out.splitlines()
    assert len(lines) == 5
    assert lines[0].startswith("model,weights,transformers,attention,phase,batch,context")


def test_tables_fit_eighty_columns(llama: Path) -> None:
    """Every line of a table does."""
    outcome = measured(llama)

    assert outcome.err == ""
    assert all(len(line) <= 80 for part in outcome.out.split("\n\n")[1:3] for line in part.splitlines())
