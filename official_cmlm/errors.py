"""The exceptions that the command line shows without a stack trace."""

# Longer messages lose their middle: what they quote may be a file of any size.
_MOST_CHARACTERS = 1200


class UserError(ValueError):
    """An error that the user can correct.

    The message is one line: what was wrong, where, and what to do. It is a `ValueError`, so
    library users catch it as one; the binaries print it as `error: …` and exit with status 1.

    Messages quote names and values of files, which can hold anything: line breaks become spaces,
    other control characters (which a terminal would obey) are escaped, the middle of a long message
    is left out.
    """

    def __init__(self, message: object = "") -> None:
        super().__init__(_one_line(str(message)))


class Stopped(Exception):
    """Work was stopped on request and can be resumed; not an error.

    The message is one line: where it stopped and how to resume. The binaries print it and exit with
    status 0.
    """


def _one_line(text: str) -> str:
    if len(text) > _MOST_CHARACTERS:
        half = _MOST_CHARACTERS // 2
        text = f"{text[:half]} […] {text[-half:]}"
    if text.isprintable():
        return text
    return "".join(_visible(character) for character in " ".join(text.split()))


def _visible(character: str) -> str:
    if character.isprintable():
        return character
    return character.encode("unicode_escape").decode("ascii")
