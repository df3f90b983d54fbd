"""Objectives that `register` refuses: in chunks their loss would silently be another one."""

import pytest

from official_cmlm.errors import UserError
from official_cmlm.objectives.base import Objective, ObjectiveConfig, objectives, register


class _Config(ObjectiveConfig):
    def view(self, data, facts):
        return None


class _Viewed(Objective):
    config_class = _Config


class _Viewless(Objective):
    def compare(self, vectors):
        return None


class _Predicts(_Viewed):
    def predict(self, features, encode, vectors):
        return None


class _Counts(_Viewed):
    def num_predictions(self, features):
        return None


class _Calls(_Viewed):
    def call(self, features, encode):
        return None


class _PredictsBoth(_Predicts, _Counts):
    """The two halves from two bases."""


class _Compares(_Viewed):
    def compare(self, vectors):
        return None


@pytest.mark.parametrize(
    ("objective", "message"),
    [
        (_Predicts, "overrides one of `predict` and `num_predictions`"),
        (_Counts, "overrides one of `predict` and `num_predictions`"),
        (_Calls, "overrides `call`, which a training never uses"),
        (_Viewed, "has no loss"),
        (_Viewless, "config_class does not say what it reads"),
    ],
)
def test_what_cannot_be_computed_in_chunks_is_refused(objective, message):
    """With the class's full name, and nothing is registered."""
    with pytest.raises(UserError, match=f"{objective.__name__}.*{message}"):
        register("own")(objective)
    assert "own" not in objectives()


@pytest.mark.parametrize("objective", [_PredictsBoth, _Compares])
def test_complete_ones_are_registered(objective, monkeypatch):
    """Also where the methods come from a base; the same name twice is refused."""
    monkeypatch.setattr("official_cmlm.objectives.base._OBJECTIVES", {})
    assert register("own")(objective) is objective
    assert objectives() == {"own": objective}
    with pytest.raises(UserError, match="has that name already"):
        register("own")(_Compares)
