"""The magic `%%stoker`."""

from __future__ import annotations

from typing import Any

from IPython.core.error import UsageError as ShownError
from IPython.core.interactiveshell import InteractiveShell

from stoker.client.client import Client
from stoker.errors import StokerError, UsageError
from stoker.notebook.cell import CellResult, check_source
from stoker.notebook.cell_job import CellError, CellJob
from stoker.notebook.options import job_options, read_line, read_names
from stoker.notebook.status_line import StatusLine


class _TextValue:
    """A value that could not be sent back; shown as it describes itself."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def load(shell: InteractiveShell) -> None:
    """Add the magic to a shell."""

    def stoker(line: str, cell: str = "") -> Any:
        try:
            return _run(shell, line, cell)
        except CellError:
            raise
        except StokerError as error:
            raise ShownError(str(error)) from None  # IPython shows it as one line
        except SystemExit:  # after -h
            return None

    shell.register_magic_function(stoker, magic_kind="line_cell", magic_name="stoker")
    shell.input_transformers_cleanup.append(_ask_for_help)


def _ask_for_help(lines: list[str]) -> list[str]:
    """Make a line magic of `%%stoker -h` alone: IPython does not call the magic of an empty cell."""
    words = "".join(lines).split()
    if words in (["%%stoker", "-h"], ["%%stoker", "--help"]):
        return [f"%stoker {words[1]}\n"]
    return lines


def _run(shell: InteractiveShell, line: str, cell: str) -> Any:
    args = read_line(line)
    if not cell.strip():
        raise UsageError("%%stoker needs a cell: write Python below its line")
    _check(cell)
    sent, wanted = read_names(args.input), read_names(args.output)
    unknown = [name for name in sent if name not in shell.user_ns]
    if unknown:
        raise UsageError(f"-i {unknown[0]}: the notebook has no such variable")
    variables = {name: shell.user_ns[name] for name in sent}
    with Client(start=True) as client:
        job = CellJob(client, cell, variables, wanted, job_options(args))
        try:
            result = job.result(job.follow(StatusLine().show))
        except KeyboardInterrupt:
            job.kill()
            raise CellError(f"job {job.id} killed: the cell was interrupted") from None
        finally:
            job.forget()
    return _take(shell, result)


def _check(cell: str) -> None:
    try:
        check_source(cell)
    except SyntaxError as error:
        raise UsageError(
            f"line {error.lineno}: {error.msg}; a cell for %%stoker is plain Python, without % and ! lines"
        ) from None


def _take(shell: InteractiveShell, result: CellResult) -> Any:
    """Set the variables that came back, and return the value to show."""
    shell.user_ns.update(result.variables)
    return result.value if result.text is None else _TextValue(result.text)
