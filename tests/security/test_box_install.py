"""`stoker box install` where another user has been before: the folder is root's afterwards."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from security.second_user import SecondUser
from stoker.cli.arguments import Args
from stoker.cli.verbs import box
from stoker.errors import StokerError

SQUAT = """
folder = sys.argv[3]
os.makedirs(folder + "/leases/gpu-b/deep")
for name, mode in (("gpu-a", 0o600), ("gpu-good", 0o666), ("turn-1-0123456789abcdef", 0o644)):
    os.close(os.open(f"{folder}/leases/{name}", os.O_CREAT | os.O_WRONLY, 0o600))
    os.chmod(f"{folder}/leases/{name}", mode)
os.symlink("/etc/passwd", folder + "/leases/gpu-c")
os.mkfifo(folder + "/leases/gpu-d")
"""


@pytest.fixture
def run_folder(shared_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return the folder in place of /run/stoker; another user can make it first."""
    folder = shared_folder / "stoker"
    monkeypatch.setattr("stoker.gpus.lease.ROOT_FOLDER", str(folder / "leases"))
    monkeypatch.setattr("stoker.gpus.box_file.RULES_FILE", str(shared_folder / "etc" / "box.toml"))
    monkeypatch.setattr(box, "_TMPFILES", str(shared_folder / "tmpfiles.d" / "stoker.conf"))
    before = os.umask(0o077)
    yield folder
    os.umask(before)


def install() -> None:
    box.run(Args(action="install", file=None))


def mode_of(path: Path) -> tuple[int, int]:
    found = path.lstat()
    return found.st_uid, stat.S_IMODE(found.st_mode)


def test_all_users_can_use_the_folder_and_read_the_rules_whatever_the_umask(
    second_user: SecondUser, run_folder: Path, shared_folder: Path
) -> None:
    install()
    install()
    assert mode_of(run_folder) == (0, 0o755)
    assert mode_of(run_folder / "leases") == (0, 0o1777)
    rules = str(shared_folder / "etc" / "box.toml")
    assert "# [shares]" in second_user.run("print(open(sys.argv[3]).read())", rules)


def test_a_folder_that_another_user_has_made_first_is_taken_over(
    second_user: SecondUser, run_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    second_user.run(SQUAT, str(run_folder))
    install()
    assert mode_of(run_folder) == (0, 0o755)
    assert mode_of(run_folder / "leases") == (0, 0o1777)
    assert sorted(os.listdir(run_folder / "leases")) == ["gpu-good", "turn-1-0123456789abcdef"]
    assert f"removed {run_folder}/leases/gpu-a: other users could not use it" in (
        capsys.readouterr().err
    )
    assert Path("/etc/passwd").exists()


def test_a_link_in_the_place_of_the_folder_is_refused_and_not_followed(
    second_user: SecondUser, run_folder: Path, tmp_path: Path
) -> None:
    victim = tmp_path / "victim"
    victim.mkdir(mode=0o700)
    second_user.run("os.symlink(sys.argv[4], sys.argv[3])", str(run_folder), str(victim))
    with pytest.raises(StokerError, match=rf"{run_folder} is no folder: rm {run_folder}, then"):
        install()
    assert mode_of(victim) == (0, 0o700)
    run_folder.unlink()
    run_folder.mkdir()
    (run_folder / "leases").symlink_to(victim)
    with pytest.raises(StokerError, match="leases is no folder"):
        install()
    assert mode_of(victim) == (0, 0o700)
