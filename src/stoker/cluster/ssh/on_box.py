"""Runs on a machine that is being added: looks at it, unpacks Stoker, joins, and undoes all of that.

The head sends the source of this module over ssh (`remote_program`), because the machine has no Stoker yet.
So it uses the standard library and `stoker.home` alone. Each function takes a request and returns an answer,
both of JSON. `StokerError` becomes an answer with the key `error`.

    <home>/software/DIGEST        private environment of one version: an interpreter and its packages
    <home>/software/DIGEST.new    the same, incomplete
    <home>/software/current       link to the one in use
"""

from __future__ import annotations

import contextlib
import fcntl
import glob
import hashlib
import json
import os
import platform
import shutil
import socket
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from typing import IO, Any

from stoker.errors import StokerError
from stoker.home import find_home

_CHECK = "import stoker, msgspec, ray._raylet"
_CHECK_S = 120.0
_COMMAND_S = 300.0
_LOGIN_S = 10.0
_SOFTWARE, _CURRENT = "software", "current"
_LAUNCHER = """\
#!{python} -I
import sys
from stoker.cli.main import main
sys.exit(main())
"""
_RAY = ("raylet", "gcs_server")
# Files in the cluster folder of a node that has left, or could not join.
_TRACES = (
    "node.json",
    "change.lock",
    "ray",  # a link to a folder elsewhere, or a folder
    "ray_supervisor.lock",
    "ray_supervisor.json",
    "ray_supervisor.log",
)
_LINKS = "gpu-links.json"  # in the home: what the driver said of the links between GPUs
_CREDENTIALS = ("token", "tls.json", "tls-ca.crt", "tls-node.key", "tls-node.crt")
# Folders of a node's queue with files of jobs that may be nowhere else.
_OF_JOBS = ("logs", "checkpoints", "node_cache/copies")


def look(_request: dict[str, Any], _stream: IO[bytes]) -> dict[str, Any]:
    """Look at this machine, and change nothing."""
    home = find_home()
    try:
        return {
            "host": socket.gethostname(),
            "machine": platform.machine(),
            "libc": platform.libc_ver()[0] or "another",
            "python": sys.executable,
            "version": platform.python_version(),
            "implementation": platform.python_implementation(),
            "home": home,
            "free_bytes": shutil.disk_usage(home).free,
            "environments": sorted(os.path.basename(path) for path in _environments(home)),
            "cluster": _read_cluster(home),
            "daemon": _daemon_pid(home),
            "ray": _find_ray(),
            "stoker": shutil.which("stoker"),
            "has_systemd": _has_systemd(),
        }
    finally:
        _remove_empty(home)


def unpack(request: dict[str, Any], stream: IO[bytes]) -> dict[str, Any]:
    """Make a private environment from the archive on the stream; keep none that does not work."""
    home = find_home()
    target = os.path.join(home, _SOFTWARE, request["digest"])
    fresh = f"{target}.new"
    shutil.rmtree(fresh, ignore_errors=True)
    try:
        os.makedirs(os.path.dirname(fresh), mode=0o700, exist_ok=True)
        _make_environment(fresh)
        (packages,) = glob.glob(os.path.join(glob.escape(fresh), "lib", "python*", "site-packages"))
        with tarfile.open(fileobj=stream, mode="r|gz") as archive:
            archive.extractall(packages, **_trusting())  # noqa: S202 - the head's own files
        while stream.read(1 << 20):  # ssh says that it was cut if the rest stays unread
            pass
        _write_launcher(fresh, target)
        _check(fresh)
        os.rename(fresh, target)  # from now on it counts as complete
        _point(target)
    except (OSError, EOFError, tarfile.TarError) as error:
        shutil.rmtree(fresh, ignore_errors=True)
        _remove_empty(home)
        raise StokerError(f"cannot unpack to {target}: {error}") from None
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        _remove_empty(home)
        raise
    return {}


def run(request: dict[str, Any], _stream: IO[bytes]) -> dict[str, Any]:
    """Run a private environment's interpreter; variables may be secret, and are in no command line."""
    home = find_home()
    python = _python(os.path.join(home, _SOFTWARE, request["digest"]))
    environ = {**os.environ, **(_login_environment() if request["is_login"] else {})}
    try:
        ended = subprocess.run(
            [python, "-I", *request["words"]],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env={**environ, "STOKER_HOME": home, **request["env"]},
            timeout=_COMMAND_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise StokerError(f"cannot run {python}: {error}") from None
    return {
        "code": ended.returncode,
        "out": ended.stdout.decode(errors="replace"),
        "err": ended.stderr.decode(errors="replace"),
    }


def prepare_tunnel(request: dict[str, Any], _stream: IO[bytes]) -> dict[str, Any]:
    """Make a private folder for the sockets of a tunnel; their paths must be short.

    A home has one tunnel. So the folders of its earlier connections are of no use any more.
    """
    home = find_home()
    _remove_tunnel_folders(home)
    return {
        "python": _python(os.path.join(home, _SOFTWARE, request["digest"])),
        "folder": tempfile.mkdtemp(prefix=_tunnel_prefix(home), dir="/tmp"),
    }


def clear(_request: dict[str, Any], _stream: IO[bytes]) -> dict[str, Any]:
    """Remove what `add` and `join` have made in the home, and the home itself if nothing else is there."""
    home = find_home()
    if _read_cluster(home) is not None:
        raise StokerError(f"{home} belongs to a cluster: stoker cluster leave comes first")
    shutil.rmtree(os.path.join(home, _SOFTWARE), ignore_errors=True)
    _remove_traces(home)
    _remove_tunnel_folders(home)
    _remove_empty(home)
    return {"kept": home if os.path.exists(home) else None}


def prune(request: dict[str, Any], _stream: IO[bytes]) -> dict[str, Any]:
    """Remove the other private environments, except those whose programs still run."""
    commands = list(_command_lines())
    home = find_home()
    _point(os.path.join(home, _SOFTWARE, request["digest"]))
    for path in _environments(home):
        is_in_use = any(f"{path}/".encode() in command for command in commands)
        if os.path.basename(path) != request["digest"] and not is_in_use:
            shutil.rmtree(path, ignore_errors=True)
    return {}


def main(name: str, request: dict[str, Any], stream: IO[bytes]) -> None:
    """Call one of the functions, and print its answer."""
    actions = {
        "look": look,
        "unpack": unpack,
        "run": run,
        "prune": prune,
        "clear": clear,
        "prepare_tunnel": prepare_tunnel,
    }
    try:
        answer = actions[name](request, stream)
    except StokerError as error:
        answer = {"error": str(error)}
    # A login shell may have printed something before.
    sys.stdout.write(f"\nstoker-answer {json.dumps(answer)}\n")


def _make_environment(folder: str) -> None:
    try:
        import venv
    except ImportError:
        raise StokerError(
            f"{sys.executable} has no module venv: apt-get install python3-venv"
        ) from None
    venv.EnvBuilder(symlinks=True, with_pip=False).create(folder)


def _trusting() -> dict[str, Any]:
    """Return the option that newer Pythons want for an archive of our own."""
    return {"filter": "fully_trusted"} if hasattr(tarfile, "fully_trusted_filter") else {}


def _write_launcher(environment: str, target: str) -> None:
    """Write the program `stoker` of an environment that will be at `target`."""
    path = os.path.join(environment, "bin", "stoker")
    with open(path, "w", encoding="utf-8") as file:
        file.write(_LAUNCHER.format(python=_python(target)))
    os.chmod(path, 0o755)  # noqa: S103 - a program


def _check(environment: str) -> None:
    """Raise StokerError if the packages of the head do not work here."""
    try:
        ended = subprocess.run(
            [_python(environment), "-I", "-c", _CHECK],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_CHECK_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise StokerError(f"the head's packages do not work here: {error}") from None
    if ended.returncode:
        lines = ended.stderr.decode(errors="replace").strip().splitlines()
        last = (lines or ["no reason given"])[-1][:300]
        raise StokerError(f"the head's packages do not work here: {last}")


def _login_environment() -> dict[str, str]:
    """Return the variables of the user's login shell; empty if it fails. Over ssh alone, PATH is shorter."""
    shell = os.environ.get("SHELL") or "/bin/sh"
    try:
        ended = subprocess.run(
            [shell, "-l", "-c", "env -0"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_LOGIN_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return {}
    entries = ended.stdout.split(b"\0")
    entries[0] = entries[0].rpartition(b"\n")[2]  # what the shell prints comes before
    pairs = (os.fsdecode(entry).partition("=") for entry in entries)
    return {name: value for name, sign, value in pairs if name and sign}


def _python(environment: str) -> str:
    return os.path.join(environment, "bin", "python")


def _point(environment: str) -> None:
    """Let the link `current` lead to an environment: a name that stays, for a crontab."""
    link = os.path.join(os.path.dirname(environment), _CURRENT)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(f"{link}.new")
    os.symlink(os.path.basename(environment), f"{link}.new")
    os.replace(f"{link}.new", link)


def _environments(home: str) -> list[str]:
    found = glob.glob(os.path.join(glob.escape(home), _SOFTWARE, "*"))
    return [path for path in found if not path.endswith(".new") and not os.path.islink(path)]


def _read_cluster(home: str) -> dict[str, Any] | None:
    """Return the membership of this machine; None if it belongs to no cluster."""
    with contextlib.suppress(OSError, ValueError):
        with open(os.path.join(home, "cluster", "settings.json"), encoding="utf-8") as file:
            known = json.load(file)
        with open(os.path.join(home, "cluster", "node.json"), encoding="utf-8") as file:
            name = json.load(file)["name"]
        return {
            "role": known["role"],
            "address": known["address"],
            "port": known["port"],
            "name": name,
        }
    return None


def _daemon_pid(home: str) -> int | None:
    """Return the pid of the daemon of this home; None if none runs."""
    with contextlib.suppress(OSError), open(os.path.join(home, "daemon.lock"), "rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            text = file.read(20)
            return int(text) if text.isdigit() else 0
    return None


def _command_lines() -> Iterator[bytes]:
    for name in os.listdir("/proc"):
        with contextlib.suppress(OSError):
            if name.isdigit():
                with open(f"/proc/{name}/cmdline", "rb") as file:
                    yield file.read()


def _find_ray() -> list[int]:
    """Return the pids of Ray's daemons on this machine, of any user."""
    found = []
    for name in os.listdir("/proc"):
        with contextlib.suppress(OSError):
            if name.isdigit() and _command(name) in _RAY:
                found.append(int(name))
    return sorted(found)


def _command(pid: str) -> str:
    with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
        return file.read().strip()


def _has_systemd() -> bool:
    """Whether this user has a running systemd."""
    try:
        ended = subprocess.run(
            ["systemctl", "--user", "show", "-p", "Version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_LOGIN_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return ended.returncode == 0


def _remove_traces(home: str) -> None:
    """Remove what a membership that has ended leaves; results and checkpoints of jobs stay."""
    cluster = os.path.join(home, "cluster")
    names = list(_TRACES)
    if not os.path.exists(os.path.join(home, "stoker.db")):  # a queue may use a cluster of its own
        names += _CREDENTIALS
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(home, _LINKS))
    for name in names:
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(cluster, name))
    shutil.rmtree(os.path.join(cluster, "ray"), ignore_errors=True)
    for queue in glob.glob(os.path.join(glob.escape(cluster), "queues", "*")):
        if not any(_has_files(os.path.join(queue, name)) for name in _OF_JOBS):
            shutil.rmtree(queue, ignore_errors=True)


def _tunnel_prefix(home: str) -> str:
    return f"stoker-tunnel-{os.getuid()}-{hashlib.sha256(os.fsencode(home)).hexdigest()[:12]}-"


def _remove_tunnel_folders(home: str) -> None:
    for folder in glob.glob(f"/tmp/{_tunnel_prefix(home)}*"):  # noqa: S108 - the owner is checked
        with contextlib.suppress(OSError):
            if os.lstat(folder).st_uid == os.getuid():
                shutil.rmtree(folder)


def _has_files(folder: str) -> bool:
    return any(files for _, _, files in os.walk(folder))


def _remove_empty(home: str) -> None:
    cluster = os.path.join(home, "cluster")
    for folder in (os.path.join(home, _SOFTWARE), os.path.join(cluster, "queues"), cluster, home):
        with contextlib.suppress(OSError):
            os.rmdir(folder)
