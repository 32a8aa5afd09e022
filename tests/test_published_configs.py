"""Published configs against the reference implementation: parameters to the last one, and every byte of the cache.

Those among the fixtures are always checked. A folder of more of them beside the repository is checked where there is
one. It is not part of the project: it is the one that ROOFCAST_SHARED names, else `../shared`, and holds
`hub/ORG/NAME/config.json`, small copies and `truth/architectures.json` (name -> `params` as the reference counts,
`active_params`, and under `reduced` the cache of a small copy as measured).
"""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from roofcast.modelspec.errors import ModelError, UnknownArchitectureError
from roofcast.modelspec.spec import ModelSpec, build_spec
from tests.model_configs import CONFIGS, FIXTURES, is_one_line, outcome, published

if TYPE_CHECKING:
    from roofcast.modelspec.state import Kept

COUNTS: Final = json.loads((FIXTURES / "published_counts.json").read_text())["models"]
NAMES: Final = sorted(path.stem.replace("--", "/") for path in CONFIGS.glob("*.json"))
LARGE: Final = 138  # configs of the folder at the time of writing, for the line that says what is skipped
BYTES: Final = {"cache": 2, "model": 2, "fp32": 4}  # bf16

# Where the reference's count is not that of the published checkpoint: it ties input and output embedding, since the
# file does not say and its class ties, but the checkpoint holds both. repo -> parameters of the checkpoint
UNTIED_ON_DISK: Final = {
    "mistralai/Mistral-Small-3.1-24B-Instruct-2503": 24_011_361_280,
    "tiiuae/falcon-40b": 41_835_970_560,
}
# Where the reference's cache is not what engines hold, each with a test of its own below.
BROADCAST: Final = ("tiiuae/falcon-40b",)  # copies keys and values to all query heads before caching them
WAITING: Final = (
    "deepseek-ai/DeepSeek-V4-Pro",
    "nvidia/DeepSeek-V4-Flash-NVFP4",
)  # empties a buffer that we count full
COPIES_ENCODE: Final = 24  # tokens of the encoder whose small copy was measured
# Files that the reference implementation does not load, and that are not understood here either.
REFUSED: Final = {"tiiuae/Falcon-Perception": "segm_out_dim"}


def held(part: Kept, tokens: int, *, short: bool = False) -> int:
    """Bytes of one part; `short` is of a window that holds W - 1 tokens after a step, as most of the reference's do."""
    shown = replace(part, cap=part.cap - 1) if short and part.cap else part
    return part.elements * shown.entries(tokens) * BYTES[part.format]


def cache(spec: ModelSpec, tokens: int, *, short: bool = False) -> int:
    """Bytes that a model holds at a context, in bf16 where nothing else is fixed."""
    return sum(count * held(part, tokens, short=short) for part, count in spec.kept.items())


def spec_of(repo: str) -> ModelSpec:
    """The model of a fixture; an encoder has 40 tokens where only the input tells."""
    return build_spec(published(repo), encoder_tokens=40)


# --- the fixtures


@pytest.mark.parametrize("repo", [repo for repo, row in COUNTS.items() if "parameters" in row])
def test_parameters_are_the_references_to_the_last(repo: str) -> None:
    """All parameters, and those that work on a token, are as the reference implementation counts them."""
    spec, row = spec_of(repo), COUNTS[repo]

    assert spec.known_class
    assert spec.unknown_towers == ""
    assert spec.parameters == row["parameters"]
    assert spec.active_parameters == row.get("active_parameters", row["parameters"])


@pytest.mark.parametrize(("repo", "count"), UNTIED_ON_DISK.items())
def test_published_checkpoints_that_are_untied_count_both_embeddings(repo: str, count: int) -> None:
    """The difference to the checkpoint is exactly the head that the reference ties."""
    spec = spec_of(repo)

    assert spec.tied
    assert replace(spec, tied=False).parameters == count


MEASURED: Final = [(repo, int(n)) for repo, row in COUNTS.items() for n in row.get("cache_bytes", ())]
DIFFERENT: Final = {(repo, n) for repo, n in MEASURED if repo in BROADCAST or (repo in WAITING and n >= 128)}


@pytest.mark.parametrize(("repo", "tokens"), [case for case in MEASURED if case not in DIFFERENT])
def test_the_cache_is_the_references_to_the_byte(repo: str, tokens: int) -> None:
    """Growing, capped and fixed parts together are what the reference holds after a prompt, in its formats."""
    measured = COUNTS[repo]["cache_bytes"][str(tokens)]
    spec = spec_of(repo)

    assert measured in {cache(spec, tokens), cache(spec, tokens, short=True)}


@pytest.mark.parametrize("repo", BROADCAST)
def test_a_cache_of_broadcast_heads_is_that_many_times_as_large(repo: str) -> None:
    """The reference holds a copy for every query head; engines hold each KV head once."""
    spec = spec_of(repo)
    mixer = spec.lead_mixer
    assert mixer is not None
    times = mixer.query_heads // mixer.published_kv_heads

    assert times > 1
    assert {cache(spec, int(n)) * times: n for n in COUNTS[repo]["cache_bytes"]}.keys() == set(
        COUNTS[repo]["cache_bytes"].values()
    )


@pytest.mark.parametrize("tokens", [300, 9000])
@pytest.mark.parametrize("repo", WAITING)
def test_tokens_that_wait_to_be_compressed_are_counted_as_if_all_waited(repo: str, tokens: int) -> None:
    """Of ratio 128, T mod 128 tokens wait, two vectors each; the most that may ever wait, 127, are counted."""
    spec = spec_of(repo)
    heavy = [mixer for layer in spec.layers for mixer in layer.mixers if mixer.label == "HCA"]
    empty = len(heavy) * (127 - tokens % 128) * 2 * 512 * 2

    assert heavy
    assert cache(spec, tokens) - empty == COUNTS[repo]["cache_bytes"][str(tokens)]


# repo -> bytes a token that grow, and fixed bytes, in bf16; worked out from the layers and seen in the reference
FULL_SIZE: Final[dict[str, tuple[int, int]]] = {
    "deepseek-ai/DeepSeek-V2-Lite": (27 * 576 * 2, 0),  # 31,104
    "deepseek-ai/DeepSeek-V3": (61 * 576 * 2, 0),
    "deepseek-ai/DeepSeek-V3.2": (85_888, 0),  # 61 x (512 + 64 + 128) x 2
    "zai-org/GLM-5.2": (95_232, 0),  # 78 x 1152 + 21 x 256: 21 layers have an index of their own
    "zai-org/GLM-5": (78 * (576 + 128) * 2, 0),
    "MiniMaxAI/MiniMax-M3": (137_472, 0),  # 60 x 2048 + 57 x 256
    "Qwen/Qwen3.5-0.8B": (6 * 2 * 2 * 256 * 2, 19_759_104),  # 18 x (49,152 + 1,048,576)
    "moonshotai/Kimi-Linear-48B-A3B-Instruct": (7 * 1152, 20 * (3 * 32 * 128 * 4 * 2 + 32 * 128 * 128 * 4)),
    "moonshotai/Kimi-K2.5": (61 * 1152, 0),
    "mistralai/Mamba-Codestral-7B-v0.1": (0, 64 * (10_240 * 4 * 2 + 128 * 64 * 128 * 4)),
    "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": (6 * 2 * 2 * 128 * 2, 23 * (6144 * 4 * 2 + 64 * 64 * 128 * 4)),
    "LiquidAI/LFM2.5-1.2B-Instruct": (6 * 2 * 8 * 64 * 2, 10 * 2048 * 3 * 2),
    "tiiuae/falcon-40b": (122_880, 0),
    "meta-llama/Meta-Llama-3.1-8B": (131_072, 0),
    "nvidia/Llama-3_3-Nemotron-Super-49B-v1": (49 * 2 * 8 * 128 * 2, 0),  # 49 of 80 layers have attention
}


@pytest.mark.parametrize("repo", FULL_SIZE)
def test_full_size_state_is_as_worked_out(repo: str) -> None:
    """Bytes a token and fixed bytes of published sizes, by the formula of each layer."""
    spec = build_spec(published(repo))
    growing = sum(n * part.elements * BYTES[part.format] / part.per for part, n in spec.kept.items() if part.grows)
    fixed = sum(n * part.elements * BYTES[part.format] for part, n in spec.kept.items() if part.fixed)

    assert (growing, fixed) == FULL_SIZE[repo]


@pytest.mark.parametrize("repo", NAMES)
def test_every_fixture_is_answered_or_refused_by_its_keys(repo: str) -> None:
    """Only the files of the table are refused, as unknown, with a key that says why."""
    found = outcome(published(repo))

    assert isinstance(found, ModelError) == (repo in REFUSED), found
    if isinstance(found, ModelError):
        assert isinstance(found, UnknownArchitectureError)
        assert REFUSED[repo] in str(found)
        assert is_one_line(str(found))


def test_every_fixture_has_an_origin_and_every_count_a_fixture() -> None:
    """ORIGIN.md says where each file is from; no count is of a file that is not there."""
    origin = (CONFIGS / "ORIGIN.md").read_text()

    assert [path.name for path in CONFIGS.glob("*.json") if f"| {path.name} |" not in origin] == []
    assert origin.count(".json |") == len(NAMES)
    assert set(COUNTS) <= set(NAMES)
    assert len(NAMES) >= 70


# --- the folder


@pytest.fixture(name="folder")
def folder_fixture(repository: Path) -> Path:
    """Return the folder; skip where it is not there, with the number of what it would have checked."""
    folder = Path(os.environ.get("ROOFCAST_SHARED") or repository.parent / "shared")
    if not (folder / "truth" / "architectures.json").is_file():
        pytest.skip(f"no folder of published configs: {LARGE} configs not checked")
    return folder


def truth(folder: Path) -> dict[str, dict[str, Any]]:
    """What the reference implementation says of each config of the folder."""
    known: dict[str, dict[str, Any]] = json.loads((folder / "truth" / "architectures.json").read_text())
    return known


def config(path: Path) -> dict[str, Any]:
    """Return the config at a path."""
    read: dict[str, Any] = json.loads(path.read_text())
    return read


def test_published_counts_are_met_to_the_last_parameter(folder: Path) -> None:
    """Every file that the reference loads is answered with its parameters, all of them and the active ones."""
    wrong, checked = {}, 0
    for repo, row in truth(folder).items():
        if "params" not in row:
            continue
        found = outcome(config(folder / "hub" / repo / "config.json"))
        wanted = (row["params"], row.get("active_params", row["params"]))
        got = (found.parameters, found.active_parameters) if isinstance(found, ModelSpec) else str(found)
        checked += 1
        if got != wanted:
            wrong[repo] = (got, wanted)

    assert wrong == {}
    assert checked > LARGE * 3 // 4


def test_measured_caches_of_small_copies_are_met_to_the_byte(folder: Path) -> None:
    """Of every small copy the cache after 40 tokens is the measured one, but where heads are broadcast."""
    wrong, checked = {}, 0
    for repo, row in truth(folder).items():
        if "reduced" not in row or repo in BROADCAST:
            continue
        spec = build_spec(config(folder / row["reduced"]["config"]), encoder_tokens=COPIES_ENCODE)
        scale = {"bfloat16": 1, "float16": 1, "float32": 2}[row["reduced"]["cache_dtype"]]
        measured = row["reduced"]["total_bytes_at_40_tokens"]
        checked += 1
        if measured not in {cache(spec, 40) * scale, cache(spec, 40, short=True) * scale}:
            wrong[repo] = (cache(spec, 40), measured)

    assert wrong == {}
    assert checked > LARGE // 2


def test_published_files_are_answered_or_refused_by_name(folder: Path) -> None:
    """No published file is called broken; a refusal is one line that names keys or the class."""
    hub = folder / "hub"
    outcomes = {path.parent.relative_to(hub).as_posix(): outcome(config(path)) for path in hub.rglob("config.json")}
    refusals = {repo: error for repo, error in outcomes.items() if isinstance(error, ModelError)}

    assert [repo for repo, error in refusals.items() if not isinstance(error, UnknownArchitectureError)] == []
    assert [repo for repo, error in refusals.items() if "model_type" not in str(error)] == []
    assert [repo for repo, error in refusals.items() if not is_one_line(str(error))] == []
    assert set(refusals) <= set(REFUSED)
