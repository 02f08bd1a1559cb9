"""The pages for users of older tools do what they say: every command is executed, every output compared."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from integration.daemon_fixture import free_port
from integration.doc_page import DOCS, DocPage
from integration.test_cli_help import stoker as ask
from stoker.cli.main import VERBS

if TYPE_CHECKING:
    from integration.daemon_fixture import Queue

FOLDER = DOCS / "how-to" / "migrate"
PAGES = sorted(path.stem for path in FOLDER.glob("*.md"))
# The users' own programs, which the pages take for granted.
SILENT = "import time; time.sleep(0.3)\n"
LOUD = "print('trained')\n"
SCRIPTS = {"train.py": LOUD, "main.py": LOUD, "train_model.py": SILENT, "train_dnn.py": SILENT}
REPLACED = {"gpupeasy": {"4004": "", "lab1": "localhost"}}


@contextmanager
def open_page(name: str, queue: Queue) -> Iterator[DocPage]:
    """A page in a folder with the users' own programs, on one GPU, at a port that is free."""
    for script, text in SCRIPTS.items():
        queue.stoker.file(script, text)
    if name == "gpulimit":  # its server takes the GPUs that were named last
        queue.ok("daemon", "start", "--gpus", "0")
        queue.ok("daemon", "stop")
    replace = {old: new or free_port() for old, new in REPLACED.get(name, {}).items()}
    page = DocPage(FOLDER / f"{name}.md", queue.stoker, replace)
    try:
        yield page
    finally:
        queue.close()  # before what serves it is ended
        page.close()


@pytest.mark.parametrize("name", PAGES)
def test_every_session_is_true(idle_queue: Queue, name: str) -> None:
    with open_page(name, idle_queue) as page:
        assert page.run_sessions() > 3


@pytest.mark.parametrize("column", ["theirs", "natively"])
@pytest.mark.parametrize("name", PAGES)
def test_every_command_of_a_table_succeeds(idle_queue: Queue, name: str, column: str) -> None:
    with open_page(name, idle_queue) as page:
        page.write_files()
        ran = page.run_column(column)
        assert ran > 3 or (name, column) in WITHOUT_COMMANDS


# Their Python, and the programs of GPUPeasy and W&B, which are not here.
WITHOUT_COMMANDS = {(name, "theirs") for name in ("gpu_task_scheduler", "gpupeasy", "wandb")}


@pytest.mark.parametrize("name", PAGES)
def test_every_verb_and_option_in_the_prose_exists(idle_queue: Queue, name: str) -> None:
    for code in DocPage(FOLDER / f"{name}.md", idle_queue.stoker).prose_codes():
        program, *words = code.split()
        if program != "stoker" or not words:
            continue
        assert words[0] in VERBS, code
        explained = ask(words[0], "-h").stdout
        for option in re.findall(r"(?<!\S)--?[a-z][\w-]*", " ".join(words[1:])):
            assert re.search(rf"(?<![\w-]){option}(?![\w-])", explained), code
