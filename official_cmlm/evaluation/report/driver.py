"""Runs suites on an encoder and writes results: one file per suite, then all of them together."""

import contextlib
import dataclasses
import datetime
import functools
import hashlib
import json
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
from official_cmlm.common.files import atomic_write_text, write_json
from official_cmlm.common.job import PARTS, Job
from official_cmlm.evaluation import suites
from official_cmlm.evaluation.data.folder import DataFolder
from official_cmlm.evaluation.embedding_cache import CachedEncoder
from official_cmlm.evaluation.encoder import Encode, LanguageEncoders, OpenedEncoder, prepare
from official_cmlm.evaluation.report import predictions
from official_cmlm.evaluation.scores import (
    Missing,
    MissingData,
    Score,
    SuiteReport,
    TaskLengths,
    TextLengths,
)
from official_cmlm.evaluation.suite import Task, read_tasks, score_tasks

# Results of unknown origin are neither added to nor replaced.
_OWN = r"results\.(json|md)|report\.html"


def parse_options(names: Sequence[str], settings: Sequence[str]) -> dict[str, Any]:
    """Returns suite -> its options, from settings such as `senteval.seeds=5`.

    Raises:
      UserError: for an unknown suite or option, or a setting of a suite not in `names`.
    """
    for name in names:
        suites.get_suite(name)
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
    return {name: suites.read_options(name, values[name]) for name in names}


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
      UserError: if the data folder is missing, `output_dir` holds results of an earlier release, or
        another evaluation writes there.
    """
    if not options:
        raise UserError("no suite to run; --suites=? lists them")
    DataFolder(data_dir)
    encoders = {"": encoder} if isinstance(encoder, OpenedEncoder) else dict(encoder)
    fingerprint = _digest_encoders(encoders)
    with Job(
        output_dir,
        {"format": "evaluation 1"},
        own=_OWN,
        shares=True,
        remedy="set another --output_dir",
    ) as job:
        results: dict[str, Any] = {
            "encoder": {
                "name": name,
                "path": path,
                "kind": ", ".join(dict.fromkeys(encoder.kind for encoder in encoders.values())),
                "fingerprint": fingerprint,
                "dimension": None,
            },
            "data_dir": str(data_dir),
            "started": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "seconds": 0.0,
            "suites": _read_earlier_suites(job, fingerprint),
        }
        encoders_of_suites = (encoders.get(""), () if "" in encoders else tuple(encoders))
        runs = {
            suite: SuiteRun(
                *(suite, data_dir, chosen, strict, *encoders_of_suites),
                *(job, fingerprint, save_predictions),
            )
            for suite, chosen in options.items()
        }
        encode, stores = _open_stores(encoders, output_dir)
        print(f"reading the texts of {', '.join(runs)} …", file=sys.stderr)
        for suite, suite_run in runs.items():
            suite_run.read()
            if suite_run.is_done:
                print(f"{suite}: unchanged, the earlier results are kept", file=sys.stderr)
        # A faulty encoder fails again in the suites, which report it.
        with contextlib.suppress(UserError):
            prepare(encode, _collect_texts(runs.values()))
        try:
            unscored = _score_suites(runs, encode, stores, results, compare, output_dir)
        finally:
            _write_reports(results, output_dir, compare)
    return results | {"suites": results["suites"] | unscored}


def _score_suites(
    runs: Mapping[str, "SuiteRun"],
    encode: Encode,
    stores: Sequence[CachedEncoder],
    results: dict[str, Any],
    compare: Sequence[dict[str, Any]],
    output_dir: Path,
) -> dict[str, Any]:
    """Scores the suites that are not done, and writes `results.json` after each.

    Returns:
      The results of suites that have no score now and had scores before, which stay.
    """
    scored, unscored = results["suites"], {}
    for name, suite_run in runs.items():
        if not suite_run.is_done:
            suite = suite_run.score(encode)
            if suite["scores"] or not scored.get(name, {}).get("scores"):
                scored[name] = suite
                suite_run.store(suite)
            else:
                unscored[name] = suite
        results["encoder"]["dimension"] = stores[0].dimension
        # This is the duration of all scores, except for embedding in earlier runs.
        embedding = sum(store.seconds for store in stores)
        results["embedding_seconds"] = round(embedding, 1)
        seconds = sum(suite["seconds"] for suite in scored.values())
        results["seconds"] = round(seconds + embedding, 1)
        # Results are written before the comparison, whose faults must not lose the suite.
        write_json(output_dir / "results.json", results)
        for other in compare if name in scored else ():
            predictions.add_differences(name, scored[name], output_dir, other)
            suite_run.store(scored[name])
            write_json(output_dir / "results.json", results)
    return unscored


def _collect_texts(runs: Iterable["SuiteRun"]) -> dict[str, list[str]]:
    """Returns the texts of suites that were read, by role."""
    by_role: dict[str, list[str]] = {}
    for task in (task for run in runs for task in run.tasks if task.error is None):
        for role, texts in task.texts().items():
            by_role.setdefault(role, []).extend(texts)
    return by_role


def _digest_encoders(encoders: Mapping[str, OpenedEncoder]) -> str:
    """Returns an encoder's own fingerprint, or a common one of all languages' encoders."""
    if "" in encoders:
        return encoders[""].fingerprint
    fingerprints = " ".join(f"{name}:{encoders[name].fingerprint}" for name in sorted(encoders))
    return hashlib.sha256(fingerprints.encode()).hexdigest()[:16]


def _read_earlier_suites(job: Job, fingerprint: str) -> dict[str, Any]:
    """Returns the suites that earlier runs have scored with the same encoder."""
    names = sorted(path.stem for path in (job.folder / PARTS).glob("*.json"))
    # Names of trained tasks have a point.
    records = {name: job.record(name) for name in names if "." not in name}
    results = {
        name: record["result"] for name, record in records.items() if record["key"] == fingerprint
    }
    if records.keys() - results.keys():
        print(f"{job.folder}: results of another encoder are left out", file=sys.stderr)
    return results


def _open_stores(
    encoders: Mapping[str, OpenedEncoder], output_dir: Path
) -> tuple[Encode, list[CachedEncoder]]:
    """Returns the encoder of all suites, which stores vectors, and the stores behind it."""
    # Languages may share an encoder, and so its store.
    unique = {encoder.fingerprint: encoder for encoder in encoders.values()}
    stores = {
        fingerprint: CachedEncoder(
            encoder.encode,
            output_dir / "embeddings" / fingerprint,
            lambda total: progress.counter(total, "text", "encode"),
            encoder.fine_tune,
            encoder.roles,
            encoder.workers,
        )
        for fingerprint, encoder in unique.items()
    }
    cached = {language: stores[encoder.fingerprint] for language, encoder in encoders.items()}
    return cached.get("") or LanguageEncoders(cached), list(stores.values())


@dataclasses.dataclass(eq=False)
class SuiteRun:
    """One suite: its files are read, then it is scored.

    Missing data become `missing` in results, exceptions `failures`.

    Attributes:
      name, data_dir, options, strict: see `run`.
      encoder: counts the tokens of texts; then `cut` says by task how many texts it embedded and
        how many it cut. Default: they are not counted.
      encoder_languages: languages, if each has its own encoder.
      job: the parts of its folder are the suites, and the tasks that are trained. Default: all is
        computed, and nothing is stored.
      fingerprint: of the encoder, for the job.
      save_predictions: see `run`; needs a job.
      report: collects the results.
      tasks: tasks that were read and not scored yet.
      is_done: whether an earlier run of the job has scored the suite; known after `read`.
    """

    name: str
    data_dir: Path
    options: Any
    strict: bool = False
    encoder: OpenedEncoder | None = None
    encoder_languages: tuple[str, ...] = ()
    job: Job | None = None
    fingerprint: str = ""
    save_predictions: bool = False

    def __post_init__(self) -> None:
        self._suite = suites.get_suite(self.name)
        self._data = DataFolder(self.data_dir, self.strict)
        self._lengths = TextLengths(self.encoder)
        self.report = SuiteReport(
            encoder=self.encoder,
            encoder_languages=self.encoder_languages,
            progress=lambda what, total: progress.counter(total, "training", f"{self.name} {what}"),
        )
        # The file of a suite of one's own is not part of the package's code.
        self._task_code = f"{_digest_code()} {self._suite.digest[:16]}"
        self._code = f"{self._task_code} strict={self.strict}"
        self._seconds, self.is_done = 0.0, False
        self.tasks: deque[Task] = deque()

    def read(self) -> None:
        """Reads the files of the tasks, unless an earlier run has scored them as they are."""
        began = time.monotonic()
        tasks = self._suite.tasks(self._data, self.options, self.report)
        self.tasks = read_tasks(tasks, self._data.files)
        self._seconds += time.monotonic() - began
        earlier = self.job and self.job.result(self.name, self.fingerprint)
        self.is_done = bool(earlier) and self._is_complete(earlier)
        if self.is_done:
            self.tasks.clear()

    def _is_complete(self, results: dict[str, Any]) -> bool:
        """Returns whether earlier results are whole, and of the same options, code and files.

        They are not whole without the predictions that this run is to write.
        """
        has_intervals = any(metric.statistic for metric in self._suite.results.metrics)
        if self.save_predictions and has_intervals and not results["predictions"]:
            return False
        options = json.loads(json.dumps(dataclasses.asdict(self.options)))
        now = {"key": self._code, "options": options, "files": self._data.files, "failures": []}
        return bool(results["scores"]) and all(results[name] == now[name] for name in now)

    def store(self, results: dict[str, Any]) -> None:
        """Notes the results of `score` for later runs."""
        self.job.store(self.name, results, self.fingerprint)

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
        if self.save_predictions and report.predictions:
            predictions.write(self.job.folder, self.name, report.predictions)
            predictions.add_intervals(self.name, report)
        for trace in report.traces:
            print(trace, file=sys.stderr)
        for warning in data.warnings:
            print(f"warning: {warning}", file=sys.stderr)
        # The suite's duration has no embedding, which is counted for all suites together.
        embedding = getattr(encode, "seconds", 0.0) - embedding
        return {
            "key": self._code,
            "predictions": self.save_predictions,
            "protocol": self._suite.protocol,
            "options": dataclasses.asdict(self.options),
            "seeds": report.seeds,
            "configuration": report.configuration,
            "scores": [dataclasses.asdict(score) for score in report.scores],
            "notes": [*report.notes, *data.warnings, *lengths.notes()],
            "cut": {task: dataclasses.asdict(counts) for task, counts in lengths.tasks.items()},
            "missing": [dataclasses.asdict(missing) for missing in report.missing],
            "failures": report.failures,
            "files": data.files,
            "seconds": round(self._seconds + time.monotonic() - began - embedding, 1),
        }

    def _score(self, task: Task, encode: Encode) -> None:
        """Scores a task, or adds its stored scores if an earlier run has trained it."""
        report, lengths = self.report, self._lengths
        part, is_stored = f"{self.name}.{task.name}", bool(task.trained_by and self.job)
        if is_stored and (earlier := self.job.result(part, self._make_task_key(task))):
            report.scores += [Score(**score) for score in earlier["scores"]]
            if earlier["cut"]:
                lengths.tasks[task.name] = TaskLengths(**earlier["cut"])
            return
        before = len(report.scores)
        encode = task.encoder_of(encode)
        prepare(encode, task.texts())
        task.score(encode, report)
        lengths.add(task.name, task.texts())
        if is_stored:
            scores = [dataclasses.asdict(score) for score in report.scores[before:]]
            cut = lengths.tasks.get(task.name)
            result = {"scores": scores, "cut": cut and dataclasses.asdict(cut)}
            self.job.store(part, result, self._make_task_key(task))

    def _make_task_key(self, task: Task) -> dict[str, Any]:
        """Returns all that the scores of a trained task depend on."""
        options = {name: getattr(self.options, name) for name in task.trained_by}
        key = {"encoder": self.fingerprint, "code": self._task_code}
        return key | {"options": options, "files": task.files}


def check_data(name: str, data_dir: Path, options: Any) -> list[str]:
    """Reads a suite's files; returns the lines of tasks whose files are missing or broken.

    Raises:
      UserError: if the whole suite cannot be scored.
    """
    report, data = SuiteReport(), DataFolder(data_dir)
    tasks = read_tasks(suites.get_suite(name).tasks(data, options, report), data.files)
    score_tasks(tasks, report, lambda task: None)
    return report.unscored


@functools.cache
def _digest_code(package: Path = Path(__file__).parents[1]) -> str:
    """Digests the code that computes scores."""
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        if package / "report" not in path.parents:
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _write_reports(
    results: dict[str, Any], folder: Path, compare: Sequence[dict[str, Any]]
) -> None:
    from official_cmlm.evaluation.report.html_report import html_report
    from official_cmlm.evaluation.report.tables import markdown

    atomic_write_text(folder / "results.md", markdown(results, *compare))
    atomic_write_text(folder / "report.html", html_report(results, *compare))
