"""Sharing modes of jobs, and the figures that decide every admission.

There is one rule. Exclusive use, `always:N` and gpulimit's thresholds are settings of it.
"""

from __future__ import annotations

import enum

import msgspec

MIB = 1 << 20
MOST_TENANTS = 64


class Mode(str, enum.Enum):
    """Whether and how a job shares its GPU."""

    NEVER = "never"
    AUTO = "auto"  # once the need of its kind is known
    FREE = "free"  # while enough memory is free, as gpulimit does; nothing is reserved
    ALWAYS = "always"  # with a number of others that the user gives, whatever is known


class Share(msgspec.Struct, frozen=True):
    """A job's sharing mode. `most` is the user's limit of jobs on its GPU.

    With `forced`, a job of mode FREE ignores all thresholds, because its user forces the start.
    """

    mode: Mode
    most: int | None = None
    forced: bool = False

    @property
    def text(self) -> str:
        """The form that users type and the database stores: `auto`, `never`, `always:4`."""
        return self.mode.value if self.most is None else f"{self.mode.value}:{self.most}"


NEVER = Share(Mode.NEVER)
AUTO = Share(Mode.AUTO)


def parse_share(text: str) -> Share:
    """Parse `auto`, `never`, `free` or `always:4`; raise ValueError that lists the modes."""
    word, _, number = text.partition(":")
    if word == Mode.ALWAYS.value and number.isdecimal() and 1 <= int(number) <= MOST_TENANTS:
        return Share(Mode.ALWAYS, int(number))
    if not number and word in (Mode.NEVER.value, Mode.AUTO.value, Mode.FREE.value):
        return Share(Mode(word))
    raise ValueError(
        f"{text!r} is not a sharing mode: auto, never, free or always:N with N up to {MOST_TENANTS}"
    )


class SharingRules(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of the sharing policy.

    With `keep_gpu_share` no memory is reserved: another job is admitted while that share of the GPU's
    memory is free. `free` holds such rules for jobs of mode FREE.
    """

    margin_share: float = 0.03
    margin_bytes: int = 512 * MIB
    sm_limit: float = 1.3
    brief_s: float = 60.0  # much of a shorter run is start-up, which the load does not show
    brief_sm_limit: float = 4.0  # limit among such short runs
    unknown_sm: float = 0.3  # for a kind whose load could not be measured
    most: int = 16
    learned_from: int = 3
    learned_factor: float = 1.10
    few_factor: float = 1.35
    probe_factor: float = 1.55
    probe_s: float = 120.0
    flat_s: float = 60.0
    ramp_flat_s: float = (
        2.0  # a job that computes with flat memory for so long lets capped ones join
    )
    ramp_share: float = 0.25  # of a GPU: the least that such a job keeps, for it may still grow
    oom_factor: float = 1.25
    least_gain: float = 1.05
    patience_s: float = 60.0
    keep_gpu_share: float | None = None
    keep_host_share: float = 0.05
    with_others: bool = False
    free: SharingRules | None = None

    def of(self, share: Share) -> SharingRules:
        """Return the rules that apply to a job."""
        if share.mode is Mode.FREE and share.forced:
            return gpulimit_rules(0.0, 0.0, MOST_TENANTS)
        return self.free if self.free is not None and share.mode is Mode.FREE else self

    def margin_of(self, total_bytes: int) -> int:
        """Return the part of a GPU's memory that is never reserved."""
        return max(int(total_bytes * self.margin_share), self.margin_bytes)


def gpulimit_rules(keep_gpu_share: float, keep_host_share: float, most: int) -> SharingRules:
    """Return gpulimit's thresholds as rules: no reservation, no limit of load."""
    return SharingRules(
        keep_gpu_share=keep_gpu_share,
        keep_host_share=keep_host_share,
        most=most,
        sm_limit=float("inf"),
        brief_sm_limit=float("inf"),
        with_others=True,
    )
