"""Runs tiny decoders on the Triton kernels, which TRITON_INTERPRET=1 lets a CPU do, and prints how far off they are.

In a process of its own: whether a kernel is interpreted is settled when its module is first imported.
"""

from __future__ import annotations

import json
import sys
from typing import Any
from unittest.mock import patch


def first(_: object, key: object, candidates: tuple[Any, ...], *rest: object) -> Any:
    """Instead of measuring: the first candidate."""
    del key, rest
    return candidates[0]


def off(name: str) -> float:
    """Largest error of logits after a prompt and two steps, and of a pass that verifies, as a share of the plain reference's."""
    import torch

    from roofcast.profiler.decoder import Decoder, Setup
    from roofcast.profiler.triton_kernels import TritonKernels
    from tests.reference_decoder import logits
    from tests.tiny_decoders import BUILT, VOCAB, cpu

    runtime = cpu()
    decoder = Decoder(BUILT[name], runtime, TritonKernels(runtime), Setup("fp32", "fp32"))
    tokens = torch.randint(VOCAB, (2, 7), generator=torch.Generator().manual_seed(2))
    session = decoder.session(2, 8)
    step = session.prefill(5)
    step.load(tokens[:, :5])
    step.run()
    step = session.decode()
    for place in (5, 6):
        step.load(tokens[:, place : place + 1], place)
        step.run()
    expected = logits(decoder, tokens)
    step_error = float((step.logits.double() - expected).norm() / expected.norm())
    verifying = session.verify(3, 4)
    verifying.load(tokens[:, 4:], 4)
    verifying.poison()
    verifying.run()
    every = torch.stack([logits(decoder, tokens[:, : end + 1]) for end in (4, 5, 6)], dim=1)
    found = verifying.logits.double().view(every.shape)
    return max(step_error, float((found - every).norm() / every.norm()))


if __name__ == "__main__":
    with patch("roofcast.profiler.tuning.Tuner.choose", first):
        print(json.dumps({name: off(name) for name in sys.argv[1:]}))
