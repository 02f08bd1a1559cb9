"""`stoker box`: sets up a machine that several people share, and checks its rules."""

from __future__ import annotations

import contextlib
import os
import stat

from stoker.cli.arguments import Args, arg
from stoker.cli.messages import note
from stoker.errors import StokerError, UsageError

SUMMARY = """\
Set up a machine that several people share.
`install` (root, once) makes the folder in which the Stokers of all users keep leases and turns, so that no
user owns it. `check` reads a file of rules and says what is wrong in it."""
EXAMPLES = """\
  sudo stoker box install          make /run/stoker/leases, now and at each boot
  stoker box check                 check /etc/stoker/box.toml
  stoker box check new-rules.toml  check rules before they are put in place
  stoker gpus --rules              show the rules that are in force
"""

_FOR_ALL = 0o666
_TMPFILES = "/etc/tmpfiles.d/stoker.conf"
_TMPFILES_TEXT = """\
# Leases and turns of Stoker (stoker box install): all users write here, and none removes the files of others.
d /run/stoker 0755 root root -
d /run/stoker/leases 1777 root root -
"""
_RULES_TEXT = """\
# The rules of this machine for Stoker (docs/how-to/share-a-box.md). A change counts at once.
#
# [shares]                  # of recent use; everybody else has 1
# alice = 2
# "@students" = 0.5
#
# [limits]
# gpus = 4                  # the most GPUs of one user at once
# hours = 48                # the longest job
# reserve = "8h"            # the longest reservation (stoker reserve); "0": none; without it: 24h
# preemptible = "10m"       # a preemptible job makes room for a user who waits longer
#
# [limits."@students"]
# gpus = 2
#
# [[reservations]]          # without days and times: always
# gpus = "0-3"
# for = ["@course"]
# days = "Mon"
# from = "14:00"
# to = "16:00"
# name = "the course"
"""

ARGUMENTS = (
    arg("action", choices=("install", "check"), metavar="ACTION", help="install, check"),
    arg("file", nargs="?", metavar="FILE", help="rules to check, by default those of this machine"),
)


def run(args: Args) -> int:
    """Set up or check."""
    if args.action == "check":
        return _check(args.file)
    if args.file is not None:
        raise UsageError("stoker box install takes no file: the rules are /etc/stoker/box.toml")
    return _install()


def _check(path: str | None) -> int:
    from stoker.gpus.box_file import RulesError, find_unknown, parse_text, rules_path

    name = path or rules_path()
    try:
        with open(name, encoding="utf-8") as file:
            text = file.read()
        rules = parse_text(text, name)
    except OSError as error:
        raise StokerError(f"{name}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise StokerError(f"{name}: it is no UTF-8 text") from None
    except RulesError as error:
        raise StokerError(str(error)) from None
    for unknown in find_unknown(rules):
        kind = f"group '{unknown[1:]}'" if unknown.startswith("@") else f"user '{unknown}'"
        note(f"{name}: this machine has no {kind}: its rules have no effect")
    print(f"{name} is good")
    return 0


def _install() -> int:
    from stoker.gpus.box_file import RULES_FILE
    from stoker.gpus.lease import ROOT_FOLDER

    if os.geteuid() != 0:
        raise StokerError("only root can set up the machine: sudo stoker box install")
    _write_new(_TMPFILES, _TMPFILES_TEXT)
    _write_new(RULES_FILE, _RULES_TEXT)
    _make(os.path.dirname(ROOT_FOLDER), 0o755)
    _make(ROOT_FOLDER, 0o1777)
    print(
        f"leases and turns of all users are kept in {ROOT_FOLDER}, also after a reboot ({_TMPFILES})"
    )
    print(f"rules: {RULES_FILE}; at present stoker gpus --rules shows what is in force")
    print("daemons that run use the folder for the next GPU that they take")
    return 0


def _write_new(path: str, text: str) -> None:
    """Write a file that all users can read, whatever root's umask is."""
    folder = os.path.dirname(path)
    if not os.path.exists(folder):
        os.makedirs(folder)
        os.chmod(folder, 0o755)  # noqa: S103 - its files are for all users
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
    except FileExistsError:
        return
    with open(fd, "w", encoding="utf-8") as file:
        os.fchmod(fd, 0o644)
        file.write(text)


def _make(folder: str, mode: int) -> None:
    """Make a folder of root, also where a user was there first."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder, 0o700)
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        raise StokerError(f"{folder} is no folder: rm {folder}, then repeat this") from None
    try:
        os.fchown(fd, 0, 0)
        os.fchmod(fd, mode)
        for name in os.listdir(fd) if mode & stat.S_ISVTX else ():
            _remove_unusable(fd, name, folder)
    finally:
        os.close(fd)


def _remove_unusable(fd: int, name: str, folder: str) -> None:
    """Remove what a user has put in the place of a lease, and no other user can use."""
    import shutil

    with contextlib.suppress(FileNotFoundError):
        found = os.stat(name, dir_fd=fd, follow_symlinks=False)
        is_plain = stat.S_ISREG(found.st_mode) and found.st_nlink == 1
        if is_plain and (name.startswith("turn-") or found.st_mode & _FOR_ALL == _FOR_ALL):
            return
        if stat.S_ISDIR(found.st_mode):
            shutil.rmtree(name, dir_fd=fd)
        else:
            os.unlink(name, dir_fd=fd)
        note(f"removed {os.path.join(folder, name)}: other users could not use it")
