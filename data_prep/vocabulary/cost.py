"""The cost of learning a vocabulary from a text: entries in reach, memory, time."""

import math

import numpy as np

# (bytes of text, most entries that it gave), measured with cased vocabularies on text of ten
# languages with a smoothing of 0.3 and a least frequency of 2. Fewer languages have fewer words, so
# they give fewer entries.
_REACHED = ((5e6, 90_040), (20e6, 201_030), (60e6, 376_557), (150e6, 466_327))
# A line through memory and time of the smallest and the largest run: MiB, and CPU-seconds.
_BASE_MIB, _MIB_A_MB = 175, 9.5
_BASE_SECONDS, _SECONDS_A_MB = 13, 0.72


def entries_in_reach(text_bytes: float) -> float:
    """Returns about the most entries that so much text gives, interpolated between measurements."""
    return _between(max(text_bytes, 1.0), 0, 1)


def text_for(entries: float) -> float:
    """Returns about the fewest bytes of text that give this many entries."""
    return _between(entries, 1, 0)


def _between(value: float, known: int, wanted: int) -> float:
    """Returns one column of `_REACHED` at a value of the other, on lines of the logarithms."""
    x, y = (np.log([row[column] for row in _REACHED]) for column in (known, wanted))
    # The line goes through the measurements on both sides of the value, or through the two nearest.
    at = min(max(int(np.searchsorted(x, math.log(value))), 1), len(x) - 1)
    slope = (y[at] - y[at - 1]) / (x[at] - x[at - 1])
    return math.exp(y[at] + slope * (math.log(value) - x[at]))


def cost(text_bytes: float) -> tuple[float, float]:
    """Returns about the most MiB of memory and seconds of one core that learning takes.

    The size of the vocabulary adds little to it.
    """
    megabytes = text_bytes / 1e6
    return _BASE_MIB + _MIB_A_MB * megabytes, _BASE_SECONDS + _SECONDS_A_MB * megabytes


def size_warning(vocab_size: int, text_bytes: float, max_bytes: float) -> str:
    """Returns a warning if the text will hardly give this many entries, or an empty string.

    Args:
      vocab_size: entries asked for.
      text_bytes: about how much text there is.
      max_bytes: the limit on what is learned from.
    """
    used = min(text_bytes, max_bytes)
    if vocab_size <= entries_in_reach(used):
        return ""
    wanted = text_for(vocab_size)
    advice = f"give {wanted / 1e6:.3g} MB or more"
    if text_bytes > max_bytes:
        advice = f"raise --max_input_mb to {math.ceil(wanted / 1e6)} or more"
        if text_bytes < wanted:
            advice += ", and give more text"
    return (
        f"--vocab_size={vocab_size} is out of reach: {used / 1e6:.3g} MB of text in ten languages"
        f" gives some {entries_in_reach(used):.0f} entries; {advice}, or ask for fewer"
    )
