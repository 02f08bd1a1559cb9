"""What is read of a job's output: little, once, and nothing that could hurt."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stoker.core.waste import Output
from stoker.engine.output_tail import OutputTail

STARTED_AT = 5000.0


class Run:
    """A log and a metrics file that the test writes."""

    def __init__(self, folder: Path, log_since: int = 0) -> None:
        self.log = folder / "log.txt"
        self.metrics = folder / "metrics.jsonl"
        self.log.touch()
        self.tail = self.new_tail(log_since)

    def new_tail(self, log_since: int = 0) -> OutputTail:
        return OutputTail(str(self.log), log_since, str(self.metrics), STARTED_AT)

    def write(self, text: str | bytes) -> None:
        with self.log.open("ab") as file:
            file.write(text.encode() if isinstance(text, str) else text)

    def report(self, **entry: object) -> None:
        with self.metrics.open("a") as file:
            file.write(json.dumps(entry) + "\n")

    def look(self, *, finds_losses: bool = True) -> Output:
        output = self.tail.look(finds_losses=finds_losses)
        assert output is not None
        return output

    def losses(self) -> list[float]:
        return [value.number for value in self.look().losses]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


def test_each_line_is_read_once(run: Run) -> None:
    run.write("loss 1\nloss 2\n")
    assert run.losses() == [1, 2]
    run.write("loss 3\n")
    assert run.losses() == [3]
    assert run.losses() == []


def test_a_line_is_read_when_it_is_complete(run: Run) -> None:
    run.write("loss 1\nloss 0.")
    assert run.losses() == [1]
    run.write("25\r")  # as a progress bar ends it
    assert run.losses() == [0.25]


def test_changes_are_told_of_the_log_and_of_the_metrics(run: Run) -> None:
    assert run.look().has_changed
    assert not run.look().has_changed
    run.write("x")
    assert run.look().has_changed
    run.report(loss=1)
    assert run.look().has_changed
    assert not run.look().has_changed


def test_a_finite_loss_is_searched_only_if_the_last_one_was_not(run: Run) -> None:
    run.write("loss 1\n")
    assert run.look(finds_losses=False).losses == ()
    run.write("loss 1\nloss nan\n")
    assert len(run.look(finds_losses=False).losses) == 2


def test_of_much_output_the_end_is_read(run: Run) -> None:
    run.look()
    run.write("loss 1\n" * 100_000 + "loss 2\n")
    losses = run.losses()
    assert losses[-1] == 2
    assert set(losses[:-1]) == {1}
    assert 1000 < len(losses) < 3000
    run.write("loss 3\n")
    assert run.losses() == [3]


def test_a_log_without_line_ends_is_passed_over(run: Run) -> None:
    run.write(b"\x00" * 200_000)
    assert run.losses() == []
    run.write("\nloss 1\n")
    assert run.losses() == [1]


def test_a_gigabyte_costs_a_few_kilobytes(run: Run) -> None:
    with run.log.open("r+b") as file:
        file.truncate(1 << 30)
        file.seek(0, os.SEEK_END)
        file.write(b"\nloss nan\n")
    with run.metrics.open("wb") as file:
        file.truncate(1 << 30)
    [loss] = run.losses()
    assert math.isnan(loss)


def test_a_log_that_was_cut_or_replaced_goes_on_at_its_end(run: Run) -> None:
    run.write("loss 1\n" * 100)
    run.look()
    os.truncate(run.log, 20)
    assert run.losses() == []
    run.write("\nloss 2\n")
    assert run.losses() == [2]
    fresh = run.log.with_name("fresh")
    fresh.write_text("loss 3\n" * 200)
    fresh.replace(run.log)
    assert run.losses() == []
    run.write("loss 4\n")
    assert run.losses() == [4]


def test_what_earlier_attempts_wrote_does_not_count(run: Run) -> None:
    run.write("loss nan\n")
    run.report(time=STARTED_AT - 1, step=9, loss="nan")
    run.report(loss="nan")  # without a time it may be of any attempt
    run.tail = run.new_tail(log_since=run.log.stat().st_size)
    output = run.look()
    assert (output.has_any, output.losses, output.metrics) == (False, [], [])
    run.report(time=STARTED_AT + 1, step=1, loss=0.5)
    run.report(loss=0.25)
    assert [value.number for value in run.look().metrics] == [0.5, 0.25]


def test_metrics_from_before_a_new_daemon_count_by_their_time(run: Run) -> None:
    run.report(time=STARTED_AT - 1, loss=1)
    run.report(time=STARTED_AT, loss="nan", step=7)
    output = run.look()
    [value] = output.metrics
    assert (math.isnan(value.number), value.step, output.has_any) == (True, 7, True)


def test_other_than_plain_files_are_never_opened(run: Run, tmp_path: Path) -> None:
    run.log.unlink()
    assert run.tail.look(finds_losses=True) is None
    os.mkfifo(run.log)
    assert run.tail.look(finds_losses=True) is None  # opening it would wait for a writer
    run.log.unlink()
    run.log.symlink_to("/dev/zero")
    assert run.tail.look(finds_losses=True) is None
    run.log.unlink()
    run.log.mkdir()
    assert run.tail.look(finds_losses=True) is None
    run.log.rmdir()
    run.write("loss 1\n")
    assert run.losses() == [1]


def test_a_link_in_place_of_the_metrics_is_not_followed(run: Run, tmp_path: Path) -> None:
    target = tmp_path / "other.jsonl"
    target.write_text(json.dumps({"time": STARTED_AT, "loss": "nan"}) + "\n")
    run.metrics.symlink_to(target)
    assert run.look().metrics == []
    run.metrics.unlink()
    os.mkfifo(run.metrics)
    assert run.look().metrics == []


pieces = st.one_of(
    st.binary(max_size=200),
    st.sampled_from(
        [b"loss nan\n", b'{"loss": "nan", "time": 6000}\n', b"loss", b": ", b"inf", b'{"', b"\r"]
    ),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(pieces, pieces, st.booleans()), max_size=12))
def test_no_content_is_an_error(
    tmp_path_factory: pytest.TempPathFactory, growth: list[tuple[bytes, bytes, bool]]
) -> None:
    run = Run(tmp_path_factory.mktemp("run"))
    for text, entry, is_cut in growth:
        run.write(text)
        with run.metrics.open("ab") as file:
            file.write(entry)
        if is_cut:
            os.truncate(run.log, run.log.stat().st_size // 2)
        run.look()
