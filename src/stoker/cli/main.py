"""`stoker VERB …`: imports the verb's module and little else, so that every verb starts fast."""

from __future__ import annotations

import io
import sys

TYPE_CHECKING = False  # importing it from typing would cost more than the rest of `--version`
if TYPE_CHECKING:
    from collections.abc import Callable

VERBS = {
    "run": "run commands from a file or a pipe, each on a free GPU",
    "add": "add a job to the queue; it runs also after you log out",
    "shell": "open a shell on leased GPUs in this terminal",
    "jupyter": "start Jupyter on leased GPUs, and print its link",
    "sweep": "run a command with all combinations of its parameters",
    "results": "show what came of a sweep, as a table",
    "plot": "draw the curves of a sweep's runs",
    "diff": "show where two runs of a sweep differ",
    "ls": "list jobs: what runs, what waits, what has ended",
    "top": "watch GPUs, jobs and logs on one live screen, and steer jobs by keys",
    "show": "show everything about a job",
    "why": "tell why a job waits, was skipped or failed",
    "log": "print a job's output, or follow it",
    "wait": "wait until jobs are over; exit 1 if any failed",
    "kill": "end jobs",
    "retry": "let jobs run once more",
    "rm": "forget jobs and their logs",
    "hold": "keep jobs from starting",
    "release": "let held jobs go on",
    "pause": "stop jobs where they are, or let the queue start nothing more",
    "suspend": "free the GPUs of running jobs; their memory waits in host RAM",
    "resume": "let paused or suspended jobs, or the queue, go on",
    "start": "let jobs start as the very next",
    "preempt": "let running jobs make room and wait again",
    "move": "put a waiting job at another position of the queue",
    "set": "change what jobs ask for",
    "edit": "change a job in your editor",
    "status": "show how the queue is, at a glance",
    "config": "show or change the queue's settings",
    "daemon": "start, stop or install the process that runs the queue",
    "cluster": "let one queue have the GPUs of several boxes",
    "gpus": "show the GPUs and who uses them; add, drain or remove one",
    "reserve": "keep GPUs of a shared machine for yourself for some time",
    "box": "set up a machine that several people share; check its rules",
    "web": "open the page that shows and steers the queue in a browser",
    "mcp": "let a coding agent use the queue (an MCP server)",
    "simulate": "tell how long work would take on other GPUs, or shared",
    "demo": "see Stoker at work on fake GPUs, with real processes",
    "completion": "print what lets bash, zsh or fish complete stoker's words",
    "help": "explain a verb or a topic, with examples",
}
# Words that users of other tools type.
ALIASES = {
    "ps": ("ls",),
    "list": ("ls",),
    "queue": ("ls",),
    "cancel": ("kill",),
    "delete": ("rm",),
    "remove": ("rm",),
    "submit": ("add",),
    "enqueue": ("add",),
    "logs": ("log",),
    "tail": ("log", "-f"),
    "info": ("show",),
}
# Words that could mean several verbs, one of which may end work: they get an explanation, never a guess.
_AMBIGUOUS = {
    "stop": "stoker kill ends jobs, stoker pause stops them, stoker daemon stop ends the daemon",
    "restart": "stoker retry runs jobs again, stoker daemon restart restarts the daemon",
    "clear": "stoker rm --all forgets the jobs that have ended",
    "clean": "stoker rm --all forgets the jobs that have ended",
    "exec": "stoker add CMD queues a command, stoker run -- CMD runs it now",
}
_VERSION = ("--version", "-V", "-v", "version")
# Verbs that leave nothing to clean up.
_BRIEF = (
    *(
        "add",
        "hold",
        "kill",
        "log",
        "ls",
        "preempt",
        "release",
        "resume",
        "retry",
        "rm",
        "run",
        "show",
    ),
    *("start", "status", "wait", "why"),
)
_HIDDEN = ("complete",)  # for the shells' completion scripts


def main(argv: list[str] | None = None) -> int:
    """Run one verb; the exit code is 0 for success, 1 for failure, 2 for wrong usage."""
    words = sys.argv[1:] if argv is None else argv
    if words and words[0] in _VERSION:
        from stoker import __version__

        sys.stdout.write(f"stoker {__version__}\n")
        return 0
    if not words or words[0] in ("-h", "--help") or words == ["help"]:
        _repair_standard_streams()
        sys.stdout.write(_overview())
        return 0 if words else 2
    code = report_errors("stoker", lambda: run_verb(words[0], words[1:]))
    if argv is None and words[0] in _BRIEF:
        _exit_at_once(code)
    return code


def report_errors(program: str, action: Callable[[], int]) -> int:
    """Run a program's action; an error that its user can meet becomes one line and an exit code."""
    from stoker.errors import StokerError

    _repair_standard_streams()
    try:
        code = action()
        sys.stdout.flush()
    except StokerError as error:
        sys.stderr.write(f"{program}: {error}\n")
        return error.exit_code
    except BrokenPipeError:
        # The reader of our output has gone, as `head` does.
        sys.stderr.close()
        return 1
    except OSError as error:
        # A full disk, or a device that fails: a traceback would not explain it.
        sys.stderr.write(f"{program}: {_describe_os_error(error)}\n")
        _discard_output()
        return 1
    except KeyboardInterrupt:
        return 130
    except RuntimeError as error:
        if not isinstance(error.__cause__, KeyboardInterrupt):
            raise
        # Ctrl-C while a class of an imported library was made: Python before 3.12 wraps the interrupt.
        return 130
    return code


def _discard_output() -> None:
    """Discard buffered output: Python would report the error once more when it exits."""
    import os

    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _describe_os_error(error: OSError) -> str:
    import errno

    text = error.strerror or str(error)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        where = error.filename or "the output"
        return f"cannot write {where}: {text}: free some space and try again"
    return f"{error.filename}: {text}" if error.filename else text


def _exit_at_once(code: int) -> None:
    """End this process without Python's clean-up, which takes a tenth of the time of a verb."""
    import os

    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):  # the reader has gone, or the stream is closed
        code = code or 1
    os._exit(code)


def run_verb(verb: str, words: list[str]) -> int:
    """Run a verb with its arguments; raises StokerError."""
    from importlib import import_module

    from stoker.cli.arguments import parse_quickly
    from stoker.errors import UsageError

    if verb in ALIASES:
        verb, *more = ALIASES[verb]
        words = [*more, *words]
    if verb not in VERBS and verb not in _HIDDEN:
        raise UsageError(f"no such verb '{verb}': {_suggest(verb)}")
    if verb == "run" and "--pty" in words:
        from stoker.cli.verbs.run_pty import is_asked_for

        verb = "run_pty" if is_asked_for(words) else verb
    module = import_module(f"stoker.cli.verbs.{verb}")
    command: list[str] | None = None
    takes_command = getattr(module, "TAKES_COMMAND", False)
    if takes_command and "--" in words:
        at = words.index("--")
        words, command = words[:at], words[at + 1 :]
    args = parse_quickly(module.ARGUMENTS, words)
    if args is None:
        from stoker.cli.parser import parser_of

        args = parser_of(verb.replace("_", " --"), module).read(words)
    if takes_command:
        args.command = command
    code = module.run(args)
    assert isinstance(code, int)
    return code


def _suggest(word: str) -> str:
    """Suggest a verb for a word that is none; the verb's own first letter has to be right."""
    import difflib

    if word in _AMBIGUOUS:
        return _AMBIGUOUS[word]
    known = [name for name in (*VERBS, *ALIASES) if name[0] == word[:1].lower()]
    near = difflib.get_close_matches(word.lower(), known, n=1, cutoff=0.6)
    return f"did you mean '{near[0]}'?" if near else "stoker --help lists the verbs"


def _repair_standard_streams() -> None:
    """Open closed streams on /dev/null, and escape characters that the terminal's encoding lacks."""
    import os

    for fd, stream in ((0, sys.stdin), (1, sys.stdout), (2, sys.stderr)):
        if stream is None:
            null = os.open(os.devnull, os.O_RDWR)
            if null != fd:
                os.dup2(null, fd)
                os.close(null)
    sys.stdout = sys.stdout or open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    for output in (sys.stdout, sys.stderr):
        if isinstance(output, io.TextIOWrapper):
            output.reconfigure(errors="backslashreplace")


def _overview() -> str:
    from textwrap import fill

    from stoker.cli.help_topics import TOOLS, TOPICS

    *most, last = TOPICS[: -len(TOOLS)]
    width = max(map(len, VERBS))
    also = ", ".join(f"{alias} ({' '.join(words)})" for alias, words in ALIASES.items())
    verbs = "".join(f"  {verb:<{width}}  {text}\n" for verb, text in VERBS.items())
    return (
        "Stoker keeps every GPU fed.\n\n"
        f"usage: stoker VERB …\n\n{verbs}\n"
        "stoker VERB -h explains a verb, with examples; stoker --version tells the version.\n"
        f"{fill(f'Also understood: {also}.', 100)}\n"
        f"stoker help TOPIC explains {', '.join(most)} and {last};\n"
        f"for users of an older tool: {', '.join(TOOLS)}.\n"
    )
