"""systemd user units of the daemon and of a node, and warnings about what would end them."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess

from stoker.errors import StokerError

# Jobs run in the unit's control group: a stop, or one job out of memory, must not end the others.
_UNIT = """\
[Unit]
Description={description}

[Service]
Type=exec
ExecStart={command}
{environment}KillMode=process
OOMPolicy=continue
Restart=on-failure
RestartSec=1
TimeoutStopSec=30

[Install]
WantedBy=default.target
"""


def unit_name(home: str | None, part: str = "stoker") -> str:
    """Return the unit's name; each STOKER_HOME has its own."""
    if home is None:
        return f"{part}.service"
    return f"{part}-{hashlib.sha256(os.fsencode(home)).hexdigest()[:8]}.service"


def unit_path(name: str) -> str:
    """Return the path where systemd looks for a user's unit."""
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return os.path.join(base, "systemd", "user", name)


def unit_text(
    command: list[str],
    environment: dict[str, str],
    description: str = "Stoker, a queue for GPU jobs",
) -> str:
    """Return the unit's text: a stop or a restart ends only the command itself, never jobs."""
    lines = "".join(
        f"Environment={_quote(f'{name}={value}')}\n" for name, value in environment.items()
    )
    return _UNIT.format(
        description=description, command=" ".join(map(_quote_word, command)), environment=lines
    )


def _quote(text: str) -> str:
    """Quote a word for systemd: % starts a specifier, the rest is as in C."""
    if any(not char.isprintable() for char in text):
        raise StokerError(
            f"{text!r} cannot be written to a systemd unit: it has unprintable characters"
        )
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'


def _quote_word(word: str) -> str:
    return _quote(word).replace("$", "$$")  # in a command line variables are filled in, too


def write_unit(path: str, text: str) -> None:
    """Write the unit's file."""
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise StokerError(f"cannot write {path}: {error.strerror}") from error


def has_systemd() -> bool:
    """Whether this user has a running systemd."""
    return (
        shutil.which("systemctl") is not None
        and _ask("systemctl", "--user", "show", "-p", "Version")[0]
    )


def systemctl(*words: str) -> None:
    """Run systemctl --user; raises StokerError if it fails."""
    done, output = _ask("systemctl", "--user", *words)
    if not done:
        raise StokerError(
            f"systemctl --user {' '.join(words)} failed: {output or 'no reason given'}"
        )


def warnings(user: str) -> list[str]:
    """Return warnings about settings that end the daemon or its jobs at logout."""
    found = []
    linger = _ask("loginctl", "show-user", user, "--property=Linger", "--value")
    if linger[0] and linger[1] != "yes":
        found.append(
            "linger is off: systemd ends the daemon and its jobs when you log out;"
            f" loginctl enable-linger {user}"
        )
    kill = _ask("loginctl", "show-session", "--property=KillUserProcesses", "--value")
    if kill[0] and kill[1] == "yes" and found:
        found.append(
            "KillUserProcesses=yes: jobs end when you log out; enable linger, or set it to no in"
            " /etc/systemd/logind.conf"
        )
    return found


def _ask(*words: str) -> tuple[bool, str]:
    """Run a command: whether it succeeded, and the last line of its output."""
    try:
        ended = subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=30
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return False, str(error)
    output = (ended.stdout if ended.returncode == 0 else ended.stderr).decode(errors="replace")
    return ended.returncode == 0, output.strip().rpartition("\n")[2]
