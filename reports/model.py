"""`model` as a document: facts with provenance, the layer map, parameters by component, state and experts."""

from __future__ import annotations

from textwrap import wrap
from typing import TYPE_CHECKING, Any, Final

from roofcast.calculators.describe import Fact
from roofcast.reports.document import Document, Table, plain, table
from roofcast.reports.kv import heads
from roofcast.reports.numbers import GIB, KIB, NOTHING, context_name, count, fixed
from roofcast.reports.weights import component_name, weight_tables

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from roofcast.calculators.answer import Remarks
    from roofcast.calculators.describe import LayerRun, ModelResult, State
    from roofcast.calculators.experts import Experts

# numbers of a layer's state -> their headings
STATES: Final = {"token_state": "bytes\na token", "window_state": "window\nbytes", "fixed_state": "fixed\nbytes"}
FACTS: Final = {"weight_bytes": "weights, bytes", "weight_format": "weights, format"}  # as people read them
VALUE: Final = 36  # characters of a value that leave a row of facts at 80
RUNS: Final = 3  # runs of layer numbers that a cell spells out; of more it shows the first two and the last


def model_document(result: ModelResult, inputs: Mapping[str, Any], remarks: Remarks) -> Document:
    """The page of `model`."""
    return Document(
        command="model",
        inputs=inputs,
        result=result,
        records=_records(result),
        lines=(plain(f"{result.model}, from {result.source}"),),
        tables=tuple(_tables(result, inputs)),
        remarks=remarks,
    )


def _records(result: ModelResult) -> list[Fact]:
    """The facts, and below them one for each component: parameters, and bytes as stored, implied and asked for."""
    source = {fact.name: fact.provenance for fact in result.facts}
    stored = {part.component: part.bytes for part in result.stored_components or ()}
    groups: tuple[tuple[str, Mapping[str, float], str | None], ...] = (
        ("parameters", result.parameters_by_component, source["layers"]),
        ("stored_bytes", stored, "header"),
        ("implied_bytes", result.implied_components or {}, source["layers"]),
        ("requested_bytes", result.requested_components or {}, source["weight_bytes"]),
        ("requested_parameters", result.requested_types or {}, source["weight_bytes"]),
    )
    return [
        *result.facts,
        *(Fact(f"{group}.{name}", value, source) for group, values, source in groups for name, value in values.items()),
    ]


def _tables(result: ModelResult, inputs: Mapping[str, Any]) -> list[Table]:
    total = sum(result.parameters_by_component.values())
    told = any(fact.name == "parameters" and fact.value == total for fact in result.facts)
    whole = "all" if told else "as far as known"
    components = [
        (component_name(name), count(n), f"{n / total:.1%}")
        for name, n in (*result.parameters_by_component.items(), (whole, total))
    ]
    tables = [
        table(("fact", "value", "from"), [row for fact in result.facts for row in _fact(fact)], left=(0, 1, 2)),
        *_layer_map(result.layers),
        table(("component", "parameters", "share"), components),
        table((f"KV cache ({inputs['kv']})", "", "reserved\nin pages"), _cache(result)),
    ]
    if result.experts is not None:
        tables.append(_experts(result.experts))
    tables += weight_tables(result)
    return tables


def _fact(fact: Fact) -> list[tuple[str, str, str]]:
    """The row of a fact, or rows where its value is a long list."""
    value = fact.value
    if isinstance(value, bool):
        text = "yes" if value else "no"
    elif isinstance(value, (int, float)):
        text = f"{value:,.0f}" if value == int(value) else f"{value:,.4g}"
    else:
        text = value or NOTHING
    name = FACTS.get(fact.name, fact.name.replace("_", " "))
    first, *rest = wrap(text, VALUE, break_long_words=False, break_on_hyphens=False) or [""]
    return [(name, first, fact.provenance or ""), *(("", line, "") for line in rest)]


def _layer_map(runs: Sequence[LayerRun]) -> tuple[Table, Table]:
    """What each kind of layer is, and what it takes; layers that are alike share a row wherever they stand."""
    alike: dict[tuple[object, ...], list[LayerRun]] = {}
    for run in runs:
        alike.setdefault(_kind(run), []).append(run)
    named = [(_where(group), group[0], sum(run.last - run.first + 1 for run in group)) for group in alike.values()]
    windows = any(run.window for run in runs)
    kinds = [
        (
            where,
            str(layers),
            run.attention or NOTHING,
            heads(run.query_heads, run.kv_heads),
            *([count(run.window)] if windows else []),
            " + ".join(run.feed_forwards) or NOTHING,
        )
        for where, run, layers in named
    ]
    states = [part for part in STATES if any(getattr(run, part) for run in runs)]
    takes = [
        (
            where,
            count(run.attention_parameters),
            count(run.feed_forward_parameters),
            *(_state(getattr(run, part)) for part in states),
        )
        for where, run, _ in named
    ]
    taken = ("one layer", "attn\nparameters", "feed-forward\nparameters", *(STATES[part] for part in states))
    names = ("layers", "L", "attn", "q/kv", *(["window"] if windows else []))
    return (
        table((*names, "feed-forward"), kinds, left=(0, 2, len(names))),
        table(taken, takes),
    )


def _kind(run: LayerRun) -> tuple[object, ...]:
    """All that a run says but where it stands."""
    taken = (run.attention_parameters, run.feed_forward_parameters)
    shape = (run.attention, run.query_heads, run.kv_heads, run.window, *run.feed_forwards)
    return (run.draft, *shape, *taken, *(getattr(run, part) for part in STATES))


def _where(runs: Sequence[LayerRun]) -> str:
    """Numbers of the layers; of many runs the first two and the last."""
    names = [f"{run.first}-{run.last}" if run.last > run.first else str(run.first) for run in runs]
    if len(names) > RUNS:
        names = [names[0], f"{names[1]} .. {names[-1]}"]
    return ", ".join(names) + (" (MTP)" if runs[0].draft else "")


def _state(state: State | None) -> str:
    return NOTHING if state is None else f"{_bytes(state.bytes)} {state.format}"


def _bytes(size: float) -> str:
    return f"{size:,.0f}" if size == int(size) else f"{size:,.4g}"


def _cache(result: ModelResult) -> list[tuple[str, str, str]]:
    rows = [("a token", f"{fixed(result.kv_bytes_per_token / KIB, 1)} KiB", "")]
    if result.window_bytes:
        rows.append(("windows, once full", f"{fixed(result.window_bytes / 2**20, 1)} MiB", ""))
    if result.state_bytes:
        rows.append(("fixed state", f"{fixed(result.state_bytes / 2**20, 1)} MiB", ""))
    return rows + [
        (f"at {context_name(int(key))}", _gib(size), _gib(result.reserved_bytes[key]))
        for key, size in result.cache_bytes.items()
    ]


def _gib(size: float) -> str:
    return f"{fixed(size / GIB, 2)} GiB"


def _experts(experts: Experts) -> Table:
    """What the tokens of a step are expected to read of the experts."""
    shared = f", and a shared one of width {experts.shared_width:,}" if experts.shared_width else ""
    choice = experts.experts + experts.idle_experts
    idle = f", {experts.idle_experts} of which pass the token on unchanged" if experts.idle_experts else ""
    title = f"experts: {experts.top_k} of {choice} for a token{idle}{shared}; {experts.layers} layers"
    header = ["tokens\na step", "distinct experts\nread a layer", "of all"]
    bytes_read = experts.expected_bytes
    header += [f"GiB read\n({experts.format})"] if bytes_read else []
    rows = [
        (
            count(int(key)),
            fixed(distinct, 1),
            f"{distinct / experts.experts:.0%}",
            *([fixed(bytes_read[key] / GIB, 2)] if bytes_read else []),
        )
        for key, distinct in experts.expected_experts.items()
    ]
    return table(header, rows, title=title, left=())
