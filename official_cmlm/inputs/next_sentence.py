"""BERT's pairs for next-sentence prediction: two segments in one sequence, neighbours or not."""

import dataclasses
from typing import ClassVar

import tensorflow as tf

from official_cmlm.inputs import hashing
from official_cmlm.inputs.views import (
    Examples,
    SpecialIds,
    View,
    example_keys,
    segments,
    with_specials,
)
from official_cmlm.records.documents import DocumentBlock

# The two classes, as in BERT's release.
IS_NEXT, IS_RANDOM = 0, 1


@dataclasses.dataclass(frozen=True)
class NextSentencePairs(View):
    """`[CLS] A [SEP] B [SEP]` as `pair`, where B follows A in its document or is a random segment.

    Devlin et al. 2019, §3.1: "50% of the time B is the actual next sentence that follows A […], and
    50% of the time it is a random sentence from the corpus". Each pair of neighbours gives one
    example per epoch. The random segment comes from another document of the block that is shuffled
    together (`shuffle_sentences`), each of their segments with equal probability; a block of a
    single document has true pairs only. Earlier releases drew it from another record, with the same
    fingerprint (`inputs/data_position.py`): a training that was begun with one goes on at its
    position with the new draws, so some examples around it may be left out or come twice.

    A and B have at most half of the sequence each, so that both are whole runs of sentences; BERT's
    release fills a sequence with one run and divides it at a random place.

    Scalars are `label`, int32, `IS_NEXT` or `IS_RANDOM`, and `first_length`, int32, tokens of
    `[CLS] A [SEP]`.

    Attributes:
      segment, seq_length: see `configs.data.DataConfig`.
      random_probability: probability that B is a random segment.
      special: ids of the special tokens.
    """

    segment: str
    seq_length: int
    random_probability: float
    special: SpecialIds

    sequences: ClassVar[tuple[str, ...]] = ("pair",)
    scalars: ClassVar[tuple[str, ...]] = ("label", "first_length")
    pairs_segments: ClassVar[bool] = True
    needs: ClassVar[str] = (
        "two segments in one record, of at most half of the sequence each: whole documents "
        "(--documents_by=file), segment: sentence or a smaller seq_length"
    )

    def __call__(self, block: DocumentBlock) -> Examples:
        # The most tokens of A and of B.
        limit = (self.seq_length - 3) // 2
        parts = segments(block, self.segment, limit, split_short=True)
        starts, counts = parts.row_starts(), parts.row_lengths()
        # Every segment but the last of its record is an A.
        record = tf.ragged.range(tf.maximum(counts - 1, 0)).value_rowids()
        place = tf.ragged.range(starts, starts + tf.maximum(counts - 1, 0)).flat_values
        keys = example_keys(block.keys, tf.maximum(counts - 1, 0))
        draws = hashing.uniform(keys, 2, hashing.SALT_NEXT_SENTENCE)
        # A long document has several records, which need not be neighbours in the block.
        different, document = tf.unique(block.documents)
        sizes = tf.math.unsorted_segment_sum(counts, document, tf.size(different))
        own = tf.gather(document, record)
        start, count = tf.gather(tf.cumsum(sizes, exclusive=True), own), tf.gather(sizes, own)
        others = parts.values.nrows() - count
        other = tf.cast(tf.cast(draws[:, 1], tf.float64) * tf.cast(others, tf.float64), tf.int64)
        # The segments of A's own document are left out of the count.
        other += tf.where(other >= start, count, 0)
        random = (draws[:, 0] < self.random_probability) & (others > 0)
        by_document = tf.argsort(tf.gather(document, parts.value_rowids()), stable=True)
        other = tf.cast(tf.gather(by_document, tf.where(random, other, 0)), tf.int64)
        first = with_specials(tf.gather(parts.values, place), self.special)
        second = tf.gather(parts.values, tf.where(random, other, place + 1))
        end = tf.fill([second.nrows(), 1], tf.constant(self.special.sep, tf.int32))
        return {
            "pair": tf.concat([first, second, end], axis=1),
            "label": tf.where(random, IS_RANDOM, IS_NEXT),
            "first_length": tf.cast(first.row_lengths(), tf.int32),
            "key": keys,
        }


@dataclasses.dataclass(frozen=True)
class SegmentTypes:
    """A function that gives the tokens of B type 1; the tokens of A, and padding, have type 0."""

    def __call__(self, batch: dict) -> dict:
        """Sets `input_type_ids` in a padded batch of `NextSentencePairs`."""
        pair = batch["pair"]
        places = tf.range(tf.shape(pair["input_mask"])[1])[tf.newaxis]
        types = tf.cast(places >= batch["first_length"][:, tf.newaxis], tf.int32)
        return {**batch, "pair": {**pair, "input_type_ids": types * pair["input_mask"]}}


@dataclasses.dataclass(frozen=True)
class FirstTokenBeforeSlots:
    """A function that adds `output_positions` to a masked copy: the first token, then the slots.

    Attributes:
      masked: name of the copy that `MaskTokens` made.
    """

    masked: str

    def __call__(self, batch: dict) -> dict:
        """Adds int32 `[batch, 1 + predictions]` to `batch[masked]`."""
        masked = batch[self.masked]
        slots = masked["masked_lm_positions"]
        positions = tf.concat([tf.zeros_like(slots[:, :1]), slots], axis=1)
        return {**batch, self.masked: {**masked, "output_positions": positions}}
