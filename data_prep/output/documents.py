"""From documents to records: split into sentences, tokenise, cut, count."""

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, NamedTuple

import numpy as np

from official_cmlm.common.validation import Flag, between
from official_cmlm.records import documents as schema
from official_cmlm.tokenization import AfterSpace, Tokenizer, TokenRows, Vocabulary, build_tokenizer

from ..counts import Counts, DropCounter
from ..readers import Document
from ..sentences import DEFAULT_MAX_CHARACTERS, cut_long_sentence, split_paragraphs
from ..stages import SentenceCutter, batches, group_pieces
from ..stages.exclusion import Cutter, Exclusion
from ..stages.quality_classifier import SentenceClassifier

# Sentences that one call of the tokenizer sees: large enough to amortise the call, small enough to
# need little memory.
_BATCH_SENTENCES = 8192


@dataclasses.dataclass(frozen=True)
class RecordOptions:
    """The conversion of documents to records.

    Attributes:
      one_sentence_a_line: paragraphs are sentences already; do not split them.
      max_sentences: sentences of a record at most; longer documents are cut into several records in
        order. Each cut repeats one sentence.
      min_sentences: sentences that a document must have, or it is dropped and counted.
      min_tokens: tokens that a document must have, special ones not included, or it is dropped and
        counted. For DeCLUTR 2 · anchors · longest span: 2048 as published.
      max_characters: a longer sentence is cut at white space.
      keep_text: whether to store the text too, for views that work on characters; about doubles the
        size.
      shard_bytes: size of a shard, in megabytes (10^6 bytes). Training mixes the documents of 16
        shards.
    """

    one_sentence_a_line: bool = False
    max_sentences: Annotated[int, between(2, 1_000_000)] = 256
    min_sentences: Annotated[int, between(0, 1_000_000)] = 1
    min_tokens: Annotated[int, between(0, 1_000_000_000)] = 0
    max_characters: int = DEFAULT_MAX_CHARACTERS
    keep_text: bool = False
    shard_bytes: Annotated[int, between(1, 10**12), Flag("shard_mb", 1_000_000)] = 16_000_000


class _Sentence(NamedTuple):
    """A sentence with its ids; after a space, `after_space` replaces the first `replaced` ids.

    `after_space` is None if the vocabulary has the same ids after a space.
    """

    text: str
    ids: np.ndarray
    after_space: np.ndarray | None = None
    replaced: int = 0


class _Piece(NamedTuple):
    """One document, or one piece of a long one, and its sentences with tokens."""

    document: Document
    sentences: list[_Sentence]


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

    Sentences of `exclusion`, and those that `classifier` does not keep, are taken out, and the
    documents are cut there. `tokenizer` is the vocabulary's, if the caller has built it, as that
    takes seconds. `counts` is updated as records are yielded.
    """
    tokenizer = tokenizer or build_tokenizer(vocabulary)
    cutters: list[SentenceCutter] = [classifier] if classifier else []
    if exclusion:
        cutters.append(Cutter(exclusion))
    pieces = _tokenize(documents, tokenizer, options, counts, cutters)
    for document in group_pieces(pieces, lambda piece: piece.document.continues):
        last: list[_Sentence] = []
        for piece in _long_enough(document, options, counts):
            _count(piece, counts)
            yield from _cut(piece.document, last + piece.sentences, options, bool(last))
            last = piece.sentences[-1:]


def _long_enough(
    document: Iterator[_Piece], options: RecordOptions, counts: Counts
) -> Iterator[_Piece]:
    """Yields a document's pieces that hold sentences, or counts why there are too few."""
    waiting: list[_Piece] = []
    first: Document | None = None
    sentences = tokens = 0
    enough = False
    for piece in document:
        first = first or piece.document
        if not piece.sentences:
            continue
        tokens += sum(len(sentence.ids) for sentence in piece.sentences)
        # The running text begins with the first sentence; all others follow a space.
        for sentence in piece.sentences[not sentences :]:
            if sentence.after_space is not None:
                tokens += len(sentence.after_space) - sentence.replaced
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
        counts.counters.drop(reason, first.language)


def _tokenize(
    documents: Iterable[Document],
    tokenizer: Tokenizer,
    options: RecordOptions,
    counts: Counts,
    cutters: Sequence[SentenceCutter],
) -> Iterator[_Piece]:
    """Splits and tokenises, many documents at a time."""
    split = ((document, _split(document, options, counts.counters)) for document in documents)
    for batch in batches(split, lambda pair: 1 + len(pair[1]), _BATCH_SENTENCES):
        for cut in cutters:
            batch = list(cut(batch, counts.counters))
        texts = [s for _, sentences in batch for s in sentences]
        after = tokenizer.after_space(texts)
        columns = [texts, _each(tokenizer.tokenize(texts))]
        if after:
            columns += [_each(after.ids), after.replaced.tolist()]
        all_sentences = itertools.starmap(_Sentence, zip(*columns))
        for document, sentences in batch:
            piece = _Piece(document, [])
            for sentence in itertools.islice(all_sentences, len(sentences)):
                if len(sentence.ids):
                    piece.sentences.append(sentence)
                    continue
                reason = "records/sentence_without_tokens"
                counts.counters.drop(reason, document.language)
            yield piece


def _each(rows: TokenRows) -> Iterator[np.ndarray]:
    return (rows.values[a:b] for a, b in itertools.pairwise(rows.row_splits.tolist()))


def _split(document: Document, options: RecordOptions, counters: DropCounter) -> list[str]:
    if not options.one_sentence_a_line:
        return split_paragraphs(
            document.paragraphs, document.language, counters, options.max_characters
        )
    return [
        sentence
        for paragraph in document.paragraphs
        for sentence in cut_long_sentence(paragraph, counters, options.max_characters)
    ]


def _count(piece: _Piece, counts: Counts) -> None:
    lengths, language = [len(sentence.ids) for sentence in piece.sentences], piece.document.language
    counts.sentences += len(lengths)
    counts.tokens += sum(lengths)
    counts.languages[language] += len(lengths)
    counts.language_tokens[language] += sum(lengths)
    counts.lengths.update(lengths)


def _cut(
    document: Document, sentences: list[_Sentence], options: RecordOptions, repeats_last: bool
) -> Iterator[tuple[str, bytes]]:
    """Yields records of at most `max_sentences`; consecutive ones overlap, so no pair is lost."""
    for start in range(0, max(1, len(sentences) - 1), options.max_sentences - 1):
        texts, ids, after, replaced = zip(*sentences[start : start + options.max_sentences])
        after_space = None
        if after[0] is not None:
            splits = np.cumsum([0, *map(len, after)])
            after_space = AfterSpace(np.array(replaced), TokenRows(np.concatenate(after), splits))
        yield (
            document.language,
            schema.encode(
                np.concatenate(ids),
                [len(one) for one in ids],
                document.language,
                document.id,
                repeats_last or start > 0,
                texts if options.keep_text else None,
                after_space,
            ),
        )
