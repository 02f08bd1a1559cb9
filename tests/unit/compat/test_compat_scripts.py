"""Compatibility commands are thin: the work is done by the packages below."""

from __future__ import annotations

import importlib
import os
import pkgutil

import pytest

DOORS = ("stoker.compat", "gpu_task_scheduler", "stoker.api.routes")
_MOST_LINES = 200


@pytest.mark.parametrize("package", DOORS)
def test_no_compatibility_module_is_longer_than_200_lines(package: str) -> None:
    folder = os.path.dirname(str(importlib.import_module(package).__file__))
    modules = list(pkgutil.walk_packages([folder], f"{package}."))
    assert modules
    for module in modules:
        with open(str(importlib.import_module(module.name).__file__), encoding="utf-8") as file:
            assert len(file.readlines()) <= _MOST_LINES, module.name
