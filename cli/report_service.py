"""What `report` says of a server under load: the deployment as `simulate` has it, and the loads that are sent to it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from roofcast.calculators.workload import Request
    from roofcast.cli.reporting import Setting
    from roofcast.reports.document import Document

CLIENTS: Final = (1, 16, 64)


def service_part(setting: Setting, request: Request) -> Document | None:
    """As `simulate`, of several loads of one request; None where the server has no room for any."""
    from roofcast.calculators.report_service import service_result
    from roofcast.cli.check_fields import usual_basis
    from roofcast.reports.report_service import service_document

    verdict, setups = setting.verdict, setting.setups
    if verdict.most is None:
        return None
    case = replace(setting.case, basis=usual_basis(expected=setups.efficiencies.wanted))
    service, said = setups.service(case)
    if service.reason:
        return None
    top = verdict.most.batch
    clients = sorted({*(number for number in CLIENTS if number <= top), min(top, CLIENTS[-1])})
    result, drawn = service_result(service, request, verdict.limits, clients)
    return service_document(result, drawn, setting.inputs, said)
