"""`action.yml` run as a runner runs it, and the hook of pre-commit, in the sample repository."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
import yaml

from tests.running import roofcast

REPOSITORY = Path(__file__).resolve().parents[1]
SAMPLE = Path(__file__).parent / "fixtures" / "sample_repository"
ACTION = yaml.safe_load((REPOSITORY / "action.yml").read_text())
[HOOK] = yaml.safe_load((REPOSITORY / ".pre-commit-hooks.yaml").read_text())
EXPRESSION = re.compile(r"\$\{\{ *([\w.-]+) *\}\}")
BASH = ("bash", "--noprofile", "--norc", "-eo", "pipefail")  # what a runner makes of `shell: bash`
BASELINE = "roofcast-baseline.json"
# stands where a command would be run, if text were taken for one
ATTACKS = (
    "$(touch pwned)",
    "`touch pwned`",
    '"; touch pwned; "',
    "'; touch pwned; '",
    "x; touch pwned",
    "x\ntouch pwned",
    "x && touch pwned || touch pwned",
    "${IFS}touch${IFS}pwned",
    "x\npassed=1000",
    "x << COUNT\nCOUNT\ntouch pwned",
)


@dataclass(frozen=True, slots=True)
class Ran:
    """What an action did: exit code, stdout and stderr, outputs, the summary."""

    code: int
    out: str
    err: str
    outputs: dict[str, str]
    summary: str


class Runner:
    """A runner's machine, as far as an action sees it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.workspace = folder / "workspace"
        self.temp = folder / "temp"
        self.temp.mkdir()
        shutil.copytree(SAMPLE, self.workspace)

    def step(self, step: dict[str, Any], known: dict[str, str]) -> Ran:
        """Run a step's script with the variables that it names, as bash does there."""
        outputs, summary, script = (self.folder / name for name in ("outputs", "summary.md", "script.sh"))
        outputs.write_text("")
        script.write_text(step["run"])
        done = subprocess.run(
            [*BASH, str(script)],
            check=False,
            cwd=self.workspace,
            capture_output=True,
            text=True,
            timeout=60,
            env={
                **os.environ,
                **{name: filled(str(value), known) for name, value in step["env"].items()},
                "GITHUB_ACTION_PATH": str(REPOSITORY),
                "GITHUB_OUTPUT": str(outputs),
                "GITHUB_STEP_SUMMARY": str(summary),
                "GITHUB_WORKSPACE": str(self.workspace),
                "RUNNER_TEMP": str(self.temp),
            },
        )
        lines = outputs.read_text().splitlines()
        said = summary.read_text() if summary.exists() else ""
        return Ran(done.returncode, done.stdout, done.stderr, dict(line.split("=", 1) for line in lines), said)

    def check(self, **given: str) -> Ran:
        """Run the step that checks, with inputs as a workflow gives them, and roofcast as it is installed here."""
        inputs = {name: str(about["default"]) for name, about in ACTION["inputs"].items()} | given
        known = {f"inputs.{name}": value for name, value in inputs.items()}
        return self.step(steps()["check"], {**known, "steps.install.outputs.python": sys.executable})


def steps() -> dict[str, dict[str, Any]]:
    """Return the steps of the action by their id."""
    return {step["id"]: step for step in ACTION["runs"]["steps"]}


def filled(text: str, known: dict[str, str]) -> str:
    """Put values in the place of expressions, once."""
    return EXPRESSION.sub(lambda found: known[found[1]], text)


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    """Return a machine with the sample repository checked out."""
    return Runner(tmp_path)


def counts(ran: Ran) -> tuple[str | None, ...]:
    """Return the outputs that count."""
    return tuple(ran.outputs.get(name) for name in ("passed", "failed", "undetermined"))


def test_a_passing_repository(runner: Runner) -> None:
    """All rules are met: exit 0, no annotation, a summary and JUnit XML that say so."""
    ran = runner.check(baseline=BASELINE)

    assert ran.code == 0, ran.err
    assert ran.out.startswith("all 11 rules pass\n")
    assert "::error" not in ran.out
    assert counts(ran) == ("11", "0", "0")
    assert ran.summary.startswith("### \N{WHITE HEAVY CHECK MARK} all 11 rules pass\n")
    [suite] = ET.parse(ran.outputs["junit"]).getroot()  # noqa: S314 - our own
    assert (suite.get("name"), suite.get("tests"), suite.get("failures")) == ("roofcast.yaml", "11", "0")


def test_a_failing_repository(runner: Runner) -> None:
    """Rules that fail stop the job with the gate's own code, each annotated at its line."""
    ran = runner.check(file="failing.yaml")

    assert ran.code == 1
    assert counts(ran) == ("1", "3", "0")
    assert [line.split("::")[1] for line in ran.out.splitlines() if line.startswith("::")] == [
        "error file=failing.yaml,line=5,title=failed%3A a thousand chats at 4k",
        "error file=failing.yaml,line=10,title=failed%3A first token%3A 50 %25%2C or less",
        "error file=failing.yaml,line=15,title=failed%3A weights fit a small card",
    ]
    assert ran.summary.startswith("### \N{CROSS MARK} 3 of 4 rules fail\n")


def test_an_undetermined_repository(runner: Runner) -> None:
    """What cannot be told does not pass: exit 3, and annotations that say so."""
    ran = runner.check(file="undetermined.yaml")

    assert ran.code == 3
    assert counts(ran) == ("1", "0", "2")
    assert ran.out.count("title=cannot be told%3A") == 2


def test_a_malformed_repository(runner: Runner) -> None:
    """A rule file with slips is exit 2, a line, an annotation and an error of JUnit each; nothing passes."""
    ran = runner.check(file="malformed.yaml")
    slips = [line.split(",")[:2] for line in ran.out.splitlines() if line.startswith("::error ")]

    assert ran.code == 2
    assert (ran.outputs["passed"], ran.outputs["failed"], ran.outputs["undetermined"]) == ("0", "0", "5")
    assert "nothing was checked" in ran.summary
    assert slips == [["::error file=malformed.yaml", f"line={line}"] for line in (3, 8, 12, 13, 20)]
    assert ran.err.count("roofcast: malformed.yaml:") == len(slips)
    assert "Traceback" not in ran.err


def test_a_file_that_is_not_there(runner: Runner) -> None:
    """The default file is named where a repository has none."""
    (runner.workspace / "roofcast.yaml").unlink()

    ran = runner.check()

    assert ran.code == 2
    assert "roofcast.yaml" in ran.err


def test_several_files_and_arguments(runner: Runner) -> None:
    """Files stand one a line, arguments between blanks; the action can run again in the same job."""
    ran = runner.check(file="roofcast.yaml\nfailing.yaml\n", baseline=BASELINE, args="--offline\n --format  text")
    again = runner.check(file="failing.yaml", efficiency="bound")

    assert ran.code == 1
    assert counts(ran) == ("12", "3", "0")
    assert again.outputs["junit"] != ran.outputs["junit"]
    assert again.summary.count("###") == 2  # GitHub shows what all steps have added


def test_arguments_are_words_and_nothing_else(runner: Runner) -> None:
    """A star is no list of files, a tilde no home, a quote no quote."""
    for word in ("*", "~", "'x'", "$HOME", "--no-such-option"):
        ran = runner.check(args=word)

        assert ran.code == 2
        assert word in ran.err


@pytest.mark.parametrize("attack", ATTACKS)
def test_inputs_are_not_code(runner: Runner, attack: str) -> None:
    """Whatever stands in the inputs, nothing of it is run and no output is forged."""
    ran = runner.check(file=attack, baseline=attack, efficiency=attack, args=attack)

    assert list(runner.folder.rglob("pwned")) == []
    assert ran.code == 2
    assert ran.outputs == {}


def test_no_script_has_an_expression() -> None:
    """Inputs reach scripts as variables alone: text put into a script could be code."""
    scripts = [step["run"] for step in ACTION["runs"]["steps"] if "run" in step]

    assert len(scripts) == 2
    assert not any("${{" in script for script in scripts)
    assert all(step["shell"] == "bash" for step in ACTION["runs"]["steps"] if "run" in step)


def test_every_input_is_used_and_every_output_made() -> None:
    """Expressions name inputs that there are and outputs of steps that there are, and all inputs count."""
    named = set(EXPRESSION.findall((REPOSITORY / "action.yml").read_text()))
    made = {"steps.python.outputs.python-path", "steps.install.outputs.python"}
    made |= {f"steps.check.outputs.{name}" for name in ACTION["outputs"]}

    assert named == {f"inputs.{name}" for name in ACTION["inputs"]} | made
    assert all(about["description"] for about in (*ACTION["inputs"].values(), *ACTION["outputs"].values()))
    scripts = "".join(step.get("run", "") for step in ACTION["runs"]["steps"])
    assert all(variable in scripts for step in ACTION["runs"]["steps"] for variable in step.get("env", {}))


def test_other_actions_are_pinned() -> None:
    """What the action uses is a commit, which cannot move, with its release beside it; Python is one that will do."""
    uses = [step["uses"] for step in ACTION["runs"]["steps"] if "uses" in step]

    assert all(re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", name) for name in uses)
    assert re.search(rf"{re.escape(uses[0])} # v\d+\.\d+\.\d+$", (REPOSITORY / "action.yml").read_text(), re.MULTILINE)
    major, minor = ACTION["inputs"]["python-version"]["default"].split(".")
    assert (int(major), int(minor)) >= (3, 11)


class TestInstalling:
    """The step that installs, with a Python that notes what it is asked for."""

    @pytest.fixture
    def stand_in(self, tmp_path: Path) -> Path:
        """Return a program that notes its arguments, a line each, and makes environments of itself."""
        path = tmp_path / "python"
        path.write_text(
            "#!/bin/sh\n"
            f'for word in "$@"; do printf "%s\\n" "$word" >>{shlex.quote(str(tmp_path / "asked"))}; done\n'
            f'if [ "$2" = venv ]; then mkdir -p "$3/bin"; cp {shlex.quote(str(path))} "$3/bin/python"; fi\n'
        )
        path.chmod(0o755)
        return path

    def install(self, runner: Runner, stand_in: Path, version: str) -> tuple[Ran, list[str]]:
        """Run the step, and return what was asked of Python too."""
        known = {"steps.python.outputs.python-path": str(stand_in), "inputs.version": version}
        ran = runner.step(steps()["install"], known)
        asked = stand_in.parent / "asked"
        return ran, asked.read_text().splitlines() if asked.exists() else []

    @pytest.mark.parametrize(("version", "package"), [("", str(REPOSITORY)), ("0.1.0", "roofcast==0.1.0")])
    def test_what_is_installed(self, runner: Runner, stand_in: Path, version: str, package: str) -> None:
        """Without a version it is the action's own checkout, in an environment of its own that later steps get."""
        ran, asked = self.install(runner, stand_in, version)

        assert ran.code == 0, ran.err
        assert asked[-1] == package
        assert asked[:2] == ["-m", "venv"]
        assert Path(ran.outputs["python"]).is_relative_to(runner.temp)
        assert Path(ran.outputs["python"]).exists()

    @pytest.mark.parametrize(
        "attack", [*ATTACKS, "0.1.0 --index-url http://evil.example", "@ http://evil.example", "-e ."]
    )
    def test_a_version_is_a_version(self, runner: Runner, stand_in: Path, attack: str) -> None:
        """Anything but a release is refused before Python is asked for anything."""
        ran, asked = self.install(runner, stand_in, attack)

        assert ran.code == 2
        assert ran.out.startswith("::error ")
        assert asked == []
        assert list(runner.folder.rglob("pwned")) == []


def workflow_uses(text: str) -> list[dict[str, Any]]:
    """Return the steps of a workflow that use roofcast's action, after the workflow has been held to its outline."""
    workflow = yaml.safe_load(text)
    assert True in workflow  # YAML 1.1 takes `on` for yes; GitHub does not
    assert workflow["permissions"] == {"contents": "read"}
    [job] = workflow["jobs"].values()
    assert job["runs-on"]
    assert job["steps"][0]["uses"].startswith("actions/checkout@")
    return [step for step in job["steps"] if "/roofcast@" in step.get("uses", "")]


def test_the_sample_workflow_uses_inputs_that_there_are() -> None:
    """The workflow of the sample repository names inputs of the action and files of its own."""
    [step] = workflow_uses((SAMPLE / ".github" / "workflows" / "capacity.yml").read_text())

    assert step["with"].keys() <= ACTION["inputs"].keys()
    assert all((SAMPLE / step["with"][name]).is_file() for name in ("file", "baseline"))


def blocks(info: str) -> list[str]:
    """Return the fenced blocks of docs/check.md that begin so."""
    text = (REPOSITORY / "docs" / "check.md").read_text()
    return re.findall(rf"^```{re.escape(info)}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def test_the_workflow_of_the_manual_uses_inputs_that_there_are() -> None:
    """What docs/check.md shows is a workflow, and the inputs of its step exist."""
    [workflow] = blocks("yaml .github/workflows/capacity.yml")
    [step] = workflow_uses(workflow)

    assert step["with"].keys() <= ACTION["inputs"].keys()


def test_five_lines_adopt_it() -> None:
    """The manual's first block of YAML, which a job takes, is five lines: two steps, with inputs that there are."""
    adopted, *_ = blocks("yaml")
    checkout, check = yaml.safe_load(adopted)

    assert len(adopted.splitlines()) == 5
    assert checkout["uses"].startswith("actions/checkout@")
    assert check["uses"].startswith("OWNER/roofcast@")
    assert check["with"].keys() <= ACTION["inputs"].keys()


def test_the_hook_of_the_manual_is_the_one_that_there_is() -> None:
    """The manual shows the configuration of the sample repository, which names the hook by its id."""
    assert (SAMPLE / ".pre-commit-config.yaml").read_text() in blocks("yaml")
    assert HOOK["id"] == "roofcast-check"


def test_documents_list_every_input_and_output() -> None:
    """docs/check.md has a row for each input and output of the action."""
    text = (REPOSITORY / "docs" / "check.md").read_text()

    assert [name for name in (*ACTION["inputs"], *ACTION["outputs"]) if f"| `{name}` |" not in text] == []


@pytest.mark.parametrize(
    ("path", "taken"),
    [
        ("roofcast.yaml", True),
        ("roofcast.yml", True),
        ("capacity/roofcast-prod.yaml", True),
        ("roofcast-baseline.json", False),
        ("failing.yaml", False),
        ("not-roofcast.yaml", False),
        ("roofcast/values.yaml", False),
        ("roofcast.yaml.bak", False),
    ],
)
def test_the_hook_takes_rule_files(path: str, taken: bool) -> None:
    """pre-commit searches the pattern in a path from the root of the repository."""
    assert bool(re.search(HOOK["files"], path)) is taken


def test_the_hook_runs_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hook's entry with the files of the sample repository that its pattern takes is a gate that passes."""
    monkeypatch.chdir(SAMPLE)
    [sample] = yaml.safe_load((SAMPLE / ".pre-commit-config.yaml").read_text())["repos"]
    [asked] = sample["hooks"]
    files = sorted(str(path.relative_to(SAMPLE)) for path in SAMPLE.rglob("*") if path.is_file())
    program, *entry = shlex.split(HOOK["entry"])

    outcome = roofcast(*entry, *asked["args"], *(file for file in files if re.search(HOOK["files"], file)))

    assert asked["id"] == HOOK["id"]
    assert program == "roofcast"
    assert outcome.code == 0, outcome.err
    assert HOOK["language"] == "python"


def test_the_sample_baseline_is_golden(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, update_golden: bool) -> None:
    """The baseline of the sample repository has the values of now; `make golden` rewrites it."""
    here = SAMPLE if update_golden else shutil.copytree(SAMPLE, tmp_path / "sample")
    monkeypatch.chdir(here)

    outcome = roofcast("check", "roofcast.yaml", "--baseline", BASELINE, "--update")

    assert outcome.code == 0, outcome.err
    assert (here / BASELINE).read_text() == (SAMPLE / BASELINE).read_text()
