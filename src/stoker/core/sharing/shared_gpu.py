"""A GPU and the jobs that share it, as the sharing policy sees them."""

from __future__ import annotations

import msgspec

from stoker.core.sharing.request import ShareRequest
from stoker.core.sharing.rules import SharingRules


class Tenant(msgspec.Struct, frozen=True, kw_only=True):
    """A job on a GPU: what is reserved for it, and what it has shown.

    A tenant is cold while its need is unknown: then it has the whole GPU. A capped tenant cannot take more
    than its reservation; others can, and `overrun` deals with them. A tenant on trial got its reservation
    from runs with other parameters. A settled one holds memory and has not grown for a while.
    """

    request: ShareRequest
    reserved_bytes: int
    used_bytes: int = 0
    sm: float = 0.0
    cold: bool = False
    capped: bool = False
    brief: bool = False  # runs of its kind are short
    fresh: bool = False  # admitted just now: its use is not measured yet
    trial: bool = False
    settled: bool = False
    most: int | None = None
    because: str = ""  # why so much is reserved; not known of a job that an earlier daemon started

    @property
    def job(self) -> int:
        """Id of the job."""
        return self.request.job


class SharedGpu(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU at one moment. `blind` says why it cannot be shared; None if it can."""

    key: str
    label: str
    model: str
    total_bytes: int
    used_bytes: int = 0
    driver_bytes: int = 0
    foreign_bytes: int = 0
    foreign: str | None = None  # the foreign user or process there
    blind: str | None = None
    releasing: bool = False
    frozen: str | None = None
    tenants: tuple[Tenant, ...] = ()
    node: str = ""

    def capacity(self, rules: SharingRules) -> int:
        """Return how much can be reserved in all."""
        others = self.driver_bytes + self.foreign_bytes
        return max(0, self.total_bytes - others - rules.margin_of(self.total_bytes))

    @property
    def reserved_bytes(self) -> int:
        """Sum of all reservations."""
        return sum(tenant.reserved_bytes for tenant in self.tenants)

    @property
    def free_bytes(self) -> int:
        """Memory that is unused at this moment."""
        return max(0, self.total_bytes - self.driver_bytes - self.used_bytes)

    @property
    def promised_bytes(self) -> int:
        """Reserved memory that is not used yet."""
        return sum(max(0, each.reserved_bytes - each.used_bytes) for each in self.tenants)

    @property
    def sm(self) -> float:
        """Share of the GPU that its tenants keep busy together."""
        return sum(tenant.sm for tenant in self.tenants)

    def with_tenant(self, tenant: Tenant) -> SharedGpu:
        """Return a copy with one more job."""
        return msgspec.structs.replace(self, tenants=(*self.tenants, tenant))
