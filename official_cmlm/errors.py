"""The exceptions that the command line shows without a stack trace."""


class UserError(ValueError):
    """Something the person at the keyboard can mend.

    The message is one line: what was wrong, where, and what to do. It is a `ValueError`, so
    library users catch it as one; the binaries print it as `error: …` and exit with status 1.
    """


class Stopped(Exception):
    """Work that was stopped as somebody asked, can go on, and is no error.

    The message is one line: where it stopped and how to go on. The binaries print it and exit with
    status 0.
    """
