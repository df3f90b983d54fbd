"""From documents of text to documents records: split, tokenise, cut, count."""

import dataclasses
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator

import numpy as np

from data_prep.readers import Document
from data_prep.sentences import DEFAULT_MAX_CHARACTERS, bounded, split_sentences
from data_prep.statistics import Statistics
from official_cmlm.records import documents as schema
from official_cmlm.tokenization import Vocabulary, build_tokenizer

# Sentences that one call of the tokenizer sees: large enough to amortise the call, small enough
# to stay out of the memory figures.
_BATCH_SENTENCES = 8192


@dataclasses.dataclass(frozen=True)
class RecordOptions:
    """How documents become records.

    Attributes:
      one_sentence_a_line: paragraphs are sentences already; do not split them.
      max_sentences: a document with more is cut into several records, in order; at least 2.
      min_sentences: a document with fewer is dropped and counted.
      max_characters: a longer sentence is cut at white space.
      keep_text: store the sentences' text beside the ids.
    """

    one_sentence_a_line: bool = False
    max_sentences: int = 256
    min_sentences: int = 1
    max_characters: int = DEFAULT_MAX_CHARACTERS
    keep_text: bool = False

    def __post_init__(self) -> None:
        # With one sentence a record, which is repeated at each cut, no cut would get any further.
        if self.max_sentences < 2:
            raise ValueError(f"max_sentences must be at least 2, got {self.max_sentences}")


@dataclasses.dataclass
class _Tokenized:
    """One document, or one piece of a long one, as ids."""

    document: Document
    sentences: list[str]
    token_ids: np.ndarray
    lengths: np.ndarray


def records(
    documents: Iterable[Document],
    vocabulary: Vocabulary,
    options: RecordOptions,
    statistics: Statistics,
) -> Iterator[tuple[str, bytes]]:
    """Yields (language, serialised documents record) in the order of the text, in bounded memory.

    Args:
      documents: what the readers yield.
      vocabulary: decides the ids.
      options: see `RecordOptions`.
      statistics: updated as records are yielded.
    """
    for document in _whole_documents(_tokenized(documents, vocabulary, options, statistics)):
        last: _Tokenized | None = None
        for piece in _long_enough(document, options.min_sentences, statistics):
            _count(piece, statistics)
            joined = piece if last is None else _prepend_last(last, piece)
            for record in _cut(joined, options, repeats_last=last is not None):
                yield piece.document.language, record
            last = piece


def _whole_documents(pieces: Iterator[_Tokenized]) -> Iterator[Iterator[_Tokenized]]:
    """Groups the pieces of each document, without holding them."""
    number = 0

    def document_number(piece: _Tokenized) -> int:
        nonlocal number
        number += not piece.document.continues
        return number

    for _, document in itertools.groupby(pieces, document_number):
        yield document


def _long_enough(
    document: Iterator[_Tokenized], min_sentences: int, statistics: Statistics
) -> Iterator[_Tokenized]:
    """Yields a document's pieces that hold sentences, or counts why there are too few."""
    waiting: list[_Tokenized] = []
    held = 0
    for piece in document:
        if not piece.sentences:
            continue
        held += len(piece.sentences)
        waiting.append(piece)
        if held >= min_sentences:
            # Everything from here on belongs to a document that is long enough.
            yield from waiting
            waiting = []
    if not held:
        statistics.counters["documents_without_sentences"] += 1
    elif held < min_sentences:
        statistics.counters["documents_too_short"] += 1
    else:
        statistics.documents += 1


def _tokenized(
    documents: Iterable[Document],
    vocabulary: Vocabulary,
    options: RecordOptions,
    statistics: Statistics,
) -> Iterator[_Tokenized]:
    """Splits and tokenises, many documents at a time."""
    tokenizer = build_tokenizer(vocabulary)

    def flush(batch: list[tuple[Document, list[str]]]) -> Iterator[_Tokenized]:
        rows = tokenizer.tokenize([s for _, sentences in batch for s in sentences])
        ids, splits = rows.values, rows.row_splits
        start = 0
        for document, sentences in batch:
            bounds = splits[start : start + len(sentences) + 1]
            start += len(sentences)
            lengths = np.diff(bounds)
            if not lengths.all():
                statistics.counters["sentences_without_tokens"] += int((lengths == 0).sum())
                sentences = [s for s, length in zip(sentences, lengths) if length]
            yield _Tokenized(document, sentences, ids[bounds[0] : bounds[-1]], lengths[lengths > 0])

    batch: list[tuple[Document, list[str]]] = []
    held = 0
    for document in documents:
        sentences = _split(document, options, statistics.counters)
        batch.append((document, sentences))
        held += len(sentences) + 1
        if held >= _BATCH_SENTENCES:
            yield from flush(batch)
            batch, held = [], 0
    if batch:
        yield from flush(batch)


def _split(document: Document, options: RecordOptions, counters: Counter[str]) -> list[str]:
    sentences: list[str] = []
    for paragraph in document.paragraphs:
        if options.one_sentence_a_line:
            sentences += bounded(paragraph, counters, options.max_characters)
        else:
            sentences += split_sentences(
                paragraph, document.language, counters, options.max_characters
            )
    return sentences


def _count(piece: _Tokenized, statistics: Statistics) -> None:
    statistics.sentences += len(piece.sentences)
    statistics.tokens += len(piece.token_ids)
    statistics.languages[piece.document.language] += len(piece.sentences)
    statistics.lengths.update(piece.lengths.tolist())


def _prepend_last(last: _Tokenized, piece: _Tokenized) -> _Tokenized:
    """`piece` with the last sentence of the piece before in front."""
    length = last.lengths[-1]
    return _Tokenized(
        piece.document,
        [last.sentences[-1], *piece.sentences],
        np.concatenate([last.token_ids[-length:], piece.token_ids]),
        np.concatenate([last.lengths[-1:], piece.lengths]),
    )


def _cut(piece: _Tokenized, options: RecordOptions, repeats_last: bool) -> Iterator[bytes]:
    """Records of at most `max_sentences`; neighbours share one sentence, so no pair is lost."""
    bounds = np.concatenate([[0], np.cumsum(piece.lengths)])
    start, count = 0, len(piece.sentences)
    while True:
        stop = min(start + options.max_sentences, count)
        yield schema.encode(
            piece.token_ids[bounds[start] : bounds[stop]],
            piece.lengths[start:stop],
            piece.document.language,
            piece.document.id,
            repeats_last or start > 0,
            piece.sentences[start:stop] if options.keep_text else None,
        )
        if stop == count:
            return
        start = stop - 1
