"""A service as engines set it up: steps, memory, links, and what does not go together."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from roofcast.calculators.deployment import Deployment, cache_on_one
from roofcast.calculators.engines.flags import Flags
from roofcast.calculators.engines.registry import engine_memory
from roofcast.calculators.engines.serving import serve
from roofcast.calculators.errors import UsageError
from roofcast.calculators.serving.defaults import Reserve, Scheduling, Server, scheduling_of, server_of
from roofcast.calculators.serving.policies import POLICIES
from roofcast.calculators.serving.service import Options, Service, service_of, transfer_seconds
from roofcast.hwdb.lookup import find_accelerator
from roofcast.modelspec.formats import FORMATS
from roofcast.modelspec.sharding import Shards
from tests.engine_records import model_of


def scheduled(engine: str, gpu: str = "h100-sxm", model: str = "llama-3.1-8b", **flags: Any) -> Scheduling:
    """Return how an engine puts steps together on a GPU, with its flags."""
    deployment = Deployment(find_accelerator(gpu).accelerator, FORMATS["bf16"], None, Shards(), engine)
    served = serve(model_of(model), deployment, Flags(**flags))[0]
    return scheduling_of(served, engine_memory(engine, served))


def served_by(
    engine: str = "vllm", gpu: str = "h100-sxm", model: str = "llama-3.1-8b", cut: Any = None, **options: Any
) -> Service:
    """Return a service under an engine, or none."""
    deployment = Deployment(find_accelerator(gpu).accelerator, FORMATS["bf16"], None, Shards(**(cut or {})), engine)
    served = serve(model_of(model), deployment, Flags())[0]
    memory = engine_memory(engine, served) if engine != "none" else None
    return service_of(served, memory, Options(**options))[0]


# --- engines


@pytest.mark.parametrize(
    ("engine", "gpu", "flags", "policy", "sequences", "tokens"),
    [
        # vLLM's server: 8,192 tokens and 1,024 requests on large devices, 2,048 and 256 on others and the A100
        ("vllm", "h100-sxm", {}, "chunked", 1024, 8192),
        ("vllm", "h200-sxm", {}, "chunked", 1024, 8192),
        ("vllm", "a100-80gb-sxm", {}, "chunked", 256, 2048),
        ("vllm", "l40s", {}, "chunked", 256, 2048),
        ("vllm", "h100-sxm", {"max_num_seqs": 64, "max_num_batched_tokens": 512}, "chunked", 64, 512),
        # SGLang's chunks by the device's memory, prompts first
        ("sglang", "h100-sxm", {}, "prefill-first", 2048, 8192),
        ("sglang", "h100-sxm", {"max_running_requests": 48, "chunked_prefill_size": 4096}, "prefill-first", 48, 4096),
        # TensorRT-LLM's trtllm-serve: 2,048 requests, 8,192 tokens
        ("tensorrt-llm", "h100-sxm", {}, "continuous", 2048, 8192),
        ("tensorrt-llm", "h100-sxm", {"max_num_seqs": 128, "max_num_batched_tokens": 4096}, "continuous", 128, 4096),
        # TGI: the router's 128 requests, 4,096 tokens of prompts
        ("tgi", "h100-sxm", {}, "prefill-first", 128, 4096),
        ("tgi", "h100-sxm", {"max_batch_prefill_tokens": 1000}, "prefill-first", 128, 1000),
        # llama.cpp: its slots
        ("llama.cpp", "rtx-4090", {"parallel": 6}, "chunked", 6, 2048),
    ],
)
def test_engines_have_limits_of_their_own(
    engine: str, gpu: str, flags: dict[str, Any], policy: str, sequences: int, tokens: int
) -> None:
    """By the device where no flag says them, and as flags say."""
    found = scheduled(engine, gpu, "llama-3.2-1b" if engine == "llama.cpp" else "llama-3.1-8b", **flags)

    assert (found.policy, found.sequences, found.tokens) == (policy, sequences, tokens)


@pytest.mark.parametrize(
    ("gpu", "sequences"), [("h200-sxm", 1280), ("h100-sxm", 1024), ("a100-80gb-sxm", 512), ("l40s", 128)]
)
def test_lmdeploy_knows_devices_by_name(gpu: str, sequences: int) -> None:
    """Source: InternLM/lmdeploy, lmdeploy/utils.py, get_max_batch_size; before 0.10 there were 256 and 512."""
    found = scheduled("lmdeploy", gpu)

    assert (found.policy, found.sequences, found.tokens) == ("chunked", sequences, 8192)
    assert scheduled("lmdeploy", "a100-80gb-sxm", engine_version="0.9.2").sequences == 256


@pytest.mark.parametrize(("longest", "policy"), [(8192, "prefill-first"), (131_072, "chunked")])
def test_old_vllm_reads_before_it_decodes(longest: int, policy: str) -> None:
    """V0's scheduler and its step, unless requests may be longer than 32,768 tokens."""
    found = scheduled("vllm", engine_version="0.6.0", max_model_len=longest)

    assert found.policy == policy
    assert found.sequences == 256


def test_who_keeps_memory_for_what_is_to_come() -> None:
    """vLLM nothing; SGLang 0.7 x 0.14 of what others may make, and 4,096 tokens of one's own; the others all of it."""
    found = {engine: scheduled(engine).reserve for engine in ("vllm", "sglang", "tensorrt-llm", "tgi")}

    assert found["sglang"].running == pytest.approx(0.098)
    assert (found["sglang"].own, found["sglang"].clip) == (1.0, 4096)
    assert found["vllm"] == Reserve()
    assert found["tensorrt-llm"] == found["tgi"] == Reserve(1.0, 1.0)


@pytest.mark.parametrize(
    ("engine", "policy", "sequences"),
    [("none", "chunked", 1024), ("transformers", "static", 16), ("gpt-fast", "static", 1), ("mlc", "continuous", 80)],
)
def test_libraries_and_no_engine(engine: str, policy: str, sequences: int) -> None:
    """What has no rules of memory: vLLM's limits, or a library's own."""
    deployment = Deployment(find_accelerator("h100-sxm").accelerator, FORMATS["bf16"], None, Shards(), engine)
    found = scheduling_of(serve(model_of("llama-3.1-8b"), deployment, Flags())[0], None)

    assert (found.policy, found.sequences) == (policy, sequences)


def test_every_engine_s_policy_is_known() -> None:
    """And its server's latency is more than that of none."""
    for engine in ("vllm", "sglang", "tensorrt-llm", "tgi", "lmdeploy"):
        assert scheduled(engine).policy in POLICIES
        assert server_of(engine).latency > 0
    assert server_of("none") == server_of("transformers") == Server()


# --- options


def test_options_win() -> None:
    """Over what an engine has."""
    made = served_by(policy="static", sequences=7, tokens=300, order="prefix").scheduling

    assert made == Scheduling("static", 7, 300, Reserve(), "prefix")


def test_a_step_has_a_token_for_each() -> None:
    """Fewer tokens than requests leave as many requests."""
    made = served_by(tokens=100).scheduling

    assert (made.tokens, made.sequences) == (100, 100)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"readers": 2}, "--prefill-replicas and --decode-replicas go together"),
        ({"writers": 1}, "--prefill-replicas and --decode-replicas go together"),
        ({"samples": 2, "beams": 2}, "give one of them"),
        ({"kv_memory": "oracle", "prefix_cache": "radix"}, "--kv-memory oracle: contiguous memory shares no prefix"),
        ({"kv_memory": "max", "samples": 2}, "--kv-memory max: contiguous memory shares no blocks"),
        ({"acceptance": 0.7}, "give --num-speculative-tokens too"),
        ({"block": 257}, "--block-size 257: it must be from 1 to 256"),
        ({"block": 0}, "--block-size 0: it must be from 1 to 256"),
    ],
)
def test_what_does_not_go_together_is_refused(options: dict[str, Any], message: str) -> None:
    """In a line that names the option."""
    with pytest.raises(UsageError, match=message) as error:
        served_by(**options)
    assert "\n" not in str(error.value)


def test_replicas_are_of_one_kind() -> None:
    """Two pools are no replicas that do both."""
    with pytest.raises(UsageError, match="--dp counts replicas that do both"):
        served_by(cut={"dp": 2}, readers=1, writers=1)


def test_accepted_drafts_gain_a_geometric_sum() -> None:
    """1 + 0.5 + 0.25 of two drafted tokens; without an acceptance nothing is gained."""
    assert Options(drafted=2, acceptance=0.5).gain == 1.75
    assert Options(drafted=2).gain == 1.0
    assert (Options(samples=3).rows, Options(beams=4).rows, Options().rows) == (3, 4, 1)


# --- memory


def test_a_pool_is_what_the_engine_prints() -> None:
    """Blocks of 16, of tokens of 131,072 B."""
    service = served_by()
    deployment = Deployment(find_accelerator("h100-sxm").accelerator, FORMATS["bf16"], None, Shards(), "vllm")
    served = serve(model_of("llama-3.1-8b"), deployment, Flags())[0]
    memory = engine_memory("vllm", served)

    assert service.pool.block == 16
    assert memory.tokens
    assert service.pool.tokens == pytest.approx(memory.tokens[0], abs=16)
    assert service.pool.blocks * 16 == service.pool.tokens
    assert service.pool.token_bytes == 131_072
    assert service.pool.beside(1000) == 0
    assert service.pool.longest == 131_072


def test_without_an_engine_a_tenth_is_kept_free() -> None:
    """(80 GB x 0.9 - 16.06 GB) / 131,072 B."""
    service = served_by("none")

    assert service.pool.tokens == pytest.approx((80e9 * 0.9 - service.ready.weight_bytes) / 131_072, abs=16)
    assert service.reason == ""


@pytest.mark.parametrize("model", ["gpt-oss-20b", "gemma-3-27b-it", "falcon-h1-7b"])
@pytest.mark.parametrize("block", [1, 16, 100])
def test_windows_and_states_take_what_a_sequence_does(model: str, block: int) -> None:
    """Blocks of any context hold the bytes that `fit` counts, and no two more."""
    service = served_by("none", "h200-sxm", model, block=block)
    pool, ready = service.pool, service.ready
    size = ready.deployment.accelerator.memory * 0.9 - ready.weight_bytes
    each = size / pool.blocks
    for context in (1, 100, 1000, 1025, 10_000, 100_000):
        blocks = -(-context // block) * pool.per + pool.beside(context)
        needed = cache_on_one(ready, 1, context)
        assert blocks * each >= needed * (1 - 1e-3)
        assert (blocks - 2) * each <= needed


def test_states_alone_have_places() -> None:
    """Of a Mamba nothing grows: as many requests as states fit, whatever their length."""
    service = served_by("none", "h200-sxm", "falcon-mamba-7b")
    pool, ready = service.pool, service.ready

    assert pool.per == 0
    assert pool.beside(1) == pool.beside(10**6) == 1
    assert pool.blocks == int(
        (ready.deployment.accelerator.memory * 0.9 - ready.weight_bytes) // cache_on_one(ready, 1, 1)
    )


def test_what_leaves_no_room_has_a_reason() -> None:
    """Weights of 141 GB on a device of 80."""
    for engine in ("vllm", "none"):
        assert served_by(engine, model="llama-3.1-70b").reason


# --- links


def test_a_cache_goes_over_a_link() -> None:
    """Of 1,000 tokens 131 MB, at 50 GB/s unless it is given."""
    plain, given = served_by(readers=1, writers=1), served_by(readers=1, writers=1, kv_link=10e9)

    assert transfer_seconds(plain)(1000) == pytest.approx(1000 * 131_072 / 50e9)
    assert transfer_seconds(given)(1000) == pytest.approx(1000 * 131_072 / 10e9)


def test_the_network_is_the_link() -> None:
    """As --network says."""
    service = served_by(readers=1, writers=1)
    deployment = replace(service.ready.deployment, network=25e9)
    networked = replace(service, ready=replace(service.ready, deployment=deployment))

    assert transfer_seconds(networked)(1000) == pytest.approx(1000 * 131_072 / 25e9)


@pytest.mark.parametrize(
    ("engine", "options", "said"),
    [
        ("none", {}, "no engine's memory rules"),
        ("vllm", {"preemption": "swap"}, "25 GB/s to the host's memory"),
        ("vllm", {"readers": 1, "writers": 1}, "--kv-link gives it"),
        ("vllm", {"drafted": 2, "acceptance": 0.5}, "--draft-cost gives it"),
        ("sglang", {}, "is that of vLLM"),
    ],
)
def test_what_is_assumed_is_said(engine: str, options: dict[str, Any], said: str) -> None:
    """With the option that would say otherwise."""
    deployment = Deployment(find_accelerator("h100-sxm").accelerator, FORMATS["bf16"], None, Shards(), engine)
    served = serve(model_of("llama-3.1-8b"), deployment, Flags())[0]
    if engine == "sglang":
        from roofcast.calculators.expected.expectation import expectation_for

        served = replace(served, ready=replace(served.ready, expectation=expectation_for(served.ready, None)))
    memory = engine_memory(engine, served) if engine != "none" else None
    remarks = service_of(served, memory, Options(**options))[1]

    assert any(said in line for line in (*remarks.assumptions, *remarks.warnings))
