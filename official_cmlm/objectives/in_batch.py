"""Settings and helpers of losses whose negatives are the other examples of the batch."""

import dataclasses
import itertools
from typing import Annotated, Any

import tensorflow as tf

from official_cmlm.common.errors import UserError
from official_cmlm.common.validation import above, at_least
from official_cmlm.configs.encoder import EncoderConfig
from official_cmlm.inputs.hashing import row_identity
from official_cmlm.losses.blocks import Reduction, sum_at_once, sum_in_blocks
from official_cmlm.losses.matryoshka import with_shorter_vectors
from official_cmlm.losses.replicas import gather
from official_cmlm.objectives.base import ObjectiveConfig


@dataclasses.dataclass
class InBatchConfig(ObjectiveConfig):
    """Settings of a loss with in-batch negatives.

    Attributes:
      ignore_equal_texts: whether texts of the batch that equal the anchor's or its positive's are
        left out of the negatives, for records in which texts repeat, e.g. several answers to one
        question. Default false, as in the papers.
      matryoshka_dims: numbers of first components of the sentence vector that shall serve as
        vectors of their own, ascending, at most the encoder's hidden size, e.g. [64, 128]. The loss
        is then the sum of the same loss over them and over the whole vector (Kusupati et al. 2022,
        Eq. 1). The whole vector always counts, listed or not, as it is the one that is exported: in
        sentence-transformers, where it must be listed, a list without it leaves the other
        components untrained. `recall_at_1` is measured with whole vectors. Default empty: whole
        vectors only.
      matryoshka_weights: weight of each of `matryoshka_dims`; a whole vector that is not listed has
        1. Default empty: 1 each (Kusupati et al. 2022, §3).
    """

    ignore_equal_texts: bool = False
    matryoshka_dims: Annotated[list[int], at_least(1)] = dataclasses.field(default_factory=list)
    matryoshka_weights: Annotated[list[float], above(0)] = dataclasses.field(default_factory=list)

    def check(self, encoder_config: EncoderConfig, where: str) -> None:
        super().check(encoder_config, where)
        dims, weights = self.matryoshka_dims, self.matryoshka_weights
        if any(low >= high for low, high in itertools.pairwise(dims)):
            raise UserError(
                f"{where}.matryoshka_dims is {dims}; name each number once, in ascending order"
            )
        check_dims(dims, encoder_config, where)
        if weights and len(weights) != len(dims):
            raise UserError(
                f"{where}.matryoshka_weights has {len(weights)} numbers for {len(dims)} "
                "matryoshka_dims; give one for each, or none"
            )

    def reduction(self, static_shapes: bool) -> Reduction:
        """Returns the function that sums the losses of a comparison over the anchors."""
        reduction = sum_at_once if static_shapes else sum_in_blocks
        if not self.matryoshka_dims:
            return reduction
        weights = self.matryoshka_weights or [1.0] * len(self.matryoshka_dims)
        return with_shorter_vectors(reduction, dict(zip(self.matryoshka_dims, weights)))

    def min_batch_size(self) -> int:
        return 2

    def method_data(self) -> dict[str, Any]:
        # In buckets an anchor's negatives would all be of its own length.
        return {"bucket_boundaries": []}

    def texts(self, sequence: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Returns `{"texts": …}`, float32 `[batch, 2]`, for `vectors`; empty if not compared."""
        if not self.ignore_equal_texts:
            return {}
        return {"texts": row_identity(sequence["input_word_ids"], sequence["input_mask"])}


def check_dims(dims: list[int], encoder_config: EncoderConfig, where: str) -> None:
    """Raises `UserError` if one of `matryoshka_dims` is larger than the sentence vector."""
    size = encoder_config.embedding_size
    if max(dims, default=0) > size:
        raise UserError(
            f"{where}.matryoshka_dims is {dims}, but the sentence vector has {size} components "
            "(task.encoder.hidden_size); name numbers up to that"
        )


def gather_texts(texts: tf.Tensor | None) -> tf.Tensor | None:
    """Returns all replicas' `texts`, float32 `[all, 2]`."""
    return None if texts is None else tf.stop_gradient(gather(texts)[0])
