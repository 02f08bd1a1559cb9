"""How GPUs are shared: the wish of a job, and the figures that every admission goes by.

There is one rule. Running alone, `always N`, and the thresholds of gpulimit are settings of it.
"""

from __future__ import annotations

import enum

import msgspec

MIB = 1 << 20
MOST_TENANTS = 64


class Mode(str, enum.Enum):
    """Whether a job shares its GPU."""

    NEVER = "never"
    AUTO = "auto"  # once it is known what its kind needs
    FREE = "free"  # while enough memory is free, as gpulimit does; nothing is set aside
    ALWAYS = "always"  # with so many others as its user says, whatever is known


class Share(msgspec.Struct, frozen=True):
    """A job's wish; `most` is how many jobs may be on its GPU, where its user has said so.

    With `forced`, a job of mode FREE starts without regard to thresholds: its user forces the start.
    """

    mode: Mode
    most: int | None = None
    forced: bool = False

    @property
    def text(self) -> str:
        """As it is typed and stored: `auto`, `never`, `always:4`."""
        return self.mode.value if self.most is None else f"{self.mode.value}:{self.most}"


NEVER = Share(Mode.NEVER)
AUTO = Share(Mode.AUTO)


def parse_share(text: str) -> Share:
    """Read `auto`, `never` or `always:4`; raises ValueError that says what there is."""
    word, _, number = text.partition(":")
    if word == Mode.ALWAYS.value and number.isdecimal() and 1 <= int(number) <= MOST_TENANTS:
        return Share(Mode.ALWAYS, int(number))
    if not number and word in (Mode.NEVER.value, Mode.AUTO.value, Mode.FREE.value):
        return Share(Mode(word))
    raise ValueError(
        f"{text!r} is no way to share: auto, never, free or always:N with N up to {MOST_TENANTS}"
    )


class SharingRules(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of the policy.

    With `keep_gpu_share` nothing is set aside: another job is let in while that share of the GPU's
    memory is free. `free` are such rules, for the jobs that ask for them.
    """

    margin_share: float = 0.03
    margin_bytes: int = 512 * MIB
    sm_limit: float = 1.3
    brief_s: float = 60.0  # of runs that take less, much is start-up and end, which no load shows
    brief_sm_limit: float = 4.0  # among such runs alone
    unknown_sm: float = 0.3  # of a kind whose use of the GPU nobody could measure
    most: int = 16
    learned_from: int = 3
    learned_factor: float = 1.10
    few_factor: float = 1.35
    probe_factor: float = 1.55
    probe_s: float = 120.0
    flat_s: float = 60.0
    oom_factor: float = 1.25
    least_gain: float = 1.05
    patience_s: float = 60.0
    keep_gpu_share: float | None = None
    keep_host_share: float = 0.05
    with_others: bool = False
    free: SharingRules | None = None

    def of(self, share: Share) -> SharingRules:
        """The figures that count for a job."""
        if share.mode is Mode.FREE and share.forced:
            return gpulimit_rules(0.0, 0.0, MOST_TENANTS)
        return self.free if self.free is not None and share.mode is Mode.FREE else self

    def margin_of(self, total_bytes: int) -> int:
        """What of a GPU is left to chance."""
        return max(int(total_bytes * self.margin_share), self.margin_bytes)


def gpulimit_rules(keep_gpu_share: float, keep_host_share: float, most: int) -> SharingRules:
    """The thresholds of gpulimit: no reservation, no look at the load, whatever fits at this moment."""
    return SharingRules(
        keep_gpu_share=keep_gpu_share,
        keep_host_share=keep_host_share,
        most=most,
        sm_limit=float("inf"),
        brief_sm_limit=float("inf"),
        with_others=True,
    )
