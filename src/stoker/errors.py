"""The one family of errors that reach a user, each with what to do about it."""


class StokerError(Exception):
    """Something a user can understand and act on; shown as one line, never as a traceback.

    `field` is the part of a request that it is about, where a form can show it beside.
    """

    exit_code = 1

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


class UsageError(StokerError):
    """The command line or an option is wrong."""

    exit_code = 2


class NotFoundError(StokerError):
    """What was named does not exist."""


class ConflictError(StokerError):
    """It exists, but is not in a state for what was asked."""
