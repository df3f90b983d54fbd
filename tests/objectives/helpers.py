"""Helpers of the tests of single objectives: tasks of one objective, batches, refusals, steps."""

import re

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from official_cmlm.common.errors import UserError
from official_cmlm.training.task import SentenceEncoderTask
from tests.modeling.helpers import NUM_HEADS, oracle_encoder, oracle_head, randomize
from tests.oracles import cmlm_numpy
from tests.training.all_objectives import batch_of
from tests.training.helpers import optimizer_config, task_config


def make_task(folder, name, config, encoder=None, **overrides):
    """Returns a task of one objective over the records."""
    config = task_config(folder, {name: config}, encoder, **overrides)
    return SentenceEncoderTask(config)


def make_batch(task, count=8, start=0):
    """Returns examples of the task's records as a batch for its only objective.

    The features are those of `build_inputs`, without the seconds that a pipeline takes to start.
    """
    (batch,) = batch_of(task, next(iter(task.chosen)), count, start).values()
    return batch


def random_model(task, seed=0):
    """Returns the task's model with random weights, biases and all."""
    return randomize(task.build_model(), seed)


def embed(model, features):
    """Returns the exported sentence vectors of one sequence's features."""
    return model.encoder(features)["default"].numpy()


def value(output, name):
    """Returns a metric of one output: sum over weight."""
    total, weight = output.metrics[name]
    return float(total) / float(weight)


def refuses(build, *parts):
    """Asserts that `build()` raises a one-line `UserError` that holds all of `parts`."""
    with pytest.raises(UserError) as caught:
        build()
    message = str(caught.value)
    assert "\n" not in message
    for part in parts:
        # Numbers and names as whole words: 51 is not in 512.
        assert re.search(rf"(?<!\w){re.escape(str(part))}(?!\w)", message), (part, message)


def train(task, steps, batch=None, start=None, seed=7):
    """Trains a fresh model with AdamW.

    Args:
      task: of one objective or several.
      steps: optimizer steps.
      batch: features by objective for every step; by default each step has its own.
      start: called with the model before anything is copied from it; by default nothing.
      seed: of initial weights and dropout.

    Returns:
      The model, and the loss of every step.
    """
    tf_keras.utils.set_random_seed(seed)
    model = task.build_model()
    if start is not None:
        start(model)
    task.initialize(model)
    # Weight decay on everything, so that what is not trained would move all the same.
    optimizer = task.create_optimizer(optimizer_config(weight_decay_rate=0.1))
    # The optimizers create this lazily; a step function must not be the first to do so.
    _ = optimizer.iterations

    def step(batch):
        # Not traced: that takes longer than some steps.
        return task.train_step(batch, model, optimizer)[task.loss]

    if batch is None:
        batches = task.build_inputs(task.task_config.train_data).take(steps)
    else:
        batches = [batch] * steps
    return model, [float(step(features)) for features in batches]


def compute_masked_tokens(model, batches, sequences, activation=cmlm_numpy.gelu_tanh):
    """Computes the mean loss per masked token and the share of right ones from given outputs.

    Args:
      model: whose language-model head and word embeddings predict.
      batches: features that were masked, a list.
      sequences: for each of them `[batch, seq, hidden]`.
      activation: of the head.

    Returns:
      Loss, share, and number of masked tokens.
    """
    head, table = oracle_head(model.head), model.encoder.bert.get_embedding_table().numpy()
    log_probs, ids = [], []
    for masked, sequence in zip(batches, sequences):
        slots = (masked[f"masked_lm_{n}"].numpy() for n in ("positions", "ids", "weights"))
        for row, *example in zip(sequence, *slots):
            for position, word, weight in zip(*example):
                if weight > 0:
                    hidden = np.asarray(row)[position]
                    log_probs.append(
                        cmlm_numpy.masked_lm_log_probs(hidden, head, table, activation)
                    )
                    ids.append(word)
    loss = cmlm_numpy.masked_lm_loss(log_probs, ids, [1.0] * len(ids))
    right = [int(row.argmax()) == word for row, word in zip(log_probs, ids)]
    return loss, sum(right) / len(right), len(ids)


def encode_by_oracle(model, masked, activation=cmlm_numpy.gelu_tanh):
    """Encodes masked features in NumPy: `[seq, hidden]` for each row."""
    weights = oracle_encoder(model.encoder)
    rows = zip(*(masked[f"input_{name}"].numpy() for name in ("word_ids", "mask", "type_ids")))
    settings = {"activation": activation}
    return [cmlm_numpy.bert_encode(weights, *row, NUM_HEADS, **settings)[-1] for row in rows]


def end_to_end(inputs):
    """Joins several batches into one."""
    batches = inputs if isinstance(inputs, list) else [inputs]
    return {name: tf.concat([batch[name] for batch in batches], axis=0) for name in batches[0]}


class Spy:
    """Calls an encoder for an objective and keeps what it was asked and what it answered."""

    def __init__(self, encoder, training=None):
        self.encoder, self.training, self.calls = encoder, training, []

    def __call__(self, inputs, name, views=1, shared_masks=False, **kwargs):
        inputs = end_to_end(inputs)
        outputs = self.encoder(inputs, self.training, views, shared_masks)
        self.calls.append((inputs, views, outputs))
        return outputs

    def stream(self, name):
        return None
