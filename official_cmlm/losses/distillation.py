"""The losses of a student whose sentence vectors follow a frozen teacher's.

Reimers and Gurevych 2020, "Making Monolingual Sentence Embeddings Multilingual using Knowledge
Distillation", Eq. 1, minimise the squared distance of both vectors, which is 2 · (1 − cosine) for
vectors of length 1. By a second loss the student's similarities within a batch follow the
teacher's: Tung and Mori 2019, "Similarity-Preserving Knowledge Distillation", Eq. 4, with cosines.
By a third loss each text's nearest texts do.
"""

from collections.abc import Callable

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

    def compare(of_student: tf.Tensor, of_teacher: tf.Tensor, own: tf.Tensor) -> tf.Tensor:
        del own
        return tf.reduce_mean(tf.math.squared_difference(of_student, of_teacher), axis=1)

    return _sum_over_texts(student, teacher, reduction, compare)


def neighbour_divergence(
    student: tf.Tensor, teacher: tf.Tensor, temperature: float, reduction: Reduction
) -> tf.Tensor:
    """Sums over this replica's texts how far their neighbours are from the teacher's.

    The neighbours of a text are the other texts, each by the softmax of similarity / temperature
    (Abbasi Koohpayegani et al. 2020, "CompRess: Self-Supervised Learning by Compressing
    Representations", §3): near texts count more than in `similarity_error`.

    Args:
      student, teacher, reduction: see `similarity_error`.
      temperature: what similarities are divided by.

    Returns:
      float32 scalar: the sum over i of the Kullback-Leibler divergence of student from teacher.
    """

    def compare(of_student: tf.Tensor, of_teacher: tf.Tensor, own: tf.Tensor) -> tf.Tensor:
        itself = 1e9 * tf.one_hot(own, tf.shape(of_student)[1])
        of_student, of_teacher = (
            tf.nn.log_softmax(each / temperature - itself) for each in (of_student, of_teacher)
        )
        return tf.reduce_sum(tf.exp(of_teacher) * (of_teacher - of_student), axis=1)

    return _sum_over_texts(student, teacher, reduction, compare)


def _sum_over_texts(
    student: tf.Tensor,
    teacher: tf.Tensor,
    reduction: Reduction,
    compare: Callable[[tf.Tensor, tf.Tensor, tf.Tensor], tf.Tensor],
) -> tf.Tensor:
    """Sums what `compare` returns for texts, `[rows]`.

    `compare` gets the student's and the teacher's similarities of these texts to all, `[rows, all]`
    each, and the places of the texts among all, int32 `[rows]`.
    """
    student, teacher = _unit(student), tf.stop_gradient(_unit(teacher))
    (all_students, first), all_teachers = gather(student), gather(teacher)[0]
    size = student.shape[-1]

    def errors(
        part: tf.Tensor, start: tf.Tensor, students: tf.Tensor, teachers: tf.Tensor
    ) -> tuple:
        values = compare(
            tf.matmul(part[:, :size], students, transpose_b=True),
            tf.matmul(part[:, size:], teachers, transpose_b=True),
            first + start + tf.range(tf.shape(part)[0]),
        )
        return values, tf.zeros_like(values)

    both = tf.concat([student, teacher], axis=1)
    return reduction(errors, both, (all_students, all_teachers))[0]


def _unit(vectors: tf.Tensor) -> tf.Tensor:
    return tf.math.l2_normalize(tf.cast(vectors, tf.float32), axis=-1)
