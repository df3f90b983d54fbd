"""Reading settings: names, types and ranges are refused with the field's path."""

import dataclasses
import math
from typing import Annotated

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments import registry
from official_cmlm.common.errors import UserError
from official_cmlm.common.validation import (
    Matching,
    OneOf,
    above,
    at_least,
    between,
    check_fields,
    read_dataclass,
)


@dataclasses.dataclass
class _Inner:
    steps: Annotated[int | None, at_least(1, "none would be taken")] = 1


@dataclasses.dataclass
class _Outer:
    share: Annotated[float, between(0, 1, above_low=True)] = 0.5
    rate: Annotated[float, between(0, 1, below_high=True)] = 0.5
    scale: Annotated[float, above(0)] = 1.0
    kind: Annotated[str, OneOf(("a", "b"))] = "a"
    lengths: Annotated[list[int], between(3, 9)] = dataclasses.field(default_factory=list)
    free: float = 0.0
    count: int = 0
    switch: bool = True
    inner: _Inner = dataclasses.field(default_factory=_Inner)


@dataclasses.dataclass(frozen=True)
class _Read:
    name: Annotated[str, Matching("[a-z]+", "small letters")]
    parts: tuple[_Inner, ...] = ()
    values: dict[str, int] = dataclasses.field(default_factory=dict)

    def __post_init__(self):
        if self.name == "never":
            raise ValueError("name cannot be never")


def test_a_dataclass_is_read_with_those_inside_it():
    values = {"name": "a", "parts": [{"steps": 3}, {}], "values": {"x": 1}}
    assert read_dataclass(_Read, values, "here") == _Read("a", (_Inner(3), _Inner()), {"x": 1})
    assert read_dataclass(_Outer, {"share": 1}, "here").share == 1.0


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([], "top level must be a mapping, got []"),
        ({}, "name is missing"),
        ({"nam": "a"}, "unknown key nam; did you mean name?"),
        ({"name": "A"}, "name must be small letters, got 'A'"),
        ({"name": False}, "name must be str, got False; quote it"),
        ({"name": "never"}, "name cannot be never"),
        ({"name": "a", "values": None}, "values must be a mapping, got None"),
        ({"name": "a", "parts": {}}, "parts must be a list, got {}"),
        ({"name": "a", "parts": [3]}, "parts[0] must be a mapping, got 3"),
        ({"name": "a", "parts": [{}, {"step": 1}]}, "unknown key parts[1].step; did you mean"),
        ({"name": "a", "parts": [{"steps": 0}]}, "parts[0].steps must be at least 1 (none would"),
    ],
)
def test_faults_of_what_is_read_are_named(values, message):
    with pytest.raises(UserError) as caught:
        read_dataclass(_Read, values, "here")
    assert str(caught.value).startswith(f"here: {message}")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"share": 0.0}, "here.share must be in (0, 1], got 0.0"),
        ({"share": 1.5}, "here.share must be in (0, 1], got 1.5"),
        ({"rate": 1}, "here.rate must be in [0, 1), got 1"),
        ({"scale": 0}, "here.scale must be above 0, got 0"),
        ({"scale": math.inf}, "here.scale must be above 0, got inf"),
        ({"kind": "c"}, "here.kind must be one of a, b, got 'c'"),
        ({"lengths": [3, 10]}, "here.lengths[1] must be in [3, 9], got 10"),
        ({"free": math.nan}, "here.free must be a finite number, got nan"),
        ({"count": 2**63}, "here.count must fit into 64 bits, got 9223372036854775808"),
        ({"inner": _Inner(0)}, "here.inner.steps must be at least 1 (none would be taken), got 0"),
    ],
)
def test_values_out_of_range_are_refused(values, message):
    with pytest.raises(UserError) as caught:
        check_fields(_Outer(**values), "here", recursive=True)
    assert str(caught.value) == message


def test_values_in_range_are_not_refused():
    check_fields(_Outer(share=1, rate=0, lengths=[3, 9], count=-(2**63), free=-1e300), "")
    check_fields(_Outer(inner=_Inner(0)), "")
    check_fields(_Outer(inner=_Inner(None)), "", recursive=True)


@given(st.floats(), st.sampled_from([between(0, 1), above(0), at_least(-1), between(-3, 7)]))
def test_membership(value, limit):
    """A range is what its bounds say; nothing that is not finite is in any."""
    inside = limit.low <= value <= limit.high and math.isfinite(value)
    if limit.above_low:
        inside = inside and value != limit.low
    assert (value in limit) == inside


# Model Garden declares no ranges; these are settings that it takes without a word.
_WRONG = {
    "trainer.train_steps": [-1, 2**63, 10**30],
    "trainer.max_to_keep": [-1, 0],
    "trainer.steps_per_loop": [0, -5],
    "trainer.checkpoint_interval": [0],
    "trainer.validation_steps": [-2],
    "trainer.validation_interval": [-1],
    "trainer.optimizer_config.optimizer.adamw.weight_decay_rate": [-0.1, ".nan", ".inf"],
    "trainer.optimizer_config.optimizer.adamw.epsilon": [0, -1e-8],
    "trainer.optimizer_config.learning_rate.polynomial.initial_learning_rate": [-1e-4, ".nan"],
    "trainer.optimizer_config.learning_rate.polynomial.decay_steps": [0, -3],
    "trainer.optimizer_config.warmup.linear.warmup_steps": [-1],
    "trainer.schedule.peak": [0, -1e-4, ".nan"],
    "trainer.schedule.warmup_share": [-0.1, 1.5],
    "trainer.schedule.decay_steps": [0],
    "trainer.schedule.type": ["triangle"],
    "runtime.num_gpus": [-2, 10**9],
    "task.train_data.seed": [-1, 2**32],
    "task.train_data.global_batch_size": [0, 2**40],
    "task.chunk_size": [-1],
    "task.encoder.num_layers": [10**9, -1],
    "task.encoder.hidden_size": [10**9],
    "task.encoder.max_position_embeddings": [10**9],
    "task.encoder.dropout_rate": [".nan", 1.0, -0.1],
    "task.objectives.quick_thought.weight": [".inf", 0],
    "task.objectives.quick_thought.margin": [-0.1, 10**400],
}


@pytest.mark.parametrize("field", _WRONG)
def test_an_experiment_is_refused_before_anything_is_built(field):
    """The message names the field, in one line."""
    for value in _WRONG[field]:
        with pytest.raises(UserError) as caught:
            registry.load("demo", params_override=f"{field}={value}")
        message = str(caught.value)
        assert field in message and "\n" not in message and len(message) < 400


def test_infinity_where_it_bounds_nothing():
    """Model Garden's way to switch a bound off."""
    adamw = "trainer.optimizer_config.optimizer.adamw"
    unbounded = f"trainer.loss_upper_bound=.inf,{adamw}.gradient_clip_norm=.inf"
    override = f"{unbounded},trainer.recovery_max_trials=-2,{adamw}.clipnorm=.inf"
    config = registry.load("demo", params_override=override)
    assert config.trainer.loss_upper_bound == math.inf
    with pytest.raises(UserError, match=r"loss_upper_bound must be above 0, got nan"):
        registry.load("demo", params_override="trainer.loss_upper_bound=.nan")


def test_whole_numbers_are_floats_where_floats_belong():
    rate = "trainer.schedule.peak=1,trainer.optimizer_config.optimizer.adamw.epsilon=1"
    config = registry.load("demo", params_override=f"{rate},task.encoder.dropout_rate=0")
    epsilon = config.trainer.optimizer_config.optimizer.adamw.epsilon
    assert epsilon == 1.0 and type(epsilon) is float
    value = config.trainer.schedule.peak
    assert value == 1.0 and type(value) is float and type(config.task.encoder.dropout_rate) is float
