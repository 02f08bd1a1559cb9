"""Attempts that are forked from warm workers are attempts like any other, whatever becomes of the worker."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from contract.executor_harness import FOREVER, SLOTS, Harness, alive
from stoker.executors.contract import Cold, Cooled, Ended, Launch, Revoked, Started, Warmed
from stoker.supervisor import process_tree
from stoker.warm.command import make_warm
from stoker.warm.messages import read_learned

# Says its number, waits for word, and exits with it.
WAITER = """
import os, sys
print("here", os.getpid(), os.getppid(), flush=True)
with open(sys.argv[1]) as file:
    sys.exit(int(file.read()))
"""

# Says how many threads its imports and OpenBLAS were given, which reads the variable when it is loaded.
THREADS = """
import ctypes, early, numpy, os
with open("/proc/self/maps") as file:
    path = next(line.split()[-1] for line in file if "openblas" in line.rpartition("/")[2])
library = ctypes.CDLL(path)
names = [f"{p}openblas_get_num_threads{s}" for p in ("scipy_", "") for s in ("64_", "", "_64")]
threads = next(getattr(library, name) for name in names if hasattr(library, name))
print(early.SEEN, os.environ["OMP_NUM_THREADS"], threads())
"""

# A module that says who imports it, and waits for word.
TELLER = """
import os
with open("pids", "w") as file:
    file.write(str(os.getpid()))
open("gate").read()
"""


def launch(
    harness: Harness,
    key: str,
    words: list[str],
    *modules: str,
    slots: tuple[int, ...] = (0,),
    learned: Path | None = None,
    env: dict[str, str] | None = None,
    mem_bytes: int = 0,
) -> Path:
    """Launch a python command warm; returns its log."""
    argv = [sys.executable, *words]
    warm = make_warm(argv, list(modules), str(harness.work), str(learned or harness.work.parent))
    assert not isinstance(warm, str), warm
    log = harness.work.parent / f"log-{key}"
    order = Launch(key, slots, argv, str(log), 0, env, warm, mem_bytes=mem_bytes)
    harness.executor.launch([order])
    return log


def script(harness: Harness, text: str, name: str = "script.py") -> str:
    (harness.work / name).write_text(text)
    return name


def fake_torch(harness: Harness, **parts: str) -> None:
    package = harness.work / "torch"
    package.mkdir()
    (package / "__init__.py").write_text("import random as default_generator\nimport torch.cuda\n")
    for name, text in parts.items():
        (package / f"{name}.py").write_text(f"{text}\n")


def use_fake_cuda(harness: Harness, reserved: str, *lines: str) -> Path:
    """Launch a script with a torch that has these bytes reserved on two devices; returns its log."""
    fake_torch(
        harness,
        cuda="used = False\ndef is_initialized(): return used\ndef device_count(): return 2\n"
        f"def max_memory_reserved(device): return {reserved}",
    )
    text = "\n".join(["import sys, torch", *lines])
    return launch(harness, "1.1", [script(harness, text)], "torch")


def worker_of(harness: Harness) -> int:
    harness.until(lambda: harness.of(Warmed))
    return harness.of(Warmed)[-1].pid


def reasons(harness: Harness) -> list[str]:
    return [report.reason for report in harness.of(Cold)]


class TestAFork:
    def test_is_a_child_of_the_supervisor_in_a_session_of_its_own(self, real: Harness) -> None:
        os.mkfifo(real.work / "go")
        launch(real, "1.1", [script(real, WAITER), "go"], "json")
        started = real.started("1.1")

        found = process_tree.find_process(started.pid)
        assert found is not None
        assert found.parent in real.executor.pids  # type: ignore[attr-defined]
        assert found.session == found.group == started.pid
        (real.work / "go").write_text("3")
        assert real.ended("1.1").status == 3 << 8
        assert started.pid != worker_of(real)

    def test_shows_the_cookie_of_its_job_and_not_the_mark_of_the_worker(
        self, real: Harness
    ) -> None:
        os.mkfifo(real.work / "go")
        launch(real, "7.2", [script(real, WAITER), "go"], "json")
        marks = process_tree.read_marks(real.started("7.2").pid)

        assert [cookie.rpartition(":")[2] for cookie in marks.cookies] == ["7.2"]
        assert not marks.is_part
        (real.work / "go").write_text("0")
        real.ended("7.2")

    def test_sees_its_gpus_and_its_number_before_anything_else(self, real: Harness) -> None:
        real.work.joinpath("early.py").write_text(
            "import os\nSEEN = os.environ.get('STOKER_JOB_ID')\n"
        )
        text = """
import early, os
print(early.SEEN, os.environ["CUDA_VISIBLE_DEVICES"], os.environ["STOKER_JOB_ID"])
"""
        log = launch(real, "5.1", [script(real, text)], "json", slots=(1,))
        assert real.ended("5.1").status == 0
        assert log.read_text().split() == ["5", "2,3", "5"]

    def test_has_the_number_of_threads_of_its_environment(self, real: Harness) -> None:
        pytest.importorskip("numpy")
        real.work.joinpath("early.py").write_text(
            "import os\nSEEN = os.environ.get('OMP_NUM_THREADS')\n"
        )
        counts = [str(n) for n in range(1, len(os.sched_getaffinity(0)) + 1)][:2]
        for number, count in enumerate(counts, 1):
            log = launch(
                real,
                f"{number}.1",
                [script(real, THREADS)],
                "early",
                "numpy",
                env={"OMP_NUM_THREADS": count},
            )
            assert real.ended(f"{number}.1").status == 0, log.read_text()
            assert log.read_text().split() == [count] * 3
        assert reasons(real) == []

    def test_sees_its_gpus_also_where_an_import_has_chosen_some(self, real: Harness) -> None:
        (real.work / "chooser.py").write_text(
            "import os\nos.environ.setdefault('CUDA_VISIBLE_DEVICES', '0')\n"
        )
        text = "import chooser, os\nprint(os.environ['CUDA_VISIBLE_DEVICES'])\n"
        log = launch(real, "5.1", [script(real, text)], "chooser", slots=(1,))
        assert real.ended("5.1").status == 0
        assert log.read_text() == "2,3\n"
        assert reasons(real) == []

    def test_keeps_the_leases_of_its_gpus(self, real: Harness) -> None:
        os.mkfifo(real.work / "go")
        launch(real, "1.1", [script(real, WAITER), "go"], "json", slots=(1,))
        pid = real.started("1.1").pid

        held = [os.readlink(f"/proc/{pid}/fd/{200 + n}") for n in range(len(SLOTS[1].keys))]
        assert all(os.path.basename(path) for path in held)
        assert not os.path.exists(f"/proc/{pid}/fd/{200 + len(held)}")
        (real.work / "go").write_text("0")
        real.ended("1.1")

    def test_is_killed_with_all_that_it_has_started(self, real: Harness) -> None:
        text = """
import os, subprocess, sys, time
child = subprocess.Popen(["sleep", "600"], start_new_session=True)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(600)
    os._exit(0)
print(child.pid, flush=True)
time.sleep(600)
"""
        log = launch(real, "1.1", [script(real, text)], "json")
        real.until(lambda: log.exists() and log.read_text().endswith("\n"))
        tree = [real.started("1.1").pid, int(log.read_text())]
        real.executor.kill("1.1")

        assert real.ended("1.1").status == signal.SIGKILL
        real.until(lambda: not alive(tree))

    def test_that_waits_for_its_worker_can_be_revoked(self, real: Harness) -> None:
        os.mkfifo(real.work / "gate")
        (real.work / "slow.py").write_text("open('gate').read()\n")
        launch(real, "1.1", [script(real, "print(1)")], "slow")
        real.reach()
        real.executor.revoke("1.1")
        real.until(lambda: real.of(Revoked))
        real.sh("2.1", "exit 4")

        assert real.ended("2.1").status == 4 << 8
        (real.work / "gate").write_text("go")
        worker_of(real)
        assert not [report for report in real.of(Started) if report.key == "1.1"]

    def test_starts_while_its_worker_is_still_importing_for_others(self, real: Harness) -> None:
        os.mkfifo(real.work / "gate")
        (real.work / "slow.py").write_text("open('gate').read()\n")
        launch(real, "1.1", [script(real, "print(1)")], "slow")
        real.sh("2.1", "exit 0", 1)

        assert real.ended("2.1").status == 0
        (real.work / "gate").write_text("go")
        assert real.ended("1.1").status == 0

    def test_writes_what_its_imports_would_have_written(self, real: Harness) -> None:
        (real.work / "chatty.py").write_text(
            "import os\nprint('hello')\nos.environ['MADE'] = 'yes'\n"
        )
        name = script(real, "import chatty, os\nprint(os.environ['MADE'])\n")
        for key in ("1.1", "2.1"):
            log = launch(real, key, [name], "chatty")
            assert real.ended(key).status == 0
            assert log.read_text() == "hello\nyes\n"


class TestAWorker:
    def test_is_used_again(self, real: Harness) -> None:
        name = script(real, "import os\nprint(os.getppid())")
        for key in ("1.1", "2.1", "3.1"):
            launch(real, key, [name], "json")
            real.ended(key)
        assert len(real.of(Warmed)) == 1
        assert reasons(real) == []

    def test_that_is_killed_harms_no_job_and_is_replaced(self, real: Harness) -> None:
        """Four children train; their exit codes are known, and the next job has a new worker."""
        keys = [f"{number}.1" for number in range(1, 5)]
        name = script(real, WAITER)
        for number, key in enumerate(keys):
            os.mkfifo(real.work / f"go-{key}")
            launch(real, key, [name, f"go-{key}"], "json", slots=())
            real.started(key)
            assert number < 4
        first = worker_of(real)
        os.kill(first, signal.SIGKILL)
        real.until(lambda: Cooled(first) in real.reports)

        for number, key in enumerate(keys):
            (real.work / f"go-{key}").write_text(str(number))
            assert real.ended(key).status == number << 8
        launch(real, "9.1", [script(real, "pass", "next.py")], "json")
        assert real.ended("9.1").status == 0
        assert worker_of(real) != first
        assert reasons(real) == []

    def test_serves_jobs_that_differ_only_in_stokers_variables(self, real: Harness) -> None:
        name = script(real, "import os, sys\nsys.exit(int(os.environ.get('STOKER_RUN', 7)))")
        for key, env, code in (("1.1", {"STOKER_RUN": "3"}, 3), ("2.1", None, 7)):
            launch(real, key, [name], "json", env=env)
            assert real.ended(key).status == code << 8
        assert len(real.of(Warmed)) == 1

        launch(real, "3.1", [name], "json", env={"OTHER": "1"})
        assert real.ended("3.1").status == 7 << 8
        assert len(real.of(Warmed)) == 2

    def test_that_is_killed_while_it_imports_is_replaced(self, real: Harness) -> None:
        for name in ("pids", "gate"):
            os.mkfifo(real.work / name)
        (real.work / "slow.py").write_text(TELLER)
        log = launch(real, "1.1", [script(real, "print('ran')")], "slow")
        os.kill(int((real.work / "pids").read_text()), signal.SIGKILL)
        second = int((real.work / "pids").read_text())
        (real.work / "gate").write_text("go")

        assert real.ended("1.1").status == 0
        assert log.read_text() == "ran\n"
        assert worker_of(real) == second
        assert reasons(real) == []

    def test_that_is_killed_each_time_it_imports_lets_its_job_start_cold(
        self, real: Harness
    ) -> None:
        for name in ("pids", "gate"):
            os.mkfifo(real.work / name)
        (real.work / "slow.py").write_text(TELLER)
        log = launch(real, "1.1", [script(real, "print('ran')")], "slow")
        for _ in range(3):
            os.kill(int((real.work / "pids").read_text()), signal.SIGKILL)

        assert real.ended("1.1").status == 0
        assert log.read_text() == "ran\n"
        assert reasons(real) == ["its warm worker was killed while it imported"]

    def test_whose_source_is_saved_while_it_imports_is_replaced(self, real: Harness) -> None:
        for name in ("pids", "gate"):
            os.mkfifo(real.work / name)
        (real.work / "slow.py").write_text(TELLER)
        (real.work / "model.py").write_text("SIZE = 1\n")
        log = launch(
            real, "1.1", [script(real, "import model\nprint(model.SIZE)")], "model", "slow"
        )
        first = (real.work / "pids").read_text()
        (real.work / "model.py").write_text("SIZE = 1024\n")
        (real.work / "gate").write_text("go")
        assert (real.work / "pids").read_text() != first
        (real.work / "gate").write_text("go")

        assert real.ended("1.1").status == 0
        assert log.read_text() == "1024\n"
        assert reasons(real) == []

    def test_whose_module_changes_at_each_import_is_given_up(self, real: Harness) -> None:
        (real.work / "restless.py").write_text(
            "import os, time\nos.utime(__file__, ns=(0, time.time_ns()))\n"
        )
        log = launch(real, "1.1", [script(real, "print('ran')")], "restless")
        assert real.ended("1.1").status == 0
        assert log.read_text() == "ran\n"
        assert reasons(real) == ["its modules change each time they are imported"]

    def test_without_its_module_is_reported_and_the_job_runs_cold(self, real: Harness) -> None:
        log = launch(real, "1.1", [script(real, "print('ran')")], "no_such_module")
        assert real.ended("1.1").status == 0
        assert log.read_text() == "ran\n"
        assert reasons(real) == [
            "import no_such_module: ModuleNotFoundError: No module named 'no_such_module'"
        ]

    def test_whose_module_raises_is_reported_and_the_job_runs_cold(self, real: Harness) -> None:
        (real.work / "broken.py").write_text("raise SystemExit('not today')\n")
        launch(real, "1.1", [script(real, "import sys\nsys.exit(5)")], "broken")
        assert real.ended("1.1").status == 5 << 8
        assert reasons(real) == ["import broken: SystemExit: not today"]

    def test_whose_module_starts_threads_is_not_forked_from(self, real: Harness) -> None:
        (real.work / "busy.py").write_text(
            "import threading, time\nthreading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n"
        )
        log = launch(
            real, "1.1", [script(real, "import busy\nprint(busy.threading.active_count())")], "busy"
        )
        assert real.ended("1.1").status == 0
        assert log.read_text() == "2\n"
        assert reasons(real) == ["import busy: it started threads, which a fork would not have"]

    def test_whose_module_starts_cuda_is_not_forked_from(self, real: Harness) -> None:
        fake_torch(real, cuda="def is_initialized(): return True")
        log = launch(real, "1.1", [script(real, "import torch\nprint('ran')")], "torch")
        assert real.ended("1.1").status == 0
        assert log.read_text() == "ran\n"
        assert reasons(real) == [
            "import torch: it has initialised CUDA, which a fork could not use"
        ]

    def test_whose_module_opens_the_gpu_is_not_forked_from(self, real: Harness) -> None:
        # A file cannot be made to lie in /dev: the module lets it seem so.
        (real.work / "opener.py").write_text(
            "import os\nos.readlink = lambda path, read=os.readlink:"
            " read(path).replace('/dev/null', '/dev/nvidia0')\n"
        )
        log = launch(real, "1.1", [script(real, "print('ran')")], "opener")
        assert real.ended("1.1").status == 0
        assert log.read_text() == "ran\n"
        assert reasons(real) == ["import opener: it has opened the GPU, which a fork could not use"]

    def test_has_imported_what_trainings_import_of_torch_late(self, real: Harness) -> None:
        fake_torch(real, cuda="def is_initialized(): return False", _dynamo="", optim="")
        text = "import sys\nprint(*sorted(name for name in sys.modules if 'torch' in name))"
        log = launch(real, "1.1", [script(real, text)], "torch")
        assert real.ended("1.1").status == 0
        assert log.read_text() == "torch torch._dynamo torch.cuda torch.optim\n"
        assert reasons(real) == []

    def test_is_replaced_when_a_file_that_it_has_imported_changes(self, real: Harness) -> None:
        name = script(real, "import model\nprint(model.SIZE)")
        for key, size in (("1.1", "1"), ("2.1", "1024")):
            (real.work / "model.py").write_text(f"SIZE = {size}\n")
            log = launch(real, key, [name], "model")
            real.ended(key)
            assert log.read_text() == f"{size}\n"
        assert len(real.of(Warmed)) == 2

    def test_is_another_for_another_environment(self, real: Harness, surroundings: Path) -> None:
        env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(surroundings)}
        real.executor.define_context(5, env, str(surroundings), "/bin/sh")
        argv = [sys.executable, script(real, "import os\nprint(os.environ.get('PYTHONPATH'))")]
        warm = make_warm(argv, ["json"], str(surroundings), "")
        assert not isinstance(warm, str)
        logs = [surroundings.parent / "first", surroundings.parent / "second"]
        for key, context, log in (("1.1", 0, logs[0]), ("2.1", 5, logs[1])):
            real.executor.launch([Launch(key, (0,), argv, str(log), context, None, warm)])
            real.ended(key)
        assert [log.read_text() for log in logs] == ["None\n", f"{surroundings}\n"]
        assert len(real.of(Warmed)) == 2

    def test_ends_with_its_supervisor(self, kept: Harness) -> None:
        launch(kept, "1.1", [script(kept, "pass")], "json")
        kept.ended("1.1")
        worker = worker_of(kept)
        os.kill(kept.executor.pids[0], signal.SIGKILL)  # type: ignore[attr-defined]
        kept.until(lambda: not alive([worker]))

    def test_learns_what_the_first_run_imports(self, real: Harness) -> None:
        folder = real.work.parent / "learned"
        text = "import sys\nprint('csv' in sys.modules)\nimport csv\nimport helper\n"
        (real.work / "helper.py").write_text("")
        name = script(real, text)
        seen = []
        for key in ("1.1", "2.1"):
            log = launch(real, key, [name], "auto", learned=folder)
            assert real.ended(key).status == 0
            seen.append(log.read_text())
        assert seen == ["False\n", "True\n"]
        (file,) = folder.iterdir()
        learned = read_learned(str(file))
        assert "csv" in learned["modules"]
        assert "helper" not in learned["modules"]
        assert [stamp[0] for stamp in learned["sources"]] == [str(real.work / "helper.py")]

    @pytest.mark.parametrize(
        "setting",
        [
            "os.environ['OMP_NUM_THREADS'] = '4'",
            "os.environ.update(OMP_NUM_THREADS='4')",
            "os.environ.setdefault('OMP_NUM_THREADS', '4')",
            "os.putenv('OMP_NUM_THREADS', '4')",
            "import settings",
        ],
    )
    def test_learns_nothing_from_a_run_that_sets_variables_before_its_imports(
        self, real: Harness, setting: str
    ) -> None:
        folder = real.work.parent / "learned"
        (real.work / "settings.py").write_text("import os\nos.environ['OMP_NUM_THREADS'] = '4'\n")
        words = [script(real, f"import os\n{setting}\nimport xml.dom.minidom\n")]
        launch(real, "1.1", words, "auto", learned=folder)
        assert real.ended("1.1").status == 0

        argv = [sys.executable, *words]
        why = make_warm(argv, ["auto"], str(real.work), str(folder))
        assert why == "it sets OMP_NUM_THREADS before it imports xml, which would not see it"
        named = make_warm(argv, ["auto", "json"], str(real.work), str(folder))
        assert not isinstance(named, str)
        assert (named.modules, named.learned, named.learn) == (["json"], None, None)

    @pytest.mark.parametrize(
        "text",
        [
            "import xml.dom.minidom\nos.environ['LATE'] = '1'\n",
            "os.environ['PATH'] = os.environ['PATH']\nimport xml.dom.minidom\n",
            "os.environ.pop('ABSENT', None)\nimport xml.dom.minidom\n",
        ],
    )
    def test_learns_of_imports_that_a_run_s_variables_cannot_matter_to(
        self, real: Harness, text: str
    ) -> None:
        folder = real.work.parent / "learned"
        words = [script(real, f"import os\n{text}")]
        launch(real, "1.1", words, "auto", learned=folder)
        assert real.ended("1.1").status == 0
        (file,) = folder.iterdir()
        found = make_warm([sys.executable, *words], ["auto"], str(real.work), str(folder))
        assert not isinstance(found, str)
        assert found.learned == str(file)

    def test_learns_nothing_from_a_run_that_fails(self, real: Harness) -> None:
        folder = real.work.parent / "learned"
        launch(real, "1.1", [script(real, "import csv\nraise ValueError")], "auto", learned=folder)
        assert real.ended("1.1").status == 1 << 8
        assert list(folder.iterdir()) == []


class TestGpuMemory:
    def test_is_reported_by_a_job_that_has_used_torch_with_cuda(self, real: Harness) -> None:
        use_fake_cuda(real, "[3 << 30, 5][device]", "torch.cuda.used = True")
        assert real.ended("1.1").gpu_peak_bytes == (3 << 30) + 5

    def test_is_reported_by_a_job_that_fails_too(self, real: Harness) -> None:
        use_fake_cuda(real, "4 << 30", "torch.cuda.used = True", "sys.exit(3)")
        ended = real.ended("1.1")
        assert (ended.status, ended.gpu_peak_bytes) == (3 << 8, 8 << 30)

    def test_is_not_reported_without_cuda(self, real: Harness) -> None:
        log = use_fake_cuda(real, "print('asked') or 1")
        ended = real.ended("1.1")
        assert (ended.status, ended.gpu_peak_bytes, log.read_text()) == (0, 0, "")

    def test_is_not_reported_without_torch(self, real: Harness) -> None:
        (real.work / "torch.py").write_text("print('imported')\n")
        log = launch(real, "1.1", [script(real, "import json")], "json")
        ended = real.ended("1.1")
        assert (ended.status, ended.gpu_peak_bytes, log.read_text()) == (0, 0, "")

    @pytest.mark.parametrize(
        "reserved",
        ["-5", "1 << 60", "float('nan')", "float('inf')", "'text'", "None", "sys.exit(7)", "1 / 0"],
    )
    def test_that_cannot_be_changes_nothing(self, real: Harness, reserved: str) -> None:
        log = use_fake_cuda(real, reserved, "torch.cuda.used = True", "torch.cuda.sys = sys")
        ended = real.ended("1.1")
        assert (ended.status, ended.gpu_peak_bytes, log.read_text()) == (0, 0, "")

    def test_of_processes_that_a_job_forks_is_not_its_own(self, real: Harness) -> None:
        lines = ("import os", "torch.cuda.used = os.fork() == 0", "torch.cuda.used or os.wait()")
        use_fake_cuda(real, "1 << 30", *lines)
        assert real.ended("1.1").gpu_peak_bytes == 0


class TestAfterADeath:
    def test_the_next_client_gets_the_end_of_a_fork_and_its_worker_reported(
        self, kept: Harness
    ) -> None:
        os.mkfifo(kept.work / "go")
        launch(kept, "1.1", [script(kept, WAITER), "go"], "json")
        pid = kept.started("1.1").pid
        synced = kept.reconnect()

        assert synced.keys == {"1.1"}
        assert kept.started("1.1").pid == pid
        worker_of(kept)
        (kept.work / "go").write_text("6")
        assert kept.ended("1.1").status == 6 << 8

    def test_a_fork_outlives_its_supervisor_and_is_found_by_the_next(self, kept: Harness) -> None:
        os.mkfifo(kept.work / "go")
        launch(kept, "1.1", [script(kept, WAITER), "go"], "json")
        pid = kept.started("1.1").pid
        os.kill(kept.executor.pids[0], signal.SIGKILL)  # type: ignore[attr-defined]
        kept.reports.clear()

        assert kept.started("1.1").pid == pid
        kept.executor.kill("1.1")
        kept.until(lambda: not alive([pid]))

    def test_an_attempt_that_waits_for_its_worker_was_never_started(self, kept: Harness) -> None:
        os.mkfifo(kept.work / "gate")
        (kept.work / "slow.py").write_text("open('gate').read()\n")
        kept.sh("2.1", FOREVER, 1)
        kept.started("2.1")
        launch(kept, "1.1", [script(kept, "print(1)")], "slow")
        kept.reach()
        assert kept.reconnect().keys == {"2.1"}
        (kept.work / "gate").write_text("go")
        worker_of(kept)
        assert not kept.of(Ended)

    def test_nothing_is_left_when_the_client_is_gone(self, local: Harness) -> None:
        launch(local, "1.1", [script(local, "import time\ntime.sleep(600)")], "json")
        pids = [local.started("1.1").pid, worker_of(local)]
        local.executor.close()
        local.until_quietly(lambda: not alive(pids))


@pytest.mark.parametrize("text", [FOREVER, "exit 3"])
def test_a_cold_attempt_beside_warm_ones_is_separate(real: Harness, text: str) -> None:
    launch(real, "1.1", [script(real, "pass")], "json")
    real.sh("2.1", text, 1)
    real.ended("1.1")
    real.started("2.1")
    real.executor.kill("2.1")
    assert real.ended("2.1").status in (3 << 8, signal.SIGKILL)
    assert reasons(real) == []
