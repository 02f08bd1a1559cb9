"""Errors that are shown to users. Each says what happened and what to do."""


class StokerError(Exception):
    """An error that the user can act on, shown as one line without a traceback.

    `field` is the field of a form that caused it, if there is one.
    """

    exit_code = 1

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


class UsageError(StokerError):
    """The command line or an option is wrong."""

    exit_code = 2


class NotFoundError(StokerError):
    """The named thing does not exist."""


class ConflictError(StokerError):
    """The named thing exists, but its state does not allow the request."""
