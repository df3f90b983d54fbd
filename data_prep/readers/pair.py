"""What a reader of pairs yields."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pair:
    """Two texts that belong together.

    Attributes:
      texts: both, runs of white space made one space; either may be empty.
      languages: language of each.
      label: name of the pair's class, or None.
      where: `path:line` of the pair, for messages.
    """

    texts: tuple[str, str]
    languages: tuple[str, str]
    label: str | None
    where: str


def one_space(text: str) -> str:
    """The text with every run of white space made one space, and none at its ends."""
    return " ".join(text.split())
