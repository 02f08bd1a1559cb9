"""Applies the executor's reports: passes each to the part of the engine that it concerns."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from stoker.engine.attempt_reports import AttemptReports
from stoker.engine.claims_ahead import ClaimsAhead
from stoker.engine.events import Notices
from stoker.engine.gpu_leases import GpuLeases
from stoker.engine.run_progress import RunProgress
from stoker.engine.slots import SlotTable
from stoker.engine.warm_status import WarmStatus
from stoker.executors.contract import (
    Cold,
    Cooled,
    Ended,
    Finished,
    Held,
    Lost,
    Placed,
    Refused,
    Released,
    Report,
    Revoked,
    Started,
    Strays,
    Synced,
    Unheld,
    Warmed,
)
from stoker.executors.node_reports import (
    NodeReport,
)


class ReportHandler(msgspec.Struct, kw_only=True, eq=False):
    """Dispatches reports of attempts, slots, warm workers and nodes in their order."""

    attempts: AttemptReports
    slot_table: SlotTable
    gpu_leases: GpuLeases
    claims_ahead: ClaimsAhead
    warm_status: WarmStatus
    progress: RunProgress
    notices: Notices
    on_node_report: Callable[[NodeReport], None] | None

    def apply(self, reports: list[Report], now: float) -> list[str]:
        """Apply all reports of a turn. Returns the keys of the attempts that are over."""
        over = {report.key for report in reports if isinstance(report, Ended)}
        for report in reports:
            match report:
                case Ended():
                    self.attempts.on_ended(report, now)
                case Started():
                    self.attempts.on_started(report, now, is_over=report.key in over)
                case Placed():
                    self.attempts.on_placed(report)
                case Refused():
                    self.attempts.on_refused(report, now)
                case Revoked():
                    self.attempts.on_revoked(report.key)
                case Lost():
                    self.attempts.on_lost(report)
                case Synced():
                    self._on_synced(report)
                case _:
                    self._apply_other(report, now)
        return [each.key for each in reports if isinstance(each, (Ended, Refused, Lost))]

    def _apply_other(self, report: Report, now: float) -> None:
        match report:
            case Held():
                self.gpu_leases.on_held(report.slot)
            case Unheld():
                self.gpu_leases.on_unheld(report, now)
            case Released():
                self.gpu_leases.on_released(report.slot)
            case Warmed() | Cooled() | Cold():
                self.warm_status.apply(report)
            case Finished():
                self.progress.finished = True
            case Strays():
                pids = ", ".join(map(str, report.pids))
                self.notices.tell(
                    f"processes that commands left behind have 5 s to end: pid {pids}"
                )
            case NodeReport():
                assert self.on_node_report is not None
                self.on_node_report(report)

    def _on_synced(self, report: Synced) -> None:
        self.attempts.on_synced(report)
        self.claims_ahead.forget_offers()
        self.warm_status.forget()
        if report.fresh:
            self.gpu_leases.forget(report.node or self.slot_table.head)
