"""The exceptions that the command line shows without a stack trace."""

import contextlib
import functools
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable)
# Longer messages lose their middle, as they may quote a file of any size.
_MOST_CHARACTERS = 800


class UserError(ValueError):
    """An error that the user can correct.

    The message is one line: what was wrong, where, and what to do. It is a `ValueError`, so
    library users catch it as one; the binaries print it as `error: …` and exit with status 1.

    Messages quote names and values of files, which can hold anything: line breaks become spaces,
    other control characters (which a terminal would obey) are escaped, the middle of a long message
    is left out.
    """

    def __init__(self, message: object = "") -> None:
        super().__init__(one_line(message))


class Stopped(Exception):
    """Work was stopped on request and can be resumed; not an error.

    The message is one line: where it stopped and how to resume. The binaries print it and exit with
    status 0.
    """


@contextlib.contextmanager
def within(where: str) -> Iterator[None]:
    """Puts `where` and a colon before the messages of the block's `UserError`s."""
    try:
        yield
    except UserError as error:
        raise UserError(f"{where}: {error}") from None


@contextlib.contextmanager
def guard_reading(path: object, advice: str = "fetch or write it again") -> Iterator[None]:
    """Turns every error of the block, which reads what others have made, into a `UserError`.

    It is the one boundary around files, folders and names from outside: libraries raise errors of
    any class for damaged files, and so does code that takes a value for what it should be. The
    cause is kept: binaries show its stack trace with `--verbosity=1`.

    Args:
      path: what is read; it begins the message of a `UserError` that does not name it.
      advice: what to do about a fault, for the message.
    """
    try:
        yield
    except Stopped:
        raise
    except UserError as error:
        # It may name a file beside this one. Subclasses mean more than their message.
        name, folder = os.path.basename(f"{path}".rstrip("/")), f"{os.path.dirname(f'{path}')}/"
        if type(error) is not UserError or name in str(error) or folder in str(error):
            raise
        raise UserError(f"{path!s:.200}: {error}") from error
    except Exception as error:
        system = getattr(error, "strerror", None)
        kind = "" if isinstance(error, ValueError | OSError) else f"{type(error).__name__}: "
        reason = f"{'cannot be read' if system else 'damaged'} ({kind}{str(system or error)[:200]})"
        raise UserError(f"{path!s:.200}: {reason}; {advice}") from error


def guard_reader(advice: str = "fetch or write it again") -> Callable[[F], F]:
    """Returns a decorator that puts a function into `guard_reading` of its first argument."""

    def decorate(read: F) -> F:
        @functools.wraps(read)
        def read_inside(path: Any, *args: Any, **options: Any) -> Any:
            with guard_reading(path, advice):
                return read(path, *args, **options)

        return read_inside

    return decorate


def one_line(text: object) -> str:
    r"""Returns a text as one line that a terminal can show, whatever it quotes.

    Runs of white space become a space; other control characters, and bytes of a file's name that
    are not UTF-8, are written as in Python's literals; the middle of a long text is left out.

    >>> one_line("a\nb \x1b[2J \udcff")
    'a b \\x1b[2J \\udcff'
    """
    text = str(text)
    if len(text) > _MOST_CHARACTERS:
        half = _MOST_CHARACTERS // 2
        text = f"{text[:half]} […] {text[-half:]}"
    joined = " ".join(text.split())
    if joined.isprintable():
        return joined
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in joined)


def list_names(names: Sequence[str], shown: int = 3) -> str:
    """Returns the first names and the number of the others, for messages."""
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(names[:shown]) + more
