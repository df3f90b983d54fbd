"""Chains of experiments: each starts from the encoder of the experiment before it."""

import dataclasses
import functools
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

from official_cmlm import cli
from official_cmlm.common import signals
from official_cmlm.common.errors import UserError, guard_reader, within
from official_cmlm.common.validation import Matching, OneOf, read_dataclass
from official_cmlm.training.progress import check_completed

from . import registry
from .runner import Runner

_ROOT = Path(__file__).parent / "chains"
_MODES = ("train", "train_and_eval")
_FOLDER = Matching(r"[\w+-]([\w .,+-]*[\w+-])?", "the name of a folder: letters, digits, _ and -")


@dataclasses.dataclass(frozen=True)
class Stage:
    """One stage of a chain: the training of one experiment.

    Attributes:
      name: name of its folder.
      experiment: name of the experiment.
      mode: `train` (default) or `train_and_eval`.
      config_files: YAML files that change the experiment.
      params_override: a mapping that changes the experiment, after `config_files`.
    """

    name: Annotated[str, _FOLDER]
    experiment: str
    mode: Annotated[str, OneOf(_MODES)] = "train"
    config_files: tuple[str, ...] = ()
    params_override: dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Chain:
    """The content of a chain's file: its stages in order."""

    stages: list[Stage]


def stage_files() -> dict[str, Path]:
    """Returns name, e.g. `bitext_s3`, -> the file of each chain that comes with the project."""
    return {path.stem: path for path in sorted(_ROOT.glob("*.yaml"))}


@guard_reader("check the file")
def read_stages(name: str) -> list[Stage]:
    """Reads a chain: a YAML file with the key `stages`, or the name of one of the project's.

    Raises:
      UserError: for a missing file, an unknown key, a value of the wrong type, or a stage without
        name or experiment.
    """
    from official_cmlm.configs.yaml_loading import read_yaml

    path = stage_files().get(name.removesuffix(".yaml"), Path(name))
    if not path.is_file():
        raise UserError(f"{name}: no such file of stages; there are {', '.join(stage_files())}")
    stages = read_dataclass(Chain, read_yaml(path), str(path)).stages
    if not stages:
        raise UserError(f"{path}: stages is empty; name at least one")
    if len({stage.name for stage in stages}) != len(stages):
        raise UserError(f"{path}: two stages have the same name")
    return stages


def load_stages(
    stages: list[Stage], init_checkpoint: str | None, common: dict[str, Any]
) -> list[tuple[Stage, Any]]:
    """Loads and checks all stages, before the first of them runs.

    Args:
      stages: the chain.
      init_checkpoint: what the first stage starts from, or None.
      common: overrides for all stages, applied after the stages' own; see `select_overrides`.

    Returns:
      Each stage, with all overrides as its own, and its whole experiment.

    Raises:
      UserError: if a stage is invalid, if its encoder or vocabulary differs from that of the stage
        before, or if `common` names an objective that no stage has.
    """
    check_common(stages, common)
    loaded, before = [], None
    for number, stage in enumerate(stages, 1):
        cli.announce(f"[{number}/{len(stages)}] checking {stage.name}")
        with within(f"stage {stage.name}"):
            overrides = merge(stage.params_override, select_overrides(stage, common))
            stage = dataclasses.replace(stage, params_override=overrides)
            files = list(stage.config_files)
            config = registry.load(stage.experiment, files, overrides, init_checkpoint)
            before = check_training(config, f"stage {stage.name}", stage.mode, before)
        loaded.append((stage, config))
    return loaded


def check_training(
    config: Any, name: str, mode: str, before: tuple[str, Any, str] | None
) -> tuple[str, Any, str]:
    """Checks one of several trainings before the first of them runs.

    Args:
      config: the whole experiment.
      name: name of the training in messages.
      mode: mode of `experiments.train`.
      before: what this function returned for the training that it starts from; None if it starts
        from random weights or from an existing encoder.

    Returns:
      `name`, the encoder's configuration, the vocabulary's hash.

    Raises:
      UserError: if the training is invalid, or its encoder or vocabulary differs from `before`'s.
    """
    from official_cmlm.checkpoints.encoder_directory import differences
    from official_cmlm.training.checks import check_run
    from official_cmlm.training.config import check_start
    from official_cmlm.training.run import with_counted_steps
    from official_cmlm.training.runtime import num_replicas
    from official_cmlm.training.task import SentenceEncoderTask

    task = SentenceEncoderTask(config.task)
    encoder = task.encoder_config
    if before is None:
        check_start(config.task.init_checkpoint)
    else:
        if differing := differences(before[1], encoder):
            raise UserError(
                f"its encoder is of another architecture than that of {before[0]}: "
                f"{', '.join(differing)}; make them equal"
            )
        if before[2] != task.vocabulary.hash:
            raise UserError(
                f"its records were made with vocabulary {task.vocabulary.hash}, those of "
                f"{before[0]} with {before[2]}; make all records with one vocabulary"
            )
    replicas = num_replicas(config.runtime)
    check_run(with_counted_steps(config, task, replicas), task, mode, replicas)
    return name, encoder, task.vocabulary.hash


def is_finished(folder: Path, length: str, result: dict[str, Any]) -> bool:
    """Returns whether a stage was trained to this length, and its last checkpoint is whole.

    Args:
      folder: the stage's folder.
      length: see `describe_length`.
      result: the `length` that the stage was trained to, and its last `checkpoint`.
    """
    from official_cmlm.checkpoints.integrity import damage

    name = _name_last_checkpoint(folder)
    is_last = name is not None and result.get("checkpoint") == name
    return result["length"] == length and is_last and damage(str(folder / name)) is None


def _name_last_checkpoint(folder: Path) -> str | None:
    """Returns the name of a folder's newest checkpoint, such as `ckpt-200`; None without any."""
    from official_cmlm.checkpoints.integrity import checkpoints_of

    return next((os.path.basename(prefix) for prefix in checkpoints_of(folder)), None)


def describe_length(trainer: Any) -> str:
    """Returns the length of a training in words, in steps or epochs as its configuration has it."""
    epochs = trainer.train_epochs
    return f"{epochs} epoch{'s' * (epochs > 1)}" if epochs else f"{trainer.train_steps} steps"


def run_stages(
    loaded: list[tuple[Stage, Any]],
    model_dir: Path,
    init_checkpoint: str | None,
    call: Callable[[list[str]], int] = signals.call,
    import_modules: Sequence[str] = (),
) -> Path:
    """Trains the stages that are not finished, each in a process and a folder of its own.

    Args:
      loaded: see `load_stages`.
      model_dir: stage i is trained in `model_dir/0i_name`; an interrupted stage is resumed.
      init_checkpoint: see `load_stages`.
      call: runs a command and returns its exit status.
      import_modules: as `--import_module` of `experiments.train`.

    Returns:
      The folder of the last stage.

    Raises:
      UserError: if a stage fails, after the stage's own message; if a stage's folder is there
        and no run of the chain has begun it.
      Stopped: if a stage was stopped before its last step.
    """
    start = init_checkpoint
    with Runner(model_dir, "chain", call) as runner:
        for index, (stage, config) in enumerate(loaded, 1):
            folder, length = (
                model_dir / f"{index:02d}_{stage.name}",
                describe_length(config.trainer),
            )
            act = functools.partial(train, runner, stage, folder, start, import_modules)
            is_whole = functools.partial(is_finished, folder, length)
            title, about = f"[{index}/{len(loaded)}] {stage.name}", f"{stage.experiment}, {length}"
            with within(f"stage {stage.name}"):
                runner.run_part(
                    folder.name,
                    lambda act=act, length=length: {"length": length, "checkpoint": act()},
                    *(title, about),
                    output=folder,
                    is_whole=is_whole,
                )
            start = str(folder)
    return Path(start)


def train(
    runner: Runner,
    stage: Stage,
    folder: Path,
    start: str | None,
    import_modules: Sequence[str] = (),
) -> str | None:
    """Trains one stage in a process of its own; see `run_stages`.

    Returns:
      The name of its last checkpoint, such as `ckpt-200`; None without any.
    """
    runner.start(
        "experiments.train",
        experiment=stage.experiment,
        mode=stage.mode,
        model_dir=folder,
        config_file=stage.config_files,
        import_module=tuple(import_modules),
        params_override=json.dumps(stage.params_override) if stage.params_override else None,
        init_checkpoint=start,
    )
    check_completed(folder)
    return _name_last_checkpoint(folder)


def select_overrides(stage: Stage, common: dict[str, Any]) -> dict[str, Any]:
    """Returns the part of the common overrides that applies to one stage.

    Setting a field of an objective also adds the objective to the experiment. Common values below
    `task.objectives.X` therefore apply only to stages that have X by their experiment, their files
    or their own overrides; they must not add X to other stages.
    """
    unused = _select_objectives(common).keys()
    if not unused:
        return common
    unused -= _own_objectives(stage)
    task = common["task"]
    objectives = {name: one for name, one in task["objectives"].items() if name not in unused}
    return {**common, "task": {**task, "objectives": objectives}}


def check_common(stages: list[Stage], common: dict[str, Any], what: str = "stage") -> None:
    """Raises `UserError` if the common overrides name an objective that no stage has."""
    # null switches an objective off, which is valid even if no stage has it.
    named = [name for name, value in _select_objectives(common).items() if value is not None]
    trained = {name: None for stage in stages if named for name in sorted(_own_objectives(stage))}
    for name in [name for name in named if name not in trained]:
        raise UserError(
            f"--params_override: task.objectives.{name}: no {what} trains {name}, they train "
            f"{', '.join(trained)}; to add it, set it in the params_override of one {what}"
        )


def merge(values: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """Returns two nested mappings merged; where both have a value, the value of `over` wins.

    >>> merge({"a": {"b": 1, "c": 2}}, {"a": {"b": 3}})
    {'a': {'b': 3, 'c': 2}}
    """
    merged = dict(values)
    for key, value in over.items():
        both = isinstance(values.get(key), dict) and isinstance(value, dict)
        merged[key] = merge(values[key], value) if both else value
    return merged


def _select_objectives(values: dict[str, Any]) -> dict[str, Any]:
    """Returns the values below `task.objectives` whose names are objectives.

    Other names are left out here; the checks of the configuration report them.
    """
    from official_cmlm.objectives import objectives

    named = registry.get_mapping(values, "task", "objectives")
    return {name: value for name, value in named.items() if name in objectives()}


def _own_objectives(stage: Stage) -> frozenset[str]:
    """Returns the objectives of a stage without any common overrides."""
    return _load_objectives(stage.experiment, stage.config_files, json.dumps(stage.params_override))


@functools.lru_cache(maxsize=256)
def _load_objectives(experiment: str, files: tuple[str, ...], override: str) -> frozenset[str]:
    from official_cmlm.training.config import get_objectives

    config = registry.load(experiment, files, json.loads(override))
    return frozenset(get_objectives(config.task.objectives))
