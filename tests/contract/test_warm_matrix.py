"""The same scripts, cold and warm: whatever can be seen of them is the same."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator

import pytest

from contract.executor_harness import Harness, local_executor, occupy_for_real, put_away
from stoker.executors.contract import Cold, Ended, Launch
from stoker.warm.command import make_warm

# An interpreter with numpy, matplotlib and torch, for what needs them.
LAB = os.environ.get("STOKER_WARM_PYTHON", "")

SCRIPTS = {
    "surroundings": """
import os, resource, signal, sys
print(sys.argv, sys.orig_argv, __name__, __file__, __spec__, __package__, __doc__)
print(type(__loader__), __loader__.name, __loader__.path, sorted(globals()), __builtins__)
print(sys.path, sys.flags, sys.warnoptions, sys.executable, sys.prefix, sys.base_prefix)
print(os.getcwd(), os.umask(0o22), os.getpgid(0) == os.getpid(), os.nice(0))
print([signal.getsignal(number) for number in signal.valid_signals()], signal.pthread_sigmask(0, []))
print([resource.getrlimit(number) for number in range(16)])
print(sorted(os.environ.items()))
for stream in (sys.stdin, sys.stdout, sys.stderr):
    print(stream.name, stream.mode, stream.encoding, stream.errors, stream.newlines)
    print(stream.line_buffering, stream.write_through, stream.fileno(), stream.isatty())
    print(stream.buffer, stream is getattr(sys, f"__{stream.name[1:-1]}__"), stream.seekable())
print(os.readlink("/proc/self/fd/0"), sorted(os.listdir("/proc/self/fd")))
with open("/proc/self/cmdline") as file:
    print(file.read().rstrip(chr(0)).split(chr(0)))
with open("/proc/self/comm") as file:
    print(file.read())
""",
    "imports": """
import helper, json
print(helper.__file__, helper.ANSWER, json.dumps({}), sorted(n for n in dir() if n[0] != "_"))
""",
    "chained traceback": """
def inner():
    raise ValueError("inner")
def outer():
    try:
        inner()
    except ValueError as error:
        raise RuntimeError("outer") from error
outer()
""",
    "exception group": """
import builtins
if hasattr(builtins, "ExceptionGroup"):
    raise ExceptionGroup("several", [ValueError(1), TypeError("two")])
raise KeyError(1)
""",
    "syntax error": "x = (1,\nprint(2)\n",
    "failing import": "import helper_that_fails\n",
    "missing import": "import json\nimport no_such_module_at_all\n",
    "own excepthook": """
import sys
sys.excepthook = lambda kind, value, trace: print("hook", kind, value, trace.tb_lineno, trace.tb_next)
raise OSError(5, "gone")
""",
    "caught frames": """
import sys, traceback
try:
    1 / 0
except ZeroDivisionError:
    traceback.print_exc()
    print(sys.exc_info()[2].tb_frame.f_code.co_name)
""",
    "keyboard interrupt": """
import os, signal
print("now", flush=True)
os.kill(os.getpid(), signal.SIGINT)
""",
    "terminated": "import os, signal\nos.kill(os.getpid(), signal.SIGTERM)\n",
    "killed": "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n",
    "aborted": "import os\nos.abort()\n",
    "own signal handler": """
import signal, os, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(9))
os.kill(os.getpid(), signal.SIGTERM)
""",
    "exit codes in order": "import sys\nsys.exit(int(sys.argv[1]) if len(sys.argv) > 1 else None)\n",
    "exit with text": "import sys\nprint('out')\nsys.exit('a reason')\n",
    "exit with an object": "import sys\nsys.exit([1, 2])\n",
    "exit beyond a byte": "import sys\nsys.exit(256 + 7)\n",
    "negative exit": "import sys\nsys.exit(-1)\n",
    "hard exit": "import os\nprint('lost')\nos._exit(7)\n",
    "exit in a thread": """
import threading, sys
thread = threading.Thread(target=lambda: sys.exit(3))
thread.start()
""",
    "at exit": """
import atexit, sys
class Late:
    def __init__(self, name): self.name = name
    def __del__(self): print("del", self.name, __name__, sys is not None)
kept = Late("global")
atexit.register(print, "first")
atexit.register(print, "second")
atexit.register(lambda: 1 / 0)
cycle = Late("cycle"); cycle.self = cycle
print("main is over")
""",
    "open file at exit": """
file = open("left-open.txt", "w"); file.write("written late")
again = open("left-open.bin", "wb"); again.write(b"and this"); again.extra = file
import sys
sys.kept_by_another_module = open("left-elsewhere.txt", "w")
sys.kept_by_another_module.write("too")
""",
    "threads at exit": """
import threading, time
told = threading.Event()
def work(): told.wait(); time.sleep(0.05); print("thread is over")
threading.Thread(target=work).start()
threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
print("main is over", threading.active_count(), threading.main_thread().name)
told.set()
""",
    "output in order": """
import os, sys
print("buffered"); sys.stderr.write("err\\n"); os.write(1, b"direct\\n"); print("end", end="")
""",
    "c output": """
import ctypes
ctypes.CDLL(None).printf(b"from c\\n")
""",
    "logging": """
import logging
logging.warning("careful %s", 1)
logging.basicConfig(format="%(levelname)s %(process)d"[:13]); logging.error("bad")
assert 0 <= logging.makeLogRecord({}).relativeCreated < 60_000
""",
    "warnings": "import warnings\nwarnings.warn('old', DeprecationWarning)\nwarnings.warn('hm')\n",
    "argparse": """
import argparse
parser = argparse.ArgumentParser(); parser.add_argument("--lr", type=float, required=True)
parser.parse_args()
""",
    "forking": """
import os, sys
child = os.fork()
if child == 0:
    print("child", flush=True); os._exit(4)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
child = os.fork()
if child == 0:
    sys.exit(5)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
""",
    "subprocess": """
import subprocess, sys
words = [sys.executable, "-c", "import os; print(sorted(os.environ))"]
print(subprocess.run(words, capture_output=True, text=True))
""",
    "multiprocessing": """
import multiprocessing as mp, sys, os
def square(x):
    return x * x, __name__, mp.current_process().name, sys.argv
if __name__ == "__main__":
    for method in ("fork", "spawn", "forkserver"):
        with mp.get_context(method).Pool(1) as pool:
            print(method, pool.map(square, [1, 2]))
    print(mp.current_process(), mp.parent_process())
""",
    "process pool": """
from concurrent.futures import ProcessPoolExecutor
import multiprocessing
def cube(x):
    return x ** 3
if __name__ == "__main__":
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        print(list(pool.map(cube, range(3))))
""",
    "asyncio": """
import asyncio
async def main():
    process = await asyncio.create_subprocess_exec("true")
    print(await process.wait(), await asyncio.to_thread(lambda: 7))
asyncio.run(main())
""",
    "pickling": """
import pickle
class Thing: pass
print(pickle.dumps(Thing()), pickle.loads(pickle.dumps(Thing())).__class__ is Thing)
""",
    "dataclasses and typing": """
from dataclasses import dataclass
import typing
@dataclass
class Point:
    x: "int" = 1
note: int = 3
print(Point(), typing.get_type_hints(Point), __annotations__)
""",
    "odd bytes": "# -*- coding: latin-1 -*-\nprint(ascii('\\xe9'))\n",
    "nothing": "",
}
LAB_SCRIPTS = {
    "numpy": """
import numpy
numpy.random.seed(1)
print(numpy.random.rand(3), numpy.ones((300, 300)) @ numpy.ones((300, 300)))
""",
    "matplotlib": """
import matplotlib, matplotlib.pyplot as plt
print(matplotlib.get_backend()); plt.plot([1, 2]); plt.savefig("plot.png")
with open("plot.png", "rb") as file: print(len(file.read()))
""",
    "torch": """
import torch
torch.manual_seed(0)
x = torch.randn(64, 64, requires_grad=True)
(x @ x).sum().backward()
print(x.grad.sum().item(), torch.get_num_threads(), torch.cuda.is_available())
""",
    "data loader": """
import torch
from torch.utils.data import DataLoader, TensorDataset
if __name__ == "__main__":
    data = TensorDataset(torch.arange(8.0))
    for method in ("fork", "spawn"):
        loader = DataLoader(data, batch_size=4, num_workers=2, multiprocessing_context=method)
        print([batch[0].tolist() for batch in loader])
""",
    "cuda error": "import torch\ntorch.zeros(1, device='cuda')\n",
}
MODULES = {
    "helper.py": "ANSWER = 42\n",
    "helper_that_fails.py": "def go():\n    raise LookupError('at import')\ngo()\n",
    "tool/__init__.py": "print('package', __name__)\n",
    "tool/__main__.py": """
import sys
print(sys.argv, __name__, __file__, __package__, __spec__.name, sys.path[0])
1 / 0
""",
    "solo.py": "import sys\nprint(sys.argv, __name__, __file__, __spec__.name)\nsys.exit(6)\n",
}


class Pair:
    """Runs words cold and warm on one executor, and compares."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self.count = 0

    def see(self, words: list[str], modules: list[str] | None) -> tuple[int, str]:
        self.count += 1
        key = f"{self.count}.1"
        log = self.harness.work.parent / f"log-{self.count}"
        warm = None
        if modules is not None:
            found = make_warm(words, modules, str(self.harness.work), "")
            assert not isinstance(found, str), found
            warm = found
        self.harness.executor.launch([Launch(key, (0,), words, str(log), 0, None, warm)])
        self.harness.until(lambda: any(each.key == key for each in self.harness.of(Ended)), 60)
        text = log.read_text()
        # What differs between any two runs: numbers of jobs and processes, and places in memory.
        text = text.replace(f":{key}", ":KEY").replace(f"_JOB_ID', '{self.count}'", "JOB")
        return self.harness.ended(key).status, re.sub(
            r"0x[0-9a-f]+|\bpid=\d+|:\d+: Deprec", "#", text
        )

    def check(self, words: list[str], modules: list[str]) -> None:
        cold, warm = self.see(words, None), self.see(words, modules)
        assert [each.reason for each in self.harness.of(Cold)] == []
        assert warm == cold


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    folder = tmp_path_factory.mktemp("matrix")
    work = folder / "work"
    (work / "tool").mkdir(parents=True)
    for name, text in MODULES.items():
        (work / name).write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STOKER_LEASE_DIR", str(folder / "leases"))
        patch.delenv("STOKER_COOKIE", raising=False)
        harness = Harness(local_executor(work, single=True), work, occupy_for_real)
        try:
            harness.hold_all()
            yield Pair(harness)
        finally:
            put_away(harness.executor)


def write(pair: Pair, text: str) -> str:
    path = pair.harness.work / "script.py"
    path.write_text(text)
    return path.name


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_cannot_tell_how_it_was_started(pair: Pair, name: str) -> None:
    pair.check(
        [sys.executable, write(pair, SCRIPTS[name]), "3", "an argument"], ["json", "argparse"]
    )


@pytest.mark.parametrize("option", ["-u", "-O", "-I", "-Bs", "-E"])
def test_options_of_the_interpreter_hold(pair: Pair, option: str) -> None:
    text = SCRIPTS["surroundings"] + "\nassert False, 'asserts count'"
    pair.check([sys.executable, option, write(pair, text)], ["json"])


def test_unbuffered_output_is_unbuffered(pair: Pair) -> None:
    pair.check([sys.executable, "-u", write(pair, SCRIPTS["output in order"])], ["json"])


@pytest.mark.parametrize(
    "words", [["tool", "a", "b"], ["solo"], ["no_such"], ["json.no_such"], ["helper"]]
)
def test_a_module_cannot_tell_how_it_was_started(pair: Pair, words: list[str]) -> None:
    pair.check([sys.executable, "-m", *words], ["json"])


@pytest.mark.parametrize(
    "text",
    [
        "import sys, os; print(sys.argv, sys.path, __name__, sorted(globals()), sys.orig_argv)",
        "import helper\n1 / 0",
        "print(1",
        "import sys; print('out'); sys.exit('text')",
    ],
)
def test_a_program_on_the_command_line_cannot_tell_how_it_was_started(
    pair: Pair, text: str
) -> None:
    pair.check([sys.executable, "-u", "-c", text, "an argument"], ["json"])


def test_the_interpreter_reports_a_missing_script(pair: Pair) -> None:
    pair.check([sys.executable, "nowhere.py", "x"], ["json"])


def test_a_script_in_another_folder_finds_its_neighbours(pair: Pair) -> None:
    folder = pair.harness.work / "below"
    folder.mkdir(exist_ok=True)
    (folder / "neighbour.py").write_text("print(__file__)\n")
    (folder / "go.py").write_text("import neighbour, sys\nprint(sys.path, __file__, sys.argv)\n")
    (pair.harness.work / "link.py").unlink(missing_ok=True)
    (pair.harness.work / "link.py").symlink_to("below/go.py")
    pair.check([sys.executable, "below/go.py"], ["json"])
    pair.check([sys.executable, "./link.py"], ["json"])


def test_files_left_open_are_written(pair: Pair) -> None:
    pair.check([sys.executable, write(pair, SCRIPTS["open file at exit"])], ["json"])

    work = pair.harness.work
    assert (work / "left-open.txt").read_text() == "written late"
    assert (work / "left-open.bin").read_bytes() == b"and this"
    assert (work / "left-elsewhere.txt").read_text() == "too"


def test_output_without_a_reader_fails_the_job(pair: Pair) -> None:
    words = [sys.executable, write(pair, "print('x' * 100)\n")]
    warm = make_warm(words, ["json"], str(pair.harness.work), "")
    assert not isinstance(warm, str)
    launches = [
        Launch("900.1", (0,), words, "/dev/full"),
        Launch("901.1", (0,), words, "/dev/full", 0, None, warm),
    ]
    for launch in launches:
        pair.harness.executor.launch([launch])
        assert pair.harness.ended(launch.key).status == 120 << 8


def test_no_two_runs_draw_the_same_numbers(pair: Pair) -> None:
    words = [
        sys.executable,
        write(pair, "import random, uuid\nprint(random.random(), uuid.uuid4())\n"),
    ]
    assert pair.see(words, ["random"]) != pair.see(words, ["random"])


@pytest.mark.skipif(
    not LAB, reason="STOKER_WARM_PYTHON names no interpreter with torch and matplotlib"
)
@pytest.mark.parametrize("name", LAB_SCRIPTS)
def test_large_libraries_cannot_tell_how_they_were_started(pair: Pair, name: str) -> None:
    modules = ["numpy", "matplotlib.pyplot", "torch"]
    pair.check([LAB, write(pair, LAB_SCRIPTS[name])], modules)


@pytest.mark.skipif(
    not LAB, reason="STOKER_WARM_PYTHON names no interpreter with torch and matplotlib"
)
def test_large_libraries_draw_numbers_of_their_own(pair: Pair) -> None:
    words = [
        LAB,
        write(
            pair, "import numpy, torch\nprint(numpy.random.rand())\nprint(torch.rand(1).item())\n"
        ),
    ]
    _status, first = pair.see(words, ["numpy", "torch"])
    _status, second = pair.see(words, ["numpy", "torch"])
    assert not set(first.splitlines()) & set(second.splitlines())
