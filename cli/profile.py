"""`roofcast profile`: what this machine reaches, measured."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from roofcast.cli import options
from roofcast.cli.profiling_asked import Heads, Steps
from roofcast.cli.session import explain_or

Device = Annotated[
    str | None,
    typer.Option("--device", metavar="NAME", help="cuda, cuda:1, mps or cpu (default: the first GPU, else the CPU)."),
]
Budget = Annotated[
    str | None,
    typer.Option("--budget", metavar="TIME", help="Time that measuring may take, 60s or 2m; what is done is kept."),
]
Weights = Annotated[
    str | None,
    typer.Option(
        "--weights", metavar="FORMAT", help="bf16, fp16, fp32 or fp8 (default: as stored where it is one of these)."
    ),
]
Number = Annotated[str, typer.Option("--weights", metavar="FORMAT", help="Of queries and cache: bf16, fp16 or fp32.")]
Routing = Annotated[
    str, typer.Option("--routing", metavar="HOW", help="Of experts: drawn by a random router, or balanced.")
]
Seed = Annotated[int, typer.Option("--seed", metavar="N", help="Of the random weights.")]
Terms = Annotated[bool, typer.Option("--terms", help="Show every term too (JSON always has them).")]
Prompts = Annotated[str, typer.Option("--prompt", metavar="N,...", help="Tokens of a prompt, 2k is 2048.")]
Batches = Annotated[str, typer.Option("--batch", metavar="N,...", help="Sequences at once.")]
Contexts = Annotated[
    str, typer.Option("--context", metavar="N,...", help="Tokens in the cache with the new one, 8k is 8192.")
]
OneLength = Annotated[
    str, typer.Option("--context", metavar="N", help="Tokens of each sequence before the first timed step.")
]
ChartOut = Annotated[
    str | None,
    typer.Option("--out", metavar="FILE", help="Write to FILE, in the format of its ending; .png and .svg: the chart."),
]
ConstantsOut = Annotated[
    str | None,
    typer.Option("--out", metavar="FILE", help="Write the constants there (default: the user's folder)."),
]
Saved = Annotated[
    str | None,
    typer.Option("--from", metavar="FILE", help="A saved profile (--format json) in place of measuring."),
]
PhaseName = Annotated[str | None, typer.Option("--phase", metavar="PHASE", help="prefill or decode (default: both).")]
QueryHeads = Annotated[int, typer.Option("--heads", metavar="N", help="Query heads.")]
KvHeads = Annotated[int, typer.Option("--kv-heads", metavar="N", help="KV heads.")]
HeadDim = Annotated[int, typer.Option("--head-dim", metavar="N", help="Width of a head.")]

Tp = Annotated[
    int | None, typer.Option("--tp", metavar="N", help="Devices that share every layer, a process each (default: 1).")
]
Backend = Annotated[
    str | None,
    typer.Option("--backend", metavar="NAME", help="nccl or gloo (default: nccl on NVIDIA and AMD, else gloo)."),
]
Wait = Annotated[
    str | None,
    typer.Option("--wait", metavar="TIME", help="Time that ranks wait for one another (default: 60s)."),
]
RankCount = Annotated[
    int | None,
    typer.Option("--ranks", metavar="N", help="Processes to start here (default: a GPU each; of a CPU 2)."),
]
Patterns = Annotated[
    str | None,
    typer.Option(
        "--pattern",
        metavar="NAME,...",
        help="all_reduce, all_gather, reduce_scatter, all_to_all, point_to_point (default: all).",
    ),
]
Sizes = Annotated[str, typer.Option("--size", metavar="BYTES,...", help="Of a message: 1KiB, 64KiB, 256MiB.")]
Elements = Annotated[str, typer.Option("--elements", metavar="FORMAT", help="Their format: bf16, fp16 or fp32.")]
Drafts = Annotated[str, typer.Option("--k", metavar="N,...", help="Tokens drafted a round.")]
Acceptances = Annotated[
    str, typer.Option("--acceptance", metavar="A,...", help="Chance that a drafted token is accepted.")
]
DraftWeights = Annotated[
    str | None, typer.Option("--draft-weights", metavar="FORMAT", help="As --weights, of the draft.")
]
TextFile = Annotated[
    str | None,
    typer.Option("--text", metavar="FILE", help="Prompts for real checkpoints, one a line (default: random tokens)."),
]
NewTokens = Annotated[
    int | None,
    typer.Option(
        "--tokens", metavar="N", help="New tokens of each prompt, of real checkpoints; 0 writes none (default: 64)."
    ),
]
Dtype = Annotated[
    str | None,
    typer.Option("--weights", metavar="FORMAT", help="bf16, fp16 or fp32 (default: as the checkpoint says)."),
]
StepCount = Annotated[int, typer.Option("--steps", metavar="N", help="Steps of decode that are timed.")]

SIZES: Final = "1KiB,4KiB,16KiB,64KiB,256KiB,1MiB,4MiB,16MiB,64MiB,256MiB"
PROMPTS: Final = "128,512,2k,8k"
BATCHES: Final = "1,4,16,64"
CONTEXTS: Final = "1k,8k"

profile = typer.Typer(
    name="profile",
    help="What this machine reaches: its roofs, and real prefill and decode steps held against them.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
)


@profile.callback(invoke_without_command=True)
def root(context: typer.Context, explain: options.Explain = None) -> None:
    """What this machine reaches: its roofs, and real prefill and decode steps held against them.

    Needs torch (the extra `profile`); runs on NVIDIA and AMD GPUs, Apple's and CPUs, and changes none of their settings.
    """
    if explain is not None:
        explain_or(explain)
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@profile.command("device")
def device(
    device: Device = None,
    budget: Budget = None,
    format: options.Format = None,
    out: options.Out = None,
    debug: options.Debug = False,
) -> None:
    """Bandwidth, matrix products and launches as measured.

    The roofs of this machine beside its data sheet's, and the ridge between them.
    """
    from roofcast.cli.profiling_machine import answer_device

    answer_device(device, budget, (format, out))


@profile.command("prefill")
def prefill(
    model: options.OneModel = None,
    prompt: Prompts = PROMPTS,
    batch: Batches = "1",
    weights: Weights = None,
    routing: Routing = "drawn",
    terms: Terms = False,
    tp: Tp = None,
    backend: Backend = None,
    wait: Wait = None,
    device: Device = None,
    budget: Budget = None,
    seed: Seed = 0,
    revision: options.Revision = None,
    offline: options.Offline = False,
    format: options.Format = None,
    out: ChartOut = None,
    strict: options.Strict = False,
    debug: options.Debug = False,
) -> None:
    """Prompts of a model, timed: random weights, no download.

    Time, rate and the share of the roofs that is reached, as a whole and by family of operations.
    """
    from roofcast.cli.profiling_ranks import RanksAsked
    from roofcast.cli.profiling_steps import Model, answer_steps

    asked = Steps(prefill=(batch, prompt), decode=None)
    answer_steps(
        "prefill",
        Model(model, weights, routing, seed, revision, offline),
        asked,
        (device, budget),
        RanksAsked(tp, backend, wait),
        (format, out, strict),
        terms=terms,
    )


@profile.command("decode")
def decode(
    model: options.OneModel = None,
    batch: Batches = BATCHES,
    context: Contexts = CONTEXTS,
    weights: Weights = None,
    routing: Routing = "drawn",
    terms: Terms = False,
    tp: Tp = None,
    backend: Backend = None,
    wait: Wait = None,
    device: Device = None,
    budget: Budget = None,
    seed: Seed = 0,
    revision: options.Revision = None,
    offline: options.Offline = False,
    format: options.Format = None,
    out: ChartOut = None,
    strict: options.Strict = False,
    debug: options.Debug = False,
) -> None:
    """Decode steps of a model, timed: random weights, no download.

    Time per output token, bytes read a second, and the share of the roofs that is reached, as a whole and by family.
    """
    from roofcast.cli.profiling_ranks import RanksAsked
    from roofcast.cli.profiling_steps import Model, answer_steps

    asked = Steps(prefill=None, decode=(batch, context))
    answer_steps(
        "decode",
        Model(model, weights, routing, seed, revision, offline),
        asked,
        (device, budget),
        RanksAsked(tp, backend, wait),
        (format, out, strict),
        terms=terms,
    )


@profile.command("compare")
def compare(
    asking: typer.Context,
    model: options.OneModel = None,
    phase: PhaseName = None,
    batch: Batches = "1,16",
    context: Contexts = "1k,8k",
    prompt: Prompts = "2k",
    weights: Weights = None,
    routing: Routing = "drawn",
    efficiency: options.EfficiencyName = "expected",
    saved: Saved = None,
    tp: Tp = None,
    backend: Backend = None,
    wait: Wait = None,
    device: Device = None,
    budget: Budget = None,
    seed: Seed = 0,
    revision: options.Revision = None,
    offline: options.Offline = False,
    format: options.Format = None,
    out: ChartOut = None,
    strict: options.Strict = False,
    debug: options.Debug = False,
) -> None:
    """Measured beside bound and expected, term by term.

    Which roof prefill and decode are under, by measurement; the roofline with the measured points with --out x.png.
    """
    from roofcast.cli.profiling_compare import answer_saved, refuse_measuring
    from roofcast.cli.profiling_ranks import RanksAsked
    from roofcast.cli.profiling_steps import Model, answer_steps, phases_asked

    wanted, said = phases_asked(phase), Model(model, weights, routing, seed, revision, offline)
    asked = Steps(("1", prompt) if "prefill" in wanted else None, (batch, context) if "decode" in wanted else None)
    output = format, out, strict
    if saved is not None:
        refuse_measuring(asking)
        answer_saved(saved, said, wanted, efficiency, output)
    else:
        ranks = RanksAsked(tp, backend, wait)
        answer_steps("compare", said, asked, (device, budget), ranks, output, terms=True, efficiency=efficiency)


@profile.command("attention")
def attention(
    heads: QueryHeads = 32,
    kv_heads: KvHeads = 8,
    head_dim: HeadDim = 128,
    prompt: Prompts = "512,1k,2k,4k,8k,16k",
    batch: Batches = "1,16",
    context: Contexts = "1k,8k",
    weights: Number = "bf16",
    device: Device = None,
    budget: Budget = None,
    format: options.Format = None,
    out: options.Out = None,
    debug: options.Debug = False,
) -> None:
    """Backends of attention over lengths: prompts, and decode.

    Time, rate and extra memory of each backend that torch has, and why one is not available.
    """
    from roofcast.cli.profiling_machine import answer_attention

    asked = Heads(heads, kv_heads, head_dim, weights, Steps(("1", prompt), (batch, context)))
    answer_attention(asked, device, budget, (format, out))


@profile.command("calibrate")
def calibrate(
    budget: Budget = "180s",
    device: Device = None,
    format: options.Format = None,
    out: ConstantsOut = None,
    debug: options.Debug = False,
) -> None:
    """Constants of this machine, fitted: every later estimate is yours.

    Writes `<id>.roofcast.yaml`, which `estimate` and its kin take from the user's folder, or with --efficiency FILE.
    """
    from roofcast.cli.profiling_calibrate import answer_calibrate

    answer_calibrate(device, budget, format, out)


@profile.command("collectives")
def collectives(
    ranks: RankCount = None,
    pattern: Patterns = None,
    size: Sizes = SIZES,
    number: Elements = "bf16",
    backend: Backend = None,
    wait: Wait = None,
    device: Device = None,
    budget: Budget = None,
    format: options.Format = None,
    out: ChartOut = None,
    debug: options.Debug = False,
) -> None:
    """Exchanges between devices, timed and checked.

    Starts a process for each device here; under torchrun it takes the ranks that torchrun has started, on any hosts.
    """
    from roofcast.cli.profiling_collectives import Asked, answer_collectives

    asked = Asked(pattern, size, number)
    answer_collectives(asked, (ranks, backend, wait), (device, budget), (format, out))


@profile.command("speculate")
def speculate(
    target: Annotated[str, typer.Argument(metavar="TARGET", help="Model that is sped up: catalogue, folder or repo.")],
    draft: Annotated[str, typer.Argument(metavar="DRAFT", help="Model that drafts.")],
    k: Drafts = "1,2,4,8",
    batch: Batches = "1,16",
    context: Contexts = "1k",
    acceptance: Acceptances = "0.6,0.8,0.9",
    weights: Weights = None,
    draft_weights: DraftWeights = None,
    text: TextFile = None,
    tokens: NewTokens = None,
    device: Device = None,
    budget: Budget = None,
    seed: Seed = 0,
    revision: options.Revision = None,
    offline: options.Offline = False,
    format: options.Format = None,
    out: options.Out = None,
    strict: options.Strict = False,
    debug: options.Debug = False,
) -> None:
    """Rounds of speculation, timed: draft k, verify k + 1.

    Random weights, beside what `speculate` says of them; where both models are folders with weights, and transformers is
    there, also tokens a round, acceptance and speed-up of real text.
    """
    from roofcast.cli.profiling_rounds import Asked
    from roofcast.cli.profiling_speculate import answer_speculate

    asked = Asked((target, draft), (k, batch, context, acceptance), (weights, draft_weights), (text, tokens), seed)
    answer_speculate(asked, (revision, offline), (device, budget), (format, out, strict))


@profile.command("checkpoint")
def checkpoint(
    path: Annotated[str, typer.Argument(metavar="PATH", help="Folder with config.json and weights.")],
    prompt: Prompts = "128,512,2k,8k",
    batch: Batches = "1,4,16,64",
    context: OneLength = "1k",
    steps: StepCount = 16,
    weights: Dtype = None,
    device: Device = None,
    budget: Budget = None,
    format: options.Format = None,
    out: options.Out = None,
    debug: options.Debug = False,
) -> None:
    """A real checkpoint through transformers: TTFT, time a step.

    Needs the extra `checkpoint`; runs no code of the checkpoint's own and fetches nothing.
    """
    from roofcast.cli.profiling_checkpoint import Asked, answer_checkpoint

    answer_checkpoint(Asked(path, prompt, batch, context, steps, weights), (device, budget), (format, out))
