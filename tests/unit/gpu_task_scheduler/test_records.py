"""An instance counts as done after a recorded success, or if its folder has another origin."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from gpu_task_scheduler.config_manager import ConfigManager, Instance
from gpu_task_scheduler.records import Records


def instance_in(folder: Path, value: str = "1") -> Instance:
    config = {
        "scheduler_config": {"gpu": ["0"], "result_root_folder": str(folder / "results")},
        "test_config": [{"a": [value]}],
    }
    [instance] = ConfigManager(config).instances()
    return instance


def is_done(folder: Path, instance: Instance) -> bool:
    with closing(Records(str(folder / "temp"))) as records:
        return records.is_done(instance)


def test_only_a_success_is_done(tmp_path: Path) -> None:
    instance = instance_in(tmp_path)
    assert not is_done(tmp_path, instance)
    for success in (None, False, True):
        with closing(Records(str(tmp_path / "temp"))) as records:
            records.begin(instance)
            Path(instance.work_dir).mkdir(parents=True, exist_ok=True)
            if success is not None:
                records.end(instance, success=success)
        assert is_done(tmp_path, instance) is (success is True)


def test_a_folder_without_a_record_is_done(tmp_path: Path) -> None:
    instance = instance_in(tmp_path)
    Path(instance.work_dir).mkdir(parents=True)
    assert is_done(tmp_path, instance)


def test_results_and_records_may_be_moved_together(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    for value, success in (("1", True), ("2", False)):
        with closing(Records(str(old / "temp"))) as records:
            instance = instance_in(old, value)
            records.begin(instance)
            Path(instance.work_dir).mkdir(parents=True)
            records.end(instance, success=success)
    old.rename(new)
    assert is_done(new, instance_in(new, "1"))
    assert not is_done(new, instance_in(new, "2"))


def test_a_truncated_line_is_ignored(tmp_path: Path) -> None:
    instance = instance_in(tmp_path)
    with closing(Records(str(tmp_path / "temp"))) as records:
        records.begin(instance)
        records.end(instance, success=True)
    [path] = (tmp_path / "temp").iterdir()
    with path.open("ab") as file:
        file.write(b'{"folder": "..\n[]\n')
    assert is_done(tmp_path, instance)
