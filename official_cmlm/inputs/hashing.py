"""Random numbers as a pure function of keys: an example's numbers do not depend on its batch.

TensorFlow's stateless generators take one seed per call, so the numbers of an example would depend
on the batch that it is in. Here each example carries an int64 key, and a number is a hash of
(key, salt, index): the same example gets the same masks in any batch, at any padded length, on any
number of replicas and after any restart.

The hash is the finaliser of SplitMix64 (Steele, Lea and Flood 2014, "Fast splittable pseudorandom
number generators"), a bijection of 64-bit words that passes BigCrush when fed with a Weyl sequence.
"""

import tensorflow as tf

from official_cmlm.common.hashing import GOLDEN_GAMMA, MIX_1, MIX_2

# A salt for each use of random numbers: different uses of one key must not draw the same numbers.
SALT_SHUFFLE = 1
SALT_SWAP = 2
SALT_MASK_SELECT = 3
SALT_MASK_REPLACE = 4
SALT_MASK_TOKEN = 5
SALT_SHARDS = 6
SALT_REPETITIONS = 7
SALT_LANGUAGE = 8
SALT_SPAN_START = 9
SALT_REPEAT_WHICH = 11
SALT_DELETE = 12
SALT_ANCHORS = 13
SALT_ANCHOR_LENGTHS = 14
SALT_POSITIVE_LENGTHS = 15
SALT_POSITIVE_STARTS = 16
SALT_MASKED_COPY = 17
SALT_IDENTITY = 18
SALT_WORDS = 19
SALT_NEXT_SENTENCE = 20
SALT_REORDER = 21


def _mix(state: tf.Tensor) -> tf.Tensor:
    """Computes `official_cmlm.common.hashing.mix` in a graph; uint64 of any shape."""
    state = tf.bitwise.bitwise_xor(state, tf.bitwise.right_shift(state, _word(30)))
    state *= _word(MIX_1)
    state = tf.bitwise.bitwise_xor(state, tf.bitwise.right_shift(state, _word(27)))
    state *= _word(MIX_2)
    return tf.bitwise.bitwise_xor(state, tf.bitwise.right_shift(state, _word(31)))


def _word(value: int) -> tf.Tensor:
    return tf.constant(value, tf.uint64)


def _as_word(values: tf.Tensor) -> tf.Tensor:
    return tf.bitcast(tf.cast(values, tf.int64), tf.uint64)


def fold(key: tf.Tensor, data: tf.Tensor | int) -> tf.Tensor:
    """Derives new keys from `key` and `data`.

    Args:
      key: int64 of any shape.
      data: integers that broadcast against `key`, e.g. an index.

    Returns:
      int64 keys of the broadcast shape.
    """
    weyl = (_as_word(tf.convert_to_tensor(data)) + _word(1)) * _word(GOLDEN_GAMMA)
    return tf.bitcast(_mix(_mix(_as_word(key)) + weyl), tf.int64)


def uniform(keys: tf.Tensor, count: tf.Tensor | int, salt: int) -> tf.Tensor:
    """Draws `count` uniform numbers for each key.

    Number j of a key depends on (key, salt, j) alone, not on `count` nor on the other keys.

    Args:
      keys: int64 `[batch]`.
      count: numbers a key, at least 0.
      salt: one of this module's SALT constants.

    Returns:
      float32 `[batch, count]` in [0, 1).
    """
    words = fold(fold(keys, salt)[:, tf.newaxis], tf.range(count)[tf.newaxis, :])
    # A float32 below 1 holds 24 bits.
    high = tf.bitwise.right_shift(tf.bitcast(words, tf.uint64), _word(40))
    return tf.cast(tf.cast(high, tf.int32), tf.float32) * (1.0 / (1 << 24))


def row_identity(word_ids: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Hashes each text to 48 bits, as two numbers: equal texts share them, others hardly ever.

    The numbers are floats, so that they go wherever vectors go; 24 bits are exact in float32.

    Args:
      word_ids: integers `[rows, seq]`.
      mask: integers `[rows, seq]`, 0 where there is padding.

    Returns:
      float32 `[rows, 2]`.
    """
    places = tf.range(tf.shape(word_ids)[1])[tf.newaxis]
    words = fold(fold(tf.cast(word_ids, tf.int64), places), SALT_IDENTITY)
    total = tf.reduce_sum(tf.where(mask > 0, words, tf.zeros_like(words)), axis=1)
    return halves(fold(total, SALT_IDENTITY))


def halves(keys: tf.Tensor) -> tf.Tensor:
    """Returns 48 bits of each key, int64 `[rows]`, as two numbers: float32 `[rows, 2]`."""
    bits = tf.bitcast(keys, tf.uint64)
    parts = (tf.bitwise.right_shift(bits, _word(40)), bits % _word(1 << 24))
    return tf.stack([tf.cast(tf.cast(part, tf.int32), tf.float32) for part in parts], axis=1)


def permutation(keys: tf.Tensor, salt: int) -> tf.Tensor:
    """Orders rows by the hashes of their keys: int32 `[rows]`, a permutation of 0 … rows − 1."""
    return tf.argsort(fold(keys, salt), stable=True)
