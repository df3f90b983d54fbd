"""Model Garden's own driver trains this project's experiments as `cmlm train` does."""

import json
import runpy

import gin
import numpy as np
import pytest
from official.core import exp_factory as model_garden
from official.core import registry as names
from official.core import train_utils

from examples import model_garden_train  # noqa: F401 - defines the driver's flags
from experiments import exp_factory, registry
from official_cmlm import SentenceEncoder
from official_cmlm.common.errors import UserError
from official_cmlm.training import run as training
from tests.binaries import ROOT, call_program
from tests.training.helpers import assert_same_checkpoints
from tests.training.tiny_training import ENCODER, write_sts

_PROGRAM = str(ROOT / "examples" / "model_garden_train.py")
# Where a test starts after the first checkpoint, buckets wait with examples.
_STEPS = 3


def _values(records, **trainer):
    """Returns changes that make `cmlm/tiny` tiny."""
    data = {"input_path": str(records), "seq_length": 32, "global_batch_size": 8}
    data |= {"bucket_boundaries": [16, 32], "max_bucket_batch_size": 16, "seed": 5}
    each = {name: 1 for name in ("steps_per_loop", "summary_interval", "checkpoint_interval")}
    return {
        "task": {
            "encoder": ENCODER,
            "objectives": {"cmlm": {"max_predictions": 10}},
            "train_data": data,
            "validation_data": {**data, "max_examples": 16},
        },
        "trainer": {"train_steps": _STEPS, **each, "validation_steps": 2, **trainer},
        "runtime": {"distribution_strategy": "one_device", "mixed_precision_dtype": None},
    }


def _run(values, model_dir, *flags, mode="train"):
    """Runs the example; returns its exit status."""
    command = ["--experiment=cmlm/tiny", f"--mode={mode}", f"--model_dir={model_dir}", *flags]
    command.append(f"--params_override={json.dumps(values)}")
    try:
        return call_program(lambda: runpy.run_path(_PROGRAM, run_name="__main__"), "", *command)
    finally:
        # Bindings would hold for the whole process.
        gin.clear_config()


@pytest.fixture(scope="module")
def own(records_dir, tmp_path_factory):
    """Returns a folder that this project's driver has trained."""
    folder = tmp_path_factory.mktemp("own") / "model"
    params = registry.load("cmlm/tiny", params_override=_values(records_dir))
    training.run(params, "train", str(folder))
    return folder


@pytest.mark.long
def test_driver_gives_the_weights_of_this_project(records_dir, own, tmp_path):
    """It is stopped after a step, and goes on where the data were, with bindings of Gin."""
    (tmp_path / "some.gin").write_text("Trainer.validation_dataset = None\n")
    values, folder = _values(records_dir), tmp_path / "model"
    schedule = {"schedule": {"decay_steps": _STEPS}}
    assert _run(_values(records_dir, train_steps=1, **schedule), folder) == 0
    assert _run(values, folder, f"--gin_file={tmp_path / 'some.gin'}") == 0
    assert_same_checkpoints([own / "ckpt-3", folder / "ckpt-3"])
    texts = ["the cat sat", "a dog"]
    encoders = [SentenceEncoder.load(path) for path in (own, folder)]
    np.testing.assert_array_equal(*(encoder.encode(texts) for encoder in encoders))
    assert encoders[0].max_seq_length == encoders[1].max_seq_length
    assert (
        "Trainer.validation_dataset = None" in (folder / "operative_config.train.gin").read_text()
    )
    # Either driver goes on with a folder of the other.
    longer = _values(records_dir, train_steps=_STEPS + 1)
    training.run(registry.load("cmlm/tiny", params_override=longer), "train", str(folder))
    assert (folder / "weights.safetensors").exists()


@pytest.mark.long
def test_driver_evaluates(records_dir, own, tmp_path):
    """Its scores are those of this project's driver, `sts_file` included."""
    write_sts(tmp_path / "sts.csv")
    values = _values(records_dir)
    values["task"]["sts_file"] = str(tmp_path / "sts.csv")
    logs = []
    for evaluate in (
        lambda: training.run(registry.load("cmlm/tiny", params_override=values), "eval", str(own)),
        lambda: _run(values, own, mode="eval"),
    ):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("orbit.utils.SummaryManager.write_summaries", lambda _, d: logs.append(d))
            assert evaluate() in (None, 0)
    own_scores, scores = (
        {n: float(v) for n, v in each.items() if "second" not in n} for each in logs
    )
    assert scores == own_scores and scores.keys() >= {"validation_loss", "sts_spearman"}


def test_names_are_those_of_the_files():
    """Each name of Model Garden's has the values of its file, which may still be changed."""
    exp_factory.register()
    exp_factory.register()
    for name in ("simcse/tiny", "bitext/s2"):
        params, values = model_garden.get_exp_config(name), registry.load(name).as_dict()
        values["task"] |= {"compiled": False, "compiled_validation": False}
        assert params.as_dict() == values
        params.task.train_data.seed = 3
    for name in registry.experiment_files():
        assert callable(names.lookup(model_garden._REGISTERED_CONFIGS, name))


@pytest.mark.parametrize(
    ("experiment", "values", "service", "message"),
    [
        ("cmlm/tiny", {}, "grpc://host:1", "--tf_data_service: every worker"),
        ("mirror_bert/tiny", {"task": {"init_checkpoint": ""}}, "", "trainer.train_steps is 0"),
        ("simcse/bert_base", {}, "", "starts from "),
        ("cmlm/tiny", {"runtime": {"distribution_strategy": "pjrt"}}, "", "pjrt: only cmlm train"),
        ("cmlm/tiny", {"trainer": {"schedule": {"peak": -1.0}}}, "", "schedule.peak"),
    ],
)
def test_mistakes(experiment, values, service, message):
    """Each is one line, before anything is built."""
    exp_factory.register()
    options = train_utils.ParseConfigOptions(
        experiment, [], tf_data_service=service, params_override=json.dumps(values)
    )
    with pytest.raises(UserError, match=message) as caught:
        train_utils.parse_configuration(options)
    assert "\n" not in str(caught.value)
