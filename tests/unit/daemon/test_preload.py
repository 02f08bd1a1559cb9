"""A long-lived process imports ahead everything that it imports late: Stoker may be removed meanwhile."""

from __future__ import annotations

import subprocess
import sys

import pytest

# Prints every import inside a function of a loaded module whose module is not loaded.
FIND = """
import ast, sys
for name, module in sorted(sys.modules.items()):
    path = getattr(module, "__file__", None)
    if name.split(".")[0] != "stoker" or path is None:
        continue
    for function in ast.walk(ast.parse(open(path).read())):
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            for node in ast.walk(function):
                if isinstance(node, ast.ImportFrom):
                    wanted = [node.module]
                elif isinstance(node, ast.Import):
                    wanted = [each.name for each in node.names]
                else:
                    continue
                for each in wanted:
                    if each not in sys.modules:
                        print(f"{name}.{function.name}: {each}")
"""
DAEMON = """
import stoker.daemon.main
from stoker.daemon.preload import _import_all
_import_all()
"""
SUPERVISOR = "from stoker.supervisor.daemon_mode import _import_the_rest; _import_the_rest()"
# A daemon opens NVML and enters its cluster once, when it starts; Python's own modules stay installed.
KNOWN = {
    "stoker.__getattr__: importlib",
    "stoker.load_ipython_extension: stoker.notebook.extension",  # Jupyter calls it
    "stoker.gpus.nvml._load_pynvml: pynvml",
    "stoker.daemon.build._enter_cluster: stoker.daemon.cluster",
    "stoker.gpus.box_file._read_zone: zoneinfo",
    "stoker.core.run_times._median: statistics",
    "stoker.core.setting_names.explain_unknown: difflib",
}


@pytest.mark.parametrize("start", [DAEMON, SUPERVISOR], ids=["daemon", "supervisor"])
def test_a_long_lived_process_leaves_nothing_to_import(start: str) -> None:
    found = subprocess.run(
        [sys.executable, "-c", f"{start}\n{FIND}"], capture_output=True, text=True, check=True
    )

    assert {*found.stdout.splitlines()} - KNOWN == set()
