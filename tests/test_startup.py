"""A command imports what it needs and nothing else; each case runs in an interpreter of its own."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

RUN = """
import json, runpy, sys
sys.argv = ["roofcast", *sys.argv[1:]]
try:
    runpy.run_module("roofcast", run_name="__main__", alter_sys=True)
except SystemExit as stop:
    assert not stop.code, stop.code
print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""
NEVER_AT_START = {"huggingface_hub", "jsonschema", "matplotlib", "numpy", "rich", "torch"}
COMMANDS = [
    pytest.param("--help", {"roofcast.hwdb.accelerator", "yaml"}, id="help"),
    pytest.param("kv llama-3.1-8b", {"roofcast.hwdb.accelerator", "roofcast.calculators.check", "yaml"}, id="kv"),
    pytest.param("fit llama-3.1-8b --gpu h100-sxm --engine none", set(), id="fit"),
    pytest.param("profile --help", {"roofcast.hwdb.accelerator", "roofcast.profiler.runtime", "yaml"}, id="profile"),
    pytest.param("profile decode --help", {"roofcast.hwdb.accelerator", "yaml"}, id="profile-decode"),
]


def modules_after(command: str) -> set[str]:
    """Return the names in sys.modules once `roofcast COMMAND` has ended well."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", RUN, *command.split()], capture_output=True, check=False, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stderr.splitlines()[-1]))


@pytest.mark.parametrize(("command", "also_unwanted"), COMMANDS)
def test_light_commands_leave_heavy_packages_alone(command: str, also_unwanted: set[str]) -> None:
    """`--help`, `kv` and `fit` of a catalogue model load no Hub client, numpy, matplotlib, rich or torch; only `fit` YAML."""
    loaded = modules_after(command)

    assert "roofcast.cli.app" in loaded
    assert loaded & (NEVER_AT_START | also_unwanted) == set()
