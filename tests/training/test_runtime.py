"""Devices, precision and XLA as a configuration asks for them, and as this machine has them."""

import contextlib
import json
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from experiments import registry
from official_cmlm.common.errors import UserError
from official_cmlm.training import jax_loop, runtime
from official_cmlm.training.progress import read_history
from official_cmlm.training.run import run
from tests.training.quick_runs import quick_runs
from tests.training.test_run import weights_of
from tests.training.tiny_training import tiny_run

WEIGHTS = ("model/", "encoder/", "language_model_head/")


def _resolve(**values):
    text = json.dumps({"runtime": {"mixed_precision_dtype": None, **values}})
    return runtime.resolve_runtime(registry.load("demo", params_override=text))[0]


@pytest.fixture
def eight_gpus(monkeypatch):
    monkeypatch.setattr(
        tf.config, "list_physical_devices", lambda kind: [kind] * (8 if kind == "GPU" else 1)
    )


@pytest.mark.usefixtures("eight_gpus")
def test_all_gpus_unless_told_otherwise():
    """Eight where there are eight, one for one device; a number, 0 too, is taken at its word."""
    for name, count in (("mirrored", 8), ("multi_worker_mirrored", 8), ("one_device", 1)):
        params = _resolve(distribution_strategy=name)
        assert params.runtime.num_gpus == count
        assert runtime.num_replicas(params.runtime) == count
    for number in (0, 2):
        assert (
            _resolve(distribution_strategy="mirrored", num_gpus=number).runtime.num_gpus == number
        )


def test_cpu_where_there_is_no_gpu():
    """This machine's CPU, and the line that says so."""
    params = _resolve(distribution_strategy="mirrored")
    assert params.runtime.num_gpus == 0
    assert runtime.devices(runtime.create_strategy(params.runtime)) == "1 CPU"
    two = tf.distribute.MirroredStrategy([d.name for d in tf.config.list_logical_devices("CPU")])
    assert runtime.devices(two) == "2 CPUs"


@pytest.mark.parametrize(
    ("name", "precision"),
    [
        ("mixed_bfloat16", "bfloat16"),
        ("bfloat16", "bfloat16"),
        ("mixed_float16", "float16"),
        ("float32", "float32"),
        (None, None),
    ],
)
def test_precision_by_either_name(name, precision):
    """Keras' names and Model Garden's, which alone adds loss scaling."""
    assert _resolve(mixed_precision_dtype=name).runtime.mixed_precision_dtype == precision


@pytest.mark.parametrize(
    ("strategy", "capability", "precision"),
    [
        ("mirrored", (8, 0), "float16"),
        ("mirrored", (6, 1), None),
        ("tpu", (8, 0), "bfloat16"),
    ],
)
@pytest.mark.usefixtures("eight_gpus")
def test_half_precision_where_devices_have_it(monkeypatch, strategy, capability, precision):
    """GPUs before Volta have no tensor cores."""
    details = {"compute_capability": capability}
    monkeypatch.setattr(tf.config.experimental, "get_device_details", lambda gpu: details)
    values = {"mixed_precision_dtype": "auto", "distribution_strategy": strategy}
    assert _resolve(**values).runtime.mixed_precision_dtype == precision


@pytest.mark.parametrize(
    ("platform", "capability", "precision"),
    [
        ("gpu", "9.0", "bfloat16"),
        ("gpu", "12.0", "bfloat16"),
        ("gpu", "7.5", "float16"),
        ("gpu", "6.1", None),
        ("gpu", "gfx942", None),
        ("tpu", None, "bfloat16"),
        ("cpu", None, None),
    ],
)
def test_with_pjrt_jax_says_what_the_device_multiplies(
    monkeypatch, platform, capability, precision
):
    """Whatever TensorFlow sees; a precision that is named is not asked for."""
    pytest.importorskip("jax", reason="needs JAX: pip install jax")
    facts = {"compute_capability": capability} if capability else {}
    device = SimpleNamespace(platform=platform, **facts)
    monkeypatch.setattr(jax_loop, "_devices", lambda jax: [device])
    values = {"distribution_strategy": "pjrt"}
    automatic = _resolve(mixed_precision_dtype="auto", **values)
    assert automatic.runtime.mixed_precision_dtype == precision
    monkeypatch.delattr(jax_loop, "_devices")
    named = _resolve(mixed_precision_dtype="float16", **values)
    assert named.runtime.mixed_precision_dtype == "float16"


def test_a_line_says_how_often_the_step_is_compiled():
    """Once for each combination of lengths, in the fields that a user would change."""

    def notes(buckets, strategy="pjrt", own=None):
        task = {"train_data": {"bucket_boundaries": buckets}}
        if own:
            task["objectives"] = {"cmlm": {"train_data": {"bucket_boundaries": own}}}
        values = {"task": task, "runtime": {"distribution_strategy": strategy}}
        params = registry.load("demo", params_override=json.dumps(values))
        return runtime.compilation_notes(params)

    (line,) = notes([32, 64, 128])
    assert line.startswith("XLA compiles the step 3 times,")
    assert "number in task.train_data.bucket_boundaries compiles it once" in line
    (line,) = notes([32, 64, 128], own=[64, 128])
    assert "6 times" in line and "task.objectives.cmlm.train_data.bucket_boundaries" in line
    assert notes([128]) == notes([]) == notes([32, 64], "one_device") == []


def test_half_precision_where_the_processor_has_it(monkeypatch):
    """Under a setting that hides the instructions half precision is refused, or not chosen."""
    automatic = {"mixed_precision_dtype": "auto", "num_gpus": 0}
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    for has_it, precision in ((False, None), (True, "bfloat16")):
        monkeypatch.setattr(runtime, "multiplies_bfloat16", lambda has_it=has_it: has_it)
        assert _resolve(**automatic).runtime.mixed_precision_dtype == precision
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_AMX")
    assert _resolve(**automatic).runtime.mixed_precision_dtype == "bfloat16"
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "avx2")
    assert _resolve(**automatic).runtime.mixed_precision_dtype is None
    with pytest.raises(UserError, match="bfloat16: .* ONEDNN_MAX_CPU_ISA=avx2; unset that"):
        _resolve(mixed_precision_dtype="bfloat16", num_gpus=0)


@pytest.mark.parametrize("name", ["simcse", "diff_cse", "declutr", "mirror_bert", "cmlm"])
def test_published_runs_in_mixed_precision(name):
    """As the authors' commands say; CMLM names no precision."""
    files = {"declutr": "base", "mirror_bert": "sentence_bert", "cmlm": "english_base"}
    experiment = registry.load(f"{name}/{files.get(name, 'bert_base')}")
    assert experiment.runtime.mixed_precision_dtype == (None if name == "cmlm" else "auto")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"mixed_precision_dtype": "float8"}, "is 'float8'; choose one of float32, bfloat16"),
        ({"mixed_precision_dtype": "float16", "loss_scale": "big"}, "got 'big'"),
        ({"mixed_precision_dtype": "float16", "loss_scale": -1.0}, "got -1.0"),
        (
            {"distribution_strategy": "multi_worker_mirrored", "enable_xla": True},
            "multi_worker_mirrored on CPUs; set it to false",
        ),
    ],
)
def test_invalid_settings_are_refused(values, message):
    """With one line that says what to change."""
    with pytest.raises(UserError, match=message):
        _resolve(**values)


@pytest.mark.long
@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "mixed_float16"])
def test_a_run_of_half_precision(records_dir, tmp_path, dtype):
    """As the documents spell it: weights and figures stay float32, float16 scales its loss."""
    params = tiny_run(records_dir, only="cmlm")
    params = params.replace(runtime={"mixed_precision_dtype": dtype})
    # A scaled loss is the same in eager steps.
    with quick_runs() if dtype == "mixed_float16" else contextlib.nullcontext():
        run(params, "train_and_eval", str(tmp_path / "model"))
    assert tf_keras.mixed_precision.global_policy().name == dtype
    checkpoint = tf.train.load_checkpoint(str(tmp_path / "model"))
    types = checkpoint.get_variable_to_dtype_map()
    assert {types[name] for name in weights_of(checkpoint, *WEIGHTS)} <= {tf.float32, tf.int64}
    scales = [name for name in types if "loss_scale" in name and "current" in name]
    assert len(scales) == (dtype == "mixed_float16")
    lines = read_history(tmp_path / "model" / "history.jsonl")
    assert [line["step"] for line in lines] == [2, 4, 4]
    losses = [line.get("training_loss", line.get("validation_loss")) for line in lines]
    assert np.isfinite(losses).all()


LONG = {"trainer": {"train_steps": 1_000_000}}


def _params(**values):
    return registry.load("cmlm/tiny", params_override=json.dumps(values))


@pytest.mark.parametrize(
    ("values", "num_gpus", "compiled", "reason"),
    [
        (LONG, 1, True, "7 shapes"),
        ({"trainer": {"train_steps": 6_999}}, 1, False, "6999 steps do not repay compiling 7"),
        ({"trainer": {"train_steps": 7_000}}, 1, True, "7 shapes"),
        (LONG, 0, False, "on CPUs"),
        (LONG | {"task": {"train_data": {"bucket_boundaries": []}}}, 1, False, "random batches"),
        (LONG | {"runtime": {"distribution_strategy": "tpu"}}, 0, False, "every step itself"),
        (LONG | {"runtime": {"distribution_strategy": "pjrt"}}, 1, False, "every step itself"),
    ],
)
def test_xla_is_on_where_it_pays(values, num_gpus, compiled, reason):
    """Long trainings of length buckets on GPUs; the reason is printed."""
    choice = runtime.choose_xla(_params(**values), num_gpus)
    assert choice.compiled == compiled and reason in str(choice)
    assert str(choice).startswith(f"XLA: {'on' if compiled else 'off'}, ")


def test_shapes_of_a_step():
    """A step takes a batch of each pipeline, so every combination; equal data share a pipeline."""
    data = _params().task.train_data
    assert runtime.step_shapes([data, data.replace()]) == 7
    other = data.replace(seed=5, bucket_boundaries=[64, 128])
    assert runtime.step_shapes([data, other]) == 14


@pytest.fixture
def begun(tmp_path):
    """A function that writes a folder in which a training has a checkpoint, or none."""

    def write(text, checkpoint=True):
        (tmp_path / "params.yaml").write_text(text, encoding="utf-8")
        if checkpoint:
            (tmp_path / "ckpt-2.index").write_bytes(b"")
        return str(tmp_path)

    return write


@pytest.mark.parametrize("known", [True, False])
def test_a_resumed_training_keeps_its_decision(begun, known):
    """Whatever the configuration would say now: XLA changes the last bits of a step."""
    folder = begun(f"runtime:\n  enable_xla: {str(known).lower()}\n")
    choice = runtime.choose_xla(_params(**LONG), int(not known), folder)
    assert choice.compiled == known and "was begun" in choice.reason


@pytest.mark.parametrize(
    ("text", "checkpoint"),
    [
        ("runtime: {enable_xla: true}\n", False),
        ("runtime: {enable_xla: null}\n", True),
        ("runtime: [1]\n", True),
        ("[]\n", True),
        ("{", True),
        ("", True),
    ],
)
def test_nothing_is_kept_without_a_stored_choice(begun, text, checkpoint):
    """A folder without a checkpoint, and a file without a choice, say nothing."""
    choice = runtime.choose_xla(_params(**LONG), 0, begun(text, checkpoint))
    assert not choice.compiled and "was begun" not in choice.reason


def test_an_impossible_choice_is_not_kept(begun):
    """A training may go on where its step cannot be compiled."""
    values = {"runtime": {"distribution_strategy": "multi_worker_mirrored", "num_gpus": 0}}
    folder = begun("runtime: {enable_xla: true}\n")
    choice = runtime.choose_xla(_params(**LONG, **values), 0, folder)
    assert not choice.compiled and "was begun" not in choice.reason


def test_prepared_settings():
    """The choice is written down and returned; a given setting needs none."""
    params, choice = runtime.resolve_runtime(_params(runtime={"num_gpus": 1}, **LONG))
    assert params.runtime.enable_xla is True and runtime.is_compiled(params.runtime)
    assert choice.compiled
    params, _ = runtime.resolve_runtime(_params(runtime={"num_gpus": 0}, **LONG))
    assert params.runtime.enable_xla is False and not runtime.is_compiled(params.runtime)
    tpu = {"distribution_strategy": "tpu", "tpu": "x"}
    params, _ = runtime.resolve_runtime(_params(runtime=tpu))
    assert runtime.is_compiled(params.runtime)
    _, choice = runtime.resolve_runtime(_params(runtime={"enable_xla": False}))
    assert choice is None
    # `mirrored` on a single device is that device.
    mirrored = {"distribution_strategy": "mirrored", "enable_xla": True}
    params, _ = runtime.resolve_runtime(_params(runtime=mirrored))
    assert params.runtime.distribution_strategy == "one_device"
