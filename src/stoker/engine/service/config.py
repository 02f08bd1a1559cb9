"""`config`: reads and changes the daemon's settings."""

from __future__ import annotations

from stoker.engine.hub import Hub
from stoker.failpoints import reach
from stoker.wire import NewSetting, Setting


def read(hub: Hub) -> list[Setting]:
    """Every setting, with its default and meaning."""
    return hub.config.all()


def change(hub: Hub, setting: NewSetting) -> Setting:
    """Set one; what it steers follows at once, but for the slots, which a restart makes anew."""
    changed = hub.config.change(setting.name, setting.value)
    reach("config-committed")
    hub.engine.board.cpu_places = hub.config.cpu_places
    hub.events.touch()
    hub.pulse.poke()
    return changed
