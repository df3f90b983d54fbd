"""Runs suites on an encoder and writes results: one file per suite, then all of them together."""

import contextlib
import dataclasses
import datetime
import functools
import hashlib
import importlib.metadata
import json
import math
import sys
import time
import traceback
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from official_cmlm.common import progress
from official_cmlm.common.errors import UserError
from official_cmlm.common.files import atomic_write_text, locked, read_object, write_json
from official_cmlm.evaluation import suites
from official_cmlm.evaluation.data.folder import DataFolder
from official_cmlm.evaluation.embedding_cache import CachedEncoder
from official_cmlm.evaluation.encoder import Encode, LanguageEncoders, OpenedEncoder, prepare
from official_cmlm.evaluation.report import predictions
from official_cmlm.evaluation.report.main_scores import MAX_ENCODERS
from official_cmlm.evaluation.scores import (
    Missing,
    MissingData,
    Score,
    SuiteReport,
    TaskLengths,
    TextLengths,
)
from official_cmlm.evaluation.suite import Task, read_tasks, score_tasks


def parse_options(names: Sequence[str], settings: Sequence[str]) -> dict[str, Any]:
    """Returns suite -> its options, from settings such as `senteval.seeds=5`.

    Raises:
      UserError: for an unknown suite or option, or a setting of a suite not in `names`.
    """
    for name in names:
        suites.suite(name)
    values: dict[str, dict[str, Any]] = {name: {} for name in names}
    for setting in settings:
        key, equals, text = setting.partition("=")
        name, dot, option = (part.strip() for part in key.partition("."))
        if not equals or not dot:
            raise UserError(f"--set={setting}: write it as suite.option=value")
        if name not in values:
            raise UserError(f"--set={setting}: suite {name!r} is not run; add it to --suites")
        if option in values[name]:
            raise UserError(f"--set: {name}.{option} is set twice; write a list as a,b")
        if not text.strip():
            raise UserError(f"--set={setting}: there is no value")
        try:
            values[name][option] = yaml.safe_load(text)
        except (yaml.YAMLError, ValueError, RecursionError):
            raise UserError(f"--set={setting}: {text[:80]!r} is not a YAML value") from None
    return {name: suites.options(name, values[name]) for name in names}


def read_results(path: Path, remedy: str = "") -> dict[str, Any]:
    """Reads a `results.json`, and adds its `folder`.

    Raises:
      UserError: if it is missing or has another format; `remedy` ends the message.
    """
    from official_cmlm.evaluation.report.html_report import html_report
    from official_cmlm.evaluation.report.tables import markdown

    results = read_object(path, remedy or "name a results.json of experiments.evaluate")
    try:
        suites_found = list(results["suites"].values())
        numbers = [score["value"] for suite in suites_found for score in suite["scores"]]
        if not all(map(math.isfinite, numbers)):
            raise ValueError("a score is not a number")
        if not math.isfinite(sum(suite["seconds"] for suite in suites_found)):
            raise ValueError("a duration is not a number")
        # Results that can be rendered alone can be rendered beside others, after hours of scoring.
        markdown(results)
        html_report(results)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        what = f"no {error}" if isinstance(error, KeyError) else error
        raise UserError(
            f"{path}: not a results.json of experiments.evaluate ({str(what)[:80]})"
            + (remedy and f"; {remedy}")
        ) from None
    return results | {"folder": str(path.parent)}


def read_compared(values: Sequence[str]) -> list[dict[str, Any]]:
    """Reads the results that `--compare` names: paths, each perhaps several between commas.

    Raises:
      UserError: for a file that cannot be read, or more than fit into a report.
    """
    paths = []
    for value in filter(str.strip, values):
        # A comma may also be part of a name.
        paths += [value] if Path(value).expanduser().exists() else value.split(",")
    paths = [path.strip() for path in paths if path.strip()]
    if len(paths) >= MAX_ENCODERS:
        raise UserError(
            f"--compare: {len(paths)} results; a report shows {MAX_ENCODERS} encoders, so name "
            f"{MAX_ENCODERS - 1} at most"
        )
    return [read_results(Path(path).expanduser()) for path in paths]


def run(
    encoder: OpenedEncoder | Mapping[str, OpenedEncoder],
    path: str,
    name: str,
    data_dir: Path,
    output_dir: Path,
    options: Mapping[str, Any],
    strict: bool = False,
    compare: Sequence[dict[str, Any]] = (),
    save_predictions: bool = False,
) -> dict[str, Any]:
    """Runs suites; writes `results.json` after each, the reports after the last or a stop.

    All texts of all suites are embedded first, sorted by length. A suite that an earlier run has
    finished is not repeated if encoder, options, code and the files that it reads are unchanged. A
    trained task is not repeated if its own files and options are unchanged. Other suites of earlier
    runs stay in the results if the encoder is the same, and so do the earlier scores of a suite
    that has no score now.

    Args:
      encoder: the encoder to score, or language -> encoder, for suites that take several.
      path: where it was loaded from, for the record.
      name: its name in tables.
      data_dir: folder of the evaluation data.
      output_dir: folder of results, and of embeddings in `embeddings/<fingerprint>`.
      options: suite -> its options.
      strict: whether data that differs from the published files is an error.
      compare: results of other encoders to show with these.
      save_predictions: also write `predictions/<suite>.csv`, a row for each pair of texts, and
        compute the intervals of their scores.

    Returns:
      The content of `results.json`, but for suites that have no score now the result of this run.

    Raises:
      UserError: if the data folder is missing, `results.json` has another format, or another
        evaluation writes into `output_dir`.
    """
    if not options:
        raise UserError("no suite to run; --suites=? lists them")
    DataFolder(data_dir)
    output_dir.mkdir(parents=True, exist_ok=True)
    encoders = {"": encoder} if isinstance(encoder, OpenedEncoder) else dict(encoder)
    fingerprint = _fingerprint(encoders)
    refused = {}
    with contextlib.ExitStack() as stack:
        # Each of two runs at the same time would write the suites that it found at its start.
        refusal = f"{output_dir}: another evaluation writes here; set another --output_dir"
        stack.enter_context(locked(output_dir / "lock", refusal))
        known = _earlier_suites(output_dir / "results.json", fingerprint)
        results: dict[str, Any] = {
            "encoder": {
                "name": name,
                "path": path,
                "kind": ", ".join(dict.fromkeys(one.kind for one in encoders.values())),
                "fingerprint": fingerprint,
                "dimension": None,
            },
            "data_dir": str(data_dir),
            "started": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "seconds": 0.0,
            "suites": known,
        }
        single = encoders.get("")
        runs = {
            suite: SuiteRun(
                *(suite, data_dir, options[suite], strict, single),
                () if single else tuple(encoders),
                _TrainedTasks(
                    output_dir / "tasks" / f"{suite}.json",
                    f"{fingerprint} {_code()}",
                    options[suite],
                ),
                output_dir if save_predictions else None,
            )
            for suite in options
        }
        # Languages may share an encoder, and its store can be opened once.
        stores = {
            one.fingerprint: stack.enter_context(contextlib.closing(_cached(one, output_dir)))
            for one in {one.fingerprint: one for one in encoders.values()}.values()
        }
        cached = {language: stores[one.fingerprint] for language, one in encoders.items()}
        first = next(iter(cached.values()))
        encode = first if single else LanguageEncoders(cached)
        print(f"reading the texts of {', '.join(runs)} …", file=sys.stderr)
        for suite in options:
            runs[suite].read()
            if runs[suite].is_unchanged(known.get(suite, {})):
                print(f"{suite}: unchanged, the earlier results are kept", file=sys.stderr)
                del runs[suite]
        # A faulty encoder fails again in the suites, which report it.
        with contextlib.suppress(UserError):
            prepare(encode, _texts_of(runs.values()))
        stack.callback(lambda: _write_reports(results, output_dir, compare))
        for suite in options:
            if suite in runs:
                suite_run = runs.pop(suite)
                found = suite_run.score(encode)
                for place, content in suite_run.report.documents.items():
                    write_json(output_dir / place, content)
                has_earlier = bool(known.get(suite, {}).get("scores"))
                kept = refused if has_earlier and not found["scores"] else known
                kept[suite] = found
            results["encoder"]["dimension"] = first.dimension
            # This is the duration of all scores, except for embedding in earlier runs.
            embedding = sum(store.seconds for store in stores.values())
            results["embedding_seconds"] = round(embedding, 1)
            suites_took = sum(one["seconds"] for one in known.values())
            results["seconds"] = round(suites_took + embedding, 1)
            # Results are written before the comparison, whose faults must not lose the suite.
            write_json(output_dir / "results.json", results)
            for other in compare if suite in known else ():
                predictions.add_differences(suite, known[suite], output_dir, other)
                write_json(output_dir / "results.json", results)
    return results | {"suites": known | refused}


def _earlier_suites(path: Path, fingerprint: str) -> dict[str, Any]:
    """Returns the suites of earlier runs of the same encoder."""
    if not path.exists():
        return {}
    earlier = read_results(path, "remove it, or set another --output_dir")
    if earlier["encoder"]["fingerprint"] != fingerprint:
        print(f"{path}: its results are of another encoder; they are replaced", file=sys.stderr)
        return {}
    return earlier["suites"]


def _fingerprint(encoders: Mapping[str, OpenedEncoder]) -> str:
    """Returns an encoder's own fingerprint, or a common one of all languages' encoders."""
    if "" in encoders:
        return encoders[""].fingerprint
    each = " ".join(f"{name}:{encoders[name].fingerprint}" for name in sorted(encoders))
    return hashlib.sha256(each.encode()).hexdigest()[:16]


def _cached(encoder: OpenedEncoder, output_dir: Path) -> CachedEncoder:
    return CachedEncoder(
        encoder.encode,
        output_dir / "embeddings" / encoder.fingerprint,
        lambda total: progress.counter(total, "text", "encode"),
        encoder.fine_tune,
        encoder.roles,
        encoder.workers,
    )


def _texts_of(runs: Iterable["SuiteRun"]) -> dict[str, list[str]]:
    """Returns the texts of suites that were read, by role."""
    found: dict[str, list[str]] = {}
    for task in (task for run in runs for task in run.tasks if task.error is None):
        for role, texts in task.texts().items():
            found.setdefault(role, []).extend(texts)
    return found


class _TrainedTasks:
    """The file of the tasks of a suite that earlier runs have trained.

    Scores depend on `key`, the task's files and the options that its `trained_by` names.
    """

    def __init__(self, path: Path, key: str, options: Any) -> None:
        self._path, self._key, self._options = path, key, dataclasses.asdict(options)
        self._tasks = {}
        with contextlib.suppress(OSError, RecursionError, ValueError):
            found = json.loads(path.read_text(encoding="utf-8"))
            self._tasks = found if isinstance(found, dict) else {}

    def _key_of(self, task: Task) -> str:
        used = {name: self._options[name] for name in task.trained_by}
        return json.dumps([self._key, used, task.files], sort_keys=True)

    def restore(self, task: Task, report: SuiteReport, lengths: TextLengths) -> bool:
        """Adds an unchanged task's stored scores; returns False if they are absent or damaged."""
        try:
            found = self._tasks[task.name]
            if found["key"] != self._key_of(task):
                return False
            scores = [Score(**score) for score in found["scores"]]
            cut = found["cut"] and TaskLengths(**found["cut"])
            if not scores or not all(math.isfinite(score.value) for score in scores):
                return False
        except (KeyError, TypeError):
            return False
        report.scores += scores
        if cut:
            lengths.tasks[task.name] = cut
        return True

    def keep(self, task: Task, scores: Sequence[Score], cut: TaskLengths | None) -> None:
        """Writes the scores of a task into the file."""
        self._tasks[task.name] = {
            "key": self._key_of(task),
            "scores": [dataclasses.asdict(score) for score in scores],
            "cut": cut and dataclasses.asdict(cut),
        }
        write_json(self._path, self._tasks)


class SuiteRun:
    """One suite: its files are read, then it is scored.

    Missing data become `missing` in results, exceptions `failures`.

    Attributes:
      tasks: tasks that were read and not scored yet.
      report: collects the results.
    """

    def __init__(
        self,
        name: str,
        data_dir: Path,
        options: Any,
        strict: bool = False,
        encoder: OpenedEncoder | None = None,
        encoder_languages: tuple[str, ...] = (),
        trained: _TrainedTasks | None = None,
        predictions_in: Path | None = None,
    ) -> None:
        """Prepares a run of a suite on a folder of data; see `run`.

        Args:
          name, data_dir, options, strict: see `run`.
          encoder: counts the tokens of texts; then `cut` says by task how many texts it embedded
            and how many it cut. Default: they are not counted.
          encoder_languages: languages, if each has its own encoder.
          trained: has the tasks that earlier runs have trained. Default: all are trained.
          predictions_in: folder for the predictions of pairs. Default: they are not written.
        """
        self._name, self._options, self._trained = name, options, trained
        self._predictions_in = predictions_in
        self._module = suites.suite(name)
        self._data = DataFolder(data_dir, strict)
        self._lengths = TextLengths(encoder)
        self.report = SuiteReport(
            encoder=encoder,
            encoder_languages=encoder_languages,
            progress=lambda what, total: progress.counter(total, "training", f"{name} {what}"),
        )
        self._key = f"{_code()} strict={strict}"
        package = self._module.RESULTS.package
        # A package that is not installed is an error of its suite.
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            self._key += f" version={importlib.metadata.version(package)}" if package else ""
        self._seconds = 0.0
        self.tasks: deque[Task] = deque()

    def read(self) -> None:
        """Reads the files of the tasks."""
        began = time.monotonic()
        found = self._module.tasks(self._data, self._options, self.report)
        self.tasks = read_tasks(found, self._data.files)
        self._seconds += time.monotonic() - began

    def is_unchanged(self, earlier: dict[str, Any]) -> bool:
        """Returns whether earlier results are complete, and of the same options, code and files.

        They are incomplete without the predictions that this run is to write.
        """
        has_intervals = any(metric.statistic for metric in self._module.RESULTS.metrics)
        if self._predictions_in and has_intervals and not earlier.get("predictions"):
            return False
        options = json.loads(json.dumps(dataclasses.asdict(self._options)))
        now = {"key": self._key, "options": options, "files": self._data.files, "failures": []}
        return bool(earlier.get("scores")) and all(earlier.get(name) == now[name] for name in now)

    def score(self, encode: Encode) -> dict[str, Any]:
        """Scores the tasks; returns the suite's part of `results.json`."""
        report, data, lengths = self.report, self._data, self._lengths
        began, embedding = time.monotonic(), getattr(encode, "seconds", 0.0)
        try:
            score_tasks(self.tasks, report, lambda task: self._score(task, encode))
        except MissingData as error:
            report.missing.append(Missing("", error.what, error.hint))
        except UserError as error:
            report.failures.append(" ".join(str(error).split()))
        except Exception as error:
            # An unexpected exception must not cost the hours of other suites; its trace is printed.
            report.traces.append(traceback.format_exc())
            report.failures.append(f"stopped by {type(error).__name__}: {error}")
        if isinstance(encode, CachedEncoder) and encode.constant and not report.failures:
            report.failures.append(
                "the encoder has the same vector for all texts, so no score means anything"
            )
        if self._predictions_in and report.predictions:
            predictions.write(self._predictions_in, self._name, report.predictions)
            predictions.add_intervals(self._name, report)
        for trace in report.traces:
            print(trace, file=sys.stderr)
        for warning in data.warnings:
            print(f"warning: {warning}", file=sys.stderr)
        # The suite's duration has no embedding, which is counted for all suites together.
        embedding = getattr(encode, "seconds", 0.0) - embedding
        return {
            "key": self._key,
            "predictions": self._predictions_in is not None,
            "protocol": self._module.__doc__.strip().split("\n\n")[0].replace("\n", " "),
            "options": dataclasses.asdict(self._options),
            "seeds": report.seeds,
            "configuration": report.configuration,
            "scores": [dataclasses.asdict(score) for score in report.scores],
            "figures": report.figures,
            "notes": [*report.notes, *data.warnings, *lengths.notes()],
            "cut": {task: dataclasses.asdict(found) for task, found in lengths.tasks.items()},
            "missing": [dataclasses.asdict(one) for one in report.missing],
            "failures": report.failures,
            "files": data.files,
            "seconds": round(self._seconds + time.monotonic() - began - embedding, 1),
        }

    def _score(self, task: Task, encode: Encode) -> None:
        """Scores a task, or adds its stored scores if it has been trained before."""
        report, lengths = self.report, self._lengths
        trained = self._trained if task.trained_by else None
        if trained and trained.restore(task, report, lengths):
            return
        before = len(report.scores)
        encode = task.encoder_of(encode)
        prepare(encode, task.texts())
        task.score(encode, report)
        lengths.add(task.name, task.texts())
        if trained:
            trained.keep(task, report.scores[before:], lengths.tasks.get(task.name))


def check_data(name: str, data_dir: Path, options: Any) -> list[str]:
    """Reads a suite's files; returns the lines of tasks whose files are missing or broken.

    Raises:
      UserError: if the whole suite cannot be scored.
    """
    report, data = SuiteReport(), DataFolder(data_dir)
    tasks = read_tasks(suites.suite(name).tasks(data, options, report), data.files)
    score_tasks(tasks, report, lambda task: None)
    return report.unscored


@functools.cache
def _code(package: Path = Path(__file__).parents[1]) -> str:
    """Digests the code that computes scores."""
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        if package / "report" not in path.parents:
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _write_reports(
    results: dict[str, Any], folder: Path, compare: Sequence[dict[str, Any]]
) -> None:
    from official_cmlm.evaluation.report.exports import csv_table, latex
    from official_cmlm.evaluation.report.html_report import html_report
    from official_cmlm.evaluation.report.tables import markdown

    atomic_write_text(folder / "results.csv", csv_table(results, *compare))
    atomic_write_text(folder / "results.tex", latex(results, *compare))
    atomic_write_text(folder / "results.md", markdown(results, *compare))
    atomic_write_text(folder / "report.html", html_report(results, *compare))
