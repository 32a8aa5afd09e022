"""Lines of Ollama's server: its version, how it starts a runner, and what that takes; llama.cpp's lines are beside."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from roofcast.calculators.log_llama import DEVICE, LLAMA, called, settled, summed_up
from roofcast.calculators.log_terms import MIB, Dialect, Message, message, number

if TYPE_CHECKING:
    from collections.abc import Mapping

# Source: Ollama, server/routes.go, llm/server.go, ml/device.go, ml/backend/ggml/ggml.go
STARTS: Final = (
    Message(
        "Listening on",
        re.compile(r'msg="Listening on [^"]{1,200}\(version v?(?P<version>\d{1,4}(?:\.\d{1,4}){1,2})'),
        opens="anew",
    ),
    # without a model it only looks for devices
    Message(
        "starting ",
        re.compile(r'msg="starting (?:llama )?(?:runner|server)" cmd=.{0,400}? --model (?P<model>[^ "]{1,300})'),
        opens="anew",
    ),
    Message("starting go runner", re.compile('msg="starting go runner"')),
    Message("lama runner started in", re.compile('msg="llama runner started in'), ready=True),
)
SAID: Final = (
    # the cache of all slots; a request that closes a runner has noughts
    message("KvSize:", r"Operation:(?:fit|alloc|commit)\b.{0,200}? KvSize:(?P<kv_size>\d{1,12})"),
    message("KvSize:", r"Operation:(?:fit|alloc|commit)\b.{0,200}? Parallel:(?P<parallel>\d{1,9})"),
    message("KvSize:", r"Operation:(?:fit|alloc|commit)\b.{0,200}? BatchSize:(?P<ubatch_size>\d{1,12})"),
    message("KvSize:", r"Operation:(?:fit|alloc|commit)\b.{0,200}? KvCacheType:(?P<type_k>\w{1,16})"),
    message("--ctx-size", r'msg="starting .{0,800}? --ctx-size (?P<kv_size>\d{1,12})'),
    message("--ctx-size", r'msg="starting .{0,800}? --parallel (?P<parallel>\d{1,9})'),
    message("--ctx-size", r'msg="starting .{0,800}? --batch-size (?P<ubatch_size>\d{1,12})'),
    message("file_type=", r"architecture=(?!clip\b)\S{1,60} file_type=(?P<file_type>[\w.-]{1,30})"),
    message(
        "file_type=",
        r'architecture=(?!clip\b)\S{1,60} file_type=\S{1,30} name="?(?P<model_name>(?<=")[^"]{1,80}|(?<!")[^\s"]{1,80})',
    ),
)
# one line a device, rounded to a decimal
RUNNER: Final = tuple(
    message(f'msg="{words}"', rf'msg="{words}" device={DEVICE} size="(?P<{name}>@) {unit}iB"', size, 1)
    for words, name in (
        ("model weights", "runner_weights"),
        ("kv cache", "runner_kv"),
        ("compute graph", "runner_graph"),
    )
    for unit, size in (("G", MIB * 1024), ("M", MIB), ("K", 1024.0))
)


def by_slot(settings: Mapping[str, str]) -> dict[str, str]:
    """Settings of llama.cpp as Ollama has them: n_ctx is of one slot, the cache over its slots. [token]

    >>> by_slot({"kv_size": "32768", "parallel": "4"})
    {'parallel': '4', 'n_ctx': '8192'}
    """
    every = dict(settings)
    total = number(every.pop("kv_size", every.get("n_ctx", "")))
    slots = number(every.get("parallel", "1")) or 1.0
    if total is not None:
        every["n_ctx"] = str(int(total / slots))
    return every


def _settled(settings: Mapping[str, str]) -> dict[str, str]:
    return by_slot(settled(settings))


OLLAMA: Final = Dialect(
    engine="ollama",
    messages=(*STARTS, *SAID, *RUNNER),
    config=(),
    names={},
    shown='msg="kv cache"',
    called=called,
    summed_up=summed_up,
    settled=_settled,
    runs=LLAMA,
)
