"""Trains and scores the arms of a study, each once."""

import contextlib
import functools
import json
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from official_cmlm.errors import UserError
from official_cmlm.evaluation.report.tables import duration
from official_cmlm.files import read_object
from official_cmlm.training import signals
from official_cmlm.training.progress import SUMMARY_NAME, versions

from .. import chains, module_of
from .plan import (
    Run,
    read_result,
    result_path,
    settings,
    training_mode,
    within,
)
from .records import Call, write_aside
from .study import VALIDATION, Study


@contextlib.contextmanager
def working_in(work_dir: Path) -> Iterator[Call]:
    """Holds the study's folder, and gives a function that runs programs which hold it too.

    Should this process be killed, its training still runs and the next one waits for it.
    """
    import fcntl

    work_dir.mkdir(parents=True, exist_ok=True)
    with (work_dir / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(
                f"{work_dir}: an earlier run, or the training that it began, still works there; "
                "waiting for it",
                file=sys.stderr,
                flush=True,
            )
            fcntl.flock(file, fcntl.LOCK_EX)
        yield functools.partial(signals.call, keep=[file.fileno()])


def execute(runs: list[Run], study: Study, data_dir: Path, work_dir: Path, call: Call) -> None:
    """Trains and scores what has no result yet, one after the other.

    Raises:
      UserError: if a training or its evaluation fails.
      Stopped: if a training was stopped.
    """
    seconds: dict[str, list[float]] = {}
    for run in runs:
        if found := read_result(study, work_dir, run.arm, run.seed):
            seconds.setdefault(run.arm.name, []).append(found["wall_seconds"])
    for index, run in enumerate(runs, 1):
        name = f"[{index}/{len(runs)}] {run.arm.name} seed {run.seed}"
        path = result_path(work_dir, run.arm, run.seed)
        if path.is_file():
            print(f"{name}: as before", flush=True)
            continue
        what = f"{run.config.trainer.train_steps} steps" if run.arm.train else "scored as it starts"
        print(f"{name}: {run.arm.experiment}, {what}{_time_left(runs[index - 1 :], seconds)}")
        sys.stdout.flush()
        began = time.monotonic()
        with within(f"{run.arm.name} seed {run.seed}"):
            result = _trained(run, study, call) | _scored(run, study, data_dir, work_dir, call)
        result["scores"] |= result.pop("validation")
        _check_columns(run, study, result.pop("failures"), result["scores"])
        result["wall_seconds"] = round(time.monotonic() - began, 1)
        write_aside(path, result)
        # Of use until the scores are there.
        shutil.rmtree(_evaluation(work_dir, run) / "embeddings", ignore_errors=True)
        seconds.setdefault(run.arm.name, []).append(result["wall_seconds"])
        shown = [
            f"{column.label} {value:.{column.decimals}f}"
            for column in study.scores.columns
            if (value := column.value(result["scores"])) is not None
        ]
        print(f"{name}: {', '.join(shown)}; {duration(result['wall_seconds'])}", flush=True)


def _time_left(left: list[Run], seconds: dict[str, list[float]]) -> str:
    """What finished ones let expect of this one and of all that are left; empty without any."""
    known = [value for values in seconds.values() for value in values]
    if not known:
        return ""

    def expected(run: Run) -> float:
        values = seconds.get(run.arm.name, known)
        return sum(values) / len(values)

    total = sum(map(expected, left))
    return f" … (about {duration(expected(left[0]))}; {duration(total)} to the end)"


def _trained(run: Run, study: Study, call: Call) -> dict[str, Any]:
    """Trains an arm, unless that is done, and says what that took."""
    if not run.arm.train:
        _write_untrained(run)
        counts = {"steps": 0, "examples": 0, "tokens": 0, "seconds": 0.0}
        return {**counts, "devices": [], "versions": versions(), "validation": {}}
    steps, summary = run.config.trainer.train_steps, run.folder / SUMMARY_NAME
    if not _is_complete(run, study):
        if summary.is_file():
            # The next run writes its own.
            number = len(list(run.folder.glob("train_summary.*.json")))
            summary.rename(summary.with_suffix(f".{number}.json"))
        stage = chains.Stage(run.name, run.arm.experiment, training_mode(study), (), run.overrides)
        start = None if run.start is None else str(run.start)
        chains.run_experiment(stage, run.folder, start, None, call)
    parts = [read_object(p) for p in sorted(run.folder.glob("train_summary*.json"))]
    last = read_object(summary)
    counts = {key: sum(part[key] for part in parts) for key in ("examples", "tokens", "seconds")}
    if sum(part["steps"] for part in parts) != steps:
        # A run that was killed has left no counts.
        counts = dict.fromkeys(counts)
    metrics: dict[str, float] = {}
    if study.scores.validation:
        for line in (run.folder / "history.jsonl").read_text(encoding="utf-8").splitlines():
            with contextlib.suppress(json.JSONDecodeError):
                values = json.loads(line)
                if values.pop("split") == "validation" and values.pop("step") == steps:
                    metrics = {key: v for key, v in values.items() if key != "seconds"}
    return {
        "steps": steps,
        **counts,
        "devices": last["devices"],
        "versions": last["versions"],
        VALIDATION: {f"{VALIDATION}/{key}": v for key, v in metrics.items() if v is not None},
    }


def _is_complete(run: Run, study: Study) -> bool:
    from official_cmlm.training.progress import evaluated_steps

    steps, summary = run.config.trainer.train_steps, run.folder / SUMMARY_NAME
    if not summary.is_file() or not chains.is_finished(run.folder, steps):
        return False
    if study.scores.validation and steps not in evaluated_steps(str(run.folder)):
        return False
    return bool(read_object(summary).get("completed"))


def _write_untrained(run: Run) -> None:
    """Writes the encoder that a training would start from."""
    import tensorflow as tf
    import tf_keras

    from official_cmlm.training.run import describe_run
    from official_cmlm.training.task import SentenceEncoderTask

    tf_keras.utils.set_random_seed(run.seed)
    task = SentenceEncoderTask(run.config.task)
    model = task.build_model()
    task.initialize(model)
    describe_run(run.config, task, "train", str(run.folder))
    # With the objectives: CMLM's projection gives another vector.
    tf.train.Checkpoint(model=model, **model.checkpoint_items).save(str(run.folder / "ckpt"))


def _evaluation(work_dir: Path, run: Run) -> Path:
    return work_dir / "evaluation" / run.name


def _scored(run: Run, study: Study, data_dir: Path, work_dir: Path, call: Call) -> dict[str, Any]:
    """Scores an arm with `experiments.evaluate`."""
    result: dict[str, Any] = {
        "study": study.title,
        "arm": run.arm.name,
        "seed": run.seed,
        "experiment": run.arm.experiment,
        "study_version": run.version,
        "settings": settings(study, run.arm),
        "scores": {},
        "protocols": {},
        "evaluation_files": {},
        "evaluation_seconds": 0.0,
        "failures": [],
    }
    if not study.scores.suites:
        return result
    from official_cmlm.evaluation.report.driver import read_results

    folder = _evaluation(work_dir, run)
    path = folder / "results.json"
    path.unlink(missing_ok=True)
    status = call(
        [
            *(sys.executable, "-m", module_of("experiments.evaluate"), f"--encoder={run.folder}"),
            *(f"--name={run.arm.label or run.arm.name}", f"--data_dir={data_dir}"),
            *(f"--output_dir={folder}", f"--suites={','.join(study.scores.suites)}"),
            *(f"--set={setting}" for setting in study.scores.set),
            *([f"--sentence_vector={vector}"] if (vector := run.arm.sentence_vector) else []),
        ]
    )
    found = read_results(path)["suites"] if path.is_file() else {}
    # What is not needed may fail, for want of files.
    if set(found) != set(study.scores.suites):
        raise UserError(f"its evaluation ended with status {status}; see above")
    for name, suite in found.items():
        for score in suite["scores"]:
            result["scores"][f"{name}/{score['task']}/{score['metric']}"] = score["value"]
        result["protocols"][name] = suite["protocol"]
        result["evaluation_files"] |= suite["files"]
        result["evaluation_seconds"] += suite["seconds"]
        # Results of earlier versions have no `missing`.
        lacking = [f"{one['task'] or name}: no {one['what']}" for one in suite.get("missing", [])]
        result["failures"] += suite["failures"] + lacking
    return result


def _check_columns(run: Run, study: Study, failures: list[str], scores: dict[str, float]) -> None:
    """Raises `UserError` if a column has no score; an untrained arm has none of validation."""
    for column in study.scores.columns:
        if column.value(scores) is not None or column.id.startswith(f"{VALIDATION}/"):
            continue
        why = "; ".join(failures) or f"there are {', '.join(scores)}"
        raise UserError(f"{run.arm.name} seed {run.seed}: no score {column.id}: {why}")
