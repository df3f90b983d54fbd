"""The trained model: the encoder, the language-model head and the objectives on top of them."""

import tensorflow as tf
import tf_keras

from official_cmlm.modeling.language_model_head import build_language_model_head
from official_cmlm.modeling.sentence_encoder import INPUT_NAMES, SentenceEncoderModel
from official_cmlm.objectives import ObjectiveConfig, ObjectiveOutput, objectives


class MultiObjectiveModel(tf_keras.Model):
    """Runs every objective on its features; what two of them encode alike is encoded once.

    Attributes:
      encoder: the shared `SentenceEncoderModel`.
      head: the shared language-model head, or None if no objective needs one.
    """

    def __init__(self, encoder: SentenceEncoderModel, chosen: dict[str, ObjectiveConfig]) -> None:
        """Builds the objectives.

        Args:
          encoder: the encoder.
          chosen: settings by objective name, already checked.
        """
        super().__init__(name="multi_objective_model", autocast=False)
        self.encoder = encoder
        classes = {name: objectives()[name] for name in chosen}
        self.head = (
            build_language_model_head(encoder)
            if any(classes[name].needs_language_model_head(chosen[name]) for name in chosen)
            else None
        )
        self.objectives = {
            name: classes[name](config, encoder, self.head) for name, config in chosen.items()
        }

    def call(
        self, features: dict[str, dict], training: bool | None = None
    ) -> dict[str, ObjectiveOutput]:
        """Maps group -> features, see `build_inputs` of the task, to objective name -> output."""
        encode = _Memo(self.encoder, training)
        return {
            name: self.objectives[name](batch, encode=encode)
            for names, batch in features.items()
            for name in names.split("+")
        }

    @property
    def checkpoint_items(self) -> dict[str, tf_keras.layers.Layer]:
        """What a checkpoint names, so that others can restore it without the objectives."""
        items = {"encoder": self.encoder}
        if self.head is not None:
            items["language_model_head"] = self.head
        return items


class _Memo:
    """Calls the encoder, and gives the same answer for the same tensors.

    CMLM and retrieval both encode s1 of a pair; with dropout on, sharing that one pass is also what
    the weighted sum of their losses means.
    """

    def __init__(self, encoder: SentenceEncoderModel, training: bool | None) -> None:
        self._encoder = encoder
        self.training = training
        # The tensors are kept beside the outputs: their ids stay theirs as long as they live.
        self._known: dict[tuple[int, ...], tuple[list, dict]] = {}

    def __call__(self, inputs: dict[str, tf.Tensor], views: int = 1) -> dict[str, tf.Tensor]:
        names = [*INPUT_NAMES, *(["dense_inputs"] if "dense_inputs" in inputs else [])]
        tensors = [inputs[name] for name in names]
        key = (views, *(id(tensor) for tensor in tensors))
        if key not in self._known:
            outputs = self._encoder(dict(zip(names, tensors)), training=self.training, views=views)
            self._known[key] = (tensors, outputs)
        return self._known[key][1]
