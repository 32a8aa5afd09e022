"""Efficiencies as the text of their file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from roofcast.hwdb.efficiency import Efficiency, Fit, Provenance

FIGURES: Final = 4  # of a constant
PLACES: Final = 4  # of a spread and of an error
WIDTH: Final = 120
OPTIONAL: Final = ("driver", "torch", "clock")  # of the provenance


def efficiency_text(efficiency: Efficiency) -> str:
    """The YAML of an efficiency file: what `read_efficiency` reads back, constants to four figures.

    >>> from roofcast.hwdb.efficiency_files import BUILT_IN, read_efficiency
    >>> path = BUILT_IN / "h200-sxm.vllm.yaml"
    >>> efficiency_text(read_efficiency(path)) == path.read_text(encoding="utf-8")
    True
    """
    import yaml

    class Dumper(yaml.SafeDumper):
        """Plain YAML, with quotes where they are asked."""

    Dumper.add_representer(
        _Quoted, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style="'")
    )
    text: str = yaml.dump(_document(efficiency), Dumper=Dumper, sort_keys=False, width=WIDTH, allow_unicode=True)
    return text


class _Quoted(str):
    """Text that stands in quotes: a digest may look like a number."""

    __slots__ = ()


def _document(one: Efficiency) -> dict[str, Any]:
    return {
        "schema": one.file_schema,
        "accelerator": one.accelerator,
        "engine": one.engine,
        "fits": [_fit(fit) for fit in one.fits],
        "provenance": _provenance(one.provenance),
    }


def _fit(fit: Fit) -> dict[str, Any]:
    errors = {"median_error": fit.median_error, "p90_error": fit.p90_error}
    return {
        "family": fit.family,
        "format": fit.format,
        "constants": {name: float(f"{value:.{FIGURES}g}") for name, value in fit.constants.items()},
        "spread": round(fit.spread, PLACES),
        "rows": fit.rows,
        **{name: round(value, PLACES) for name, value in errors.items() if value is not None},
        "excluded": dict(fit.excluded),
        "data": list(fit.data),
    }


def _provenance(one: Provenance) -> dict[str, Any]:
    return {
        "fitted": one.fitted,
        "by": one.by,
        "source": one.source,
        "data": [{"file": data.file, "sha256": _Quoted(data.sha256)} for data in one.data],
        **{name: value for name in OPTIONAL if (value := getattr(one, name)) is not None},
    }
