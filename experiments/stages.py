"""Stages: experiments that follow each other, each from the encoder that the one before left."""

import dataclasses
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from experiments import registry
from official_cmlm.errors import UserError

_ROOT = Path(__file__).parent / "stages"
_FIELDS = ("name", "experiment", "mode", "config_files", "params_override")
_MODES = ("train", "train_and_eval")


@dataclasses.dataclass(frozen=True)
class Stage:
    """One training of a chain.

    Attributes:
      name: of its folder.
      experiment: an experiment's name.
      mode: `train` (default) or `train_and_eval`.
      config_files, params_override: what the stage changes of the experiment; the latter a mapping.
    """

    name: str
    experiment: str
    mode: str = "train"
    config_files: tuple[str, ...] = ()
    params_override: dict[str, Any] = dataclasses.field(default_factory=dict)


def stage_files() -> dict[str, Path]:
    """Name, e.g. `bitext_s3`, -> the file of a chain that comes with the project."""
    return {path.stem: path for path in sorted(_ROOT.glob("*.yaml"))}


def read_stages(name: str) -> list[Stage]:
    """Reads a chain: a YAML file with the key `stages`, or the name of one of the project's.

    Raises:
      UserError: for a missing file, an unknown key, or a stage without name or experiment.
    """
    from official_cmlm.configs.yaml_loading import parse_yaml

    path = stage_files().get(name.removesuffix(".yaml"), Path(name))
    if not path.is_file():
        raise UserError(f"{name}: no such file of stages; there are {', '.join(stage_files())}")
    values = parse_yaml(path.read_text(encoding="utf-8"), str(path))
    listed = values.get("stages") if isinstance(values, dict) else None
    if not isinstance(listed, list) or not listed or list(values) != ["stages"]:
        raise UserError(f"{path}: must hold one key, stages, with a list of them")
    stages = [_stage(entry, f"{path}: stage {i}") for i, entry in enumerate(listed, 1)]
    if len({stage.name for stage in stages}) != len(stages):
        raise UserError(f"{path}: two stages have the same name")
    return stages


def _stage(entry: Any, where: str) -> Stage:
    if not isinstance(entry, dict) or not {"name", "experiment"} <= entry.keys():
        raise UserError(f"{where}: must be a mapping with name and experiment, got {entry!r}")
    if unknown := [key for key in entry if key not in _FIELDS]:
        raise UserError(f"{where}: unknown key {unknown[0]}; valid: {', '.join(_FIELDS)}")
    if entry.get("mode", _MODES[0]) not in _MODES:
        raise UserError(f"{where}: mode must be one of {', '.join(_MODES)}; got {entry['mode']!r}")
    name = str(entry["name"])
    if not name or "/" in name:
        raise UserError(f"{where}: name {name!r} cannot be that of a folder")
    return Stage(**{**entry, "name": name, "config_files": tuple(entry.get("config_files") or ())})


def load_stages(
    stages: list[Stage], init_checkpoint: str | None, params_override: str | None
) -> list[tuple[Stage, Any]]:
    """Loads and checks all stages, before the first of them runs.

    Args:
      stages: the chain.
      init_checkpoint: what the first stage starts from, or None.
      params_override: of all stages, behind their own.

    Raises:
      UserError: if a stage cannot work, or if the encoder or vocabulary of one differs from that of
        the one before.
    """
    from official_cmlm.checkpoints.encoder_directory import differences
    from official_cmlm.tasks.sentence_encoder import SentenceEncoderTask

    loaded, before = [], None
    for stage in stages:
        overrides = merged(stage.params_override, params_override)
        config = registry.load(
            stage.experiment, list(stage.config_files), overrides, init_checkpoint
        )
        task = SentenceEncoderTask(config.task)
        encoder = config.task.encoder.replace(vocab_size=len(task.vocabulary))
        if before is None:
            registry.check_start(config.task.init_checkpoint)
        else:
            differing = differences(before[1], encoder)
            if differing:
                raise UserError(
                    f"stage {stage.name}: its encoder is of another architecture than that of "
                    f"stage {before[0]}: {', '.join(differing)}; make them equal"
                )
            if before[2] != task.vocabulary.hash:
                raise UserError(
                    f"stage {stage.name}: its records were made with vocabulary "
                    f"{task.vocabulary.hash}, those of stage {before[0]} with {before[2]}; make "
                    "all records with one vocabulary"
                )
        before = (stage.name, encoder, task.vocabulary.hash)
        loaded.append((stage, config))
    return loaded


def merged(own: dict[str, Any], common: str | None) -> str | None:
    """A stage's own overrides and those of all stages, as `--params_override` takes them."""
    from official_cmlm.configs.yaml_loading import parse_override

    def merge(into: dict, values: dict) -> dict:
        result = dict(into)
        for key, value in values.items():
            old = result.get(key)
            both = isinstance(old, dict) and isinstance(value, dict)
            result[key] = merge(old, value) if both else value
        return result

    values = merge(own, parse_override(common) if common else {})
    return json.dumps(values) if values else None


def is_finished(folder: Path, train_steps: int) -> bool:
    """Whether the folder holds a checkpoint of the last step."""
    import tensorflow as tf

    prefix = tf.train.latest_checkpoint(str(folder))
    if prefix is None:
        return False
    step = tf.train.load_checkpoint(prefix).get_tensor("global_step/.ATTRIBUTES/VARIABLE_VALUE")
    return int(step) >= train_steps


def run_stages(
    loaded: list[tuple[Stage, Any]],
    model_dir: Path,
    init_checkpoint: str | None,
    params_override: str | None,
    run: Callable[[list[str]], int] = subprocess.call,
) -> Path:
    """Trains the stages that are not finished, each in a process and a folder of its own.

    Args:
      loaded: see `load_stages`.
      model_dir: stage i is trained in `model_dir/0i_name`; one that was interrupted goes on.
      init_checkpoint, params_override: see `load_stages`.
      run: starts a program and returns its exit status.

    Returns:
      The folder of the last stage.

    Raises:
      UserError: if a stage fails; its own message came before.
    """
    start = init_checkpoint
    for index, (stage, config) in enumerate(loaded, 1):
        folder = model_dir / f"{index:02d}_{stage.name}"
        steps = config.trainer.train_steps
        if is_finished(folder, steps):
            print(f"[{index}/{len(loaded)}] {stage.name}: finished, {steps} steps", flush=True)
        else:
            print(f"[{index}/{len(loaded)}] {stage.name}: {stage.experiment}, {steps} steps")
            sys.stdout.flush()
            run_experiment(stage, folder, start, params_override, run)
        start = str(folder)
    return Path(start)


def run_experiment(
    stage: Stage,
    folder: Path,
    start: str | None,
    params_override: str | None,
    run: Callable[[list[str]], int] = subprocess.call,
) -> None:
    """Trains one stage in a process of its own; see `run_stages`."""
    status = run(_command(stage, folder, start, params_override))
    if status:
        raise UserError(
            f"stage {stage.name} ended with status {status}; the same command goes on from its "
            "last checkpoint"
        )


def _command(
    stage: Stage, folder: Path, start: str | None, params_override: str | None
) -> list[str]:
    overrides = merged(stage.params_override, params_override)
    return [
        sys.executable,
        "-m",
        "experiments.train",
        f"--experiment={stage.experiment}",
        f"--mode={stage.mode}",
        f"--model_dir={folder}",
        *(f"--config_file={path}" for path in stage.config_files),
        *([f"--params_override={overrides}"] if overrides else []),
        *([f"--init_checkpoint={start}"] if start else []),
    ]
