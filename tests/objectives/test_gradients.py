"""Every trainable variable learns from one batch, of every objective; frozen copies do not."""

import numpy as np
import pytest
import tensorflow as tf

from tests.modeling.helpers import randomize
from tests.objectives.helpers import train
from tests.training.all_objectives import SETTINGS, batch_of, task_of

# Other variables than the default settings have; predictions alone, which reach the encoder through
# its vector.
MORE = {
    "cmlm_cse_words": ("cmlm_cse", {"contrastive_weight": 0.0}),
    "diff_cse_words": ("diff_cse", {"contrastive_weight": 0.0}),
    "cmlm_skip": ("cmlm", {"architecture": "skip"}),
    "quick_thought_runs": ("quick_thought", {"batches": "runs", "margin": 0.0}),
    "diff_cse_reference": ("diff_cse", {"detection": "reference"}),
    "diff_cse_whole": ("diff_cse", {"discriminator": "whole", "projection_head": "batch_norm_mlp"}),
}


@pytest.mark.parametrize("case", [*SETTINGS, *MORE])
def test_every_variable_learns(folders, case):
    """All but the bias of attention keys, which adds the same to all scores of a query.

    DiffCSE's generator is a copy of the model's head, which then does not learn.
    """
    name, settings = MORE.get(case, (case, {}))
    task = task_of(folders, name, **settings)
    model, features = randomize(task.build_model()), batch_of(task, name)
    task.initialize(model)
    with tf.GradientTape() as tape:
        loss = model(features)[name].loss
    variables = model.trainable_variables
    for variable, gradient in zip(variables, tape.gradient(loss, variables), strict=True):
        if name == "diff_cse" and "language_model_head" in variable.name:
            assert gradient is None
            continue
        assert gradient is not None, variable.name
        learns = np.abs(tf.convert_to_tensor(gradient)).max() > 1e-6
        assert learns != variable.name.endswith("self_attention/key/bias:0"), variable.name


@pytest.mark.parametrize("name", ["cmlm_cse", "diff_cse"])
def test_frozen_copies_stay_what_the_training_started_from(folders, name):
    """After steps of AdamW with weight decay, in which the encoder learns."""
    task, started = task_of(folders, name), {}

    def start(model):
        randomize(model)
        started.update({weight.name: weight.numpy() for weight in model.encoder.weights})

    model, losses = train(task, 3, batch_of(task, name), start)
    assert np.isfinite(losses).all()
    moved = [w.name for w in model.encoder.weights if not np.array_equal(w, started[w.name])]
    assert any("layer_0" in n for n in moved) and any("word_embeddings" in n for n in moved)
    objective = model.objectives[name]
    copies = [objective.auxiliary.extractor]
    copies += [objective.generator.bert] if name == "diff_cse" else []
    for weight in (weight for copy in copies for weight in copy.weights):
        tail = weight.name[weight.name.rindex("bert/") :]
        (before,) = (value for full_name, value in started.items() if full_name.endswith(tail))
        np.testing.assert_array_equal(weight, before, err_msg=tail)
