"""Makes the records of a study, and trains and scores each arm with each seed once."""

import dataclasses
import hashlib
import itertools
import json
import shutil
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from official_cmlm import cli
from official_cmlm.common import signals
from official_cmlm.common.errors import UserError, within
from official_cmlm.common.files import digest, read_object
from official_cmlm.common.job import part_path
from official_cmlm.evaluation.report.tables import duration
from official_cmlm.training.progress import SUMMARY_NAME, read_evaluations, total_counts

from .. import chains, registry
from ..runner import Runner
from .definition import OUTPUTS, VALIDATION, Arm, DataStep, Settings, Study, expand, identifiers
from .results import Result, add_result, check_same


@dataclasses.dataclass(frozen=True)
class Trial:
    """An arm with one seed, ready to be trained.

    Attributes:
      folder: its model directory.
      start: encoder directory that it starts from; None: random weights.
      stage: the training, with all overrides.
      config: the whole experiment.
      settings: see `Result`.
    """

    arm: Arm
    seed: int
    folder: Path
    start: Path | None
    stage: chains.Stage
    config: Any
    settings: Settings

    @property
    def name(self) -> str:
        """The name of its folder, its result, and the start of the names of its parts."""
        return self.stage.name


class StudyRunner(Runner):
    """A study that is carried out in a folder.

    Its parts are the steps of data, `data.NAME`, and of each trial the training,
    `ARM.SEED.training`, and the scoring, `ARM.SEED.scores`. `results.json` is made of the records
    of trials that are scored.
    """

    def __init__(
        self,
        study: Study,
        work_dir: Path,
        data_dir: Path,
        start: Path | None = None,
        call: Callable[[list[str]], int] = signals.call,
    ) -> None:
        """Describes the study's job.

        Args:
          study: the study.
          work_dir: the folder for everything that it makes.
          data_dir: `$data`, the folder of texts and evaluation data.
          start: `$start`, an encoder directory; None if the study does not name it.
          call: runs a command and returns its exit status.
        """
        super().__init__(work_dir, "study", call)
        self.study, self.data_dir = study, data_dir
        # The folders for which `$data`, `$start` and the `$name` of each step of data stand.
        self.names = {"data": str(data_dir)} | ({"start": str(start)} if start else {})
        self.names |= {step.name: str(work_dir / "data" / step.name) for step in study.data}

    def run(self, arms: Collection[str] = ()) -> None:
        """Makes the records, and trains and scores what has no result yet, after all checks.

        Args:
          arms: see `plan_trials`.

        Raises:
          UserError: if a program fails; see the other methods.
          Stopped: if a training was stopped.
        """
        self.check_settings()
        self.check_evaluation()
        with self:
            self.make_data()
            trials = self.plan_trials(arms)
            for index, trial in enumerate(trials, 1):
                title = f"[{index}/{len(trials)}] {trial.arm.name} seed {trial.seed}"
                with within(f"{trial.arm.name} seed {trial.seed}"):
                    add_result(self.folder, trial.name, self._run(trial, title))

    def check_settings(self) -> None:
        """Raises `UserError` for experiments, fields and values that no records make valid."""
        for arm in self.study.arms:
            with within(f"arm {arm.name}"):
                is_first = self.study.arm(arm.starts_from) is None
                start = self._find_start(arm) if is_first else None
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
                ids = [score.split("/") for score in column.id.split("|")]
                tasks = tuple(f"{task}: " for name, task, *_ in ids if name == suite)
                lines = [line for line in missing if line.startswith(tasks)]
                if tasks and len(lines) == len(ids):
                    raise UserError(f"column {column.id}: cannot be scored: {lines[0]}")

    def make_data(self) -> None:
        """Runs the steps of `data` that have not been run.

        Raises:
          UserError: if a step fails, or if it was run with other flags or input before; if its
            folder is there and no run has begun it.
        """
        for step in self.study.data:
            with within(f"data {step.name}"):
                self._make(step)

    def _make(self, step: DataStep) -> None:
        part, folder, outputs = f"data.{step.name}", Path(self.names[step.name]), OUTPUTS[step.run]
        recipe = {"run": step.run, "flags": step.flags, "reads": self._digest_outputs(step.flags)}
        self._check_same(part, recipe, only_done=True)

        def make() -> None:
            if all(outputs.values()):
                folder.mkdir(parents=True)
            flags = {flag: folder / name for flag, name in outputs.items()}
            flags |= expand(step.flags, self.names)
            # A step that may skip unreadable input has reported what it left out.
            self.start(f"data_prep.{step.run}", statuses=(0, cli.EXIT_SKIPPED), **flags)

        title, about = f"data {step.name}", f"{step.run} …"
        self.run_part(part, make, title, about, key=recipe, output=folder, resumes=False)

    def _check_same(self, part: str, key: dict[str, Any], only_done: bool = False) -> None:
        """Raises `UserError` if a part was begun, or done, with another key."""
        record = self.record(part)
        if record and (record["result"] or not only_done):
            check_same(str(part_path(self.folder, part)), record["key"], key)

    def _digest_outputs(self, value: Any) -> dict[str, str]:
        """Returns a digest of each step's output, or vocabulary of `$start`, that a value names."""
        from official_cmlm.tokenization import load_vocabulary

        names = {name: Path(self.names[name]) for name in identifiers(value) if name != "data"}
        return {
            name: load_vocabulary(path).hash if name == "start" else _digest_folder(path)
            for name, path in names.items()
        }

    def plan_trials(self, arms: Collection[str] = ()) -> list[Trial]:
        """Returns the arms with all seeds, in the order of training; the records must be there.

        Args:
          arms: names of arms; the arms that they start from come along. Empty: all.

        Raises:
          UserError: if an arm cannot work, or if results or trainings are there that another
            version of the study has made.
        """
        names = set(arms or [arm.name for arm in self.study.arms])
        for arm in reversed(self.study.arms):
            if arm.name in names:
                names.add(arm.starts_from)
        trials: dict[tuple[str, int], Trial] = {}
        checked: dict[str, tuple[str, Any, str]] = {}
        for seed, arm in itertools.product(self.study.seeds, self.study.arms):
            if arm.name not in names:
                continue
            with within(f"arm {arm.name}"):
                trial = self._plan_trial(arm, seed, trials.get((arm.starts_from, seed)))
                if arm.name not in checked:
                    name, mode, before = arm.name, trial.stage.mode, checked.get(arm.starts_from)
                    checked[name] = chains.check_training(trial.config, f"arm {name}", mode, before)
            self._describe(trial)
            trials[arm.name, seed] = trial
        return list(trials.values())

    def _plan_trial(self, arm: Arm, seed: int, before: Trial | None) -> Trial:
        start, start_content = None, ""
        if before is not None:
            text = json.dumps(before.settings["training"], sort_keys=True)
            start, start_content = before.folder, hashlib.sha256(text.encode()).hexdigest()[:16]
        elif start := self._find_start(arm):
            from official_cmlm.checkpoints.encoder_directory import EncoderDirectory

            start_content = EncoderDirectory.open(start).digest()
        values, config = self._resolve(arm, seed, start)
        settings = self.study.settings(arm)
        settings["training"] |= {
            "files": [values for values, _ in registry.read_files(arm.experiment)],
            "records": self._digest_outputs(settings["training"]["params_override"]),
            "start": start_content,
        }
        name = f"{arm.name}.{seed}"
        is_validated = self.study.scores.validation and arm.train
        mode = "train_and_eval" if is_validated else "train"
        stage = chains.Stage(name, arm.experiment, mode, (), values)
        return Trial(arm, seed, self.folder / "models" / name, start, stage, config, settings)

    def _find_start(self, arm: Arm) -> Path | None:
        """Returns the encoder directory that an arm starts from and no arm makes, if any."""
        path = expand(arm.starts_from, self.names)
        return Path(path).expanduser().resolve() if path else None

    def _resolve(self, arm: Arm, seed: int, start: Path | None) -> tuple[dict[str, Any], Any]:
        """Returns an arm's overrides and its whole experiment."""
        from official_cmlm.training.config import get_objectives

        values = expand(self.study.settings(arm)["training"]["params_override"], self.names)
        data = {"train_data": {"seed": seed}}
        runtime = {"mixed_precision_dtype": self.study.precision}
        # An arm that is not trained is a training of no steps.
        trainer = {} if arm.train else {"train_steps": 0}
        values = chains.merge(values, {"runtime": runtime, "task": data, "trainer": trainer})
        config = registry.load(arm.experiment, [], values, start and str(start))
        # Objectives with records of their own follow the seed too.
        objectives = get_objectives(config.task.objectives).items()
        own = {name: data for name, objective in objectives if objective.train_data is not None}
        if own:
            values = chains.merge(values, {"task": {"objectives": own}})
            config = registry.load(arm.experiment, [], values, start and str(start))
        return values, config

    def _describe(self, trial: Trial) -> None:
        """Makes a trial's folder an encoder directory without weights, for arms that start there.

        Raises:
          UserError: if another version of the study has begun the trial; if its folder is there and
            no run has begun it.
        """
        from official_cmlm.checkpoints.encoder_directory import EncoderDirectory
        from official_cmlm.training.run import describe_run
        from official_cmlm.training.task import SentenceEncoderTask

        training, scores = f"{trial.name}.training", f"{trial.name}.scores"
        self._check_same(training, trial.settings["training"])
        self._check_same(scores, trial.settings["scoring"], only_done=True)
        if self.record(training) is None:
            self.check_output(training, trial.folder)
            self.begin(training, trial.settings["training"])
        if not EncoderDirectory.is_at(trial.folder):
            task = SentenceEncoderTask(trial.config.task)
            describe_run(trial.config, task, "train", str(trial.folder))

    def _run(self, trial: Trial, title: str) -> Result:
        """Trains and scores a trial, as far as that is not done."""
        scores = f"{trial.name}.scores"
        training, scoring = trial.settings["training"], trial.settings["scoring"]

        def train() -> dict[str, Any]:
            # Scores of earlier weights would be wrong.
            self.begin(scores, scoring)
            return self._train(trial)

        about = f"{trial.arm.experiment}, {chains.describe_length(trial.config.trainer)}"
        trained = self.run_part(f"{trial.name}.training", train, title, about, key=training)
        about = ", ".join(self.study.scores.suites) or VALIDATION
        scored = self.run_part(
            scores, lambda: self._score(trial), f"{title}, scores", about, key=scoring
        )
        seconds = round(trained["wall_seconds"] + scored["wall_seconds"], 1)
        result = Result(settings=trial.settings, **trained | scored | {"wall_seconds": seconds})
        texts = [
            f"{column.label} {column.text(value)}"
            for column in self.study.scores.columns
            if (value := column.value(result.scores)) is not None
        ]
        print(f"{title}: {', '.join(texts)}; {duration(result.wall_seconds)}", flush=True)
        return result

    def _train(self, trial: Trial) -> dict[str, Any]:
        """Trains an arm; returns fields of its result."""
        summary = trial.folder / SUMMARY_NAME
        if summary.is_file():
            # The next run writes its own summary; this one stays.
            number = len(list(trial.folder.glob("train_summary.*.json")))
            summary.rename(summary.with_suffix(f".{number}.json"))
        chains.train(self, trial.stage, trial.folder, trial.start and str(trial.start))
        last = read_object(summary)
        # Only the training knows how many steps its epochs have.
        steps = last["train_steps"]
        fields = {"devices": last["devices"], "versions": last["versions"], "steps": steps}
        return fields | total_counts(trial.folder, steps)

    def _score(self, trial: Trial) -> dict[str, Any]:
        """Scores an arm with `experiments.evaluate`; returns fields of its result."""
        folder, scoring = self.folder / "evaluation" / trial.name, self.study.scores
        path, suites = folder / "results.json", {}
        if scoring.suites:
            path.unlink(missing_ok=True)
            # Tasks that no column needs may fail without their files.
            self.start(
                "experiments.evaluate",
                statuses=range(256),
                encoder=trial.folder,
                name=trial.arm.title,
                data_dir=self.data_dir,
                output_dir=folder,
                suites=scoring.suites,
                set=tuple(scoring.set),
                sentence_vector=trial.arm.sentence_vector or None,
                save_predictions=False,
            )
            scored = read_object(path)["suites"] if path.is_file() else {}
            # An earlier version of the study may have scored other suites too.
            suites = {name: suite for name, suite in scored.items() if name in scoring.suites}
            if set(suites) != set(scoring.suites):
                raise UserError("its evaluation did not end; see above")
            # The embeddings of so many texts take much space.
            shutil.rmtree(folder / "embeddings", ignore_errors=True)
        scores = {
            f"{name}/{score['task']}/{score['metric']}": score["value"]
            for name, suite in suites.items()
            for score in suite["scores"]
        }
        if scoring.validation and trial.arm.train:
            _, metrics = max(read_evaluations(trial.folder).items())
            scores |= {f"{VALIDATION}/{name}": value for name, value in metrics.items()}
        for column in scoring.columns:
            if not column.id.startswith(f"{VALIDATION}/") and column.value(scores) is None:
                failed = [line for suite in suites.values() for line in suite["failures"]]
                raise UserError(f"no score {column.id}: {'; '.join(failed) or 'see above'}")
        return {
            "scores": scores,
            "protocols": {name: suite["protocol"] for name, suite in suites.items()},
            "evaluation_files": {
                k: v for suite in suites.values() for k, v in suite["files"].items()
            },
        }


def _check_method(task: Any) -> None:
    """Raises `UserError` if settings of an arm's data turn an objective into another method."""
    for name, where, data in task.list_data():
        for field, value in getattr(task.objectives, name).method_data().items():
            if getattr(data, field) != value:
                raise UserError(
                    f"{where}.{field} is {getattr(data, field)}, which makes {name} another method;"
                    f" set it to {value} in the arm's params_override"
                )


def _digest_folder(folder: Path) -> str:
    """Returns a digest of a data step's output; the manifest of records has their checksums."""
    manifest = folder / "dataset.json"
    if manifest.is_file():
        return digest([manifest])
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return digest(paths, str([path.relative_to(folder) for path in paths]))
