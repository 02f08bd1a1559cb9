"""A GPU and those who share it, as an admission sees them."""

from __future__ import annotations

import msgspec

from stoker.core.sharing.request import ShareRequest
from stoker.core.sharing.rules import SharingRules


class Tenant(msgspec.Struct, frozen=True, kw_only=True):
    """A job on a GPU: what was set aside for it, and what it has shown.

    It is cold while nobody knows what it will need: then it has the whole GPU. A capped one cannot take
    more than was set aside for it; others can, and are seen to when they do.
    """

    wish: ShareRequest
    reserved_bytes: int
    used_bytes: int = 0
    sm: float = 0.0
    cold: bool = False
    capped: bool = False
    brief: bool = False  # runs of its kind are over soon
    fresh: bool = False  # let in just now: what it takes is not to be seen yet
    most: int | None = None

    @property
    def job(self) -> int:
        """Which job it is."""
        return self.wish.job


class SharedGpu(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU at one moment. `blind` says why nobody may be put beside others there, if so."""

    key: str
    label: str
    model: str
    total_bytes: int
    used_bytes: int = 0
    driver_bytes: int = 0
    foreign_bytes: int = 0
    foreign: str | None = None  # who else is there
    blind: str | None = None
    releasing: bool = False
    frozen: str | None = None
    tenants: tuple[Tenant, ...] = ()

    def capacity(self, rules: SharingRules) -> int:
        """What can be set aside in all."""
        others = self.driver_bytes + self.foreign_bytes
        return max(0, self.total_bytes - others - rules.margin_of(self.total_bytes))

    @property
    def reserved_bytes(self) -> int:
        """What is set aside."""
        return sum(tenant.reserved_bytes for tenant in self.tenants)

    @property
    def free_bytes(self) -> int:
        """What nobody uses at this moment."""
        return max(0, self.total_bytes - self.driver_bytes - self.used_bytes)

    @property
    def promised_bytes(self) -> int:
        """What was set aside and is not used yet."""
        return sum(max(0, each.reserved_bytes - each.used_bytes) for each in self.tenants)

    @property
    def sm(self) -> float:
        """Which share of the GPU its tenants keep busy together."""
        return sum(tenant.sm for tenant in self.tenants)

    def with_tenant(self, tenant: Tenant) -> SharedGpu:
        """The same with one more job."""
        return msgspec.structs.replace(self, tenants=(*self.tenants, tenant))
