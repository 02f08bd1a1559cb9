"""What GPUPeasy's routes take and give, by the names that its scripts know."""

from __future__ import annotations

from typing import Literal

import msgspec

Success = Literal["successful", "failed"]
Word = Literal["Scheduled", "Running", "Succeeded", "Failed"]


class PeasyJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job to be added: a line for the shell or the words of a command, and a file for its output.

    It runs in the folder `cwd`, and what is relative is so to that: by default the user's own folder.
    A missing field is None: the answer names it in the original's words.
    """

    job_name: str | None = msgspec.field(default=None, name="jobName")
    out_file: str | None = msgspec.field(default=None, name="outFile")
    job_command: str | list[str] | None = msgspec.field(default=None, name="jobCommand")
    cwd: str = "~"


class NewPeasyJob(msgspec.Struct, frozen=True, kw_only=True):
    """What /addnewjob takes."""

    job: PeasyJob | None = None


class PeasyAdded(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Whether a job was added, and under which id; or why not."""

    status: Success
    message: str
    job_id: int | None = msgspec.field(default=None, name="jobID")


class PeasyRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job in a list: where it runs if it does, how it ended if it has."""

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
    """Everything about a job; nothing of one that is not there."""

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
    """A job, if there is one of that id."""

    status: Success
    value: PeasyInfo


class PeasyDevices(msgspec.Struct, frozen=True, kw_only=True):
    """The slots of the queue."""

    status: Success
    value: list[str]


class JobQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The job that is meant."""

    jobID: str  # noqa: N815 - GPUPeasy's word
