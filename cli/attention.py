"""`roofcast attention`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Final

import typer

from roofcast.calculators.errors import UsageError
from roofcast.cli import options
from roofcast.cli.deploy import few_rows, few_values
from roofcast.cli.errors import GateError
from roofcast.cli.machine import find_machines
from roofcast.cli.session import Lookup, Output, check_output, explain_or, load, present
from roofcast.hwdb.units import UnitError, parse_quantity

if TYPE_CHECKING:
    from roofcast.calculators.answer import Remarks
    from roofcast.calculators.attention import AskedAttention, AttentionResult, CheckResult
    from roofcast.calculators.attention_rows import Kind
    from roofcast.hwdb.lookup import Match

DEFAULT_HEADS: Final = 32
DEFAULT_WIDTH: Final = 128
DEFAULT_CONTEXTS: Final = (1024, 16384, 131072)  # tokens
MOST_HEADS: Final = 1 << 16
LEAST_MEMORY, MOST_MEMORY = 1, 1 << 40  # [B]
MOST_SEED: Final = (1 << 63) - 1

Gpus = Annotated[
    list[str] | None,
    typer.Option(
        "--gpu", metavar="NAME,...", help="Accelerators: ids, aliases or driver names (default: this machine's)."
    ),
]
QueryHeads = Annotated[int | None, typer.Option("--heads", metavar="N", help="Query heads (default: 32).")]
KvHeads = Annotated[int | None, typer.Option("--kv-heads", metavar="N", help="KV heads (default: as many).")]
HeadDim = Annotated[int | None, typer.Option("--head-dim", metavar="N", help="Width of a head (default: 128).")]
Batches = Annotated[str, typer.Option("--batch", metavar="N,...", help="Sequences at once.")]
Contexts = Annotated[
    str | None,
    typer.Option(
        "--context", metavar="N,...", help="Tokens of a prompt, and of the cache in decode (default: 1k,16k,128k)."
    ),
]
Queries = Annotated[
    int,
    typer.Option("--queries", metavar="N", help="New tokens of a sequence in decode, more where drafts are verified."),
]
Dtype = Annotated[str, typer.Option("--dtype", metavar="FORMAT", help="fp16, bf16 or fp32.")]
SharedMemory = Annotated[
    str | None,
    typer.Option("--shared-memory", metavar="SIZE", help="On-chip memory of a block, 100KiB (default: the device's)."),
]
Check = Annotated[
    bool, typer.Option("--check", help="Compute attention in three ways on the CPU against fp64; needs torch.")
]
Seed = Annotated[int | None, typer.Option("--seed", metavar="N", help="Of the inputs of --check (default: 0).")]


@dataclass(frozen=True, slots=True)
class Sizes:
    """Heads and lengths as options give them."""

    heads: int | None
    kv_heads: int | None
    head_dim: int | None
    batch: str
    context: str | None
    queries: int
    dtype: str
    shared_memory: str | None

    def check(self) -> None:
        """Refuses what cannot be read before any model is.

        Raises:
            UsageError, UnitError: naming the option.
        """
        from roofcast.calculators.attention_rows import ELEMENTS

        if self.dtype not in ELEMENTS:
            raise UsageError(f"--dtype {self.dtype}: known: {', '.join(ELEMENTS)}")
        for option, value in (("--heads", self.heads), ("--kv-heads", self.kv_heads), ("--head-dim", self.head_dim)):
            if value is not None and not 1 <= value <= MOST_HEADS:
                raise UsageError(f"{option} {value:,}: it must be 1 to {MOST_HEADS:,}")
        options.size(self.queries, "--queries")
        self.batches(), self.contexts(None), self.memory()

    def batches(self) -> list[int]:
        """Sequences at once."""
        return list(dict.fromkeys(few_values(options.batch_list(self.batch) or [1], "--batch")))

    def contexts(self, most: int | None) -> list[int]:
        """Tokens: those asked, else 1k, 16k and 128k as far as a model goes."""
        asked = options.token_list(self.context)
        if asked:
            return list(dict.fromkeys(few_values(asked, "--context")))
        return [n for n in DEFAULT_CONTEXTS if most is None or n <= most] or [most or DEFAULT_CONTEXTS[0]]

    def memory(self) -> float | None:
        """M instead of the device's. [B]"""
        if self.shared_memory is None:
            return None
        try:
            value = parse_quantity(self.shared_memory, "B")
        except UnitError as error:
            raise UnitError(
                f"--shared-memory {self.shared_memory}: it must be a size with its unit, such as '100 KiB'"
            ) from error
        if not LEAST_MEMORY <= value <= MOST_MEMORY:
            raise UnitError(
                f"--shared-memory {self.shared_memory}: no chip has so much or little; write it like '100 KiB'"
            )
        return value

    def kind(self) -> Kind:
        """The attention that --heads, --kv-heads and --head-dim describe.

        Raises:
            UsageError: KV heads that do not divide query heads.
        """
        from roofcast.calculators.attention_rows import Kind
        from roofcast.calculators.sdpa import Heads

        query = self.heads if self.heads is not None else max(self.kv_heads or 0, DEFAULT_HEADS)
        shared = self.kv_heads if self.kv_heads is not None else query
        if query % shared:
            raise UsageError(
                f"--kv-heads {shared} does not divide --heads {query}; every KV head serves as many of them"
            )
        width = self.head_dim if self.head_dim is not None else DEFAULT_WIDTH
        heads = Heads(query, shared, width, width)
        return Kind("MHA" if shared == query else "MQA" if shared == 1 else "GQA", heads, heads)


def attention(
    model: options.OneModel = None,
    gpu: Gpus = None,
    heads: QueryHeads = None,
    kv_heads: KvHeads = None,
    head_dim: HeadDim = None,
    batch: Batches = "1",
    context: Contexts = None,
    queries: Queries = 1,
    dtype: Dtype = "fp16",
    encoder_tokens: options.EncoderTokens = None,
    shared_memory: SharedMemory = None,
    check: Check = False,
    seed: Seed = None,
    revision: options.Revision = None,
    offline: options.Offline = False,
    format: options.Format = None,
    out: options.Out = None,
    strict: options.Strict = False,
    explain: options.Explain = None,
    debug: options.Debug = False,
) -> None:
    """Memory traffic of attention, its kernels and their blocks.

    Standard attention against FlashAttention, what each keeps in memory, which backends a GPU has, and how decode
    fills it with and without splitting K and V. --check computes attention in three ways on the CPU.
    """
    explain_or(explain)
    from roofcast.calculators.answer import Remarks
    from roofcast.reports.attention import attention_document

    output = Output(format, out, strict)
    check_output(output, [model] if model else [])
    seed_of_check = _seed(seed, check=check)
    sizes = Sizes(heads, kv_heads, head_dim, batch, context, queries, dtype, shared_memory)
    sizes.check()
    checked = _checked(seed_of_check) if check else None
    inputs: dict[str, object] = {}
    if checked is not None and all(
        value is None for value in (model, gpu, heads, kv_heads, head_dim, context, shared_memory)
    ):
        from roofcast.calculators.attention import check_alone

        result, said = check_alone(checked), Remarks()
    else:
        lookup = Lookup(revision, offline, encoder_tokens=options.encoder_count(encoder_tokens))
        planned, inputs, said = _planned(model, ",".join(gpu) if gpu else None, sizes, lookup)
        result = replace(planned, check=checked)
    inputs |= {"seed": seed_of_check if check else None}
    present(attention_document(result, inputs, said), output)
    if checked is not None and not checked.agrees:
        raise GateError(f"--check --seed {seed_of_check}: the three do not agree to rounding")


def _planned(
    model: str | None, gpu: str | None, sizes: Sizes, lookup: Lookup
) -> tuple[AttentionResult, dict[str, object], Remarks]:
    """The answer but for a check, how it was asked for, and what should be said."""
    from roofcast.calculators.answer import Remarks, remarks
    from roofcast.calculators.attention import AskedAttention, attention_result, kinds_of, model_said

    matches = _machines(gpu)
    if model is None:
        kinds, of_model, contexts = [sizes.kind()], Remarks(), sizes.contexts(None)
    else:
        _refuse_heads(sizes)
        loaded = load(model, lookup)
        kinds, contexts = kinds_of(loaded), sizes.contexts(loaded.spec.max_context)
        of_model = model_said(loaded, contexts)
    asked = AskedAttention(
        kinds=kinds,
        accelerators=list({match.accelerator.id: match.accelerator for match in matches}.values()),
        number_format=sizes.dtype,
        batches=sizes.batches(),
        contexts=contexts,
        queries=sizes.queries,
        shared_memory=sizes.memory(),
        model=None if model is None else loaded.name,
    )
    rows = max(len(asked.accelerators), 1) * len(asked.kinds) * len(asked.points)
    few_rows(rows, "--gpu, --batch and --context")
    result, said = attention_result(asked)
    names = remarks(warnings=[m.doubt for m in matches], notes=[m.alias_note for m in matches])
    return result, _inputs(model, asked, lookup), names + of_model + said


def _inputs(model: str | None, asked: AskedAttention, lookup: Lookup) -> dict[str, object]:
    """The question, as `inputs` repeats it."""
    return {
        "model": model,
        "gpus": [one.id for one in asked.accelerators],
        "batches": list(asked.batches),
        "contexts": list(asked.contexts),
        "queries": asked.queries,
        "dtype": asked.number_format,
        "shared_memory_bytes": asked.shared_memory,
        "encoder_tokens": lookup.encoder_tokens,
        "revision": lookup.revision,
    }


def _machines(text: str | None) -> list[Match]:
    """The accelerators named, or this machine's; none where it has none.

    Raises:
        UsageError: no name, or too many.
    """
    if text is None:
        from roofcast.hwdb.local import local_accelerators
        from roofcast.hwdb.lookup import find_accelerator

        return [find_accelerator(one.name, one.memory_bytes) for one in local_accelerators()[:1]]
    return find_machines(text, "--gpu")


def _refuse_heads(sizes: Sizes) -> None:
    """Refuses heads beside a model, which has its own."""
    for option, value in (("--heads", sizes.heads), ("--kv-heads", sizes.kv_heads), ("--head-dim", sizes.head_dim)):
        if value is not None:
            raise UsageError(f"{option} is of attention without a MODEL, which has its own; leave one of them out")


def _seed(seed: int | None, *, check: bool) -> int:
    if seed is not None and not check:
        raise UsageError("--seed is of --check; give both, or leave it out")
    if seed is not None and not 0 <= seed <= MOST_SEED:
        raise UsageError(f"--seed {seed}: it must be a whole number from 0 to {MOST_SEED:,}")
    return seed or 0


def _checked(seed: int) -> CheckResult:
    from roofcast.profiler.attention import check

    return check(seed)
