from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.core.kind import kind_of


@pytest.mark.parametrize(
    ("project", "name", "line", "kind"),
    [
        (None, None, "python train.py --lr 0.1", "/python train.py"),
        ("p", None, "python train.py --lr 0.2", "p/python train.py"),
        (None, None, "/usr/bin/python3 -u train.py", "/python3 train.py"),
        (None, None, "CUDA_LAUNCH_BLOCKING=1 python -m pkg.train --x 1", "/python -m pkg.train"),
        (None, None, "./run.sh", "/run.sh"),
        (None, None, "A=1", "/A=1"),
        (None, None, "", "/"),
        ("p", "seed-17", "whatever", "p/seed-#"),
        ("p", "lr0.001-seed3", "whatever", "p/lr#-seed#"),
    ],
)
def test_what_is_alike_is_of_one_kind(
    project: str | None, name: str | None, line: str, kind: str
) -> None:
    assert kind_of(project, name, line.split()) == kind


@given(st.none() | st.text(), st.none() | st.text(), st.lists(st.text()))
def test_every_job_is_of_some_kind(project: str | None, name: str | None, words: list[str]) -> None:
    assert len(kind_of(project, name, words)) <= 120
