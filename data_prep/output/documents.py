"""From documents to records: split into sentences, tokenise, cut, count."""

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from official_cmlm.records import documents as schema
from official_cmlm.tokenization import AfterSpace, Tokenizer, TokenRows, Vocabulary, build_tokenizer

from ..counts import Counts, DropCounter, drop_document
from ..readers import Document
from ..sentences import DEFAULT_MAX_CHARACTERS, bounded, split_paragraphs
from ..stages import SentenceCutter
from ..stages.exclusion import Cutter, Exclusion
from ..stages.quality_classifier import SentenceClassifier

# Sentences that one call of the tokenizer sees: large enough to amortise the call, small enough
# to stay out of the memory figures.
_BATCH_SENTENCES = 8192


@dataclasses.dataclass(frozen=True)
class RecordOptions:
    """The conversion of documents to records; the flags check the values.

    Attributes:
      one_sentence_a_line: paragraphs are sentences already; do not split them.
      max_sentences: a document with more is cut into several records, in order; at least 2, as
        each cut repeats one sentence.
      min_sentences: a document with fewer is dropped and counted.
      min_tokens: a document with fewer is dropped and counted; tokens of its running text, special
        ones not included.
      max_characters: a longer sentence is cut at white space.
      keep_text: store the sentences' text beside the ids.
    """

    one_sentence_a_line: bool = False
    max_sentences: int = 256
    min_sentences: int = 1
    min_tokens: int = 0
    max_characters: int = DEFAULT_MAX_CHARACTERS
    keep_text: bool = False


@dataclasses.dataclass(slots=True)
class _Rows:
    """Ids of sentences, as a record holds them.

    Attributes:
      lengths: number of ids of each.
      ids: all ids, perhaps with those of other documents.
      bounds: `[sentences + 1]`, where each sentence begins and the last one ends in `ids`.
    """

    lengths: list[int]
    ids: np.ndarray
    bounds: list[int]

    def run(self, start: int, stop: int) -> np.ndarray:
        """Returns the ids of sentences `start` to `stop - 1`."""
        return self.ids[self.bounds[start] : self.bounds[stop]]

    def token_rows(self, start: int, stop: int) -> TokenRows:
        """Returns the ids of sentences `start` to `stop - 1`, with their bounds."""
        splits = np.cumsum([0, *self.lengths[start:stop]])
        return TokenRows(self.run(start, stop), splits)

    def chosen(self, kept: list[int]) -> "_Rows":
        """Returns the rows of the sentences with these numbers."""
        parts = [self.run(i, i + 1) for i in kept]
        bounds = [0, *itertools.accumulate(map(len, parts))]
        ids = np.concatenate([self.ids[:0], *parts])
        return _Rows([self.lengths[i] for i in kept], ids, bounds)

    def after_last_of(self, last: "_Rows") -> "_Rows":
        """Returns the rows with the last sentence of `last` in front."""
        sentence = last.ids[last.bounds[-2] : last.bounds[-1]]
        shift = len(sentence) - self.bounds[0]
        return _Rows(
            [last.lengths[-1], *self.lengths],
            np.concatenate([sentence, self.ids[self.bounds[0] : self.bounds[-1]]]),
            [0, *(bound + shift for bound in self.bounds)],
        )


class _Batch:
    """Ids of the sentences of many documents, from which each takes its own."""

    def __init__(self, rows: TokenRows) -> None:
        self._ids = rows.values
        self._lengths = np.diff(rows.row_splits).tolist()
        self._bounds = rows.row_splits.tolist()

    def rows(self, start: int, stop: int) -> _Rows:
        """Returns the rows of sentences `start` to `stop - 1` of the batch."""
        return _Rows(self._lengths[start:stop], self._ids, self._bounds[start : stop + 1])


@dataclasses.dataclass(slots=True)
class _Tokenized:
    """One document, or one piece of a long one, as ids.

    Attributes:
      document: the source.
      sentences: its sentences with tokens.
      ids: their ids.
      after_space: the ids that replace the first ones of a sentence after a space; None where the
        vocabulary needs none.
      replaced: how many ids of each sentence they replace; empty without them.
    """

    document: Document
    sentences: list[str]
    ids: _Rows
    after_space: _Rows | None = None
    replaced: list[int] = dataclasses.field(default_factory=list)

    def running_tokens(self, begins: bool) -> int:
        """Returns the tokens of the running text; `begins`: the document begins with it."""
        tokens = sum(self.ids.lengths)
        if self.after_space:
            start = int(begins)
            tokens += sum(self.after_space.lengths[start:]) - sum(self.replaced[start:])
        return tokens


def document_records(
    documents: Iterable[Document],
    vocabulary: Vocabulary,
    options: RecordOptions,
    counts: Counts,
    exclusion: Exclusion | None = None,
    tokenizer: Tokenizer | None = None,
    classifier: SentenceClassifier | None = None,
) -> Iterator[tuple[str, bytes]]:
    """Yields (language, serialised documents record) in the order of the text, in bounded memory.

    Args:
      documents: the documents, as readers yield them.
      vocabulary: decides the ids.
      options: see `RecordOptions`.
      counts: updated as records are yielded.
      exclusion: sentences that are taken out; the documents are cut there.
      tokenizer: the vocabulary's, if it was built already; building it takes seconds.
      classifier: judges sentences, which are taken out in the same way.
    """
    tokenizer = tokenizer or build_tokenizer(vocabulary)
    cutters: list[SentenceCutter] = [classifier] if classifier else []
    if exclusion:
        cutters.append(Cutter(exclusion))
    pieces = _tokenized(documents, tokenizer, options, counts, cutters)
    for document in _whole_documents(pieces):
        last: _Tokenized | None = None
        for piece in _long_enough(document, options, counts):
            _count(piece, counts)
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
    document: Iterator[_Tokenized], options: RecordOptions, counts: Counts
) -> Iterator[_Tokenized]:
    """Yields a document's pieces that hold sentences, or counts why there are too few."""
    waiting: list[_Tokenized] = []
    first: Document | None = None
    sentences = tokens = 0
    enough = False
    for piece in document:
        first = first or piece.document
        if not piece.sentences:
            continue
        tokens += piece.running_tokens(begins=not sentences)
        sentences += len(piece.sentences)
        waiting.append(piece)
        enough = sentences >= options.min_sentences and tokens >= options.min_tokens
        if enough:
            # Everything from here on belongs to a document that is long enough.
            yield from waiting
            waiting = []
    if enough:
        counts.documents += 1
    elif first is not None:
        # The whole document is dropped; the first piece of a long one represents it.
        reason = "records/no_sentence"
        if sentences:
            few = sentences < options.min_sentences
            reason = "records/too_few_sentences" if few else "records/too_few_tokens"
        drop_document(counts.counters, reason, first)


def _tokenized(
    documents: Iterable[Document],
    tokenizer: Tokenizer,
    options: RecordOptions,
    counts: Counts,
    cutters: Sequence[SentenceCutter],
) -> Iterator[_Tokenized]:
    """Splits and tokenises, many documents at a time."""

    def flush(batch: list[tuple[Document, list[str]]]) -> Iterator[_Tokenized]:
        for cut in cutters:
            batch = list(cut(batch, counts.counters))
        texts = [s for _, sentences in batch for s in sentences]
        ids, after = _Batch(tokenizer.tokenize(texts)), tokenizer.after_space(texts)
        heads, replaced = (_Batch(after.ids), after.replaced.tolist()) if after else (None, [])
        start = 0
        for document, sentences in batch:
            stop = start + len(sentences)
            piece = _Tokenized(document, sentences, ids.rows(start, stop))
            if heads:
                piece.after_space = heads.rows(start, stop)
                piece.replaced = replaced[start:stop]
            if 0 in piece.ids.lengths:
                _drop_empty(piece, counts.counters)
            yield piece
            start = stop

    batch: list[tuple[Document, list[str]]] = []
    held = 0
    for document in documents:
        sentences = _split(document, options, counts.counters)
        batch.append((document, sentences))
        held += len(sentences) + 1
        if held >= _BATCH_SENTENCES:
            yield from flush(batch)
            batch, held = [], 0
    if batch:
        yield from flush(batch)


def _drop_empty(piece: _Tokenized, counters: DropCounter) -> None:
    """Takes sentences without tokens out of a piece, and counts them."""
    kept = []
    for i, (text, length) in enumerate(zip(piece.sentences, piece.ids.lengths)):
        if length:
            kept.append(i)
        else:
            drop_document(counters, "records/sentence_without_tokens", piece.document, text)
    piece.sentences = [piece.sentences[i] for i in kept]
    piece.ids = piece.ids.chosen(kept)
    if piece.after_space:
        piece.after_space = piece.after_space.chosen(kept)
        piece.replaced = [piece.replaced[i] for i in kept]


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


def _count(piece: _Tokenized, counts: Counts) -> None:
    tokens, language = sum(piece.ids.lengths), piece.document.language
    counts.sentences += len(piece.sentences)
    counts.tokens += tokens
    counts.languages[language] += len(piece.sentences)
    counts.language_tokens[language] += tokens
    counts.lengths.update(piece.ids.lengths)


def _prepend_last(last: _Tokenized, piece: _Tokenized) -> _Tokenized:
    """Returns `piece` with the last sentence of the piece before in front."""
    joined = _Tokenized(
        piece.document, [last.sentences[-1], *piece.sentences], piece.ids.after_last_of(last.ids)
    )
    if piece.after_space and last.after_space:
        joined.after_space = piece.after_space.after_last_of(last.after_space)
        joined.replaced = [last.replaced[-1], *piece.replaced]
    return joined


def _cut(piece: _Tokenized, options: RecordOptions, repeats_last: bool) -> Iterator[bytes]:
    """Yields records of at most `max_sentences`; neighbours share one, so no pair is lost."""
    start, count = 0, len(piece.sentences)
    heads = piece.after_space
    while True:
        stop = min(start + options.max_sentences, count)
        after = heads and AfterSpace(
            np.array(piece.replaced[start:stop]), heads.token_rows(start, stop)
        )
        yield schema.encode(
            piece.ids.run(start, stop),
            piece.ids.lengths[start:stop],
            piece.document.language,
            piece.document.id,
            repeats_last or start > 0,
            piece.sentences[start:stop] if options.keep_text else None,
            after,
        )
        if stop == count:
            return
        start = stop - 1
