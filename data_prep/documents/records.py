"""From documents to records: split into sentences, tokenise, cut, count."""

import dataclasses
import itertools
from collections.abc import Iterable, Iterator

import numpy as np

from official_cmlm.records import documents as schema
from official_cmlm.records.wire import Varints
from official_cmlm.tokenization import Tokenizer, Vocabulary, build_tokenizer

from ..output.dropped import DropCounter, drop_document
from ..output.statistics import Statistics
from ..readers import Document
from ..stages.exclusion import Cutter, Exclusion
from .sentences import DEFAULT_MAX_CHARACTERS, bounded, split_paragraphs

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


@dataclasses.dataclass(slots=True)
class _Tokenized:
    """One document, or one piece of a long one, as ids.

    Attributes:
      document: where it is from.
      sentences: those with tokens.
      lengths: tokens of each.
      packed: ids as a record holds them, perhaps with those of other documents.
      bounds: `[sentences + 1]`, where each sentence begins and the last one ends in `packed`.
    """

    document: Document
    sentences: list[str]
    lengths: list[int]
    packed: bytes
    bounds: list[int]


def records(
    documents: Iterable[Document],
    vocabulary: Vocabulary,
    options: RecordOptions,
    statistics: Statistics,
    exclusion: Exclusion | None = None,
    tokenizer: Tokenizer | None = None,
) -> Iterator[tuple[str, bytes]]:
    """Yields (language, serialised documents record) in the order of the text, in bounded memory.

    Args:
      documents: what the readers yield.
      vocabulary: decides the ids.
      options: see `RecordOptions`.
      statistics: updated as records are yielded.
      exclusion: sentences that are taken out; the documents are cut there.
      tokenizer: that of the vocabulary, if it was built already; building it takes seconds.
    """
    tokenizer = tokenizer or build_tokenizer(vocabulary)
    cut = Cutter(exclusion) if exclusion else None
    pieces = _tokenized(documents, tokenizer, options, statistics, cut)
    for document in _whole_documents(pieces):
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
    first: Document | None = None
    held = 0
    for piece in document:
        first = first or piece.document
        if not piece.sentences:
            continue
        held += len(piece.sentences)
        waiting.append(piece)
        if held >= min_sentences:
            # Everything from here on belongs to a document that is long enough.
            yield from waiting
            waiting = []
    if held >= max(min_sentences, 1):
        statistics.documents += 1
    elif first is not None:
        # The whole document; of a long one its first piece stands for it.
        reason = "records/too_few_sentences" if held else "records/no_sentence"
        drop_document(statistics.counters, reason, first)


def _tokenized(
    documents: Iterable[Document],
    tokenizer: Tokenizer,
    options: RecordOptions,
    statistics: Statistics,
    cut: Cutter | None,
) -> Iterator[_Tokenized]:
    """Splits and tokenises, many documents at a time."""

    def flush(batch: list[tuple[Document, list[str]]]) -> Iterator[_Tokenized]:
        if cut:
            batch = list(cut(batch, statistics.counters))
        rows = tokenizer.tokenize([s for _, sentences in batch for s in sentences])
        ids, widths = Varints.of(rows.values), np.diff(rows.row_splits)
        lengths, bounds = widths.tolist(), ids.bounds[rows.row_splits].tolist()
        some_empty = not widths.all()
        start = 0
        for document, sentences in batch:
            stop = start + len(sentences)
            own, places = lengths[start:stop], bounds[start : stop + 1]
            if some_empty and 0 in own:
                kept = [i for i, length in enumerate(own) if length]
                for text in (sentences[i] for i, length in enumerate(own) if not length):
                    reason = "records/sentence_without_tokens"
                    drop_document(statistics.counters, reason, document, text)
                sentences = [sentences[i] for i in kept]
                places = [*(places[i] for i in kept), places[-1]]
                own = [own[i] for i in kept]
            yield _Tokenized(document, sentences, own, ids.data, places)
            start = stop

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


def _split(document: Document, options: RecordOptions, counters: DropCounter) -> list[str]:
    if not options.one_sentence_a_line:
        return split_paragraphs(
            document.paragraphs, document.language, counters, options.max_characters
        )
    return [
        sentence
        for paragraph in document.paragraphs
        for sentence in bounded(paragraph, counters, options.max_characters)
    ]


def _count(piece: _Tokenized, statistics: Statistics) -> None:
    tokens, language = sum(piece.lengths), piece.document.language
    statistics.sentences += len(piece.sentences)
    statistics.tokens += tokens
    statistics.languages[language] += len(piece.sentences)
    statistics.language_tokens[language] += tokens
    statistics.lengths.update(piece.lengths)


def _prepend_last(last: _Tokenized, piece: _Tokenized) -> _Tokenized:
    """`piece` with the last sentence of the piece before in front."""
    sentence = last.packed[last.bounds[-2] : last.bounds[-1]]
    shift = len(sentence) - piece.bounds[0]
    return _Tokenized(
        piece.document,
        [last.sentences[-1], *piece.sentences],
        [last.lengths[-1], *piece.lengths],
        sentence + piece.packed[piece.bounds[0] : piece.bounds[-1]],
        [0, *(bound + shift for bound in piece.bounds)],
    )


def _cut(piece: _Tokenized, options: RecordOptions, repeats_last: bool) -> Iterator[bytes]:
    """Records of at most `max_sentences`; neighbours share one sentence, so no pair is lost."""
    start, count = 0, len(piece.sentences)
    while True:
        stop = min(start + options.max_sentences, count)
        yield schema.encode_packed(
            piece.packed[piece.bounds[start] : piece.bounds[stop]],
            piece.lengths[start:stop],
            piece.document.language,
            piece.document.id,
            repeats_last or start > 0,
            piece.sentences[start:stop] if options.keep_text else None,
        )
        if stop == count:
            return
        start = stop - 1
