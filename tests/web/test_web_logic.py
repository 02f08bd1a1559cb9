"""Numbers, times, scales and outcomes: the page's logic, without a page."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from web.modules import Modules


def call(modules: Modules, module: str, name: str, *details: Any) -> Any:
    code = f"async (...details) => (await import('/logic/{module}.js')).{name}(...details)"
    return modules.run(code, *details)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "0"),
        (12, "12"),
        (0.1 + 0.2, "0.3"),
        (123.456789, "123.46"),
        (0.00001, "1e-5"),
        (1234567.5, "1.2346e6"),
        ("text", "text"),
        (None, ""),
        (True, "true"),
        ([1, 2], "[1,2]"),
    ],
)
def test_a_cell_has_five_digits_at_most(modules: Modules, value: object, shown: str) -> None:
    assert call(modules, "format", "cell", value) == shown


@pytest.mark.parametrize(
    ("written", "seconds"),
    [("90s", 90), ("2h", 7200), ("1d12h", 129600), ("1.5h", 5400), ("01:00:30", 3630)],
)
def test_durations_are_read_as_on_the_command_line(
    modules: Modules, written: str, seconds: float
) -> None:
    from stoker.core.durations import parse_duration

    assert call(modules, "format", "parseDuration", written) == seconds == parse_duration(written)


@pytest.mark.parametrize("written", ["10G", "1.5GiB", "800 mb", "1T"])
def test_sizes_are_read_as_on_the_command_line(modules: Modules, written: str) -> None:
    from stoker.core.size import parse_size

    assert call(modules, "format", "parseSize", written) == parse_size(written)


@pytest.mark.parametrize("written", ["5", "-1h", "0s", "1x", "h", "1 h"])
def test_a_wrong_duration_is_answered_with_an_example(modules: Modules, written: str) -> None:
    told = modules.run(
        """async (written) => {
          const {parseDuration} = await import('/logic/format.js');
          try { parseDuration(written); } catch (error) { return error.message; }
        }""",
        written,
    )
    assert "write " in told


def test_ticks_are_round_values_inside_the_axis(modules: Modules) -> None:
    assert call(modules, "scales", "roundTicks", 0, 1, 5) == [0, 0.2, 0.4, 0.6, 0.8, 1]
    assert call(modules, "scales", "roundTicks", -3, 7, 5) == [-2, 0, 2, 4, 6]
    assert call(modules, "scales", "roundTicks", 5, 5, 5) == [5]


def test_a_logarithmic_axis_is_automatic_and_has_powers_as_ticks(modules: Modules) -> None:
    found = modules.run("""async () => {
      const {makeAxis} = await import('/logic/axes.js');
      const axis = makeAxis('lr', [1e-4, 1e-3, null, 0.1], [0, 1]);
      const even = makeAxis('lr', [1e-4, 0.1], [0, 1], false);
      const words = makeAxis('opt', ['sgd', 'adam', null], [0, 1]);
      const none = makeAxis('x', [], [0, 1]);
      return {isLog: axis.isLog, middle: axis.place(10 ** -2.5), ticks: axis.ticks.map((tick) => tick.label),
        even: even.isLog, missing: axis.place(null), word: axis.place('x'),
        words: [words.place('adam'), words.place('sgd'), words.place(null)], none: none.ticks};
    }""")
    assert found["isLog"]
    assert not found["even"]
    assert found["middle"] == pytest.approx(0.5)
    assert found["ticks"] == ["0.0001", "0.001", "0.01", "0.1"]
    assert found["missing"] is None
    assert found["word"] is None
    assert found["words"] == [0, 1, None]
    assert found["none"] == []


def _run(job: int, state: str = "done", reason: str | None = None, **more: Any) -> dict[str, Any]:
    return {"job": job, "state": state, "reason": reason, "params": {}, "metrics": {}, **more}


def test_the_best_run_is_the_best_of_those_that_have_a_value(modules: Modules) -> None:
    runs = [_run(1, metrics={"loss": 0.5}), _run(2, metrics={"loss": "nan"}), _run(3)]
    runs.append(_run(4, metrics={"loss": 0.2}))
    assert call(modules, "outcomes", "bestRun", runs, "loss", "minimize")["job"] == 4
    assert call(modules, "outcomes", "bestRun", runs, "loss", "maximize")["job"] == 1
    assert call(modules, "outcomes", "bestRun", runs, "acc", "maximize") is None


def test_a_run_that_did_not_succeed_is_not_the_best(modules: Modules) -> None:
    runs = [_run(1, metrics={"loss": 0.5}), _run(2, "failed", metrics={"loss": 0.1})]
    runs += [_run(3, "waiting", metrics={"loss": 0.2}), _run(4, "running", metrics={"loss": 0.4})]
    assert call(modules, "outcomes", "bestRun", runs, "loss", "minimize")["job"] == 4
    assert call(modules, "outcomes", "bestRun", runs[1:3], "loss", "minimize") is None


def test_failures_are_grouped_by_reason_the_most_frequent_first(modules: Modules) -> None:
    runs = [_run(1, "failed", "exit 1"), _run(2), _run(3, "failed", "exit 3"), _run(4, "lost")]
    runs += [_run(5, "failed", "exit 3"), _run(6, "running", "exit 3")]
    found = call(modules, "outcomes", "groupFailures", runs)
    groups = [(group["reason"], [run["job"] for run in group["runs"]]) for group in found]
    assert groups == [("exit 3", [3, 5]), ("exit 1", [1]), ("lost", [4])]


def test_failure_groups_differ_by_words_not_by_numbers(modules: Modules) -> None:
    memory = "exit 1: out of memory: 30.0 GiB wanted, {} GiB free"
    runs = [_run(1, "failed", memory.format("1.5"), failure="gpu_oom")]
    runs += [_run(2, "failed", memory.format("22"), failure="gpu_oom")]
    runs += [_run(3, "failed", memory.format("22"), failure="host_oom")]
    runs += [_run(4, "failed", "exit 1: no such file", failure="setup")]
    found = call(modules, "outcomes", "groupFailures", runs)
    groups = [(group["failure"], [run["job"] for run in group["runs"]]) for group in found]
    assert groups == [("gpu_oom", [1, 2]), ("host_oom", [3]), ("setup", [4])]


def test_runs_without_a_value_come_last_in_both_orders(modules: Modules) -> None:
    order = modules.run("""async () => {
      const {sortRuns} = await import('/logic/outcomes.js');
      const runs = [{v: 2}, {v: null}, {v: 10}, {v: 'b'}, {v: 'a'}];
      const sort = (falls) => sortRuns(runs, (run) => run.v, falls).map((run) => run.v);
      return [sort(false).at(-1), sort(true).at(-1), sortRuns([{v: 10}, {v: 9}], (run) => run.v, false)[0].v];
    }""")
    assert order == [None, None, 9]


def test_parameter_names_of_javascript_objects_are_only_names(modules: Modules) -> None:
    run = _run(1)
    assert call(modules, "outcomes", "valueOf", run, "constructor") is None
    assert call(modules, "outcomes", "valueOf", run, "__proto__") is None


def test_smoothing_starts_without_bias_and_keeps_gaps(modules: Modules) -> None:
    assert call(modules, "curves", "smooth", [1, 3, None, 3], 0.5)[:2] == [1, 7 / 3]
    assert call(modules, "curves", "smooth", [1, 3], 0) == [1, 3]


def test_means_count_the_runs_that_have_come_so_far(modules: Modules) -> None:
    bands = modules.run(
        """async (curves) => {
          const {bandsOf} = await import('/logic/curves.js');
          const [band] = bandsOf(curves, () => 'all');
          return [band.count, band.ys[0], band.low[0], band.ys.at(-1), band.high.at(-1)];
        }""",
        [
            {"job": 1, "xs": [0, 10], "ys": [0, 10]},
            {"job": 2, "xs": [0, 10, 20], "ys": [2, 12, 22]},
        ],
    )
    assert bands == [2, 1, pytest.approx(1 - 2**0.5), 22, 22]


def test_the_best_so_far_follows_the_order_in_which_runs_ended(modules: Modules) -> None:
    runs = [
        {"job": 1, "ended_at": 30, "value": 5},
        {"job": 2, "ended_at": 10, "value": 7},
        {"job": 3, "ended_at": 20, "value": 9},
        {"job": 4, "ended_at": 25, "value": None},
    ]
    found = call(modules, "curves", "bestSoFar", runs, "minimize")
    assert (found["jobs"], found["best"]) == ([2, 3, 1], [7, 7, 5])


def test_the_page_makes_newer_answers_of_changes(modules: Modules) -> None:
    known = '[{"id":1},{"id":2},{"id":3}]'
    changed = call(modules, "changes", "applyChange", known, {"1": '"id":5'})
    assert changed == '[{"id":1},{"id":5},{"id":3}]'
    shorter = call(modules, "changes", "applyChange", known, [1, 3, ['"id":3}]']])
    assert shorter == '[{"id":1},{"id":3}]'
    told = call(modules, "changes", "bodyOf", '{"type":"data","id":3,"body":{"body":1}}')
    assert told == '{"body":1}'


def test_every_family_of_jobs_has_a_colour_and_keeps_it(modules: Modules) -> None:
    names = [f"net{chr(97 + number)}-{number}" for number in range(26)]
    colours = [call(modules, "packing", "familyColour", name, "vision") for name in names]
    assert set(colours) <= set(range(8))
    assert len(set(colours)) > 3
    assert call(modules, "packing", "familyColour", "neta-77", "vision") == colours[0]


def test_the_parameter_that_decides_a_metric_matters_and_others_do_not(modules: Modules) -> None:
    runs = [
        {
            "job": number,
            "state": "done" if number else "failed",
            "params": {"lr": number % 4, "seed": number, "opt": "ab"[number // 4 % 2]},
            "metrics": {"loss": (number % 4) ** 2 + number % 7 / 50 if number else 1e9},
        }
        for number in range(41)
    ]
    found = call(modules, "importance", "importanceOf", runs, ["seed", "opt", "lr"], "loss")
    shares = {each["name"]: each["share"] for each in found}
    assert found[0]["name"] == "lr"
    assert shares["lr"] > 0.95
    assert max(shares["opt"], shares["seed"]) < 0.1
    assert call(modules, "importance", "importanceOf", runs[:8], ["lr"], "loss") == []


def test_alike_commands_are_told_apart_by_the_options_that_differ(modules: Modules) -> None:
    commands = [
        "python fit.py --lr 0.0123456789 --bs 4 opt=a",
        "python fit.py --lr 0.5 --bs 4 opt=b",
        "python other.py --lr 1",
    ]
    found = modules.run(
        """async (commands) => {
          const {variedOptions} = await import('/logic/commands.js');
          return [...variedOptions(commands.map((command, id) => ({id, command})))];
        }""",
        commands,
    )
    assert found == [
        [0, {"program": "python fit.py", "varied": "lr=0.012346 opt=a"}],
        [1, {"program": "python fit.py", "varied": "lr=0.5 opt=b"}],
    ]


@pytest.mark.parametrize(
    ("node", "shown"),
    [
        ({"away": None, "drained": None, "lacks": None}, ""),
        ({"away": None, "drained": "", "lacks": None}, "drained"),
        ({"away": None, "drained": "new disk", "lacks": None}, "drained: new disk"),
        ({"away": "no answer", "drained": "new disk", "lacks": None}, "away: no answer"),
        ({"away": None, "drained": None, "lacks": "its disk is full"}, "its disk is full"),
    ],
)
def test_a_node_says_why_no_job_starts_there(modules: Modules, node: Any, shown: str) -> None:
    assert call(modules, "nodes", "describeNode", node) == shown


@pytest.mark.parametrize(
    ("text", "jobs"),
    [
        ("", [1, 2, 3]),
        ("failed", [3]),
        ("lr<0.1", [1, 2]),
        ("lr>=0.01 opt=sgd", [2]),
        ("state!=done", [3]),
        ("adam", [1, 3]),
        ("acc>0", [1]),
        ("nothing=1", []),
    ],
)
def test_runs_are_filtered_by_words(modules: Modules, text: str, jobs: list[int]) -> None:
    code = """async (text) => {
      const {runFilter} = await import('/logic/filter.js');
      const run = (job, state, params, metrics) => ({job, state, params, metrics});
      const runs = [
        run(1, 'done', {lr: 0.001, opt: 'adam'}, {acc: 0.5}),
        run(2, 'done', {lr: 0.01, opt: 'sgd'}, {}),
        run(3, 'failed', {lr: 0.1, opt: 'adam'}, {}),
      ];
      return runs.filter(runFilter(text)).map(({job}) => job);
    }"""
    assert modules.run(code, text) == jobs


def test_a_forecast_is_told_in_one_line(modules: Modules) -> None:
    found = {
        "start_at": 1240,
        "end_at": 1000 + 3600,
        "delays": [{"project": "vision", "delay_s": 540}, {"project": None, "delay_s": 3}],
        "paused": None,
        "problem": None,
    }
    told = call(modules, "forecast", "foretell", found, 1000)
    assert re.fullmatch(r"starts in ~4m, done ~\d\d:\d\d, delays project vision by 9m", told)
    unknown = {**found, "start_at": None, "end_at": None, "problem": "nothing is known"}
    assert call(modules, "forecast", "foretell", unknown, 1000) == "nothing is known"


def test_the_time_left_of_a_sweep_comes_from_the_runs_that_are_done(modules: Modules) -> None:
    done = {"state": "done", "started_at": 0, "ended_at": 100}
    open_runs = [{"state": each, "started_at": None, "ended_at": None} for each in ("waiting",) * 4]
    running = {"state": "running", "started_at": 5, "ended_at": None}
    left = call(modules, "outcomes", "secondsLeft", [done, running, running, *open_runs])
    assert left == pytest.approx(250)
    assert call(modules, "outcomes", "secondsLeft", open_runs) is None


def test_an_effect_that_fails_does_not_stop_the_others(modules: Modules) -> None:
    code = """async () => {
      const {effect, signal} = await import('/lib/signal.js');
      const [failed, seen] = [[], []];
      addEventListener('error', (event) => { event.preventDefault(); failed.push(event.message); });
      const value = signal(0);
      effect(() => { if (value.value === 1) throw new Error('odd'); });
      effect(() => { seen.push(value.value); });
      for (const next of [1, 2]) {
        value.value = next;
        await Promise.resolve();
      }
      return {failed, seen};
    }"""
    assert modules.run(code) == {"failed": ["Uncaught Error: odd"], "seen": [0, 1, 2]}
