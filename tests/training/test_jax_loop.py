"""Steps on JAX's device: the same as TensorFlow's, whatever is trained."""

import concurrent.futures
import itertools
import re
import sys
import threading
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from official_cmlm.common.errors import UserError
from official_cmlm.modeling.fused_attention import KERNELS
from official_cmlm.modeling.sentence_encoder import SentenceEncoderModel
from official_cmlm.training import jax_loop
from official_cmlm.training.jax_loop import JaxLoop, portable_step
from official_cmlm.training.non_finite import FiniteGuard
from official_cmlm.training.step import apply_if, apply_summed, optimizer_variables
from official_cmlm.training.step_module import lower
from official_cmlm.training.task import SentenceEncoderTask
from tests.conftest import tiny_encoder_config
from tests.modeling.helpers import make_tokens, randomize
from tests.training.all_objectives import SETTINGS, batch_of, records_of, task_of, with_own_records
from tests.training.helpers import DROPOUT, optimizer_config, task_config

jax = pytest.importorskip("jax", reason="needs JAX: pip install jax")

# After some more, rounding of the sum of all objectives has grown beyond the tolerance.
_STEPS = 12


def _train(folders, names, kind, rate, on_jax, steps=_STEPS, **task):
    """Losses and metrics of each step, and the weights after all, of a sum of objectives."""
    settings = {name: with_own_records(folders, name) for name in names}
    # To compile some steps takes longer than to compute them eagerly, above all blocks.
    few = steps < _STEPS
    encoder = {"num_layers": 0 if few else 1, **DROPOUT}
    config = task_config(records_of(folders, names[0]), settings, encoder, **task)
    tf_keras.utils.set_random_seed(3)
    task = SentenceEncoderTask(config, static_shapes=True)
    model = randomize(task.build_model())
    optimizer = task.create_optimizer(optimizer_config(kind, rate))
    _ = optimizer.iterations
    metrics, loss = task.build_metrics(), tf_keras.metrics.Sum("loss")

    def step(features):
        for metric in (*metrics, loss):
            metric.reset_state()
        loss.update_state(task.train_step(features, model, optimizer, metrics)["loss"])

    # A second shape is compiled once more.
    batches = itertools.cycle(
        {group.name: _batch(folders, group, start) for group in task.train_groups}
        for start in ((0,) if few else (0, 8))
    )
    variables = [v for metric in (*metrics, loss) for v in metric.variables]
    loop = on_jax and JaxLoop(
        step, variables, lambda: [*model.variables, *optimizer_variables(optimizer)]
    )
    compiled = step if few else tf.function(step, jit_compile=True, autograph=False)
    reports = []
    for _ in range(steps):
        if loop:
            loop.run(batches, 1)
        else:
            compiled(next(batches))
        reports.append([float(metric.result()) for metric in (loss, *metrics)])
    if loop:
        loop.pull()
    return np.array(reports), {v.name: v.numpy() for v in model.trainable_variables}


def _batch(folders, group, start):
    """Returns the features of all objectives of a group."""
    batch = {}
    for name in group.objectives:
        batch |= batch_of(task_of(folders, name), name, start=start)[name]
    return batch


def _assert_equal_training(folders, names, kind, rate, steps=_STEPS, **of_jax):
    reports, weights = _train(folders, names, kind, rate, True, steps, **of_jax)
    expected, expected_weights = _train(folders, names, kind, rate, False, steps)
    # The weights move, or equal ones would say nothing.
    assert np.ptp(expected[:, 0]) > 0.01
    np.testing.assert_allclose(reports, expected, rtol=1e-4, atol=1e-5)
    for name, value in expected_weights.items():
        # Softmax does not depend on the keys' biases: their gradients are rounding errors, which
        # adaptive optimizers turn into whole steps.
        if "key/bias" not in name:
            np.testing.assert_allclose(weights[name], value, rtol=1e-4, atol=1e-5, err_msg=name)


def test_an_objective(folders):
    """Some steps with dropout: loss, figures and weights."""
    _assert_equal_training(folders, ["distillation"], "sgd", 0.05, steps=3)


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "rate", "chunk_size"),
    [("sgd", 0.05, 0), ("sgd", 0.05, 3), ("adamw", 1e-3, 0), ("lamb", 1e-3, 0)],
)
def test_the_sum_of_all_objectives(folders, kind, rate, chunk_size):
    """Twelve steps with dropout: every objective's loss and figures, and the weights.

    In chunks on JAX's device too, against TensorFlow's whole batches; by the two optimizers of the
    experiments.
    """
    _assert_equal_training(folders, list(SETTINGS), kind, rate, chunk_size=chunk_size)


@pytest.mark.long
@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "mixed_float16"])
def test_half_precision(folders, dtype):
    """Activations of 16 bits, weights of 32: as TensorFlow's own step, but for rounding."""
    tf_keras.mixed_precision.set_global_policy(dtype)
    names = ["cmlm", "contrastive"]
    reports, weights = _train(folders, names, "adamw", 1e-3, on_jax=True)
    expected, expected_weights = _train(folders, names, "adamw", 1e-3, on_jax=False)
    np.testing.assert_allclose(reports[:, 0], expected[:, 0], rtol=2e-2)
    assert {value.dtype for value in weights.values()} == {np.dtype(np.float32)}
    for name, value in expected_weights.items():
        np.testing.assert_allclose(weights[name], value, rtol=0, atol=2e-2, err_msg=name)


def _counting_loop(counter, weight):
    def step(batch):
        weight.assign_add(batch["group"]["x"])
        counter.assign_add(1.0)

    return JaxLoop(step, [counter])


def _batches(*lengths):
    for length in lengths:
        yield {"group": {"x": tf.fill([length], 1.0)}}


def test_where_the_newest_values_are():
    """The host's variables come back after each run, the others when they are pulled."""
    counter, weight = tf.Variable(0.0), tf.Variable([0.0, 0.0])
    loop = _counting_loop(counter, weight)
    loop.run(_batches(2, 2, 2), 3)
    assert counter.numpy() == 3 and weight.numpy().tolist() == [0.0, 0.0]
    # A reset on the host is seen by the next run.
    counter.assign(0.0)
    loop.run(_batches(2), 1)
    assert counter.numpy() == 1
    # So it is after a checkpoint, which pulls the others.
    counter.assign(0.0)
    loop.pull()
    assert counter.numpy() == 0 and weight.numpy().tolist() == [4.0, 4.0]
    # Without `forget` the device keeps its own value, with it it takes the host's.
    weight.assign([10.0, 10.0])
    loop.run(_batches(2), 1)
    loop.pull()
    assert weight.numpy().tolist() == [5.0, 5.0]
    weight.assign([10.0, 10.0])
    loop.forget()
    loop.run(_batches(2), 1)
    loop.pull()
    assert weight.numpy().tolist() == [11.0, 11.0]


def test_one_state_for_batches_of_all_shapes(capfd):
    """A program a shape, compiled once; all update the same variables."""
    counter, weight = tf.Variable(0.0), tf.Variable(0.0)

    def step(batch):
        weight.assign_add(tf.reduce_sum(tf.cast(batch["g"]["s"]["input_word_ids"], tf.float32)))
        counter.assign_add(1.0)

    loop = JaxLoop(step, [counter])
    batches = ({"g": {"s": {"input_word_ids": tf.ones([2, n], tf.int32)}}} for n in (4, 8, 4, 8))
    loop.run(batches, 4)
    loop.pull()
    assert weight.numpy() == 2 * (4 + 8 + 4 + 8) and counter.numpy() == 4
    shapes = re.findall("compiling the step for batches of (.*)", capfd.readouterr().err)
    assert shapes == ["2 × 4 tokens", "2 × 8 tokens"]
    assert loop.compiling > 0


def test_a_stop_ends_a_run_after_a_step():
    """However many steps were asked for; the batches after it stay with the iterator."""
    counter, batches = tf.Variable(0.0), _batches(2, 2, 2, 2)
    asked = iter([False, True])
    _counting_loop(counter, tf.Variable([0.0, 0.0])).run(batches, 4, lambda: next(asked))
    assert counter.numpy() == 2 and len(list(batches)) == 2


def test_batches_are_on_the_device_before_the_step_ahead_of_them_has_ended(monkeypatch):
    """No step ends before the batches of the next three are copied and their steps are started."""
    loop = _counting_loop(tf.Variable(0.0), tf.Variable([0.0]))
    events, fourth = [], threading.Event()
    take, wait_for = loop._take, loop._wait_for

    def take_noted(executable, features):
        assert all(isinstance(feature, jax.Array) for feature in features)
        events.append("start")
        if events.count("start") == 4:
            fourth.set()
        return take(executable, features)

    def wait_until_four_started(array):
        events.append("end" if fourth.wait(60) else "nothing is ahead")
        return wait_for(array)

    monkeypatch.setattr(loop, "_take", take_noted)
    monkeypatch.setattr(loop, "_wait_for", wait_until_four_started)
    loop.run(_batches(1, 1, 1, 1, 1), 5)
    assert events[:4] == ["start"] * 4 and sorted(events[4:]) == ["end"] * 5 + ["start"]


def _train_guarded(batches):
    """Returns the step as StableHLO, and the values after each step, the weights first.

    The optimizer scales the loss, so that two conditions are nested: the guard's and its own.
    """
    weights, guard = tf.Variable(np.linspace(-1.0, 1.0, 50, dtype=np.float32)), FiniteGuard()
    sgd = tf_keras.optimizers.SGD(0.25, momentum=0.5)
    optimizer = tf_keras.mixed_precision.LossScaleOptimizer(sgd)
    optimizer.build([weights])
    variables = [weights, *guard.variables, *optimizer_variables(optimizer)]

    def step(batch):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum((weights * batch["group"]["x"]) ** 2)
            scaled = optimizer.get_scaled_loss(loss)
        gradients = optimizer.get_unscaled_gradients(tape.gradient(scaled, [weights]))
        allowed = guard.allows(loss, tf.norm(gradients[0]), True, optimizer.iterations)
        apply_if(allowed, lambda values: apply_summed(optimizer, values, [weights]), gradients)

    loop, values = JaxLoop(step, variables, lambda: variables), []
    for batch in batches:
        loop.run(iter([batch]), 1)
        values.append([variable.numpy() for variable in variables])
    lowered = portable_step(loop.lower(batches[0], ""), batches[0], "cpu")
    return jax.export.deserialize(bytearray(lowered)).mlir_module(), values


def test_a_step_has_no_condition_that_the_host_would_read(monkeypatch):
    """The update is selected; all values are, bit for bit, those that a branch would give.

    The second step overflows by its scale alone, the fourth has an infinite loss. Products with
    powers of two are exact, whether or not a compiler joins them with sums across the branch.
    """
    values = (0.25, 2.0**57, 0.5, np.inf, 0.125)
    batches = [{"group": {"x": tf.fill([50], value)}} for value in values]
    selecting, selected = _train_guarded(batches)
    monkeypatch.setattr(jax_loop, "_select_instead_of_branching", lambda module: None)
    branching, branched = _train_guarded(batches)
    assert branching.count("stablehlo.if") >= 2
    assert not re.search(r"stablehlo\.(if|case)", selecting)
    for one, other in zip(selected, branched, strict=True):
        for value, expected in zip(one, other, strict=True):
            np.testing.assert_array_equal(value, expected)
    first, second, third, fourth, last = (values[0] for values in selected)
    assert (first == second).all() and (third == fourth).all() and (third == last).all()
    assert (first != third).any() and np.isfinite(last).all()


@pytest.mark.parametrize(("platform", "named"), [("gpu", ""), ("gpu", "own"), ("cpu", "")])
def test_compiled_steps_of_an_accelerator_are_kept(monkeypatch, tmp_path, platform, named):
    """In the cache, or where the user says; a CPU compiles in seconds."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    device = SimpleNamespace(platform=platform, device_kind="X", compute_capability="9.0")
    monkeypatch.setattr(jax, "devices", lambda: [device])
    names = ["jax_compilation_cache_dir", "jax_compilation_cache_max_size"]
    before = [getattr(jax.config, name) for name in names]
    try:
        jax.config.update(names[0], named or None)
        loop = _counting_loop(tf.Variable(0.0), tf.Variable([0.0]))
        folder = jax.config.jax_compilation_cache_dir
    finally:
        for name, value in zip(names, before):
            jax.config.update(name, value)
    assert loop.accelerated == (platform == "gpu")
    kept = str(tmp_path / "official_cmlm" / "compiled") if platform == "gpu" else None
    assert folder == (named or kept)


def test_waiting_is_the_time_between_a_step_and_the_next_batch():
    """The given clocks say: batches arrive at 3 and 10, steps end at 2, 5 and 12."""
    loop = _counting_loop(tf.Variable(0.0), tf.Variable([0.0]))

    def end_at(at):
        future = concurrent.futures.Future()
        future.set_result(at)
        return future

    before = None
    for arrived, end in ((0.0, 2.0), (3.0, 5.0), (4.0, 9.0), (10.0, 12.0)):
        before = loop._count((arrived, end_at(end)), before)
    assert loop.waited == (3.0 - 2.0) + 0.0 + (10.0 - 9.0)


@pytest.mark.parametrize(("platform", "calls"), [("cuda", 2), ("tpu", 0)])
def test_only_a_step_for_cuda_calls_kernels_of_attention(platform, calls, bfloat16):
    """One forward and one backward for each of two blocks, in the step as it is written."""
    model = SentenceEncoderModel(tiny_encoder_config())

    def step(batch):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model(batch, training=True)["default"] ** 2)
        for variable, gradient in zip(model.weights, tape.gradient(loss, model.weights)):
            if gradient is not None:
                variable.assign_sub(tf.convert_to_tensor(gradient))

    batch = make_tokens([5, 3], 6)
    module = lower(step, batch, platform=platform)
    exported = jax.export.deserialize(bytearray(portable_step(module, batch, platform)))
    text = exported.mlir_module()
    assert [text.count(f"@{name}(") for name in KERNELS] == [calls, calls]


def test_without_jax(monkeypatch):
    """One line that says what to install."""
    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(UserError, match=r"needs JAX; pip install \"\.\[jax\]\""):
        _counting_loop(tf.Variable(0.0), tf.Variable([0.0]))


def test_a_version_that_lacks_what_is_needed(monkeypatch):
    """Named with its version."""
    import jax.extend.mlir

    monkeypatch.delattr(jax.extend.mlir, "hlo_to_stablehlo")
    with pytest.raises(UserError, match=rf"JAX {jax.__version__} lacks .*hlo_to_stablehlo"):
        _counting_loop(tf.Variable(0.0), tf.Variable([0.0]))


def test_no_device(monkeypatch):
    """JAX's own reason in one line."""

    def devices():
        raise RuntimeError("Unable to initialize backend 'cuda'\nmore")

    monkeypatch.setattr(jax, "devices", devices)
    with pytest.raises(UserError, match=r"no device \(Unable to initialize backend 'cuda'\)$"):
        _counting_loop(tf.Variable(0.0), tf.Variable([0.0]))
