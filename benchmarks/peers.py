"""The programs that Stoker is compared with. A missing one is installed, never left out."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, fields

from benchmarks.errors import BenchError

SGS_VERSION = "0.1.4"
GFLOW_VERSION = "0.4.18"
_QUIET_INSTALL = ("install", "--quiet", "--disable-pip-version-check")


@dataclass(frozen=True, slots=True)
class Peer:
    """A program, where it is and what it says its version is."""

    name: str
    path: str
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Peers:
    """Everyone on the start line."""

    stoker: Peer
    python: Peer
    xargs: Peer
    parallel: Peer
    simple_gpu_scheduler: Peer
    tsp: Peer
    gflow: Peer

    def all(self) -> tuple[Peer, ...]:
        """Return the peers in the order they are printed."""
        return tuple(getattr(self, field.name) for field in fields(self))


def find_peers(folder: str) -> Peers:
    """Find every peer, installing the missing ones (`folder` is for virtual environments)."""
    return Peers(
        stoker=_stoker(os.path.join(folder, "stoker")),
        python=Peer(
            "python",
            _shown(os.path.join(folder, "stoker", "bin", "python")),
            sys.version.split()[0],
        ),
        xargs=_xargs(),
        parallel=_parallel(),
        simple_gpu_scheduler=_simple_gpu_scheduler(os.path.join(folder, "simple-gpu-scheduler")),
        tsp=_tsp(),
        gflow=_gflow(os.path.join(folder, "gflow")),
    )


def need_program(program: str, package: str) -> str:
    """Return the path of a system program, installing its package where we may."""
    path = shutil.which(program)
    if path is not None:
        return path
    remedy = f"apt-get install -y {package}"
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise BenchError(f"{program} is missing; install it with: {remedy}")
    print(f"{program} is missing: {remedy}", file=sys.stderr, flush=True)
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    # Package lists may be missing or old, so the first failure is not the last word.
    if _quietly(["apt-get", "install", "-y", package], quiet) is None:
        _quietly(["apt-get", "update"], quiet)
        _quietly(["apt-get", "install", "-y", package], quiet)
    path = shutil.which(program)
    if path is None:
        raise BenchError(f"{program} is missing and could not be installed; try: {remedy}")
    return path


def _stoker(venv: str) -> Peer:
    """Install this tree as users do, with nothing else beside it, and anew each time."""
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    path = os.path.join(venv, "bin", "stoker")
    print(f"installing stoker under {_shown(venv)}", file=sys.stderr, flush=True)
    pip = [os.path.join(venv, "bin", "python"), "-m", "pip", *_QUIET_INSTALL]
    if _quietly([sys.executable, "-m", "venv", venv]) is None or _quietly([*pip, root]) is None:
        raise BenchError(f"stoker could not be installed; try: {' '.join(pip)} .")
    if _quietly([*pip, "--force-reinstall", "--no-deps", root]) is None:
        raise BenchError(f"stoker could not be installed anew; remove {_shown(venv)} and run again")
    version = _quietly([path, "--version"])
    if version is None:
        raise BenchError(f"{_shown(path)} --version fails; run it to see why")
    return Peer("stoker", _shown(path), _first_line(version))


def _xargs() -> Peer:
    path = need_program("xargs", "findutils")
    return Peer("xargs", path, _first_line(_quietly([path, "--version"]) or "unknown"))


def _parallel() -> Peer:
    path = need_program("parallel", "parallel")
    version = _first_line(_quietly([path, "--version"]) or "")
    if not version.startswith("GNU parallel"):
        raise BenchError(f"{path} is not GNU parallel; install it with: apt-get install parallel")
    return Peer("parallel", path, version)


def _simple_gpu_scheduler(venv: str) -> Peer:
    version = _install_apart(venv, "simple-gpu-scheduler", SGS_VERSION, "simple_gpu_scheduler")
    program = os.path.join(venv, "bin", "simple_gpu_scheduler")
    return Peer("simple_gpu_scheduler", _shown(program), version)


def _tsp() -> Peer:
    path = need_program("tsp", "task-spooler")
    return Peer("tsp", path, _first_line(_quietly([path, "-V"]) or "unknown").partition(" - ")[0])


def _gflow(venv: str) -> Peer:
    """Install what PyPI calls runqd; it runs its jobs in tmux."""
    need_program("tmux", "tmux")
    version = _install_apart(venv, "runqd", GFLOW_VERSION, "gflowd")
    return Peer("gflow", _shown(os.path.join(venv, "bin", "gflowd")), f"runqd {version}")


def _install_apart(venv: str, name: str, version: str, program: str) -> str:
    """Install a package in a virtual environment of its own: no namesake can take its place."""
    python = os.path.join(venv, "bin", "python")
    requirement = f"{name}=={version}"
    if not os.path.exists(os.path.join(venv, "bin", program)):
        print(f"installing {requirement} under {_shown(venv)}", file=sys.stderr, flush=True)
        shutil.rmtree(venv, ignore_errors=True)
        pip = [python, "-m", "pip", *_QUIET_INSTALL]
        made = _quietly([sys.executable, "-m", "venv", venv])
        if made is None or _quietly([*pip, requirement]) is None:
            shutil.rmtree(venv, ignore_errors=True)
            raise BenchError(
                f"{name} could not be installed; try: "
                f"python3 -m venv {_shown(venv)} && "
                f"{_shown(venv)}/bin/pip install {requirement}"
            )
    names = "import importlib.metadata as m; print(*sorted(d.name for d in m.distributions()))"
    if "stoker" in (_quietly([python, "-c", names]) or "stoker").split():
        raise BenchError(f"{_shown(venv)} holds stoker too; remove that folder and run again")
    ask = f"import importlib.metadata as m; print(m.version({name!r}))"
    found = _first_line(_quietly([python, "-c", ask]) or "")
    if found != version:
        raise BenchError(f"{_shown(venv)} does not hold {requirement}; remove it and run again")
    return found


def make_environment(venv: str, requirements: tuple[str, ...]) -> str:
    """The interpreter of a virtual environment that holds these, made once."""
    python = os.path.abspath(os.path.join(venv, "bin", "python"))
    mark = os.path.join(venv, "complete")
    if not os.path.exists(mark):
        print(f"installing {', '.join(requirements)} under {_shown(venv)}", file=sys.stderr)
        pip = [python, "-m", "pip", *_QUIET_INSTALL]
        made = _quietly([sys.executable, "-m", "venv", venv])
        if made is None or _quietly([*pip, *requirements]) is None:
            raise BenchError(f"could not be installed; try: {' '.join([*pip, *requirements])}")
        with open(mark, "w", encoding="ascii"):
            pass
    return python


def _quietly(argv: list[str], env: dict[str, str] | None = None) -> str | None:
    """Return the program's output, or None if it failed."""
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env=env)
    return done.stdout if done.returncode == 0 else None


def _first_line(text: str) -> str:
    return text.strip().splitlines()[0] if text.strip() else ""


def _shown(path: str) -> str:
    """Return a path relative to here, where it is below."""
    relative = os.path.relpath(path)
    return path if relative.startswith("..") else relative
