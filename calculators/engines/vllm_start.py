"""vLLM as it is started: its question with every default filled in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from roofcast.calculators.engines.device import visible_term
from roofcast.calculators.engines.terms import GIB, Served
from roofcast.calculators.errors import UsageError
from roofcast.modelspec.formats import FORMATS

if TYPE_CHECKING:
    from roofcast.calculators.engines.vllm_versions import VllmRules
    from roofcast.hwdb.accelerator import Accelerator

# A step's tokens and requests where no flag says them, by the device. Source: vLLM, engine/arg_utils.py: 70 GiB or more
# of memory, but no A100, is a large one; the server's defaults, not those of the offline class.
LARGE: Final = 70 * GIB
LARGE_STEP: Final = (8192, 1024)
SMALL_TOKENS: Final = 2048
V0_STEP: Final = (2048, 256)
V0_UNCHUNKED: Final = 32768  # longest request that V0 profiles whole [token]
BLOCK: Final = 16  # tokens that a block has a multiple of [token]
MOST_BLOCK: Final = 8192
NO_CONTEXT: Final = 2048


@dataclass(frozen=True, slots=True)
class Started:
    """vLLM as it is started: the question with every default filled in.

    Args:
        served: the question.
        rules: of the version.
        longest: tokens of the longest request. [token]
        tokens, rows: of the profiled step.
        width: bytes of an activation. [B]
    """

    served: Served
    rules: VllmRules
    longest: int
    tokens: int
    rows: int
    width: float

    @property
    def second_runner(self) -> bool:
        """Whether the second model runner serves the model: classes that are listed, unquantised, or later any dense one."""
        spec, rules = self.served.ready.model.spec, self.rules
        if spec.model_type in rules.second_runner and (spec.quantization is None or rules.dense_runner):
            return True
        plain = all(not part.fixed for part in spec.kept)
        return rules.dense_runner and plain and not (spec.experts or spec.towers or spec.drafting)


def start(served: Served, rules: VllmRules) -> Started:
    """Fills in what the flags leave to vLLM.

    Raises:
        UsageError: shares and sizes that vLLM refuses.
    """
    flags, spec = served.flags, served.ready.model.spec
    longest = flags.max_model_len or spec.max_context or NO_CONTEXT
    tokens, rows = _step(served, rules, longest)
    tokens = flags.max_num_batched_tokens or tokens
    rows = flags.max_num_seqs or min(rows, tokens)
    if tokens < rows:
        raise UsageError(
            f"--max-num-batched-tokens {tokens:,} is less than --max-num-seqs {rows:,}; it must be at least that"
        )
    check_context_parallel(served, rules)
    if flags.block_size is not None and (flags.block_size % BLOCK or flags.block_size > MOST_BLOCK):
        raise UsageError(f"--block-size {flags.block_size:,}: vLLM has multiples of {BLOCK} up to {MOST_BLOCK:,}")
    dtype = FORMATS[flags.dtype or served.ready.formats.activations]
    return Started(served, rules, longest, min(tokens, rows * longest), rows, dtype.bytes_per_element)


def check_context_parallel(served: Served, rules: VllmRules) -> None:
    """Refuses a decode context parallel size that devices or layers do not allow.

    It divides the tensor-parallel size and shares the copies of KV heads that this makes: tp / n_kv of them, tp of a latent.

    Raises:
        UsageError: naming the sizes that would do.

    Source: vLLM, config/model.py, verify_with_parallel_config; v1/kv_cache_interface.py.
    """
    asked, tp = served.flags.decode_context_parallel_size or 1, served.ready.deployment.shards.tp
    if asked == 1:
        return
    option = f"--decode-context-parallel-size {asked}"
    if rules.engine == "V0":
        raise UsageError(f"{option}: vLLM before 0.8 has none")
    parts = served.ready.model.spec.kept
    if any(part.fixed or part.cap is not None for part in parts):
        raise UsageError(f"{option}: vLLM has none for layers with windows or states")
    copies = min((max(1, tp // part.heads) for part in parts), default=1)
    fitting = [n for n in range(1, copies + 1) if tp % n == 0]
    if asked not in fitting:
        raise UsageError(f"{option}: with --tp {tp} it must be one of {', '.join(map(str, fitting))}")


def _step(served: Served, rules: VllmRules, longest: int) -> tuple[int, int]:
    """Tokens and requests of a step by default."""
    if rules.engine == "V0":
        tokens, rows = V0_STEP
        return (max(longest, tokens) if longest <= V0_UNCHUNKED else tokens), rows
    return LARGE_STEP if is_large(served.ready.deployment.accelerator) else (SMALL_TOKENS, rules.small_rows)


def is_large(accelerator: Accelerator) -> bool:
    """Whether vLLM takes a device for a large one: 70 GiB or more, and no A100 by its name; an A800 is one."""
    return visible_term(accelerator).bytes >= LARGE and not accelerator.id.startswith("a100")
