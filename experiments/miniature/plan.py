"""The arms of a study with all seeds, checked before the first of them trains; their versions.

A version is a hash of all that an arm's weights, or its scores, depend on.
"""

import contextlib
import dataclasses
import hashlib
import json
import string
import textwrap
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from official_cmlm.errors import UserError
from official_cmlm.files import read_object

from .. import chains, registry
from ..chains import check_common, concerning, merged
from .records import content, write_aside
from .study import GIVEN, Arm, Study, expand

# In an arm's model directory: which version of the arm it belongs to.
_ARM_NAME = "study_arm.json"
# What a result holds that a report reads.
_RESULT_FIELDS = (
    *("arm", "seed", "experiment", "study_version", "settings", "scores", "protocols"),
    *("evaluation_files", "steps", "examples", "tokens", "seconds", "wall_seconds"),
    *("devices", "versions"),
)


@dataclasses.dataclass(frozen=True)
class Run:
    """An arm with one seed, ready to be trained.

    Attributes:
      arm, seed: which.
      folder: its model directory.
      start: encoder directory that it starts from; None: random weights.
      overrides: of the experiment, all of them.
      config: the resolved experiment.
      identity: all that its weights depend on, records and start by their contents.
      model_version: hash of that.
      version: hash of all that its scores depend on, but for the evaluation's files.
    """

    arm: Arm
    seed: int
    folder: Path
    start: Path | None
    overrides: dict[str, Any]
    config: Any
    identity: dict[str, Any]
    model_version: str
    version: str

    @property
    def name(self) -> str:
        """Of its folder and its result."""
        return f"{self.arm.name}.{self.seed}"


def result_path(work_dir: Path, arm: Arm, seed: int) -> Path:
    """The file of an arm's scores."""
    return work_dir / "results" / f"{arm.name}.{seed}.json"


def settings(study: Study, arm: Arm) -> dict[str, Any]:
    """All in the study's file that an arm's scores depend on, of its start only the name."""
    # Results of arms that do not name it are older than the field.
    vector = {"sentence_vector": arm.sentence_vector} if arm.sentence_vector else {}
    return {
        "experiment": arm.experiment,
        "params_override": _overrides(study, arm),
        "starts_from": arm.starts_from,
        "start_seed": arm.start_seed,
        "train": arm.train,
        "suites": study.scores.suites,
        "set": study.scores.set,
        "validation": study.scores.validation,
        **vector,
    }


def _overrides(study: Study, arm: Arm) -> dict[str, Any]:
    """Those of `common` that concern an arm, and its own, which win."""
    stage = chains.Stage(arm.name, arm.experiment, params_override=arm.params_override)
    common = concerning(stage, json.dumps(study.common))
    return json.loads(merged(common, json.dumps(arm.params_override)) or "{}")


def read_result(study: Study, work_dir: Path, arm: Arm, seed: int) -> dict[str, Any] | None:
    """The result of an arm and a seed; None where there is none yet.

    Raises:
      UserError: if the file is damaged, or the study says something else about the arm now.
    """
    path = result_path(work_dir, arm, seed)
    if not path.is_file():
        return None
    found = read_object(path, "delete it to score the arm anew")
    whole = found.keys() >= set(_RESULT_FIELDS)
    if not whole or (found["arm"], found["seed"]) != (arm.name, seed):
        raise UserError(f"{path}: no result of this arm; delete it to score the arm anew")
    # Through JSON, as what was written.
    now = json.loads(json.dumps(settings(study, arm)))
    if differing := _first_difference(found["settings"], now):
        field = differing.split(".")[0].split(" ")[0]
        rescored = field in ("suites", "set", "validation", "sentence_vector")
        remedy = "score" if rescored else "train"
        model = "" if rescored else f" and {work_dir / 'models' / path.stem}"
        raise UserError(
            f"{path}: made by another version of the study ({differing}); undo that, or delete "
            f"the file{model} to {remedy} the arm anew, or name another --work_dir"
        )
    return found


def check_settings(study: Study, names: dict[str, str]) -> None:
    """Raises `UserError` for experiments, fields and values that cannot be, before any records."""
    for arm in study.arms:
        with within(f"arm {arm.name}"):
            outside = arm.starts_from and study.arm(arm.starts_from) is None
            start = _outside_start(arm, names) if outside else None
            _, config = _resolved(study, arm, study.seeds[0], names, start)
            if outside or not arm.starts_from:
                config.task.check()
                if config.task.init_checkpoint and not outside:
                    raise UserError(
                        f"its experiment starts from {config.task.init_checkpoint.strip('<>')}; "
                        "say where that is with starts_from"
                    )
    arms = [
        chains.Stage(arm.name, arm.experiment, params_override=arm.params_override)
        for arm in study.arms
    ]
    with within("common"):
        check_common(arms, json.dumps(study.common), "arm")


def _outside_start(arm: Arm, names: dict[str, str]) -> Path:
    """The encoder directory that an arm starts from, which no arm makes."""
    return Path(expand(arm.starts_from, names)).expanduser().resolve()


class _Read(Exception):
    """Raised in place of encoding: the files of a task are there."""


def check_evaluation(study: Study, data_dir: Path) -> list[str]:
    """Lets the suites read their files, without any encoder.

    Returns:
      What a person should know of averages, which need several files, a line each.

    Raises:
      UserError: if a column's files are missing.
    """
    from official_cmlm.evaluation.report.driver import check_data, parse_options

    warnings = []
    for suite, options in parse_options(study.scores.suites, study.scores.set).items():
        missing, whole = [], ""
        try:
            missing = check_data(suite, data_dir, options)
        except UserError as error:
            whole = str(error)
        for column in study.scores.columns:
            ids = [one.split("/") for one in column.id.split("|")]
            tasks = [task for name, task, *_ in ids if name == suite]
            found = [line for line in missing for task in tasks if line.startswith(f"{task}: ")]
            if tasks and (whole or len(found) == len(ids)):
                raise UserError(f"column {column.id}: cannot be scored: {whole or found[0]}")
            if "average" in tasks and missing:
                warnings.append(f"column {column.id}: needs files that may lack: {missing[0]}")
    return warnings


@contextlib.contextmanager
def within(where: str) -> Iterator[None]:
    try:
        yield
    except UserError as error:
        raise UserError(f"{where}: {error}") from None


def _resolved(
    study: Study, arm: Arm, seed: int, names: dict[str, str], start: Path | None
) -> tuple[dict[str, Any], Any]:
    """An arm's overrides and its whole experiment."""
    values = expand(_overrides(study, arm), names)
    seeds: dict[str, Any] = {"train_data": {"seed": seed}}
    text = merged(values, json.dumps({"task": seeds}))
    init = None if start is None else str(start)
    config = registry.load(arm.experiment, [], text, init)
    from official_cmlm.training.config import chosen_objectives

    # Objectives with records of their own follow the seed too.
    seeds["objectives"] = {
        name: {"train_data": {"seed": seed}}
        for name, objective in chosen_objectives(config.task.objectives).items()
        if objective.train_data is not None
    }
    text = merged(values, json.dumps({"task": seeds}))
    return json.loads(text), registry.load(arm.experiment, [], text, init)


def plan(
    study: Study, names: dict[str, str], work_dir: Path, arms: Collection[str] = ()
) -> list[Run]:
    """The arms with all seeds, in the order in which they are trained; the records are there.

    Args:
      study: the study.
      names: see `records.places`.
      work_dir: the study's folder.
      arms: names of those that are wanted; what they start from comes along. Empty: all.

    Raises:
      UserError: if one cannot work, or if results or trainings are there that another version of
        the study has made.
    """
    read = string.Template(json.dumps([study.common, [a.params_override for a in study.arms]]))
    contents = {
        names[name]: f"${name}:{content(Path(names[name]))}"
        for name in read.get_identifiers()
        if name not in GIVEN
    }
    runs: dict[tuple[str, int], Run] = {}
    checked: dict[str, tuple[str, Any, str]] = {}

    def add(arm: Arm, seed: int) -> Run:
        if (arm.name, seed) in runs:
            return runs[arm.name, seed]
        before = None
        if start := study.arm(arm.starts_from):
            before = add(start, seed if arm.start_seed is None else arm.start_seed)
        with within(f"arm {arm.name}"):
            run = _planned(study, arm, seed, work_dir, names, contents, before)
            if arm.name not in checked:
                mode, what = training_mode(study) if arm.train else "", f"arm {arm.name}"
                checked[arm.name] = chains.check_training(
                    run.config, what, mode, checked.get(arm.starts_from)
                )
        _claim(run, study, work_dir)
        runs[arm.name, seed] = run
        return run

    for seed in study.seeds:
        for arm in study.arms:
            if not arms or arm.name in arms:
                add(arm, seed)
    return list(runs.values())


def training_mode(study: Study) -> str:
    return "train_and_eval" if study.scores.validation else "train"


def _planned(
    study: Study,
    arm: Arm,
    seed: int,
    work_dir: Path,
    names: dict[str, str],
    contents: dict[str, str],
    before: Run | None,
) -> Run:
    start, start_version = None, ""
    if before is not None:
        start, start_version = before.folder, before.model_version
    elif arm.starts_from:
        from official_cmlm.encoders import directory_fingerprint

        start = _outside_start(arm, names)
        start_version = directory_fingerprint(start)
    overrides, config = _resolved(study, arm, seed, names, start)
    # Paths say nothing; what lies there does.
    identity = {"start": start_version} | _renamed(
        {"experiment": arm.experiment, "train": arm.train, "config": config.as_dict()},
        contents | {str(start): "its start", names["data"]: "$data"},
    )
    model_version = _hash(identity)
    scoring: list[Any] = [study.scores.suites, study.scores.set, study.scores.validation]
    scoring += [arm.sentence_vector] if arm.sentence_vector else []
    folder = work_dir / "models" / f"{arm.name}.{seed}"
    version = _hash([model_version, scoring])
    return Run(arm, seed, folder, start, overrides, config, identity, model_version, version)


def _renamed(value: Any, names: dict[str, str]) -> Any:
    """`value` with the paths in `names` replaced, those in folders of these too."""
    if isinstance(value, dict):
        return {key: _renamed(item, names) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_renamed(item, names) for item in value]
    for path, name in names.items():
        if isinstance(value, str) and (value == path or value.startswith(f"{path}/")):
            return name + value[len(path) :]
    return value


def _hash(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def _first_difference(old: Any, new: Any, at: str = "") -> str:
    """The first key with another value, and both values; empty if there is none."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in [*old, *(key for key in new if key not in old)]:
            if found := _first_difference(old.get(key), new.get(key), f"{at}.{key}".lstrip(".")):
                return found
        return ""
    if old == new:
        return ""
    before, now = (textwrap.shorten(json.dumps(value), 80) for value in (old, new))
    return f"{at} was {before}, is {now}"


def _claim(run: Run, study: Study, work_dir: Path) -> None:
    """Refuses a result or a training of another version; makes the folder known as a start.

    An encoder directory without weights says what a later arm's encoder must be.
    """
    path = result_path(work_dir, run.arm, run.seed)
    found = read_result(study, work_dir, run.arm, run.seed)
    if found is not None and found["study_version"] != run.version:
        raise UserError(
            f"{path}: made by another version of the study (its records, its start or its "
            f"experiment's file were others); delete it and {run.folder} to train the arm anew, or "
            "name another --work_dir"
        )
    claim, identity = run.folder / _ARM_NAME, json.loads(json.dumps(run.identity))
    if claim.is_file():
        known = read_object(claim)
        if known["model_version"] != run.model_version:
            differing = _first_difference(known["identity"], identity)
            raise UserError(
                f"{run.folder}: trained by another version of the study ({differing}); take the "
                "study back to that, or delete the folder, or name another --work_dir"
            )
    elif found is None:
        write_aside(claim, {"model_version": run.model_version, "identity": identity})
    if not (run.folder / "encoder_config.json").exists():
        from official_cmlm.training.run import describe_run
        from official_cmlm.training.task import SentenceEncoderTask

        describe_run(run.config, SentenceEncoderTask(run.config.task), "train", str(run.folder))
