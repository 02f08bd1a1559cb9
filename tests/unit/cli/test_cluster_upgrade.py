"""`stoker cluster upgrade`: what it says if neither the new version nor the old one starts."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from stoker.cli import cluster_upgrade
from stoker.cluster.ssh.box_software import BoxSoftware
from stoker.cluster.ssh.connection import SshConnection
from stoker.errors import StokerError


class Answer(NamedTuple):
    """What a box says to a program: the reason why it fails, or None."""

    restart: str | None
    wait: str | None


class Old(BoxSoftware):
    """The old version on a box, whose answers are known."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(SshConnection("me@h1"), "/python", "1f", print)
        self._answer = answer
        self.asked = 0

    def run(self, *words: str, env: dict[str, str] | None = None, is_login: bool = False) -> str:
        self.asked += 1
        reason = self._answer.wait if "give_up_at" in words[-1] else self._answer.restart
        if reason is not None:
            raise StokerError(reason)
        return ""


@pytest.mark.parametrize("has_systemd", [True, False])
def test_an_old_version_that_needs_more_than_one_start_is_waited_for(has_systemd: bool) -> None:
    old = Old(Answer(restart="Ray could not start", wait=None))

    cluster_upgrade._start_again(old, has_systemd, StokerError("the new one is broken"))

    assert old.asked == 2


def test_if_neither_version_starts_both_reasons_are_named() -> None:
    old = Old(Answer(restart="Ray could not start", wait="Ray is not up after 90s"))

    with pytest.raises(StokerError) as caught:
        cluster_upgrade._start_again(old, False, StokerError("the new one is broken"))

    assert str(caught.value) == (
        "the new one is broken; and its old version did not start again: Ray is not up after 90s"
    )
