"""`stoker cluster`: lets one queue use the GPUs of several machines."""

from __future__ import annotations

import glob
import os
from typing import TYPE_CHECKING

from stoker.cli.arguments import Args, arg
from stoker.cli.cluster_install import install, uninstall
from stoker.cli.cluster_join import join
from stoker.cli.cluster_leave import announce_leave
from stoker.cli.cluster_membership import choose_first_port, join_ray, save_name, set_cluster
from stoker.cli.credentials import find_credentials, make_credentials
from stoker.cli.join_lines import parse_expires, revoke, show_join_line, show_new_join_line
from stoker.cli.messages import note
from stoker.cluster import ray_supervisor_control, ray_survey, settings
from stoker.cluster.ray_folder import remove_ray_folder
from stoker.cluster.ssh.box_records import forget_box
from stoker.cluster.ssh.tunnel import close_tunnels
from stoker.cluster.tls import load_certificates
from stoker.errors import ConflictError, UsageError
from stoker.home import find_home

if TYPE_CHECKING:
    from stoker.wire import Setting

SUMMARY = """\
Let one queue have the GPUs of several boxes. `up` makes this box the first of a cluster and prints the line
to run on the others; `add` sets others up over ssh and lets them join, `upgrade` gives them the first box's
version, and `remove` undoes `add`; `join` lets a box in that has Stoker; `alloc` asks Slurm for boxes while
jobs wait that fit them; `status` shows who is there; `leave` takes a box out again, and the first box's
leaving ends the cluster. It needs Ray, on boxes that `add` did not set up as well: pip install
'stoker[ray]'. The join token in the printed line is as good as your login on all of them until it expires:
`token` makes another, `revoke` ends all. The boxes speak TLS with certificates that the first box makes;
RAY_USE_TLS and RAY_TLS_* name your own. Ray listens on all interfaces of each box, whatever --address says:
use a firewall."""
EXAMPLES = """\
  stoker cluster up                         on the first box; prints what to run on the others
  stoker cluster up --address 10.0.0.1      under this address, where the box has several
  stoker cluster add me@gpu2 me@gpu3        on the first box: set these up over ssh, with all they need
  stoker cluster join 10.0.0.1              on the others; the token comes from the printed line
  stoker cluster token --expires 7d         on the first box: another line for the others
  stoker cluster revoke                     no line printed so far lets a box in any more
  stoker cluster join 10.0.0.1 --name big --label disk=nvme
  stoker cluster join 10.0.0.1 --env DATA=/mnt/data --setup 'source ~/venv/bin/activate'
  stoker cluster join 10.0.0.1 --foreground   in a batch script of Slurm: a node while it runs
  stoker cluster status                     who is in the cluster
  stoker cluster install                    on each box: start it at boot and after a crash (systemd)
  stoker cluster upgrade                    on the first box: its version on the others; jobs run on
  stoker cluster remove gpu2                undo add, when the jobs there have ended
  stoker cluster leave                      take this box out; what runs on it runs elsewhere
  stoker cluster forget gpu2                on the first box: gpu2 is not coming back
  stoker cluster alloc add slurm --time 4h --gpus 4 --max 8 -- -p gpu -A account
  stoker cluster alloc ls                   the rules for allocations, and what Slurm has given
  stoker cluster alloc pause 1              ask for nothing more; resume 1 asks again
  stoker cluster alloc rm 1                 give all back when their jobs have ended
  stoker cluster drain gpu2 new disk        start nothing more there; what runs goes on
  stoker cluster undrain gpu2
"""

TAKES_COMMAND = True  # what follows `--`: the options of sbatch
_ACTIONS = (
    "up",
    "add",
    "remove",
    "upgrade",
    "join",
    "token",
    "revoke",
    "status",
    "install",
    "leave",
    "forget",
    "drain",
    "undrain",
    "alloc",
)
_OVER_SSH = ("add", "remove", "upgrade")
_OF_NODES = ("forget", "drain", "undrain")
_ONLY = {
    "address": ("up", "join"),
    "over_ssh": ("up",),
    "port": ("up",),
    "ports": ("up", "add", "join"),
    "name": ("up", "add", "join"),
    "label": ("up", "add", "join"),
    "gpus": ("add", "join", "alloc"),
    "env": ("add", "join"),
    "setup": ("add", "join", "alloc"),
    "time": ("alloc",),
    "max": ("alloc",),
    "idle": ("alloc",),
    "may_cut": ("alloc",),
    "python": ("add",),
    "json": ("status", "alloc"),
    "expires": ("up", "token"),
    "no_tls": ("up",),
    "foreground": ("join",),
    "token_file": ("join",),
    "force": ("remove", "forget", "alloc"),
}

ARGUMENTS = (
    arg("action", choices=_ACTIONS, metavar="ACTION", help=", ".join(_ACTIONS)),
    arg(
        "target",
        nargs="?",
        metavar="ADDRESS|NODE|VERB",
        help="add: user@host, as for ssh; join: the first box, with :PORT if it has one;"
        " alloc: add, ls, rm, pause or resume; else a node",
    ),
    arg(
        "reason",
        nargs="*",
        metavar="REASON",
        help="drain: why, for stoker why and status; add, remove, upgrade: more boxes; alloc: slurm, a rule",
    ),
    arg(
        "--address",
        metavar="IP",
        help="up: the address under which the others find this box; Ray listens on all interfaces;"
        " join: this box's own in a cluster over ssh",
    ),
    arg(
        "--expires",
        metavar="TIME",
        help="up, token: how long the join token works, or never; default 24h",
    ),
    arg("--port", type=int, metavar="N", help=f"up: default {settings.DEFAULT_PORT}"),
    arg(
        "--ports",
        type=int,
        metavar="N",
        help=f"up, add, join: the first of {settings.PORT_COUNT} ports for Ray there; default: --port + 2",
    ),
    arg("--name", metavar="NAME", help="up, add, join: the box's name; default: its host name"),
    arg(
        "--label",
        action="append",
        metavar="K=V",
        help="up, add, join: for jobs that want such a box",
    ),
    arg(
        "--over-ssh",
        action="store_true",
        help="up: all traffic goes through ssh; add lets boxes in",
    ),
    arg("--no-tls", action="store_true", help="up: do not encrypt what goes between the boxes"),
    arg(
        "--gpus",
        metavar="SLOTS",
        help="add, join: which GPUs; default: all not in use; alloc add: how many",
    ),
    arg(
        "--env",
        action="append",
        metavar="K=V",
        help="add, join: a variable of every job on this box",
    ),
    arg(
        "--setup",
        metavar="SHELL",
        help="add, join: 'module load cuda': jobs here have what it sets",
    ),
    arg("--python", metavar="PATH", help="add: the interpreter there; default: one that fits"),
    arg(
        "--foreground",
        action="store_true",
        help="join: for a batch script: be a node until this command ends, and leave nothing behind",
    ),
    arg("--token-file", metavar="PATH", help="join: a file of yours alone that has the token"),
    arg("--time", metavar="TIME", help="alloc add: how long an allocation lasts"),
    arg("--max", type=int, metavar="N", help="alloc add: the most allocations at once; default 1"),
    arg(
        "--idle", metavar="TIME", help="alloc add: idle for so long, one is given back; default 5m"
    ),
    arg(
        "--may-cut", action="store_true", help="alloc add: jobs may start that may not end in time"
    ),
    arg("--force", action="store_true", help="remove, forget, alloc rm: although jobs run there"),
    arg("--json", action="store_true", help="status, alloc ls: print JSON"),
)


def run(args: Args) -> int:
    """Perform one of the actions."""
    _check_arguments(args)
    if args.action == "alloc":
        from stoker.cli.cluster_alloc import alloc

        return alloc(args)
    if args.action in _OVER_SSH:
        return _run_over_ssh(args)
    if args.action in _OF_NODES:
        return _change_node(args)
    if args.action == "status":
        from stoker.cli.cluster_table import show_status

        return show_status(find_home(), as_json=args.json)
    if args.foreground:
        from stoker.cli.cluster_foreground import join_in_foreground

        return join_in_foreground(args)
    home = find_home()
    with ray_supervisor_control.turn(home):
        if args.action == "token":
            return show_new_join_line(home, args.expires)
        if args.action == "revoke":
            return revoke(home)
        if args.action == "install":
            return install(home)
        return {"up": _up, "join": join, "leave": _leave}[args.action](home, args)


def _run_over_ssh(args: Args) -> int:
    from stoker.cli.cluster_add import add
    from stoker.cli.cluster_remove import remove
    from stoker.cli.cluster_upgrade import upgrade

    return {"add": add, "remove": remove, "upgrade": upgrade}[args.action](find_home(), args)


def _check_arguments(args: Args) -> None:
    """Raise UsageError for options and words that are not for this action."""
    for option, actions in _ONLY.items():
        if getattr(args, option) not in (None, False) and args.action not in actions:
            name = option.replace("_", "-")
            raise UsageError(f"--{name} is for {' and '.join(actions)}, not for {args.action}")
    if args.action == "join" and args.target is None:
        raise UsageError(
            "which cluster? stoker cluster join ADDRESS, as stoker cluster up prints it"
        )
    if args.command is not None and args.action != "alloc":
        raise UsageError(f"{args.action} takes no '--'")
    if args.reason and args.action not in (*_OVER_SSH, "drain", "alloc"):
        raise UsageError(f"{args.action} takes no {' '.join(args.reason)!r}")
    if args.action not in (*_OVER_SSH, "join", "alloc", *_OF_NODES) and args.target is not None:
        raise UsageError(f"{args.action} takes no ADDRESS")


def _up(home: str, args: Args) -> int:
    ray_survey.require_ray()
    parse_expires(args.expires)
    known = settings.load_settings(home)
    if known is None:
        known = _start_cluster(home, args)
    else:
        _refuse_change(home, known, args)
        if ray_supervisor_control.is_outdated(home):
            ray_supervisor_control.restart_ray_supervisor(home)
            print(
                f"the installed Stoker and Ray have taken over; the cluster is up, at {known.target}"
            )
        elif ray_supervisor_control.ray_supervisor_pid(home) is not None:
            note(f"the cluster is up already, at {known.target}")
        else:
            ray_supervisor_control.start_ray_supervisor(home)
    set_cluster(known.target)
    show_join_line(home, known, args.expires)
    return 0


def use_cluster(address: str | None) -> Setting:
    """Let the queue use the GPUs of a Ray cluster that was started elsewhere, or of none."""
    if address not in (None, "none"):
        _check_ray_address(address)
    return set_cluster(address)


def _check_ray_address(text: str) -> None:
    """Check a cluster that was started elsewhere before the daemon uses it, and keep its token.

    Raises StokerError for a cluster without authentication, one that refuses the token, or one with
    other versions of Ray, Python or Stoker.
    """
    ray_survey.require_ray()
    home = find_home()
    try:
        host, port = settings.split_address(text, None)
    except ValueError as error:
        raise UsageError(f"ray.address cannot be {text!r}: {error}") from None
    address = ray_survey.resolve(host)
    known = settings.load_settings(home)
    if known is not None and (known.address, known.port) != (address, port):
        raise ConflictError(
            f"this box belongs to the cluster at {known.target}: stoker cluster leave comes first"
        )
    if known is not None:
        return  # its credentials are known
    with find_credentials(home, address, port) as credentials:
        ray_survey.check_versions(ray_survey.survey(home, address, port, *credentials))
        credentials.save(home)


def _refuse_change(home: str, known: settings.ClusterSettings, args: Args) -> None:
    if not known.is_head:
        raise ConflictError(
            f"this box is a node of the cluster at {known.target}: stoker cluster leave comes first"
        )
    if args.no_tls and load_certificates(home) is not None:
        raise ConflictError(
            f"the cluster is up already, at {known.target}, with TLS: stoker cluster leave ends it first"
        )
    wanted = (args.address or known.address, args.port or known.port)
    if wanted != (known.address, known.port):
        raise ConflictError(
            f"the cluster is up already, at {known.target}: stoker cluster leave ends it first"
        )


def _start_cluster(home: str, args: Args) -> settings.ClusterSettings:
    """Start a cluster with this machine as its head; a failure leaves nothing behind."""
    try:
        port = settings.check_port(settings.DEFAULT_PORT if args.port is None else args.port)
    except ValueError as error:
        raise UsageError(f"--port {args.port}: {error}") from None
    labels = settings.parse_labels(args.label or ())
    address = _choose_address(args)
    ray_survey.check_place(address, port)
    ray_survey.check_place(address, settings.join_port(port))
    save_name(home, args, ())
    made = settings.ClusterSettings(
        role="head",
        address=address,
        port=port,
        own_address=address,
        labels=labels,
        first_port=choose_first_port(args, port),
    )
    make_credentials(home, address, use_tls=not args.no_tls).save(home)
    join_ray(home, made)
    print(f"the cluster is up, at {made.target}; this box is {settings.load_node(home).name}")
    return made


def _choose_address(args: Args) -> str:
    """Return the address of a new cluster's head."""
    if args.over_ssh:
        if args.address or args.no_tls:
            raise UsageError("--over-ssh takes no --address, and needs TLS")
        return settings.OVER_SSH_HEAD
    return ray_survey.resolve(args.address) if args.address else ray_survey.outward_address()


def _leave(home: str, _args: Args) -> int:
    known = settings.load_settings(home)
    if known is None:
        ray_supervisor_control.stop_ray_supervisor(home)
        raise ConflictError("this box belongs to no cluster: there is nothing to leave")
    if known.is_head:
        _refuse_while_busy()
        set_cluster(None)
    elif ray_supervisor_control.ray_supervisor_pid(home) is not None:
        announce_leave(home)
    ray_supervisor_control.stop_ray_supervisor(home)
    uninstall(home)
    _end_cluster_jobs(home)
    settings.forget_settings(home)
    remove_ray_folder(home)
    if known.is_head:
        close_tunnels(home)
        print("the cluster has ended; stoker cluster leave on the other boxes lets them forget it")
    else:
        print(f"left the cluster at {known.target}")
    return 0


def _end_cluster_jobs(home: str) -> None:
    """End the jobs that ran here for the cluster's queue; it runs them again elsewhere.

    Ray must be down: else the head would record their ends as failures.
    """
    sockets = glob.glob(
        os.path.join(glob.escape(settings.folder_of(home)), "queues/*/supervisor.sock")
    )
    if sockets:
        from stoker.executors.daemon_executor import stop_supervisor

        for path in sockets:
            stop_supervisor(path, kill=True)


def _change_node(args: Args) -> int:
    from stoker.client.client import Client
    from stoker.wire import NodeOrder

    node = args.target
    if node is None:
        raise UsageError("which node? stoker cluster status names them")
    with Client() as client:
        order = NodeOrder(
            action=args.action, node=node, reason=" ".join(args.reason), force=args.force
        )
        jobs = sum(each.jobs for each in client.change_node(order) if each.name == node)
    if args.action == "forget":
        forget_box(find_home(), node)
    print(
        {
            "forget": f"{node} is forgotten; stoker cluster join, on it, brings it back",
            "drain": f"{node} is drained: nothing more starts there"
            + (f"; {jobs} job{'s' * (jobs != 1)} there go on" if jobs else ""),
            "undrain": f"{node} gets jobs again",
        }[args.action]
    )
    return 0


def _refuse_while_busy() -> None:
    """Refuse to end the cluster while jobs run on other machines, or Slurm may give it some."""
    from stoker.client.client import Client

    with Client(start=True) as client:
        busy = [node.name for node in client.nodes() if node.jobs and not node.is_head]
        rules = [str(rule.id) for rule in client.allocations()]
    if busy:
        raise ConflictError(
            f"jobs run on {', '.join(busy)}: let them end, or stoker kill them, and leave then"
        )
    if rules:
        raise ConflictError(
            f"Slurm is asked for allocations: stoker cluster alloc rm {rules[0]} comes first; leave when"
            " alloc ls shows none"
        )
