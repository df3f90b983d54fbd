"""`matryoshka_dims` of every objective that compares vectors: their first components count too."""

import numpy as np
import pytest

from official_cmlm.objectives.in_batch import InBatchConfig
from tests.modeling.helpers import randomize
from tests.objectives.helpers import Spy, value
from tests.training.all_objectives import SETTINGS, batch_of, task_of

COMPARING = [name for name, config in SETTINGS.items() if isinstance(config, InBatchConfig)]
# The head is not exported, so a training for its vectors' first components is refused.
_WITHOUT_HEAD = {"projection_head": "none"}


def _task(folders, name, **settings):
    head = _WITHOUT_HEAD if hasattr(SETTINGS[name], "projection_head") else {}
    return task_of(folders, name, **head, **settings)


def _compare(task, name, weights=None):
    """Returns the objective, its vectors of a batch, and the loss that compares them."""
    model = randomize(task.build_model())
    if weights is not None:
        model.set_weights(weights)
    objective = model.objectives[name]
    (batch,) = batch_of(task, name).values()
    return model, objective, objective.vectors(batch, Spy(model.encoder))


@pytest.mark.parametrize("name", COMPARING)
def test_loss_is_the_sum_over_sizes(folders, name):
    """As a training without the field computes it for vectors that were cut before."""
    settings = {"ignore_equal_texts": True}
    plain = _task(folders, name, **settings)
    model, objective, vectors = _compare(plain, name)
    dims, weights = [4, 10], [0.5, 2.0]
    nested = _task(folders, name, matryoshka_dims=dims, matryoshka_weights=weights, **settings)
    output = _compare(nested, name, model.get_weights())[1].compare(vectors)

    def cut(size):
        return {k: v if k.endswith("texts") else v[:, :size] for k, v in vectors.items()}

    whole = objective.compare(vectors)
    parts = [float(objective.compare(cut(size)).loss) for size in dims]
    assert len({*parts, float(whole.loss)}) == 3
    expected = float(whole.loss) + np.dot(weights, parts)
    assert float(output.loss) == pytest.approx(expected, rel=1e-5)
    assert value(output, "recall_at_1") == value(whole, "recall_at_1")
