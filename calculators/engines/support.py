"""What an engine runs on, and in which formats: devices by vendor and compute capability, caches by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from roofcast.calculators.errors import UsageError
from roofcast.modelspec.formats import Format

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roofcast.calculators.deployment import Deployment
    from roofcast.calculators.engines.flags import Flags
    from roofcast.hwdb.accelerator import Accelerator
    from roofcast.modelspec.model import Model

# engine -> vendor -> the least compute capability that it runs on, 0 where the vendor has none. Source: each engine's
# installation notes; vLLM 7.0, SGLang and TGI 7.5, TensorRT-LLM and LMDeploy (TurboMind) 7.0, llama.cpp 5.0.
RUNS: Final[Mapping[str, Mapping[str, float]]] = {
    "vllm": {"nvidia": 7.0, "amd": 0.0, "intel": 0.0},
    "sglang": {"nvidia": 7.5, "amd": 0.0},
    "llama.cpp": {"nvidia": 5.0, "amd": 0.0, "apple": 0.0, "intel": 0.0},
    "ollama": {"nvidia": 5.0, "amd": 0.0, "apple": 0.0, "intel": 0.0},
    "tensorrt-llm": {"nvidia": 7.0},
    "tgi": {"nvidia": 7.5, "amd": 0.0, "intel": 0.0},
    "lmdeploy": {"nvidia": 7.0},
}
# engine -> formats that its cache can have; llama.cpp's are its own to check
CACHES: Final[Mapping[str, tuple[str, ...]]] = {
    "vllm": ("bf16", "fp16", "fp32", "fp8", "int8", "nvfp4"),
    "sglang": ("bf16", "fp16", "fp32", "fp8", "nvfp4", "mxfp4"),
    "tensorrt-llm": ("bf16", "fp16", "fp32", "fp8", "int8", "nvfp4"),
    "tgi": ("bf16", "fp16", "fp8"),
    "lmdeploy": ("bf16", "fp16", "fp8", "int8", "int4"),
}
#: Engines whose formats are those of compute capabilities.
OF_CUDA: Final = frozenset(CACHES)
# What kernels of a format need, as compute capability: below 8.9 FP8 weights and below 10.0 FP4 ones run weight-only
# through Marlin, which needs 8.0. Source: vLLM, model_executor/layers/quantization/*.py, get_min_capability.
LEAST: Final[Mapping[str, float]] = {
    "fp8": 8.0, "nvfp4": 8.0, "mxfp4": 8.0, "modelopt": 8.0, "modelopt_fp4": 8.0, "gptq": 6.0, "awq": 7.5,
    "gptq_marlin": 8.0, "awq_marlin": 8.0, "bitsandbytes": 7.0, "compressed-tensors": 7.0, "int8": 7.5,
}  # fmt: skip
BF16_FROM: Final = 8.0
# classes whose activations overflow in fp16, so that vLLM refuses it. Source: vLLM, config/model.py,
# _FLOAT16_NOT_SUPPORTED_MODELS
NO_FP16: Final = frozenset(("gemma2", "gemma3", "gemma3_text", "glm4", "plamo2"))


def check_device(deployment: Deployment) -> None:
    """Refuses a device that an engine does not run on.

    Raises:
        UsageError: naming the device, and what would do.
    """
    accelerator, runs = deployment.accelerator, RUNS.get(deployment.engine)
    if runs is None or accelerator.vendor is None:
        return
    least = runs.get(accelerator.vendor)
    if least is None:
        raise UsageError(
            f"{deployment.engine} does not run on {accelerator.id}: it runs on devices of {' and '.join(runs)}; "
            f"{_others(accelerator.vendor)}"
        )
    if accelerator.compute_capability is not None and float(accelerator.compute_capability) < least:
        raise UsageError(_cannot(accelerator, deployment.engine, least))


def _others(vendor: str) -> str:
    """Engines that run on a vendor's devices."""
    engines = [engine for engine, runs in RUNS.items() if vendor in runs]
    return f"--engine {' or '.join(engines)} does" if engines else "--engine none has the plain budget"


def check_capability(model: Model, deployment: Deployment, flags: Flags) -> None:
    """Refuses a format that the engine does not have, or has no kernels for on the device.

    Raises:
        UsageError: naming the format, what it needs, and what would do.
    """
    accelerator, engine = deployment.accelerator, deployment.engine
    if engine not in OF_CUDA:
        return
    if deployment.kv.name not in CACHES[engine]:
        raise UsageError(f"--kv {deployment.kv.name}: {engine} has no such cache; it has {', '.join(CACHES[engine])}")
    if accelerator.compute_capability is None:
        return
    have = float(accelerator.compute_capability)
    asked = deployment.weights.name if isinstance(deployment.weights, Format) else None
    stored = {"--weights": asked, "--quantization": flags.quantization, "its weights": model.spec.quantization}
    wanted = {option: name for option, name in stored.items() if name is not None}
    wanted |= {"--kv": deployment.kv.name}
    for option, name in wanted.items():
        if have < LEAST.get(name, 0.0):
            raise UsageError(_cannot(accelerator, f"{option} {name} in {engine}", LEAST[name]))
    if flags.dtype == "bf16" and have < BF16_FROM:
        raise UsageError(f"{_cannot(accelerator, f'--dtype bf16 in {engine}', BF16_FROM)}; --dtype fp16 would do")


def falls_back(model: Model, deployment: Deployment, flags: Flags) -> bool:
    """Whether an engine takes fp16 for a model in bf16, as it does on devices without bf16 kernels.

    Raises:
        UsageError: vLLM has no fp16 of the model's class.
    """
    capability = deployment.accelerator.compute_capability
    if deployment.engine not in OF_CUDA or capability is None or float(capability) >= BF16_FROM:
        return False
    if flags.dtype is not None or model.spec.dtype == "fp16":
        return False
    if deployment.engine == "vllm" and model.spec.model_type in NO_FP16:
        raise UsageError(
            f"{deployment.accelerator.id} has no bf16 kernels, and vLLM refuses fp16 of model_type {model.spec.model_type}; "
            "--dtype fp32 would do"
        )
    return True


def _cannot(accelerator: Accelerator, what: str, least: float) -> str:
    return (
        f"{what} cannot run on {accelerator.id}: it needs compute capability {least:.1f}, "
        f"{accelerator.id} has {accelerator.compute_capability}"
    )
