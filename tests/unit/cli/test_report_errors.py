"""How errors of a verb become exit codes."""

from __future__ import annotations

import pytest

from stoker.cli.main import report_errors


class Interrupting:
    """A descriptor during whose set-up the user presses Ctrl-C."""

    def __set_name__(self, _owner: type, _name: str) -> None:
        raise KeyboardInterrupt


def make_class() -> int:
    type("Made", (), {"attribute": Interrupting()})
    return 0


def fail() -> int:
    raise RuntimeError("a bug")


def test_ctrl_c_while_a_library_makes_a_class_is_an_interrupt() -> None:
    assert report_errors("stoker", make_class) == 130


def test_other_runtime_errors_keep_their_traceback() -> None:
    with pytest.raises(RuntimeError, match="a bug"):
        report_errors("stoker", fail)
