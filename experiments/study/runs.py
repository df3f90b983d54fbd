"""Makes the records of a study, and trains and scores each arm with each seed once."""

import dataclasses
import hashlib
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from official_cmlm import cli
from official_cmlm.common.errors import UserError, within
from official_cmlm.common.files import read_object, write_json
from official_cmlm.evaluation.report.tables import duration
from official_cmlm.training import signals
from official_cmlm.training.progress import SUMMARY_NAME, evaluated_steps, total_counts, versions

from .. import chains, module_of, registry
from .definition import OUTPUTS, VALIDATION, Arm, Settings, Study, expand, identifiers
from .results import RESULTS_NAME, Result, add_result, check_same, read_results

# File in an arm's model directory with the settings of its training.
_SETTINGS_NAME = "study_arm.json"
# Content of a data step's file until the step is complete; it tells that its folder was made here.
_UNFINISHED = {"unfinished": True}


@dataclasses.dataclass(frozen=True)
class Run:
    """An arm with one seed, ready to be trained.

    Attributes:
      folder: its model directory.
      start: encoder directory that it starts from; None: random weights.
      overrides: all overrides of the experiment, which `config` includes.
      settings: see `Result`.
    """

    arm: Arm
    seed: int
    folder: Path
    start: Path | None
    overrides: dict[str, Any]
    config: Any
    settings: Settings

    @property
    def name(self) -> str:
        """The name of its folder and its result."""
        return f"{self.arm.name}.{self.seed}"


@dataclasses.dataclass(frozen=True)
class Runner:
    """A study that is carried out in a folder.

    Attributes:
      work_dir: the folder for everything that it makes.
      data_dir: `$data`, the folder of texts and evaluation data.
      start: `$start`, an encoder directory; None if the study does not name it.
      call: runs a program and returns its exit status.
    """

    study: Study
    work_dir: Path
    data_dir: Path
    start: Path | None = None
    call: Callable[[list[str]], int] = signals.call

    @property
    def names(self) -> dict[str, str]:
        """The folders for which `$data`, `$start` and the `$name` of each step of data stand."""
        given = {"data": str(self.data_dir)} | ({"start": str(self.start)} if self.start else {})
        steps = self.study.data
        return given | {step.name: str(self.work_dir / "data" / step.name) for step in steps}

    def run(self, wanted: Collection[str] = ()) -> None:
        """Checks the study, makes its records, and trains and scores what has no result yet."""
        self.check_settings()
        self.check_evaluation()
        self.make_data()
        self.execute(self.plan(wanted))

    def check_settings(self) -> None:
        """Raises `UserError` for experiments, fields and values that no records make valid."""
        for arm in self.study.arms:
            with within(f"arm {arm.name}"):
                is_first = self.study.arm(arm.starts_from) is None
                start = self._outside_start(arm) if is_first else None
                _, config = self._resolve(arm, self.study.seeds[0], start)
                if is_first:
                    config.task.check()
                if not arm.starts_from and config.task.init_checkpoint:
                    raise UserError(
                        f"its experiment starts from {config.task.init_checkpoint.strip('<>')}; "
                        "say where that is with starts_from"
                    )
                _check_method(config.task)
        with within("common"):
            chains.check_common([arm.stage for arm in self.study.arms], self.study.common, "arm")

    def check_evaluation(self) -> None:
        """Raises `UserError` if files that a column needs are missing; needs no encoder."""
        from official_cmlm.evaluation.report.driver import check_data, parse_options

        scores = self.study.scores
        for suite, options in parse_options(scores.suites, scores.set).items():
            missing = check_data(suite, self.data_dir, options)
            for column in scores.columns:
                ids = [one.split("/") for one in column.id.split("|")]
                tasks = tuple(f"{task}: " for name, task, *_ in ids if name == suite)
                found = [line for line in missing if line.startswith(tasks)]
                if tasks and len(found) == len(ids):
                    raise UserError(f"column {column.id}: cannot be scored: {found[0]}")

    def make_data(self) -> None:
        """Runs the steps of `data` that have not been run.

        Raises:
          UserError: if a step fails, or if it was run with other flags or input before; if its
            folder is there and no run has begun it.
        """
        for step in self.study.data:
            folder = Path(self.names[step.name])
            path = folder.with_name(f"{step.name}.json")
            reads = self._contents(step.flags)
            recipe = {"recipe": {"run": step.run, "flags": step.flags, "reads": reads}}
            made = read_object(path) if path.is_file() else None
            if made is not None and made != _UNFINISHED:
                check_same(f"{folder}", made, recipe)
                print(f"data {step.name}: as before", flush=True)
                continue
            if os.path.lexists(folder):
                if made is None:
                    raise UserError(
                        f"{folder}: exists, and no study has begun it; move it away, or name "
                        "another --work_dir"
                    )
                shutil.rmtree(folder)
            write_json(path, _UNFINISHED)
            print(f"data {step.name}: {step.run} …", flush=True)
            outputs = OUTPUTS[step.run]
            if all(outputs.values()):
                folder.mkdir(parents=True)
            flags = {flag: str(folder / name) for flag, name in outputs.items()}
            flags |= expand(step.flags, self.names)
            status = self._run(f"data_prep.{step.run}", *map(_flag, flags, flags.values()))
            # A step that may skip unreadable input has reported what it left out.
            if status not in (0, cli.EXIT_SKIPPED):
                raise UserError(f"data {step.name}: {step.run} ended with status {status}")
            write_json(path, recipe)

    def _contents(self, value: Any) -> dict[str, str]:
        """Returns a digest of each step's output, or vocabulary of `$start`, that a value names."""
        from official_cmlm.tokenization import load_vocabulary

        names = {name: Path(self.names[name]) for name in identifiers(value) if name != "data"}
        return {
            name: load_vocabulary(path).hash if name == "start" else _content(path)
            for name, path in names.items()
        }

    def plan(self, wanted: Collection[str] = ()) -> list[Run]:
        """Returns the arms with all seeds, in the order of training; the records must be there.

        Args:
          wanted: names of arms; the arms that they start from come along. Empty: all.

        Raises:
          UserError: if an arm cannot work, or if results or trainings are there that another
            version of the study has made.
        """
        chosen = set(wanted or [arm.name for arm in self.study.arms])
        for arm in reversed(self.study.arms):
            if arm.name in chosen:
                chosen.add(arm.starts_from)
        results = read_results(self.study, self.work_dir)
        runs: dict[tuple[str, int], Run] = {}
        checked: dict[str, tuple[str, Any, str]] = {}
        for seed in self.study.seeds:
            for arm in [arm for arm in self.study.arms if arm.name in chosen]:
                with within(f"arm {arm.name}"):
                    run = self._plan(arm, seed, runs.get((arm.starts_from, seed)))
                    if arm.name not in checked:
                        mode, before = self._mode if arm.train else "", checked.get(arm.starts_from)
                        checked[arm.name] = chains.check_training(
                            run.config, f"arm {arm.name}", mode, before
                        )
                if result := results.get((arm.name, seed)):
                    where = f"{self.work_dir / RESULTS_NAME}: {run.name}"
                    check_same(where, result.settings, run.settings)
                self._describe(run)
                runs[arm.name, seed] = run
        return list(runs.values())

    def _plan(self, arm: Arm, seed: int, before: Run | None) -> Run:
        start, start_content = None, ""
        if before is not None:
            text = json.dumps(before.settings["training"], sort_keys=True)
            start, start_content = before.folder, hashlib.sha256(text.encode()).hexdigest()[:16]
        elif start := self._outside_start(arm):
            from official_cmlm.checkpoints.encoder_directory import EncoderDirectory

            start_content = EncoderDirectory.open(start).digest()
        values, config = self._resolve(arm, seed, start)
        settings = self.study.settings(arm)
        settings["training"] |= {
            "files": [values for values, _ in registry.read_files(arm.experiment)],
            "records": self._contents(settings["training"]["params_override"]),
            "start": start_content,
        }
        folder = self.work_dir / "models" / f"{arm.name}.{seed}"
        return Run(arm, seed, folder, start, values, config, settings)

    @property
    def _mode(self) -> str:
        return "train_and_eval" if self.study.scores.validation else "train"

    def _outside_start(self, arm: Arm) -> Path | None:
        """Returns the encoder directory that an arm starts from and no arm makes, if any."""
        path = expand(arm.starts_from, self.names)
        return Path(path).expanduser().resolve() if path else None

    def _resolve(self, arm: Arm, seed: int, start: Path | None) -> tuple[dict[str, Any], Any]:
        """Returns an arm's overrides and its whole experiment."""
        from official_cmlm.training.config import chosen_objectives

        values = expand(self.study.settings(arm)["training"]["params_override"], self.names)
        data = {"train_data": {"seed": seed}}
        values = chains.merged(values, {"task": data})
        config = registry.load(arm.experiment, [], values, start and str(start))
        chosen = chosen_objectives(config.task.objectives)
        # Objectives with records of their own follow the seed too.
        own = {name: data for name, one in chosen.items() if one.train_data is not None}
        if own:
            values = chains.merged(values, {"task": {"objectives": own}})
            config = registry.load(arm.experiment, [], values, start and str(start))
        return values, config

    def _describe(self, run: Run) -> None:
        """Makes a run's folder an encoder directory without weights, for arms that start there."""
        from official_cmlm.training.run import describe_run
        from official_cmlm.training.task import SentenceEncoderTask

        path, settings = run.folder / _SETTINGS_NAME, {"training": run.settings["training"]}
        if path.is_file():
            check_same(str(run.folder), read_object(path), settings)
            return
        describe_run(run.config, SentenceEncoderTask(run.config.task), "train", str(run.folder))
        write_json(path, settings)

    def execute(self, runs: list[Run]) -> None:
        """Trains and scores each run that has no result yet.

        Raises:
          UserError: if a training or its evaluation fails.
          Stopped: if a training was stopped.
        """
        finished = read_results(self.study, self.work_dir)
        for index, run in enumerate(runs, 1):
            name = f"[{index}/{len(runs)}] {run.arm.name} seed {run.seed}"
            if (run.arm.name, run.seed) in finished:
                print(f"{name}: as before", flush=True)
                continue
            what = chains.length(run.config.trainer) if run.arm.train else "scored as it starts"
            print(f"{name}: {run.arm.experiment}, {what}", flush=True)
            began = time.monotonic()
            with within(f"{run.arm.name} seed {run.seed}"):
                training, validation = self._train(run) if run.arm.train else write_untrained(run)
                scoring = self._score(run, validation)
            seconds = round(time.monotonic() - began, 1)
            result = Result(settings=run.settings, wall_seconds=seconds, **training, **scoring)
            add_result(self.work_dir, run.name, result)
            shown = [
                f"{column.label} {column.text(value)}"
                for column in self.study.scores.columns
                if (value := column.value(result.scores)) is not None
            ]
            print(f"{name}: {', '.join(shown)}; {duration(seconds)}", flush=True)

    def _train(self, run: Run) -> tuple[dict[str, Any], dict[str, float]]:
        """Trains an arm, unless that is done; returns fields of its result and its validation."""
        summary, validated = run.folder / SUMMARY_NAME, self.study.scores.validation
        last = read_object(summary) if summary.is_file() else {}
        is_validated = not validated or last.get("train_steps") in evaluated_steps(run.folder)
        if not (last.get("completed") and is_validated):
            if last:
                # The next run writes its own summary; this one is kept.
                number = len(list(run.folder.glob("train_summary.*.json")))
                summary.rename(summary.with_suffix(f".{number}.json"))
            stage = chains.Stage(run.name, run.arm.experiment, self._mode, (), run.overrides)
            chains.run_experiment(stage, run.folder, run.start and str(run.start), self.call)
        last = read_object(summary)
        # Only the training knows how many steps its epochs have.
        steps = last["train_steps"]
        fields = {"devices": last["devices"], "versions": last["versions"]}
        fields |= {"steps": steps, **total_counts(run.folder, steps)}
        return fields, evaluated_steps(run.folder)[steps] if validated else {}

    def _score(self, run: Run, validation: dict[str, float]) -> dict[str, Any]:
        """Scores an arm with `experiments.evaluate`; returns fields of its result."""
        folder, wanted = self.work_dir / "evaluation" / run.name, self.study.scores
        path, vector = folder / "results.json", run.arm.sentence_vector
        found: dict[str, Any] = {}
        if wanted.suites:
            path.unlink(missing_ok=True)
            status = self._run(
                "experiments.evaluate",
                *(f"--encoder={run.folder}", f"--name={run.arm.title}"),
                *(f"--data_dir={self.data_dir}", f"--output_dir={folder}"),
                f"--suites={','.join(wanted.suites)}",
                *(f"--set={setting}" for setting in wanted.set),
                *([f"--sentence_vector={vector}"] if vector else []),
            )
            found = read_object(path)["suites"] if path.is_file() else {}
            # Tasks that no column needs may fail without their files.
            if set(found) != set(wanted.suites):
                raise UserError(f"its evaluation ended with status {status}; see above")
            # The embeddings of so many texts take much space.
            shutil.rmtree(folder / "embeddings", ignore_errors=True)
        scores = {
            f"{name}/{score['task']}/{score['metric']}": score["value"]
            for name, suite in found.items()
            for score in suite["scores"]
        }
        for column in wanted.columns:
            if not column.id.startswith(f"{VALIDATION}/") and column.value(scores) is None:
                failed = [line for suite in found.values() for line in suite["failures"]]
                raise UserError(f"no score {column.id}: {'; '.join(failed) or 'see above'}")
        return {
            "scores": scores | {f"{VALIDATION}/{key}": v for key, v in validation.items()},
            "protocols": {name: suite["protocol"] for name, suite in found.items()},
            "evaluation_files": {
                k: v for suite in found.values() for k, v in suite["files"].items()
            },
        }

    def _run(self, binary: str, *arguments: str) -> int:
        return self.call([sys.executable, "-m", module_of(binary), *arguments])


def _check_method(task: Any) -> None:
    """Raises `UserError` if settings of an arm's data turn an objective into another method."""
    for name, where, data in task.used_data():
        for field, value in getattr(task.objectives, name).method_data().items():
            if getattr(data, field) != value:
                raise UserError(
                    f"{where}.{field} is {getattr(data, field)}, which makes {name} another method;"
                    f" set it to {value} in the arm's params_override"
                )


def write_untrained(run: Run) -> tuple[dict[str, Any], dict[str, float]]:
    """Writes the encoder that a training would start from; returns what `Runner._train` does."""
    import tensorflow as tf
    import tf_keras

    from official_cmlm.training.run import describe_run
    from official_cmlm.training.task import SentenceEncoderTask

    tf_keras.utils.set_random_seed(run.seed)
    task = SentenceEncoderTask(run.config.task)
    model = task.build_model()
    task.initialize(model)
    describe_run(run.config, task, "train", str(run.folder))
    # The objectives are saved too, because CMLM's projection gives another sentence vector.
    tf.train.Checkpoint(model=model, **model.checkpoint_items).save(str(run.folder / "ckpt"))
    counts = {"steps": 0, "examples": 0, "tokens": 0, "seconds": 0.0}
    return {**counts, "devices": [], "versions": versions()}, {}


def _flag(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return f"--{name}" if value else f"--no{name}"
    return f"--{name}={','.join(map(str, value)) if isinstance(value, list) else value}"


def _content(folder: Path) -> str:
    """Returns a digest of a data step's output; the manifest of records has their checksums."""
    manifest, digest = folder / "dataset.json", hashlib.sha256()
    for path in [manifest] if manifest.is_file() else sorted(folder.rglob("*")):
        if path.is_file():
            digest.update(f"{path.relative_to(folder)}\n".encode())
            with path.open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()[:16]
