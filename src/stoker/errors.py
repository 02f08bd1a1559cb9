"""The one root of all errors a user can meet."""


class StokerError(Exception):
    """Something a user can put right; its text names the fault and the remedy in one line."""

    exit_code = 1


class UsageError(StokerError):
    """The command line itself is wrong."""

    exit_code = 2
