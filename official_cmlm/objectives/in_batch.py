"""What all losses share whose negatives are the other examples of the batch."""

import dataclasses
from typing import Annotated

import tensorflow as tf

from official_cmlm.inputs.hashing import row_identity
from official_cmlm.limits import between
from official_cmlm.losses.replicas import gather
from official_cmlm.objectives.base import ObjectiveConfig


@dataclasses.dataclass
class InBatchConfig(ObjectiveConfig):
    """Settings of a loss with in-batch negatives.

    Attributes:
      ignore_equal_texts: texts of the batch that equal the anchor's or its positive's are no
        negatives. Default false, as in the papers.
      max_negative_similarity: what has a larger cosine with the anchor is no negative, as it may be
        a paraphrase or a translation. Default null: no limit, as in the papers.
    """

    ignore_equal_texts: bool = False
    max_negative_similarity: Annotated[float, between(-1, 1)] | None = None

    def min_batch_size(self) -> int:
        return 2

    def texts(self, sequence: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """`{"texts": …}`, float32 `[batch, 2]`, for `Objective.vectors`; empty if not compared."""
        if not self.ignore_equal_texts:
            return {}
        return {"texts": row_identity(sequence["input_word_ids"], sequence["input_mask"])}


def gather_texts(texts: tf.Tensor | None) -> tf.Tensor | None:
    """All replicas' `texts`, float32 `[all, 2]`."""
    return None if texts is None else tf.stop_gradient(gather(texts)[0])
