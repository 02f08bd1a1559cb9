"""`python -m stoker.cluster.ray_launcher`: `ray start --block` without the processes that Stoker leaves out.

Beside its raylet, Ray starts a dashboard, an autoscaler and two agents, and `ray start` itself stays: about
45 MB each. This program starts the GCS and the raylet alone, and then becomes a small process that waits for
them (`ray_waiter`). Ray has no option for that. If a version of Ray has other internals, all of them start.
"""

from __future__ import annotations

import sys
from typing import Any

from stoker.cluster import ray_waiter

_AGENT_COMMANDS = ("--dashboard_agent_command=", "--runtime_env_agent_command=")
# A raylet needs a process for each agent. This one reads a pipe from the raylet, and so ends with it.
_STAND_IN = "cat"
_PORTS = (
    "METRICS_AGENT_PORT_NAME",
    "METRICS_EXPORT_PORT_NAME",
    "DASHBOARD_AGENT_LISTEN_PORT_NAME",
    "RUNTIME_ENV_AGENT_PORT_NAME",
)
_NOT_IN_USE = -1  # what an agent of Ray's records for a port that it does not serve


class _OtherInternalsError(Exception):
    """This version of Ray cannot be started without its other processes."""


def _leave_out_others() -> None:
    """Let Ray start the GCS and the raylet alone, and let this process become their waiter."""
    from ray import _raylet
    from ray._private import node, services

    kind, parts, library = node.Node, services, _raylet
    _replace(kind, "start_monitor", lambda *_args: None)
    _replace(kind, "start_api_server", lambda *_args, **_options: None)
    _replace(kind, "dead_processes", _hand_over)  # `ray start --block` asks once all is up
    start = _member(parts, "start_ray_process")
    record = _member(library, "persist_port")
    ports = [_member(library, name) for name in _PORTS]

    def start_without_agents(command: list[str], *args: Any, **options: Any) -> Any:
        if any(word.startswith(_AGENT_COMMANDS) for word in command):
            given = dict(word.partition("=")[::2] for word in command)
            for port in ports:
                record(given["--session_dir"], given["--node_id"], port, _NOT_IN_USE)
        return start([_without_agent(word) for word in command], *args, **options)

    _replace(parts, "start_ray_process", start_without_agents)


def _member(owner: object, name: str) -> Any:
    try:
        return getattr(owner, name)
    except AttributeError as error:
        raise _OtherInternalsError(str(error)) from None


def _replace(owner: object, name: str, member: object) -> None:
    _member(owner, name)
    setattr(owner, name, member)


def _without_agent(word: str) -> str:
    option, is_option, _command = word.partition("=")
    return option + is_option + _STAND_IN if word.startswith(_AGENT_COMMANDS) else word


def _hand_over(node: Any) -> None:
    """Become the waiter: the processes stay children of this one."""
    sys.stdout.flush()
    ray_waiter.become(info.process.pid for infos in node.all_processes.values() for info in infos)


def main() -> None:
    """Run `ray start` with the arguments of this process."""
    from ray.scripts import scripts

    try:
        _leave_out_others()
    except _OtherInternalsError as error:
        sys.stdout.write(f"Ray starts with all of its processes: {error}\n")
    start: Any = scripts.start
    start.main(sys.argv[1:], prog_name="ray start")


if __name__ == "__main__":
    main()
