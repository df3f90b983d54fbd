"""The exceptions that the command line shows without a stack trace."""


class UserError(ValueError):
    """An error that the user can correct.

    The message is one line: what was wrong, where, and what to do. It is a `ValueError`, so
    library users catch it as one; the binaries print it as `error: …` and exit with status 1.
    """


class Stopped(Exception):
    """Work was stopped on request and can be resumed; not an error.

    The message is one line: where it stopped and how to resume. The binaries print it and exit with
    status 0.
    """
