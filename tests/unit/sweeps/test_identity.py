from __future__ import annotations

import hashlib
import json
import os
import re
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from stoker.sweeps.plan import Run, plan_sweep

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=60)
VALUES = TEXTS | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.booleans()


def runs(values: list[Any], command: str = "x {v}") -> list[Run]:
    return list(plan_sweep({"command": command, "parameters": {"v": values}}, base="/b"))


def test_an_identity_is_the_sha256_of_parameters_and_template() -> None:
    (run,) = plan_sweep({"command": "x {b} {a} {dir}", "parameters": {"b": "ü", "a": [1e-3]}})
    canonical = json.dumps(
        {"params": {"a": 0.001, "b": "ü"}, "command": "x {b} {a} {dir}"},
        sort_keys=True,
        separators=(",", ":"),
        ensure_ascii=False,
    )

    assert run.identity == hashlib.sha256(canonical.encode()).hexdigest()


@given(st.lists(VALUES, min_size=1, max_size=8))
def test_no_two_runs_share_an_identity_or_a_folder(values: list[Any]) -> None:
    found = runs(values)
    distinct = {json.dumps(value) for value in values}

    assert len({run.identity for run in found}) == len({run.id for run in found}) == len(distinct)
    for run in found:
        assert len(run.id) <= 80
        assert len(os.fsencode(run.id)) < 255
        assert "/" not in run.id
        assert run.id not in (".", "..")
        assert re.search(r"-([0-9a-f]{8}|[0-9a-f]{16})$", run.id)


def test_values_with_the_same_first_characters_have_different_folders() -> None:
    found = runs(["x" * 100 + "1", "x" * 100 + "2"])

    assert found[0].id != found[1].id
    assert found[0].id[:60] == found[1].id[:60]


def test_another_command_is_another_run() -> None:
    assert runs([1], "x {v}")[0].identity != runs([1], "y {v}")[0].identity


def test_order_of_parameters_and_position_do_not_matter() -> None:
    one = plan_sweep({"command": "x {args}", "parameters": {"a": [1, 2], "b": [3]}})
    other = plan_sweep({"command": "x {args}", "parameters": {"b": [3], "a": [2]}})

    assert next(iter(other)).identity == list(one)[1].identity


def test_a_folder_name_has_only_varied_parameters() -> None:
    sweep = plan_sweep(
        {
            "command": "x {args}",
            "fixed": {"epochs": 3},
            "parameters": [{"m": "A", "k": 1, "c": 5}, {"m": "B", "z": 1, "c": 5}],
        },
        base="/b",
    )

    assert [run.id.rpartition("-")[0] for run in sweep] == ["m=A,k=1", "m=B,z=1"]
    assert runs([1])[0].id.startswith("run-")
