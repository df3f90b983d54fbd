"""The view of contrastive learning: each segment twice, the second time optionally augmented.

Mirror-BERT §2.2 masks a span of raw characters before tokenisation; its footnote 13 tries masked
tokens, masked whole words and another order of the words. CMLM-CSE Table 3 repeats words or deletes
one, after tokenisation. SimCSE augments nothing: its two views differ by dropout alone.
"""

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
    without_repeats,
)
from official_cmlm.records.documents import DocumentBlock
from official_cmlm.tokenization import Vocabulary, build_graph_tokenizer

AUGMENTATIONS = (
    "none",
    "span_mask",
    "token_mask",
    "whole_word_mask",
    "word_reordering",
    "word_repetition",
    "word_deletion",
)


@dataclasses.dataclass(frozen=True)
class Mirrored(View):
    """A view of every segment as `first`, and again as `second` after one augmentation.

    Attributes:
      segment, seq_length: see `configs.data.DataConfig`; `span_mask` takes sentences only.
      augmentation: one of `AUGMENTATIONS`, applied to `second` only.
      span_characters: number of characters that `span_mask` replaces by one `[MASK]`.
      span_min_characters: `span_mask` leaves sentences unchanged that are shorter than this, or
        not longer than `span_characters`.
      repetition_rate: share of the tokens that `word_repetition` repeats.
      augmentation_rate: share of the tokens that `token_mask` masks, of the words that
        `whole_word_mask` masks or that `word_reordering` permutes.
      vocabulary: tokenizes the masked text.
    """

    segment: str
    seq_length: int
    augmentation: str
    span_characters: int
    span_min_characters: int
    repetition_rate: float
    augmentation_rate: float
    vocabulary: Vocabulary

    sequences: ClassVar[tuple[str, ...]] = ("first", "second")
    needs: ClassVar[str] = "a sentence in each record"

    @property
    def counted(self) -> bool:
        return self.segment == "sentence"

    @property
    def special(self) -> SpecialIds:
        return SpecialIds.of(self.vocabulary)

    @property
    def reads_text(self) -> bool:
        return self.augmentation == "span_mask"

    def __call__(self, block: DocumentBlock) -> Examples:
        block = without_repeats(block)
        parts = segments(block, self.segment, self.seq_length - 2)
        keys = example_keys(block.keys, parts.row_lengths())
        first = parts.values
        if self.augmentation == "span_mask":
            second = self._span_mask(first, block.text.flat_values, keys)
        elif self.augmentation == "token_mask":
            # Each token counts as a word.
            words = first.with_values(tf.RaggedTensor.from_uniform_row_length(first.values, 1))
            second = mask_words(words, keys, self.augmentation_rate, self.special.mask)
        elif self.augmentation == "whole_word_mask":
            words = self._words(first)
            second = mask_words(words, keys, self.augmentation_rate, self.special.mask)
        elif self.augmentation == "word_reordering":
            # Byte-level BPE has other ids for a word after a space: the first word stays first.
            fixed = int(self.vocabulary.space_changes_ids)
            second = reorder_words(self._words(first), keys, self.augmentation_rate, fixed)
        elif self.augmentation == "word_repetition":
            second = repeat_tokens(first, keys, self.repetition_rate)
        elif self.augmentation == "word_deletion":
            second = delete_token(first, keys)
        else:
            second = first
        return {
            "first": with_specials(first, self.special),
            "second": with_specials(second[:, : self.seq_length - 2], self.special),
            "key": keys,
        }

    def _words(self, tokens: tf.RaggedTensor) -> tf.RaggedTensor:
        """Groups the tokens by words: int32 `[rows, (words), (tokens)]`."""
        entries = self.vocabulary.tokens
        continues = tf.constant([self.vocabulary.continues_word(entry) for entry in entries])
        return words_of(tokens, tf.gather(continues, tokens.flat_values))

    def _span_mask(
        self, tokens: tf.RaggedTensor, text: tf.Tensor, keys: tf.Tensor
    ) -> tf.RaggedTensor:
        """Tokenizes the texts with a masked span; returns `tokens` where the text is too short."""
        before, after, masked = cut_span(text, keys, self.span_characters, self.span_min_characters)
        # The mask is surrounded by spaces, as in the reference code. Without the space, byte-level
        # BPE would tokenize the next word as the end of a word.
        before = tf.strings.regex_replace(before, r"\s+\z", "")
        after = tf.strings.regex_replace(after, r"\A\s*(\S)", r" \1")
        tokenizer = build_graph_tokenizer(self.vocabulary)
        mask = tf.fill([tf.shape(text)[0], 1], self.vocabulary.special_ids["mask"])
        left = tf.cast(tokenizer.tokenize(before), tf.int32)
        right = tf.cast(tokenizer.tokenize(after), tf.int32)
        changed = tf.concat([left, mask, right], axis=1)
        return choose_rows(masked, changed, tokens)


def cut_span(
    text: tf.Tensor, keys: tf.Tensor, characters: int, min_characters: int
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Cuts `characters` Unicode characters out of each text; the span start is drawn uniformly.

    Returns:
      The text before the span and the text after it, strings `[batch]`, and bool `[batch]`:
      whether the text is long enough. Where it is not, the two strings are undefined.
    """
    length = tf.strings.length(text, unit="UTF8_CHAR")
    masked = (length > characters) & (length >= min_characters)
    starts = tf.maximum(length - characters + 1, 1)
    draw = hashing.uniform(keys, 1, hashing.SALT_SPAN_START)[:, 0]
    start = tf.minimum(tf.cast(draw * tf.cast(starts, tf.float32), tf.int32), starts - 1)
    end = tf.minimum(start + characters, length)
    before = tf.strings.substr(text, tf.zeros_like(start), start, unit="UTF8_CHAR")
    after = tf.strings.substr(text, end, length - end, unit="UTF8_CHAR")
    return before, after, masked


def repeat_tokens(tokens: tf.RaggedTensor, keys: tf.Tensor, rate: float) -> tf.RaggedTensor:
    """Repeats round(rate · n) of each row's n tokens; the copy follows its original."""
    count = tf.cast(tf.round(tf.cast(tokens.row_lengths(), tf.float64) * rate), tf.int64)
    chosen = choose_tokens(tokens, keys, count, hashing.SALT_REPEAT_WHICH)
    times = 1 + tf.cast(chosen.flat_values, tf.int32)
    lengths = tokens.row_lengths() + tf.reduce_sum(tf.cast(chosen, tf.int64), axis=1)
    return tf.RaggedTensor.from_row_lengths(tf.repeat(tokens.flat_values, times), lengths)


def delete_token(tokens: tf.RaggedTensor, keys: tf.Tensor) -> tf.RaggedTensor:
    """Deletes one token of each row that has at least two."""
    count = tf.cast(tokens.row_lengths() > 1, tf.int64)
    chosen = choose_tokens(tokens, keys, count, hashing.SALT_DELETE)
    return tf.ragged.boolean_mask(tokens, ~chosen)


def words_of(tokens: tf.RaggedTensor, continues: tf.Tensor) -> tf.RaggedTensor:
    """Groups each row's tokens by words.

    Args:
      tokens: int32 `[rows, (tokens)]`.
      continues: bool `[all tokens]`: whether a token belongs to the word of the one before it. The
        first token of a row always begins a word.

    Returns:
      int32 `[rows, (words), (tokens)]`.
    """
    rows = tokens.value_rowids()
    is_first = tf.concat([tf.ones_like(rows[:1], tf.bool), rows[1:] != rows[:-1]], axis=0)
    begins = tf.logical_or(is_first, ~continues)
    words = tf.RaggedTensor.from_value_rowids(
        tokens.flat_values, tf.cumsum(tf.cast(begins, tf.int64)) - 1
    )
    counts = tf.math.unsorted_segment_sum(tf.cast(begins, tf.int64), rows, tokens.nrows())
    return tf.RaggedTensor.from_row_lengths(words, counts)


def mask_words(words: tf.RaggedTensor, keys: tf.Tensor, rate: float, mask: int) -> tf.RaggedTensor:
    """Replaces every token of round(rate · n) of each row's n words, at least one, by `mask`.

    Args:
      words: int32 `[rows, (words), (tokens)]`, see `words_of`.
      keys: int64 `[rows]`.
      rate: in (0, 1].
      mask: a token id.

    Returns:
      int32 `[rows, (tokens)]`, of as many tokens as before.
    """
    chosen = choose_tokens(words, keys, _share(words, rate), hashing.SALT_WORDS)
    of_tokens = tf.repeat(chosen.flat_values, words.values.row_lengths())
    values = tf.where(of_tokens, mask, words.flat_values)
    return words.with_flat_values(values).merge_dims(1, 2)


def reorder_words(
    words: tf.RaggedTensor, keys: tf.Tensor, rate: float, fixed: int = 0
) -> tf.RaggedTensor:
    """Permutes round(rate · n) of each row's n words, at least two, among their places.

    Args:
      words, keys, rate: see `mask_words`.
      fixed: this many words stay at the beginning of each row; they do not count.

    Returns:
      int32 `[rows, (tokens)]`, the same tokens in another order.
    """
    if fixed:
        rest = reorder_words(words[:, fixed:], keys, rate)
        return tf.concat([words[:, :fixed].merge_dims(1, 2), rest], axis=1)
    count = tf.minimum(tf.maximum(_share(words, rate), 2), words.row_lengths())
    chosen = choose_tokens(words, keys, count, hashing.SALT_WORDS).to_tensor(False)
    longest = tf.shape(chosen)[1]
    places = tf.range(longest, dtype=tf.float32)[tf.newaxis]
    draws = hashing.uniform(keys, longest, hashing.SALT_REORDER)
    # Both orders begin with the chosen words, by place or by chance; the other words follow and
    # stay in their places.
    by_place = tf.argsort(tf.where(chosen, -1.0, places), axis=1, stable=True)
    by_chance = tf.argsort(tf.where(chosen, draws - 2.0, places), axis=1, stable=True)
    source = tf.gather(by_chance, tf.argsort(by_place, axis=1, stable=True), batch_dims=1)
    source = tf.RaggedTensor.from_tensor(source, lengths=words.row_lengths())
    starts = tf.gather(words.row_starts(), source.value_rowids())
    index = tf.cast(starts, tf.int64) + tf.cast(source.flat_values, tf.int64)
    return words.with_values(tf.gather(words.values, index)).merge_dims(1, 2)


def _share(items: tf.RaggedTensor, rate: float) -> tf.Tensor:
    """Returns round(rate · n) of each row's n items, at least 1: int64 `[rows]`."""
    count = tf.round(tf.cast(items.row_lengths(), tf.float64) * rate)
    return tf.maximum(tf.cast(count, tf.int64), 1)


def choose_tokens(
    tokens: tf.RaggedTensor, keys: tf.Tensor, count: tf.Tensor, salt: int
) -> tf.RaggedTensor:
    """Chooses `count` (int64 `[rows]`) tokens, or words, of each row: bool `[rows, (tokens)]`."""
    longest = tf.cast(tokens.bounding_shape()[1], tf.int32)
    scores = hashing.uniform(keys, longest, salt)
    inside = tf.sequence_mask(tokens.row_lengths(), longest)
    order = tf.argsort(tf.where(inside, scores, 2.0), axis=1, stable=True)
    rank = tf.argsort(order, axis=1, stable=True)
    chosen = tf.cast(rank, tf.int64) < count[:, tf.newaxis]
    return tf.RaggedTensor.from_tensor(chosen, lengths=tokens.row_lengths())


def choose_rows(
    condition: tf.Tensor, if_true: tf.RaggedTensor, if_false: tf.RaggedTensor
) -> tf.RaggedTensor:
    """Returns row i of `if_true` where `condition` (bool `[rows]`) holds, else of `if_false`."""
    rows = tf.cast(tf.shape(condition)[0], tf.int64)
    both = tf.concat([if_true, if_false], axis=0)
    index = tf.range(rows)
    return tf.gather(both, tf.where(condition, index, index + rows))
