"""Made-up answers of `check`, for tests of how they are written."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from roofcast.calculators.answer import Remarks
from roofcast.calculators.check_rows import FAILED, PASSED, UNDETERMINED, CheckResult, Locked, RuleRow
from roofcast.reports.check import check_document

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roofcast.reports.document import Document

PLAIN = RuleRow(
    name="first token",
    status=PASSED,
    actual=0.25,
    required=0.5,
    message="250 ms; at most 500 ms is required",
    quantity="ttft",
    unit="s",
    sign="<=",
    basis="expected",
    baseline=None,
    model="llama-3.1-8b",
    gpu="h100-sxm",
    file="roofcast.yaml",
    line=5,
    code=0,
)
CODES = {PASSED: 0, FAILED: 1, UNDETERMINED: 3}


def rule(name: str = PLAIN.name, status: str = PASSED, **changes: Any) -> RuleRow:
    """Return a rule that is met, or what it is changed to."""
    return replace(PLAIN, **{"name": name, "status": status, "code": CODES[status], **changes})


def told(rows: Sequence[RuleRow], **changes: Any) -> CheckResult:
    """Return the result of so many rules."""
    counts = {status: sum(row.status == status for row in rows) for status in CODES}
    files = list(dict.fromkeys(row.file for row in rows))
    whole = CheckResult(
        rules=list(rows),
        passed=counts[PASSED],
        failed=counts[FAILED],
        undetermined=counts[UNDETERMINED],
        files=files,
        baseline=None,
        updated=False,
        facts_version="roofcast 0.1.0, facts 12ab34cd",
    )
    return replace(whole, **changes)


def page(rows: Sequence[RuleRow], said: Remarks | None = None, **changes: Any) -> Document:
    """Return the document of so many rules."""
    return check_document(told(rows, **changes), {"files": ["roofcast.yaml"]}, said or Remarks())


SEQUENCES = rule(
    "a hundred chats at 4k",
    actual=121,
    required=100,
    quantity="sequences",
    unit="",
    sign=">=",
    basis=None,
    baseline=118,
)
SLOW = rule("first token", FAILED, actual=0.61234, line=8, baseline=0.6, message="612.3 ms; at most 500 ms is required")
GROWN = rule(
    "kv bytes",
    FAILED,
    actual=262144,
    required=131072.0,
    message="262,144 B/token, +100.0 % against the baseline's 131,072 B/token; 0% more is allowed",
    quantity="kv_bytes_per_token",
    unit="B/token",
    basis=None,
    baseline=131072,
    model="my-org/my-model",
    gpu=None,
    line=13,
)
LOADED = rule("tpot p99", UNDETERMINED, actual=None, required=0.02, line=17, message="no request has such a time")
FITS = rule("weights fit", actual=True, required=True, unit="", sign="==", basis=None, baseline=True, message="yes")
CHEAP = rule("cost", actual=0.1234, required=0.2, quantity="cost_per_million_tokens", unit="USD/Mtoken")
SEVERAL = (SEQUENCES, SLOW, GROWN, LOADED, FITS, CHEAP)
LOCKS = [
    Locked("model", "my-org/my-model@v2", "def5678", "abc1234"),
    Locked("accelerator", "h100-sxm", "1111", "1111"),
    Locked("constants", "h100-sxm.vllm", "2222", None),
    Locked("roofcast", "roofcast", "0.1.0", "0.1.0"),
]
