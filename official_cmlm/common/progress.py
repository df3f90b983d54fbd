"""Progress bars with the time left: many small updates on a terminal, few lines in a log."""

import sys
import weakref
from collections.abc import Callable
from typing import Any

# Seconds between two lines when standard error is a file.
_LOG_INTERVAL = 10.0
# Bars that were drawn and are still referenced; closed ones may be among them.
_drawn: "weakref.WeakSet[Any]" = weakref.WeakSet()


def bar(total: int | None, unit: str, description: str, **kwargs: Any) -> Any:
    """Returns a tqdm bar on standard error; `kwargs` are further arguments of `tqdm.tqdm`.

    The total is None if it is not known yet; a unit is e.g. `B` or `step`.
    """
    from tqdm import tqdm

    on_terminal = sys.stderr.isatty()
    drawn = tqdm(
        total=total,
        unit=unit,
        desc=description,
        mininterval=0.2 if on_terminal else _LOG_INTERVAL,
        maxinterval=10.0 if on_terminal else _LOG_INTERVAL,
        miniters=None if on_terminal else 1,
        dynamic_ncols=on_terminal,
        ascii=not on_terminal,
        **kwargs,
    )
    _drawn.add(drawn)
    return drawn


def close_bars() -> None:
    """Ends the lines of all bars that are still drawn, so that a message begins on its own line."""
    for drawn in list(_drawn):
        # Closing a bar a second time has no effect.
        drawn.close()
    _drawn.clear()


def counter(total: int, unit: str, description: str) -> Callable[[int], None]:
    """Returns a function that moves a bar by a count; the bar closes itself at the end."""
    drawn = bar(total, unit, description)

    def move(count: int) -> None:
        drawn.update(count)
        if drawn.n >= total:
            drawn.close()

    return move


def in_words(seconds: float) -> str:
    """Returns a duration in words.

    >>> in_words(5400), in_words(40), in_words(3_600_000)
    ('1.5 hours', '40 seconds', '42 days')
    """
    for unit, name in ((86_400, "days"), (3_600, "hours"), (60, "minutes")):
        if seconds >= 1.5 * unit:
            value = seconds / unit
            return f"{value:.1f} {name}" if value < 10 and value % 1 else f"{value:.0f} {name}"
    return f"{seconds:.0f} seconds"
