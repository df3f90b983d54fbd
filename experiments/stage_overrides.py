"""What each stage of a chain overrides: its own values, and those that all stages share."""

import json
from typing import TYPE_CHECKING, Any

from experiments import registry
from official_cmlm.errors import UserError

if TYPE_CHECKING:
    from experiments.stages import Stage


def overrides_of(stage: "Stage", common: str | None) -> str | None:
    """A stage's own overrides and the common ones that concern it, as `--params_override`.

    To name an objective's field is to choose the objective. Common values below
    `task.objectives.X` are therefore only for the stages that have X by themselves, by their
    experiment, their files or their own overrides; the others must not begin to train it.

    Args:
      stage: the stage.
      common: the overrides of all stages, `a.b=1,c.d=2` or a YAML mapping; or None.

    Raises:
      UserError: for what cannot be read, see `registry.load`.
    """
    values = concerning(stage, common)
    return merged(stage.params_override, json.dumps(values) if values else None)


def concerning(stage: "Stage", common: str | None) -> dict[str, Any]:
    """Those of the common overrides that concern a stage; see `overrides_of`."""
    values = _parsed(common)
    if named := _named_objectives(values):
        used = _own_objectives(stage)
        task = dict(values["task"])
        task["objectives"] = {
            name: value
            for name, value in task["objectives"].items()
            if name in used or name not in named
        }
        values = {**values, "task": task}
    return values


def check_common(stages: list["Stage"], common: str | None, what: str = "stage") -> None:
    """Raises `UserError` if the common overrides name an objective that no stage has.

    Args:
      stages: all that share the overrides.
      common: see `overrides_of`.
      what: messages call the stages so.
    """
    named = _named_objectives(_parsed(common))
    if not named:
        return
    used = {name: None for stage in stages for name in sorted(_own_objectives(stage))}
    # null switches an objective off, which is no mistake where nobody has it.
    for name in [name for name, value in named.items() if value is not None and name not in used]:
        raise UserError(
            f"--params_override: task.objectives.{name}: no {what} trains {name}, they train "
            f"{', '.join(used)}; to add it, set it in the params_override of "
            f"one {what}"
        )


def merged(own: dict[str, Any], common: str | None) -> str | None:
    """Two overrides in one, as `--params_override` takes them; `common` wins over `own`."""

    def merge(into: dict, values: dict) -> dict:
        result = dict(into)
        for key, value in values.items():
            old = result.get(key)
            both = isinstance(old, dict) and isinstance(value, dict)
            result[key] = merge(old, value) if both else value
        return result

    values = merge(own, _parsed(common))
    return json.dumps(values) if values else None


def _parsed(text: str | None) -> dict[str, Any]:
    from official_cmlm.configs.yaml_loading import parse_override

    return parse_override(text) if text else {}


def _named_objectives(values: dict[str, Any]) -> dict[str, Any]:
    """What stands below `task.objectives`, of objectives that exist.

    Everything else is left where it is, for the configuration's own checks to complain about.
    """
    from official_cmlm.objectives import objectives

    task = values.get("task")
    named = task.get("objectives") if isinstance(task, dict) else None
    if not isinstance(named, dict):
        return {}
    return {name: value for name, value in named.items() if name in objectives()}


def _own_objectives(stage: "Stage") -> set[str]:
    """The objectives of a stage without any common overrides."""
    from official_cmlm.tasks.config import chosen_objectives

    own = merged(stage.params_override, None)
    config = registry.load(stage.experiment, list(stage.config_files), own)
    return set(chosen_objectives(config.task.objectives))
