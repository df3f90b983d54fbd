"""Configuration of the encoder that all objectives share."""

import dataclasses

from official.modeling.hyperparams import base_config

from official_cmlm.errors import UserError

POOLINGS = ("mean", "max", "cls", "cls_pooler", "first_last")
SENTENCE_VECTORS = ("pooled", "projected_mean")
ACTIVATIONS = ("gelu", "gelu_exact", "relu")


@dataclasses.dataclass
class EncoderConfig(base_config.Config):
    """A BERT encoder, and how its outputs become one vector per sentence.

    The defaults are BERT base (Devlin et al. 2019), which CMLM §3 uses unchanged.

    Attributes:
      vocab_size: entries of the vocabulary. 0 (default) takes the size of the records' vocabulary.
      hidden_size: width of every layer and of the embedding.
      num_layers: transformer blocks.
      num_attention_heads: heads of a block; must divide `hidden_size`.
      intermediate_size: width inside the feed-forward layer, normally 4 · `hidden_size`.
      hidden_activation: activation of the feed-forward layer: `gelu` (tanh approximation, as
        BERT's TensorFlow release), `gelu_exact`, or `relu`.
      dropout_rate: dropout after each sub-layer and on the embeddings, a probability.
      attention_dropout_rate: dropout on attention weights, a probability.
      drophead_rate: probability of dropping a whole attention head, drawn for each example in
        training; the other heads are scaled up (Zhou et al. 2020). Default 0; Mirror-BERT tries 0.2
        for BERT and 0.05 for RoBERTa, with both dropouts at 0 (§4.4, footnote 12).
      layer_norm_epsilon: added to the variance in every layer normalisation. Default 1e-12, as
        BERT's release; RoBERTa's has 1e-5.
      max_position_embeddings: rows of the position table. It must cover the longest sequence
        plus the N projected sentence vectors of CMLM (256 + 15 = 271 for the paper's setting).
      position_offset: row of the position table for the first token. Default 0; RoBERTa's release
        has 2 and does not use the rows before it.
      type_vocab_size: rows of the token-type table; 0: the encoder has no token types, as
        DistilBERT (Sanh et al. 2019, §3).
      initializer_range: standard deviation of the truncated-normal initialisation.
      pooling: how token outputs become the sentence vector (CMLM §2, footnote 1 and Table 9):
        `mean` over real tokens, special ones included; `max` over real tokens; `cls`, the first;
        `cls_pooler`, the first through BERT's pooler (a dense layer with tanh), which is then
        trained; `first_last`, the mean over real tokens of the first and the last block's outputs
        (SimCSE's `avg_first_last`).
      sentence_vector: `pooled` (default), or `projected_mean`: the mean over CMLM's N projections
        of the pooled vector (CMLM §5.1, the row "proj" of Table 7).
      num_projections: N of the projections that the encoder itself carries; 0 (default) unless
        `sentence_vector` is `projected_mean`.
      normalize: scale the embedding to length 1. Default false, as the published CMLM modules;
        many sentence-transformers models have it.
    """

    vocab_size: int = 0
    hidden_size: int = 768
    num_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    hidden_activation: str = "gelu"
    dropout_rate: float = 0.1
    attention_dropout_rate: float = 0.1
    drophead_rate: float = 0.0
    layer_norm_epsilon: float = 1e-12
    max_position_embeddings: int = 512
    position_offset: int = 0
    type_vocab_size: int = 2
    initializer_range: float = 0.02
    pooling: str = "mean"
    sentence_vector: str = "pooled"
    num_projections: int = 0
    normalize: bool = False

    @property
    def max_seq_length(self) -> int:
        """Longest sequence that the position table has rows for, in tokens."""
        return self.max_position_embeddings - self.position_offset

    def check(self) -> None:
        """Raises `UserError` if fields are out of range or contradict each other."""
        for name in ("hidden_size", "num_layers", "num_attention_heads", "intermediate_size"):
            if getattr(self, name) < 1:
                raise UserError(f"encoder.{name} must be at least 1, got {getattr(self, name)}")
        if self.hidden_size % self.num_attention_heads:
            raise UserError(
                f"encoder.hidden_size ({self.hidden_size}) must be a multiple of "
                f"encoder.num_attention_heads ({self.num_attention_heads})"
            )
        if not 0 < self.layer_norm_epsilon < 1:
            raise UserError(
                f"encoder.layer_norm_epsilon must be in (0, 1), got {self.layer_norm_epsilon}"
            )
        for name in ("position_offset", "type_vocab_size", "num_projections"):
            if getattr(self, name) < 0:
                raise UserError(f"encoder.{name} must not be negative, got {getattr(self, name)}")
        if self.max_seq_length < 3:
            raise UserError(
                f"encoder.max_position_embeddings ({self.max_position_embeddings}) must be at "
                f"least 3 above encoder.position_offset ({self.position_offset})"
            )
        _one_of("encoder.pooling", self.pooling, POOLINGS)
        _one_of("encoder.sentence_vector", self.sentence_vector, SENTENCE_VECTORS)
        _one_of("encoder.hidden_activation", self.hidden_activation, ACTIVATIONS)
        for name in ("dropout_rate", "attention_dropout_rate", "drophead_rate"):
            if not 0 <= getattr(self, name) < 1:
                raise UserError(f"encoder.{name} must be in [0, 1), got {getattr(self, name)}")
        if (self.sentence_vector == "projected_mean") != (self.num_projections > 0):
            raise UserError(
                "encoder.num_projections must be above 0 exactly when encoder.sentence_vector is "
                f"projected_mean; got {self.num_projections} with {self.sentence_vector!r}"
            )


def _one_of(name: str, got: str, allowed: tuple[str, ...]) -> None:
    if got not in allowed:
        raise UserError(f"{name} must be one of {', '.join(allowed)}; got {got!r}")
