"""The scheduler's log: lines as GPU Task Scheduler wrote them."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator

_TIMES = "%a, %d %b %Y %H:%M:%S"
_IN_FILE = "%(asctime)s %(filename)s[line:%(lineno)d] %(levelname)s %(message)s"
_ON_CONSOLE = "%(asctime)s %(levelname)s %(message)s"


@contextlib.contextmanager
def logging_to(path: str | None) -> Iterator[logging.Logger]:
    """Return a logger that writes to the console, and to a file if one is named."""
    logger = logging.Logger("gpu_task_scheduler", logging.INFO)
    console = logging.StreamHandler()
    console.setFormatter(logging.Formatter(_ON_CONSOLE, _TIMES if path is None else None))
    handlers: list[logging.Handler] = [console]
    if path is not None:
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        file = logging.FileHandler(path, encoding="utf-8")
        file.setFormatter(logging.Formatter(_IN_FILE, _TIMES))
        handlers.append(file)
    for handler in handlers:
        logger.addHandler(handler)
    try:
        yield logger
    finally:
        for handler in handlers:
            handler.close()
