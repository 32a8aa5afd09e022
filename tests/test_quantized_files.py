"""Published quantised checkpoints: bytes that their own config files imply, against bytes worked out by hand."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

import pytest

from roofcast.modelspec.errors import ModelError
from roofcast.modelspec.folder import read_config
from roofcast.modelspec.implied import Implied, implied_bytes
from roofcast.modelspec.kv_hint import kv_hint
from roofcast.modelspec.matrix import inventory
from roofcast.modelspec.quantization import method_of, read_packing, stated
from roofcast.modelspec.spec import build_spec
from tests.model_configs import FIXTURES, published
from tests.running import answer

FOLDERS: Final = FIXTURES / "quantized"
LARGE: Final = 41  # quantised configs of the folder beside the repository at the time of writing


def of_folder(name: str) -> dict[str, Any]:
    """The config of a fixture's folder, with what hf_quant_config.json beside it says."""
    return read_config(FOLDERS / name / "config.json", name)


def implied(config: dict[str, Any]) -> Implied:
    """What a config implies."""
    spec = build_spec(config)
    packing = read_packing(config, len(spec.layers))
    assert packing is not None
    return implied_bytes(spec, packing)


def test_fp8_static() -> None:
    """Qwen3-32B FP8 per tensor, a file without quant_method: a byte a weight, two fp32 a matrix, the rest bf16."""
    layer = 2 * 5120 * 8192 + 2 * 5120 * 1024 + 3 * 5120 * 25600
    rest = 2 * 151936 * 5120 + 64 * (2 * 5120 + 2 * 128) + 5120
    assert implied(of_folder("Qwen--Qwen3-32B-FP8-Static-PerTensor")).total == 64 * (layer + 7 * 8) + 2 * rest


def test_nvfp4_by_hf_quant_config() -> None:
    """Qwen3-235B NVFP4, told beside config.json: 0.5625 B and two fp32 a matrix; routers and head stay bf16."""
    packed = 94 * (2 * 4096 * 8192 + 2 * 4096 * 512 + 128 * 3 * 4096 * 1536)
    rest = 2 * 151936 * 4096 + 94 * (128 * 4096 + 2 * 4096 + 2 * 128) + 4096
    found = implied(of_folder("nvidia--Qwen3-235B-A22B-NVFP4"))
    assert found.total == packed * 9 // 16 + 94 * (4 + 128 * 3) * 8 + 2 * rest
    assert found.assumptions == ()


def test_mixed_precision() -> None:
    """Qwen3.6-27B: FP8 where modules are named so, NVFP4 weights of feed-forwards and head, the rest bf16."""
    delta = 48 * (5120 * (2 * 2048 + 6144) + 5120 * 6144 + 6144 * 5120)  # in_proj_qkv, in_proj_z, out_proj
    attention = 16 * (5120 * 2 * 6144 + 2 * 5120 * 1024 + 6144 * 5120)  # queries with their gate
    feeding, head = 64 * 3 * 5120 * 17408, 248320 * 5120
    plain = 48 * (2 * 5120 * 48 + 4 * 10240 + 2 * 48 + 128) + 16 * 2 * 256 + 64 * 2 * 5120 + 5120 + 248320 * 5120
    found = implied(of_folder("nvidia--Qwen3.6-27B-NVFP4"))
    by_hand = delta + attention + 8 * (48 * 3 + 16 * 4) + (feeding + head) * 9 // 16 + 4 * (64 * 3 + 1) + 2 * plain
    vision = sum(part.bytes for part in found.parts if part.component.startswith("vision"))
    assert found.total - vision == by_hand


def test_autoround() -> None:
    """LocateAnything: layers in 4 bits, with fp16 scales and packed zero points for 128 inputs and no order."""
    packed = 36 * (2 * 2048 * 2048 + 2 * 2048 * 256 + 3 * 2048 * 11008)
    rest = 152681 * 2048 + 36 * (2 * 2048 + 2048 + 2 * 256) + 2048
    assert (
        implied(of_folder("nvidia--LocateAnything-3B-AutoRound")).total
        == packed // 2 + packed // 128 * 5 // 2 + 2 * rest
    )


def test_mlx() -> None:
    """DBRX in MLX's 4 bits: every matrix, both tables and the routers 0.5625 B; norms 16 bits."""
    layer = 6144 * (6144 + 2 * 1024) + 6144 * 6144 + 16 * 6144 + 16 * 3 * 6144 * 10752
    packed = 40 * layer + 2 * 100352 * 6144
    assert implied(published("mlx-community/dbrx-instruct-4bit")).total == packed * 9 // 16 + 2 * (81 * 6144)


def test_mxfp4_packs() -> None:
    """Kimi-K3's routed experts are mxfp4, 0.53125 B; the published headers hold 1,361,370,415,104 B of weights packed so."""
    experts = next(part for part in implied(published("moonshotai/Kimi-K3")).parts if part.component == "experts")
    assert (experts.stored, experts.elements) == ("mxfp4", 2_722_740_830_208)
    assert (experts.bytes, experts.beside) == (1_361_370_415_104, 85_085_650_944)


def test_nvfp4_experts_beside_fp8() -> None:
    """DeepSeek-V4-Flash NVFP4: 43 layers of 256 experts in NVFP4, shared ones in FP8 as the file they were made of."""
    found = implied(published("nvidia/DeepSeek-V4-Flash-NVFP4"))
    each = 2048 * 4096
    stored = {(part.component, part.stored): part for part in found.parts}
    experts = stored["experts", "nvfp4"]
    assert experts.elements == 43 * 256 * 3 * each
    assert experts.bytes + experts.beside == experts.elements * 9 // 16 + 43 * 256 * 3 * 8
    shared = stored["feed_forward", "fp8, blocks of 128 x 128"]
    assert (shared.elements, shared.beside) == (43 * 3 * each, 43 * 3 * each // 16384)
    assert any("ignore" in line for line in found.assumptions)


def test_lists_name_towers_and_attention() -> None:
    """Gemma-4-31B NVFP4 leaves attention and vision as they are, and so nothing is assumed of its tower."""
    found = implied(published("nvidia/Gemma-4-31B-IT-NVFP4"))
    stored = {part.component: part.stored for part in found.parts if part.elements > 10**9}
    assert stored == {"embedding": "bf16", "attention": "bf16", "feed_forward": "nvfp4"}
    assert found.assumptions == ()


def test_awq_packs_layers_alone() -> None:
    """Qwen2.5-Omni AWQ packs its 28 layers and neither tables, towers nor talker."""
    packed = 28 * (2 * 3584 * 3584 + 2 * 3584 * 512 + 3 * 3584 * 18944)
    found = implied(published("Qwen/Qwen2.5-Omni-7B-AWQ"))
    assert sum(part.elements for part in found.parts if part.stored.startswith("int4")) == packed
    assert found.components["scales"] == packed // 128 * 5 // 2


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("nvidia--Qwen3-235B-A22B-NVFP4", ("fp8", "kv_cache_quant_algo FP8")),
        ("Qwen--Qwen3-32B-FP8-Static-PerTensor", ("fp8", "kv_cache_scheme FP8")),
        ("nvidia--Qwen3.6-27B-NVFP4", ("fp8", "kv_cache_scheme of 8-bit float")),
        ("nvidia--LocateAnything-3B-AutoRound", None),
    ],
)
def test_cache_hints(name: str, hint: tuple[str, str] | None) -> None:
    """What published files ask for their cache."""
    found = stated(of_folder(name), 1)
    assert found is not None
    told = kv_hint(found.block, method_of(found))
    assert (told and (told.format, told.said)) == hint


@pytest.mark.parametrize(
    ("method", "block", "followers"),
    [
        ("modelopt", {"kv_cache_quant_algo": "FP8"}, {"vllm", "sglang", "tensorrt-llm"}),
        ("modelopt-fp4", {"kv_cache_scheme": {"num_bits": 8, "type": "float"}}, {"vllm", "sglang", "tensorrt-llm"}),
        ("modelopt", {"kv_cache_quant_algo": "NVFP4"}, {"vllm", "tensorrt-llm"}),
        ("modelopt", {"kv_cache_quant_algo": "INT8"}, {"tensorrt-llm"}),
        (
            "compressed-tensors",
            {"kv_cache_scheme": {"num_bits": 8, "type": "float", "dynamic": False}},
            {"vllm", "tgi"},
        ),
        ("compressed-tensors", {"kv_cache_scheme": {"num_bits": 8, "type": "int", "dynamic": False}}, set()),
    ],
)
def test_engines_that_follow_a_hint(method: str, block: dict[str, Any], followers: set[str]) -> None:
    """Which engines store the cache as a checkpoint asks depends on who wrote it, and the format."""
    told = kv_hint(block, method)
    assert told is not None
    assert set(told.followers) == followers


@pytest.mark.parametrize(
    "block", [{"kv_cache_quant_algo": "FP9"}, {"kv_cache_scheme": {"num_bits": 8, "dynamic": True}}, {}]
)
def test_no_hint(block: dict[str, Any]) -> None:
    """A format that nobody knows, and one that the engine chooses anew in every step, are no hints."""
    assert kv_hint(block, "modelopt") is None


def test_a_hint_counts_with_an_engine_that_follows_it() -> None:
    """Without an engine a hint is mentioned and not followed; with one it is, and listed; --kv always wins."""
    folder = str(FOLDERS / "nvidia--Qwen3-235B-A22B-NVFP4")
    per_token = {}
    for engine in ("none", "vllm", "llama.cpp"):
        found = answer("kv", folder, "--engine", engine)
        [row] = found["result"]["models"]
        per_token[engine] = row["kv_bytes_per_token"]
        assert any("kv_cache_quant_algo FP8" in line for line in found["assumptions"]) == (engine == "vllm")
        assert row["kv_format"] == {"vllm": "fp8", "llama.cpp": "fp16"}.get(engine, "bf16")
    assert per_token["none"] == per_token["llama.cpp"] == 2 * per_token["vllm"] == 94 * 2 * 4 * 128 * 2
    [row] = answer("kv", folder, "--engine", "vllm", "--kv", "bf16")["result"]["models"]
    assert row["kv_bytes_per_token"] == per_token["none"]


def test_many_published_files() -> None:
    """Every quantised config of the folder beside the repository, where there is one, is told or refused in one line.

    What is told lies between 4 bits a parameter and 16, and its components sum to all elements of the model.
    """
    hub = Path(os.environ.get("ROOFCAST_SHARED", FIXTURES.parents[2] / "shared")) / "hub"
    if not hub.is_dir():
        pytest.skip(f"{LARGE} quantised configs are not here")
    told = [path for path in sorted(hub.glob("*/*/config.json")) if _told(path)]
    assert len(told) >= LARGE - 1


def _told(path: Path) -> bool:
    """Whether a config is quantised and understood, and then what it implies holds together."""
    config = read_config(path, path.parent.name)
    try:
        spec = build_spec(config)
        packing = read_packing(config, len(spec.layers))
    except ModelError:
        return False
    if packing is None:
        return False
    found = implied_bytes(spec, packing)
    assert sum(part.elements for part in found.parts) == spec.parameters, path
    assert spec.parameters / 2 < found.total < 2 * spec.parameters, path
    assert not inventory(spec).unlisted & {"attention", "feed_forward", "experts"}, path
    return True
