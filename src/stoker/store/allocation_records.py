"""Records of allocations of a batch system, and of the rules by which they are asked for."""

from __future__ import annotations

import msgspec

from stoker.core.allocation import Allocation, Rule
from stoker.store.database import Database
from stoker.store.named_values import NamedValues

_LAST = "last"


class AllocationRecords:
    """The rules and allocations, kept in memory too; every change is a transaction of its own."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._rules = NamedValues(database, "allocation_rule.")
        self._allocations = NamedValues(database, "allocation.")
        self.rules: dict[int, Rule] = {}
        self.allocations: dict[int, Allocation] = {}
        self.load()

    def load(self) -> None:
        """Read the committed records."""
        rules = self._rules.all()
        self._last = int(rules.pop(_LAST, b"0"))
        found = [msgspec.json.decode(value, type=Rule) for value in rules.values()]
        self.rules = {rule.id: rule for rule in sorted(found, key=lambda rule: rule.id)}
        values = self._allocations.all().values()
        known = [msgspec.json.decode(value, type=Allocation) for value in values]
        self.allocations = {each.id: each for each in sorted(known, key=lambda each: each.id)}

    def most_gpus(self) -> int:
        """Return how many GPUs the largest allocation has that can be asked for."""
        return max((rule.gpus for rule in self.rules.values() if not rule.is_removed), default=0)

    def add_rule(self, rule: Rule) -> Rule:
        """Record a new rule; its id is the next one, which no rule had before."""
        made = msgspec.structs.replace(rule, id=self._last + 1)
        with self._database.transaction(durable=True):
            self._rules.put(_LAST, str(made.id).encode())
            self._rules.put(str(made.id), msgspec.json.encode(made))
        self._last = made.id
        self.rules[made.id] = made
        return made

    def put_rule(self, rule: Rule) -> None:
        """Record a changed rule."""
        if self.rules.get(rule.id) == rule:
            return
        with self._database.transaction():
            self._rules.put(str(rule.id), msgspec.json.encode(rule))
        self.rules[rule.id] = rule

    def forget_rule(self, rule: int) -> None:
        """Delete a rule."""
        with self._database.transaction():
            self._rules.forget(str(rule))
        self.rules.pop(rule, None)

    def put(self, allocation: Allocation) -> None:
        """Record a new or changed allocation."""
        if self.allocations.get(allocation.id) == allocation:
            return
        with self._database.transaction():
            self._allocations.put(str(allocation.id), msgspec.json.encode(allocation))
        self.allocations[allocation.id] = allocation

    def forget(self, allocation: int) -> None:
        """Delete an allocation that is over."""
        with self._database.transaction():
            self._allocations.forget(str(allocation))
        self.allocations.pop(allocation, None)
