"""Overrides: how values are read, and what unknown keys and wrong types are told."""

import dataclasses
from typing import Any

import pytest
import yaml
from official.modeling.hyperparams import base_config

from official_cmlm.common.errors import UserError
from official_cmlm.configs.data import DataConfig, SourceConfig
from official_cmlm.configs.yaml_loading import override, parse_override, parse_yaml


@dataclasses.dataclass
class Inner(base_config.Config):
    """A nested configuration."""

    rate: float = 0.5
    steps: int = 10
    name: str | None = None
    on: bool = False
    sizes: list[int] = dataclasses.field(default_factory=list)
    anything: Any = None


@dataclasses.dataclass
class Outer(base_config.Config):
    """The configuration that the tests override."""

    inner: Inner = dataclasses.field(default_factory=Inner)
    learning_rate: float = 0.1


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 1e-3),
        ("1E5", 1e5),
        ("-2e-05", -2e-5),
        ("+1.5e3", 1500.0),
        ("1.e3", 1000.0),
        ("1_0e1", 100.0),
        ("1.5e-3", 1.5e-3),
        ("17", 17),
        ("0.5", 0.5),
        ("true", True),
        ("null", None),
        ("e3", "e3"),
        ("1e", "1e"),
        ("1e3x", "1e3x"),
        ("'1e-3'", "1e-3"),
        ("[1e-3, 2]", [1e-3, 2]),
    ],
)
def test_numbers(text, value):
    """Exponents without a point are numbers, and nothing else changes."""
    parsed = parse_yaml(text, "here")
    assert parsed == value and type(parsed) is type(value)


def test_other_users_of_yaml_are_left_alone():
    assert yaml.safe_load("1e-3") == "1e-3"


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("a.b=1,c=[1,2]", {"a": {"b": 1}, "c": [1, 2]}),
        ("a.b=1,a.c=2,a.d.e=x", {"a": {"b": 1, "c": 2, "d": {"e": "x"}}}),
        (" a = 1e-4 , b = yes ", {"a": 1e-4, "b": True}),
        ("a=[{b: 1},{b: 2}],c=3", {"a": [{"b": 1}, {"b": 2}], "c": 3}),
        ("path=/x/y:z,n=1", {"path": "/x/y:z", "n": 1}),
        ("glob=x/*.txt", {"glob": "x/*.txt"}),
        ("a=", {"a": None}),
        ("{a: {b: 1}}", {"a": {"b": 1}}),
        ("a:\n  b: [1, 2]", {"a": {"b": [1, 2]}}),
        ("a: b=1", {"a": "b=1"}),
    ],
)
def test_both_forms_of_overrides(text, values):
    """`a.b=1,c=[1,2]` and a YAML mapping."""
    assert parse_override(text) == values


@pytest.mark.parametrize("text", ["3", "[1, 2]", "word", "null", ""])
def test_neither_form(text):
    """Anything but a mapping is refused with what was given."""
    with pytest.raises(UserError, match="--params_override: expected a.b=value or a YAML mapping"):
        parse_override(text)


def test_a_value_and_something_below_it():
    with pytest.raises(UserError, match="--params_override.*a"):
        parse_override("a=1,a.b=2")


@pytest.mark.parametrize("text", ["a: [1", "a: b: c", "a: 'x", "\ta: 1", "a: @x"])
def test_not_yaml(text):
    with pytest.raises(UserError, match=r"file.yaml line \d: not valid YAML"):
        parse_yaml(text, "file.yaml")


@pytest.mark.parametrize(
    "text",
    [
        "!!python/object/apply:os.getcwd []",
        "!!python/name:os.getcwd",
        "!!python/tuple [1]",
        "a: !!python/object:datetime.date {}",
        "a=!!python/name:os.getcwd",
    ],
)
def test_python_tags_are_refused(text):
    with pytest.raises(UserError, match="--params_override.*not valid YAML: could not determine"):
        parse_override(text)


def test_override():
    config = Outer()
    override(config, parse_override("inner.rate=1e-3,inner.sizes=[3,4],inner.name=x"), "there")
    assert (config.inner.rate, config.inner.sizes, config.inner.name) == (1e-3, [3, 4], "x")
    assert (config.inner.steps, config.learning_rate) == (10, 0.1)
    # None where the field allows it, whole numbers for a float, anything for Any.
    override(config, {"inner": {"name": None, "rate": 2, "anything": {"x": 1}}}, "there")
    assert config.inner.name is None and config.inner.rate == 2


@pytest.mark.parametrize(
    "text", ["sources=[{path: a, weight: 2},{path: b, weight: 1}],seed=3", "{sources: [{path: a, "
    "weight: 2}, {path: b, weight: 1}], seed: 3}"]
)  # fmt: skip
def test_lists_of_configs(text):
    """Both forms; a later list takes the place of an earlier one, field by field and as a whole."""
    config = DataConfig()
    override(config, parse_override(text), "there")
    expected = [{"path": "a", "weight": 2.0}, {"path": "b", "weight": 1.0}]
    assert config.as_dict()["sources"] == expected and config.seed == 3
    assert all(isinstance(source, SourceConfig) for source in config.sources)
    assert config.replace(seed=1).sources[0].path == "a"
    override(config, {"sources": [{"path": "c"}, {"path": "d"}]}, "there")
    assert config.as_dict()["sources"] == [{"path": p, "weight": None} for p in "cd"]
    override(config, {"sources": [{"path": "e"}]}, "there")
    assert config.folders() == ["e"]
    override(config, {"sources": []}, "there")
    assert config.folders() == []
    with pytest.raises(UserError, match=r"unknown key sources\[0\].*wieght"):
        override(config, {"sources": [{"wieght": 1}]}, "there")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"step": 1}, "unknown key inner.step; did you mean inner.steps?"),
        # None is near.
        ({"zzz": 1}, "unknown key inner.zzz; valid: rate, steps, name, on, sizes, anything"),
        ({3: 1}, "unknown key inner.3; valid: rate, steps, name, on, sizes, anything"),
        ({"steps": 1.0}, "inner.steps must be int, got 1.0"),
        ({"steps": True}, "inner.steps must be int, got True"),
        ({"rate": "fast"}, "inner.rate must be a number, got 'fast'"),
        ({"rate": False}, "inner.rate must be a number, got False"),
        ({"on": 1}, "inner.on must be bool, got 1"),
        ({"name": 3}, "inner.name must be str, got 3; quote it"),
        ({"sizes": [1, "x"]}, "inner.sizes[1] must be int, got 'x'"),
        (7, "inner must be a mapping, got 7"),
    ],
)
def test_unknown_keys_and_wrong_types(values, message):
    """The field, the type and the value are named; nothing has changed."""
    config = Outer()
    with pytest.raises(UserError) as caught:
        override(config, {"learning_rate": 5.0, "inner": values}, "there")
    assert str(caught.value) == f"there: {message}"
    assert config == Outer()
