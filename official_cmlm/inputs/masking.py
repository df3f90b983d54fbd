"""BERT's masking: which tokens a language model must predict, drawn again in each epoch."""

import dataclasses

import tensorflow as tf

from official_cmlm.inputs import hashing
from official_cmlm.inputs.views import SpecialIds

Batch = dict[str, dict[str, tf.Tensor] | tf.Tensor]


@dataclasses.dataclass(frozen=True)
class MaskTokens:
    """A function that adds a masked copy of a sequence to a padded batch; the original is kept.

    In each sequence, round(rate · length) real tokens are chosen, at least one and at most
    `max_predictions`. The length counts `[CLS]` and `[SEP]`, as in BERT's release, so that a rate
    of 80 / 256 gives exactly CMLM's 80 predictions of a sequence of 256 tokens. Special tokens and
    padding are never chosen; `[UNK]` is a special token here, as predicting it teaches nothing
    about the word that it replaces (BERT's release does choose it). 80 % of the chosen tokens are
    replaced by `[MASK]`, 10 % by a random vocabulary entry that is not a special token, and 10 %
    are unchanged (Devlin et al. 2019, §3.1).

    With `bernoulli`, each token is chosen with probability `rate`, independently of the others, as
    in Hugging Face's collator, which DeCLUTR's and DiffCSE's code took over: a sequence may have no
    prediction, and if there are more than `max_predictions`, a random part of them is kept.

    Attributes:
      source: name of the sequence to copy, e.g. `second`.
      target: name of the masked copy in the batch.
      rate: number of predictions as a share of the sequence's length, which counts special tokens.
      max_predictions: most predictions per sequence.
      special: ids of the special tokens.
      stream: number of a random stream; masked copies of one example need different streams to
        draw different masks.
      bernoulli: see above.
    """

    source: str
    target: str
    rate: float
    max_predictions: int
    special: SpecialIds
    stream: int = 0
    bernoulli: bool = False

    def __call__(self, batch: Batch) -> Batch:
        """Adds the masked copy.

        Args:
          batch: has `source` with `input_word_ids`, int32 `[batch, seq]`, and `key`, int64.

        Returns:
          The batch with `target` added: `input_word_ids`, `input_mask`, `input_type_ids` int32
          `[batch, seq]`; `masked_lm_positions` (ascending) and `masked_lm_ids`, int32
          `[batch, predictions]`; `masked_lm_weights`, float32, 1 for a prediction and 0 for an
          unused slot, where positions and ids are 0 too.
        """
        original = batch[self.source]
        word_ids, keys = original["input_word_ids"], batch["key"]
        if self.stream:
            keys = hashing.fold(hashing.fold(keys, hashing.SALT_MASKED_COPY), self.stream)
        candidates = original["input_mask"] > 0
        for special in self.special.all():
            candidates &= word_ids != special
        lengths = tf.reduce_sum(tf.cast(original["input_mask"] > 0, tf.int32), axis=1)
        positions, weights = self._choose(candidates, lengths, keys)
        labels = tf.gather(word_ids, positions, batch_dims=1)
        masked = _scatter_rows(word_ids, positions, self._replace(labels, positions, keys), weights)
        real = tf.cast(weights, tf.int32)
        return {
            **batch,
            self.target: {
                **original,
                "input_word_ids": masked,
                "masked_lm_positions": positions * real,
                "masked_lm_ids": labels * real,
                "masked_lm_weights": weights,
            },
        }

    def _choose(
        self, candidates: tf.Tensor, lengths: tf.Tensor, keys: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Chooses `masked_lm_positions` and `masked_lm_weights`, both `[batch, slots]`.

        `lengths` include special tokens; `candidates` are bool `[batch, seq]`.
        """
        slots = self._slots(tf.shape(candidates)[1])
        scores = hashing.uniform(keys, tf.shape(candidates)[1], hashing.SALT_MASK_SELECT)
        scores = tf.where(candidates, scores, -1.0)
        available = tf.reduce_sum(tf.cast(candidates, tf.int32), axis=1)
        if self.bernoulli:
            # The tokens that are drawn have the largest scores.
            drawn = tf.reduce_sum(tf.cast(scores >= 1 - self.rate, tf.int32), axis=1)
            wanted = tf.minimum(drawn, self.max_predictions)
        else:
            # In float64 the product rounds as in exact arithmetic, also where it ends in .5.
            wanted = tf.cast(tf.round(tf.cast(lengths, tf.float64) * self.rate), tf.int32)
            wanted = tf.minimum(tf.clip_by_value(wanted, 1, self.max_predictions), available)
        _, chosen = tf.math.top_k(scores, k=slots)
        real = tf.range(slots)[tf.newaxis, :] < wanted[:, tf.newaxis]
        # Unused slots sort after the real ones.
        order = tf.sort(tf.where(real, chosen, tf.int32.max), axis=1)
        return tf.where(real, order, 0), tf.cast(real, tf.float32)

    def _slots(self, length: tf.Tensor) -> tf.Tensor:
        """Returns the most predictions of a sequence that is padded to `length`."""
        # A fraction of .5 can be rounded up; `[CLS]` and `[SEP]` are never predicted.
        rate = 1.0 if self.bernoulli else self.rate
        slots = tf.cast(tf.floor(tf.cast(length, tf.float64) * rate + 0.5), tf.int32)
        slots = tf.clip_by_value(slots, 1, self.max_predictions)
        return tf.minimum(slots, tf.maximum(length - 2, 1))

    def _replace(self, labels: tf.Tensor, positions: tf.Tensor, keys: tf.Tensor) -> tf.Tensor:
        """Returns the ids that replace `labels` in the input, by the 80/10/10 rule."""
        # Random numbers belong to positions, not to slots, so they do not depend on padding.
        count = tf.reduce_max(positions) + 1
        kind = tf.gather(
            hashing.uniform(keys, count, hashing.SALT_MASK_REPLACE), positions, batch_dims=1
        )
        draw = tf.gather(
            hashing.uniform(keys, count, hashing.SALT_MASK_TOKEN), positions, batch_dims=1
        )
        specials = set(self.special.all())
        ordinary = [i for i in range(max(specials) + 1) if i not in specials]
        total = self.special.vocab_size - len(specials)
        rank = tf.minimum(tf.cast(draw * tf.cast(total, tf.float32), tf.int32), total - 1)
        # Ordinary ids below the last special token are looked up; all ids above it are ordinary.
        gaps = tf.constant(ordinary or [0], tf.int32)
        random_ids = tf.where(
            rank < len(ordinary),
            tf.gather(gaps, tf.minimum(rank, max(len(ordinary) - 1, 0))),
            rank + len(specials),
        )
        return tf.where(kind < 0.8, self.special.mask, tf.where(kind < 0.9, random_ids, labels))


def _scatter_rows(
    word_ids: tf.Tensor, positions: tf.Tensor, values: tf.Tensor, weights: tf.Tensor
) -> tf.Tensor:
    """Writes `values` at `positions` of each row of `word_ids`, where the weight is 1."""
    rows = tf.broadcast_to(tf.range(tf.shape(positions)[0])[:, tf.newaxis], tf.shape(positions))
    real = weights > 0
    indices = tf.stack([tf.boolean_mask(rows, real), tf.boolean_mask(positions, real)], axis=1)
    return tf.tensor_scatter_nd_update(word_ids, indices, tf.boolean_mask(values, real))
