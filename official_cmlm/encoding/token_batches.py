"""Texts to padded batches of ids: the one place where texts are tokenised to be encoded."""

import dataclasses
import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from official_cmlm.tokenization import Tokenizer, TokenRows, Vocabulary

# Maximum numbers of texts and of characters that are tokenised together, and sorted by length.
_WINDOW, _WINDOW_CHARACTERS = 2048, 1 << 22


@dataclasses.dataclass
class CutTexts:
    """The number of texts that are cut at `max_seq_length`, and of their tokens.

    Attributes:
      max_seq_length: longest length, special tokens included.
      seen: number of all texts.
      texts: number of longer texts.
      tokens: number of their tokens beyond that length.
      exact: whether all of their tokens were seen.
    """

    max_seq_length: int
    seen: int = 0
    texts: int = 0
    tokens: int = 0
    exact: bool = True

    def count(self, rows: TokenRows, texts: Sequence[str], most: int | None) -> None:
        """Adds tokenised texts; texts of more than `most` characters were tokenised in part."""
        over = np.maximum(lengths_of(rows) - self.max_seq_length, 0)
        if most is not None:
            partly = np.array([len(text) > most for text in texts], bool)
            self.exact &= not partly.any()
            over = np.maximum(over, partly)
        self.seen += len(texts)
        self.texts += int(np.count_nonzero(over))
        self.tokens += int(over.sum())

    def __str__(self) -> str:
        least = "" if self.exact else "at least "
        return (
            f"{self.texts} of {self.seen} texts have more than {self.max_seq_length} tokens, "
            f"together {least}{self.tokens} too many"
        )


@dataclasses.dataclass(frozen=True)
class TextReader:
    """A tokenizer with what an encoder adds to texts and takes from them.

    Attributes:
      vocabulary: its vocabulary.
      tokenizer: turns texts into ids.
      max_seq_length: longer rows are cut to this many tokens, `[CLS]` and `[SEP]` included.
      prompt: the text before each text.
    """

    vocabulary: Vocabulary
    tokenizer: Tokenizer
    max_seq_length: int
    prompt: str

    def whole(self, texts: Iterable[str]) -> Iterator[TokenRows]:
        """Yields the ids of texts with the prompt, without special tokens, in windows."""
        for window in _windows_of(self.prompt + text for text in texts):
            yield self.tokenizer.tokenize(window)

    def windows(self, texts: Iterable[str], cut: CutTexts | None = None) -> Iterator[TokenRows]:
        """Yields the windows of `whole`, each row cut to `max_seq_length - 2` ids.

        `cut` counts the rows that are longer. A window of the texts is read at a time.
        """
        # Each character has at least one byte, so this many characters are enough.
        most = self.vocabulary.most_bytes(self.max_seq_length)
        # One character more shows whether a text is longer.
        longest = None if most is None else most + 1
        for window in _windows_of((self.prompt + text)[:longest] for text in texts):
            rows = self.tokenizer.tokenize([text[:most] for text in window] if most else window)
            if cut is not None:
                cut.count(rows, window, most)
            yield cut_rows(rows, self.max_seq_length - 2)


def join_rows(windows: Iterable[TokenRows]) -> TokenRows:
    """Returns the rows of all windows one after the other."""
    values, splits = [np.zeros([0], np.int32)], [np.zeros([1], np.int64)]
    for rows in windows:
        values.append(rows.values)
        splits.append(rows.row_splits[1:] + splits[-1][-1])
    return TokenRows(np.concatenate(values), np.concatenate(splits))


def lengths_of(rows: TokenRows) -> np.ndarray:
    """Counts the tokens of each row with its two special ones: int64 `[n]`."""
    return np.diff(rows.row_splits) + 2


def pad_rows(
    rows: TokenRows, special_ids: dict[str, int], chosen: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Builds a batch of rows, by default of all; see `backends.Backend.embed`.

    Returns:
      `[CLS] tokens [SEP]` and padding, int32 `[n, longest]`, and the lengths, int32 `[n]`.
    """
    chosen = np.arange(len(rows.row_splits) - 1) if chosen is None else chosen
    starts = rows.row_splits[chosen]
    lengths = (rows.row_splits[chosen + 1] - starts + 2).astype(np.int32)
    # Every row has the two special tokens, so no row is shorter.
    width = int(lengths.max(initial=2))
    columns = np.arange(width)
    # Column 1 holds the first token; values outside a row are overwritten below.
    source = starts[:, np.newaxis] + columns - 1
    inside = (columns > 0) & (columns < lengths[:, np.newaxis] - 1)
    ids = np.full([len(chosen), width], special_ids["pad"], np.int32)
    ids[inside] = rows.values[source[inside]]
    ids[:, 0] = special_ids["cls"]
    ids[np.arange(len(chosen)), lengths - 1] = special_ids["sep"]
    return ids, lengths


def batches(
    lengths: np.ndarray, batch_size: int, tokens: int, padding: int
) -> Iterator[np.ndarray]:
    """Yields the indices of each batch's rows, the longest first; `lengths` in tokens.

    A batch of long rows has fewer of them, so memory does not grow with their length. The first
    batch shows whether memory suffices.

    Args:
      lengths: tokens of each row, special tokens included.
      batch_size: most rows a batch.
      tokens: most tokens a batch, padding included, unless a single row has more.
      padding: most tokens of padding a batch.
    """
    order = np.argsort(-lengths, kind="stable")
    start = 0
    while start < len(order):
        longest = int(lengths[order[start]])
        count = min(batch_size, max(1, tokens // longest))
        added = np.cumsum(longest - lengths[order[start : start + count]])
        count = int(np.searchsorted(added, padding, "right"))
        yield order[start : start + count]
        start += count


def in_threads(function: Callable, items: Iterable[tuple], threads: int) -> Iterator[Any]:
    """Yields `function(*item)` of each item in order, some computed while the next is made.

    Items are made in the caller's thread, so few of them exist at a time. A single item is computed
    there too, as starting a thread takes time.
    """
    items, pending = iter(items), deque()
    first = list(itertools.islice(items, 2))
    if len(first) < 2:
        yield from itertools.starmap(function, first)
        return
    items, pool = itertools.chain(first, items), ThreadPoolExecutor(threads)
    waits = True
    try:
        # Two items per thread are pending, so that each thread has its next item at hand.
        for item in items:
            pending.append(pool.submit(function, *item))
            if len(pending) >= 2 * threads:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    except KeyboardInterrupt:
        # The program ends, and may have much to keep before that.
        waits = False
        raise
    finally:
        pool.shutdown(waits, cancel_futures=True)


def long_windows(
    ids: list[np.ndarray], ahead: list[int], longest: int, overlap: int | None
) -> tuple[TokenRows, np.ndarray]:
    """Cuts rows of ids into windows.

    Args:
      ids: int32 ids of each text, the prompt's first.
      ahead: for each text, the number of the prompt's tokens that precede each of its windows.
      longest: tokens of a window, the prompt's included.
      overlap: tokens that a window shares with the one before it; None: an eighth of its tokens
        after the prompt.

    Returns:
      The windows, and the number of each window's text, ascending, int64.
    """
    rows, owners = [np.zeros([0], np.int32)], []
    for number, (row, start) in enumerate(zip(ids, ahead)):
        # Each window begins with the prompt as it was tokenised before the text.
        prompt, width = row[:start], longest - start
        shared = width // 8 if overlap is None else overlap
        while True:
            rows.append(np.concatenate([prompt, row[start : start + width]]))
            owners.append(number)
            if start + width >= len(row):
                break
            start += width - shared
    splits = np.cumsum([len(row) for row in rows])
    return TokenRows(np.concatenate(rows), splits.astype(np.int64)), np.array(owners, np.int64)


def common_starts(prompt: np.ndarray, ids: list[np.ndarray]) -> list[int]:
    """Counts the tokens of a prompt with which each row of ids begins.

    The prompt's last tokens may be missing: they may be joined with the text, as byte pair encoding
    joins a space and the word after it.
    """
    starts = []
    for row in ids:
        shorter = min(len(prompt), len(row))
        same = prompt[:shorter] == row[:shorter]
        starts.append(shorter if same.all() else int(np.argmin(same)))
    return starts


def _windows_of(texts: Iterable[str]) -> Iterator[list[str]]:
    """Yields texts in lists that fit in memory."""
    window, characters = [], 0
    for text in texts:
        window.append(text)
        characters += len(text)
        if len(window) == _WINDOW or characters >= _WINDOW_CHARACTERS:
            yield window
            window, characters = [], 0
    if window:
        yield window


def cut_rows(rows: TokenRows, longest: int) -> TokenRows:
    """Cuts each row to its first ids."""
    lengths = np.diff(rows.row_splits)
    if lengths.max(initial=0) <= longest:
        return rows
    places = np.arange(len(rows.values)) - np.repeat(rows.row_splits[:-1], lengths)
    splits = np.concatenate([[0], np.cumsum(np.minimum(lengths, longest))])
    return TokenRows(rows.values[places < longest], splits.astype(np.int64))
