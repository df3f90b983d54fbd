"""DeCLUTR's view: long spans of a document as anchors, spans near each as its positives (§3.2)."""

import dataclasses
from typing import ClassVar

import tensorflow as tf

from official_cmlm.inputs import hashing
from official_cmlm.inputs.views import Examples, SpecialIds, View, with_specials, without_repeats
from official_cmlm.records.documents import DocumentBlock

# Where a positive may lie relative to its anchor.
SAMPLINGS = ("all", "adjacent", "subsuming")


@dataclasses.dataclass(frozen=True)
class Spans(View):
    """A view of A anchors, and P positives of each anchor, of every document that is long enough.

    Spans are sampled from one record; `create_documents --max_sentences` bounds its length. Records
    of fewer than `min_record_tokens` tokens give no example. Sequences are named `anchor_0`, … and
    `positive_0_0`, …; the first number is the anchor's.

    Attributes:
      num_anchors, num_positives: A and P.
      min_span_length, max_span_length: ℓmin and ℓmax in tokens; ℓmax includes `[CLS]` and `[SEP]`.
      sampling: `all`, positives overlap the anchor, are adjacent to it or lie inside it;
        `adjacent`, directly before or after the anchor; `subsuming`, inside the anchor and no
        longer than it.
      special: ids of the special tokens.
      anchor_beta, positive_beta: (α, β) of the Beta distribution of the lengths, whole numbers.
      min_document_tokens: see `min_record_tokens`; 0: the least that the anchors need.
    """

    num_anchors: int
    num_positives: int
    min_span_length: int
    max_span_length: int
    sampling: str
    special: SpecialIds
    anchor_beta: tuple[int, int] = (4, 2)
    positive_beta: tuple[int, int] = (2, 4)
    min_document_tokens: int = 0

    joins_sentences: ClassVar[bool] = True

    @property
    def sequences(self) -> tuple[str, ...]:
        return self.anchors + self.positives

    @property
    def anchors(self) -> tuple[str, ...]:
        return tuple(f"anchor_{a}" for a in range(self.num_anchors))

    @property
    def positives(self) -> tuple[str, ...]:
        return tuple(
            f"positive_{a}_{p}" for a in range(self.num_anchors) for p in range(self.num_positives)
        )

    @property
    def encoded_together(self) -> tuple[tuple[str, ...], ...]:
        # Positives are shorter than anchors.
        return (self.anchors, self.positives)

    @property
    def min_record_tokens(self) -> int:
        """Fewest tokens of a record that gives an example: 2 · A · ℓmax, 2,048 in §4.1."""
        return max(least_tokens(self.num_anchors, self.max_span_length), self.min_document_tokens)

    @property
    def needs(self) -> str:
        return (
            f"documents of at least {self.min_record_tokens} tokens (2 · {self.num_anchors} "
            f"anchors · {self.max_span_length}, or min_document_tokens): whole documents "
            "(--documents_by=file, a larger --max_sentences), fewer anchors or shorter spans"
        )

    def __call__(self, block: DocumentBlock) -> Examples:
        documents = without_repeats(block).running().merge_dims(1, 2)
        long_enough = documents.row_lengths() >= self.min_record_tokens
        documents = tf.ragged.boolean_mask(documents, long_enough)
        keys = tf.boolean_mask(block.keys, long_enough)
        counts = tf.cast(documents.row_lengths(), tf.int32)
        starts, lengths = self.sample_anchors(keys, counts)
        examples = {"key": keys}
        for a, name in enumerate(self.anchors):
            examples[name] = self._cut(documents, starts[:, a], lengths[:, a])
        names = iter(self.positives)
        for a in range(self.num_anchors):
            spans = self.sample_positives(
                hashing.fold(keys, a), counts, starts[:, a], lengths[:, a]
            )
            for start, length in zip(*(tf.unstack(x, self.num_positives, axis=1) for x in spans)):
                examples[next(names)] = self._cut(documents, start, length)
        return examples

    def sample_anchors(self, keys: tf.Tensor, counts: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Draws the anchors: their span starts are at least 2 · ℓmax tokens apart.

        The starts are uniformly distributed over all choices with that distance.

        Args:
          keys: int64 `[documents]`.
          counts: int32 `[documents]`, tokens of each document.

        Returns:
          int32 `[documents, A]` span starts, ascending, and int32 `[documents, A]` lengths.
        """
        gap = 2 * self.max_span_length
        # Sorted uniform numbers that are then moved apart by the gap have that distribution.
        room = counts - (self.max_span_length - 2) - (self.num_anchors - 1) * gap + 1
        draws = tf.sort(hashing.uniform(keys, self.num_anchors, hashing.SALT_ANCHORS), axis=1)
        starts = _scale(draws, room[:, tf.newaxis]) + gap * tf.range(self.num_anchors)
        lengths = self._lengths(
            keys,
            self.num_anchors,
            hashing.SALT_ANCHOR_LENGTHS,
            self.anchor_beta,
            self.max_span_length - 2,
        )
        return starts, lengths

    def sample_positives(
        self, keys: tf.Tensor, counts: tf.Tensor, anchors: tf.Tensor, anchor_lengths: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Draws positives near one anchor of each document, inside the document.

        Args:
          keys: int64 `[documents]`, different for each anchor.
          counts: int32 `[documents]`, tokens of each document.
          anchors, anchor_lengths: int32 `[documents]`, the anchor's span start and length.

        Returns:
          int32 `[documents, P]` span starts and int32 `[documents, P]` lengths.
        """
        counts, start = counts[:, tf.newaxis], anchors[:, tf.newaxis]
        end = start + anchor_lengths[:, tf.newaxis]
        # A positive inside its anchor is drawn no longer than the anchor, as in the reference code.
        # If lengths were drawn up to ℓmax and then cut, a tenth of the positives would be the
        # anchor itself.
        longest = end - start if self.sampling == "subsuming" else self.max_span_length - 2
        lengths = self._lengths(
            keys, self.num_positives, hashing.SALT_POSITIVE_LENGTHS, self.positive_beta, longest
        )
        draws = hashing.uniform(keys, self.num_positives, hashing.SALT_POSITIVE_STARTS)
        if self.sampling == "subsuming":
            return start + _scale(draws, end - start - lengths + 1), lengths
        if self.sampling == "adjacent":
            # In a document of the least length there may be too little room on both sides.
            lengths = tf.minimum(lengths, tf.maximum(start, counts - end))
            fits_before, fits_after = start - lengths >= 0, end + lengths <= counts
            before = tf.where(fits_before & fits_after, draws < 0.5, fits_before)
            return tf.where(before, start - lengths, end), lengths
        first = tf.maximum(start - lengths, 0)
        last = tf.minimum(end, counts - lengths)
        return first + _scale(draws, last - first + 1), lengths

    def _lengths(
        self,
        keys: tf.Tensor,
        count: int,
        salt: int,
        beta: tuple[int, int],
        longest: int | tf.Tensor,
    ) -> tf.Tensor:
        """Draws lengths ⌊p · (longest − ℓmin) + ℓmin⌋, p Beta distributed: `[documents, count]`."""
        # The α-th smallest of α + β − 1 uniform numbers is distributed as Beta(α, β).
        uniforms = sum(beta) - 1
        draws = hashing.uniform(keys, count * uniforms, salt)
        draws = tf.sort(tf.reshape(draws, [-1, count, uniforms]), axis=2)[:, :, beta[0] - 1]
        room = tf.cast(longest - self.min_span_length, tf.float32)
        return self.min_span_length + tf.cast(draws * room, tf.int32)

    def _cut(
        self, documents: tf.RaggedTensor, starts: tf.Tensor, lengths: tf.Tensor
    ) -> tf.RaggedTensor:
        starts = tf.cast(documents.row_starts(), tf.int32) + starts
        index = tf.ragged.range(starts, starts + lengths, row_splits_dtype=tf.int64)
        return with_specials(tf.gather(documents.flat_values, index), self.special)


def least_tokens(num_anchors: int, max_span_length: int) -> int:
    """Returns the fewest tokens of a document that A anchors can be drawn from."""
    return 2 * num_anchors * max_span_length


def _scale(draws: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
    """Scales uniform float32 `draws` to uniform int32 in [0, count)."""
    return tf.minimum(tf.cast(draws * tf.cast(count, tf.float32), tf.int32), count - 1)
