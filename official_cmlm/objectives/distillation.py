"""Distillation: the sentence vector follows that of a frozen teacher, stored in the records.

`data_prep.add_vectors` computes the teacher's vectors of all sentences once, so the teacher may
have any vocabulary and architecture. On pairs of translations the vector of the first text can be
the target of both, which makes a multilingual student of a teacher of one language (Reimers and
Gurevych 2020, §2).
"""

import dataclasses
from typing import Annotated, ClassVar

import tensorflow as tf
import tf_keras

from official_cmlm.common.errors import UserError
from official_cmlm.common.validation import OneOf, above, at_least
from official_cmlm.configs.data import DataConfig
from official_cmlm.configs.encoder import EncoderConfig
from official_cmlm.inputs.pair_views import text_view
from official_cmlm.inputs.views import RecordFacts, TaughtSentences, View
from official_cmlm.losses.blocks import sum_at_once, sum_in_blocks
from official_cmlm.losses.distillation import (
    neighbour_divergence,
    similarity_error,
    teacher_distance,
)
from official_cmlm.modeling.sentence_encoder import SentenceEncoderModel
from official_cmlm.objectives.base import (
    HIGHER,
    LOWER,
    Encode,
    Objective,
    ObjectiveConfig,
    ObjectiveOutput,
    Vectors,
    register,
)
from official_cmlm.objectives.in_batch import check_dims

_METRICS = {"distillation_loss": LOWER, "teacher_cosine": HIGHER, "similarity_error": LOWER}
TARGETS = ("own", "first", "translation")


@dataclasses.dataclass
class DistillationConfig(ObjectiveConfig):
    """Settings of `distillation`.

    Attributes:
      cosine_weight: factor of 1 − cosine to the teacher's vector (Reimers and Gurevych 2020, Eq. 1,
        for vectors of length 1). Default 1.
      similarity_weight: factor of the squared error of the batch's similarities (Tung and Mori
        2019, Eq. 4). Default 4, with which both terms have about the same size at the start of a
        training.
      neighbour_weight: factor of the divergence of each text's nearest texts in the batch from the
        teacher's (Abbasi Koohpayegani et al. 2020, §3). Default 0: none.
      neighbour_temperature: what similarities are divided by there. Default 0.05.
      matryoshka_dims: numbers of first components of the student's vector whose similarities follow
        the teacher's too, so that they serve as vectors of their own (Kusupati et al. 2022).
        Default empty: whole vectors only.
      teacher_size: components of the teacher's vectors if the student's vectors have another
        number: a linear layer maps the student's vectors to this size, in training only. 0
        (default): both have the same number.
    """

    cosine_weight: Annotated[float, at_least(0)] = 1.0
    similarity_weight: Annotated[float, at_least(0)] = 4.0
    neighbour_weight: Annotated[float, at_least(0)] = 0.0
    neighbour_temperature: Annotated[float, above(0)] = 0.05
    matryoshka_dims: Annotated[list[int], at_least(1)] = dataclasses.field(default_factory=list)
    teacher_size: Annotated[int, at_least(0)] = 0

    def check(self, encoder_config: EncoderConfig, where: str) -> None:
        super().check(encoder_config, where)
        if not (self.cosine_weight or self.similarity_weight or self.neighbour_weight):
            raise UserError(
                f"{where}: cosine_weight, similarity_weight and neighbour_weight are 0; set one of "
                "them above 0"
            )
        check_dims(self.matryoshka_dims, encoder_config, where)

    def check_records(self, data: DataConfig, facts: RecordFacts, where: str) -> None:
        where = data.setting(where)
        if not facts.vector_size:
            raise UserError(
                f"{where}: the records hold no teacher's vectors; cmlm add-vectors adds them"
            )
        if self.teacher_size not in (0, facts.vector_size):
            raise UserError(
                f"{where}: the teacher's vectors have {facts.vector_size} components, "
                f"task.objectives' teacher_size is {self.teacher_size}; set it to that"
            )

    def view(self, data: DataConfig, facts: RecordFacts) -> View:
        return TaughtSentences(data.seq_length, facts.special, facts.vector_size)


@register("distillation")
class Distillation(Objective):
    """The loss that brings the vectors of sentences, and their similarities, to the teacher's."""

    config_class = DistillationConfig
    metric_directions = _METRICS
    in_batch_metrics = frozenset({"distillation_loss", "similarity_error"})

    def add_layers(self, encoder: SentenceEncoderModel) -> None:
        self.to_teacher = None
        size = encoder.config.embedding_size
        if self.config.teacher_size not in (0, size):
            self.to_teacher = tf_keras.layers.Dense(
                self.config.teacher_size, use_bias=False, name="to_teacher"
            )
            self.to_teacher.build([None, size])

    def vectors(self, features: dict, encode: Encode) -> Vectors:
        return self._collect_vectors(features, encode, {"segment": "teacher_vector"})

    def _collect_vectors(self, features: dict, encode: Encode, targets: dict[str, str]) -> Vectors:
        """Returns the student's, the mapped and the teacher's vectors of each sequence.

        `targets`: sequence -> the feature with the teacher's vectors for it.
        """
        vectors = {}
        for sequence, target in targets.items():
            student = encode(features[sequence], sequence)["default"]
            mapped = student if self.to_teacher is None else self.to_teacher(student)
            teacher = tf.cast(features[target], tf.float32)
            if mapped.shape[-1] != teacher.shape[-1]:
                raise UserError(
                    f"the encoder's vectors have {mapped.shape[-1]} components, the teacher's "
                    f"{teacher.shape[-1]}; set the objective's teacher_size to {teacher.shape[-1]}"
                )
            vectors[f"student/{sequence}"] = student
            vectors[f"mapped/{sequence}"] = mapped
            vectors[f"teacher/{sequence}"] = teacher
        return vectors

    def compare(self, vectors: Vectors) -> ObjectiveOutput:
        config = self.config
        student, mapped, teacher = (
            tf.concat([each for name, each in vectors.items() if name.startswith(kind)], axis=0)
            for kind in ("student", "mapped", "teacher")
        )
        reduction = sum_at_once if self.static_shapes else sum_in_blocks
        count = tf.cast(tf.shape(student)[0], tf.float32)
        distance = tf.reduce_sum(teacher_distance(mapped, teacher))
        parts = [student, *(student[:, :size] for size in config.matryoshka_dims)]
        errors = [similarity_error(part, teacher, reduction) for part in parts]
        total = config.cosine_weight * distance
        total += config.similarity_weight * tf.add_n(errors) / len(errors)
        if config.neighbour_weight:
            total += config.neighbour_weight * neighbour_divergence(
                student, teacher, config.neighbour_temperature, reduction
            )
        return ObjectiveOutput(
            loss=total / count,
            metrics={
                "distillation_loss": (total, count),
                "teacher_cosine": (count - distance, count),
                "similarity_error": (errors[0], count),
            },
        )


@dataclasses.dataclass
class PairDistillationConfig(DistillationConfig):
    """Settings of `pair_distillation`, besides those of `distillation`.

    Attributes:
      targets: `own` (default): each text follows its own vector; `first`: both texts follow the
        vector of the first, as translations do (Reimers and Gurevych 2020, Eq. 1);
        `translation`: the second text follows the vector of the first, which is not encoded. A
        first text with many translations is better taught once, by `distillation`.
    """

    targets: Annotated[str, OneOf(TARGETS)] = "own"

    record_kind: ClassVar[str] = "pairs"

    def view(self, data: DataConfig, facts: RecordFacts) -> View:
        # It is the view of `bitext_retrieval` too.
        return text_view(data.seq_length, facts)


@register("pair_distillation")
class PairDistillation(Distillation):
    """The loss that brings the vectors of the texts of each pair to the teacher's."""

    config_class = PairDistillationConfig

    def vectors(self, features: dict, encode: Encode) -> Vectors:
        second = "second_vector" if self.config.targets == "own" else "first_vector"
        targets = {"second": second}
        if self.config.targets != "translation":
            targets = {"first": "first_vector", **targets}
        return self._collect_vectors(features, encode, targets)
