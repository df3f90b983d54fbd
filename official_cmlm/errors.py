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


def one_line(text: object) -> str:
    r"""A text as one line that a terminal can show, whatever names of files it quotes.

    Runs of white space become a space; other control characters, and bytes of a file's name that
    are not UTF-8, are written as in Python's literals.

    >>> one_line("a\nb \x1b[2J \udcff")
    'a b \\x1b[2J \\udcff'
    """
    joined = " ".join(str(text).split())
    if joined.isprintable():
        return joined
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in joined)
