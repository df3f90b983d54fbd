"""From pairs of texts to pairs records: check, tokenise, count."""

import itertools
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from official_cmlm.common.errors import UserError
from official_cmlm.records import pairs as schema
from official_cmlm.tokenization import Vocabulary, build_tokenizer

from ..counts import Counts
from ..readers.document import Pair
from .pair_filters import PairFilter, Row, drop_row

# Rows that one call of the tokenizer sees.
_BATCH_ROWS = 2048
# The label of data sets for rows on which their annotators did not agree.
_NO_GOLD_LABEL = "-"
# Labels of XNLI's training files -> the names that are used here.
_SYNONYMS = {"contradictory": "contradiction"}


def align(tables: list[Iterable[Pair]], paths: list[str]) -> Iterator[Row]:
    """Joins tables that are translations of each other, row by row.

    Raises:
      UserError: where one ends before another, or their labels differ.
    """
    for row in itertools.zip_longest(*tables):
        for pair, path in zip(row, paths):
            if pair is None:
                other = next(p for p in row if p is not None)
                raise UserError(
                    f"{path}: has no row for {other.where}; row-aligned files need the same rows"
                )
            if pair.label != row[0].label:
                raise UserError(
                    f"{pair.where}: label {pair.label!r}, but {row[0].label!r} in {row[0].where}; "
                    "the files are not row-aligned"
                )
        yield row


def pair_records(
    rows: Iterable[Row],
    vocabulary: Vocabulary,
    counts: Counts,
    keep: PairFilter | None = None,
    keep_text: bool = False,
    drop_empty: bool = False,
    prompts: Sequence[str] = ("", ""),
) -> Iterator[tuple[str, list[bytes]]]:
    """Yields (language or empty, the records of one row) in order, in bounded memory.

    The language is that of the pair, e.g. `en-de`; rows of several languages have none. `counts` is
    updated as records are yielded. With `drop_empty` rows with an empty text are left out and
    counted, instead of stopping there. In the ids alone, first and second texts begin with
    `prompts`, hard negatives with the second of these.

    Raises:
      UserError: for an empty text, an unknown label, or labels on some rows only.
    """
    tokenizer = build_tokenizer(vocabulary)
    keep = keep or PairFilter()
    # The prompts before the three texts of a pair, and the ids of each without a text.
    before = (*prompts, prompts[1])
    bare = tokenizer.tokenize(list(before)).to_list()
    labelled: bool | None = None
    number = 0
    rows = iter(rows)
    while batch := list(itertools.islice(rows, _BATCH_ROWS)):
        usable = [row for row in batch if _usable(row, drop_empty, counts)]
        usable = keep(usable, counts.counters)
        texts = [
            [prompt + text for prompt, (text, _) in zip(before, pair.all_texts)]
            for row in usable
            for pair in row
        ]
        tokens = tokenizer.tokenize(list(itertools.chain.from_iterable(texts)))
        splits = iter(_splits(tokens.row_splits, map(len, texts)))
        for row in usable:
            if labelled is None:
                labelled = row[0].label is not None
            if labelled != (row[0].label is not None):
                raise UserError(
                    f"{row[0].where}: {'no' if labelled else 'a'} label, unlike the rows before; "
                    "all rows need one or none"
                )
            label = _label(row[0])
            encoded = []
            for pair, own in zip(row, splits):
                lengths = tuple(int(b - a) for a, b in itertools.pairwise(own))
                encoded.append((pair, tokens.values[own[0] : own[-1]], lengths))
            if not all(_hold_text(ids, lengths, bare) for _, ids, lengths in encoded):
                drop_row(counts.counters, "pairs/without_tokens", row)
                continue
            _count(encoded, label, counts)
            language = "-".join(row[0].languages) if len(row) == 1 else ""
            yield (
                language,
                [
                    schema.encode(
                        ids,
                        lengths,
                        pair.languages,
                        label,
                        number,
                        [text for text, _ in pair.all_texts] if keep_text else None,
                        pair.score,
                    )
                    for pair, ids, lengths in encoded
                ],
            )
            number += 1


def _splits(row_splits: np.ndarray, counts: Iterable[int]) -> Iterator[np.ndarray]:
    """Yields the bounds of the texts of each pair, one more than it has texts."""
    start = 0
    for count in counts:
        yield row_splits[start : start + count + 1]
        start += count


def _hold_text(ids: np.ndarray, lengths: Sequence[int], bare: Sequence[list[int]]) -> bool:
    """Returns whether each text of a pair has tokens besides those of its prompt."""
    return all(
        length != len(prompt) or ids[end - length : end].tolist() != prompt
        for length, end, prompt in zip(lengths, itertools.accumulate(lengths), bare)
    )


def _usable(row: Row, drop_empty: bool, counts: Counts) -> bool:
    """Returns whether a row becomes records; counts why not."""
    for pair in row:
        if pair.label == _NO_GOLD_LABEL:
            drop_row(counts.counters, "pairs/without_gold_label", row)
            return False
        if not all(pair.texts):
            if not drop_empty:
                side = "first" if not pair.texts[0] else "second"
                raise UserError(
                    f"{pair.where}: the {side} text is empty; mend the row, or pass --drop_empty "
                    "to leave such rows out"
                )
            drop_row(counts.counters, "pairs/empty_text", row)
            return False
        if pair.negative in pair.texts:
            drop_row(counts.counters, "pairs/negative_is_text_of_pair", row)
            return False
    return True


def _label(pair: Pair) -> int:
    if pair.label is None:
        return schema.NO_LABEL
    name = _SYNONYMS.get(pair.label, pair.label)
    if name not in schema.NLI_LABELS:
        raise UserError(
            f"{pair.where}: label {pair.label!r}; it must be one of {', '.join(schema.NLI_LABELS)}"
        )
    return schema.NLI_LABELS.index(name)


def _count(
    encoded: list[tuple[Pair, np.ndarray, tuple[int, ...]]], label: int, counts: Counts
) -> None:
    counts.documents += 1
    if label != schema.NO_LABEL:
        counts.labels[schema.NLI_LABELS[label]] += 1
    for pair, ids, lengths in encoded:
        counts.sentences += len(lengths)
        counts.negatives += pair.negative is not None
        counts.scores += pair.score is not None
        counts.tokens += len(ids)
        counts.languages["-".join(pair.languages)] += 1
        counts.language_tokens["-".join(pair.languages)] += len(ids)
        counts.lengths.update(lengths)
