"""Counts by `stage/reason`, with the languages and examples of what was dropped."""

import functools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from data_prep.readers.languages import language_code
from data_prep.samples import Samples

UNKNOWN_LANGUAGE = "und"


class Tally(Counter[str]):
    """A counter of reasons; wherever only counts matter a plain one does.

    Attributes:
      languages: of what was dropped, by reason the counts of each language: its code of two or
        three letters, however the input writes it; of pairs both, as in `en-de`.
      samples: examples of it; none unless asked for.
    """

    def __init__(
        self,
        counts: Mapping[str, int] | Iterable[str] = (),
        languages: Mapping[str, Mapping[str, int]] | None = None,
        samples: Samples | None = None,
    ) -> None:
        """Begins with these counts; `samples` is filled from now on."""
        super().__init__(counts)
        self.languages: dict[str, Counter[str]] = defaultdict(Counter)
        for reason, found in (languages or {}).items():
            self.languages[reason] = Counter(found)
        self.samples = samples or Samples(0)

    def merge(self, other: "Tally") -> None:
        """Adds what another worker counted."""
        self.update(other)
        for reason, found in other.languages.items():
            self.languages[reason].update(found)
        self.samples.merge(other.samples)


def count_loss(
    counters: Counter[str],
    reason: str,
    languages: Sequence[str],
    name: str,
    text: Callable[[], str],
) -> None:
    """Counts one thing that is left out; in a `Tally` also by language, and as an example.

    Args:
      counters: `counters[reason]` grows by one.
      reason: a stable name, `stage/what_was_wrong`; `reasons.unit` says what it counts.
      languages: of the text, or of both texts of a pair; empty if it is not known.
      name: where it is from.
      text: makes the text of the example; called if one is wanted.
    """
    counters[reason] += 1
    if isinstance(counters, Tally):
        if languages:
            counters.languages[reason]["-".join(map(_code, languages))] += 1
        if counters.samples.limit:
            counters.samples.offer(reason, name, text())


@functools.lru_cache(maxsize=1024)
def _code(language: str) -> str:
    return language_code(language) or UNKNOWN_LANGUAGE
