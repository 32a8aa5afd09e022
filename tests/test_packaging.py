"""The wheel holds the package and nothing else, and runs where nothing but the wheel is."""

from __future__ import annotations

import email.parser
import json
import os
import shutil
import subprocess
import sys
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
KV = ("kv", "llama-3.1-8b", "--format", "json")


def tracked_files() -> list[str]:
    """Return the files git tracks or would add, so that a build never sees what merely lies about."""
    done = subprocess.run(
        ["git", "-c", "safe.directory=*", "ls-files", "--cached", "--others", "--exclude-standard"],
        capture_output=True,
        check=False,
        cwd=REPOSITORY,
        text=True,
    )
    if done.returncode != 0:
        pytest.skip(f"the file list comes from git: {done.stderr.strip()}")
    return [name for name in done.stdout.splitlines() if (REPOSITORY / name).is_file()]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy the tracked files into a folder of another name."""
    copy = tmp_path_factory.mktemp("source") / "another name"
    for name in tracked_files():
        target = copy / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(REPOSITORY / name, target)
    return copy


@pytest.fixture(scope="module")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel from the clean copy with the setuptools of the environment."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder)]
    done = subprocess.run([*command, "."], capture_output=True, check=False, cwd=source, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    [built] = folder.glob("*.whl")
    return built


def names_in(wheel: Path) -> set[str]:
    """Return the files a wheel installs, its own metadata left out."""
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if ".dist-info/" not in name and not name.endswith("/")}


def expected_names() -> set[str]:
    """Return what belongs into the wheel: every tracked file of the folders that pyproject.toml maps."""
    folders = PROJECT["tool"]["setuptools"]["package-dir"].values()
    tops = {folder for folder in folders if "/" not in folder}
    return {f"roofcast/{name.removeprefix('cli/_root/')}" for name in tracked_files() if name.split("/")[0] in tops}


def test_the_wheel_holds_every_module_and_data_file_and_nothing_else(wheel: Path) -> None:
    """A module, YAML or JSON file of the tree is in the wheel under roofcast/; tests, docs and benchmarks are not."""
    assert names_in(wheel) == expected_names()


def test_the_wheel_installs_one_top_level_name(wheel: Path) -> None:
    """Nothing called cli, reports or tests lands in site-packages."""
    assert {name.split("/")[0] for name in names_in(wheel)} == {"roofcast"}


def test_the_wheel_carries_the_data(wheel: Path) -> None:
    """All accelerators, the catalogue, the templates of pages and the typing marker are in."""
    names = names_in(wheel)

    assert sum(name.startswith("roofcast/hwdb/accelerators/") for name in names) >= 95
    assert any(name.startswith("roofcast/modelspec/catalogue/") for name in names)
    assert {"roofcast/reports/templates/page.html.j2", "roofcast/reports/templates/page.css"} <= names
    assert "roofcast/py.typed" in names


def test_the_metadata_names_licence_python_script_and_no_torch(wheel: Path) -> None:
    """A plain install is Apache-2.0 software for Python 3.11 that brings a console script and no torch."""
    with zipfile.ZipFile(wheel) as archive:
        [info] = {name.split("/")[0] for name in archive.namelist() if ".dist-info/" in name}
        metadata = email.parser.Parser().parsestr(archive.read(f"{info}/METADATA").decode())
        scripts = archive.read(f"{info}/entry_points.txt").decode()
        licence = archive.read(f"{info}/licenses/LICENSE").decode()
    requirements = [line.partition(";") for line in metadata.get_all("Requires-Dist", [])]

    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Requires-Python"] == ">=3.11"
    assert "roofcast = roofcast.cli.app:main" in scripts
    assert "TERMS AND CONDITIONS" in licence
    assert not any("torch" in name for name, _, marker in requirements if "extra" not in marker)
    assert not any("==" in name for name, _, _ in requirements)


def run_in(folder: Path, *argv: str, **environment: str) -> str:
    """Run a command in a folder and return its standard output.

    PYTHONPATH holds only what is asked: the interpreter's own site-packages may hold another roofcast.
    """
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | environment
    done = subprocess.run(argv, capture_output=True, check=False, cwd=folder, env=variables, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("folder", [Path("/"), REPOSITORY, REPOSITORY / "tests"], ids=["root", "clone", "tests"])
def test_the_unpacked_wheel_runs_from_any_folder(wheel: Path, tmp_path: Path, folder: Path) -> None:
    """`python -m roofcast` finds its data where it was unpacked, not in the clone it is started from."""
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    find = "import roofcast; print(roofcast.__file__)"

    printed = run_in(folder, sys.executable, "-m", "roofcast", *KV, PYTHONPATH=str(site))

    assert json.loads(printed)["result"]["models"][0]["kv_bytes_per_token"] == 131072
    assert run_in(folder, sys.executable, "-c", find, PYTHONPATH=str(site)).startswith(str(site))


@pytest.mark.slow
def test_the_wheel_installs_into_an_empty_environment_and_runs(wheel: Path, tmp_path: Path) -> None:
    """`pip install` of the wheel alone brings all that `roofcast kv llama-3.1-8b` needs, run from any folder."""
    home = tmp_path / "empty"
    venv.create(home, with_pip=True)
    scripts = home / ("Scripts" if os.name == "nt" else "bin")
    pip = (str(scripts / "python"), "-m", "pip")
    install = [*pip, "install", "--quiet", "--retries", "1", str(wheel)]

    done = subprocess.run(install, capture_output=True, check=False, text=True)

    if done.returncode != 0 and "connection broken" in done.stderr:
        pytest.skip("no package index in reach")
    assert done.returncode == 0, done.stderr
    for folder in (Path("/"), REPOSITORY, tmp_path):
        for program in ((str(scripts / "roofcast"),), (str(scripts / "python"), "-m", "roofcast")):
            printed = run_in(folder, *program, *KV)
            assert json.loads(printed)["result"]["models"][0]["kv_bytes_per_token"] == 131072
    assert "torch" not in run_in(tmp_path, *pip, "list")
