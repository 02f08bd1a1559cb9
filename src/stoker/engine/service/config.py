"""`config`: reads and changes the daemon's settings."""

from __future__ import annotations

from stoker.core.plan import plan
from stoker.engine.board import Board
from stoker.engine.hub import Hub
from stoker.engine.policy import DEFAULT, CheckedPolicy, find_policy
from stoker.errors import ConflictError, UsageError
from stoker.failpoints import reach
from stoker.wire import NewSetting, Setting

_GPUS_OF = "gpus."
_MAX_FAILURES_OF = "max-failures."


def read(hub: Hub) -> list[Setting]:
    """Every setting, with its default and meaning."""
    return hub.config.all()


def change(hub: Hub, setting: NewSetting) -> Setting:
    """Set one; what it steers follows at once, but for slots and cluster, which a restart makes anew."""
    if setting.value is not None:
        _check(hub, setting.name, setting.value)
    if setting.name == "ray.address" and (setting.value or "none") != hub.config.text(
        "ray.address"
    ):
        _refuse_while_busy(hub.engine.board)
    changed = hub.config.change(setting.name, setting.value)
    reach("config-committed")
    apply(hub)
    if setting.name.startswith(_MAX_FAILURES_OF):
        with hub.database.transaction():
            hub.gate.forget_failures(setting.name.removeprefix(_MAX_FAILURES_OF))
    if setting.name == "policy":
        choose_policy(hub)
    if setting.name == "gpus-with-others":
        hub.slots_changed()
    hub.events.touch()
    hub.pulse.poke()
    return changed


def apply(hub: Hub) -> None:
    """Let what the settings steer follow them."""
    hub.engine.board.cpu_places = hub.config.cpu_places
    hub.gate.limits = hub.config.limits()
    hub.gate.gpus = hub.config.gpus_of_projects()
    hub.brake.limit = hub.config.count("brake")
    if hub.engine.sharing is not None:
        hub.engine.sharing.rules = hub.config.sharing_rules
    hub.brake.most = hub.config.max_failures()


def choose_policy(hub: Hub) -> None:
    """Let the policy plan that the settings name; if it cannot be had, the default, and say so."""
    name = hub.config.text("policy")
    hub.engine.policy = plan
    if name != DEFAULT:
        try:
            hub.engine.policy = CheckedPolicy(name, find_policy(name), hub.publisher.on_notice)
        except UsageError as error:
            hub.publisher.on_notice(f"{error}; the default policy plans instead")


def _check(hub: Hub, name: str, value: str) -> None:
    """Refuse what only the daemon can know to be wrong."""
    if name == "policy":
        find_policy(value)
    if name.startswith(_GPUS_OF) and value != "all":
        known = hub.engine.board.gpu_names()
        unknown = hub.config.split_gpus(value) - known
        if unknown or not value.strip(", +"):
            has = ", ".join(sorted(known)) or "none"
            raise UsageError(f"{name} cannot be {value!r}: this queue has the GPUs {has}")


def _refuse_while_busy(board: Board) -> None:
    """Nobody would hear how jobs on nodes of the cluster end, and the next daemon take them for its own."""
    wheres = {running.where for running in board.running.values()}
    nodes = ", ".join(sorted(node for node in wheres if not board.is_own(node)))
    if nodes:
        raise ConflictError(
            f"jobs run on {nodes}: let them end, or stoker kill them, and change ray.address then"
        )
