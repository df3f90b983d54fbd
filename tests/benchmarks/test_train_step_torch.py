"""Both libraries of the training-step benchmark compute the same losses and gradients.

They need PyTorch and Hugging Face's transformers: run them with the python of `.venv-bench`.
"""

import json

import numpy as np
import pytest
import tensorflow as tf

from benchmarks.train_step_examples import SEQUENCES, Batch
from benchmarks.train_step_side import features_of, model_of
from official_cmlm.checkpoints.formats.huggingface_tensors import (
    encoder_names,
    head_names,
    to_huggingface,
)
from official_cmlm.modeling.language_model_head import head_variables
from official_cmlm.modeling.sentence_encoder import encoder_variables
from official_cmlm.training.step import weighted_sum

torch = pytest.importorskip("torch", reason="needs PyTorch: make bench-env")
pytest.importorskip("transformers", reason="needs transformers: make bench-env")

PAD, VOCAB_SIZE, LENGTH = 0, 97, 16
SIZE = "2x64"


def _batch(objective):
    """Returns five examples of unequal lengths."""
    random = np.random.default_rng(3)

    def row(masked):
        length = int(random.integers(5, LENGTH + 1))
        sequence = {"ids": random.integers(1, VOCAB_SIZE, length).tolist()}
        if masked:
            count = int(random.integers(1, 3))
            sequence["positions"] = sorted(
                random.choice(np.arange(1, length), count, replace=False).tolist()
            )
            sequence["labels"] = random.integers(1, VOCAB_SIZE, count).tolist()
        return sequence

    names = SEQUENCES[objective]
    examples = [{name: row("masked" in name) for name in names} for _ in range(5)]
    if objective == "contrastive":
        # Two views by dropout alone.
        examples = [{name: example["first"] for name in names} for example in examples]
    return Batch(examples, LENGTH)


def _ours(objective, batch, variant):
    """Returns the model, its loss and the gradients of its variables."""
    tf_model = model_of(objective, SIZE, VOCAB_SIZE, variant, dropout=0.0)
    # Biases and norms begin with equal numbers, which would hide an exchange.
    random = np.random.default_rng(5)
    for variable in tf_model.trainable_variables:
        variable.assign_add(random.normal(0, 0.05, variable.shape))

    features = features_of(objective, batch, PAD)

    @tf.function(jit_compile=variant == "xla", autograph=False)
    def values():
        with tf.GradientTape() as tape:
            outputs = tf_model(features, training=True)
            chosen = {name: each.config for name, each in tf_model.objectives.items()}
            loss = weighted_sum(outputs, chosen)
        variables = tf_model.trainable_variables
        return loss, [tf.convert_to_tensor(g) for g in tape.gradient(loss, variables)]

    loss, gradients = values()
    by_variable = {v.ref(): g.numpy() for v, g in zip(tf_model.trainable_variables, gradients)}
    return tf_model, float(loss), by_variable


def _name_values(model, objective, value_of):
    """Maps PyTorch's names to `value_of` each of our variables in PyTorch's layout."""
    config = model.encoder.config
    encoder = encoder_variables(model.encoder)
    names = {n: t for n, t in encoder_names(config, "bert").items() if "pooler" not in n}
    values = to_huggingface({n: value_of(encoder[n]) for n in names}, names)
    values = {f"bert.{name}": value for name, value in values.items()}
    if model.head is not None:
        names = head_names(config, "bert")
        head = {n: value_of(v) for n, v in head_variables(model.head).items()}
        theirs = to_huggingface(head, names)
        values |= {name.replace("cls.", "head.", 1): value for name, value in theirs.items()}
    own = model.objectives[objective]
    if objective == "cmlm":
        for i, (kernel, bias) in enumerate(zip(own.projection.kernels, own.projection.biases)):
            values[f"projection.kernels.{i}"] = value_of(kernel)
            values[f"projection.biases.{i}"] = value_of(bias)[:, None]
    if objective == "contrastive":
        values["mlp.weight"] = value_of(own.projection_head.kernel).T
        values["mlp.bias"] = value_of(own.projection_head.bias)
    return values


def _theirs(objective, weights, batch, reference):
    """Returns the loss, and the gradients by name, of the reference."""
    from benchmarks.train_step_torch import tensors_of
    from benchmarks.train_step_torch_model import Model

    layers, width = (int(n) for n in SIZE.split("x"))
    model = Model(objective, VOCAB_SIZE, layers, width, dropout=0.0).train()
    parameters = dict(model.named_parameters())
    assert set(parameters) == set(weights)
    with torch.no_grad():
        for name, value in weights.items():
            assert parameters[name].shape == value.shape, name
            parameters[name].copy_(torch.from_numpy(np.array(value)))
    length = batch.length if reference == "static" else 0
    loss_of = torch.compile(model, dynamic=False) if reference == "static" else model
    tensors = tensors_of(batch.examples, SEQUENCES[objective], PAD, length)
    loss = loss_of(tensors)
    loss.backward()
    return float(loss.detach()), {
        n: p.grad.numpy() for n, p in parameters.items() if p.grad is not None
    }


@pytest.mark.parametrize("reference", ["eager", pytest.param("static", marks=pytest.mark.long)])
@pytest.mark.parametrize("objective", list(SEQUENCES))
def test_equal_weights_give_equal_losses_and_gradients(objective, reference):
    """Every weight is compared, without dropout."""
    batch = _batch(objective)
    model, loss, gradients = _ours(objective, batch, "xla" if reference == "static" else "kernels")
    weights = _name_values(model, objective, lambda variable: variable.numpy())
    their_loss, theirs = _theirs(objective, weights, batch, reference)
    assert loss == pytest.approx(their_loss, rel=2e-5)
    ours = _name_values(model, objective, lambda v: gradients.get(v.ref(), np.zeros(v.shape)))
    compared = 0
    for name, gradient in ours.items():
        np.testing.assert_allclose(theirs[name], gradient, rtol=1e-3, atol=2e-6, err_msg=name)
        compared += gradient.any()
    assert compared > 30


@pytest.mark.parametrize("objective", SEQUENCES)
def test_batches_of_a_lowered_folder(objective, tmp_path):
    """The loss of their slots is that of the masked positions alone; without masks it differs."""
    from benchmarks.train_step_lowered import read_batches
    from benchmarks.train_step_torch import tensors_of
    from benchmarks.train_step_torch_model import Model

    batch = _batch(objective)
    features = features_of(objective, batch, PAD)
    names = {
        f"{objective}.{sequence}.{name}": tensor
        for sequence, part in features[objective].items()
        if isinstance(part, dict)
        for name, tensor in part.items()
    }
    # A batch also holds what was masked; it is not encoded.
    names |= {name.replace("_masked.input", ".input"): tensor for name, tensor in names.items()}
    contents = {"names": [*names], "batches": [0], "encoder": {}}
    (tmp_path / "lowered.json").write_text(json.dumps(contents))
    arrays = {f"0/{i}": tensor.numpy() for i, tensor in enumerate(names.values())}
    np.savez(tmp_path / "batches.npz", **arrays)
    name, _, (lowered,) = read_batches(tmp_path, "cpu")
    assert name == objective
    torch.manual_seed(0)
    model = Model(objective, VOCAB_SIZE, 2, 64, dropout=0.0, seq_length=LENGTH).eval()
    expected = model(tensors_of(batch.examples, SEQUENCES[objective], PAD, LENGTH)).item()
    assert model(lowered).item() == pytest.approx(expected, rel=1e-5)
    model.with_masks = False
    assert model(lowered).item() != pytest.approx(expected, rel=1e-5)
    (tmp_path / "lowered.json").write_text(json.dumps(contents | {"names": ["nli.key"]}))
    with pytest.raises(SystemExit, match="PyTorch's model has no nli"):
        read_batches(tmp_path, "cpu")
