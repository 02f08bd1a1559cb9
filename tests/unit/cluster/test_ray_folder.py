"""The folder of Ray's files is private and its path is short."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from stoker.cluster import ray_folder
from stoker.cluster.ray_folder import prepare_ray_folder, remove_ray_folder
from stoker.errors import StokerError


def mode_of(path: str) -> int:
    return stat.S_IMODE(os.lstat(path).st_mode)


@pytest.fixture
def long_home(tmp_path: Path) -> str:
    return str(tmp_path / ("long" * 20))


@pytest.mark.parametrize("scratch", ["/tmp", "/var/" + "folders/" * 9])
def test_the_path_is_short_and_its_parent_private_whatever_the_home_is(
    long_home: str, monkeypatch: pytest.MonkeyPatch, scratch: str
) -> None:
    monkeypatch.setattr("tempfile.tempdir", scratch)
    path = prepare_ray_folder(long_home)
    os.chmod(path, 0o777)  # as Ray does
    try:
        assert len(path) <= 40
        assert mode_of(os.path.dirname(path)) == 0o700
        assert prepare_ray_folder(long_home) == path
        assert os.readlink(os.path.join(long_home, "cluster", "ray")) == path
    finally:
        remove_ray_folder(long_home)
    assert not os.path.exists(os.path.dirname(path))


def test_a_short_home_holds_the_folder_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_folder, "_MAX_PATH_BYTES", 400)
    path = prepare_ray_folder(str(tmp_path))

    assert path == str(tmp_path / "cluster" / "ray")
    assert mode_of(os.path.dirname(path)) == 0o700
    remove_ray_folder(str(tmp_path))
    assert not os.path.exists(path)


def test_a_file_in_place_of_the_folder_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_folder, "_MAX_PATH_BYTES", 400)
    (tmp_path / "cluster").mkdir()
    (tmp_path / "cluster" / "ray").touch()

    with pytest.raises(StokerError, match="not a folder of yours"):
        prepare_ray_folder(str(tmp_path))


def test_a_folder_that_lost_its_mode_or_is_gone_is_replaced(long_home: str) -> None:
    first = prepare_ray_folder(long_home)
    os.chmod(os.path.dirname(first), 0o755)
    second = prepare_ray_folder(long_home)
    os.rmdir(second)
    os.rmdir(os.path.dirname(second))
    third = prepare_ray_folder(long_home)
    remove_ray_folder(long_home)

    assert len({first, second, third}) == 3
    os.rmdir(first)
    os.rmdir(os.path.dirname(first))


def test_a_link_to_other_files_is_not_used_and_they_are_not_removed(
    long_home: str, tmp_path: Path
) -> None:
    other = tmp_path / "mine" / "ray"
    other.mkdir(parents=True)
    os.makedirs(os.path.join(long_home, "cluster"))
    link = os.path.join(long_home, "cluster", "ray")
    os.symlink(other, link)

    remove_ray_folder(long_home)
    assert other.is_dir()
    os.symlink(other, link)
    made = prepare_ray_folder(long_home)
    remove_ray_folder(long_home)
    assert made != str(other)
    assert other.is_dir()


def test_a_folder_in_which_others_can_rename_ours_is_not_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(ray_folder, "_MAX_PATH_BYTES", 400)
    for mode, is_used in ((0o777, False), (0o1777, True), (0o700, True)):
        tmp_path.chmod(mode)
        assert (ray_folder._short_temp_folder() == str(tmp_path)) is is_used
