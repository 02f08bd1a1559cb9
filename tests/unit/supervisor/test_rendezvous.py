from __future__ import annotations

import socket

import pytest

from stoker.supervisor import rendezvous
from stoker.supervisor.rendezvous import RendezvousPorts


def variables(
    ports: RendezvousPorts,
    key: str = "1.1",
    *running: str,
    gpus: int = 2,
    env: dict[bytes, bytes] | None = None,
) -> dict[bytes, bytes]:
    env = {**(env or {})}
    ports.set_variables(env, key, running, gpus)
    return env


@pytest.fixture
def only_port(monkeypatch: pytest.MonkeyPatch) -> int:
    """A free port, the only one that is handed out."""
    with socket.socket() as sock:
        sock.bind(("", 0))
        port: int = sock.getsockname()[1]
    monkeypatch.setattr(rendezvous, "_FIRST_PORT", port)
    monkeypatch.setattr(rendezvous, "_PORTS", 1)
    return port


def test_a_job_on_several_gpus_gets_a_port_below_those_that_the_kernel_chooses() -> None:
    env = variables(RendezvousPorts())

    assert env[b"MASTER_ADDR"] == b"127.0.0.1"
    assert 20000 <= int(env[b"MASTER_PORT"]) < 32768
    assert env[b"PET_MASTER_PORT"] == env[b"MASTER_PORT"]


def test_a_job_on_one_gpu_gets_no_port() -> None:
    assert variables(RendezvousPorts(), gpus=1) == {}


def test_no_two_running_attempts_have_one_port(only_port: int) -> None:
    ports = RendezvousPorts()

    assert variables(ports, "1.1")[b"MASTER_PORT"] == b"%d" % only_port
    assert b"MASTER_PORT" not in variables(ports, "2.1", "1.1")
    assert variables(ports, "2.1")[b"MASTER_PORT"] == b"%d" % only_port  # 1.1 has ended


@pytest.mark.parametrize("address", ["127.0.0.1", "", "::1"])
def test_a_port_at_which_a_process_listens_is_left_alone(only_port: int, address: str) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family) as other:
        try:
            other.bind((address, only_port))
        except OSError:
            pytest.skip("this machine has no IPv6")
        other.listen()
        assert b"MASTER_PORT" not in variables(RendezvousPorts())


def test_variables_of_a_launcher_s_process_stay_out_of_jobs_on_several_gpus() -> None:
    names = (
        b"RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE GROUP_RANK TORCHELASTIC_MAX_RESTARTS".split()
    )
    env = {**dict.fromkeys(names, b"3"), b"MASTER_PORT": b"29500", b"SLURM_NTASKS": b"4"}

    found = variables(RendezvousPorts(), env=env)

    assert not found.keys() & set(names)
    assert found[b"MASTER_PORT"] != b"29500"
    assert found[b"SLURM_NTASKS"] == b"4"


def test_a_job_on_one_gpu_keeps_a_rank_unless_torchrun_has_set_it() -> None:
    env = {b"RANK": b"3", b"MASTER_PORT": b"29500"}

    assert variables(RendezvousPorts(), gpus=1, env=env) == env
    assert variables(RendezvousPorts(), gpus=1, env={**env, b"TORCHELASTIC_RUN_ID": b"none"}) == {
        b"MASTER_PORT": b"29500"
    }


def test_a_job_on_one_gpu_does_not_inherit_the_port_of_the_job_that_added_it() -> None:
    ports = RendezvousPorts()

    assert variables(ports, "2.1", "1.1", gpus=1, env=variables(ports)) == {}
