"""A project's modules are not taken for ours, wherever the daemon and its helpers are started from."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import stoker
from integration.daemon_fixture import Queue

# Tells of every process of ours that a project's modules got into: jobs are none.
TELL_TALE = """
import os
if os.environ.get("STOKER_PART") and "STOKER_JOB_ID" not in os.environ:
    with open({marks!r}, "a") as file:
        file.write(__name__ + " in the " + os.environ["STOKER_PART"] + "\\n")
"""
SHADOWS = ("sitecustomize", "sqlite3", "optuna", "apprise", "pynvml")


def project(queue: Queue) -> Path:
    """A folder with modules of names that the daemon and its helpers import."""
    folder = queue.work / "project"
    folder.mkdir()
    for name in SHADOWS:
        (folder / f"{name}.py").write_text(TELL_TALE.format(marks=str(queue.work / "marks")))
    return folder


def test_modules_of_a_project_do_not_get_into_the_daemon_and_its_helpers(
    idle_queue: Queue,
) -> None:
    queue = idle_queue
    folder = project(queue)
    queue.env["PYTHONPATH"] = f"{folder}:"  # an empty entry is the working folder
    queue.work = queue.stoker.work = folder

    job = queue.add("echo $PYTHONPATH; python -c 'import sqlite3; print(sqlite3.__file__)'")
    queue.ok("wait", str(job))

    assert queue.ok("log", str(job)).splitlines() == [f"{folder}:", f"{folder}/sqlite3.py"]
    assert queue.stoker.read("../marks") == []


def test_the_daemon_is_of_the_stoker_that_starts_it_also_if_pythonpath_names_that(
    idle_queue: Queue, tmp_path: Path
) -> None:
    """As after `pip install --target`."""
    queue = idle_queue
    target = tmp_path / "target"
    shutil.copytree(os.path.dirname(stoker.__file__), target / "stoker")
    init = target / "stoker" / "__init__.py"
    text, count = re.subn(r'(?m)^__version__ = ".*"', '__version__ = "99.9"', init.read_text())
    assert count == 1
    init.write_text(text)
    queue.env["PYTHONPATH"] = str(target)

    queue.ok("daemon", "start", "--gpus", "0")

    assert json.loads(queue.ok("status", "--json"))["version"] == "99.9"
    job = queue.add("true")
    queue.ok("wait", str(job))
