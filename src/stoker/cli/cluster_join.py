"""`stoker cluster join`: lets this machine join a cluster."""

from __future__ import annotations

import os

from stoker import __version__
from stoker.cli.arguments import Args
from stoker.cli.cluster_membership import choose_first_port, join_ray, save_name
from stoker.cli.credentials import find_credentials
from stoker.cli.messages import note
from stoker.cluster import ray_supervisor_control, ray_survey, settings
from stoker.cluster.node_environment import own_environment, parse_variables
from stoker.cluster.reachability import check_reachability
from stoker.cluster.slurm.given_gpus import JOB_ID
from stoker.errors import ConflictError, UsageError

_OF_JOIN = ("name", "label", "gpus", "env", "setup", "ports")


def join(home: str, args: Args) -> int:
    """Join a cluster, after a proof that this machine and the head reach each other."""
    ray_survey.require_ray()
    labels = settings.parse_labels(args.label or ())
    if args.name is not None:
        settings.check_node_name(args.name)
    try:
        host, port = settings.split_address(args.target)
    except ValueError as error:
        raise UsageError(f"{args.target!r}: {error}") from None
    address = ray_survey.resolve(host)
    known = settings.load_settings(home)
    if known is not None:
        return _join_again(home, args, known, address, port)
    env = own_environment(home, os.environ, parse_variables(args.env or ()), args.setup)
    own = _own_address(args, address, port)
    with find_credentials(home, address, port) as credentials:
        found = ray_survey.survey(home, address, port, *credentials)
        ray_survey.check_versions(found)
        node = _ensure_unique_id(home, found, own)
        save_name(home, args, _taken_names(found, node, own))
        slots = _check_slots(args.gpus)
        first_port = choose_first_port(args, port, _turn() if args.foreground else 0)
        if not settings.is_over_ssh(address):  # else the tunnel is the way, in both directions
            head = address, port
            check_reachability(head, settings.join_port(port), credentials.token, own, first_port)
        credentials.save(home)
        join_ray(
            home,
            settings.ClusterSettings(
                role="node",
                address=address,
                port=port,
                own_address=own,
                labels=labels,
                gpus=slots,
                env=env,
                first_port=first_port,
                is_pilot=args.foreground,
            ),
        )
    print(
        f"joined the cluster at {settings.join_address(address, port)} as"
        f" {settings.load_node(home).name}"
    )
    return 0


def _turn() -> int:
    """Return a number that differs between the pilots that a batch system starts at one moment."""
    job = os.environ.get(JOB_ID, "")
    return int(job) if job.isdigit() else os.getpid()


def _own_address(args: Args, head: str, port: int) -> str:
    """Return the address at which the cluster finds this machine; raise ConflictError if it is the head."""
    if settings.is_over_ssh(head) and args.address is not None:
        return str(args.address)
    own = ray_survey.own_address(head, port)
    if own == head or head.startswith("127."):
        raise ConflictError(
            f"{args.target} is this box itself: join is for the others, and stoker cluster up made"
            " this one the first"
        )
    return own


def _ensure_unique_id(home: str, found: ray_survey.RaySurvey, own: str) -> settings.ClusterNode:
    """Return this machine's identity; a new one if its home is a copy of a member's home."""
    node = settings.load_node(home)
    twin = found.find_twin(node.id, own)
    if twin is None:
        return node
    note(
        f"{twin.name}, at {twin.address}, has the id of this box, as a copy of its home would:"
        " this box has a new one now"
    )
    return settings.renew_node(home, node.name)


def _taken_names(found: ray_survey.RaySurvey, node: settings.ClusterNode, own: str) -> list[str]:
    """Return the names of the others. Ray also lists what this machine was before its home was removed."""
    return [
        member.name
        for member in found.nodes
        if member.id != node.id and (member.alive or member.address != own)
    ]


def _check_slots(text: str | None) -> str | None:
    """Return the GPUs as typed; raises an error for one that this machine does not have."""
    if text:  # a pilot may have been given none
        from stoker.gpus.drivers import open_driver
        from stoker.gpus.slot_grammar import parse_slots

        nvml = open_driver()
        parse_slots(text, None if nvml is None else nvml.gpus(), None)
    return text


def _join_again(
    home: str, args: Args, known: settings.ClusterSettings, address: str, port: int
) -> int:
    if known.is_head:
        raise ConflictError(
            f"this box is the first of the cluster at {known.target}: stoker cluster leave ends that"
        )
    if (known.address, known.port) != (address, port):
        raise ConflictError(
            f"this box is a member of the cluster at {known.target}: stoker cluster leave comes first"
        )
    name = settings.load_node(home).name
    given = [option for option in _OF_JOIN if getattr(args, option) is not None]
    if given:
        raise ConflictError(
            f"this box is a member already, as {name}: stoker cluster leave, and then join with"
            f" --{given[0]}"
        )
    if ray_supervisor_control.ray_supervisor_pid(home) is None:
        ray_survey.reach(address, port)
        ray_supervisor_control.start_ray_supervisor(home)
        print(f"joined the cluster at {known.target} again, as {name}")
    elif ray_supervisor_control.is_outdated(home):
        ray_survey.reach(address, port)
        ray_supervisor_control.restart_ray_supervisor(home)
        print(f"Stoker {__version__} has taken over on this box, {name}; its jobs have run on")
    else:
        note(f"this box is a member already, as {name}")
    return 0
