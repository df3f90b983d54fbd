"""The one exception that the command line shows without a stack trace."""


class UserError(ValueError):
    """Something the person at the keyboard can mend.

    The message is one line: what was wrong, where, and what to do. It is a `ValueError`, so
    library users catch it as one; the binaries print it as `error: …` and exit with status 1.
    """
