"""The token of a batch script comes from a file of its user alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from stoker.cli.cluster_foreground import read_token_file
from stoker.errors import UsageError


def test_the_token_is_read_from_a_private_file(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("join-a-b\n")
    file.chmod(0o600)
    assert read_token_file(str(file)) == "join-a-b"


def test_a_token_that_others_can_read_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("join-a-b\n")
    file.chmod(0o640)
    with pytest.raises(UsageError, match=f"others can read it: chmod 600 {file}"):
        read_token_file(str(file))


def test_a_link_a_missing_file_and_no_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(b"\xff\xfe")
    (tmp_path / "data").chmod(0o600)
    (tmp_path / "link").symlink_to("data")
    for name in ("link", "missing", "data"):
        with pytest.raises(UsageError, match=f"--token-file {tmp_path / name}: "):
            read_token_file(str(tmp_path / name))
