"""`profile attention` on the processor, and the choice of a backend; no time is asserted."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from roofcast.profiler import attention_call, sdpa_choice
from roofcast.profiler.attention import SPLIT, AttentionPlan, profile_attention
from roofcast.profiler.attention_call import HeadShape
from roofcast.profiler.errors import OutOfMemoryError, ProfileUsageError, WrongOutputError
from roofcast.profiler.sdpa_choice import BACKENDS, BackendError, Inputs, accepted, attend, reason
from roofcast.profiler.sweep import INTERRUPTED, SPENT, Swept
from roofcast.profiler.timing import Budget

if TYPE_CHECKING:
    from roofcast.calculators.profiled import AttentionPoint
    from roofcast.profiler.runtime import Runtime

torch = pytest.importorskip("torch")
HEADS = HeadShape(4, 2, 16, "fp32")
GPUS_ONLY = "PyTorch has it on GPUs only; on a CPU there are math and flash"


@pytest.fixture(name="runtime")
def opened(monkeypatch: pytest.MonkeyPatch) -> Runtime:
    """The processor with one thread and a small cache, timed as shortly as can be."""
    from roofcast.profiler.runtime import open_runtime

    torch.set_num_threads(1)
    torch.manual_seed(0)
    monkeypatch.setattr("roofcast.profiler.timing.MOST", 5)
    here = open_runtime("cpu")
    return replace(here, machine=replace(here.machine, l2_bytes=2**14))


@pytest.fixture(name="swept")
def measured(runtime: Runtime) -> Swept[AttentionPoint]:
    """Two prompts, two batches at one context."""
    return profile_attention(runtime, AttentionPlan(HEADS, (16, 33), (1, 3), (20,)), Budget())


def drawn(query_heads: int = 4, kv_heads: int = 2, n: int = 24, width: int = 16, value_width: int = 16) -> Inputs:
    """A causal prompt."""
    return Inputs(
        torch.randn(1, query_heads, n, width),
        torch.randn(1, kv_heads, n, width),
        torch.randn(1, kv_heads, n, value_width),
        0.25,
        causal=True,
    )


def plain(inputs: Inputs) -> Any:
    """softmax(scale Q K^T) V by hand in fp64."""
    group = inputs.query.shape[1] // inputs.key.shape[1]
    key, value = (one.double().repeat_interleave(group, 1) for one in (inputs.key, inputs.value))
    scores = inputs.scale * inputs.query.double() @ key.transpose(-1, -2)
    if inputs.causal:
        later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(later, -torch.inf)
    return scores.softmax(-1) @ value


def test_every_backend_at_every_point(swept: Swept[AttentionPoint]) -> None:
    """Prompts first; a new token also by the profiler's own kernels."""
    assert [(one.phase, one.backend, one.batch, one.length) for one in swept.done] == [
        *(("prefill", name, 1, length) for length in (16, 33) for name in BACKENDS),
        *(("decode", name, batch, 20) for batch in (1, 3) for name in (*BACKENDS, SPLIT)),
    ]
    assert (swept.left, swept.why) == ((), "")


def test_points_have_times_or_reasons(swept: Swept[AttentionPoint]) -> None:
    """On a processor math and flash run, and the profiler's own; the two others say why not."""
    for one in swept.done:
        if one.backend in {"efficient", "cudnn"}:
            assert (one.sample, one.problem) == (None, GPUS_ONLY)
        else:
            assert one.problem is None
            assert one.sample is not None
            assert 0 < one.sample.low <= one.sample.seconds <= one.sample.high
        assert one.extra_bytes is None  # a processor does not tell
        assert (one.query_heads, one.kv_heads, one.head_dim, one.format) == (4, 2, 16, "fp32")


def test_work_of_a_point(swept: Swept[AttentionPoint]) -> None:
    """By hand: a prompt of 16 with 4 heads of 16 is 4 x 4 x 16 x 16^2 / 2; a cache of 3 x 20 x 2 x 16 x 2 x 4 B."""
    first, last = swept.done[0], swept.done[-1]

    assert first.flops == 4 * 4 * 16 * 128 == 32_768
    assert (last.flops, last.cache_bytes) == (4 * 3 * 4 * 16 * 20, 3 * 20 * 2 * 16 * 2 * 4)


@pytest.mark.parametrize(
    ("heads", "lengths", "says"),
    [
        (HeadShape(5, 2, 16), (8,), "5 query heads over 2 KV heads of 16: the first must be a multiple of the second"),
        (HeadShape(4, 0, 16), (8,), "4 query heads over 0 KV heads of 16: the first must be a multiple of the second"),
        (HeadShape(4, 2, 16, "fp8"), (8,), "attention in fp8: PyTorch's backends take bf16, fp16, fp32"),
        (HEADS, (8, 0), "attention of no token: lengths, batches and contexts are 1 and more"),
    ],
)
def test_plans_that_cannot_be(heads: HeadShape, lengths: tuple[int, ...], says: str) -> None:
    """Told before anything is measured."""
    with pytest.raises(ProfileUsageError) as caught:
        AttentionPlan(heads, lengths)

    assert str(caught.value) == says


def test_scores_that_do_not_fit_are_a_row(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    """Math keeps n^2 scores; where they do not fit it says so, and flash runs."""
    monkeypatch.setattr("roofcast.profiler.runtime._ram", lambda: (2**20, 2**30))

    math, _, flash, _ = profile_attention(runtime, AttentionPlan(HEADS, (256,)), Budget()).done

    assert math.sample is None
    assert math.problem == f"out of memory on {runtime.machine.name}: scores take 0.0 GiB and 0.0 GiB are free"
    assert flash.sample is not None


def test_a_cache_that_does_not_fit_is_a_row(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    """Told before the host begins to swap."""
    monkeypatch.setattr("roofcast.profiler.runtime._ram", lambda: (2**30, 2**34))

    got = profile_attention(runtime, AttentionPlan(HEADS, (), (1024,), (2**16,)), Budget()).done

    says = f"it takes up to {3 * 16 * HEADS.query // HEADS.kv}.0 GiB, 1.0 GiB are free"
    assert [one.problem for one in got] == [f"out of memory on {runtime.machine.name}: {says}"] * 5


def test_an_allocation_that_fails_is_a_row(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    """What CUDA's allocator raises becomes the reason, and the sweep goes on."""
    real = sdpa_choice.attend

    def short(here: Runtime, inputs: Inputs) -> Any:
        if inputs.query.shape[2] == 64:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 32.00 GiB. GPU 0 has")
        return real(here, inputs)

    monkeypatch.setattr(sdpa_choice, "attend", short)

    got = profile_attention(runtime, AttentionPlan(HEADS, (64, 32)), Budget()).done

    full = f"out of memory on {runtime.machine.name}: another 32.00 GiB were asked of it"
    assert [one.problem for one in got] == [full, GPUS_ONLY, full, GPUS_ONLY, None, GPUS_ONLY, None, GPUS_ONLY]


def test_wrong_attention_fails(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    """A result without its mask, one without its scale, one that is no number: each stops the profile."""
    real = sdpa_choice.attend
    for wrong, says in (
        (lambda here, inputs: real(here, replace(inputs, scale=4.0)), r"off by .*% of what fp32 gives"),
        (lambda here, inputs: real(here, inputs) / 0, r"outputs are no numbers"),
    ):
        monkeypatch.setattr(attention_call, "attend", wrong)
        with pytest.raises(WrongOutputError, match=f"^math prefill of 16: .*{says}"):
            profile_attention(runtime, AttentionPlan(HEADS, (16,)), Budget())


def test_wrong_kernels_of_our_own_fail(runtime: Runtime) -> None:
    """A decode kernel that leaves a sequence out, and one that forgets the new token."""

    class Lazy:
        def decode_attention(self, queries: Any, _: Any, __: Any, ___: Any, out: Any) -> None:
            out[: len(queries) - 1] = 1.0

    class Forgetful:
        def decode_attention(self, queries: Any, _: Any, heads: Any, cache: Any, out: Any) -> None:
            inputs = Inputs(queries, cache.keys[:, :, :-3], cache.values[:, :, :-3], heads.scale, causal=False)
            out.copy_(attend(runtime, inputs).flatten(1))

    lazy: Any = Lazy()
    forgetful: Any = Forgetful()
    with pytest.raises(WrongOutputError, match=r"^split_kv decode of 2 at 8: 64 of 128 outputs were not written"):
        attention_call.split_call(runtime, HEADS, 2, 8, lazy)
    with pytest.raises(WrongOutputError, match=r"^split_kv decode of 2 at 8: off by"):
        attention_call.split_call(runtime, HEADS, 2, 8, forgetful)


def test_caches_rotate(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    """Decode visits as many caches as take four times the last one before memory; each is another."""
    seen: set[int] = set()
    real = sdpa_choice.attend

    def watched(here: Runtime, inputs: Inputs) -> Any:
        seen.add(inputs.key.data_ptr())
        return real(here, inputs)

    monkeypatch.setattr(attention_call, "attend", watched)
    attention_call.decode_call(runtime, HEADS, 1, 16, "flash")

    assert len(seen) == 4 * 2**14 // (2 * 2 * 16 * 16 * 4) == 16


def test_budget_and_interrupt(runtime: Runtime) -> None:
    """What is done is kept, what is left is named."""

    def watch(label: str, *_: int) -> None:
        if label == "flash prefill of 1 at 8":
            raise KeyboardInterrupt

    stopped = profile_attention(runtime, AttentionPlan(HEADS, (8,)), Budget(), watch)
    spent = profile_attention(runtime, AttentionPlan(HEADS, (8,)), Budget(0.0))

    assert (len(stopped.done), stopped.left[0], stopped.why) == (2, "flash prefill of 1 at 8", INTERRUPTED)
    assert (spent.done, len(spent.left), spent.why) == ((), 4, SPENT)


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
@pytest.mark.parametrize("backend", ["math", "flash"])
def test_a_backend_alone_is_attention(runtime: Runtime, backend: str, kv_heads: int) -> None:
    """As computed by hand, for any grouping."""
    inputs = drawn(kv_heads=kv_heads)

    with sdpa_choice.only(backend):
        got = attend(runtime, accepted(runtime, backend, inputs))

    assert torch.allclose(got.double(), plain(inputs), atol=1e-5)


def test_heads_are_expanded_where_groups_are_unknown(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    """As by torch before 2.5 and the efficient backend: the result is the same, and the point says it."""
    function = torch.nn.functional.scaled_dot_product_attention

    def old(*tensors: Any, enable_gqa: bool = False, **named: Any) -> Any:
        if enable_gqa:
            raise TypeError("scaled_dot_product_attention() got an unexpected keyword argument 'enable_gqa'")
        return function(*tensors, **named)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", old)
    inputs = drawn()

    wider = accepted(runtime, "flash", inputs)
    (point,) = (
        one for one in profile_attention(runtime, AttentionPlan(HEADS, (8,)), Budget()).done if one.backend == "flash"
    )

    assert (wider.key.shape, wider.value.shape) == ((1, 4, 24, 16), (1, 4, 24, 16))
    assert torch.allclose(attend(runtime, wider).double(), plain(inputs), atol=1e-5)
    assert (point.problem, point.note) == (None, "takes no groups: KV heads expanded to 4 beforehand")


def test_a_refusal_gives_torchs_reason(runtime: Runtime) -> None:
    """Flash wants keys as wide as values; torch warns of it, and the first line of that is the reason."""
    with pytest.raises(
        BackendError, match=r"^flash: Flash attention requires q,k,v to have the same last dimension"
    ) as caught:
        accepted(runtime, "flash", drawn(value_width=8))

    assert "\n" not in str(caught.value)
    assert "Triggered" not in str(caught.value)


def test_reasons_stand_under_headings() -> None:
    """Those of the backends that were not asked are passed over."""
    lines = [
        "Memory efficient kernel not used because:",
        "Memory Efficient attention has been runtime disabled.",
        "Flash attention kernel not used because:",
        "Flash attention only supports gpu architectures in the range [sm80, sm121]. Attempting to run on a sm 7.5 gpu.",
        "CuDNN attention kernel not used because:",
        "cuDNN attention has been runtime disabled.",
    ]

    assert reason("flash", lines) == lines[3]
    assert reason("cudnn", lines) is None
    assert reason("efficient", lines) is None
    assert reason("math", lines) is None


def test_memory_beside_the_output(runtime: Runtime) -> None:
    """Peak less what was there and less the output; of expanded heads these too."""
    peaks = SimpleNamespace(
        reset_peak_memory_stats=lambda _: None,
        memory_allocated=lambda _: 1000,
        max_memory_allocated=lambda _: 1000 + 6144 + 500,
        synchronize=lambda _: None,
    )
    fake = SimpleNamespace(cuda=peaks, nn=torch.nn)
    here: Any = replace(runtime, torch=fake, machine=replace(runtime.machine, kind="cuda"))  # type: ignore[arg-type]
    inputs = drawn()  # queries, and so the output, are 4 x 24 x 16 x 4 = 6,144 B

    assert attention_call._extra(here, inputs, inputs) == 500
    assert attention_call._extra(here, inputs, inputs.expanded()) == 500 + 2 * 6144


def test_short_memory_is_an_error_of_its_own(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    """`accepted` tells it from a refusal."""
    monkeypatch.setattr("roofcast.profiler.runtime._ram", lambda: (0, 2**30))

    with pytest.raises(OutOfMemoryError):
        accepted(runtime, "math", drawn())
