"""`stoker run`: runs commands from a file or a pipe on free GPUs, without the daemon."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from stoker.cli.arguments import Args, arg
from stoker.errors import StokerError, UsageError

if TYPE_CHECKING:
    from stoker.core.job import Request
    from stoker.core.slot import Slot
    from stoker.engine.command_reader import Source
    from stoker.engine.host_resources import HostCapacity
    from stoker.gpus.driver import GpuDriver
    from stoker.store.foreground_runs import ForegroundRun

SUMMARY = """\
Run commands from a file or a pipe, one per line, each on a free GPU; the next starts the moment one
ends. The exit code is 0 only if all succeeded. Ctrl-C once starts no more, twice kills what runs.
With -- CMD run one command on a free GPU; its output and its exit code are Stoker's."""
EXAMPLES = """\
  stoker run jobs.txt                       on every GPU that is not in use
  cat jobs.txt | stoker run --gpus 0,1      on GPUs 0 and 1
  stoker run -- python train.py --lr 0.1    one command, on the next free GPU
  stoker run jobs.txt -g 2                  two GPUs for each command
  stoker run jobs.txt --gpus 0+1,2+3        the same, with these pairs
  stoker run jobs.txt -j 2 --logs logs      two commands a GPU, a log file for each
  stoker run jobs.txt --resume              again, but only what has not succeeded
  stoker run jobs.txt --warm torch          commands find torch imported when they start
  touch q; tail -f -n 0 q | stoker run      a queue: echo 'python a.py' >> q
"""
ARGUMENTS = (
    arg(
        "file", nargs="?", metavar="FILE", help="commands, one per line; - or none: standard input"
    ),
    arg(
        "-g",
        "--gpus-per-job",
        type=int,
        metavar="N",
        help="how many GPUs each command gets (default: 1)",
    ),
    arg(
        "--gpus",
        metavar="SLOTS",
        help="these GPUs: 0,1,2 or 0-3, pairs 0+1,2+3, UUIDs, all, any names",
    ),
    arg("-j", "--jobs-per-gpu", type=int, default=1, metavar="N", help="commands at once on a GPU"),
    arg("--pty", action="store_true", help="run one command in this terminal: stoker run --pty -h"),
    arg("--image", metavar="IMG", help="run them in containers: an image, a .sif file, a folder"),
    arg("--shell", metavar="SH", help="a shell; login: your login shell (default: /bin/sh)"),
    arg("--logs", metavar="DIR", help="write each command's output to DIR/NUMBER.log"),
    arg("--tag", action="store_true", help="put the command's number before each line of output"),
    arg("-0", "--null", action="store_true", help="commands end with NUL, and may span lines"),
    arg("--fail-fast", action="store_true", help="start no more once a command has failed"),
    arg("--gpu-mem", metavar="MEM", help="GPU memory that each command needs: 10G"),
    arg("--cpus", type=int, metavar="N", help="CPUs to set aside for each command"),
    arg("--mem", metavar="MEM", help="RAM to set aside for each: 32G; with more it is ended"),
    arg("--share", metavar="HOW", help="let commands share GPUs: auto, always:N (default: never)"),
    arg("-t", "--timeout", metavar="TIME", help="end a command after this long: 90s, 2h, 1d12h"),
    arg("--retries", type=int, default=0, metavar="N", help="try a failed command N more times"),
    arg("--mps", action="store_true", help="share GPUs through NVIDIA's MPS; see -j"),
    arg("--resume", action="store_true", help="go on with the last such run: skip what succeeded"),
    arg("--warm", metavar="MODULES", help="find these imported: torch,numpy, or auto; python only"),
    arg(
        "-N",
        "--name",
        metavar="NAME",
        help="its name for --resume (default: the file's path)",
    ),
    arg("--dry-run", action="store_true", help="show what would run, and where"),
    arg("--json", action="store_true", help="print events as lines of JSON; output goes to logs"),
)
MISTAKES = (
    (
        r"argument -g/--gpus-per-job: invalid int value: '([\w,+-]+)'",
        r"-g is how many GPUs each command gets: name GPUs with --gpus \1",
    ),
    (
        r"unrecognized arguments: (?!-)",
        "one list of commands is run at a time; to run one command: stoker run -- python train.py",
    ),
)
_READ = ("share", "gpu_mem", "mem", "image")
TAKES_COMMAND = True  # after --


def run(args: Args) -> int:
    """Run all commands; 0 only if all of them succeeded. With -- CMD the command's exit code."""
    if args.command is not None:
        from stoker.cli.single_command import check_command

        check_command(args)
    if args.dry_run:
        return _dry_run(args)
    source = _source(args)
    # The supervisor starts while this process imports the rest and looks for GPUs.
    from stoker.supervisor.launcher import start_supervisor

    supervisor = start_supervisor()
    from stoker.cli.run_output import Output
    from stoker.engine.foreground_engine import ForegroundSettings
    from stoker.executors.command import resolve_shell
    from stoker.home import find_home
    from stoker.submit_context import warn_of_slurm

    request = _request(args)
    warm: list[str] = []
    if args.warm is not None:
        from stoker.cli.add_options import read_modules

        warm = read_modules(args.warm)
    nvml, slots = find_slots(args.gpus, args.jobs_per_gpu, args.gpus_per_job)
    check_gpu_mem(request, nvml, slots)
    warning = warn_of_slurm(os.environ, max((len(slot.gpus) for slot in slots), default=0))
    if warning is not None:
        sys.stderr.write(f"stoker: {warning}\n")
    shell = resolve_shell(args.shell)
    output = Output(args, source)
    record = _open_record(args)
    settings = ForegroundSettings(
        slots=slots,
        shell=shell,
        env=make_environment(request, slots),
        cwd=find_cwd(),
        request=request,
        log_of=output.log_of,
        max_failures=1 if args.fail_fast else None,
        in_advance=not args.tag,
        drain_first=args.command is None,
        resume=args.resume,
        warm=tuple(warm),
        mps_folder=os.path.join(find_home(), "mps") if args.mps else None,
        capacity=check_host(request),
    )
    return output.run(record, settings, supervisor, nvml)


def _request(args: Args) -> Request:
    from stoker.core.durations import parse_option
    from stoker.core.job import Options, Request

    if args.retries < 0:
        raise UsageError(f"--retries {args.retries}: write 0 or more")
    if args.tag and (args.logs or args.json):
        raise UsageError(
            "--tag is for output on the terminal or in a pipe: leave out --logs and --json"
        )
    timeout_s = None if args.timeout is None else parse_option("-t", args.timeout)
    given = {}
    if args.cpus is not None and args.cpus < 1:
        raise UsageError(f"--cpus {args.cpus}: write 1 or more")
    if args.image is not None and args.warm is not None:
        raise UsageError("--warm forks a process of this machine: leave out one of it and --image")
    if any(each is not None for each in (args.share, args.gpu_mem, args.mem, args.image)):
        from stoker.cli.add_options import read_options

        given = read_options({name: getattr(args, name) for name in _READ})
    share = given.get("share")
    return Request(
        timeout_s=timeout_s,
        retries=args.retries,
        share=None if share == "never" else share,
        gpu_mem=given.get("gpu_mem_bytes"),
        cpus=args.cpus,
        mem_bytes=given.get("mem_bytes"),
        options=Options(mps=args.mps, image=given.get("image")),
    )


def make_environment(request: Request, slots: tuple[Slot, ...]) -> dict[str, str]:
    """Return the environment of the commands."""
    from stoker.engine.framework_settings import limit_threads, share_gpu
    from stoker.engine.thread_share import fair_threads
    from stoker.machine import count_cpus

    env = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", **os.environ}
    if request.share is not None:
        share_gpu(env)
    limit_threads(env, fair_threads(request, count_cpus(), len(slots)))
    return env


def _source(args: Args) -> Source:
    from stoker.engine.command_reader import open_source

    if args.command is not None:
        from stoker.cli.single_command import source_of

        return source_of(args.command)
    source = open_source(args.file, null=args.null)
    if source.always_ready and args.file not in (None, "-"):
        from stoker.cli.command_list import read_head, refuse_program

        refuse_program(args.file, read_head(source.fd), "stoker run --")
    if os.isatty(source.fd):
        sys.stderr.write("stoker: type commands, one per line; Ctrl-D ends the list\n")
    return source


def find_slots(
    gpus: str | None, jobs_per_gpu: int, gpus_per_job: int | None = None
) -> tuple[GpuDriver | None, tuple[Slot, ...]]:
    """Return the slots of `--gpus`, or all free ones; and NVML, if the driver has it."""
    from stoker.gpus.drivers import open_driver
    from stoker.gpus.slot_grammar import default_slots, parse_slots

    nvml = open_driver()
    known = None if nvml is None else nvml.gpus()
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if gpus is None:
        links = None
        if nvml is not None and (gpus_per_job or 1) > 1:
            from stoker.gpus.topology import read_links

            links = read_links(nvml)
        return nvml, default_slots(known, visible, jobs_per_gpu, gpus_per_job, links)
    return nvml, parse_slots(gpus, known, visible, jobs_per_gpu, gpus_per_job)


def check_gpu_mem(request: Request, nvml: GpuDriver | None, slots: tuple[Slot, ...]) -> None:
    """Refuse commands that need more memory than any of their GPUs has."""
    if request.gpu_mem is not None and nvml is not None:
        from stoker.engine.gpu_models import largest_of, models_of, refuse_too_large

        refuse_too_large(request.gpu_mem, largest_of(slots, models_of(nvml.gpus())))


def check_host(request: Request) -> HostCapacity | None:
    """Refuse commands that need more CPUs or RAM than there are. Returns what there is, if that is needed."""
    if not request.declares_host:
        return None
    from stoker.engine.host_resources import HostResources, read_capacity, refuse_impossible

    capacity = read_capacity()
    refuse_impossible(request, [HostResources(capacity).own_room("")], "this machine has")
    return capacity


def find_cwd() -> str:
    """Return the folder in which the commands run."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        raise StokerError("the folder you are in is gone: cd to one that exists") from None


def _open_record(args: Args) -> ForegroundRun:
    from stoker.home import find_home
    from stoker.store import foreground_runs

    home = find_home()
    name = args.name or _name_of(args)
    key = {"cwd": find_cwd(), "name": name}
    if not args.resume:
        return foreground_runs.create(home, key)
    earlier = foreground_runs.latest(home, key)
    if earlier is None:
        raise StokerError(
            f"no earlier run of {name} in {find_cwd()}: leave out --resume to start one"
        )
    return earlier


def _name_of(args: Args) -> str:
    """Name a run by its file, or by its command."""
    if args.command is not None:
        from stoker.cli.single_command import line_of

        return line_of(args.command)
    return "stdin" if args.file in (None, "-") else os.path.abspath(args.file)


def _dry_run(args: Args) -> int:
    from stoker.cli.safe_text import one_line
    from stoker.executors.command import resolve_shell

    if args.resume:
        raise UsageError("--dry-run shows the whole input: leave out --resume")
    _request(args)
    resolve_shell(args.shell)
    source = _source(args)
    slots = find_slots(args.gpus, args.jobs_per_gpu, args.gpus_per_job)[1]
    labels = ", ".join(slot.label for slot in slots)
    print(f"{len(slots)} slot{'s' * (len(slots) != 1)}, GPU {labels}; in this order:")
    number = 0
    while not (source.ended and not len(source)):
        command = source.take()
        if command is None:
            source.read_some()
            continue
        number += 1
        sys.stdout.write(f"{number:6}  {one_line(command, width=1000)}\n")
    print(f"{number} command{'s' * (number != 1)} would run")
    return 0
