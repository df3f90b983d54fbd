"""Finds the experiments: each YAML file below this folder is an experiment named by its path.

A YAML file elsewhere is an experiment too; its name is its path with `.yaml`.
"""

import dataclasses
import difflib
import functools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from official_cmlm import cli
from official_cmlm.common.errors import UserError
from official_cmlm.common.validation import Flag

_ROOT = Path(__file__).parent
# These folders hold other YAML files than experiments.
_OTHER = ("chains", "studies")
# Least summaries of a training: a curve needs five points, and with 20 its ends tell something too.
_LEAST_SUMMARIES = 20


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExperimentRequest:
    """An experiment and the values that change it, as flags; names are as in Model Garden's driver.

    Attributes:
      experiment: name of an experiment, as `cmlm train --experiment=?` lists them, or a YAML file
        of your own, which ends in .yaml.
      data: folder of records to train on; it overrides task.train_data.input_path. Default: as the
        other values say.
      config_file: YAML file that overrides the experiment's values; may be repeated, later ones
        win. Default: none.
      params_override: values that override all files: a.b=1,c.d=2 or a YAML mapping. Default: none.
    """

    experiment: str
    data: str | None = None
    config_file: Annotated[tuple[str, ...], Flag(repeats=True)] = ()
    params_override: str | None = None

    def load(self, init_checkpoint: str | None = None, notes: list[str] | None = None):  # noqa: ANN201
        """Builds the configuration; see `load`."""
        changes = (self.config_file, self.params_override)
        return load(self.experiment, *changes, init_checkpoint, notes, self.data)


@functools.cache
def experiment_files() -> dict[str, Path]:
    """Returns experiment name, e.g. `cmlm/english_base`, -> its YAML file."""
    files = {}
    for path in sorted(_ROOT.rglob("*.yaml")):
        relative = path.relative_to(_ROOT)
        if relative.parts[0] not in _OTHER:
            files[relative.with_suffix("").as_posix()] = path
    return files


def read_summary(path: Path) -> str:
    """Returns the first comment line of a YAML file."""
    first = path.read_text(encoding="utf-8").split("\n", 1)[0]
    return first.lstrip("# ").strip() if first.startswith("#") else ""


def list_files(files: dict[str, Path]) -> str:
    """Returns a line about each of the files that come with the project, by name."""
    width = max(map(len, files))
    return "\n".join(f"  {name:<{width}}  {read_summary(path)}" for name, path in files.items())


def load(  # noqa: ANN201 - the type would import TensorFlow
    name: str,
    config_files: Sequence[str] | None = None,
    params_override: str | dict[str, Any] | None = None,
    init_checkpoint: str | None = None,
    notes: list[str] | None = None,
    data: str | None = None,
):
    """Builds an experiment's configuration.

    Values are applied in this order, later ones override earlier ones: the defaults, the file of
    the experiment's `base`, the experiment's file, the network of `init_checkpoint`, each of
    `config_files`, `params_override`, `data`.

    Args:
      name: an experiment's name, which `.yaml` may follow; or the path of a user's own `.yaml`.
      config_files: paths of YAML files with the same keys.
      params_override: `a.b=1,c.d=2`, a YAML mapping, or that mapping read.
      init_checkpoint: encoder to start from: a folder, a checkpoint, or a name as `find_encoder`
        takes it. Fields that describe its network are taken from there, so that the weights fit;
        from a sentence encoder also the fields of its vector, except for those that the experiment
        `needs`. See `official_cmlm.training.inherited_fields`.
      notes: lines about these fields are appended to it, one for each that differs.
      data: folder of the records to train on, `task.train_data.input_path`.

    Returns:
      A locked `SentenceEncoderExperimentConfig`.

    Raises:
      UserError: for an unknown experiment, file, key or a value of the wrong type.
    """
    # These import TensorFlow; listing the experiments must not wait for that.
    from official_cmlm.common.validation import check_fields
    from official_cmlm.configs.schedule import check_schedule
    from official_cmlm.training.config import SentenceEncoderExperimentConfig
    from official_cmlm.training.inherited_fields import read_starting_encoder

    files = read_files(name)
    needed = {field for values, path in files for field in _take_needs(values, path)}
    config = SentenceEncoderExperimentConfig()
    _apply(config, files)
    start, experiment = None, config.task.encoder.replace()
    if init_checkpoint:
        init_checkpoint = _find_start(init_checkpoint)
        start = read_starting_encoder(init_checkpoint)
        named = {field for values, _ in files for field in get_mapping(values, "task", "encoder")}
        task = {"encoder": start.fields_to_inherit(needed, named)}
        task["init_checkpoint"] = init_checkpoint
        _apply(config, [({"task": task}, init_checkpoint)])
    changes = _list_changes(config_files or (), params_override, data)
    _apply(config, changes)
    fields = {field for values, _ in changes for field in get_mapping(values, "trainer")}
    if "train_steps" in fields and "summary_interval" not in fields:
        _report_often(config.trainer, "steps_per_loop" in fields)
    if start is not None:
        task = {"encoder": start.fields_to_reset(config.task.encoder)}
        _apply(config, [({"task": task}, "start")])
    check_fields(config, "", recursive=True)
    if config.trainer.schedule is not None:
        check_schedule(config.trainer)
    if config.trainer.train_epochs is not None:
        # The training counts the steps of its epochs.
        config.trainer.train_steps = 0
    if notes is not None:
        notes += _start_notes(config, start, experiment, needed)
    config.lock()
    return config


def _list_changes(
    config_files: Sequence[str], params_override: str | dict[str, Any] | None, data: str | None
) -> list[tuple[dict[str, Any], str]]:
    """Returns (values, source) of the files and flags that change an experiment."""
    from official_cmlm.configs.yaml_loading import parse_override, read_yaml

    changes = [(read_yaml(Path(file)) or {}, str(file)) for file in config_files]
    if params_override:
        is_text = isinstance(params_override, str)
        values = parse_override(params_override) if is_text else params_override
        changes.append((values, "--params_override"))
    if data is not None:
        changes.append(({"task": {"train_data": {"input_path": data}}}, "--data"))
    return changes


def _apply(config: Any, sources: Sequence[tuple[dict, str | Path]]) -> None:
    """Overrides `config` by the values of each source in turn.

    If a source chooses one of Model Garden's learning rates and no schedule, it replaces the
    schedule of earlier sources. If it sets steps and no epochs, they replace the epochs of earlier
    sources.
    """
    from official_cmlm.configs.yaml_loading import override

    for values, where in sources:
        override(config, values, str(where))
        trainer = get_mapping(values, "trainer")
        rate = get_mapping(trainer, "optimizer_config", "learning_rate")
        if rate.get("type") and "schedule" not in trainer:
            config.trainer.schedule = None
        if "train_steps" in trainer and "train_epochs" not in trainer:
            config.trainer.train_epochs = None
        _drop_long_buckets(config, values)


def _report_often(trainer: Any, loop_is_given: bool) -> None:
    """Lowers the summary interval until a training has `_LEAST_SUMMARIES`, which make a curve."""
    interval = max(1, trainer.train_steps // _LEAST_SUMMARIES)
    if trainer.train_steps < 1 or interval >= trainer.summary_interval:
        return
    if not loop_is_given:
        trainer.steps_per_loop = min(trainer.steps_per_loop, interval)
    loops = max(1, interval // trainer.steps_per_loop)
    trainer.summary_interval = loops * trainer.steps_per_loop


def _drop_long_buckets(node: Any, values: Any, where: str = "") -> None:
    """Ends buckets at `seq_length` where a source sets it without `bucket_boundaries`."""
    if node is None or not isinstance(values, dict):
        return
    for name, value in values.items():
        _drop_long_buckets(getattr(node, name, None), value, f"{where}.{name}".strip("."))
    buckets = list(getattr(node, "bucket_boundaries", []))
    if not buckets or "seq_length" not in values or "bucket_boundaries" in values:
        return
    if buckets[-1] != node.seq_length:
        shorter = [length for length in buckets if length < node.seq_length]
        node.bucket_boundaries = [*shorter, node.seq_length]
        lengths = ", ".join(map(str, node.bucket_boundaries))
        cli.announce(f"{where}.bucket_boundaries: {lengths}, as seq_length is {node.seq_length}")


def _find(name: Any, path: Path | None = None) -> Path:
    """Returns the file of an experiment: a user's own, or a shipped one.

    A name in the file `path` is seen from there.
    """
    files = experiment_files()
    if isinstance(name, str):
        own = (path.parent if path else Path()) / Path(name).expanduser()
        if own.suffix == ".yaml" and own.is_file():
            return own.resolve()
        if shipped := files.get(name.removesuffix(".yaml")):
            return shipped
    near = difflib.get_close_matches(str(name)[:80], files, n=3, cutoff=0.4)
    hint = f"did you mean {', '.join(near)}? " if near else ""
    where, seen = (f"{path}: base: ", ", seen from this one") if path else ("", "")
    raise UserError(
        f"{where}no experiment is called {name!r:.80}; {hint}--experiment=? lists all that there"
        f" are, beside files of your own that end in .yaml{seen}"
    )


def read_files(name: str) -> list[tuple[dict, Path]]:
    """Reads an experiment's file and those of the experiments that it is based on.

    `base: cmlm/english_base` at the top of a file takes over another experiment, so that an
    ablation says only what it changes. A user's own file is named by its path relative to the file
    that names it.

    Returns:
      (values, file), each after the file that it is based on.

    Raises:
      UserError: for an unknown experiment, or bases that lead back to one of these files.
    """
    from official_cmlm.configs.yaml_loading import read_yaml

    files: list[tuple[dict, Path]] = []
    path = _find(name)
    while True:
        values = read_yaml(path) or {}
        base = values.pop("base", None) if isinstance(values, dict) else None
        files.insert(0, (values, path))
        if base is None:
            return files
        path = _find(base, path)
        if path in [earlier for _, earlier in files]:
            raise UserError(f"{files[0][1]}: its bases lead back to {path}")


def get_mapping(values: Any, *keys: str) -> dict[str, Any]:
    """Returns the mapping at a path of nested values, empty where there is none."""
    for key in keys:
        values = values.get(key) if isinstance(values, dict) else None
    return values if isinstance(values, dict) else {}


def _take_needs(values: dict, path: Path) -> list[str]:
    """Removes `needs` from a file's values, and returns fields of `task.encoder`.

    A start from another encoder must not change these. A shipped file lists them under `needs` if
    they belong to the method, as in an ablation of the pooling. In a user's own file without
    `needs`, all fields of the sentence vector that it sets are needed.
    """
    from official_cmlm.training.inherited_fields import VECTOR_FIELDS

    needs = values.pop("needs", None) if isinstance(values, dict) else None
    if needs is None:
        is_shipped = path.resolve().is_relative_to(_ROOT.resolve())
        set_fields = () if is_shipped else get_mapping(values, "task", "encoder")
        return [name for name in set_fields if name in VECTOR_FIELDS]
    if not isinstance(needs, list) or not set(map(str, needs)) <= set(VECTOR_FIELDS):
        raise UserError(
            f"{path}: needs must be a list of {', '.join(VECTOR_FIELDS)}, got {needs!r}"
        )
    return needs


def _find_start(init_checkpoint: str) -> str:
    """Returns the encoder directory or checkpoint of a path or of an encoder's name.

    Raises:
      UserError: see `find_encoder` and `encoder_directory_of`.
    """
    from official_cmlm.checkpoints.encoder_directory import EncoderDirectory
    from official_cmlm.checkpoints.find_encoder import encoder_directory_of, find_encoder

    folder = os.path.dirname(init_checkpoint)
    if folder and EncoderDirectory.is_at(folder):
        # A checkpoint of an encoder directory, or a directory within one.
        return init_checkpoint
    place = find_encoder(init_checkpoint)
    if EncoderDirectory.is_at(init_checkpoint):
        return init_checkpoint
    return os.fspath(encoder_directory_of(place).path)


def _start_notes(config: Any, start: Any, experiment: Any, needed: set[str]) -> list[str]:
    """Describes the fields in which a training, its experiment and its starting encoder differ."""
    from official_cmlm.training.config import get_objectives
    from official_cmlm.training.inherited_fields import read_starting_encoder

    folder = config.task.init_checkpoint
    if start is None:
        if not folder or folder.startswith("<"):
            return []
        try:
            start = read_starting_encoder(folder)
        except UserError:
            # The training reports the error itself.
            return []
    lines = start.notes(experiment, config.task.encoder, needed)
    if get_objectives(config.task.objectives):
        lines += start.length_notes(config.task.longest_sequence())
    return lines
