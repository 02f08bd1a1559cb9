"""Notebooks: `%%stoker` in a real IPython kernel, and the bar of `stoker.Executor`."""

from __future__ import annotations

import contextlib
import os
import pty
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nbformat
import pytest
from jupyter_client import BlockingKernelClient
from jupyter_client.manager import KernelManager
from nbclient import NotebookClient

from patience import PATIENCE_S
from stoker.client.client import Client
from stoker.notebook.cell_job import CellJob

if TYPE_CHECKING:
    from integration.daemon_fixture import Queue

pytestmark = pytest.mark.timeout(300)  # a kernel starts slowly on a busy machine
EXAMPLE = Path(__file__).parents[2] / "examples" / "notebook" / "cells.ipynb"
Output = dict[str, Any]


class OwnKernel(KernelManager):  # type: ignore[misc]
    """A kernel of this Python, whatever kernels the machine has."""

    def format_kernel_cmd(self, extra_arguments: list[str] | None = None) -> list[str]:
        return [sys.executable, "-m", "ipykernel_launcher", "-f", self.connection_file]


class Notebook:
    """A kernel to which a test sends cells."""

    def __init__(self, kernel: OwnKernel, client: BlockingKernelClient) -> None:
        self.kernel = kernel
        self.client = client

    def run(self, source: str) -> list[Output]:
        """Run a cell to its end; its outputs, without the state of the job."""
        outputs: list[Output] = []

        def keep(message: Any) -> None:
            if message["header"]["msg_type"] in ("stream", "execute_result", "error"):
                outputs.append(message["content"])

        self.client.execute_interactive(
            source, output_hook=keep, timeout=PATIENCE_S, allow_stdin=False
        )
        return outputs

    def text(self, source: str) -> str:
        """Run a cell; what it printed, and what it is."""
        outputs = self.run(source)
        printed = "".join(each["text"] for each in outputs if "text" in each)
        return printed + "".join(each["data"]["text/plain"] for each in outputs if "data" in each)


@pytest.fixture
def notebook(queue: Queue) -> Iterator[Notebook]:
    kernel = OwnKernel()
    kernel.start_kernel(env=dict(queue.env), cwd=str(queue.work))
    client = kernel.client()
    client.start_channels()
    client.wait_for_ready(timeout=PATIENCE_S)
    notebook = Notebook(kernel, client)
    assert notebook.run("%load_ext stoker") == []
    yield notebook
    client.stop_channels()
    kernel.shutdown_kernel(now=True)


def test_a_cell_runs_as_a_job_with_its_output_its_value_and_its_variables(
    queue: Queue, notebook: Notebook
) -> None:
    notebook.run("import os\nbase = 20\nclass Point:\n    x = 1\npoint = Point()")
    shown = notebook.text(
        "%%stoker -g 1 -N cell -i base,point -o total,gpu\nimport os\nprint('step', point.x)\n"
        "gpu = os.environ['CUDA_VISIBLE_DEVICES']\ntotal = base + 1\ntotal * 2"
    )
    assert shown == "step 1\n42"
    assert notebook.text("total, gpu") == "(21, '0')"
    assert notebook.text("os.environ.get('CUDA_VISIBLE_DEVICES')") == ""
    job = queue.show("cell")
    assert (job["state"], job["gpus"], job["attempts"][0]["slots"]) == ("done", 1, "0")
    assert "point" not in str(job["argv"])
    assert "import os" not in job["argv"][2].partition("\n")[0]
    assert notebook.text("%%stoker -g 0\n(lambda: 1)").startswith("<function <lambda>")
    assert list((queue.home / "cells").iterdir()) == []


def test_a_cell_that_fails_stops_the_notebook_and_shows_its_own_lines(
    queue: Queue, notebook: Notebook
) -> None:
    *printed, error = notebook.run("%%stoker -g 0\nx = 0\n1 / x")
    text = "".join(each["text"] for each in printed)
    assert 'File "<cell>", line 2, in <module>' in text
    assert "1 / x" in text
    assert "run_cell" not in text
    assert error["traceback"] == [
        "stoker: job 1 failed: exit 1: ZeroDivisionError: division by zero"
    ]
    *_printed, error = notebook.run("%%stoker -g 0 -o y\nx = 0")
    assert "-o y: the cell has not set it" in error["traceback"][0]


def test_the_help_needs_no_cell_below(notebook: Notebook) -> None:
    for source in ("%%stoker -h", "%%stoker --help\n", "%stoker -h", "%%stoker -h\n1 / 0"):
        assert notebook.text(source).startswith("usage: %%stoker [-h] [-g N]"), source
    assert "%%stoker needs a cell" in notebook.text("%stoker -g 1")


def test_what_cannot_be_sent_is_one_line(queue: Queue, notebook: Notebook) -> None:
    notebook.run("import threading\nlock = threading.Lock()")
    told = {
        "%%stoker -g 0 -i lock\n1": "-i lock: a lock cannot be sent to another process:",
        "%%stoker -g 0 -i nope\n1": "-i nope: the notebook has no such variable",
        "%%stoker -g 0\n%ls": "a cell for %%stoker is plain Python, without % and ! lines",
        "%%stoker -g many\n1": "invalid int value: 'many'",
        "%%stoker -g -1\n1": "-g -1: write 0 or more",
        "%%stoker -o 1+1\n1": "'1+1' is not the name of a variable",
        "%%stoker 'a\n1": "No closing quotation",
    }
    for source, text in told.items():
        shown = notebook.text(source)
        assert text in shown
        assert shown.count("\n") == 1
    assert queue.ls() == {}


def test_an_interrupted_cell_ends_its_job(queue: Queue, notebook: Notebook) -> None:
    message_id = notebook.client.execute(
        "%%stoker -g 1\nprint('begun')\nimport time\ntime.sleep(1000)"
    )
    while True:
        message = notebook.client.get_iopub_msg(timeout=PATIENCE_S)
        if message["header"]["msg_type"] == "stream" and "begun" in message["content"]["text"]:
            break
    notebook.kernel.interrupt_kernel()
    while True:
        reply = notebook.client.get_shell_msg(timeout=PATIENCE_S)
        if reply["parent_header"].get("msg_id") == message_id:
            break
    assert reply["content"]["status"] == "error"
    assert reply["content"]["evalue"] == "job 1 killed: the cell was interrupted"
    queue.until(lambda: queue.states() == {1: "killed"}, "the job has ended")


def test_old_calls_are_removed_once_their_jobs_have_ended(queue: Queue) -> None:
    week_ago = time.time() - 8 * 86_400
    with Client(str(queue.home)) as client:

        def submit(source: str) -> CellJob:
            return CellJob(client, source, {}, [], {"gpus": 0})

        queue.ok("pause", "--queue")
        waiting, ended, gone = submit("1"), submit("2"), submit("3")
        queue.ok("kill", str(ended.id), str(gone.id))
        queue.ok("rm", str(gone.id))
        for folder in (queue.home / "cells").iterdir():
            os.utime(folder, (week_ago, week_ago))
        newest = submit("4")

        kept = {int((each / "job").read_text()) for each in (queue.home / "cells").iterdir()}
        assert kept == {waiting.id, newest.id}
        queue.ok("resume", "--queue")
        found = waiting.follow(lambda _state: None)
        assert waiting.result(found).value == 1


def test_the_example_runs_and_shows_a_bar(queue: Queue) -> None:
    notebook = nbformat.read(EXAMPLE, as_version=4)
    client = NotebookClient(
        notebook,
        timeout=int(PATIENCE_S),
        kernel_manager_class=OwnKernel,
        resources={"metadata": {"path": str(queue.work)}},
    )
    client.execute(env=dict(queue.env))
    cells = {cell["id"]: cell.get("outputs", []) for cell in notebook.cells}
    assert [
        each["data"]["text/plain"]
        for each in cells["train"]
        if each["output_type"] == "execute_result"
    ] == ["0.3"]
    assert "lr 0.1: " in "".join(
        each["text"] for each in cells["train"] if each["output_type"] == "stream"
    )
    assert cells["losses"][0]["data"]["text/plain"] == "[0.001, 0.1, 0.3]"
    bar, result = cells["executor"]
    assert "<progress max='6' value='6'" in bar["data"]["text/html"]
    assert bar["data"]["text/plain"].startswith("6/6, ")
    assert result["data"]["text/plain"] == "[0, 1, 4, 9, 16, 25]"


_CALLS = """
import stoker, sys
def f(x):
    return 1 // x
with stoker.Executor(gpus_per_job=0, max_workers=2, progress={progress}) as executor:
    futures = [executor.submit(f, x) for x in range(4)]
print(sum(future.exception() is None for future in futures))
"""


@pytest.mark.parametrize(
    ("progress", "on_terminal", "is_drawn"),
    [("None", True, True), ("None", False, False), ("True", False, True), ("False", True, False)],
)
def test_the_bar_is_drawn_on_a_terminal_or_if_it_is_asked_for(
    queue: Queue, progress: str, on_terminal: bool, is_drawn: bool
) -> None:
    ours, theirs = pty.openpty() if on_terminal else os.pipe()
    program = subprocess.Popen(
        [sys.executable, "-c", _CALLS.format(progress=progress)],
        env={**queue.env, "TERM": "xterm", "COLUMNS": "100"},
        cwd=queue.work,
        stdout=subprocess.PIPE,
        stderr=theirs,
    )
    os.close(theirs)
    with program:
        shown = read_all(ours)
        assert program.stdout is not None
        assert program.stdout.read() == b"3\n"
    assert program.returncode == 0
    assert ("4/4, 1 failed, " in shown) == is_drawn


def read_all(fd: int) -> str:
    """Read to the end; a terminal's end is an error on Linux."""
    data = b""
    with contextlib.suppress(OSError):
        while chunk := os.read(fd, 65536):
            data += chunk
    os.close(fd)
    return data.decode()
