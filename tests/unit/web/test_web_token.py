from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

import pytest

from stoker.errors import StokerError
from stoker.web.token import forget_token, is_same, read_token, token_path

if TYPE_CHECKING:
    from pathlib import Path


def test_a_token_is_made_once_for_its_owner_alone_whatever_the_umask(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        token = read_token(str(tmp_path))
    finally:
        os.umask(old)
    assert len(token) >= 43
    assert stat.S_IMODE(os.stat(token_path(str(tmp_path))).st_mode) == 0o600
    assert read_token(str(tmp_path)) == token
    assert os.listdir(tmp_path) == ["token"]


def test_a_forgotten_token_is_followed_by_another(tmp_path: Path) -> None:
    first = read_token(str(tmp_path))
    forget_token(str(tmp_path))
    assert read_token(str(tmp_path)) != first


def test_a_token_that_others_can_read_is_refused_with_the_remedy(tmp_path: Path) -> None:
    read_token(str(tmp_path))
    os.chmod(token_path(str(tmp_path)), 0o644)
    with pytest.raises(StokerError, match=r"others can read .*--new-token"):
        read_token(str(tmp_path))


def test_an_empty_token_is_refused(tmp_path: Path) -> None:
    with open(os.open(token_path(str(tmp_path)), os.O_WRONLY | os.O_CREAT, 0o600), "w"):
        pass
    with pytest.raises(StokerError, match="holds no token"):
        read_token(str(tmp_path))


def test_a_link_in_the_tokens_place_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("x" * 50)
    (tmp_path / "token").symlink_to(tmp_path / "other")
    with pytest.raises(OSError, match="symbolic links"):
        read_token(str(tmp_path))


@pytest.mark.parametrize("given", ["", "a", "abcd", "abcé", "\ud800"])
def test_only_the_same_is_the_same(given: str) -> None:
    assert is_same("abc", "abc")
    assert not is_same(given, "abc")
