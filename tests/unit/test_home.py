"""Where state is kept: the user's own folder, on a disk of this machine."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

import pytest

from stoker import home
from stoker.errors import StokerError

if TYPE_CHECKING:
    from pathlib import Path

LOCAL = "36 35 98:0 / {} rw,noatime shared:1 - ext4 /dev/root rw\n"
REMOTE = "37 35 0:50 / {} rw - {} server:/export rw\n"


@pytest.fixture
def mounts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a file that is read in place of the kernel's list of mounts."""
    path = tmp_path / "mountinfo"
    path.write_text(LOCAL.format("/"))
    monkeypatch.setattr(home, "_MOUNTS", str(path))
    return path


def test_the_named_home_is_made_for_its_owner_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STOKER_HOME", str(tmp_path / "a" / "b"))

    found = home.find_home()

    assert found == str(tmp_path / "a" / "b")
    assert stat.S_IMODE(os.stat(found).st_mode) == 0o700


def test_without_a_name_it_is_the_platforms_state_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("STOKER_HOME", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

    assert home.find_home() == str(tmp_path / "stoker")


@pytest.mark.parametrize("kind", ["nfs4", "cifs", "fuse.sshfs", "lustre", "gpfs", "beegfs", "ceph"])
def test_a_named_home_on_a_network_file_system_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mounts: Path, kind: str
) -> None:
    mounts.write_text(LOCAL.format("/") + REMOTE.format(tmp_path, kind))
    monkeypatch.setenv("STOKER_HOME", str(tmp_path / "home"))

    with pytest.raises(StokerError, match=f"network file system \\({kind}\\).*local disk"):
        home.find_home()

    assert not (tmp_path / "home").exists()


def test_a_platform_folder_on_a_network_file_system_gives_way_to_a_local_one_and_says_so_once(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    mounts: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    mounts.write_text(LOCAL.format("/") + REMOTE.format(tmp_path, "nfs4"))
    monkeypatch.delenv("STOKER_HOME", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(home, "_LOCAL_HOME", str(tmp_path / "local-{}"))

    found = str(tmp_path / f"local-{os.getuid()}")
    assert [home.find_home(), home.find_home()] == [found, found]
    assert capsys.readouterr().err == f"stoker: your home is on nfs4: state is kept in {found}\n"


def test_a_local_mount_inside_a_network_one_is_local(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mounts: Path
) -> None:
    inside = tmp_path / "with blank"
    escaped = str(inside).replace(" ", "\\040")
    mounts.write_text(REMOTE.format("/", "nfs4") + LOCAL.format(escaped))
    monkeypatch.setenv("STOKER_HOME", str(inside / "home"))

    assert home.find_home() == str(inside / "home")


def test_a_home_that_is_a_link_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    monkeypatch.setenv("STOKER_HOME", str(tmp_path / "link"))

    with pytest.raises(StokerError, match="not a folder of yours"):
        home.find_home()


def test_a_home_that_cannot_be_made_is_one_clear_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("STOKER_HOME", str(tmp_path / "file" / "home"))

    with pytest.raises(StokerError, match=r"cannot make the state folder .*STOKER_HOME"):
        home.find_home()
