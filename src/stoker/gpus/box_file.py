"""Reads the rules of this box: /etc/stoker/box.toml, which belongs to root.

With STOKER_LEASE_DIR, that folder is a box of its own, and its rules are `box.toml` in it. Of a file with a
mistake nothing counts: the last good rules stay in force, also for a Stoker that starts later.
"""

from __future__ import annotations

import contextlib
import datetime
import errno
import grp
import os
import pwd
import re
import stat
import sys
import time
from functools import lru_cache

from stoker.accounts import name_of
from stoker.core.box_rules import BoxRules, Moment, Person, RuleError, parse_rules
from stoker.core.user_reservation import DEFAULT_LONGEST_S

if sys.version_info >= (3, 11):
    import tomllib as toml
else:
    import tomli as toml

RULES_FILE = "/etc/stoker/box.toml"
RULES_COPY = "box-rules.toml"
_ZONE_FILE = "/etc/localtime"
_PEOPLE_S = 600.0  # a change of a user's groups counts after so long
_MOST_BYTES = 1 << 20
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
_HEADER = re.compile(r"\s*\[\[?\s*([^\]]+?)\s*\]\]?\s*(?:#.*)?")
_ROOT_UID = 0


class RulesError(Exception):
    """Rules that cannot be used. The text names the file, and the line if there is one."""


class BoxFile:
    """The rules of this box, read again when the file changes.

    `copy` is a file of the user's own for the last good rules.
    """

    def __init__(self, copy: str | None = None) -> None:
        self._copy = copy
        self.rules = BoxRules()
        self.error: str | None = None
        self._seen: tuple[int, ...] | None = None
        self._people: dict[int, tuple[Person, float]] = {}  # with the time of the look-up

    def refresh(self) -> bool:
        """Read the file if it has changed; returns whether the rules or the error have changed."""
        path = rules_path()
        seen: tuple[int, ...] = ()
        with contextlib.suppress(OSError):
            found = os.stat(path)
            seen = (found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size)
        if seen == self._seen:
            return False
        before, is_first = (self.rules, self.error), self._seen is None
        self._seen = seen
        self._people.clear()
        try:
            text = _read_text(path) if seen else ""
            self.rules = parse_text(text, path)
            self.error = None
            self._keep(text)
        except RulesError as error:
            self.error = str(error)
            if is_first:
                self.rules = self._read_copy()
        return before != (self.rules, self.error)

    def _keep(self, text: str) -> None:
        """Keep good rules for the user's next Stoker. If that is impossible, it has none to fall back to."""
        if self._copy is None:
            return
        new = f"{self._copy}.{os.getpid()}"
        with contextlib.suppress(OSError):
            if not text:
                os.unlink(self._copy)
                return
            with open(os.open(new, _NEW_FILE, 0o600), "w", encoding="utf-8") as file:
                file.write(text)
            os.replace(new, self._copy)

    def _read_copy(self) -> BoxRules:
        with contextlib.suppress(OSError, RulesError, UnicodeDecodeError):
            if self._copy is not None:
                with open(self._copy, encoding="utf-8") as file:
                    return parse_text(file.read(_MOST_BYTES), self._copy)
        return BoxRules()

    def person(self, uid: int) -> Person:
        """Return a user with its groups."""
        now = time.monotonic()
        known, found_at = self._people.get(uid, (None, 0.0))
        if known is None or now > found_at + _PEOPLE_S:
            known = find_person(uid)
            self._people[uid] = known, now
        return known

    def longest_reservation_s(self, uid: int) -> float:
        """Return how long a user may reserve GPUs."""
        rule = self.rules.limits_for(self.person(uid)).reserve_s
        return DEFAULT_LONGEST_S if rule is None else rule


def rules_path() -> str:
    """Return where the rules of this box are."""
    folder = os.environ.get("STOKER_LEASE_DIR")
    return os.path.join(folder, "box.toml") if folder else RULES_FILE


def _read_text(path: str) -> str:
    """Read the file of the rules; RulesError says why it cannot be trusted."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError as error:
        why = "it is a link: put the file itself there" if error.errno == errno.ELOOP else None
        if error.errno == errno.EACCES:
            why = f"users cannot read it: sudo chmod 644 {path}"
        raise RulesError(f"{path}: {why or error.strerror}") from None
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
        return raw.decode()
    except UnicodeDecodeError:
        raise RulesError(f"{path}: it is no UTF-8 text") from None


def parse_text(text: str, path: str) -> BoxRules:
    """Read rules from text; RulesError names the line of a mistake."""
    try:
        return parse_rules(toml.loads(text))
    except toml.TOMLDecodeError as error:
        found = re.search(r"line (\d+)", str(error))
        line = int(found[1]) if found else max(1, len(text.splitlines()))  # at the end of the text
        words = re.sub(r" \(at .*\)$", "", str(error))
        raise RulesError(f"{path}, line {line}: {words}") from None
    except RuleError as error:
        raise RulesError(f"{path}, line {_line_of(text, error)}: {error}") from None


def find_unknown(rules: BoxRules) -> list[str]:
    """Return the users and @groups of the rules that this machine does not know."""
    return [name for name in rules.names if not _is_known(name)]


def _is_known(name: str) -> bool:
    try:
        if name.startswith("@"):
            grp.getgrnam(name[1:])
        else:
            pwd.getpwnam(name)
    except (KeyError, ValueError):  # ValueError: a NUL, or no text of the file system
        return False
    return True


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
    """Return a Unix time as a time of the machine's zone, whatever zone a user has set."""
    local = datetime.datetime.fromtimestamp(now_s, _zone_of_machine())
    return Moment(local.date().isoformat(), local.weekday(), local.hour * 60 + local.minute)


def _zone_of_machine() -> datetime.tzinfo | None:
    """Return the zone of /etc/localtime; None if there is none: then that of the environment counts."""
    try:
        return _read_zone(_ZONE_FILE, os.stat(_ZONE_FILE).st_mtime_ns)
    except (OSError, ValueError):
        return None


@lru_cache(maxsize=1)
def _read_zone(path: str, _changed_ns: int) -> datetime.tzinfo:
    from zoneinfo import ZoneInfo

    with open(path, "rb") as file:
        return ZoneInfo.from_file(file)


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
