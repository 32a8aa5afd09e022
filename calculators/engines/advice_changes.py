"""Changes of a server's flags that may give more cache: one function a kind, and the tables of how engines spell them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from roofcast.calculators.engines.advice_case import REFUSED, Change, Part, recut
from roofcast.calculators.engines.flags import option
from roofcast.calculators.engines.serving import serve
from roofcast.calculators.engines.support import check_capability
from roofcast.calculators.engines.vllm_versions import parse_version
from roofcast.modelspec.formats import FORMATS
from roofcast.modelspec.latent import LatentAttention
from roofcast.modelspec.requested import find_requested

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from roofcast.calculators.engines.advice_case import Case
    from roofcast.modelspec.sharding import Shards

    Make = Callable[[Case], Iterator[Change]]

PLAIN_BITS: Final = 16
LESS: Final = 0.9  # of the weights' bytes, which another file must fall below
ONE_HOST: Final = 8  # devices that share layers within one host
MOST: Final = 16  # devices that are tried
CONTEXT_PARALLEL_SINCE: Final = (0, 11)
CHUNKED_SINCE: Final = (3,)  # TGI cuts prompts in chunks from then on

# engine -> format of a narrower cache, as the engine spells it, and as roofcast does
CACHES: Final[Mapping[str, tuple[str, str]]] = {
    "vllm": ("fp8", "--kv-cache-dtype fp8"),
    "sglang": ("fp8", "--kv-cache-dtype fp8_e5m2"),
    "tensorrt-llm": ("fp8", "--kv_cache_dtype fp8"),
    "tgi": ("fp8", "--kv-cache-dtype fp8_e5m2"),
    "lmdeploy": ("int8", "--quant-policy 8"),
    "llama.cpp": ("q8_0", "--cache-type-k q8_0 --cache-type-v q8_0"),
    "ollama": ("q8_0", "OLLAMA_FLASH_ATTENTION=1 OLLAMA_KV_CACHE_TYPE=q8_0"),
}
# engine -> flag of roofcast, option of the engine, and the most of the memory that is safe to give
SHARES: Final[Mapping[str, tuple[str, str, float]]] = {
    "vllm": ("gpu_memory_utilization", "--gpu-memory-utilization", 0.95),
    "sglang": ("mem_fraction_static", "--mem-fraction-static", 0.9),
    "tensorrt-llm": ("kv_cache_free_gpu_mem_fraction", "--kv_cache_free_gpu_mem_fraction", 0.95),
    "tgi": ("cuda_memory_fraction", "--cuda-memory-fraction", 1.0),
    "lmdeploy": ("cache_max_entry_count", "--cache-max-entry-count", 0.9),
}
# engine -> flag of roofcast, option of the engine, and sizes of a step, the mildest first
REQUESTS: Final[Mapping[str, tuple[str, str, tuple[int, ...]]]] = {
    "vllm": ("max_num_seqs", "--max-num-seqs", (256, 128, 64, 32, 16)),
    "tensorrt-llm": ("max_num_seqs", "--max_batch_size", (512, 256, 64)),
}
STEPS: Final[Mapping[str, tuple[str, str, tuple[int, ...]]]] = {
    "vllm": ("max_num_batched_tokens", "--max-num-batched-tokens", (4096, 2048)),
    "tensorrt-llm": ("max_num_batched_tokens", "--max_num_tokens", (4096, 2048)),
    "tgi": ("max_batch_prefill_tokens", "--max-batch-prefill-tokens", (4096, 2048, 1024)),
    "sglang": ("chunked_prefill_size", "--chunked-prefill-size", (4096, 2048)),
}
# engine -> option that quantises on load
ON_LOAD: Final[Mapping[str, str]] = {
    "vllm": "--quantization fp8",
    "sglang": "--quantization fp8",
    "tgi": "--quantize fp8",
}
# engine -> other files of the same model: what they are, and the format that they count as
FILES: Final = {
    "cuda": (("an FP8 checkpoint", "fp8"), ("an INT4 (AWQ, GPTQ) checkpoint", "int4")),
    "ggml": (("a Q8_0 file", "q8_0"), ("a Q4_K_M file", "q4_k_m")),
}
# engine -> options of devices that share layers, and of stages of layers; None where it has none
DEVICES: Final[Mapping[str, tuple[str | None, str | None]]] = {
    "vllm": ("--tensor-parallel-size {}", "--pipeline-parallel-size {}"),
    "sglang": ("--tp-size {}", "--pp-size {}"),
    "tensorrt-llm": ("--tp_size {}", "--pp_size {}"),
    "tgi": ("--num-shard {}", None),
    "lmdeploy": ("--tp {}", None),
    "llama.cpp": (None, "--split-mode layer"),
    "ollama": (None, "OLLAMA_SCHED_SPREAD=1"),
}
# engine -> replicas that each hold latents once, of a number of devices
REPLICAS: Final[Mapping[str, tuple[str, str]]] = {
    "vllm": ("--data-parallel-size {} --tensor-parallel-size 1", " --enable-expert-parallel"),
    "sglang": ("--dp-size {} --enable-dp-attention", ""),
}


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of change.

    Args:
        name: of it.
        make: its variants, the mildest first.
        cost: 0 nothing that is read in an answer, 1 a narrower cache, 2 narrower weights.
    """

    name: str
    make: Make
    cost: int = 0


def narrow_cache(case: Case) -> Iterator[Change]:
    """A cache of half the bits, where it is in 16."""
    name, flag = CACHES[case.engine]
    narrow, deployment, ready = FORMATS[name], case.served.ready.deployment, case.served.ready
    of_values = case.flags.cache_type_v is not None
    if deployment.kv.bits <= narrow.bits:
        return
    other, flags = replace(deployment, kv=narrow), replace(case.flags, cache_type_v=name if of_values else None)
    try:
        check_capability(ready.model, other, flags)
    except REFUSED:
        return
    ready = replace(ready, deployment=other, formats=replace(ready.formats, kv=narrow))
    here = f"--kv {name}" + (f" --cache-type-v {name}" if of_values else "")
    yield Change(replace(case.served, ready=ready, flags=flags), (Part("cache", flag, here),))


def larger_share(case: Case) -> Iterator[Change]:
    """More of the memory, up to what is safe."""
    name, spelled, most = SHARES[case.engine]
    if most - _share(case) > 0.005:  # noqa: PLR2004 - half of the last digit
        yield _flag(case, name, spelled, most)


def _share(case: Case) -> float:
    """The share that is in use: stated, or what the engine's own terms come to. [-]"""
    if case.engine == "vllm":
        return case.memory.budget / case.memory.visible
    if case.engine == "sglang" and case.term("free"):
        return 1 - case.term("reserve") / case.term("free")
    return getattr(case.flags, SHARES[case.engine][0]) or {"tgi": 1.0}.get(case.engine, 0.0)


def fewer_requests(case: Case) -> Iterator[Change]:
    """Fewer requests of a step, whose logits leave more for the cache; as many as are wanted at least."""
    name, spelled, sizes = REQUESTS[case.engine]
    now, least = getattr(case.flags, name), case.wanted.most / case.served.ready.deployment.shards.dp
    for size in sizes:
        if size >= least and (now is None or size < now):
            yield _flag(case, name, spelled, size)


def shorter_step(case: Case) -> Iterator[Change]:
    """Fewer tokens of a step, whose activations leave more for the cache."""
    name, spelled, sizes = STEPS[case.engine]
    now = getattr(case.flags, name)
    for size in sizes:
        if (now is None or size < now) and size >= _least_step(case):
            yield _flag(case, name, spelled, size)


def _least_step(case: Case) -> int:
    """Tokens that a step has at least: a whole prompt where an engine of that version does not cut it. [token]"""
    version = parse_version(case.flags.engine_version) if case.flags.engine_version else None
    whole = {"vllm": (0, 8), "tgi": CHUNKED_SINCE}.get(case.engine)
    if version is None or whole is None or version >= whole:
        return 0
    return case.memory.longest if case.engine == "vllm" else case.wanted.longest or case.memory.longest


def eager(case: Case) -> Iterator[Change]:
    """No CUDA graphs, where their estimate is taken off the cache."""
    if case.term("cuda_graphs"):
        yield Change(case.but(enforce_eager=True), (Part("eager", "--enforce-eager", "--enforce-eager"),))


def shared_tokens(case: Case) -> Iterator[Change]:
    """Devices that share the cache of a sequence by its tokens, where each holds a copy of it; most of them first."""
    version = case.flags.engine_version
    if version is not None and parse_version(version) < CONTEXT_PARALLEL_SINCE:
        return
    tp, now = case.served.ready.deployment.shards.tp, case.flags.decode_context_parallel_size or 1
    for size in range(tp, now, -1):
        if tp % size == 0:
            yield _flag(case, "decode_context_parallel_size", "--decode-context-parallel-size", size)


def quantised(case: Case) -> Iterator[Change]:
    """Plain weights in FP8, quantised on load."""
    if not _plain(case) or case.served.ready.deployment.weights is not None:
        return
    try:
        served, _ = serve(
            case.served.ready.model, case.served.ready.deployment, replace(case.flags, quantization="fp8")
        )
    except REFUSED:
        return
    yield Change(served, (Part("weights", ON_LOAD[case.engine], "--quantization fp8"),))


def _plain(case: Case) -> bool:
    """Whether weights are stored in 16 bits or more, and in no other way."""
    weights = case.served.ready.deployment.weights
    wide = weights is None or getattr(weights, "bits", 0) >= PLAIN_BITS
    return wide and case.served.ready.model.spec.quantization is None and case.flags.quantization is None


def other_file(family: str, which: int) -> Make:
    """Another file of the same model, with narrower weights, where those at hand are half of the memory or more."""

    def make(case: Case) -> Iterator[Change]:
        what, name = FILES[family][which]
        ready, dtype = case.served.ready, case.flags.dtype
        tight = not case.memory.starts or 2 * case.term("weights") > case.memory.budget
        if not tight or not _plain(case) or dtype is not None:
            return
        try:
            served, _ = serve(ready.model, replace(ready.deployment, weights=find_requested(name)), case.flags)
        except REFUSED:
            return
        if served.ready.weight_bytes < LESS * ready.weight_bytes:
            yield Change(served, (Part("weights", what, f"--weights {name}", is_file=True),))

    return make


def more_devices(case: Case, count: int) -> Iterator[Change]:
    """The model over so many devices: that share layers within a host, and stages of layers beyond.

    Args:
        case: on fewer.
        count: of devices, a multiple of theirs.
    """
    shards = case.served.ready.deployment.shards
    for tp, pp in _cuts(case.engine, shards, count // shards.devices):
        experts = shards.ep * tp // shards.tp if shards.ep > 1 else 1
        served = recut(case.served, replace(shards, tp=tp, pp=pp, ep=experts))
        if served is not None:
            yield Change(served, (_devices_part(case.engine, shards, served.ready.deployment.shards),))
            return


def _cuts(engine: str, shards: Shards, times: int) -> Iterator[tuple[int, int]]:
    """Devices that share layers, and stages, best first."""
    shared, stages = DEVICES[engine]
    tp, within = shards.tp * times, ONE_HOST // shards.tp
    if shared and stages and tp > ONE_HOST and within and times % within == 0:
        yield ONE_HOST, shards.pp * times // within
    if shared:
        yield tp, shards.pp
    if stages:
        yield shards.tp, shards.pp * times


def _devices_part(engine: str, old: Shards, new: Shards) -> Part:
    """How a cut is spelled: what has changed of it."""
    shared, stages = DEVICES[engine]
    rows = ((shared, "--tp", old.tp, new.tp), (stages, "--pp", old.pp, new.pp), (None, "--ep", old.ep, new.ep))
    changed = [(spelled, here, after) for spelled, here, before, after in rows if before != after]
    flag = " ".join(spelled.format(after) for spelled, _, after in changed if spelled)
    return Part("devices", flag, " ".join(f"{here} {after}" for _, here, after in changed))


def replicas(case: Case) -> Iterator[Change]:
    """Replicas in the place of devices that share layers: they hold a latent once each, and not all the same."""
    spec, shards = case.served.ready.model.spec, case.served.ready.deployment.shards
    mixers = (mixer for layer in spec.layer_counts for mixer in layer.mixers)
    if shards.tp == 1 or not any(isinstance(mixer, LatentAttention) for mixer in mixers):
        return
    count = shards.tp * shards.dp
    served = recut(case.served, replace(shards, tp=1, dp=count, ep=count if spec.experts else 1))
    if served is None:
        return
    flag, expert_flag = REPLICAS[case.engine]
    here = f"--dp {count} --tp 1" + (f" --ep {count}" if spec.experts else "")
    if case.engine == "sglang":
        here, served = f"{here} --enable-dp-attention", replace(served, flags=case.but(enable_dp_attention=True).flags)
    text = flag.format(count) + (expert_flag if spec.experts else "")
    yield Change(served, (Part("devices", text, here),))


def _flag(case: Case, name: str, spelled: str, value: float) -> Change:
    """One flag with a value."""
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return Change(case.but(**{name: value}), (Part(name, f"{spelled} {text}", f"{option(name)} {text}"),))


CHECKPOINTS: Final = tuple(Kind(name, other_file("cuda", n), 2) for n, (_, name) in enumerate(FILES["cuda"]))
GGUF: Final = tuple(Kind(name, other_file("ggml", n), 2) for n, (_, name) in enumerate(FILES["ggml"]))
CACHE: Final = Kind("cache", narrow_cache, 1)
SHARE: Final = Kind("share", larger_share)
ON_LOADING: Final = Kind("quantised", quantised, 2)
STEP: Final = Kind("step", shorter_step)
ROWS: Final = Kind("requests", fewer_requests)

# engine -> kinds of changes on the same devices; those that prepare a model anew come first
CHANGES: Final[Mapping[str, tuple[Kind, ...]]] = {
    "vllm": (Kind("replicas", replicas), ON_LOADING, *CHECKPOINTS, Kind("tokens shared", shared_tokens), CACHE, SHARE,
             ROWS, STEP, Kind("eager", eager)),
    "sglang": (Kind("replicas", replicas), ON_LOADING, *CHECKPOINTS, CACHE, SHARE, STEP),
    "tensorrt-llm": (*CHECKPOINTS, CACHE, SHARE, ROWS, STEP),
    "tgi": (ON_LOADING, *CHECKPOINTS, CACHE, SHARE, STEP),
    "lmdeploy": (*CHECKPOINTS, CACHE, SHARE),
    "llama.cpp": (*GGUF, CACHE),
    "ollama": (*GGUF, CACHE),
}  # fmt: skip
