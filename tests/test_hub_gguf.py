"""GGUF files on the Hub: which of a repo is meant, and how little of it is read."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from roofcast.modelspec.errors import MalformedModelError, ModelError, UndeterminedModelError
from roofcast.modelspec.gguf_tags import GgufName, choose, has_tag, tag_of
from roofcast.modelspec.source import resolve
from tests.checkpoints import TINY, decoder_tensors, published
from tests.gguf_bytes import as_read, every_type, gguf, write, writer
from tests.gguf_models import BYTES, FILES, METADATA, model, split, tensors, told
from tests.hub_client import (  # noqa: F401  pytest finds them by name
    REPO,
    Bar,
    hub_fixture,
    point_at,
    server_fixture,
    written,
)
from tests.hub_server import Fault, LocalHub, Sparse
from tests.running import answer

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("asked", "dtype"),
    [
        ("Q8_0", "Q8_0"),
        ("q8_0", "Q8_0"),
        ("F16", "F16"),
        ("f16", "F16"),
    ],
)
def test_a_tag_names_a_file(hub: LocalHub, asked: str, dtype: str) -> None:
    """org/name:TAG is the file with that tag, whatever the case of its letters; a projector beside it is said."""
    repo = hub.add(REPO, FILES)

    found = resolve(f"{REPO}:{asked}")

    assert (found.name, found.weights_problem) == (f"{REPO}:{asked}", None)
    assert found.source == f"Hub {REPO}@{repo.commit}, tiny-{dtype}.gguf (mmproj-F16.gguf, a projector, is not read)"
    assert told(found) == ("headers", BYTES[dtype], 1)
    assert found.weights is not None
    assert {t.name: (t.dtype, list(t.shape)) for t in found.weights.tensors} == tensors(dtype)


def test_the_config_is_that_of_the_metadata(hub: LocalHub) -> None:
    """A GGUF answers like the config.json of the same model."""
    hub.add(REPO, FILES)
    hub.add("acme/plain", published(TINY, decoder_tensors(TINY)))

    [got] = answer("kv", f"{REPO}:Q8_0")["result"]["models"]
    [plain] = answer("kv", "acme/plain")["result"]["models"]

    same = ("attention", "layers", "query_heads", "kv_heads", "kv_bytes_per_token", "parameters", "parameters_in_files")
    assert {key: got[key] for key in same} == {key: plain[key] for key in same}
    assert got["weight_bytes"] == BYTES["Q8_0"]
    assert got["provenance"]["weight_bytes"] == "header"


def test_a_file_is_asked_for_by_its_name(hub: LocalHub) -> None:
    """org/name/folder/file.gguf is that file."""
    hub.add(REPO, {"deep/er/m.gguf": model(), "other.gguf": model("F16")})

    found = resolve(f"{REPO}/deep/er/m.gguf")

    assert (found.name, told(found)) == (f"{REPO}/deep/er/m.gguf", ("headers", BYTES["Q8_0"], 1))


@pytest.mark.parametrize(
    "asked", [":Q8_0", ":q8_0", "/Q8_0/m-00001-of-00003.gguf", "/Q8_0/m-00003-of-00003.gguf"], ids=str
)
def test_parts_in_a_folder_are_one_model(hub: LocalHub, asked: str) -> None:
    """A split model is read whole, by the tag of its folder or by any of its parts, and the bar counts the parts."""
    hub.add(REPO, {**split("Q8_0/m"), **split("F16/m", "F16", 2)})
    bar = Bar()

    found = resolve(REPO + asked, progress=bar)

    assert told(found) == ("headers", BYTES["Q8_0"], 3)
    assert found.source.endswith(", Q8_0/m-00001-of-00003.gguf and 2 more")
    assert (bar.total, bar.done) == (3, 3)


def test_a_tag_of_a_catalogue_repo_asks_the_hub(hub: LocalHub) -> None:
    """A repo id that the catalogue knows is not answered from there when its GGUF is asked for."""
    hub.add("meta-llama/Llama-3.1-8B", FILES)

    assert resolve("meta-llama/Llama-3.1-8B").source.startswith("catalogue")
    assert told(resolve("meta-llama/Llama-3.1-8B:Q8_0")) == ("headers", BYTES["Q8_0"], 1)


def test_every_type_is_read_back_over_the_hub(hub: LocalHub, tmp_path: Path) -> None:
    """What the gguf package writes of every ggml type comes back exactly, in parts too."""
    package, made = writer(tmp_path / "m.gguf", split_max_tensors=7)
    for name, value in METADATA.items():
        if isinstance(value, int):
            made.add_uint32(name, value)
    write(made)
    hub.add(REPO, {f"all/{path.name}": path.read_bytes() for path in sorted(tmp_path.glob("*.gguf"))})

    found = resolve(f"{REPO}:all")

    assert found.weights is not None
    assert as_read(found.weights.tensors) == every_type(package)
    assert found.weights.files > 1


def test_a_repo_with_a_config_stays_one(hub: LocalHub) -> None:
    """Named plainly it is answered from its config, which says how the GGUF files are asked for."""
    hub.add(REPO, {**FILES, "config.json": json.dumps(TINY).encode()})

    found = resolve(REPO)

    assert (found.config, found.weights) == (TINY, None)
    assert (found.weights_problem or "").endswith(f"ask for one of its GGUF files: {REPO}:F16, {REPO}:Q8_0")
    assert told(resolve(f"{REPO}:Q8_0")) == ("headers", BYTES["Q8_0"], 1)


SEVERAL = {"a-Q4_K_M.gguf": b"", "b-Q4_K_M.gguf": b"", "b-UD-Q4_K_XL.gguf": b"", "BF16/b-00001-of-00002.gguf": b""}


@pytest.mark.parametrize(
    ("files", "asked", "says"),
    [
        pytest.param(
            FILES, "", f"no config.json .*: ask for one of its GGUF files: {REPO}:F16, {REPO}:Q8_0$", id="no tag"
        ),
        pytest.param(FILES, ":Q4_K_M", "no GGUF file has the tag 'Q4_K_M'; there are F16, Q8_0$", id="no such tag"),
        pytest.param(FILES, ":Q8_1", "the tag 'Q8_1'; nearest: Q8_0; there are F16, Q8_0$", id="nearly a tag"),
        pytest.param(FILES, ":Q8", "no GGUF file has the tag 'Q8'; nearest: Q8_0", id="half a tag"),
        pytest.param(FILES, ":mmproj", "no GGUF file has the tag 'mmproj'", id="a projector"),
        pytest.param(SEVERAL, ":Q4_K_M", f"fits 2 models; give one of {REPO}/a-Q4_K_M.gguf, {REPO}/b-Q4_K_M", id="two"),
        pytest.param(SEVERAL, ":BF16", "missing shard 'BF16/b-00002-of-00002.gguf'", id="a part is missing"),
        pytest.param(FILES, "/tiny-Q8_1.gguf", "no file 'tiny-Q8_1.gguf'; nearest of 2: tiny-Q8_0.gguf", id="no file"),
        pytest.param({"config.json": b"{}"}, ":Q8_0", "it holds no GGUF file of a model; without :Q8_0", id="no GGUF"),
        pytest.param({"mmproj-F16.gguf": b""}, ":F16", "it holds no GGUF file of a model", id="a projector alone"),
        pytest.param({"config.json": b"{}"}, "/m.gguf", "no file 'm.gguf'; it holds no GGUF file", id="no GGUF file"),
    ],
)
def test_what_is_not_there_is_said_with_what_is(
    hub: LocalHub, files: dict[str, bytes | Sparse], asked: str, says: str
) -> None:
    """A tag or a file that fits none or several leaves the answer undetermined and names those that would do."""
    hub.add(REPO, files)

    with pytest.raises(UndeterminedModelError, match=says) as caught:
        resolve(REPO + asked)

    assert str(caught.value).startswith(f"{REPO}: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("names", "tag", "chosen"),
    [
        (["m-Q4_K_M.gguf", "m-UD-Q4_K_M.gguf"], "Q4_K_M", "m-Q4_K_M.gguf"),
        (["m-Q4_K_M.gguf", "m-UD-Q4_K_M.gguf"], "ud-q4_k_m", "m-UD-Q4_K_M.gguf"),
        (["m-UD-Q4_K_XL.gguf", "m-Q4_0.gguf"], "Q4_K_XL", "m-UD-Q4_K_XL.gguf"),
        (["m.Q4_0.gguf", "m.Q4_0_4_4.gguf"], "Q4_0", "m.Q4_0.gguf"),
        (["m-IQ4_XS.gguf", "m-Q4_K_S.gguf"], "iq4_xs", "m-IQ4_XS.gguf"),
        (["q4-model/m.gguf", "q8-model/m.gguf"], "q8-model", "q8-model/m.gguf"),
        (["7b_q4_0.gguf", "13b_q4_0.gguf"], "7b_q4_0", "7b_q4_0.gguf"),
    ],
)
def test_the_nearest_fit_is_the_one(names: list[str], tag: str, chosen: str) -> None:
    """A tag stands between separators; the file whose own tag it is wins."""
    assert choose(GgufName(REPO, tag=tag), names, REPO) == (chosen,)


@pytest.mark.parametrize(
    ("file", "tag", "holds"),
    [
        ("m-Q4_K_M.gguf", "Q4_K", False),
        ("m-IQ4_XS.gguf", "Q4_XS", False),
        ("m-q8_0-00001-of-00002.gguf", "Q8_0", True),
        ("m-Q8_0-imat.gguf", "q8_0", True),
        ("Q8_0-folder/m.gguf", "Q8_0", False),
        ("m-Qx_0.gguf", "Q._0", False),
    ],
)
def test_a_tag_stands_between_separators(file: str, tag: str, *, holds: bool) -> None:
    """Half of a tag is none, and its characters are no pattern."""
    assert has_tag(file, tag) is holds


def test_a_file_without_a_mix_in_its_name_is_its_own_tag() -> None:
    """Every model can be asked for."""
    assert choose(GgufName(REPO, tag=tag_of("some-model.gguf")), ["some-model.gguf"], REPO) == ("some-model.gguf",)


def test_one_request_lists_and_the_header_alone_is_read(hub: LocalHub) -> None:
    """A gigabyte of weights costs one question for the list of files, one for the header, and no more bytes than that."""
    big = gguf(
        {**tensors("F16"), "token_embd.weight": ("F16", [8_000_000, 64])}, METADATA | {"llama.vocab_size": 8_000_000}
    )
    commit = hub.add(REPO, {"big-F16.gguf": big, "big-Q8_0.gguf": big}).commit

    found = resolve(f"{REPO}:F16")

    assert told(found)[1] == BYTES["F16"] + 2 * 64 * (8_000_000 - 100) > 10**9
    assert [(r.server, r.range) for r in hub.requests] == [
        ("hub", None),
        ("hub", "bytes=0-1048575"),
        ("cdn", "bytes=0-1048575"),
    ]
    assert commit in hub.requests[1].path
    assert hub.sent < 1_100_000


def test_a_long_header_is_read_to_its_end_and_hardly_further(hub: LocalHub) -> None:
    """A vocabulary of megabytes takes a few reads, each of twice the size; nothing is read twice."""
    words = {"tokenizer.ggml.tokens": [f"token{i:07}" for i in range(150_000)]}
    file = model("Q8_0", **words)
    hub.add(REPO, {"m-Q8_0.gguf": Sparse(file.start, file.size)})

    assert told(resolve(f"{REPO}:Q8_0")) == ("headers", BYTES["Q8_0"], 1)
    assert len(file.start) > 3_000_000
    assert hub.sent < 2 * len(file.start) + 1_100_000
    assert len([r for r in hub.requests if r.server == "cdn"]) == 2


def test_a_revision_is_asked_for(hub: LocalHub) -> None:
    """--revision takes a tag; everything after the list is read at its commit."""
    repo = hub.add(REPO, FILES, revisions=("main", "v1"))

    assert told(resolve(f"{REPO}:Q8_0", revision="v1")) == ("headers", BYTES["Q8_0"], 1)
    assert hub.requests[0].path.partition("?")[0].endswith("/revision/v1")
    assert all(repo.commit in r.path for r in hub.requests[1:] if r.server == "hub")
    with pytest.raises(UndeterminedModelError, match="no revision 'v9'"):
        resolve(f"{REPO}:Q8_0", revision="v9")


@pytest.mark.parametrize("files", [FILES, split("Q8_0/m")], ids=["one file", "parts"])
@pytest.mark.parametrize("asked", ["Q8_0", "q8_0"])
def test_offline_reads_what_the_cache_has(hub: LocalHub, files: dict[str, bytes | Sparse], asked: str) -> None:
    """A file that was downloaded is read where it is, with no request."""
    from huggingface_hub import hf_hub_download

    commit = hub.add(REPO, files).commit
    for name in files:
        if "Q8_0" in name:
            hf_hub_download(REPO, name)
    hub.requests.clear()

    found = resolve(f"{REPO}:{asked}", offline=True)

    assert told(found)[:2] == ("headers", BYTES["Q8_0"])
    assert found.source.startswith(f"Hub {REPO}@{commit}, ")
    assert hub.requests == []
    with pytest.raises(UndeterminedModelError, match=r"in the Hub's cache: no GGUF file has the tag 'F16'; .* Q8_0"):
        resolve(f"{REPO}:F16", offline=True)


def test_a_cached_file_is_not_asked_for_again(hub: LocalHub) -> None:
    """Online, the list is asked for and the file is read from the cache."""
    from huggingface_hub import hf_hub_download

    hub.add(REPO, FILES)
    hf_hub_download(REPO, "tiny-Q8_0.gguf")
    hub.requests.clear()

    assert told(resolve(f"{REPO}:Q8_0")) == ("headers", BYTES["Q8_0"], 1)
    assert len(hub.requests) == 1


def test_a_hub_out_of_reach_falls_back_to_the_cache(hub: LocalHub, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was downloaded answers when the Hub is not there; what was not is undetermined."""
    from huggingface_hub import hf_hub_download

    hub.add(REPO, FILES)
    hf_hub_download(REPO, "tiny-Q8_0.gguf")
    point_at("http://127.0.0.1:9", monkeypatch)

    assert told(resolve(f"{REPO}:Q8_0")) == ("headers", BYTES["Q8_0"], 1)
    with pytest.raises(UndeterminedModelError, match="connection refused"):
        resolve("acme/other:Q8_0")


def test_offline_with_nothing_cached_says_so(hub: LocalHub, tmp_path: Path) -> None:
    """--offline asks nothing, and names what would help."""
    hub.add(REPO, FILES)

    with pytest.raises(
        UndeterminedModelError, match=f"{REPO}: offline, and no GGUF file of it .*`hf download {REPO} FILE`"
    ):
        resolve(f"{REPO}:Q8_0", offline=True)

    assert hub.requests == []
    assert written(tmp_path) == []


def test_nothing_is_written(hub: LocalHub, tmp_path: Path) -> None:
    """Headers are kept nowhere, not even in the client's cache."""
    hub.add(REPO, FILES)

    resolve(f"{REPO}:Q8_0")

    assert written(tmp_path) == []


@pytest.mark.parametrize("where", ["m-Q8_0.gguf", "."])
def test_a_file_of_this_machine_answers_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    """A .gguf file, and a folder that holds one model and no config.json, need no Hub."""
    (tmp_path / "tiny").mkdir()
    monkeypatch.chdir(tmp_path / "tiny")
    file = model()
    (tmp_path / "tiny" / "m-Q8_0.gguf").write_bytes(file.span(0, file.size))
    (tmp_path / "tiny" / "mmproj-F16.gguf").write_bytes(b"not read")

    found = resolve(where)

    assert told(found) == ("headers", BYTES["Q8_0"], 1)
    assert (found.name, found.source) == {
        "m-Q8_0.gguf": ("m-Q8_0", "file m-Q8_0.gguf"),
        ".": ("tiny", "folder ., m-Q8_0.gguf (mmproj-F16.gguf, a projector, is not read)"),
    }[where]
    with pytest.raises(MalformedModelError, match="is a path on this machine"):
        resolve(where, revision="main")


def test_parts_on_this_machine_are_one_model(tmp_path: Path) -> None:
    """Any part leads to all."""
    for name, file in split("m-Q8_0").items():
        assert isinstance(file, Sparse)
        (tmp_path / name).write_bytes(file.span(0, file.size))

    for where in (tmp_path, tmp_path / "m-Q8_0-00002-of-00003.gguf"):
        found = resolve(str(where))
        assert told(found) == ("headers", BYTES["Q8_0"], 3)
    assert found.name == "m-Q8_0"


def test_an_architecture_that_is_not_understood_names_the_model(hub: LocalHub) -> None:
    """The line says which file, and why."""
    hub.add(REPO, {"m-Q8_0.gguf": gguf({"v.blk.0.w": ("F16", [2, 2])}, {"general.architecture": "clip"})})

    with pytest.raises(ModelError, match=f"^{REPO}:Q8_0: .*clip"):
        resolve(f"{REPO}:Q8_0")


def test_the_only_gguf_of_a_repo_without_a_config_is_meant(hub: LocalHub) -> None:
    """Named plainly, a repo with one model in GGUF and no config.json is that model, split or not."""
    hub.add(REPO, {"a-Q8_0.gguf": model("Q8_0"), "mmproj-a.gguf": b""})
    hub.add("acme/parts", split("b-F16", "F16"))

    assert told(resolve(REPO)) == ("headers", BYTES["Q8_0"], 1)
    assert told(resolve("acme/parts")) == ("headers", BYTES["F16"], 3)


def test_other_bytes_than_asked_for_are_no_answer(hub: LocalHub) -> None:
    """A proxy that always sends the start of a file is named, and the file is not called broken."""
    big = model("Q8_0", **{"general.name": "x" * 3_000_000})
    hub.add(REPO, {"big-Q8_0.gguf": big})
    always = {"Content-Range": f"bytes 0-{len(big.start) - 1}/{big.size}"}
    hub.faults.append(Fault("big-Q8_0.gguf", "status", code=206, headers=always, body=big.start, methods=("GET",)))

    with pytest.raises(UndeterminedModelError, match=r"other bytes of big-Q8_0\.gguf than were asked for"):
        resolve(f"{REPO}:Q8_0")
