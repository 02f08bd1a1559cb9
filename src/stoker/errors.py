"""The one family of errors that reach a user, each with what to do about it."""


class StokerError(Exception):
    """Something a user can understand and act on; shown as one line, never as a traceback."""

    exit_code = 1


class UsageError(StokerError):
    """The command line or an option is wrong."""

    exit_code = 2


class NotFoundError(StokerError):
    """What was named does not exist."""


class ConflictError(StokerError):
    """It exists, but is not in a state for what was asked."""
