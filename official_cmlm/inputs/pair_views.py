"""The views of pairs records: translations, and premise and hypothesis of NLI."""

import dataclasses
from typing import ClassVar

import tensorflow as tf

from official_cmlm.inputs import hashing
from official_cmlm.inputs.views import Examples, RecordFacts, SpecialIds, View, with_specials
from official_cmlm.records.pairs import KIND, PairBlock

# The hypothesis's language, relative to the premise's.
HYPOTHESIS_LANGUAGES = ("different", "same")


def one_language(tag: str) -> bool:
    """Returns whether both languages of a pair's tag are the same, e.g. `en-en`.

    Language tags may have hyphens too (`zh-Hans-zh-Hans`), so the tag is split in the middle.
    """
    parts = tag.split("-")
    middle = len(parts) // 2
    return parts[:middle] == parts[middle:]


class PairView(View):
    """Defaults of a view of pairs: two sequences, `first` and `second`."""

    kind: ClassVar[str] = KIND
    sequences: ClassVar[tuple[str, ...]] = ("first", "second")
    needs: ClassVar[str] = "a pair in each record"
    counted: ClassVar[bool] = True


@dataclasses.dataclass(frozen=True)
class TextPairs(PairView):
    """Both texts of each pair, e.g. a sentence and its translation (CMLM §4.2).

    Attributes:
      seq_length: tokens, `[CLS]` and `[SEP]` included; longer texts are cut.
      special: ids of the special tokens.
    """

    seq_length: int
    special: SpecialIds

    def __call__(self, block: PairBlock) -> Examples:
        limit = self.seq_length - 2
        return {
            "first": with_specials(block.first[:, :limit], self.special),
            "second": with_specials(block.second[:, :limit], self.special),
            "key": block.keys,
        }


@dataclasses.dataclass(frozen=True)
class TextTriples(TextPairs):
    """As `TextPairs`, and the pair's hard negative as `negative`.

    `has_negative` is 1 where there is one; else it is 0, and `negative` has special tokens only.
    """

    sequences: ClassVar[tuple[str, ...]] = ("first", "second", "negative")
    scalars: ClassVar[tuple[str, ...]] = ("has_negative",)

    def __call__(self, block: PairBlock) -> Examples:
        limit = self.seq_length - 2
        return {
            **super().__call__(block),
            "negative": with_specials(block.negative[:, :limit], self.special),
            "has_negative": tf.cast(block.negative.row_lengths() > 0, tf.int32),
        }


@dataclasses.dataclass(frozen=True)
class GradedPairs(TextPairs):
    """As `TextPairs`, with the pair's float32 `score` from 0 to 1."""

    scalars: ClassVar[tuple[str, ...]] = ("score",)

    def __call__(self, block: PairBlock) -> Examples:
        return {**super().__call__(block), "score": block.scores}


@dataclasses.dataclass(frozen=True)
class TaughtPairs(TextPairs):
    """As `TextPairs`, with the teacher's vectors, float16 `first_vector` and `second_vector`."""

    vector_size: int = 0

    scalars: ClassVar[tuple[str, ...]] = ("first_vector", "second_vector")

    def __call__(self, block: PairBlock) -> Examples:
        first, second = tf.unstack(block.vectors, axis=1)
        return {**super().__call__(block), "first_vector": first, "second_vector": second}


@dataclasses.dataclass(frozen=True)
class TaughtTriples(TaughtPairs, TextTriples):
    """As `TaughtPairs`, with the hard negative of `TextTriples`, which has no vector."""

    scalars: ClassVar[tuple[str, ...]] = (*TaughtPairs.scalars, *TextTriples.scalars)


def text_view(seq_length: int, facts: RecordFacts, negatives: bool = True) -> TextPairs:
    """Returns the view of both texts of a pair and of all that the records hold besides.

    Objectives that take the same view share a batch: each text is then encoded once.

    Args:
      seq_length: tokens, `[CLS]` and `[SEP]` included.
      facts: whether the records hold hard negatives and a teacher's vectors.
      negatives: whether the view has hard negatives if the records do.
    """
    negatives = negatives and facts.negatives
    if facts.vector_size:
        taught = TaughtTriples if negatives else TaughtPairs
        return taught(seq_length, facts.special, facts.vector_size)
    return (TextTriples if negatives else TextPairs)(seq_length, facts.special)


@dataclasses.dataclass(frozen=True)
class InferencePairs(PairView):
    """Premise and hypothesis of a labelled NLI pair, as `first` and `second`, with its `label`.

    CMLM §4.3: "the premise u and hypothesis v are in different languages". Each pair gives one
    example per epoch: its own premise, and the hypothesis of another pair of the row, drawn again
    in each epoch.

    Attributes:
      seq_length: tokens, `[CLS]` and `[SEP]` included; longer texts are cut.
      hypothesis_language: `different` from the premise's, or the `same`.
      row_size: pairs per row of the records. With 1, `different` needs pairs of two languages and
        takes the hypothesis of the pair itself.
      special: ids of the special tokens.
    """

    seq_length: int
    hypothesis_language: str
    row_size: int
    special: SpecialIds

    scalars: ClassVar[tuple[str, ...]] = ("label",)

    def __call__(self, block: PairBlock) -> Examples:
        index = tf.range(tf.shape(block.labels)[0])
        if self.hypothesis_language == "different" and self.row_size > 1:
            draw = hashing.uniform(block.keys, 1, hashing.SALT_LANGUAGE)[:, 0]
            others = self.row_size - 1
            step = 1 + tf.minimum(tf.cast(draw * others, tf.int32), others - 1)
            member = index % self.row_size
            index += (member + step) % self.row_size - member
        hypotheses = tf.gather(block.second, index)
        limit = self.seq_length - 2
        return {
            "first": with_specials(block.first[:, :limit], self.special),
            "second": with_specials(hypotheses[:, :limit], self.special),
            "label": block.labels,
            "key": block.keys,
        }
