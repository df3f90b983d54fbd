"""Byte-level BPE in TensorFlow graphs."""

import itertools
from collections.abc import Sequence

import tensorflow as tf
import tensorflow_text as tf_text

_NO_SPACE_FIRST = r"\A([^ ])"
_SPACE = r"\s\v\x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000}"
# The last of several spaces belongs to the text that follows, if there is one. re2 cannot look
# ahead, so a text is split twice: into pieces that begin with at most one space, then into words.
_PIECE = rf"[{_SPACE}]?[^{_SPACE}]+"
_WORD = rf"'s|'t|'re|'ve|'m|'ll|'d| ?\pL+| ?\pN+| ?[^{_SPACE}\pL\pN]+|[{_SPACE}]+"
# Longer words, in bytes, are cut, because the time of a word grows with the square of its length.
LONGEST_WORD = 4096


class GraphBytePair(tf.Module):
    """Byte-level BPE under GPT-2's rules, as RoBERTa uses them.

    The vocabulary is in lookup tables, which are saved with the module that has this object as an
    attribute. Nothing is remembered between calls.

    The ids equal those of `BytePairVocabulary.tokenizer` with these exceptions: U+0000 is lost, and
    a word of more than `LONGEST_WORD` bytes is cut into parts of that length.
    """

    def __init__(
        self, tokens: Sequence[str], merges: Sequence[str], add_prefix_space: bool
    ) -> None:
        """Makes the lookup tables; see `BytePairVocabulary` for the arguments."""
        super().__init__(name="byte_pair")
        ids = {token: i for i, token in enumerate(tokens)}
        pairs = [merge.split(" ") for merge in merges]
        self._byte_ids = [ids[spelling] for spelling in _spell_bytes()]
        self._merged_ids = [ids[left + right] for left, right in pairs]
        self._size = len(tokens)
        # The table is an attribute, so that it is saved with the module.
        self._ranks = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(
                tf.constant(
                    [ids[left] * self._size + ids[right] for left, right in pairs], tf.int64
                ),
                tf.range(len(pairs), dtype=tf.int64),
            ),
            default_value=len(pairs),
        )

        def tokenize(texts: tf.Tensor) -> tf.RaggedTensor:
            texts = tf.ensure_shape(texts, [None])
            # tensorflow-text's split would end at a NUL.
            texts = tf.strings.regex_replace(texts, r"\x00", "")
            if add_prefix_space:
                # A text that begins with a space, or is empty, gets no space.
                texts = tf.strings.regex_replace(texts, _NO_SPACE_FIRST, r" \1")
            pieces = tf_text.regex_split(texts, _PIECE, _PIECE)
            words = tf_text.regex_split(pieces, _WORD, _WORD).merge_dims(1, 2)
            different, numbers = tf.unique(words.flat_values)
            merged = tf.gather(self._merge(different), numbers)
            return tf.RaggedTensor.from_row_splits(
                merged.flat_values, tf.gather(merged.row_splits, words.row_splits), validate=False
            )

        # Maps strings `[batch]` to int32 `[batch, (tokens)]`.
        self.tokenize = tf.function(
            tokenize, input_signature=[tf.TensorSpec([None], tf.string, name="texts")]
        )

    def _merge(self, words: tf.Tensor) -> tf.RaggedTensor:
        """Maps words, strings `[words]`, to ids, int32 `[words, (tokens)]`.

        Each step merges, in all words at once, every occurrence of the word's most important pair.
        Words in which no pair is left leave the loop.
        """
        letters = tf.strings.bytes_split(words)
        byte_values = tf.reshape(tf.io.decode_raw(letters.flat_values, tf.uint8), [-1])
        byte_values = tf.cast(byte_values, tf.int32)
        ids = tf.gather(tf.constant(self._byte_ids, tf.int64), byte_values)
        merged_ids = tf.constant([*self._merged_ids, 0], tf.int64)
        none = tf.constant(len(self._merged_ids), tf.int64)

        # Each byte belongs to a part, which is at most `LONGEST_WORD` bytes of one word.
        word_of = tf.cast(letters.value_rowids(), tf.int64)
        place = tf.range(tf.size(ids, tf.int64)) - tf.gather(letters.row_starts(), word_of)
        part_of = tf.cumsum(tf.cast(place % LONGEST_WORD == 0, tf.int64)) - 1
        word_of_part = tf.boolean_mask(word_of, place % LONGEST_WORD == 0)

        def step(
            number: tf.Tensor, ids: tf.Tensor, parts: tf.Tensor, done: tf.TensorArray,
            done_parts: tf.TensorArray,
        ) -> tuple:  # fmt: skip
            places = tf.range(tf.size(ids))
            same = parts[1:] == parts[:-1]
            ranks = self._ranks.lookup(ids[:-1] * self._size + ids[1:])
            ranks = tf.concat([tf.where(same, ranks, none), [none]], axis=0)
            active = tf.concat([[0], tf.cumsum(tf.cast(~same, tf.int32))], axis=0)
            first = tf.gather(tf.math.segment_min(ranks, active), active)
            finished = first == none
            lowest = (ranks == first) & ~finished
            # `aaa` holds the pair `aa` twice, overlapping; of such a run, the first, third, fifth …
            # pair is merged.
            begins = lowest & ~tf.concat([[False], lowest[:-1]], axis=0)
            run = tf.maximum(tf.cumsum(tf.cast(begins, tf.int32)) - 1, 0)
            starts = tf.concat([tf.boolean_mask(places, begins), [0]], axis=0)
            taken = lowest & ((places - tf.gather(starts, run)) % 2 == 0)
            merged = tf.where(taken, tf.gather(merged_ids, ranks), ids)
            is_left = ~(finished | tf.concat([[False], taken[:-1]], axis=0))
            done = done.write(number, tf.boolean_mask(ids, finished))
            done_parts = done_parts.write(number, tf.boolean_mask(parts, finished))
            ids, parts = tf.boolean_mask(merged, is_left), tf.boolean_mask(parts, is_left)
            return number + 1, ids, parts, done, done_parts

        def array() -> tf.TensorArray:
            options = {"dynamic_size": True, "infer_shape": False, "element_shape": [None]}
            # An array without elements cannot be concatenated, so it begins with an empty tensor.
            return tf.TensorArray(tf.int64, 1, **options).write(0, tf.zeros([0], tf.int64))

        _, _, _, done, done_parts = tf.while_loop(
            lambda number, ids, *_: tf.size(ids) > 0,
            step,
            [tf.constant(1), ids, part_of, array(), array()],
            shape_invariants=[
                tf.TensorShape([]),
                tf.TensorShape([None]),
                tf.TensorShape([None]),
                tf.TensorShape(None),
                tf.TensorShape(None),
            ],
        )
        parts = done_parts.concat()
        order = tf.argsort(parts, stable=True)
        owners = tf.gather(word_of_part, tf.gather(parts, order))
        return tf.RaggedTensor.from_value_rowids(
            tf.cast(tf.gather(done.concat(), order), tf.int32),
            owners,
            nrows=tf.size(words, tf.int64),
            validate=False,
        )


def _spell_bytes() -> list[str]:
    """Returns GPT-2's spelling of each byte: visible Latin-1 as it is, the rest from U+0100 on."""
    visible = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = itertools.count(0x100)
    return [chr(byte if byte in visible else next(others)) for byte in range(256)]
