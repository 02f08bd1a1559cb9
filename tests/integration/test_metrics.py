"""`GET /metrics`: read by the owner, by Prometheus with its token, and shown on the board."""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import urllib.parse
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client.parser import text_string_to_metric_families as parse

from integration.daemon_fixture import free_port
from page_client import ask
from patience import PATIENCE_S
from stoker.core.exposition import MEDIA_TYPE

if TYPE_CHECKING:
    from integration.daemon_fixture import Queue

BOARD = Path(__file__).parents[2] / "docs" / "how-to" / "grafana-board.json"
HOSTILE = 'p"}\\{x=1'
# `make test` unpacks Debian's package prometheus beside the interpreter.
PATH = os.pathsep.join((os.environ.get("PATH", os.defpath), os.path.dirname(sys.executable)))
PROMTOOL = shutil.which("promtool", path=PATH) or ""
PROMETHEUS = shutil.which("prometheus", path=PATH) or ""
needs_promtool = pytest.mark.skipif(not PROMTOOL, reason="promtool is not installed")
needs_prometheus = pytest.mark.skipif(not PROMETHEUS, reason="prometheus is not installed")


def work(queue: Queue) -> None:
    """Let a job succeed, one fail and one run."""
    jobs = [
        queue.add("-P", HOSTILE, "true"),
        queue.add("exit 3"),
        queue.add("-g", "1", "sleep 1000"),
    ]
    for job in jobs[:2]:
        queue("wait", str(job))
    queue.until_running(jobs[2])


def open_page(queue: Queue) -> tuple[int, dict[str, str]]:
    """Open the page; its port, and the header that Prometheus sends."""
    port = free_port()
    queue.ok("web", "--port", port)
    token = (queue.home / "metrics-token").read_text().strip()
    return int(port), {"authorization": f"Bearer {token}"}


def scrape(port: int, headers: dict[str, str]) -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    connection.request("GET", "/metrics", headers=headers)
    answer = connection.getresponse()
    assert (answer.status, answer.headers["content-type"]) == (200, MEDIA_TYPE)
    found = answer.read()
    connection.close()
    return found


def expressions(board: dict[str, Any]) -> list[str]:
    return [target["expr"] for panel in board["panels"] for target in panel["targets"]]


def test_monitoring_reads_the_queue_with_a_token_that_can_do_nothing_else(queue: Queue) -> None:
    work(queue)
    port, headers = open_page(queue)
    found = {
        (each.name, *each.labels.values()): each.value
        for family in parse(scrape(port, headers).decode())
        for each in family.samples
    }
    assert found["stoker_jobs", "running"] == 1
    assert found["stoker_jobs_ended_total", "done"] == 1
    assert found["stoker_failures_total", "error"] == 1
    assert found["stoker_gpu_jobs", "0"] + found["stoker_gpu_jobs", "1"] == 1
    assert found["stoker_gpu_memory_bytes", "0"] > 0
    assert ask(port, "/v1/ls", headers) == 401
    assert ask(port, "/v1/stop", headers, method="POST") == 401
    assert ask(port, "/metrics") == 401


def test_the_token_outlives_the_daemon_until_the_user_makes_a_new_one(queue: Queue) -> None:
    port, headers = open_page(queue)
    assert stat.S_IMODE((queue.home / "metrics-token").stat().st_mode) == 0o600
    queue.ok("daemon", "restart")
    queue.until(lambda: ask(port, "/metrics", headers) == 200, "the page is open again")
    queue.ok("web", "--new-token")
    assert ask(port, "/metrics", headers) == 401


def test_the_board_asks_for_series_that_there_are(queue: Queue) -> None:
    work(queue)
    port, headers = open_page(queue)
    text = scrape(port, headers).decode()
    board = json.loads(BOARD.read_text())
    named = {
        name for expr in expressions(board) for name in re.findall(r"(?:stoker|process)_\w+", expr)
    }
    there = {sample.name for family in parse(text) for sample in family.samples}
    # No job has taken a second yet, so nothing is known of durations.
    assert named - there <= {"stoker_queue_eta_seconds"}
    assert named


@needs_promtool
def test_promtool_finds_no_fault(queue: Queue, tmp_path: Path) -> None:
    work(queue)
    port, headers = open_page(queue)
    checked = subprocess.run(
        [PROMTOOL, "check", "metrics"],
        input=scrape(port, headers),
        capture_output=True,
        check=False,
    )
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, b"", b"")
    rules = [
        {"record": f"board:{number}", "expr": expr.replace("$instance", ".*")}
        for number, expr in enumerate(expressions(json.loads(BOARD.read_text())))
    ]
    (tmp_path / "rules.json").write_text(
        json.dumps({"groups": [{"name": "board", "rules": rules}]})
    )
    subprocess.run(
        [PROMTOOL, "check", "rules", str(tmp_path / "rules.json")],
        check=True,
        capture_output=True,
    )


@needs_prometheus
def test_prometheus_scrapes_the_page_with_the_token_file(queue: Queue, tmp_path: Path) -> None:
    work(queue)
    page_port, _headers = open_page(queue)
    config = {
        "global": {"scrape_interval": "1s"},
        "scrape_configs": [
            {
                "job_name": "stoker",
                "authorization": {"credentials_file": str(queue.home / "metrics-token")},
                "static_configs": [{"targets": [f"127.0.0.1:{page_port}"]}],
            }
        ],
    }
    (tmp_path / "prometheus.json").write_text(json.dumps(config))
    port = free_port()
    server = queue.stoker.adopt(
        subprocess.Popen(
            [
                PROMETHEUS,
                f"--config.file={tmp_path / 'prometheus.json'}",
                f"--storage.tsdb.path={tmp_path / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stderr=subprocess.DEVNULL,
        )
    )

    def ask_prometheus(expr: str) -> dict[str, float]:
        connection = http.client.HTTPConnection("127.0.0.1", int(port), timeout=PATIENCE_S)
        try:
            connection.request("GET", f"/api/v1/query?{urllib.parse.urlencode({'query': expr})}")
            results = json.loads(connection.getresponse().read())["data"]["result"]
        except (ConnectionError, KeyError, ValueError):
            return {}
        finally:
            connection.close()
        return {each["metric"].get("state", ""): float(each["value"][1]) for each in results}

    queue.until(lambda: ask_prometheus('up{job="stoker"} == 1'), "Prometheus has scraped the page")
    found = ask_prometheus("stoker_jobs")
    assert (found["running"], found["done"], found["failed"]) == (1, 1, 1)
    server.terminate()
    server.wait(PATIENCE_S)
