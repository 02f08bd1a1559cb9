"""The environment that a submission takes along."""

from __future__ import annotations

import pytest

from stoker.submit_context import take_environment


def test_a_run_that_submits_does_not_pass_on_where_its_loggers_write(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("STOKER_RUN_DIR", "/r/x")
    monkeypatch.setenv("WANDB_DIR", "/r/x")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://host")
    taken = take_environment()["env"]
    assert "WANDB_DIR" not in taken
    assert taken["MLFLOW_TRACKING_URI"] == "http://host"

    monkeypatch.delenv("STOKER_RUN_DIR")
    assert take_environment()["env"]["WANDB_DIR"] == "/r/x"
