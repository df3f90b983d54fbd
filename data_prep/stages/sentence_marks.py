"""The marks that end sentences, in all scripts; the one list of the project.

By their numbers, as most fonts lack some of them, and right-to-left ones disturb editors.
"""

# One of these may also end an abbreviation, a list or an aside; white space follows.
_LATIN = ".!?\u2026\u203d\u2e2e"
# White space follows these too.
_OTHER = (
    "\u061f\u06d4"  # Arabic question mark, Urdu full stop
    "\u0964\u0965"  # danda and double danda of Indic scripts
    "\u0589\u1362\u1367"  # Armenian; Ethiopic full stop and question mark
    "\u104b\u0f0d\u0f0e\u17d4\u17d5"  # Burmese, Tibetan, Khmer
    "\u0df4\u166e\u1803\ua4ff"  # Sinhala, Canadian, Mongolian, Lisu
)
# The next sentence may follow at once: Chinese and Japanese.
UNSPACED_MARKS = "\u3002\uff01\uff1f\uff61"
# Full width, also between digits.
_WIDE_DOT = "\uff0e"

SPACED_MARKS = _LATIN + _OTHER
SENTENCE_END_MARKS = SPACED_MARKS + UNSPACED_MARKS + _WIDE_DOT
# Those that end nothing but sentences.
UNAMBIGUOUS_MARKS = _OTHER + UNSPACED_MARKS
