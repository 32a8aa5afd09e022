"""What `roofcast fit --log` fills in of SGLang, Ollama and standard input."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.log_reading import LOGS, fixture
from tests.running import answer, refused, roofcast

if TYPE_CHECKING:
    from pathlib import Path

ARGS = (
    "[T] server_args=ServerArgs(model_path='deepseek-ai/DeepSeek-V3', dtype='auto', quantization=None, "
    "kv_cache_dtype='fp8_e4m3', context_length=65536, mem_fraction_static=0.87, max_running_requests=256, "
    "chunked_prefill_size=8192, page_size=64, tp_size=8, dp_size=8, ep_size=1, enable_dp_attention=True)\n"
    "[T TP0] Using KV cache dtype: torch.float8_e4m3fn\n[T TP0] Load weight begin. avail mem=138.58 GB\n"
)
SAME = (
    "--engine", "sglang", "--dp", "8", "--ep", "8", "--enable-dp-attention", "--mem-fraction-static", "0.87", "--kv", "fp8",
    "--page-size", "64", "--max-model-len", "64k", "--chunked-prefill-size", "8192", "--max-running-requests", "256",
)  # fmt: skip


def logged(folder: Path, text: str, *arguments: str) -> Any:
    """Return the answer beside a log."""
    path = folder / "server.log"
    path.write_text(text, encoding="utf-8")
    return answer("fit", *arguments, "--log", str(path))


def test_sglangs_settings_are_the_questions(tmp_path: Path) -> None:
    """The same answer as with its flags: its --dp is within --tp, and all devices share the experts."""
    made = logged(tmp_path, ARGS, "deepseek-v3", "--gpu", "h200-sxm")
    asked = answer("fit", "deepseek-v3", "--gpu", "h200-sxm", *SAME)

    assert {name: made["inputs"][name] for name in ("tp", "dp", "ep", "kv", "flags")} == {
        name: asked["inputs"][name] for name in ("tp", "dp", "ep", "kv", "flags")
    }
    assert made["result"]["kv_tokens"] == asked["result"]["kv_tokens"] > 0


def test_a_cache_as_pytorch_names_it_is_fp8(tmp_path: Path) -> None:
    """float8_e4m3fn is a byte; bfloat16 is two."""
    fp8, bf16 = (
        logged(tmp_path, ARGS.replace("float8_e4m3fn", name), "deepseek-v3", "--gpu", "h200-sxm")["inputs"]["kv"]
        for name in ("float8_e4m3fn", "bfloat16")
    )

    assert (fp8, bf16) == ("fp8", "bf16")


def test_ollamas_log_fills_in_its_flags() -> None:
    """8,192 tokens in each of 4 slots; weights as the log says, aloud: 131,072 B x 32,768 = 4.0 GiB."""
    made = answer("fit", "llama-3.1-8b", "--gpu", "rtx-4090", "--log", str(LOGS / "ollama.txt"))
    kv = next(row for row in made["result"]["log"]["lines"] if row["term"] == "kv")

    assert (made["inputs"]["engine"], made["inputs"]["weights"]) == ("ollama", "q4_k_m")
    assert made["inputs"]["flags"] == {"engine_version": "0.13.5", "n_ctx": 8192, "parallel": 4, "ubatch_size": 512}
    assert kv["predicted"] == 4 << 30
    assert kv["agrees"] is True


def test_a_log_of_llama_cpp_may_be_ollamas(tmp_path: Path) -> None:
    """Its build is no version of Ollama, and its cells are over the slots."""
    text = fixture("llama_windows.txt").replace("n_seq_max     = 1", "n_seq_max     = 4")
    made = logged(tmp_path, text, "gpt-oss-20b", "--gpu", "rtx-4090", "--engine", "ollama")

    assert (made["inputs"]["flags"]["n_ctx"], made["inputs"]["flags"]["parallel"]) == (32_768, 4)
    assert "engine_version" not in made["inputs"]["flags"]


def test_a_type_that_is_asked_goes_before_the_logs() -> None:
    """The log's is not told then."""
    asked = ("fit", "llama-3.1-8b", "--gpu", "rtx-4090", "--log", str(LOGS / "ollama.txt"))

    assert answer(*asked, "--weights", "q8_0")["inputs"]["weights"] == "q8_0"
    assert "weights q4_k_m, as the log says" in " ".join(roofcast(*asked).out.split())
    assert "as the log says" not in roofcast(*asked, "--weights", "q8_0").out


def test_a_model_of_ollama_is_named_by_its_name() -> None:
    """Blobs of another machine are not here."""
    log = str(LOGS / "ollama.txt")

    refused(
        roofcast("fit", "--gpu", "rtx-4090", "--log", log),
        2,
        "sha256-0001 (Meta Llama 3.1 8B Instruct), which is not here",
    )


@pytest.mark.parametrize(
    ("sent", "words"), [(bytes(range(256)) * 9, "is no text in UTF-8"), (b"", "no line is of a server's start")]
)
def test_standard_input_may_be_anything(sent: bytes, words: str) -> None:
    """Exit 2, and one line."""
    command = [sys.executable, "-m", "roofcast", "fit", "codellama-7b", "--gpu", "h100-sxm", "--log", "-"]
    done = subprocess.run(command, input=sent, capture_output=True, check=False)

    assert done.returncode == 2
    assert done.stderr.decode().startswith("roofcast: --log -: ")
    assert words in done.stderr.decode()
