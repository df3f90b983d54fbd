"""Settings of the trainer that are refused in one line, before anything is built."""

import json

import pytest

from experiments import registry
from official_cmlm.errors import UserError
from official_cmlm.training.run import check_trainer


def _demo(trainer=None, runtime=None):
    text = json.dumps({"trainer": trainer or {}, "runtime": runtime or {}})
    return registry.load("demo", params_override=text)


@pytest.mark.parametrize("name", registry.experiment_files())
def test_every_experiment_passes(name):
    check_trainer(registry.load(name))


_EMA = {"optimizer_config": {"ema": {"average_decay": 0.99}}}


@pytest.mark.parametrize(
    ("trainer", "runtime", "message"),
    [
        (
            {"checkpoint_interval": 0},
            {},
            "checkpoint_interval must be at least 1 .otherwise no checkpoint",
        ),
        ({"steps_per_loop": 0}, {}, "steps_per_loop must be at least 1"),
        ({"summary_interval": 0}, {}, "summary_interval must be at least 1"),
        ({"validation_interval": -1}, {}, "validation_interval must be at least 0, got -1"),
        (
            {"summary_interval": 25, "steps_per_loop": 10},
            {},
            "summary_interval 25 is not a multiple of trainer.steps_per_loop 10; set it to 30$",
        ),
        (_EMA, {"mixed_precision_dtype": "float16"}, "ema: .* float16"),
    ],
)
def test_what_cannot_work(trainer, runtime, message):
    with pytest.raises(UserError, match=message) as caught:
        check_trainer(_demo(trainer, runtime))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("dtype", ["bfloat16", None])
def test_an_average_of_weights_without_a_loss_scale(dtype):
    check_trainer(_demo(_EMA, {"mixed_precision_dtype": dtype}))
