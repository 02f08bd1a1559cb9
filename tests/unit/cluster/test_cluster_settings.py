from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import msgspec
import pytest

from stoker.cluster import settings
from stoker.cluster.settings import ClusterSettings
from stoker.errors import StokerError, UsageError

HEAD = ClusterSettings(role="head", address="10.0.0.1", port=7866, own_address="10.0.0.1")


def test_a_new_box_belongs_to_no_cluster(tmp_path: Path) -> None:
    assert settings.load_settings(str(tmp_path)) is None
    assert settings.load_token(str(tmp_path)) is None


def test_membership_is_saved_until_the_box_leaves(tmp_path: Path) -> None:
    home = str(tmp_path)
    settings.save_settings(home, HEAD)
    settings.save_token(home, "x" * 32)

    assert settings.load_settings(home) == HEAD
    assert settings.load_token(home) == "x" * 32
    settings.forget_settings(home)
    assert settings.load_settings(home) is None
    assert settings.load_token(home) is None


def test_the_identity_of_a_box_survives_leaving(tmp_path: Path) -> None:
    home = str(tmp_path)
    first = settings.load_node(home)
    settings.save_settings(home, HEAD)
    settings.forget_settings(home)

    assert settings.load_node(home) == first
    assert settings.load_node(str(tmp_path / "other")).id != first.id


def test_other_users_cannot_read_cluster_files(tmp_path: Path) -> None:
    home = str(tmp_path)
    settings.save_token(home, settings.make_token())
    settings.load_node(home)
    settings.save_settings(home, HEAD)

    folder = settings.folder_of(home)
    assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700
    modes = {name: stat.S_IMODE(os.stat(f"{folder}/{name}").st_mode) for name in os.listdir(folder)}
    assert modes == {"token": 0o600, "node.json": 0o600, "settings.json": 0o600}


def test_damaged_settings_are_named_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "cluster").mkdir()
    file = tmp_path / "cluster" / "settings.json"
    file.write_text("{")

    with pytest.raises(StokerError, match=r"settings\.json.*move it away"):
        settings.load_settings(str(tmp_path))
    assert file.read_text() == "{"


def test_a_name_is_the_hosts_up_to_the_first_dot(monkeypatch: pytest.MonkeyPatch) -> None:
    for host, name in (
        ("gpu1.lab.example.org", "gpu1"),
        ("my host!", "my-host"),
        ("...", "node"),
        ("x" * 80, "x" * 50),
    ):
        monkeypatch.setattr("socket.gethostname", lambda host=host: host)
        assert settings.default_name() == name


def test_a_name_that_another_box_has_gets_a_number() -> None:
    assert settings.free_name("gpu1", ["gpu2"]) == "gpu1"
    assert settings.free_name("gpu1", ["gpu1"]) == "gpu1-2"
    assert settings.free_name("gpu1", ["gpu1", "gpu1-2"]) == "gpu1-3"


def test_labels_are_pairs() -> None:
    assert settings.parse_labels(["disk=nvme", "rack=3"]) == {"disk": "nvme", "rack": "3"}
    for wrong in ("disk", "=x", "disk=", "a b=c", "disk=a,b", "stoker-node=x", "-a=b"):
        with pytest.raises(UsageError, match="--label"):
            settings.parse_labels([wrong])
    with pytest.raises(UsageError, match="already"):
        settings.parse_labels(["disk=a", "disk=b"])


def test_addresses_have_a_port_or_take_the_default() -> None:
    split = settings.split_address
    assert split("10.0.0.1") == ("10.0.0.1", 7866)
    assert split("head.lab:6379", None) == ("head.lab", 6379)
    assert split("[fe80::1]:6379") == ("fe80::1", 6379)
    assert settings.join_address("fe80::1", 1) == "[fe80::1]:1"
    for wrong in ("", "a b", "h:", "h:x", "h:70000", "h:0", "ray://h:1", "-"):
        with pytest.raises(ValueError):
            split(wrong)
    with pytest.raises(ValueError, match="port"):
        split("head", None)


def test_a_new_cluster_has_room_for_its_ports() -> None:
    assert settings.check_port(6379) == 6379
    for wrong in (0, 65535, 65536, 65520):
        with pytest.raises(ValueError, match="a port is a number from 1 to 65518"):
            settings.check_port(wrong)


def test_ray_has_sixteen_ports_of_its_own() -> None:
    made = settings.ClusterSettings(
        role="node", address="h", port=7866, own_address="n", first_port=7868
    )
    assert made.ray_ports == (7868, 7869, 7870, 7871, 7883)
    assert msgspec.structs.replace(made, first_port=None).ray_ports is None


def test_a_second_cluster_of_a_box_has_the_next_ports() -> None:
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        port = taken.getsockname()[1]
        first = settings.choose_first_port(port - 3, is_fixed=False)
        assert (first - (port - 3)) % settings.PORT_COUNT == 0
        assert first > port
        with pytest.raises(
            StokerError, match=r"are in use here: name the first of 16 others with --ports"
        ):
            settings.choose_first_port(port - 3, is_fixed=True)


def test_tokens_differ_and_invalid_ones_are_refused() -> None:
    assert settings.make_token() != settings.make_token()
    assert settings.check_token(f" {'a' * 64}\n") == "a" * 64
    for wrong in ("", "short", "with blank " * 3, "ä" * 32):
        with pytest.raises(UsageError, match="not a token"):
            settings.check_token(wrong)


def test_a_block_of_ports_with_that_of_rays_dashboard_is_left_out() -> None:
    blocks = {settings.choose_first_port(8260 - 16, is_fixed=False, turn=turn) for turn in range(3)}
    assert 8260 not in blocks
