"""The process of a submitit job: what `submitit.core._submit` does, as an attempt of a Stoker job.

Its arguments are submitit's folder, the pickle of the call under the name that it had before the job had an
id, and the name of the function, by which calls are told apart that share GPUs.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TYPE_CHECKING

from submitit.core.submission import process_job
from submitit.core.utils import JobPaths, UncompletedJobError

if TYPE_CHECKING:
    from pathlib import Path

REFUSED = ".refused"  # after the name of a job's result: submitit has decided to end it


def main() -> None:
    """Run the call. A job that submitit ended while Stoker lets it wait again is not run another time."""
    folder, pickle, _name = sys.argv[1:]
    paths = JobPaths(folder, job_id=os.environ["STOKER_JOB_ID"])
    take_pickle(pickle, paths)
    refused = f"{paths.result_pickle}{REFUSED}"
    if os.path.exists(refused):
        os.unlink(refused)
        sys.exit("stoker: submitit has ended this job: its result says why")
    try:
        process_job(folder)
    except UncompletedJobError:
        with open(refused, "w"):
            pass
        raise


def take_pickle(pickle: str | Path, paths: JobPaths) -> None:
    """Give the pickle of a call the name that submitit expects; the other process may have done it."""
    os.makedirs(paths.folder, exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        os.rename(pickle, paths.submitted_pickle)


if __name__ == "__main__":
    main()
