"""Types of GPUPeasy's routes, with the field names that its scripts use."""

from __future__ import annotations

from typing import Literal

import msgspec

Success = Literal["successful", "failed"]
Word = Literal["Scheduled", "Running", "Succeeded", "Failed"]


class PeasyJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job to add: a shell line or the words of a command, and a file for its output.

    It runs in the folder `cwd`, to which relative paths refer; by default the user's home. A missing field is
    None: the answer names it in the original's words.
    """

    job_name: str | None = msgspec.field(default=None, name="jobName")
    out_file: str | None = msgspec.field(default=None, name="outFile")
    job_command: str | list[str] | None = msgspec.field(default=None, name="jobCommand")
    cwd: str = "~"


class NewPeasyJob(msgspec.Struct, frozen=True, kw_only=True):
    """Body of /addnewjob."""

    job: PeasyJob | None = None


class PeasyAdded(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Whether a job was added, and its id or the reason."""

    status: Success
    message: str
    job_id: int | None = msgspec.field(default=None, name="jobID")


class PeasyRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job in a list: its GPU if it is running, its exit code if it has ended."""

    job_id: int = msgspec.field(name="jobID")
    job_name: str = msgspec.field(name="jobName")
    job_command: str = msgspec.field(name="jobCommand")
    gpu: str | None = None
    return_code: int | None = msgspec.field(default=None, name="returnCode")


class PeasyRows(msgspec.Struct, frozen=True, kw_only=True):
    """A list of jobs, at most 10,000 of them."""

    status: Success
    value: list[PeasyRow]


class PeasyInfo(msgspec.Struct, frozen=True, kw_only=True):
    """All facts about a job; empty for an unknown job."""

    jobid: int | msgspec.UnsetType = msgspec.UNSET
    job_name: str | msgspec.UnsetType = msgspec.field(default=msgspec.UNSET, name="jobName")
    job_command: str | msgspec.UnsetType = msgspec.field(default=msgspec.UNSET, name="jobCommand")
    out_file: str | msgspec.UnsetType = msgspec.field(default=msgspec.UNSET, name="outFile")
    status: Word | msgspec.UnsetType = msgspec.UNSET
    return_code: int | msgspec.UnsetType | None = msgspec.field(
        default=msgspec.UNSET, name="returnCode"
    )
    pid: int | msgspec.UnsetType | None = msgspec.UNSET


class PeasyJobInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A job, if there is one with that id."""

    status: Success
    value: PeasyInfo


class PeasyDevices(msgspec.Struct, frozen=True, kw_only=True):
    """The slots of the queue."""

    status: Success
    value: list[str]


class PeasyJobQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The id of the job."""

    jobID: str  # noqa: N815 - GPUPeasy's word
