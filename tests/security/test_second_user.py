"""The second user of the attack tests is a real one."""

from __future__ import annotations

from pathlib import Path

from security.second_user import SecondUser


def test_the_second_user_has_another_uid_and_no_rights(
    account: SecondUser, tmp_path: Path, shared_folder: Path
) -> None:
    secret = tmp_path / "secret"
    secret.touch(0o600)
    source = """
    assert os.getresuid() == (os.getuid(),) * 3 and os.getgroups() == []
    try:
        open(sys.argv[3])
    except PermissionError:
        open(sys.argv[4] + "/mine", "w").close()
    """
    account.run(source, str(secret), str(shared_folder))
    assert (shared_folder / "mine").stat().st_uid == account.uid != secret.stat().st_uid
