"""Contrastive learning with two views of each sentence: SimCSE and Mirror-BERT.

Both methods train with NT-Xent: the two views of a sentence must be nearer to each other than to
other sentences. The views differ by dropout alone (SimCSE), by dropout or drophead and a masked
span of characters (Mirror-BERT §2.2; other changes in footnote 13), by repeated or deleted words
(CMLM-CSE Table 3), or not at all. Dropout and drophead are fields of the encoder. They are on in
validation too: equal views would only measure how far apart the sentences are.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Annotated

import tensorflow as tf

from official_cmlm.common.errors import UserError
from official_cmlm.common.validation import OneOf, above, at_least, between
from official_cmlm.configs.data import DataConfig
from official_cmlm.configs.encoder import EncoderConfig
from official_cmlm.inputs.mirrored import AUGMENTATIONS, Mirrored
from official_cmlm.inputs.views import RecordFacts
from official_cmlm.losses.alignment_uniformity import alignment_and_uniformity
from official_cmlm.losses.blocks import Reduction, sum_at_once, sum_in_blocks
from official_cmlm.losses.multi_similarity import multi_similarity
from official_cmlm.losses.nt_xent import NEGATIVES, nt_xent
from official_cmlm.losses.replicas import gather
from official_cmlm.modeling.bert import new_dense
from official_cmlm.modeling.sentence_encoder import SentenceEncoderModel
from official_cmlm.objectives.base import (
    HIGHER,
    LOWER,
    Encode,
    Objective,
    ObjectiveOutput,
    Vectors,
    register,
)
from official_cmlm.objectives.in_batch import InBatchConfig, gather_texts
from official_cmlm.objectives.projection_heads import BatchNormMlp

PROJECTION_HEADS = ("none", "mlp", "batch_norm_mlp")
LOSSES = ("nt_xent", "multi_similarity")
TEMPERATURE = at_least(
    1e-4, "smaller values make gradients vanish or explode; the papers have 0.005 to 0.2"
)
# Share of the tokens that `token_mask` masks, of the words that `whole_word_mask` masks, or that
# `word_reordering` permutes: BERT's masking rate (Devlin et al. 2019, §3.1). Mirror-BERT, whose
# footnote 13 names these changes, gives none.
AUGMENTATION_RATE = 0.15
CONTRASTIVE_METRICS = {"contrastive_loss": LOWER, "recall_at_1": HIGHER}
_METRICS = CONTRASTIVE_METRICS | dict.fromkeys(
    ("alignment", "uniformity", "alignment_uniformity"), LOWER
)


@dataclasses.dataclass
class ContrastiveConfig(InBatchConfig):
    """Settings of `contrastive`; the defaults are SimCSE's for BERT base.

    Attributes:
      loss: `nt_xent` (default); `multi_similarity`, with mined pairs (Mirror-BERT footnote 2): it
        has no temperature, always compares both views in both directions, and takes the four fields
        named below.
      temperature: divisor of the cosines, at least 1e-4. Default 0.05 (Gao et al. 2021);
        Mirror-BERT has 0.04 for sentences and 0.2 for words (§3).
      negatives: `other_view`, the other sentences in the view that is not the anchor's (SimCSE);
        `both_views`, the other sentences in both views (Mirror-BERT §2.3).
      bidirectional: whether the second view must find the first too (Mirror-BERT's code). Default
        false: only the first view finds the second (SimCSE's code).
      positive_in_denominator: whether the softmax includes the positive. Default true, as all
        reference code; false is what Mirror-BERT prints as Eq. 1.
      multi_similarity_alpha, multi_similarity_beta, multi_similarity_base: α, β and λ (Wang et al.
        2019, Eq. 16). Defaults 1, 60 and 0.5, as in the code of Liu et al. 2021 (SapBERT), whom
        Mirror-BERT's footnote 2 cites.
      mining_margin: margin of the hard triplets of Liu et al. 2021 (SapBERT): a negative further
        from the anchor than the positive, by more than this, is not mined. Default 0.2, as in their
        code.
      augmentation: change of the second view: `none`, `span_mask`, `token_mask`,
        `whole_word_mask`, `word_reordering`, `word_repetition` or `word_deletion`; see
        `inputs.mirrored`.
      span_characters: k raw characters that `span_mask` replaces by a mask token. Default 5; 2 for
        biomedical names (Mirror-BERT §3).
      span_min_characters: shorter texts are not masked. Default 30, as in the reference code.
      repetition_rate: share of the tokens that `word_repetition` doubles. Default 0.32 (CMLM-CSE
        §4.3.2, Table 3).
      controlled_dropout: both views draw the same dropout and drophead masks (Mirror-BERT Table 8).
      projection_head: `mlp`, a dense layer with tanh on the vector, in training only and not
        exported (SimCSE's `mlp_only_train`); `batch_norm_mlp`, two dense layers with batch
        normalisation (DiffCSE's `batchnorm`), whose statistics are those of the global batch, so
        that `task.chunk_size` is refused; `none`, which `matryoshka_dims` need, as a head mixes the
        components.
    """

    loss: Annotated[str, OneOf(LOSSES)] = "nt_xent"
    temperature: Annotated[float, TEMPERATURE] = 0.05
    negatives: Annotated[str, OneOf(NEGATIVES)] = "other_view"
    bidirectional: bool = False
    positive_in_denominator: bool = True
    multi_similarity_alpha: Annotated[float, above(0)] = 1.0
    multi_similarity_beta: Annotated[float, above(0)] = 60.0
    multi_similarity_base: Annotated[float, between(-1, 1)] = 0.5
    mining_margin: Annotated[float, between(0, 2)] = 0.2
    augmentation: Annotated[str, OneOf(AUGMENTATIONS)] = "none"
    span_characters: Annotated[int, at_least(1, "augmentation: none masks nothing")] = 5
    span_min_characters: Annotated[int, at_least(0)] = 30
    repetition_rate: Annotated[float, between(0, 1, above_low=True)] = 0.32
    controlled_dropout: bool = False
    projection_head: Annotated[str, OneOf(PROJECTION_HEADS)] = "mlp"

    def check(self, encoder_config: EncoderConfig, where: str) -> None:
        super().check(encoder_config, where)
        if self.matryoshka_dims and self.projection_head != "none":
            raise UserError(
                f"{where}.matryoshka_dims would cut vectors after the projection head, which is "
                f"not exported; set {where}.projection_head to none"
            )

    def mixes_examples(self) -> bool:
        return self.projection_head == "batch_norm_mlp"

    def check_records(self, data: DataConfig, facts: RecordFacts, where: str) -> None:
        if self.augmentation == "span_mask" and data.segment != "sentence":
            raise UserError(
                f"{where}.segment is {data.segment}; augmentation: span_mask takes sentences"
            )

    def view(self, data: DataConfig, facts: RecordFacts) -> Mirrored:
        return Mirrored(
            data.segment,
            data.seq_length,
            self.augmentation,
            self.span_characters,
            self.span_min_characters,
            self.repetition_rate,
            AUGMENTATION_RATE,
            facts.vocabulary,
        )


@register("contrastive")
class Contrastive(Objective):
    """NT-Xent over two views of each segment; negatives from the whole global batch."""

    config_class = ContrastiveConfig
    metric_directions = _METRICS
    in_batch_metrics = frozenset(_METRICS) - {"alignment"}

    def add_layers(self, encoder: SentenceEncoderModel) -> None:
        self.projection_head = None
        if self.config.projection_head == "mlp":
            size = encoder.config.embedding_size
            self.projection_head = new_dense(
                encoder.config, size, size, "projection_head", activation="tanh"
            )
        elif self.config.projection_head == "batch_norm_mlp":
            self.projection_head = BatchNormMlp(encoder.config)

    def vectors(self, features: dict, encode: Encode) -> Vectors:
        """Returns both views' vectors as compared, and as exported.

        Neither is normalised, even if the exported vector is: the comparison is by cosine, and the
        projection head, like other networks, needs components of about the size of a token's.
        """
        # One pass encodes both; each view draws its own dropout masks unless they are controlled.
        vectors = encode(
            [features["first"], features["second"]],
            "both_views",
            views=2,
            shared_masks=self.config.controlled_dropout,
            always_dropout=True,
        )["embedding"]
        sentence, second_sentence = tf.split(vectors, 2, axis=0)
        if self.projection_head is not None:
            # A dense layer does the same in training and validation, and has no such argument.
            mode = {"training": encode.training} if self.config.mixes_examples() else {}
            vectors = self.projection_head(vectors, **mode)
        first, second = tf.split(vectors, 2, axis=0)
        exported = {"sentence": sentence, "second_sentence": second_sentence}
        return {
            "first": first,
            "second": second,
            **exported,
            **self.config.texts(features["first"]),
        }

    def compare(self, vectors: Vectors) -> ObjectiveOutput:
        config = self.config
        if config.loss == "multi_similarity":
            loss = functools.partial(
                multi_similarity,
                alpha=config.multi_similarity_alpha,
                beta=config.multi_similarity_beta,
                base=config.multi_similarity_base,
                mining_margin=config.mining_margin,
            )
            bidirectional = True
        else:
            loss = functools.partial(
                nt_xent,
                temperature=config.temperature,
                negatives=config.negatives,
                positive_in_denominator=config.positive_in_denominator,
            )
            bidirectional = config.bidirectional
        both = vectors["first"], vectors["second"], vectors.get("texts")
        reduction = config.reduction(self.static_shapes)
        output = contrastive_output(*both, loss, bidirectional, reduction)
        exported = vectors["sentence"], vectors["second_sentence"]
        quality = alignment_and_uniformity(
            *exported, sum_at_once if self.static_shapes else sum_in_blocks
        )
        return dataclasses.replace(output, metrics=output.metrics | quality)


def contrastive_output(
    first: tf.Tensor,
    second: tf.Tensor,
    texts: tf.Tensor | None,
    loss: Callable[..., tuple[tf.Tensor, tf.Tensor]],
    bidirectional: bool,
    reduction: Reduction,
) -> ObjectiveOutput:
    """Computes the mean loss over one direction or both, and recall@1 of the first direction.

    Args:
      first, second: float `[batch, dim]`, the two views in the same order.
      texts: see `InBatchConfig.texts`.
      loss: `nt_xent` or `multi_similarity` with its settings.
      bidirectional: whether the second view's rows are anchors too.
      reduction: sums the losses over the anchors.
    """
    (all_first, offset), (all_second, _) = gather(first), gather(second)
    all_texts = gather_texts(texts)

    def losses(
        part: tf.Tensor, start: tf.Tensor, own: tf.Tensor, other: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        return loss(part, own, other, offset + start, texts=all_texts)

    total, hits = reduction(losses, first, (all_first, all_second))
    if bidirectional:
        total = (total + reduction(losses, second, (all_second, all_first))[0]) / 2
    count = tf.cast(tf.shape(first)[0], tf.float32)
    return ObjectiveOutput(
        loss=total / count,
        metrics={"contrastive_loss": (total, count), "recall_at_1": (hits, count)},
    )
