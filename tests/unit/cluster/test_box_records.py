from __future__ import annotations

from pathlib import Path

from stoker.cluster import settings
from stoker.cluster.ssh.box_records import Box, forget_box, load_boxes, save_box
from stoker.cluster.ssh.tunnel import Tunnel, save_tunnel

GPU1 = Box(target="me@gpu1", python="/usr/bin/python3", digest="1f", address="127.77.0.2")
GPU2 = Box(target="me@gpu2", python="/usr/bin/python3", digest="1f", address="127.77.0.3")


def make_records(home: str) -> None:
    for name, box in (("gpu1", GPU1), ("gpu2", GPU2)):
        save_box(home, name, box)
        assert box.address is not None
        save_tunnel(
            home,
            Tunnel(
                target=box.target,
                python=box.python,
                digest=box.digest,
                address=box.address,
                first_port=7900,
            ),
        )


def test_a_forgotten_box_has_no_record_and_no_tunnel(tmp_path: Path) -> None:
    home = str(tmp_path)
    make_records(home)

    forget_box(home, "gpu1")

    assert load_boxes(home) == {"gpu2": GPU2}
    assert [path.name for path in tmp_path.glob("cluster/tunnel-*")] == ["tunnel-127.77.0.3.json"]
    forget_box(home, "gpu1")
    assert load_boxes(home) == {"gpu2": GPU2}


def test_the_head_forgets_its_boxes_when_the_cluster_ends(tmp_path: Path) -> None:
    home = str(tmp_path)
    make_records(home)

    settings.forget_settings(home)

    assert load_boxes(home) == {}
