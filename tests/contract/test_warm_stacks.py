"""Libraries that start threads at their import: forks have the same threads, or the library is left out."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from collections.abc import Callable

import pytest

from contract.executor_harness import Harness
from contract.test_executor_warm import reasons, script
from stoker.executors.contract import Ended, Launch, PartlyWarm, Warmed
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
SEEN = """
import os, sys
print("early", *sorted({"starter", "needs_it", "quiet_one"} & set(sys.modules)))
"""
STATE = """
import os, subprocess
print(sorted(os.environ.items()), subprocess.check_output("env | sort", shell=True).decode())
print("threads", len(os.listdir("/proc/self/task")))
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
    "torchvision": "import torch, torchvision\nprint(torchvision.ops.nms(torch.eye(4), torch.ones(4), 0.5))",
    "transformers": "from transformers import GPT2Config, GPT2LMHeadModel as M\nimport torch\n"
    "torch.manual_seed(0)\nm = M(GPT2Config(n_layer=1, n_embd=32, n_head=2, vocab_size=64))\n"
    "print(m(torch.arange(8)[None]).logits.sum().item(), torch.get_num_threads())",
    "datasets": "import datasets\nprint(datasets.Dataset.from_dict({'a': [1, 2]}).to_list())",
    "pytorch_lightning": "import pytorch_lightning as pl\nprint(pl.seed_everything(3))",
    "jax": "import jax.numpy as np\nprint(np.arange(8.0).sum(), np.ones((4, 4)) @ np.ones(4))",
}


def library(harness: Harness, name: str, text: str) -> None:
    """Write a package that counts as installed, on the path of the jobs."""
    folder = harness.work.parent / "lib" / "site-packages"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.py").write_text(text)


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
        # Only the numbers of the jobs differ.
        seen.append(re.sub(rf":{key}\b|(_JOB_ID\W+){key[0]}\b", r"\1N", log.read_text()))
    return seen[0], seen[2]


@pytest.mark.parametrize("thread", [C_THREAD, PYTHON_THREAD])
def test_an_import_that_starts_a_thread_is_left_out_and_the_rest_is_not(
    lab: Harness, thread: str
) -> None:
    library(lab, "starter", thread)
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


def check_stack(harness: Harness, name: str, text: str) -> None:
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"{name} is not installed: make stacks installs it")
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
