from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

import pytest

from stoker.web.token import (
    forget_metrics_token,
    forget_secrets,
    keep_metrics_token,
    metrics_token_path,
    read_secrets,
    renew_secrets,
    token_path,
)

if TYPE_CHECKING:
    from pathlib import Path


def test_only_the_owner_can_read_secrets_with_any_umask(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        made = renew_secrets(str(tmp_path))
    finally:
        os.umask(old)
    assert min(map(len, made)) >= 43
    assert made.token != made.handover
    assert stat.S_IMODE(os.stat(token_path(str(tmp_path))).st_mode) == 0o600
    assert read_secrets(str(tmp_path)) == made
    assert os.listdir(tmp_path) == ["token"]


def test_renewed_secrets_differ(tmp_path: Path) -> None:
    first = renew_secrets(str(tmp_path))
    assert not {*first} & {*renew_secrets(str(tmp_path))}
    forget_secrets(str(tmp_path))
    assert read_secrets(str(tmp_path)) is None


def test_secrets_that_others_can_read_are_not_trusted(tmp_path: Path) -> None:
    renew_secrets(str(tmp_path))
    os.chmod(token_path(str(tmp_path)), 0o644)
    assert read_secrets(str(tmp_path)) is None


@pytest.mark.parametrize("text", ["", "x" * 50, "short\nshort\n", f"{'x' * 50}\n" * 3])
def test_a_file_without_two_secrets_has_none(tmp_path: Path, text: str) -> None:
    with open(os.open(token_path(str(tmp_path)), os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
        file.write(text)
    assert read_secrets(str(tmp_path)) is None


def test_a_link_or_a_fifo_instead_of_the_token_file_is_not_read(tmp_path: Path) -> None:
    made = renew_secrets(str(tmp_path))
    os.rename(tmp_path / "token", tmp_path / "other")
    (tmp_path / "token").symlink_to(tmp_path / "other")
    assert read_secrets(str(tmp_path)) is None
    os.unlink(tmp_path / "token")
    os.mkfifo(tmp_path / "token", 0o600)
    assert read_secrets(str(tmp_path)) is None
    assert renew_secrets(str(tmp_path)) != made


def test_the_token_for_the_metrics_is_the_owners_and_stays_until_it_is_forgotten(
    tmp_path: Path,
) -> None:
    home = str(tmp_path)
    made = keep_metrics_token(home)
    assert len(made) >= 43
    assert stat.S_IMODE(os.stat(metrics_token_path(home)).st_mode) == 0o600
    renew_secrets(home)
    forget_secrets(home)
    assert keep_metrics_token(home) == made
    forget_metrics_token(home)
    assert keep_metrics_token(home) != made


def test_a_token_for_the_metrics_that_others_could_read_is_replaced(tmp_path: Path) -> None:
    made = keep_metrics_token(str(tmp_path))
    os.chmod(metrics_token_path(str(tmp_path)), 0o644)
    assert keep_metrics_token(str(tmp_path)) != made
    assert stat.S_IMODE(os.stat(metrics_token_path(str(tmp_path))).st_mode) == 0o600
