"""Views, which turn records into examples: the base class, and the views of pairs and segments.

A view is a frozen dataclass. Views of equal settings compare equal, so objectives with the same
view of the same records share one pipeline. Calling a view turns a block of parsed records into
examples: a dict of ragged int32 `[examples, (tokens)]`, special tokens included, and `key`, int64
`[examples]`, which decides all random choices of an example.
"""

import abc
import dataclasses
from typing import ClassVar

import tensorflow as tf

from official_cmlm.inputs import hashing
from official_cmlm.records.documents import KIND, DocumentBlock
from official_cmlm.tokenization import Vocabulary

Examples = dict[str, tf.RaggedTensor | tf.Tensor]


@dataclasses.dataclass(frozen=True)
class SpecialIds:
    """Ids of the special tokens, and the size of the vocabulary.

    Attributes:
      cls, sep, mask, pad: ids of `[CLS]`, `[SEP]`, `[MASK]`, `[PAD]`.
      unknown: id of `[UNK]`.
      vocab_size: entries of the vocabulary.
    """

    cls: int
    sep: int
    mask: int
    pad: int
    unknown: int
    vocab_size: int

    @classmethod
    def of(cls, vocabulary: Vocabulary) -> "SpecialIds":
        return cls(**vocabulary.special_ids, vocab_size=len(vocabulary))

    def all(self) -> tuple[int, ...]:
        return (self.pad, self.unknown, self.cls, self.sep, self.mask)


@dataclasses.dataclass(frozen=True)
class RecordFacts:
    """Facts about the records that a view reads; a view may depend on them besides its settings.

    Attributes:
      vocabulary: the vocabulary of the token ids.
      row_size: pairs per row; see `records.manifest.Manifest`.
      languages: languages of the records; for pairs as `en-de`.
      labels: the labels of pairs; empty if they have none.
      negatives: whether some pairs have a hard negative.
      vector_size: components of the teacher's vectors in the records; 0: they hold none.
      scores: whether the pairs have scores.
    """

    vocabulary: Vocabulary
    row_size: int = 1
    languages: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    negatives: bool = False
    vector_size: int = 0
    scores: bool = False

    @property
    def special(self) -> SpecialIds:
        return SpecialIds.of(self.vocabulary)


class View(abc.ABC):
    """Base class of views; its defaults are those of a view of documents.

    Attributes:
      kind: kind of the records that it reads, `documents` or `pairs`.
      sequences: names of the examples' sequences of token ids.
      scalars: names of further features, a number or a vector per example.
      reads_text: whether the block must hold the sentences' text.
      vector_size: components of the teacher's vectors that the block must hold; 0: it needs none.
      needs: what a record must have to give an example, for messages.
      min_record_tokens: records of fewer tokens give no example; 0: no limit.
      pairs_segments: whether an example takes two segments of one record, so that records of one
        sentence give none.
      keeps_order: whether examples stay in the order of the records, and are not shuffled.
      counted: whether each sentence, or each pair, of the records gives exactly one example, so
        that the manifest tells how many examples an epoch has.
      special: ids of the special tokens.
    """

    kind: ClassVar[str] = KIND
    sequences: ClassVar[tuple[str, ...]]
    scalars: ClassVar[tuple[str, ...]] = ()
    reads_text: ClassVar[bool] = False
    vector_size: int = 0
    needs: ClassVar[str]
    min_record_tokens: ClassVar[int] = 0
    pairs_segments: ClassVar[bool] = False
    keeps_order: ClassVar[bool] = False
    counted: ClassVar[bool] = False
    special: SpecialIds

    @property
    def encoded_together(self) -> tuple[tuple[str, ...], ...]:
        """The sequences, in groups that are padded to one length in random batches too."""
        return (self.sequences,)

    @property
    def joins_sentences(self) -> bool:
        """Whether a sequence may run over several sentences.

        The records must then hold how ids change after a space, if they do. True where the field
        `segment` says `packed`.
        """
        return getattr(self, "segment", "sentence") == "packed"

    @abc.abstractmethod
    def __call__(self, block: DocumentBlock) -> Examples:
        """Returns the examples of a block of records, see the module."""


@dataclasses.dataclass(frozen=True)
class AdjacentPairs(View):
    """Pairs of neighbouring segments of a document: `first` and `second`.

    CMLM §3: "for two consecutive sequences s1 and s2, we swap their order for 50% of the time".
    A document of n segments gives n − 1 adjacent pairs, and n − d pairs for each larger distance d.
    The sentence that a record repeats belongs to its segments too: without it the end of a long
    document could have no pair.

    Attributes:
      segment, seq_length, swap_probability: see `configs.data.DataConfig`.
      special: ids of the special tokens.
      max_distance: largest distance of the two segments; 1 (default): adjacent segments only.
    """

    segment: str
    seq_length: int
    swap_probability: float
    special: SpecialIds
    max_distance: int = 1

    sequences: ClassVar[tuple[str, ...]] = ("first", "second")
    pairs_segments: ClassVar[bool] = True
    needs: ClassVar[str] = "two sentences in one record: whole documents (--documents_by=file)"

    def __call__(self, block: DocumentBlock) -> Examples:
        parts = segments(block, self.segment, self.seq_length - 2, split_short=True)
        index = tf.RaggedTensor.from_row_splits(
            tf.range(tf.shape(parts.values)[0]), parts.row_splits
        )
        distances = range(1, self.max_distance + 1)
        # At distance d every segment but the last d of its record is the earlier half of a pair.
        earlier = tf.concat([index[:, :-d] for d in distances], axis=1)
        later = tf.concat([index[:, d:] for d in distances], axis=1)
        keys = example_keys(block.keys, earlier.row_lengths())
        swap = hashing.uniform(keys, 1, hashing.SALT_SWAP)[:, 0] < self.swap_probability
        first = tf.where(swap, later.flat_values, earlier.flat_values)
        second = tf.where(swap, earlier.flat_values, later.flat_values)
        return {
            "first": with_specials(tf.gather(parts.values, first), self.special),
            "second": with_specials(tf.gather(parts.values, second), self.special),
            "key": keys,
        }


@dataclasses.dataclass(frozen=True)
class Segments(View):
    """Every segment of a document alone, as `segment`; plain MLM reads it."""

    segment: str
    seq_length: int
    special: SpecialIds

    sequences: ClassVar[tuple[str, ...]] = ("segment",)
    needs: ClassVar[str] = "a sentence in each record"

    @property
    def counted(self) -> bool:
        return self.segment == "sentence"

    def __call__(self, block: DocumentBlock) -> Examples:
        parts = segments(without_repeats(block), self.segment, self.seq_length - 2)
        return {
            "segment": with_specials(parts.values, self.special),
            "key": example_keys(block.keys, parts.row_lengths()),
        }


@dataclasses.dataclass(frozen=True)
class TaughtSentences(View):
    """Every sentence alone, as `segment`, with its teacher's vector, float16 `teacher_vector`."""

    seq_length: int
    special: SpecialIds
    vector_size: int

    sequences: ClassVar[tuple[str, ...]] = ("segment",)
    scalars: ClassVar[tuple[str, ...]] = ("teacher_vector",)
    needs: ClassVar[str] = Segments.needs
    counted: ClassVar[bool] = True

    def __call__(self, block: DocumentBlock) -> Examples:
        block = without_repeats(block)
        parts = segments(block, "sentence", self.seq_length - 2)
        return {
            "segment": with_specials(parts.values, self.special),
            "teacher_vector": block.vectors.values,
            "key": example_keys(block.keys, parts.row_lengths()),
        }


@dataclasses.dataclass(frozen=True)
class SegmentRuns(View):
    """The segments of documents that have two or more, in the order of the text.

    So a random batch is a run of consecutive segments, which goes on from one document to the next.
    Segments are neighbours if they have the same `record` and `place` differs by 1; where a long
    document was cut into two records, the segments at the cut are not neighbours.
    """

    segment: str
    seq_length: int
    special: SpecialIds

    sequences: ClassVar[tuple[str, ...]] = ("segment",)
    scalars: ClassVar[tuple[str, ...]] = ("record", "place")
    pairs_segments: ClassVar[bool] = True
    keeps_order: ClassVar[bool] = True
    needs: ClassVar[str] = AdjacentPairs.needs

    def __call__(self, block: DocumentBlock) -> Examples:
        parts = segments(without_repeats(block), self.segment, self.seq_length - 2)
        several = parts.row_lengths() > 1
        parts, records = tf.ragged.boolean_mask(parts, several), block.keys[several]
        places = tf.ragged.range(parts.row_lengths())
        return {
            "segment": with_specials(parts.values, self.special),
            "key": example_keys(records, parts.row_lengths()),
            "record": tf.gather(records, places.value_rowids()),
            "place": places.values,
        }


def segments(
    block: DocumentBlock, segment: str, limit: int, split_short: bool = False
) -> tf.RaggedTensor:
    """Lists each document's segments in order.

    Args:
      block: parsed records.
      segment: `sentence`, each sentence alone, or `packed`, whole consecutive sentences up to
        `limit` tokens; a longer sentence is a segment of its own. The ids of a segment are those of
        its text, the sentences joined by single spaces.
      limit: most tokens of a segment, special tokens not counted. Longer segments are truncated.
      split_short: whether a record of several sentences that all fit one packed segment becomes two
        segments of about equal length.

    Returns:
      int32 ragged `[records, (segments), (tokens)]`, every segment 1 to `limit` tokens long.
    """
    sentences = block.sentences
    if segment == "packed":
        sentences = _pack(block, limit, split_short)
    tokens = sentences.values[:, :limit]
    return tf.RaggedTensor.from_row_splits(tokens, sentences.row_splits)


def _pack(block: DocumentBlock, limit: int, split_short: bool) -> tf.RaggedTensor:
    """Joins consecutive sentences greedily; see `segments`."""
    own = block.sentences
    alone = own.with_values(own.values.row_lengths())
    running = alone.with_values(block.running_lengths())
    starts = segment_starts(alone, running, limit, split_short)
    sentences = block.running(starts.values).values
    lengths = tf.math.segment_sum(sentences.row_lengths(), tf.cumsum(_count(starts.values)) - 1)
    tokens = tf.RaggedTensor.from_row_lengths(sentences.flat_values, lengths)
    counts = tf.reduce_sum(starts.with_values(_count(starts.values)), axis=1)
    return tf.RaggedTensor.from_row_lengths(tokens, counts)


def segment_starts(
    alone: tf.RaggedTensor, running: tf.RaggedTensor, limit: int, split_short: bool = False
) -> tf.RaggedTensor:
    """Finds the sentences that begin a packed segment.

    Args:
      alone: int64 ragged `[records, (sentences)]`, tokens of each sentence as the first of a
        segment.
      running: the same for each sentence where it follows another one.
      limit, split_short: see `segments`.

    Returns:
      bool ragged `[records, (sentences)]`; true for the first sentence of each record.
    """
    # The shape is [2, records, longest record], with zeros after the last sentence.
    lengths = tf.stack([alone.to_tensor(), running.to_tensor()])
    if_empty = tf.shape(lengths)[2] == 0
    # A block of empty records has no column to scan; a column of zeros changes nothing.
    lengths = tf.cond(if_empty, lambda: tf.pad(lengths, [[0, 0], [0, 0], [0, 1]]), lambda: lengths)

    def step(carry: tuple[tf.Tensor, tf.Tensor], column: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Adds sentence t of all records at once; a new segment starts where it does not fit."""
        used, _ = carry
        starts = (used == 0) | (used + column[1] > limit)
        return tf.where(starts, column[0], used + column[1]), starts

    none = tf.zeros_like(lengths[0, :, 0])
    # [longest record, 2, records] -> bool [longest record, records].
    columns = tf.transpose(lengths, [2, 0, 1])
    _, starts = tf.scan(step, columns, initializer=(none, tf.zeros_like(none, tf.bool)))
    rows = tf.RaggedTensor.from_tensor(tf.transpose(starts), lengths=alone.row_lengths())
    starts = alone.with_values(rows.values)
    return _split_short(starts, alone, running) if split_short else starts


def _split_short(
    starts: tf.RaggedTensor, alone: tf.RaggedTensor, running: tf.RaggedTensor
) -> tf.RaggedTensor:
    """Splits records of one segment into two, where these differ least in tokens.

    The first of equal differences is taken. A record of one sentence stays as it is. Arguments and
    result are those of `segment_starts`.
    """
    single = tf.reduce_sum(starts.with_values(_count(starts.values)), axis=1) == 1
    short = single & (starts.row_lengths() > 1)
    lengths = tf.where(starts.values, alone.values, running.values)
    before, record = tf.cumsum(lengths, exclusive=True), starts.value_rowids()
    before -= tf.gather(before, tf.gather(starts.row_starts(), record))
    total = tf.gather(tf.reduce_sum(starts.with_values(lengths), axis=1), record)
    # The first sentence of the second segment has the tokens of a sentence alone.
    after = total - before - lengths + alone.values
    # A second segment cannot begin at the first sentence.
    never = tf.int64.max
    differences = tf.where(before > 0, tf.abs(after - before), never)
    differences = starts.with_values(differences).to_tensor(never)
    # One column is added, so that a block of empty records has a column.
    best = tf.argmin(tf.pad(differences, [[0, 0], [0, 1]], constant_values=never), axis=1)
    places = tf.boolean_mask(starts.row_starts() + best, short)
    flags = tf.tensor_scatter_nd_update(
        starts.values, places[:, tf.newaxis], tf.ones_like(places, tf.bool)
    )
    return starts.with_values(flags)


def _count(flags: tf.Tensor) -> tf.Tensor:
    return tf.cast(flags, tf.int64)


def without_repeats(block: DocumentBlock) -> DocumentBlock:
    """Removes the sentences that are repeated where a long document was cut."""
    sentences = block.sentences
    keep = tf.ones_like(sentences.values.row_lengths(), tf.bool)
    repeated = tf.cast(tf.boolean_mask(sentences.row_starts(), block.repeats_last), tf.int64)
    keep = tf.tensor_scatter_nd_update(
        keep, repeated[:, tf.newaxis], tf.zeros_like(repeated, tf.bool)
    )
    mask = tf.RaggedTensor.from_row_splits(keep, sentences.row_splits)
    names = ("sentences", "text", "replaced", "replacing", "vectors")
    stored = {name: getattr(block, name) for name in names}
    fields = {n: tf.ragged.boolean_mask(v, mask) for n, v in stored.items() if v is not None}
    return dataclasses.replace(block, **fields)


def example_keys(record_keys: tf.Tensor, counts: tf.Tensor) -> tf.Tensor:
    """Makes one key per example: the record's key folded with the example's index in the record."""
    index = tf.ragged.range(tf.cast(counts, tf.int64))
    return hashing.fold(tf.gather(record_keys, index.value_rowids()), index.flat_values)


def with_specials(tokens: tf.RaggedTensor, special: SpecialIds) -> tf.RaggedTensor:
    """Returns `[CLS] tokens [SEP]` for each row."""
    rows = tokens.nrows()
    cls = tf.fill([rows, 1], tf.constant(special.cls, tf.int32))
    sep = tf.fill([rows, 1], tf.constant(special.sep, tf.int32))
    return tf.concat([cls, tokens, sep], axis=1)
