"""Progress bars with the time left: many small updates on a terminal, few lines in a log."""

import sys
from collections.abc import Callable
from typing import Any

# Seconds between two lines when standard error is a file.
_LOG_INTERVAL = 10.0


def bar(total: int | None, unit: str, description: str, **kwargs: Any) -> Any:
    """A tqdm bar on standard error.

    Args:
      total: how many `unit`s there are; None if that is not known yet.
      unit: what is counted, e.g. `B`, `step`.
      description: name of the stage.
      **kwargs: further arguments of `tqdm.tqdm`.
    """
    from tqdm import tqdm

    on_terminal = sys.stderr.isatty()
    return tqdm(
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


def counter(total: int, unit: str, description: str) -> Callable[[int], None]:
    """A bar that is moved by calling it with what was done, and closes itself at the end."""
    drawn = bar(total, unit, description)

    def done(count: int) -> None:
        drawn.update(count)
        if drawn.n >= total:
            drawn.close()

    return done
