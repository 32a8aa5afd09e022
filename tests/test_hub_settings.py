"""The environment of the Hub's client: settings that it stumbles over, secrets in it, and talk that no one asked for."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from roofcast.modelspec import source
from roofcast.modelspec.errors import UndeterminedModelError
from roofcast.modelspec.hubsettings import proxy_for, why_not_loaded
from tests.hub_client import REPO, SINGLE, hub_fixture, server_fixture  # noqa: F401  pytest finds them by name

if TYPE_CHECKING:
    from pathlib import Path

    from tests.hub_server import LocalHub


def run(hub: LocalHub, home: Path, **settings: str) -> subprocess.CompletedProcess[str]:
    """Ask for a repo in a process of its own: the client reads its settings when it is imported."""
    cleared = {
        name: value for name, value in os.environ.items() if not name.upper().startswith(("HF_", "HTTP", "ALL_"))
    }
    ours = {"HF_HOME": str(home), "HF_ENDPOINT": hub.url, "NO_PROXY": "127.0.0.1", **settings}
    command = [sys.executable, "-P", "-m", "roofcast", "kv", REPO, "--format", "json"]
    return subprocess.run(command, env=cleared | ours, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"HF_HUB_DOWNLOAD_TIMEOUT": "abc"}, "HF_HUB_DOWNLOAD_TIMEOUT is 'abc'; it must be a whole number of seconds"),
        ({"HF_HUB_ETAG_TIMEOUT": "-1"}, "HF_HUB_ETAG_TIMEOUT is -1; it must be a number of seconds above 0"),
        ({"HF_ENDPOINT": "http://[::1"}, "HF_ENDPOINT is no address of a server"),
        ({"HF_ENDPOINT": "http://127.0.0.1:99999"}, "HF_ENDPOINT is no address of a server"),
        ({"HF_ENDPOINT": "http://user:SECRET@127.0.0.1:9"}, "cannot reach 127.0.0.1:9 (connection refused)"),
        ({"HF_HOME": __file__}, "test_hub_settings.py/token' cannot be used (Not a directory); check HF_HOME"),
        ({"HF_HOME": "/" + "a" * 300}, "'... cannot be used (File name too long); check HF_HOME"),
        ({"HF_TOKEN_PATH": os.sep}, "'/' cannot be used (Is a directory); check HF_HOME and HF_TOKEN_PATH"),
        ({"HF_HUB_CACHE": "~nosuchuser/x"}, "set HF_HUB_CACHE"),
        ({"SSL_CERT_FILE": "/nonexistent"}, "SSL_CERT_FILE is '/nonexistent', which cannot be read"),
        ({"SSL_CERT_FILE": __file__}, "check SSL_CERT_FILE"),
        ({"HF_HUB_USER_AGENT_ORIGIN": "a\nb"}, "check HF_HUB_USER_AGENT_ORIGIN"),
        (
            {"NO_PROXY": "", "HTTP_PROXY": "http://u:SECRET@127.0.0.1:9"},
            "through the proxy of HTTP_PROXY (connection refused)",
        ),
    ],
)
def test_a_setting_that_cannot_work_is_named_in_one_line(
    hub: LocalHub, tmp_path: Path, settings: dict[str, str], says: str
) -> None:
    """Whatever is wrong with the environment is undetermined, names the variable or the path, and gives no secret away."""
    hub.add(REPO, SINGLE)

    done = run(hub, tmp_path, **settings)

    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.count("\n") == 1
    assert says in done.stderr
    assert "internal error" not in done.stderr
    assert "SECRET" not in done.stderr


def test_a_client_told_to_talk_stays_quiet(hub: LocalHub, tmp_path: Path) -> None:
    """HF_DEBUG, HF_HUB_VERBOSITY and what the client warns of when it is imported print nothing."""
    hub.add(REPO, SINGLE)

    for settings in ({"HF_DEBUG": "1", "HF_HUB_ENABLE_HF_TRANSFER": "1"}, {"HF_HUB_VERBOSITY": "zzz"}):
        done = run(hub, tmp_path, **settings)

        assert "huggingface" not in done.stderr.lower()
        assert [line for line in done.stderr.splitlines() if not line.startswith("roofcast: ")] == []


def test_a_client_that_is_not_installed_is_undetermined(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without huggingface_hub the catalogue and folders still answer, and the Hub says why not."""
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)

    with pytest.raises(UndeterminedModelError, match="the Hub's client cannot be loaded"):
        source._client()


def test_an_unknown_trouble_at_import_keeps_its_reason() -> None:
    """Where no setting is to blame the client's own words are given."""
    assert why_not_loaded(ValueError("odd\nvery")) == "the Hub's client cannot be loaded (ValueError: odd)"


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({}, ""),
        ({"HTTPS_PROXY": "http://p:1"}, "HTTPS_PROXY"),
        ({"HTTP_PROXY": "http://p:1"}, ""),
        ({"ALL_PROXY": "http://p:1"}, "ALL_PROXY"),
        ({"HTTPS_PROXY": "http://p:1", "NO_PROXY": "huggingface.co"}, ""),
    ],
)
def test_a_proxy_is_named_where_it_applies(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], name: str
) -> None:
    """Only the proxy that stands between here and the Hub can be to blame."""
    for variable in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(variable, raising=False)
        monkeypatch.delenv(variable.lower(), raising=False)
    for variable, value in settings.items():
        monkeypatch.setenv(variable, value)

    assert proxy_for("https://huggingface.co") == name
