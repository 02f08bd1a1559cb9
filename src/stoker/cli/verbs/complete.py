"""`stoker complete`: prints completions of the last word, for the completion scripts of shells.

It runs at each press of Tab: it imports little, starts no daemon, and prints no error.
"""

from __future__ import annotations

import sys

from stoker.cli.arguments import Args, arg
from stoker.errors import StokerError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

Choice = tuple[str, str]  # a word, and what it is

SUMMARY = "Print the words that the last of WORDS may become, each with a tab and its meaning."
EXAMPLES = """\
  stoker complete -- kill 1    what stoker kill 1 may become
"""

_TIMEOUT_S = 1.0
_JOBS = 200
_PENDING = ("waiting", "held", "blocked", "delayed")
_LIVE = ("running", "paused", "suspended")
_OVER = ("done", "failed", "killed", "lost", "skipped", "pruned")
_STATES = (*_PENDING, "starting", *_LIVE, *_OVER)
# The states of the jobs that a verb takes; none stands for all.
_JOBS_OF: dict[str, tuple[str, ...]] = {
    "ls": (),
    "show": (),
    "why": (),
    "log": (),
    "wait": (*_PENDING, *_LIVE),
    "kill": (*_PENDING, *_LIVE),
    "retry": _OVER,
    "rm": (),
    "hold": ("waiting", "blocked", "delayed"),
    "release": ("held",),
    "pause": ("running",),
    "resume": ("paused", "suspended"),
    "suspend": ("running",),
    "start": _PENDING,
    "preempt": _LIVE,
    "move": ("waiting",),
    "set": (*_PENDING, *_LIVE, "skipped"),
    "edit": (*_PENDING, *_LIVE, "skipped"),
}
_ONE_JOB = ("show", "why", "move", "edit")

ARGUMENTS = (arg("words", nargs="...", metavar="WORDS", help="what was typed after stoker"),)


_ACTIONS = {
    "daemon": ("start", "stop", "restart", "status", "install"),
    "cluster": ("up", "join", "token", "revoke", "status", "leave", "forget"),
    "box": ("install", "check"),
}


def run(args: Args) -> int:
    """Print the completions."""
    words = args.words[1:] if args.words[:1] == ["--"] else args.words
    for word, meaning in choices_for(words or [""]):
        sys.stdout.write(f"{word}\t{meaning}\n")
    return 0


def choices_for(words: list[str]) -> list[Choice]:
    """Return the completions of the last word; none where the shell should complete file names."""
    words = [word for word in words[:-1] if word != "="] + [words[-1].removeprefix("=")]
    *before, current = words
    if not before:
        from stoker.cli.main import VERBS

        return _fitting(VERBS.items(), current)
    verb, *given = before
    if "--" in given:
        return []
    if current.startswith("-"):
        return _fitting(((flag, text) for flag, (text, _takes) in _options(verb).items()), current)
    if given and given[-1].startswith("-"):
        _text, takes_value = _options(verb).get(given[-1], ("", False))
        if takes_value:
            return _values(given[-1], current)
    positional = [word for word in given if not word.startswith("-")]
    return _positional(verb, positional, current)


def _positional(verb: str, given: list[str], current: str) -> list[Choice]:
    match verb:
        case _ if verb in _ACTIONS and not given:
            return _fitting(_plain(*_ACTIONS[verb]), current)
        case "gpus":
            if not given:
                return _fitting(_plain("add", "drain", "remove"), current)
            slots = _ask("/v1/status").get("slots", [])
            return _fitting(((slot["label"], slot["drained"] or "") for slot in slots), current)
        case "completion":
            return _fitting(_plain("bash", "zsh", "fish"), current)
        case "help":
            from stoker.cli.help_topics import TOPICS
            from stoker.cli.main import VERBS

            return _fitting([*_plain(*TOPICS), *VERBS.items()], current)
        case "config" if not given:
            settings = _ask("/v1/config").get("list", [])
            return _fitting(((entry["name"], entry["meaning"]) for entry in settings), current)
        case "set" if given:
            from stoker.cli.job_settings import NAMES

            return _fitting(((f"{name}=", "") for name in NAMES), current)
        case _ if verb in _JOBS_OF and not (verb in _ONE_JOB and given):
            return _jobs(current, _JOBS_OF[verb])
    return []


def _values(option: str, current: str) -> list[Choice]:
    """Return completions of an option's value."""
    if option in ("-s", "--state"):
        return _in_list(current, lambda part: _fitting(_plain(*_STATES), part))
    if option in ("-P", "--project"):
        found = _ask("/v1/ls?limit=1000").get("jobs", [])
        projects = dict.fromkeys(job["project"] for job in found if job["project"])
        return _fitting(_plain(*projects), current)
    if option == "--end":
        known = _ask("/v1/reserve").get("list", [])
        return _fitting(
            ((str(each["id"]), f"GPUs reserved: {each['gpus']}") for each in known), current
        )
    if option in ("--after", "--after-any"):
        return _jobs(current, ())
    return []


def _jobs(current: str, states: tuple[str, ...]) -> list[Choice]:
    """Return ids and names of jobs; of a list with commas the last part is completed."""
    return _in_list(current, lambda part: _jobs_like(part, states))


def _jobs_like(part: str, states: tuple[str, ...]) -> list[Choice]:
    query = "&".join([f"limit={_JOBS}", *(f"states={state}" for state in states)])
    found = _ask(f"/v1/ls?{query}").get("jobs", [])
    choices: list[Choice] = []
    for job in found:
        meaning = f"{job['state']}: {' '.join(job['command'].split())[:60]}"
        choices.append((str(job["id"]), meaning))
    names = [job["name"] for job in found if job["name"]]
    for job in found:
        name, project = job["name"], job["project"]
        if name and names.count(name) == 1:
            choices.append((name, f"job {job['id']}, {job['state']}"))
        if name and project:
            choices.append((f"{project}/{name}", f"job {job['id']}, {job['state']}"))
    if not part.isdigit():
        choices.sort(key=lambda choice: choice[0].isdigit())
    return _fitting(choices, part)


def _in_list(current: str, choose: Callable[[str], list[Choice]]) -> list[Choice]:
    before, comma, part = current.rpartition(",")
    return [(f"{before}{comma}{word}", meaning) for word, meaning in choose(part)]


def _ask(target: str) -> dict[str, Any]:
    """Ask the daemon; an empty answer if none runs."""
    from stoker.client.fast_json import loads
    from stoker.client.transport import Connection
    from stoker.home import find_home

    try:
        with Connection(find_home(), _TIMEOUT_S) as connection:
            answer = loads(connection.request("GET", target).body.decode())
    except (StokerError, OSError, ValueError):
        return {}
    return answer if isinstance(answer, dict) else {"list": answer}


def _options(verb: str) -> dict[str, tuple[str, bool]]:
    """Return a verb's options: the help text of each, and whether it takes a value."""
    from importlib import import_module

    from stoker.cli.main import VERBS

    found: dict[str, tuple[str, bool]] = {}

    if verb in VERBS:
        for flags, details in import_module(f"stoker.cli.verbs.{verb}").ARGUMENTS:
            takes_value = details.get("action", "store") != "store_true"
            for flag in flags:
                if flag.startswith("-"):
                    found[flag] = (str(details.get("help", "")), takes_value)
        found["--help"] = ("explain the verb", False)
    return found


def _plain(*words: str) -> list[Choice]:
    return [(word, "") for word in words]


def _fitting(choices: Iterable[Choice], current: str) -> list[Choice]:
    return list(dict.fromkeys(choice for choice in choices if choice[0].startswith(current)))
