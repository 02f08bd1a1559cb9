"""Applies the executor's reports: passes each to the part of the engine that it concerns."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from stoker.engine.attempt_reports import AttemptReports
from stoker.engine.claims_ahead import ClaimsAhead
from stoker.engine.events import Notices
from stoker.engine.gpu_leases import GpuLeases
from stoker.engine.run_progress import RunProgress
from stoker.engine.running_attempt import RunningAttempt
from stoker.engine.slots import SlotTable
from stoker.engine.warm_status import WarmStatus
from stoker.executors import contract
from stoker.executors.contract import Ended, Lost, Placed, Refused, Report, Revoked, Started, Synced
from stoker.executors.node_reports import NodeReport

AttemptReport = Ended | Started | Placed | Refused | Revoked | Lost


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
                case Ended() | Started() | Placed() | Refused() | Revoked() | Lost():
                    running = self.slot_table.running.get(report.key)
                    if running is not None:
                        self._apply_to(running, report, now, is_over=report.key in over)
                    elif isinstance(report, Ended | Lost | Refused):
                        self.attempts.on_unknown_end(report.key)
                    elif isinstance(report, Started) and report.key not in over:
                        self.attempts.on_unknown(report)
                case Synced():
                    self._on_synced(report)
                case contract.Stayed():
                    self.attempts.on_stayed(report)
                case _:
                    self._apply_other(report, now)
        return [each.key for each in reports if isinstance(each, (Ended, Refused, Lost))]

    def _apply_to(
        self, running: RunningAttempt, report: AttemptReport, now: float, *, is_over: bool
    ) -> None:
        attempts = self.attempts
        match report:
            case Ended():
                attempts.on_ended(running, report, now)
            case Started():
                attempts.on_started(running, report, now, is_over=is_over)
            case Placed():
                attempts.assign(running, report.place)
            case Refused():
                attempts.ends.refuse(running, report.errno, report.reason, now)
            case Revoked():
                attempts.ends.take_back(running)
            case Lost():
                attempts.lose(running, report.reason, cut_off=report.cut_off)

    def _apply_other(self, report: Report, now: float) -> None:
        match report:
            case contract.Held():
                self.gpu_leases.on_held(report.slot)
            case contract.Unheld():
                self.gpu_leases.on_unheld(report, now)
            case contract.Released():
                self.gpu_leases.on_released(report.slot)
            case contract.Warmed() | contract.Cooled() | contract.Cold() | contract.PartlyWarm():
                self.warm_status.apply(report)
            case contract.Finished():
                self.progress.finished = True
            case contract.Strays():
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
