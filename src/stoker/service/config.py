"""`config`: reads and changes the daemon's configuration."""

from __future__ import annotations

from stoker.core.planner import plan
from stoker.engine.context import QueueContext
from stoker.engine.policy import DEFAULT, CheckedPolicy, find_policy
from stoker.engine.slots import SlotTable
from stoker.errors import ConflictError, UsageError
from stoker.failpoints import reach
from stoker.wire import NewSetting, Setting

_GPUS_OF = "gpus."
_MAX_FAILURES_OF = "max-failures."


def read_config(context: QueueContext) -> list[Setting]:
    """Return every entry of the configuration, with its default and its meaning."""
    return context.config.all()


def change_config(context: QueueContext, setting: NewSetting) -> Setting:
    """Change one entry of the configuration. Slots and cluster change after a restart, others at once."""
    if setting.value is not None:
        _check(context, setting.name, setting.value)
    if setting.name == "ray.address" and (setting.value or "none") != context.config.text(
        "ray.address"
    ):
        _refuse_while_busy(context.engine.slot_table)
    changed = context.config.change(setting.name, setting.value)
    reach("config-committed")
    apply(context)
    if setting.name.startswith(_MAX_FAILURES_OF):
        with context.database.transaction():
            context.admission.forget_failures(setting.name.removeprefix(_MAX_FAILURES_OF))
    if setting.name == "policy":
        choose_policy(context)
    if setting.name == "order":
        context.ranks.use(context.config.text("order"))
    if setting.name == "gpus-with-others":
        context.slots_changed()
    context.events.touch()
    context.driver.poke()
    return changed


def apply(context: QueueContext) -> None:
    """Apply the configuration to the parts of the queue."""
    context.engine.slot_table.cpu_places = context.config.cpu_places
    context.admission.limits = context.config.limits()
    context.admission.gpus = context.config.gpus_of_projects()
    context.failure_limit.limit = context.config.value("brake")
    if context.engine.gpus.sharing is not None:
        context.engine.gpus.sharing.rules = context.config.sharing_rules
    context.failure_limit.most = context.config.max_failures()


def choose_policy(context: QueueContext) -> None:
    """Use the configured policy; if it cannot be loaded, use the default and publish a notice."""
    name = context.config.text("policy")
    context.engine.planner.policy = plan
    if name != DEFAULT:
        try:
            context.engine.planner.policy = CheckedPolicy(
                name, find_policy(name), context.publisher.on_notice
            )
        except UsageError as error:
            context.publisher.on_notice(f"{error}; the default policy plans instead")


def _check(context: QueueContext, name: str, value: str) -> None:
    """Refuse values that only the daemon can find wrong."""
    if name == "policy":
        find_policy(value)
    if name.startswith(_GPUS_OF) and value != "all":
        known = context.engine.slot_table.gpu_names()
        unknown = context.config.split_gpus(value) - known
        if unknown or not value.strip(", +"):
            has = ", ".join(sorted(known)) or "none"
            raise UsageError(f"{name} cannot be {value!r}: this queue has the GPUs {has}")


def _refuse_while_busy(slot_table: SlotTable) -> None:
    """Refuse while jobs run on other nodes: the daemon would miss their ends."""
    wheres = {running.where for running in slot_table.running.values()}
    nodes = ", ".join(sorted(node for node in wheres if not slot_table.is_own(node)))
    if nodes:
        raise ConflictError(
            f"jobs run on {nodes}: let them end, or stoker kill them, and change ray.address then"
        )
