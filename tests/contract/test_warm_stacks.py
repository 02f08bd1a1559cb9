"""Libraries that start threads at their import: forks have the same threads, or the library is left out."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from contract.executor_harness import Harness
from contract.test_executor_warm import reasons, script
from stoker.executors.contract import Cooled, Ended, Launch, PartlyWarm, Warmed
from stoker.warm.command import make_warm
from stoker.warm.import_settings import TABLE, count_openblas_threads

CONTEXT = 5
# A C thread that stays, as those of jemalloc.
C_THREAD = """
import ctypes
libc = ctypes.CDLL(None)
libc.pthread_create(ctypes.byref(ctypes.c_ulong()), None, ctypes.cast(libc.pause, ctypes.c_void_p), None)
"""
PYTHON_THREAD = """
import threading, time
threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
"""
# Slow in a job; in a worker it says who imports it, and waits.
HELD = """
import os, time
time.sleep(0.6)
if not os.environ.get("STOKER_JOB_ID"):
    with open("pid", "w") as file:
        file.write(str(os.getpid()))
    open("gate").read()
"""
SLOW_START = """
import importlib, os, sys
print("starter" in sys.modules, flush=True)
for name in ["starter", "quiet_one"]:
    importlib.import_module(name)
with open("go-" + os.environ["STOKER_JOB_ID"]) as file:
    sys.exit(int(file.read()))
"""
SEEN = """
import os, sys
print("early", *sorted({"starter", "needs_it", "quiet_one"} & set(sys.modules)))
"""
STATE = """
import os, subprocess
print(sorted(os.environ.items()), subprocess.check_output("env | sort", shell=True).decode())
names = [open(f"/proc/self/task/{task}/comm").read().strip() for task in os.listdir("/proc/self/task")]
print("threads", len(names) - names.count("jemalloc_bg_thd"))  # docs/explanation/warm.md: a fork has none
"""
# What a stack imports, and what it computes: the same, cold and warm.
LIGHT = {
    "numpy": "import numpy\nprint(numpy.linalg.eigvalsh(numpy.eye(64) * 3).sum())",
}
HEAVY = {
    "scipy": "import numpy, scipy.linalg\nprint(scipy.linalg.det(numpy.eye(64) * 2) == 2.0**64)",
    "pyarrow": "import pyarrow\nprint(pyarrow.array(range(9)).sum(), pyarrow.table({'a': [1]}).to_pylist())",
    "pandas": "import pandas\nprint(pandas.DataFrame({'a': [1, 2]}).groupby('a').size().to_dict())",
    "numexpr": "import numexpr\nprint(numexpr.evaluate('2 * 3'), numexpr.get_num_threads())",
    "sklearn": "from sklearn.linear_model import Ridge\nprint(Ridge().fit([[1], [2]], [1, 2]).coef_)",
    "torch": "import torch\nfrom torch.utils.data import DataLoader\ntorch.manual_seed(0)\n"
    "m = torch.nn.Linear(4, 1)\no = torch.optim.AdamW(m.parameters())\n"
    "for row in DataLoader(torch.randn(64, 4), batch_size=8, num_workers=2):\n"
    "    m(row).square().mean().backward()\n    o.step()\nprint(m.weight, torch.get_num_threads())",
    "torchvision": "import torch, torchvision\nprint(torchvision.ops.nms(torch.eye(4), torch.ones(4), 0.5))",
    "transformers": "import datasets, pandas, pyarrow, scipy.stats, sklearn.metrics, torch\n"
    "from transformers import GPT2Config, GPT2LMHeadModel as M\n"
    "torch.manual_seed(0)\nm = M(GPT2Config(n_layer=1, n_embd=32, n_head=2, vocab_size=64))\n"
    "print(m(torch.arange(8)[None]).logits.sum().item(), torch.get_num_threads())",
    "datasets": "import datasets\nprint(datasets.Dataset.from_dict({'a': [1, 2]}).to_list())",
    "pytorch_lightning": "import pytorch_lightning as pl\nfrom pytorch_lightning.demos.boring_classes import "
    "BoringModel\nprint(pl.seed_everything(3))\nm = BoringModel()\npl.Trainer(max_steps=3, logger=False, "
    "enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False).fit(m)\n"
    "print(m.layer.weight.sum().item())",
    "jax": "import jax\nimport jax.numpy as np\n"
    "print(jax.jit(jax.grad(lambda x: (x @ x).sum()))(np.arange(16.0).reshape(4, 4)))",
    "tensorflow": "import tensorflow as tf\ntf.keras.utils.set_random_seed(0)\n"
    "x = tf.random.normal((256, 8))\n"
    "m = tf.keras.Sequential([tf.keras.layers.Dense(16, 'relu'), tf.keras.layers.Dense(1)])\n"
    "m.compile('sgd', 'mse')\nprint(m.fit(x, x[:, :1], epochs=2, verbose=0).history)",
}


def library(harness: Harness, name: str, text: str) -> None:
    """Write a package that counts as installed, on the path of the jobs."""
    path = harness.work.parent / "lib" / "site-packages" / f"{name}.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def lab(real: Harness) -> Harness:
    path = str(real.work.parent / "lib" / "site-packages")
    env = {**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": "0"}
    real.executor.define_context(CONTEXT, env, str(real.work), "/bin/sh")
    return real


def _ended(harness: Harness, key: str) -> Callable[[], bool]:
    return lambda: any(each.key == key for each in harness.of(Ended))


def learn_and_run(harness: Harness, text: str) -> tuple[str, str]:
    """Run a script cold, then twice with `auto`; returns what the first and the last wrote."""
    learned = str(harness.work.parent / "learned")
    argv = [sys.executable, script(harness, text)]
    seen = []
    for key in ("1.1", "2.1", "3.1"):
        warm = None if key == "1.1" else make_warm(argv, ["auto"], str(harness.work), learned)
        assert not isinstance(warm, str), warm
        log = harness.work.parent / f"log-{key}"
        harness.executor.launch([Launch(key, (0,), argv, str(log), CONTEXT, None, warm)])
        harness.until(_ended(harness, key), 100)
        assert harness.ended(key).status == 0, log.read_text()
        # Only the numbers of the jobs differ, and the times and process ids in TensorFlow's log.
        text = re.sub(rf":{key}\b|(_JOB_ID\W+){key[0]}\b", r"\1N", log.read_text())
        seen.append(re.sub(r"(?m)^([IWE]\d{4}) [\d:.]+ +\d+ ", r"\1 ", text))
    return seen[0], seen[2]


@pytest.mark.parametrize("thread", [C_THREAD, PYTHON_THREAD])
def test_an_import_that_starts_a_thread_is_left_out_and_the_rest_is_not(
    lab: Harness, thread: str
) -> None:
    library(lab, "_starter", thread)
    library(lab, "starter", "import _starter\n")
    library(lab, "needs_it", "import starter\n")
    library(lab, "quiet_one", "")
    text = f"{SEEN}import quiet_one, needs_it\nprint(len(os.listdir('/proc/self/task')))\n"
    _cold, warm = learn_and_run(lab, text)

    assert warm == "early quiet_one\n2\n"
    assert reasons(lab) == []
    reason = "import starter: it started threads, which a fork would not have"
    assert lab.of(PartlyWarm) == [PartlyWarm("3.1", reason)]
    assert lab.of(Warmed)[-1].left_out == reason


def test_a_thread_that_ends_by_itself_leaves_nothing_out(lab: Harness) -> None:
    library(
        lab,
        "starter",
        "import threading\nthreading.Thread(target=threading.Event().wait, args=(0.05,)).start()",
    )
    _cold, warm = learn_and_run(lab, f"{SEEN}import starter\n")
    assert warm == "early starter\n"
    assert lab.of(PartlyWarm) == []


def test_a_package_that_fails_the_second_time_is_left_out(lab: Harness) -> None:
    library(
        lab,
        "starter",
        "import os, sys\n"
        "if os.path.exists('seen') and 'worker' in open('/proc/self/cmdline').read():\n"
        "    raise RuntimeError('only once')\n"
        "open('seen', 'w').close()\n",
    )
    library(lab, "quiet_one", "")
    _cold, warm = learn_and_run(lab, f"{SEEN}import quiet_one, starter\n")
    assert warm == "early quiet_one\n"
    assert [report.reason for report in lab.of(PartlyWarm)] == [
        "import starter: RuntimeError: only once"
    ]


def test_no_import_and_no_job_sees_the_settings_of_the_imports(lab: Harness) -> None:
    names = [variable for variable, _value, _separator in TABLE.values()]
    library(lab, "starter", f"import os\nSEEN = [os.environ.get(name) for name in {names}]\n")
    cold, warm = learn_and_run(lab, f"import starter\nprint(starter.SEEN)\n{STATE}")
    assert warm == cold
    assert warm.startswith("[None, None]\n")


def launch_auto(harness: Harness, key: str, name: str, slot: int = 0) -> Path:
    """Launch a script with `auto`; returns its log."""
    argv = [sys.executable, name]
    warm = make_warm(argv, ["auto"], str(harness.work), str(harness.work.parent / "learned"))
    assert not isinstance(warm, str), warm
    log = harness.work.parent / f"log-{key}"
    harness.executor.launch([Launch(key, (slot,), argv, str(log), CONTEXT, None, warm)])
    return log


@pytest.mark.parametrize(
    "text",
    [
        "def main():\n    import peft\n    print(peft.SEEN)\nmain()",
        "if __name__ == '__main__':\n    from peft import SEEN\n    print(SEEN)",
        "try:\n    import peft\nfinally:\n    pass\nprint(peft.SEEN)",
        "os.environ['UNREAD'] = '1'\nimport peft\nprint(peft.SEEN)",
        "import helper\nprint(helper.SEEN)",
    ],
)
def test_the_first_run_is_forked_with_a_large_library_that_it_imports_late(
    lab: Harness, text: str
) -> None:
    library(lab, "peft", "import os\nSEEN = os.environ.get('SET_LATE')\n")
    (lab.work / "helper.py").write_text(
        "import os\nos.environ['UNREAD'] = '1'\nfrom peft import *\n"
    )
    name = script(lab, f"import os, sys\nprint('peft' in sys.modules)\n{text}\n")
    for key in ("1.1", "2.1"):
        log = launch_auto(lab, key, name)
        assert lab.ended(key).status == 0
        assert log.read_text() == "True\nNone\n"
    assert reasons(lab) == []
    assert lab.of(PartlyWarm) == []
    assert len(lab.of(Warmed)) == 1


@pytest.mark.parametrize(
    "read",
    ["os.environ.get('SET_LATE')", "{**os.environ}.get('SET_LATE')", "os.getenv('SET_LATE')"],
)
def test_a_large_library_that_reads_a_variable_of_the_script_is_left_to_the_script(
    lab: Harness, read: str
) -> None:
    library(lab, "peft", f"import os\nSEEN = {read}\n")
    text = "import os, sys\nprint('peft' in sys.modules)\nos.environ['SET_LATE'] = 'x'\n"
    name = script(lab, f"{text}import peft\nprint(peft.SEEN)\n")
    log = launch_auto(lab, "1.1", name)
    assert lab.ended("1.1").status == 0
    assert log.read_text() == "False\nx\n"
    reason = "import peft: it reads SET_LATE, which the script sets"
    assert lab.of(PartlyWarm) == [PartlyWarm("1.1", reason)]


@pytest.mark.parametrize(
    ("setting", "written"),
    [("", "True True\nNone\n"), ("os.environ['TORCH_X'] = 'x'", "True False\nx\n")],
)
def test_the_late_parts_of_torch_are_left_to_a_script_that_sets_what_they_read(
    lab: Harness, setting: str, written: str
) -> None:
    library(lab, "torch/__init__", "")
    library(lab, "torch/_dynamo", "import os\nSEEN = os.environ.get('TORCH_X')\n")
    text = f"""
import torch
import os, sys
print("torch" in sys.modules, "torch._dynamo" in sys.modules)
{setting}
import torch._dynamo
print(torch._dynamo.SEEN)
"""
    log = launch_auto(lab, "1.1", script(lab, text))
    assert lab.ended("1.1").status == 0
    assert log.read_text() == written


def test_a_large_library_that_writes_when_imported_is_left_to_the_script_that_imports_it_late(
    lab: Harness,
) -> None:
    library(lab, "peft", "import warnings\nwarnings.warn('noise')\nimport time\ntime.sleep(0.6)\n")
    text = "import sys, warnings\nwarnings.filterwarnings('ignore')\nprint('peft' in sys.modules)\n"
    name = script(lab, f"{text}import peft\n")
    log = launch_auto(lab, "1.1", name)
    assert lab.ended("1.1").status == 0
    assert log.read_text() == "False\n"
    assert lab.of(PartlyWarm) == [PartlyWarm("1.1", "import peft: it writes to the output")]

    log = launch_auto(lab, "2.1", name)
    assert lab.ended("2.1").status == 0
    assert log.read_text().endswith("True\n"), "what a run has learned is imported"
    assert len(lab.of(PartlyWarm)) == 1


def test_modules_of_the_program_may_change_if_nothing_was_imported_ahead(lab: Harness) -> None:
    library(lab, "peft", "")
    name = script(lab, "import peft\nimport own\nprint(own.VALUE)\n")
    for key, value in (("1.1", "1"), ("2.1", "1000")):
        (lab.work / "own.py").write_text(f"import peft\nVALUE = {value}\n")
        log = launch_auto(lab, key, name)
        assert lab.ended(key).status == 0
        assert log.read_text() == f"{value}\n"
    assert len(lab.of(Warmed)) == 1


def test_a_changed_module_of_the_program_replaces_a_worker_that_imports_ahead(lab: Harness) -> None:
    library(lab, "peft", "import os\nSEEN = os.environ.get('OMP_NUM_THREADS')\n")
    (lab.work / "settings.py").write_text("")
    name = script(lab, "import settings\nimport peft\nprint(peft.SEEN)\n")
    log = launch_auto(lab, "1.1", name)
    assert lab.ended("1.1").status == 0
    assert log.read_text() == "None\n"
    (lab.work / "settings.py").write_text("import os\nos.environ['OMP_NUM_THREADS'] = '3'\n")
    log = launch_auto(lab, "2.1", name)
    assert lab.ended("2.1").status == 0
    assert log.read_text() == "3\n"


def test_a_changed_module_of_the_program_is_learned_anew(lab: Harness) -> None:
    library(lab, "reader", "import os\nSEEN = os.environ.get('SET_LATE')\n")
    (lab.work / "settings.py").write_text("")
    text = (
        "import sys\nprint('reader' in sys.modules)\nimport settings, reader\nprint(reader.SEEN)\n"
    )
    name = script(lab, text)
    for key, written in (("1.1", "False\nNone\n"), ("2.1", "True\nNone\n")):
        log = launch_auto(lab, key, name)
        assert lab.ended(key).status == 0
        assert log.read_text() == written
    (lab.work / "settings.py").write_text("import os\nos.environ['SET_LATE'] = 'x'\n")
    log = launch_auto(lab, "3.1", name)
    assert lab.ended("3.1").status == 0
    assert log.read_text() == "False\nx\n"


class TestARunThatReportsEarly:
    """Its imports take long, cannot be read from its source, and it goes on after them."""

    @pytest.fixture
    def name(self, lab: Harness) -> str:
        library(lab, "starter", "import time\ntime.sleep(0.6)\n")
        library(lab, "quiet_one", "")
        for job in (1, 2):
            os.mkfifo(lab.work / f"go-{job}")
        return script(lab, SLOW_START)

    def end(self, lab: Harness, job: int, status: int = 0) -> None:
        (lab.work / f"go-{job}").write_text(str(status))
        assert lab.ended(f"{job}.1").status == status << 8

    def test_gets_a_new_worker_while_it_still_runs(self, lab: Harness, name: str) -> None:
        launch_auto(lab, "1.1", name)
        lab.until(lambda: any("starter" in each.modules for each in lab.of(Warmed)))
        assert not lab.of(Ended)
        first, second = lab.of(Warmed)
        lab.until(lambda: Cooled(first.pid) in lab.reports)
        log = launch_auto(lab, "2.1", name, slot=1)
        lab.started("2.1")
        self.end(lab, 2)
        assert log.read_text() == "True\n"
        self.end(lab, 1)
        assert second.pid not in [report.pid for report in lab.of(Cooled)]
        assert reasons(lab) == []

    def test_teaches_what_it_has_imported_so_far_also_if_it_fails(
        self, lab: Harness, name: str
    ) -> None:
        launch_auto(lab, "1.1", name)
        lab.until(lambda: len(lab.of(Warmed)) == 2)
        self.end(lab, 1, status=3)
        (file,) = (lab.work.parent / "learned").iterdir()
        assert json.loads(file.read_text())["partial"]
        assert "quiet_one" not in file.read_text()

        launch_auto(lab, "2.1", name)
        self.end(lab, 2)
        found = json.loads(file.read_text())
        assert not found["partial"]
        assert {"starter", "quiet_one"} <= set(found["modules"])

    def test_keeps_its_worker_if_the_new_one_is_killed(self, lab: Harness, name: str) -> None:
        library(lab, "starter", HELD)
        for fifo in ("pid", "gate"):
            os.mkfifo(lab.work / fifo)
        launch_auto(lab, "1.1", name)
        os.kill(int((lab.work / "pid").read_text()), signal.SIGKILL)
        self.end(lab, 1)
        assert len(lab.of(Warmed)) == 1
        assert lab.of(Cooled) == []


def need(name: str) -> None:
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"{name} is not installed: make stacks installs it")


def check_stack(harness: Harness, name: str, text: str) -> None:
    need(name)
    cold, warm = learn_and_run(harness, f"{text}\n{STATE}")
    assert warm == cold
    assert reasons(harness) == []
    assert harness.of(PartlyWarm) == []
    packages = [module.partition(".")[0] for module in harness.of(Warmed)[-1].modules]
    assert name in packages


@pytest.mark.parametrize("name", LIGHT)
def test_a_forked_library_has_the_threads_of_a_cold_start(lab: Harness, name: str) -> None:
    check_stack(lab, name, LIGHT[name])


@pytest.mark.skipif(not os.environ.get("STOKER_LONG"), reason="make stacks runs it")
@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", HEAVY)
def test_a_forked_stack_computes_as_after_a_cold_start(lab: Harness, name: str) -> None:
    check_stack(lab, name, HEAVY[name])


@pytest.mark.skipif(not os.environ.get("STOKER_LONG"), reason="make stacks runs it")
def test_polars_keeps_a_thread_and_is_left_out_alone(lab: Harness) -> None:
    need("polars")
    text = "import polars, numpy\nprint(polars.DataFrame({'a': [1, 2]}).sum().rows())"
    cold, warm = learn_and_run(lab, text)
    assert warm == cold
    reason = "import polars: it started threads, which a fork would not have"
    assert PartlyWarm("3.1", reason) in lab.of(PartlyWarm)
    assert "numpy" in lab.of(Warmed)[-1].modules


@pytest.mark.parametrize(
    ("env", "count"),
    [
        ({}, 2),
        ({"OMP_NUM_THREADS": "1"}, 1),
        ({"OPENBLAS_NUM_THREADS": "2", "OMP_NUM_THREADS": "1"}, 2),
    ],
)
def test_openblas_threads_are_counted_as_openblas_counts_them(
    monkeypatch: pytest.MonkeyPatch, env: dict[str, str], count: int
) -> None:
    for name in ("OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0, 1})
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    assert count_openblas_threads() == count
