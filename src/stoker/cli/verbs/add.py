"""`stoker add`: adds jobs to the queue; they are on disk when it returns.

Users call it in loops: it starts in about twice the time of an empty Python program. So it imports
what it does not always need in the functions that need it.
"""

from __future__ import annotations

import os
import sys

from stoker.cli.arguments import JSON, NAME_MISTAKES, PREEMPTION, Args, arg
from stoker.cli.git_state import GitQuery
from stoker.errors import UsageError
from stoker.submit_context import build_submission, find_folder, make_absolute, to_wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Message = dict[str, Any]

SUMMARY = """\
Add a job to the queue; it runs when its turn comes and GPUs are free, also after you log out. One
argument is a line for the shell, several are a command and its arguments, passed on as they are."""
EXAMPLES = """\
  stoker add python train.py --lr 0.1         a command
  stoker add 'python prep.py && python a.py'  a line for the shell
  stoker add -N big -g 2 -p 5 python big.py   two GPUs, a name, ahead of others
  stoker add -g 0 python evaluate.py          without a GPU
  stoker add -t 2h --retries 1 python a.py    ended after two hours, tried once more
  stoker add --after 7,8 python report.py     when both have succeeded
  stoker add --begin 22:00 python night.py    not before ten in the evening
  stoker add --follow python train.py         show its output; exit 0 if it succeeds
  stoker add --script experiment.sh           a whole script, as it is now
  stoker add --batch jobs.txt                 one job a line, or GPUPeasy's NAME;;OUTFILE;;COMMAND;;;
  stoker add --snapshot python train.py       from a copy of the code as it is now
  stoker add --sync python train.py           on a node that has not this folder, too
  stoker add --warm torch python train.py     forked from a process that has imported torch
  stoker add --share auto python small.py     beside others on a GPU, once its kind is known
  stoker add --on a100 python large.py        on a GPU of that kind
  stoker add --on-nan stop --stall 20m python a.py    ended if it diverges, or is silent for so long
  stoker add --image pytorch/pytorch python train.py   in a container
  stoker add --cpus 8 --mem 32G python a.py   with 8 CPUs and 32 GiB of RAM set aside, and no more
"""

# Options that are sent as typed, and options that this module handles; add_options.py reads all others.
_AS_TYPED = ("name", "project", "gpus", "cpus", "priority", "retries", "linger")
_OWN = (
    *("command", "script", "batch", "format", "chdir", "log", "timeout"),
    *("snapshot", "sync", "results", "follow", "dry_run", "quiet", "json"),
)

ARGUMENTS = (
    arg("-N", "--name", metavar="NAME", help="a name for it, to say instead of its id"),
    arg(
        "-p", "--priority", type=int, default=0, metavar="N", help="higher runs first (default: 0)"
    ),
    arg(
        "-g", "--gpus", type=int, default=1, metavar="N", help="GPUs it needs (default: 1; 0: none)"
    ),
    arg("--gpu-mem", metavar="MEM", help="GPU memory it needs: 10G"),
    arg("--cpus", type=int, metavar="N", help="CPUs to set aside for it"),
    arg("--mem", metavar="MEM", help="RAM to set aside for it: 32G; with more it is ended"),
    arg("--share", metavar="HOW", help="share its GPU: auto, always:N (default: never)"),
    arg("--node", metavar="NAMES", help="on one of these nodes of the cluster: gpu1,gpu2"),
    arg("--on", metavar="MODEL", help="on GPUs of this kind: a100"),
    arg(
        "--node-label", action="append", metavar="K=V", help="on nodes with this label; repeatable"
    ),
    arg(
        "--on-cut",
        choices=("stop", "finish"),
        metavar="HOW",
        help="if its node is cut off: stop it and run it elsewhere, or finish there (default: stop)",
    ),
    arg("-t", "--timeout", metavar="TIME", help="end it after this long: 90s, 2h, 1d12h"),
    arg("--retries", type=int, default=0, metavar="N", help="try it N more times if it fails"),
    arg("--backoff", metavar="TIME", help="wait before a retry, twice as long with each one"),
    arg(
        "--on-nan",
        choices=("mark", "notify", "stop"),
        metavar="HOW",
        help="if it reports nan or inf: mark (the default), notify, stop",
    ),
    arg("--stall", metavar="TIME", help="end it after so long without output or change, or never"),
    arg("--idle", metavar="TIME", help="end it if its GPU computes nothing for so long, or never"),
    arg("--hold", action="store_true", help="keep it until stoker release lets it go on"),
    arg("--after", metavar="IDS", help="not before these have succeeded; skipped if one does not"),
    arg("--after-any", metavar="IDS", help="not before these have ended, however that may be"),
    arg("--begin", metavar="WHEN", help="not before: +10m, 22:00, 2027-01-31T08:00"),
    arg("--requeue", action="store_true", help="over its time limit it waits again; see -t"),
    *PREEMPTION,
    arg("--warm", metavar="MODULES", help="find these imported: torch,numpy, or auto; python only"),
    arg(
        "--mps", action="store_true", help="share its GPU through NVIDIA's MPS; one fault ends all"
    ),
    arg("-C", "--chdir", metavar="DIR", help="the folder it runs in (default: this one)"),
    arg(
        "-o",
        "--log",
        metavar="LOG",
        help="write its output here; {project} {name} {id} are filled in",
    ),
    arg("-P", "--project", metavar="P", help="the project it belongs to"),
    arg("--shell", metavar="SH", help="the shell for lines; login: your own (default: /bin/sh)"),
    arg("--image", metavar="IMG", help="run it in a container: an image, a .sif file, a folder"),
    arg("--script", metavar="FILE", help="add a whole script; -: from standard input"),
    arg("--batch", metavar="FILE", help="add many jobs, one a line; -: from standard input"),
    arg(
        "--format",
        choices=("auto", "lines", "gpupeasy"),
        default="auto",
        help="how the batch is written (default: auto, gpupeasy if it has ;;;)",
    ),
    arg("--snapshot", action="store_true", help="run from a copy of the working tree, taken now"),
    arg("--sync", action="store_true", help="ship that copy to whatever node; results come back"),
    arg("--results", metavar="DIR", help="what --sync brings back (default: results)"),
    arg("--linger", action="store_true", help="let processes it leaves behind live on"),
    arg("--dry-run", action="store_true", help="add nothing: say when it would start and be over"),
    arg("--follow", action="store_true", help="show its output until it is over"),
    arg("-q", "--quiet", action="store_true", help="print the id alone"),
    JSON,
    arg(
        "command", nargs="...", metavar="CMD", help="one word: a line for the shell; several: argv"
    ),
)
MISTAKES = NAME_MISTAKES


def run(args: Args) -> int:
    """Add the jobs; with --follow 0 only if the job succeeds."""
    _check(args)
    folder = find_folder(args.chdir)
    git_query = GitQuery(folder)
    if args.batch is not None:
        from stoker.cli.batch_input import read_batch

        jobs = read_batch(args.batch, args.format)
        if args.log is not None and "log" in jobs[0]:
            raise UsageError("-o: every job of a gpupeasy batch names its own output file")
    else:
        jobs = [
            _script(args.script)
            if args.script is not None
            else _job(args.command, folder, args.shell)
        ]
    message = build_submission(jobs, folder, _options(args, folder))
    if args.chdir is not None and "PWD" in message["env"]:
        message["env"]["PWD"] = os.fsdecode(folder)
    if args.dry_run:
        from stoker.cli.forecast_text import print_forecast

        return print_forecast(message, as_json=args.json)
    added = (_send if args.batch is None else _send_many)(message, git_query)
    _print_ids(added, args)
    if args.follow:
        from stoker.cli.verbs.log import follow_job

        return follow_job(added[0]["first"])
    return 0


def _check(args: Args) -> None:
    command = args.command
    if command[:1] == ["--"]:
        del command[0]
    many = [flag for flag in ("script", "batch") if getattr(args, flag) is not None]
    if len(many) + bool(command) > 1:
        raise UsageError("give one of a command, --script and --batch; see: stoker add -h")
    if not many and not command:
        raise UsageError("no command was given: stoker add python train.py; see: stoker add -h")
    if args.batch is not None and args.follow:
        raise UsageError("--follow shows the output of one job: leave it out with --batch")
    if args.gpus < 0:
        raise UsageError(f"-g {args.gpus}: write 0 or more")
    if args.retries < 0:
        raise UsageError(f"--retries {args.retries}: write 0 or more")
    if args.cpus is not None and args.cpus < 1:
        raise UsageError(f"--cpus {args.cpus}: write 1 or more")
    _check_options(args)
    if args.log is not None:
        from stoker.cli.add_options import check_log_template

        if not {"id", "index"} & set(check_log_template(args.log)) and args.batch is not None:
            raise UsageError(
                f"-o {args.log}: all jobs would write to one file; put {{id}} into its name"
            )


def _check_options(args: Args) -> None:
    """Refuse empty names, and an option that has no effect without another one."""
    for option, name in (("-N", args.name), ("-P", args.project)):
        if name == "":
            raise UsageError(f"{option} is empty: name it, or leave {option} out")
    if args.dry_run and args.follow:
        raise UsageError("--dry-run adds nothing to follow: leave --follow out")
    if args.results is not None and not args.sync:
        raise UsageError("--results is what --sync brings back: give --sync as well")
    if args.backoff is not None and not args.retries:
        raise UsageError("--backoff is the pause before a retry: give --retries as well")
    if args.idle is not None and not args.gpus:
        raise UsageError("--idle is for a job with a GPU: leave it out with -g 0")
    if args.requeue and args.timeout is None:
        raise UsageError("--requeue is for a job over its time limit: give -t as well")


def _job(words: list[str], folder: bytes, shell: str | None) -> Message:
    if len(words) == 1:
        if not words[0].strip():
            raise UsageError("the command is empty: stoker add python train.py")
        _explain_bash(words[0], shell)
        return {"command": to_wire(os.fsencode(words[0]))}
    if " " in words[0]:
        _check_program(words, folder)
    return {"command": [to_wire(os.fsencode(word)) for word in words]}


def _explain_bash(line: str, shell: str | None) -> None:
    """Write that a line needs bash, if it goes to a /bin/sh that is another shell."""
    if shell is not None or not any(mark in line for mark in ("[[", "source", "..", "conda", "(")):
        return
    from stoker.core.shell_dialect import explain_bash
    from stoker.executors.command import DEFAULT_SHELL, lacks_bash

    explanation = explain_bash(line) if lacks_bash(DEFAULT_SHELL) else None
    if explanation is not None:
        sys.stderr.write(f"stoker: {explanation}\n")


def _check_program(words: list[str], folder: bytes) -> None:
    """Refuse a quoted command line with further words: no program has such a name."""
    import shlex

    from stoker.executors.command import find_program

    def is_program(name: str) -> bool:
        path = os.path.join(os.fsdecode(folder), name) if "/" in name else name
        return find_program(path, os.environ.get("PATH", os.defpath)) is not None

    first = words[0]
    # A path with blanks may exist on another node.
    if is_program(first) or ("/" in first and not is_program(first.partition(" ")[0])):
        return
    rest = shlex.join(words[1:])
    raise UsageError(
        f"no program is called {first!r}: quote all of it or nothing:"
        f" stoker add {shlex.quote(f'{first} {rest}')}, or stoker add {first} {rest}"
    )


def _script(path: str) -> Message:
    from stoker.cli.batch_input import read_whole

    content = read_whole(path, "a script")
    if not content.strip():
        raise UsageError(f"--script {path}: the script is empty")
    return {"command": to_wire(content), "script": True}


def _options(args: Args, folder: bytes) -> Message:
    options = {name: getattr(args, name) for name in _AS_TYPED}
    if args.log is not None:
        options["log"] = to_wire(make_absolute(args.log))
    if args.timeout is not None:
        from stoker.core.durations import parse_option

        options["timeout_s"] = parse_option("-t", args.timeout)
    others = {name: v for name, v in vars(args).items() if name not in (*_AS_TYPED, *_OWN)}
    if any(value not in (None, False) for value in others.values()):
        from stoker.cli.add_options import read_options

        options.update(read_options(others))
    if (args.snapshot or args.sync) and not args.dry_run:
        from stoker.home import find_home
        from stoker.snapshot import take

        options["snapshot"] = take(folder, find_home())
    if args.sync:
        options["sync"] = True
    if args.results is not None:
        path = os.path.join(os.fsdecode(folder), args.results)
        options["results"] = os.path.relpath(path, os.fsdecode(folder))
    return options


def _send(message: Message, git_query: GitQuery) -> list[Message]:
    from stoker.client.submit import submit
    from stoker.home import find_home

    home = find_home()
    _add_commit(message, git_query)
    return [submit(home, message)]


def _send_many(message: Message, git_query: GitQuery) -> list[Message]:
    import msgspec

    from stoker.client.client import Client
    from stoker.wire import NewJob, Submission

    _add_commit(message, git_query)
    try:
        jobs = msgspec.convert(message["jobs"], list[NewJob])
        # More jobs than one request may hold: the client splits them.
        submission = msgspec.convert({**message, "jobs": jobs[:1]}, Submission)
    except msgspec.ValidationError as error:
        raise UsageError(str(error)) from None
    with Client(start=True) as client:
        added = client.add(msgspec.structs.replace(submission, jobs=jobs))
    return [msgspec.to_builtins(part) for part in added]


def _add_commit(message: Message, git_query: GitQuery) -> None:
    """Add git's answer; this is late, so that git runs meanwhile."""
    git = git_query.answer()
    if git is not None:
        message["git"] = git


def _print_ids(added: list[Message], args: Args) -> None:
    if args.json:
        _print_json(added)
        return
    spans: list[tuple[int, int]] = []
    for part in added:
        follows = bool(spans) and part["first"] == spans[-1][1] + 1
        first = spans.pop()[0] if follows else part["first"]
        spans.append((first, part["last"]))
    ids = ",".join(f"{first}" if first == last else f"{first}-{last}" for first, last in spans)
    words = "" if args.quiet else "added job " if ids.isdecimal() else "added jobs "
    sys.stdout.write(f"{words}{ids}\n")
    sys.stdout.flush()
    for notice in {part["notice"] for part in added if part.get("notice")}:
        sys.stderr.write(f"stoker: {notice}\n")


def _print_json(added: list[Message]) -> None:
    import json

    ids = [job_id for part in added for job_id in range(part["first"], part["last"] + 1)]
    notices = sorted({part["notice"] for part in added if part.get("notice")})
    sys.stdout.write(f"{json.dumps({'ids': ids, 'notices': notices})}\n")
    sys.stdout.flush()
