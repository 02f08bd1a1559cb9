"""`stoker cluster join` without Ray."""

from __future__ import annotations

from pathlib import Path

import pytest

from stoker.cli.arguments import Args
from stoker.cli.cluster_join import join
from stoker.cluster import settings
from stoker.cluster.ray_command import TOKEN_VARIABLE
from stoker.cluster.ray_survey import Member, RaySurvey
from stoker.errors import ConflictError, StokerError

ARGS = Args(
    target="10.0.0.1",
    address=None,
    name=None,
    label=None,
    gpus=None,
    env=None,
    setup=None,
    ports=None,
    foreground=False,
)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the home of a box with the address 10.0.0.3, whose Ray starts at once."""
    monkeypatch.setenv(TOKEN_VARIABLE, "x" * 32)
    monkeypatch.setattr("stoker.cluster.ray_survey.require_ray", lambda: None)
    monkeypatch.setattr("stoker.cluster.ray_survey.check_versions", lambda _found: None)
    monkeypatch.setattr("stoker.cluster.ray_survey.own_address", lambda *_: "10.0.0.3")
    monkeypatch.setattr("stoker.cli.cluster_join.check_reachability", lambda *_: None)
    monkeypatch.setattr(
        "stoker.cluster.ray_supervisor_control.start_ray_supervisor", lambda _home: None
    )
    return str(tmp_path)


def find(monkeypatch: pytest.MonkeyPatch, *members: Member) -> None:
    """Let the survey find these members."""
    found = RaySurvey(ray="2.60.0", python="3.11", nodes=[*members])
    monkeypatch.setattr("stoker.cluster.ray_survey.survey", lambda *_: found)


def member(node: settings.ClusterNode, address: str, *, alive: bool = True) -> Member:
    labels = {"stoker-node": node.id, "stoker-name": node.name}
    return Member(address=address, is_head=False, alive=alive, labels=labels)


def test_a_copy_of_a_members_home_gets_a_new_id_and_name(
    home: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = settings.ClusterNode(id="a" * 16, name="gpu2")
    settings.save_node(home, before)
    find(monkeypatch, member(before, "10.0.0.2"))

    assert join(home, ARGS) == 0

    now = settings.load_node(home)
    assert now.id != before.id
    assert now.name == "gpu2-2"
    assert capsys.readouterr().err == (
        "stoker: gpu2, at 10.0.0.2, has the id of this box, as a copy of its home would:"
        " this box has a new one now\n"
        "stoker: another box of the cluster has the name gpu2: this one is gpu2-2\n"
    )


@pytest.mark.parametrize(("address", "alive"), [("10.0.0.3", True), ("10.0.0.2", False)])
def test_a_machine_that_comes_back_keeps_its_id(
    home: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    address: str,
    alive: bool,
) -> None:
    before = settings.load_node(home)
    find(monkeypatch, member(before, address, alive=alive))

    assert join(home, ARGS) == 0

    assert settings.load_node(home) == before
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("address", "name"), [("10.0.0.3", "gpu3"), ("10.0.0.2", "gpu3-2")])
def test_a_machine_that_was_removed_gets_its_name_again(
    home: str, monkeypatch: pytest.MonkeyPatch, address: str, name: str
) -> None:
    settings.save_node(home, settings.ClusterNode(id="b" * 16, name="gpu3"))
    removed = settings.ClusterNode(id="a" * 16, name="gpu3")
    find(monkeypatch, member(removed, address, alive=False))

    assert join(home, ARGS) == 0

    assert settings.load_node(home).name == name


def test_the_environment_of_jobs_is_recorded(home: str, monkeypatch: pytest.MonkeyPatch) -> None:
    find(monkeypatch)
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.delenv("TMPDIR", raising=False)
    args = Args(**{**vars(ARGS), "env": ["DATA=/mnt"], "setup": "export CUDA=12"})

    assert join(home, args) == 0

    known = settings.load_settings(home)
    assert known is not None
    expected = {"HOME": "/home/me", "STOKER_HOME": home, "DATA": "/mnt", "CUDA": "12"}
    assert expected.items() <= known.env.items()
    assert "TMPDIR" not in known.env


def test_a_setup_that_fails_changes_nothing(home: str, monkeypatch: pytest.MonkeyPatch) -> None:
    find(monkeypatch)
    args = Args(**{**vars(ARGS), "setup": "exit 3"})
    with pytest.raises(StokerError, match="--setup fails"):
        join(home, args)
    assert settings.load_settings(home) is None


@pytest.mark.parametrize("option", ["name", "label", "gpus", "env", "setup", "ports"])
def test_a_member_is_told_to_leave_before_it_joins_with_other_options(
    home: str, monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    find(monkeypatch)
    assert join(home, ARGS) == 0
    value = ["A=b"] if option in ("label", "env") else "x"
    args = Args(**{**vars(ARGS), option: value})
    with pytest.raises(ConflictError, match=f"leave, and then join with --{option}"):
        join(home, args)
