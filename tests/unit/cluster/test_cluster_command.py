from __future__ import annotations

import os
import subprocess
import sys

import stoker
from stoker import __version__
from stoker.cluster.protocol import PROTOCOL
from stoker.cluster.ray_command import ray_environment, ray_words
from stoker.cluster.ray_supervisor import find_reason
from stoker.cluster.settings import ClusterNode, ClusterSettings

NODE = ClusterNode(id="0123456789abcdef", name="gpu1")


def words(role: str, **labels: str) -> list[str]:
    wanted = ClusterSettings(
        role=role, address="10.0.0.1", port=7866, own_address="10.0.0.2", labels=labels
    )
    return ray_words(NODE, wanted, "/t")


def test_the_first_box_is_rays_head_and_the_others_join_it() -> None:
    assert {"--head", "--port=7866", "--include-dashboard=false"} <= set(words("head"))
    assert "--address=10.0.0.1:7866" in words("node")
    assert not {"--head", "--port=7866"} & set(words("node"))


def test_ray_gets_the_labels_of_a_node_and_no_resources() -> None:
    argv = words("node", disk="nvme")

    assert {"--num-cpus=0", "--num-gpus=0", "--node-ip-address=10.0.0.2", "--temp-dir=/t"} <= set(
        argv
    )
    labels = next(word for word in argv if word.startswith("--labels="))
    assert labels == (
        f"--labels=disk=nvme,stoker-node={NODE.id},stoker-name=gpu1,stoker-version={__version__},"
        f"stoker-protocol={PROTOCOL}"
    )


def test_rays_environment_has_the_path_of_the_token_but_not_the_token() -> None:
    environ = {
        "PATH": "/bin",
        "RAY_ADDRESS": "elsewhere",
        "RAY_AUTH_MODE": "disabled",
        "STOKER_CLUSTER_TOKEN": "secret",
        "STOKER_COOKIE": "of a job",
        "STOKER_FAKE_NVML": "/gpus",
    }

    made = ray_environment("/home/x", environ)

    assert made["RAY_AUTH_MODE"] == "token"
    assert made["RAY_AUTH_TOKEN_PATH"] == "/home/x/cluster/token"
    assert "secret" not in made.values()
    assert not {"RAY_ADDRESS", "STOKER_COOKIE", "STOKER_CLUSTER_TOKEN"} & set(made)
    assert (made["PATH"], made["STOKER_FAKE_NVML"]) == ("/bin", "/gpus")


def test_ray_gets_no_pythonpath_except_stokers_own_folder() -> None:
    root = os.path.dirname(os.path.dirname(os.path.abspath(stoker.__file__)))

    def path(value: str) -> str | None:
        return ray_environment("/home/x", {"PYTHONPATH": value}).get("PYTHONPATH")

    assert path("/project:") is None
    assert path(f"/project:{root}/:/other") == root


def test_the_reason_of_rays_end_is_one_line_of_its_output() -> None:
    said = """\
2026-11-16 23:39:18,858	ERR scripts.py:1307 -- Some Ray subprocesses exited unexpectedly:
2026-11-16 23:39:18,859	ERR scripts.py:88 -- raylet [exit code=-9]
[2026-11-16 23:39:15,287 I 73 73] (raylet) accessor.cc:475: Received
[state-dump] Error
2026-11-16 23:39:18,859	ERR scripts.py:1315 -- Remaining processes will be killed.
"""
    assert find_reason(said, 1)[0] == "raylet [exit code=-9]"
    assert find_reason("Traceback\nConnectionError: no\nbye\n", 1)[0] == "ConnectionError: no"
    assert find_reason("bye\n", 1)[0] == "bye"
    assert find_reason("", 3)[0] == "exit 3"


def test_a_fatal_error_of_a_library_of_ray_is_the_reason_and_not_its_stack_trace() -> None:
    said = """\
Local node IP: 10.77.0.2
[2026-11-19 15:04:48,433 C 112 112] global_state_accessor.cc:409: Failed to get system config.
*** StackTrace Information ***
/usr/bin/python(_start+0x21) [0x562371885081] _start
"""
    reason, tail = find_reason(said, -6)
    assert reason == "Failed to get system config."
    assert tail[-1].endswith(reason)


def test_no_command_and_no_daemon_imports_ray() -> None:
    code = (
        "import sys\n"
        "from importlib import import_module\n"
        "from stoker.cli.main import VERBS\n"
        "for verb in VERBS: import_module(f'stoker.cli.verbs.{verb}')\n"
        "import stoker.daemon.main, stoker.cli.cluster_table, stoker.cluster.ray_supervisor\n"
        "sys.exit('ray' in sys.modules)\n"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
