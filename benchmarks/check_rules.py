"""How long `roofcast check` takes for 100 rules over 5 models and 4 GPUs, in CPU seconds, start-up included.

Run with the interpreter that has roofcast installed: `.venv/bin/python benchmarks/check_rules.py [RUNS]`. Each run is a
fresh interpreter; what counts is the least, since a busy machine only adds. Three kinds of gates are timed: of times and
memory alike, of memory alone under an engine, and 100 rules on one deployment.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

LIMIT: Final = 3.0  # CPU seconds of 100 rules
HEAD: Final = "schema: roofcast.check/1\ndefaults: {engine: vllm, model: llama-3.1-8b, gpu: h200}\nlock: true\nrules:\n"
OVER: Final = (
    "model: [llama-3.1-8b, qwen2.5-7b, qwen3-30b-a3b, gemma-3-27b-it, gpt-oss-20b], gpu: [a100-80gb, h100, h200, b200]"
)
#: what is timed -> its rules, 100 of them
GATES: Final = {
    "five quantities on 5 models x 4 GPUs": (
        f"- {{quantity: sequences, context: 4k, at_least: 1, matrix: {{{OVER}}}}}\n"
        f"- {{quantity: ttft, prompt: 4k, at_most: 9 s, matrix: {{{OVER}}}}}\n"
        f"- {{quantity: tpot, batch: 16, context: 4k, at_most: 9 s, matrix: {{{OVER}}}}}\n"
        f"- {{quantity: tokens_per_second, batch: 16, context: 8k, at_least: 1, matrix: {{{OVER}}}}}\n"
        f"- {{quantity: cost_per_million_tokens, prompt: 1k, output: 100, batch: 8, gpu_price: 2, at_most: 9, matrix: {{{OVER}}}}}\n"
    ),
    "sequences at 5 contexts": (
        f"- {{quantity: sequences, at_least: 1, matrix: {{{OVER}, context: [1k, 4k, 8k, 16k, 32k]}}}}\n"
    ),
    "one deployment at 100 batches": (
        f"- {{quantity: tpot, context: 4k, at_most: 9 s, matrix: {{batch: [{', '.join(map(str, range(1, 101)))}]}}}}\n"
    ),
}


def spent(file: str, baseline: str) -> float:
    """CPU seconds of one run, the baseline written. [s]

    Raises:
        SystemExit: the run failed, so that its time says nothing.
    """
    code = "from roofcast.cli.app import main; main()"
    argv = (sys.executable, "-P", "-c", code, "check", file, "--baseline", baseline, "--update", "--offline")
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in {0, 1}:
        raise SystemExit(f"{file} ended with exit code {process.returncode}")
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    """Prints the CPU seconds of each gate, and their ratio to what 100 rules may take."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    with tempfile.TemporaryDirectory() as folder:
        os.environ["ROOFCAST_HOME"] = folder
        for name, rules in GATES.items():
            file = Path(folder, "rules.yaml")
            file.write_text(HEAD + rules, encoding="utf-8")
            least = min(spent(str(file), str(Path(folder, "baseline.json"))) for _ in range(runs))
            print(f"100 rules, {name}: {least:.2f} CPU s, {least / LIMIT:.2f} of the {LIMIT:.0f} s that they may take")


if __name__ == "__main__":
    main()
