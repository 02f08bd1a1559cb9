"""Whose torch keeps a job within its room, and by which setting."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from stoker.core.job import Request
from stoker.engine.queue import QueueEntry
from stoker.engine.torch_memory_cap import TorchMemoryCap, add_cap, has_cap
from stoker.executors.contract import Launch
from stoker.warm.messages import ForkRequest

if TYPE_CHECKING:
    from pathlib import Path

LAUNCH = Launch("1.1", (0,), ["/bin/sh", "-c", "python train.py"])
ENTRY = QueueEntry(b"python train.py", Request())


def install_torch(folder: Path, text: str) -> None:
    (folder / "torch").mkdir(parents=True)
    (folder / "torch" / "version.py").write_text(text)


def make_python(prefix: Path, settings: str) -> str:
    (prefix / "bin").mkdir(parents=True)
    (prefix / "pyvenv.cfg").write_text(settings)
    (prefix / "bin" / "python").write_text("")
    return str(prefix / "bin" / "python")


@pytest.mark.parametrize(
    ("text", "can"),
    [
        ("__version__ = '2.10.0'\n", True),
        ("from typing import Optional\n__version__ = '2.11.0+cu130'\ndebug = False\n", True),
        ("__version__ = '3.0.1'\n", True),
        ("__version__ = '2.9.1+cu128'\n", False),
        ("__version__ = '1.13.1'\n", False),
        ("__version__ = '2.10.0a0+git12ab'\n", False),
        ("__version__ = '2.10.0.dev20251001'\n", False),
        ("__version__ = compute()\n", False),
        ("", False),
    ],
)
def test_only_a_released_torch_that_knows_the_setting_is_capped(
    tmp_path: Path, text: str, can: bool
) -> None:
    python = make_python(tmp_path, "home = /nowhere\ninclude-system-site-packages = false\n")
    assert not has_cap(python, {})
    install_torch(tmp_path / "lib" / "python3.12" / "site-packages", text)
    assert has_cap(python, {}) is can


def test_the_torch_that_is_imported_is_the_first_on_the_path(tmp_path: Path) -> None:
    python = make_python(tmp_path, "home = /nowhere\n")
    install_torch(tmp_path / "lib" / "python3.12" / "site-packages", "__version__ = '2.11.0'\n")
    install_torch(tmp_path / "old", "__version__ = '2.4.0'\n")
    assert not has_cap(python, {"PYTHONPATH": f"/nowhere:{tmp_path}/old"})


def test_an_environment_that_sees_the_systems_packages_has_their_torch(tmp_path: Path) -> None:
    base = tmp_path / "base"
    (base / "bin").mkdir(parents=True)
    (base / "bin" / "python3.12").write_text("")
    install_torch(base / "lib" / "python3.12" / "dist-packages", "__version__ = '2.11.0'\n")
    python = tmp_path / "own" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(base / "bin" / "python3.12")
    settings = tmp_path / "own" / "pyvenv.cfg"
    settings.write_text("include-system-site-packages = true\n")
    assert has_cap(str(python), {})
    settings.write_text("include-system-site-packages = false\n")
    assert not has_cap(str(python), {})


@pytest.mark.parametrize(
    ("env", "setting"),
    [
        ({}, "PYTORCH_CUDA_ALLOC_CONF=per_process_memory_fraction:0.2500"),
        (
            {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
            "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True,per_process_memory_fraction:0.2500",
        ),
        (
            {"PYTORCH_ALLOC_CONF": "max_split_size_mb:64"},
            "PYTORCH_ALLOC_CONF=max_split_size_mb:64,per_process_memory_fraction:0.2500",
        ),
        ({"PYTORCH_CUDA_ALLOC_CONF": "per_process_memory_fraction:0.9"}, None),
        ({"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"}, None),
    ],
)
def test_what_the_user_has_set_stays(env: dict[str, str], setting: str | None) -> None:
    assert add_cap(env, 0.25) == setting


def test_a_plain_python_command_is_capped_and_nothing_else(tmp_path: Path) -> None:
    install_torch(tmp_path, "__version__ = '2.11.0'\n")
    env = {"PYTHONPATH": str(tmp_path)}

    def cap(words: list[str] | None, launch: Launch = LAUNCH) -> Launch | None:
        return TorchMemoryCap(lambda _entry: (words, env)).cap(launch, ENTRY, 0.5)

    capped = cap(["/usr/bin/python3", "train.py"])
    assert capped is not None
    assert capped.argv == [
        "/usr/bin/env",
        "PYTORCH_CUDA_ALLOC_CONF=per_process_memory_fraction:0.5000",
        "XLA_PYTHON_CLIENT_MEM_FRACTION=0.5000",
        *LAUNCH.argv,
    ]
    assert cap(None) is None
    assert cap(["/usr/bin/julia", "train.jl"]) is None
    warm = Launch(
        "1.1",
        (0,),
        ["python", "train.py"],
        warm=ForkRequest(["python", "train.py"], 1, "", ["torch"]),
    )
    forked = cap(["/usr/bin/python3", "train.py"], warm)
    assert forked is not None
    assert forked.warm is not None
    assert forked.warm.gpu_share == 0.5
