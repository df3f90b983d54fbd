"""Objectives that `register` refuses: in chunks their loss would silently be another one."""

import pytest

from official_cmlm.common.errors import UserError
from official_cmlm.objectives.base import Objective, ObjectiveConfig, objectives, register


class _Viewed(ObjectiveConfig):
    def view(self, data, facts):
        return None


def _own(*overridden, config=_Viewed, bases=(Objective,)):
    """Returns an objective that overrides these methods."""
    methods = dict.fromkeys(overridden, lambda *_: None)
    return type("_Own", bases, {"config_class": config, **methods})


@pytest.mark.parametrize(
    ("objective", "message"),
    [
        (_own("predict"), "overrides one of `predict` and `num_predictions`"),
        (_own("num_predictions"), "overrides one of `predict` and `num_predictions`"),
        (_own("call"), "overrides `call`, which a training never uses"),
        (_own(), "has no loss"),
        (_own("compare", config=ObjectiveConfig), "config_class does not say what it reads"),
    ],
)
def test_objectives_without_chunks_are_refused(objective, message):
    """With the class's full name, and nothing is registered."""
    with pytest.raises(UserError, match=f"{__name__}._Own.*{message}"):
        register("own")(objective)
    assert "own" not in objectives()


@pytest.mark.parametrize(
    "objective",
    [_own(bases=(_own("predict"), _own("num_predictions"))), _own("compare")],
    ids=["from two bases", "compares"],
)
def test_complete_ones_are_registered(objective, monkeypatch):
    """Also where the methods come from a base; the same name twice is refused."""
    monkeypatch.setattr("official_cmlm.objectives.base._OBJECTIVES", {})
    assert register("own")(objective) is objective
    assert objectives() == {"own": objective}
    with pytest.raises(UserError, match="has that name already"):
        register("own")(_own("compare"))
