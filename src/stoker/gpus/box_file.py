"""Reads the rules of this box: /etc/stoker/box.toml, which belongs to root.

With STOKER_LEASE_DIR, that folder is a box of its own, and its rules are `box.toml` in it. Of a file with a
mistake nothing counts: the last good rules stay in force.
"""

from __future__ import annotations

import contextlib
import grp
import os
import pwd
import re
import stat
import sys
import time

from stoker.accounts import name_of
from stoker.core.box_rules import BoxRules, Moment, Person, RuleError, parse_rules
from stoker.core.user_reservation import DEFAULT_LONGEST_S

if sys.version_info >= (3, 11):
    import tomllib as toml
else:
    import tomli as toml

RULES_FILE = "/etc/stoker/box.toml"
_MOST_BYTES = 1 << 20
_HEADER = re.compile(r"\s*\[\[?\s*([^\]]+?)\s*\]\]?\s*(?:#.*)?")
_ROOT_UID = 0


class RulesError(Exception):
    """Rules that cannot be used. The text names the file, and the line if there is one."""


class BoxFile:
    """The rules of this box, read again when the file changes."""

    def __init__(self) -> None:
        self.rules = BoxRules()
        self.error: str | None = None
        self._seen: tuple[int, ...] | None = None
        self._people: dict[int, Person] = {}

    def refresh(self) -> bool:
        """Read the file if it has changed; returns whether the rules or the error have changed."""
        path = rules_path()
        seen: tuple[int, ...] = ()
        with contextlib.suppress(OSError):
            found = os.stat(path)
            seen = (found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size)
        if seen == self._seen:
            return False
        before = (self.rules, self.error)
        self._seen = seen
        self._people.clear()
        try:
            self.rules = read_file(path) if seen else BoxRules()
            self.error = None
        except RulesError as error:
            self.error = str(error)
        return before != (self.rules, self.error)

    def person(self, uid: int) -> Person:
        """Return a user with its groups."""
        known = self._people.get(uid)
        if known is None:
            known = self._people[uid] = find_person(uid)
        return known

    def longest_reservation_s(self, uid: int) -> float:
        """Return how long a user may reserve GPUs."""
        rule = self.rules.limits_for(self.person(uid)).reserve_s
        return DEFAULT_LONGEST_S if rule is None else rule


def rules_path() -> str:
    """Return where the rules of this box are."""
    folder = os.environ.get("STOKER_LEASE_DIR")
    return os.path.join(folder, "box.toml") if folder else RULES_FILE


def read_file(path: str) -> BoxRules:
    """Read rules; RulesError names the line of a mistake."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError as error:
        raise RulesError(f"{path}: {error.strerror}") from None
    with open(fd, "rb") as file:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise RulesError(f"{path}: it is no plain file")
        if found.st_uid not in _trusted_owners() or found.st_mode & 0o022:
            raise RulesError(
                f"{path}: others could write it: sudo chown root {path}; sudo chmod 644 {path}"
            )
        raw = file.read(_MOST_BYTES)
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        raise RulesError(f"{path}: it is no UTF-8 text") from None
    return parse_text(text, path)


def parse_text(text: str, path: str) -> BoxRules:
    """Read rules from text; RulesError names the line of a mistake."""
    try:
        return parse_rules(toml.loads(text))
    except toml.TOMLDecodeError as error:
        line = re.search(r"line (\d+)", str(error))
        words = re.sub(r" \(at .*\)$", "", str(error))
        at = f", line {line[1]}" if line else ""
        raise RulesError(f"{path}{at}: {words}") from None
    except RuleError as error:
        raise RulesError(f"{path}, line {_line_of(text, error)}: {error}") from None


def find_person(uid: int) -> Person:
    """Return a user with the names of its groups."""
    name = name_of(uid)
    groups = set()
    try:
        numbers = os.getgrouplist(name, pwd.getpwuid(uid).pw_gid)
    except (KeyError, OSError):
        return Person(name)
    for number in numbers:
        try:
            groups.add(grp.getgrgid(number).gr_name)
        except KeyError:
            continue
    return Person(name, frozenset(groups))


def local_moment(now_s: float) -> Moment:
    """Return a Unix time as a local time."""
    local = time.localtime(now_s)
    return Moment(
        time.strftime("%Y-%m-%d", local), local.tm_wday, local.tm_hour * 60 + local.tm_min
    )


def _trusted_owners() -> set[int]:
    folder = os.environ.get("STOKER_LEASE_DIR")
    try:
        return {_ROOT_UID} | ({os.stat(folder).st_uid} if folder else set())
    except OSError:
        return {_ROOT_UID}


def _line_of(text: str, error: RuleError) -> int:
    """Find the line of a mistake: of its key in its table, else of the table."""
    line_of_table, current, seen = 1, "", -1
    for number, line in enumerate(text.splitlines(), 1):
        header = _HEADER.fullmatch(line)
        if header is not None:
            current = header[1].replace('"', "").replace("'", "").replace(" ", "")
            seen += current == error.table
            if current == error.table and seen <= error.number:
                line_of_table = number
            continue
        is_there = current == error.table and (seen == error.number or error.number == 0)
        key = line.partition("=")[0].strip().strip("\"'")
        if is_there and error.key is not None and key == error.key and "=" in line:
            return number
    return line_of_table
