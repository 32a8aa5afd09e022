"""The embedded catalogue: every entry is whole, sourced and found; counts of its files are derived again here."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from roofcast.modelspec import known
from roofcast.modelspec.known import KnownModel, find_known, known_names, nearest_names

REFERENCE = json.loads((Path(__file__).parent / "fixtures" / "catalogue_parameters.json").read_text())["counts"]
NAMES = known_names()
REPO = re.compile(r"[\w-]+/[A-Za-z0-9][\w.-]*")
SAFETENSORS_DTYPES = {"BF16": 2, "F16": 2, "F32": 4, "F8_E4M3": 1, "U8": 1, "I32": 4}
PACKED = {"U8", "I32"}  # several 4-bit weights an element

# Published totals that the config alone must give, known from papers, model cards and the Hub's summaries.
PUBLISHED = {
    "llama-3.1-8b": 8_030_261_248,
    "llama-2-7b": 6_738_415_616,
    "qwen2.5-7b": 7_615_616_512,
    "mistral-7b-v0.3": 7_248_023_552,
    "deepseek-v3": 671_026_404_352,
    "opt-13b": 12_853_473_280,
    "mixtral-8x7b": 46_702_792_704,
    "phi-3.5-moe": 41_873_153_344,
    "mixtral-8x22b": 140_620_634_112,
    "mixtral-8x22b-instruct": 140_630_071_296,
    "mistral-nemo-12b": 12_247_782_400,
    "mistral-large-2407": 122_610_069_504,
    "devstral-small-2507": 23_572_403_200,
    "seed-oss-36b": 36_151_104_512,
    "gpt-oss-20b": 20_914_757_184,
    "gpt-oss-120b": 116_829_156_672,
    "qwen3-coder-next": 79_674_391_296,
    "qwen3-vl-8b": 8_767_123_696,
    "smollm3-3b": 3_075_098_624,
    "llama-4-scout-17b-16e": 108_641_793_536,
    "llama-4-maverick-17b-128e": 401_583_781_376,
}

# Bytes of all tensors of the published files: index files, audits of their headers, header readers.
PUBLISHED_BYTES = {
    "gpt-oss-20b": 13_761_264_768,
    "gpt-oss-120b": 65_248_815_744,
    "kimi-k2": 1_029_173_256_720,
    "kimi-k2-0905": 1_029_173_265_504,
    "kimi-k2-thinking": 594_205_920_512,
    "kimi-k2.5": 595_148_192_736,
    "kimi-k3": 1_560_860_324_864,
    "minimax-m2": 230_121_630_720,
}

# Elements of the published files as the Hub counts them, scales included.
PUBLISHED_ELEMENTS = {
    "deepseek-v3.2": 685_396_921_376,
    "glm-4.5": 358_337_791_296,
    "glm-4.5-air": 110_468_824_832,
    "glm-4.6": 356_785_898_816,
    "glm-4.7": 358_337_791_296,
    "glm-4.7-flash": 31_221_488_576,
    "glm-5": 753_864_139_008,
    "glm-5.2": 753_329_940_480,
    "kimi-k2": 1_026_470_731_056,
    "minimax-m2.5": 228_703_644_928,
    "qwen3-32b-fp8": 32_764_027_904,
    "qwen3-coder-480b-a35b-fp8": 480_184_064_000,
}

# Files that hold more than the class counts: a head beside the embedding that the class ties, or a module it drops.
HEAD_TWICE = {"falcon-180b", "falcon-7b", "falcon-40b", "mistral-small-3.1-24b", "qwen3-0.6b", "qwen3-1.7b"}
PREDICTION = {"qwen3-next-80b-a3b"}


def entry(name: str) -> KnownModel:
    """Return an entry that must be there."""
    found = find_known(name)
    assert found is not None, name
    return found


@pytest.mark.parametrize("name", NAMES)
def test_entry_is_whole(name: str) -> None:
    """Every entry answers to its file's name and holds repos, a model_type, sane counts and a source with a URL."""
    model = entry(name)
    assert model.name == name
    assert re.fullmatch(r"[a-z0-9][a-z0-9._-]*", name)
    assert model.repos
    assert all(REPO.fullmatch(repo) for repo in model.repos)
    assert isinstance(model.config["model_type"], str)
    assert list(model.config) == sorted(model.config)
    assert "https://" in model.sources["config"]
    assert ("files" in model.sources) == (model.files is not None)
    files = model.files or {}
    assert set(files) <= set(SAFETENSORS_DTYPES)
    assert all(count > 0 for count in files.values())
    assert 0 <= model.scales <= sum(files.values())


def test_catalogue_is_wide_enough() -> None:
    """At least 350 models are embedded."""
    assert len(NAMES) >= 350
    assert len(set(NAMES)) == len(NAMES)


def test_repo_belongs_to_one_entry() -> None:
    """No repository, letter case aside, stands in two entries."""
    count = Counter(repo.lower() for name in NAMES for repo in entry(name).repos)
    assert [repo for repo, times in count.items() if times > 1] == []


def test_repo_name_means_one_entry() -> None:
    """A repo's bare name leads to the entry that holds the repo, unless it is itself another entry's name."""
    owners: dict[str, set[str]] = {}
    for name in NAMES:
        for repo in entry(name).repos:
            owners.setdefault(repo.lower().rpartition("/")[2], set()).add(name)
    assert {bare: names for bare, names in owners.items() if len(names) > 1} == {}
    assert {bare: names for bare, names in owners.items() if bare in NAMES and names != {bare}} == {}


@pytest.mark.parametrize("name", NAMES)
def test_every_repo_is_found(name: str) -> None:
    """Each repo id of an entry, in any letter case, finds that entry."""
    for repo in entry(name).repos:
        assert entry(repo).name == name
        assert entry(repo.upper()).name == name


def test_look_up_by_name_opens_one_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """A catalogue name costs one file, whatever the catalogue's size."""
    opened: list[str] = []
    read = Path.read_bytes

    def spy(path: Path) -> bytes:
        opened.append(path.name)
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", spy)
    assert entry("Llama-3.1-8B").name == "llama-3.1-8b"
    assert opened == ["llama-3.1-8b.json"]


@pytest.mark.parametrize(
    "name", ["", "llama-3.1-9b", "meta-llama/Nothing", "../known", "/etc/passwd", "a" * 300, "config"]
)
def test_unknown_name_is_none(name: str) -> None:
    """What the catalogue does not hold, a path or a word of its files included, is None and no error."""
    assert find_known(name) is None


def test_nearest_names_help() -> None:
    """A slip of the finger finds the name meant, first."""
    assert nearest_names("lama-3.1-8b")[0] == "llama-3.1-8b"
    assert nearest_names("Qwen/Qwen2.5-7B-Instrct")[0] == "qwen2.5-7b-instruct"
    assert len(nearest_names("deepseek-v4", 2)) <= 2
    assert nearest_names("zzzzzzzz") == ()


def test_siblings_of_the_first_table() -> None:
    """Base and instruct siblings answer alike where their files agree, and apart where they do not."""
    assert entry("meta-llama/Llama-3.1-8B-Instruct") == entry("llama-3.1-8b")
    assert entry("deepseek-ai/DeepSeek-V3-0324") == entry("deepseek-v3")
    assert entry("Qwen/Qwen2.5-7B").config["max_position_embeddings"] == 131_072
    assert entry("Qwen/Qwen2.5-7B-Instruct").config["max_position_embeddings"] == 32_768


def test_malformed_entry_is_our_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry that lacks a key is an assertion, not an answer."""
    (tmp_path / "broken.json").write_text('{"name": "broken"}')
    monkeypatch.setattr(known, "FOLDER", tmp_path)
    with pytest.raises(AssertionError, match="catalogue entry"):
        find_known("broken")


@pytest.mark.parametrize("name", sorted(PUBLISHED))
def test_reference_counts_are_the_published_ones(name: str) -> None:
    """The reference implementation, fed an entry's config, counts what is published."""
    assert REFERENCE[name]["params"] == PUBLISHED[name]


def countable(name: str) -> bool:
    """Tell whether an entry's files count parameters that the reference counts too."""
    files = entry(name).files or {}
    return name in REFERENCE and bool(files) and not PACKED & set(files)


@pytest.mark.parametrize("name", [name for name in NAMES if countable(name)])
def test_files_hold_at_least_the_reference(name: str) -> None:
    """Files hold the reference's parameters; more only with a prediction module or with a head stored twice."""
    model = entry(name)
    stored = sum((model.files or {}).values()) - model.scales
    extra = stored - REFERENCE[name]["params"]
    if model.config.get("num_nextn_predict_layers") or name in PREDICTION:
        assert extra > 0
    elif name in HEAD_TWICE:
        text = model.config.get("text_config", model.config)
        assert isinstance(text, dict)
        assert extra == text["vocab_size"] * text["hidden_size"]
    else:
        assert extra == 0


def test_reference_names_are_entries() -> None:
    """The reference counts speak of entries only, and of nearly all of them."""
    assert set(REFERENCE) <= set(NAMES)
    assert len(REFERENCE) >= 0.9 * len(NAMES)


def test_deepseek_v3_files_follow_from_its_config() -> None:
    """DeepSeek-V3's files: 62 layers, two embeddings and heads, fp8 with a scale a 128x128 block, 684.5B in all."""
    model = entry("deepseek-v3")
    hidden, heads, experts, width = 7168, 128, 256, 2048
    attention = [(1536, hidden), (heads * 192, 1536), (512 + 64, hidden), (heads * 256, 512), (hidden, heads * 128)]
    dense = [(18432, hidden), (18432, hidden), (hidden, 18432)]
    expert = [(width, hidden), (width, hidden), (hidden, width)]
    layers, sparse = 62, 59  # the multi-token-prediction module is one more sparse layer
    matrices = attention * layers + dense * 3 + expert * (experts + 1) * sparse
    fp8 = sum(rows * columns for rows, columns in matrices)
    scales = sum(-(-rows // 128) * -(-columns // 128) for rows, columns in matrices)
    norms = layers * (2 * hidden + 1536 + 512) + hidden
    prediction = 2 * hidden * hidden + 3 * hidden  # eh_proj, and the norms enorm, hnorm and shared_head.norm
    plain = norms + prediction + sparse * experts * hidden + 4 * 129_280 * hidden
    biases = sparse * experts
    assert model.files == {"BF16": plain, "F8_E4M3": fp8, "F32": scales + biases}
    assert model.scales == scales + biases
    assert fp8 + plain + scales + biases == 684_531_386_000
    assert round((sum(model.files.values()) - model.scales) / 1e9, 1) == 684.5
    assert entry("deepseek-r1").files == model.files


@pytest.mark.parametrize("name", sorted(PUBLISHED_ELEMENTS))
def test_files_add_up_to_the_hub(name: str) -> None:
    """Derived files add up, to the last element, to what the Hub counts."""
    assert sum((entry(name).files or {}).values()) == PUBLISHED_ELEMENTS[name]


@pytest.mark.parametrize("name", sorted(PUBLISHED_BYTES))
def test_files_weigh_what_is_published(name: str) -> None:
    """Derived files weigh, to the last byte, what the published ones weigh."""
    files = entry(name).files or {}
    assert sum(SAFETENSORS_DTYPES[dtype] * count for dtype, count in files.items()) == PUBLISHED_BYTES[name]


@pytest.mark.parametrize(("name", "layers", "experts"), [("gpt-oss-20b", 24, 32), ("gpt-oss-120b", 36, 128)])
def test_gpt_oss_files_follow_from_its_config(name: str, layers: int, experts: int) -> None:
    """Expert matrices are two weights a byte, with a byte of scale a 32 weights; all else is BF16."""
    model = entry(name)
    weights = layers * experts * 3 * 2880 * 2880  # gate and up in one matrix, and down
    assert model.files == {"BF16": PUBLISHED[name] - weights, "U8": weights // 2 + weights // 32}
    assert model.scales == weights // 32


def test_granite_base_has_three_words_less() -> None:
    """Granite's instruct files hold three words more than the base, and only theirs is the bare name."""
    assert entry("granite-3.0-8b").config["vocab_size"] == 49_155
    assert entry("granite-3.0-8b-base").config["vocab_size"] == 49_152
    assert REFERENCE["granite-3.0-8b"]["params"] - REFERENCE["granite-3.0-8b-base"]["params"] == 3 * 4096
