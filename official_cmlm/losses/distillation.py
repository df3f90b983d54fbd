"""The losses of a student whose sentence vectors follow a frozen teacher's.

Reimers and Gurevych 2020, "Making Monolingual Sentence Embeddings Multilingual using Knowledge
Distillation", Eq. 1, minimise the squared distance of both vectors, which is 2 · (1 − cosine) for
vectors of length 1. By a second loss the student's similarities within a batch follow the
teacher's: Tung and Mori 2019, "Similarity-Preserving Knowledge Distillation", Eq. 4, with cosines.
"""

import tensorflow as tf

from official_cmlm.losses.blocks import Reduction
from official_cmlm.losses.replicas import gather


def teacher_distance(student: tf.Tensor, teacher: tf.Tensor) -> tf.Tensor:
    """Returns 1 − cosine of the vectors of each text, float32 `[batch]`; both `[batch, size]`."""
    return 1.0 - tf.reduce_sum(_unit(student) * _unit(teacher), axis=-1)


def similarity_error(student: tf.Tensor, teacher: tf.Tensor, reduction: Reduction) -> tf.Tensor:
    """Sums over this replica's texts the mean squared error of their similarities to all texts.

    Args:
      student: float `[batch, any size]`, this replica's share of the global batch.
      teacher: float `[batch, size]`.
      reduction: sums over the texts.

    Returns:
      float32 scalar: the sum over i of the mean over all j of (s_i · s_j − t_i · t_j)².
    """
    student, teacher = _unit(student), tf.stop_gradient(_unit(teacher))
    all_students, all_teachers = gather(student)[0], gather(teacher)[0]
    size = student.shape[-1]

    def errors(
        part: tf.Tensor, start: tf.Tensor, students: tf.Tensor, teachers: tf.Tensor
    ) -> tuple:
        del start
        of_student = tf.matmul(part[:, :size], students, transpose_b=True)
        of_teacher = tf.matmul(part[:, size:], teachers, transpose_b=True)
        differences = tf.reduce_mean(tf.math.squared_difference(of_student, of_teacher), axis=1)
        return differences, tf.zeros_like(differences)

    both = tf.concat([student, teacher], axis=1)
    return reduction(errors, both, (all_students, all_teachers))[0]


def _unit(vectors: tf.Tensor) -> tf.Tensor:
    return tf.math.l2_normalize(tf.cast(vectors, tf.float32), axis=-1)
