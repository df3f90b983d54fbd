"""Configuration of the encoder that all objectives share."""

import dataclasses
import itertools
import math
import os
from typing import Annotated, Any

import numpy as np

from official_cmlm.common.errors import UserError
from official_cmlm.common.processor import physical_memory
from official_cmlm.common.validation import OneOf, between, check_fields, read_fields


@dataclasses.dataclass(frozen=True)
class Pooling:
    """A way from token outputs to one vector; all forward passes and exports read these facts.

    Attributes:
      reduction: `mean` or `max` over tokens, or `first`, the first token's output alone.
      averaged_with: the block whose outputs are averaged with the last block's, counted from 1; 0
        is the embedding layer. None: the last block's outputs alone are pooled.
      pooler: whether the vector goes through BERT's pooler, a dense layer with tanh.
      weighted: whether each token counts with a learned weight of its vocabulary entry.
      padded: whether padding up to `EncoderConfig.padded_length` is pooled with the real tokens.
      exported_as: the switch in the configuration of sentence-transformers' module `Pooling`; None:
        that module cannot compute the pooling.
    """

    reduction: str
    averaged_with: int | None = None
    pooler: bool = False
    weighted: bool = False
    padded: bool = False
    exported_as: str | None = None

    @property
    def first_token(self) -> bool:
        """Whether only the first token's output of the last block is read."""
        return self.reduction == "first"


POOLINGS = {
    "mean": Pooling("mean", exported_as="pooling_mode_mean_tokens"),
    "max": Pooling("max", exported_as="pooling_mode_max_tokens"),
    "cls": Pooling("first", exported_as="pooling_mode_cls_token"),
    "cls_pooler": Pooling("first", pooler=True, exported_as="pooling_mode_cls_token"),
    "first_last": Pooling("mean", averaged_with=1),
    "embedding_last": Pooling("mean", averaged_with=0),
    "mean_padded": Pooling("mean", padded=True),
    "weighted_mean": Pooling("mean", weighted=True, exported_as="pooling_mode_mean_tokens"),
}
SENTENCE_VECTORS = ("pooled", "projected_mean")
_PROBABILITY = between(0, 1, below_high=True)
REMATS = ("none", "blocks", "attention")
ACTIVATIONS = ("gelu", "gelu_exact", "relu")
DENSE_ACTIVATIONS = ("tanh", "none")


@dataclasses.dataclass
class EncoderConfig:
    """A BERT encoder, and how its outputs become one vector per sentence.

    The defaults are BERT base (Devlin et al. 2019), which CMLM §3 uses unchanged.

    Attributes:
      vocab_size: entries of the vocabulary. 0 (default) takes the size of the records' vocabulary.
      hidden_size: width of every layer and of the embedding.
      embedding_width: width of the tables of words, positions and types and of the normalisation of
        their sum, from which a linear layer leads to `hidden_size`. 0 (default): `hidden_size`,
        without such a layer; ALBERT has 128 (Lan et al. 2020, §3.1).
      num_layers: transformer blocks. 0: none, the vector is pooled from the embeddings of tokens.
      num_attention_heads: heads of a block; must divide `hidden_size`.
      intermediate_size: width inside the feed-forward layer, normally 4 · `hidden_size`.
      hidden_activation: activation of the feed-forward layer: `gelu` (tanh approximation, as
        BERT's TensorFlow release), `gelu_exact`, or `relu`.
      dropout_rate: dropout after each sub-layer (attention and feed-forward) and on the embeddings,
        a probability: `hidden_dropout_prob` of BERT's release. A training rounds it, as both other
        rates, to a multiple of 1/256, or of 1/65536 where that is not within 2 %.
      attention_dropout_rate: dropout on attention weights alone, a probability:
        `attention_probs_dropout_prob` of BERT's release. At 0 attention is faster on NVIDIA GPUs
        with `pjrt`.
      drophead_rate: probability of dropping a whole attention head, drawn for each example in
        training; the other heads are scaled up (Zhou et al. 2020). Default 0; Mirror-BERT tries 0.2
        for BERT and 0.05 for RoBERTa, with both dropouts at 0 (§4.4, footnote 12).
      layer_norm_epsilon: added to the variance in every layer normalisation. Default 1e-12, as
        BERT's release; RoBERTa's has 1e-5.
      max_position_embeddings: rows of the position table. It must cover the longest sequence
        plus the N projected sentence vectors of CMLM (256 + 15 = 271 for the paper's setting).
      position_offset: row of the position table for the first token. Default 0; RoBERTa's release
        has 2 and does not use the rows before it.
      relative_position_buckets: buckets of a learnt bias on attention scores, by how far two tokens
        are apart; one table for all blocks. 0 (default): none; MPNet's release has 32.
      type_vocab_size: rows of the token-type table; 0: the encoder has no token types, as
        DistilBERT (Sanh et al. 2019, §3).
      initializer_range: standard deviation of the truncated-normal initialisation.
      pooling: how token outputs become the sentence vector (CMLM §2, footnote 1 and Table 9):
        `mean` over real tokens, special ones included; `max` over real tokens; `cls`, the first;
        `cls_pooler`, the first through BERT's pooler (a dense layer with tanh), which is then
        trained; `first_last`, the mean over real tokens of the first and the last block's outputs
        (SimCSE's `avg_first_last`); `embedding_last`, the same mean of the embedding layer's and
        the last block's outputs (BERT's "first-last avg." in CMLM-CSE Table 1); `mean_padded`, the
        mean over real tokens and padding; `weighted_mean`, the mean over real tokens, where a token
        with id i counts exp(w[i]) times and w is learned, 0 at first.
      padded_length: tokens that `mean_padded` pads every sequence to, `[CLS]` and `[SEP]` included,
        whatever the length of its batch; a longer one has no padding. 0 (default) unless `pooling`
        is `mean_padded`; Mirror-BERT's code pads to 50.
      padding_id: id of the padding token, which `mean_padded` reads; a training always takes it
        from the vocabulary. Default 0.
      sentence_vector: `pooled` (default), or `projected_mean`: the mean over CMLM's N projections
        of the pooled vector (CMLM §5.1, the row "proj" of Table 7).
      num_projections: N of the projections that the encoder itself carries; 0 (default) unless
        `sentence_vector` is `projected_mean`.
      projection_depth: layers of each of these projections. Default 3 (CMLM appendix C).
      projection_width: width of the vectors between these layers, as a multiple of `hidden_size`.
        Default 2 (CMLM appendix C).
      dense_size: width of a dense layer on the pooled vector, whose outputs are the embedding: the
        module `Dense` of sentence-transformers. 0 (default): there is none.
      dense_activation: activation of the dense layer: `tanh` (default, as in the module `Dense`),
        or `none`.
      normalize: scale the embedding to length 1. Default false, as the published CMLM modules;
        many sentence-transformers models have it.
      remat: what the backward pass of a training computes again instead of keeping it. It changes
        neither losses nor gradients, nor anything but training. `none` (default); `blocks`: every
        Transformer block, of which only the inputs are kept, for about a third more computation
        (Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost"); `attention`: the
        attention weights alone, which grow with the square of the length, for less additional
        computation (Korthikanti et al. 2022, "Reducing Activation Recomputation in Large
        Transformer Models").
    """

    vocab_size: Annotated[int, between(0, 1 << 24)] = 0
    hidden_size: Annotated[int, between(1, 1 << 16)] = 768
    embedding_width: Annotated[int, between(0, 1 << 16)] = 0
    num_layers: Annotated[int, between(0, 1024)] = 12
    num_attention_heads: Annotated[int, between(1, 1 << 12)] = 12
    intermediate_size: Annotated[int, between(1, 1 << 20)] = 3072
    hidden_activation: Annotated[str, OneOf(ACTIVATIONS)] = "gelu"
    dropout_rate: Annotated[float, _PROBABILITY] = 0.1
    attention_dropout_rate: Annotated[float, _PROBABILITY] = 0.1
    drophead_rate: Annotated[float, _PROBABILITY] = 0.0
    layer_norm_epsilon: Annotated[float, between(0, 1, above_low=True, below_high=True)] = 1e-12
    max_position_embeddings: Annotated[int, between(3, 1 << 20)] = 512
    position_offset: Annotated[int, between(0, 1 << 16)] = 0
    relative_position_buckets: Annotated[int, between(0, 1 << 10)] = 0
    type_vocab_size: Annotated[int, between(0, 1 << 16)] = 2
    initializer_range: Annotated[float, between(0, 100, above_low=True)] = 0.02
    pooling: Annotated[str, OneOf(tuple(POOLINGS))] = "mean"
    padded_length: Annotated[int, between(0, 1 << 20)] = 0
    padding_id: Annotated[int, between(0, 1 << 24)] = 0
    sentence_vector: Annotated[str, OneOf(SENTENCE_VECTORS)] = "pooled"
    num_projections: Annotated[int, between(0, 1024)] = 0
    projection_depth: Annotated[int, between(1, 64)] = 3
    projection_width: Annotated[float, between(0, 64, above_low=True)] = 2.0
    dense_size: Annotated[int, between(0, 1 << 16)] = 0
    dense_activation: Annotated[str, OneOf(DENSE_ACTIVATIONS)] = "tanh"
    normalize: bool = False
    remat: Annotated[str, OneOf(REMATS)] = "none"

    @classmethod
    def read(cls, fields: Any, where: str | os.PathLike) -> "EncoderConfig":
        """Makes a config of fields by name; other fields get their defaults.

        Raises:
          UserError: names `where` and the field that is unknown, of another type or out of range.
        """
        config = cls(**read_fields(cls, fields, f"{where}: encoder"))
        try:
            config.check()
        except UserError as error:
            raise UserError(f"{where}: {error}") from None
        return config

    def as_dict(self) -> dict[str, Any]:
        """Returns the fields by name."""
        return dataclasses.asdict(self)

    def replace(self, **fields: Any) -> "EncoderConfig":
        """Returns a copy with other values of some fields."""
        return dataclasses.replace(self, **fields)

    @property
    def pooled_by(self) -> Pooling:
        """The facts about `pooling`."""
        return POOLINGS[self.pooling]

    @property
    def max_seq_length(self) -> int:
        """Longest sequence that the position table has rows for, in tokens."""
        return self.max_position_embeddings - self.position_offset

    @property
    def token_width(self) -> int:
        """Width of the table of words."""
        return self.embedding_width or self.hidden_size

    @property
    def embedding_size(self) -> int:
        """Components of the embedding."""
        return self.dense_size or self.hidden_size

    def check(self) -> None:
        """Raises `UserError` if fields are out of range or contradict each other."""
        check_fields(self, "encoder")
        if self.hidden_size % self.num_attention_heads:
            raise UserError(
                f"encoder.hidden_size ({self.hidden_size}) must be a multiple of "
                f"encoder.num_attention_heads ({self.num_attention_heads})"
            )
        if self.embedding_width == self.hidden_size:
            raise UserError(
                f"encoder.embedding_width ({self.embedding_width}) must differ from "
                "encoder.hidden_size; leave it 0 for tables of that width"
            )
        if self.max_seq_length < 3:
            raise UserError(
                f"encoder.max_position_embeddings ({self.max_position_embeddings}) must be at "
                f"least 3 above encoder.position_offset ({self.position_offset})"
            )
        if (self.sentence_vector == "projected_mean") != (self.num_projections > 0):
            raise UserError(
                "encoder.num_projections must be above 0 exactly when encoder.sentence_vector is "
                f"projected_mean; got {self.num_projections} with {self.sentence_vector!r}"
            )
        if self.relative_position_buckets % 4:
            raise UserError(
                f"encoder.relative_position_buckets ({self.relative_position_buckets}) must be a "
                "multiple of 4: half of them are for later tokens, half of these for single steps"
            )
        if self.relative_position_buckets and self.remat != "none":
            raise UserError(
                "encoder.remat must be none with encoder.relative_position_buckets: the table's "
                "gradient is not computed again"
            )
        if self.dense_size and self.num_projections:
            raise UserError(
                "encoder.dense_size and encoder.num_projections exclude each other: the mean of "
                "projections is the embedding"
            )
        if self.pooled_by.padded != (self.padded_length > 0):
            padded = " or ".join(name for name, pooling in POOLINGS.items() if pooling.padded)
            raise UserError(
                "encoder.padded_length must be above 0 exactly when encoder.pooling is "
                f"{padded}; got {self.padded_length} with {self.pooling!r}"
            )
        if self.padded_length > self.max_seq_length:
            raise UserError(
                f"encoder.padded_length ({self.padded_length}) is longer than the position table "
                f"({self.max_seq_length}); shorten it or raise encoder.max_position_embeddings"
            )

    def for_vocabulary(self, entries: int, padding_id: int) -> "EncoderConfig":
        """Returns the config with a vocabulary's size and, for padded poolings, padding token."""
        padding_id = padding_id if self.pooled_by.padded else 0
        return self.replace(vocab_size=entries, padding_id=padding_id)

    def num_weights(self) -> int:
        """Counts the weights of the encoder, including CMLM's projection, biases and norms."""
        hidden, inner = self.hidden_size, self.intermediate_size
        rows = self.vocab_size + self.max_position_embeddings + max(self.type_vocab_size, 1)
        attention, feed_forward = 4 * hidden * (hidden + 1), 2 * hidden * inner + inner + hidden
        layer = attention + feed_forward + 4 * hidden
        between = max(1, round(self.projection_width * hidden))
        sizes = [hidden, *[between] * (self.projection_depth - 1)]
        network = sum((a + 1) * b for a, b in itertools.pairwise([*sizes, hidden]))
        projections = max(self.num_projections - 1, 0) * network
        dense = self.dense_size * (hidden + 1)
        pooler = hidden * (hidden + 1)
        relative = self.relative_position_buckets * self.num_attention_heads
        mapping = self.embedding_width and (self.embedding_width + 1) * hidden
        others = pooler + projections + dense + relative + mapping
        others += self.vocab_size * self.pooled_by.weighted
        return (rows + 2) * self.token_width + self.num_layers * layer + others

    def check_memory(self) -> None:
        """Raises `UserError` if the weights, 4 bytes each, exceed the memory of this machine."""
        memory, needed = physical_memory(), 4 * self.num_weights()
        if needed > memory:
            sizes = ("vocab_size", "hidden_size", "num_layers", "intermediate_size")
            named = ", ".join(
                f"{name} {getattr(self, name)}" for name in (*sizes, "max_position_embeddings")
            )
            raise UserError(
                f"encoder: its weights take {needed / 2**30:,.0f} GiB, this machine has "
                f"{memory / 2**30:,.0f} GiB of memory ({named}); correct the sizes"
            )


# Distances of this and more share a bucket (Raffel et al. 2020, "T5", §2.1; MPNet's code).
FARTHEST = 128


def buckets_of_distances(buckets: int) -> np.ndarray:
    """Returns the bucket of each distance from −128 to 128: int32 `[257]`.

    Half of the buckets are for keys after the query. Half of each half is for single distances; in
    the rest, the number of the bucket grows with the logarithm of the distance. NumPy computes the
    logarithms because compilers round them differently.
    """
    half = buckets // 2
    exact = half // 2
    distances = np.arange(-FARTHEST, FARTHEST + 1)
    near = np.abs(distances)
    grown = np.log(np.maximum(near, 1) / exact) / math.log(FARTHEST / exact) * (half - exact)
    # A rounding error could lead from a whole number to the bucket below it.
    far = np.minimum(exact + (grown + 1e-6).astype(np.int64), half - 1)
    return (np.where(near < exact, near, far) + half * (distances > 0)).astype(np.int32)


@dataclasses.dataclass(frozen=True)
class VectorOverride:
    """Another sentence vector that is read from a trained encoder, in place of its own.

    CMLM §5.1 and appendix A read several vectors from one trained model.

    Attributes:
      pooling: how token outputs become the vector. Default: the encoder's own. `cls_pooler` goes
        through the pooler as the checkpoint has it, which is trained only with that pooling or
        next-sentence prediction. `mean_padded` pads to the length that was chosen for encoding;
        without a choice, to the encoder's own `padded_length`, or else to the length that longer
        texts are cut to.
      sentence_vector: `pooled`, or `projected_mean`: the mean of CMLM's projections, which a
        training with the objective cmlm has. Default: the encoder's own.
      layer: the block whose outputs count as the last ones, from 1; None: the last block. XTREME
        (Hu et al. 2020) pools a middle one.
    """

    pooling: Annotated[str, OneOf(tuple(POOLINGS))] | None = None
    sentence_vector: Annotated[str, OneOf(SENTENCE_VECTORS)] | None = None
    layer: int | None = None

    def __bool__(self) -> bool:
        return bool(self.pooling or self.sentence_vector or self.layer)

    def __str__(self) -> str:
        chosen = (self.pooling and f"pooling {self.pooling}", self.sentence_vector)
        chosen += (self.layer and f"layer {self.layer}",)
        return ", ".join(part for part in chosen if part)


OWN_VECTOR = VectorOverride()
