"""Runs suites on an encoder and writes results: one file per suite, then all of them together."""

import contextlib
import dataclasses
import datetime
import hashlib
import json
import os
import sys
import time
import traceback
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from official_cmlm import progress
from official_cmlm.errors import UserError
from official_cmlm.evaluation import suites
from official_cmlm.evaluation.data.folder import DataFolder
from official_cmlm.evaluation.embedding_cache import CachedEncoder
from official_cmlm.evaluation.encoding import (
    Encode,
    LanguageEncoders,
    OpenedEncoder,
    prepare,
)
from official_cmlm.evaluation.report.main_scores import MAX_ENCODERS
from official_cmlm.evaluation.scores import (
    Missing,
    MissingData,
    Score,
    SuiteReport,
    TaskLengths,
    TextLengths,
)
from official_cmlm.evaluation.suite import Task, read_tasks, report_unread, score_tasks
from official_cmlm.files import atomic_write_text, inside, read_object

_PACKAGE = Path(__file__).parents[1]
# The names that a run writes into its folder.
_OUTPUTS = ("suites", "embeddings", "results.json", "results.md", "report.html")


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


def read_results(path: Path) -> dict[str, Any]:
    """Reads a `results.json`.

    Raises:
      UserError: if it is missing or has another format.
    """
    from official_cmlm.evaluation.report.html_report import html_report
    from official_cmlm.evaluation.report.tables import markdown

    results = read_object(path, "name a results.json of experiments.evaluate")
    try:
        for suite in results["suites"].values():
            [float(score["value"]) for score in suite["scores"]]
        # Results that can be shown alone can be shown with others, which may take hours.
        markdown(results)
        html_report(results)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        what = f"no {error}" if isinstance(error, KeyError) else error
        raise UserError(
            f"{path}: not a results.json of experiments.evaluate ({str(what)[:80]})"
        ) from None
    return results


def read_compared(values: Sequence[str]) -> list[dict[str, Any]]:
    """Reads the results that `--compare` names.

    Args:
      values: paths of `results.json`, each perhaps several that are separated by commas.

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
) -> dict[str, Any]:
    """Runs suites and writes `results.json`, `results.md` and `report.html` after each of them.

    All texts of all suites are embedded first, sorted by length. A suite finished in an earlier run
    is not repeated if encoder, options, data and code are unchanged, nor are the finished tasks of
    one that was interrupted.

    Args:
      encoder: the encoder to score, or one a language, by language, for suites that take them.
      path: where it was loaded from, for the record.
      name: its name in tables.
      data_dir: folder of the evaluation data.
      output_dir: folder of results, and of embeddings in `embeddings/<fingerprint>`.
      options: suite -> its options.
      strict: whether data that differs from the published files is an error.
      compare: results of other encoders to show with these.

    Returns:
      The content of `results.json`.

    Raises:
      UserError: if the data folder is missing.
    """
    if not options:
        raise UserError("no suite to run; --suites=? lists them")
    DataFolder(data_dir)
    output_dir.mkdir(parents=True, exist_ok=True)
    encoders = {"": encoder} if isinstance(encoder, OpenedEncoder) else dict(encoder)
    fingerprint = _fingerprint(encoders)
    results: dict[str, Any] = {
        "encoder": {
            "name": name,
            "path": path,
            "kind": ", ".join(dict.fromkeys(one.kind for one in encoders.values())),
            "fingerprint": fingerprint,
        },
        "data_dir": str(data_dir),
        "started": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "seconds": 0.0,
        "suites": {},
    }
    state = _state(data_dir, output_dir)
    keys = {suite: _key(fingerprint, suite, options[suite], strict, state) for suite in options}
    kept = {suite: output_dir / "suites" / f"{suite}.json" for suite in options}
    earlier = {suite: _finished(kept[suite], keys[suite], data_dir) for suite in options}
    single = encoders.get("")
    waiting = {
        suite: SuiteRun(
            suite,
            data_dir,
            options[suite],
            strict,
            single,
            _Partial(kept[suite], keys[suite]),
            () if single else tuple(encoders),
        )
        for suite in options
        if earlier[suite] is None
    }
    with contextlib.ExitStack() as stack:
        # Languages may share an encoder, and its store can be opened once.
        stores = {
            one.fingerprint: stack.enter_context(contextlib.closing(_cached(one, output_dir)))
            for one in {one.fingerprint: one for one in encoders.values()}.values()
        }
        cached = {language: stores[one.fingerprint] for language, one in encoders.items()}
        first = next(iter(cached.values()))
        encode = first if single else LanguageEncoders(cached)
        if waiting:
            print(f"reading the texts of {', '.join(waiting)} …", file=sys.stderr)
            for suite_run in waiting.values():
                suite_run.read()
            # A faulty encoder fails again in the suites, which report it.
            with contextlib.suppress(UserError):
                prepare(encode, _texts_of(waiting.values()))
        for suite in options:
            found = earlier[suite]
            if found is None:
                found = {"key": keys[suite]} | waiting.pop(suite).score(encode)
                _write(kept[suite], json.dumps(found, indent=1))
            results["suites"][suite] = {k: v for k, v in found.items() if k != "key"}
            results["encoder"]["dimension"] = first.dimension
            # The duration of all scores, except for embedding in earlier runs.
            suites_took = sum(suite["seconds"] for suite in results["suites"].values())
            embedding = sum(store.seconds for store in stores.values())
            results["embedding_seconds"] = round(embedding, 1)
            results["seconds"] = round(suites_took + embedding, 1)
            _write_all(results, output_dir, compare)
    return results


def _fingerprint(encoders: Mapping[str, OpenedEncoder]) -> str:
    """Returns an encoder's own fingerprint, or one of all languages' encoders."""
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


class _Partial:
    """The finished tasks of an interrupted suite, in a file next to its results."""

    def __init__(self, kept: Path, key: str) -> None:
        self._path, self._key = kept.with_suffix(".partial.json"), key

    def restore(self, report: SuiteReport, data: DataFolder, lengths: TextLengths) -> None:
        """Adds the finished tasks to a report; none if anything that they depend on has changed."""
        found = _unchanged(self._path, self._key, data.root)
        for name, task in found["tasks"].items() if found else ():
            report.restore(name, [Score(**score) for score in task["scores"]], task["notes"])
            if task["cut"]:
                lengths.tasks[name] = TaskLengths(**task["cut"])
        if found:
            data.files |= found["files"]
            data.warnings += found["warnings"]

    def keep(self, report: SuiteReport, data: DataFolder, lengths: TextLengths) -> None:
        """Writes what is finished."""
        cut = {name: dataclasses.asdict(found) for name, found in lengths.tasks.items()}
        found = {
            "key": self._key,
            "tasks": {
                name: {
                    "scores": [dataclasses.asdict(score) for score in scores],
                    "notes": notes,
                    "cut": cut.get(name),
                }
                for name, (scores, notes) in report.finished.items()
            },
            "files": data.files,
            "warnings": data.warnings,
        }
        _write(self._path, json.dumps(found))

    def remove(self) -> None:
        """Removes the file: the suite is finished."""
        self._path.unlink(missing_ok=True)


class SuiteRun:
    """One suite: its files are read, then it is scored.

    Missing data become `missing` in results, exceptions `failures`.

    Attributes:
      tasks: those that were read and not scored yet.
    """

    def __init__(
        self,
        name: str,
        data_dir: Path,
        options: Any,
        strict: bool = False,
        encoder: OpenedEncoder | None = None,
        partial: _Partial | None = None,
        encoder_languages: tuple[str, ...] = (),
    ) -> None:
        """Restores the tasks that an interrupted run has finished.

        Args:
          name: the suite.
          data_dir: folder of the evaluation data.
          options: of the suite.
          strict: whether data that differs from the published files is an error.
          encoder: counts the tokens of texts; then `cut` says by task how many texts it embedded
            and how many it cut. Default: they are not counted.
          partial: keeps finished tasks for a later run. Default: none are kept.
          encoder_languages: languages, if each has its own encoder.
        """
        self._name, self._options, self._partial = name, options, partial
        self._module = suites.suite(name)
        self._data = DataFolder(data_dir, strict)
        self._lengths = TextLengths(encoder)
        self._report = report = SuiteReport(
            encoder_languages=encoder_languages,
            progress=lambda what, total: progress.counter(total, "training", f"{name} {what}"),
        )
        self._seconds = 0.0
        self.tasks: deque[Task] = deque()
        if partial:
            partial.restore(report, self._data, self._lengths)
            report.keep = lambda: partial.keep(report, self._data, self._lengths)

    def read(self) -> None:
        """Reads the files of the tasks that are not finished."""
        began = time.monotonic()
        found = self._module.tasks(self._data, self._options, self._report)
        self.tasks = read_tasks(found, self._report)
        self._seconds += time.monotonic() - began

    def score(self, encode: Encode) -> dict[str, Any]:
        """Scores the tasks; returns the suite's part of `results.json`."""
        report, data = self._report, self._data
        began, embedding = time.monotonic(), getattr(encode, "seconds", 0.0)
        try:
            score_tasks(self.tasks, encode, report, self._lengths)
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
        if self._partial and not report.unscored:
            self._partial.remove()
        for trace in report.traces:
            print(trace, file=sys.stderr)
        for warning in data.warnings:
            print(f"warning: {warning}", file=sys.stderr)
        # Without embedding, which is counted for all suites together.
        embedding = getattr(encode, "seconds", 0.0) - embedding
        lengths = self._lengths
        return {
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


def check_data(name: str, data_dir: Path, options: Any) -> list[str]:
    """Reads a suite's files; returns the lines of tasks whose files are missing or broken.

    Raises:
      UserError: if the whole suite cannot be scored.
    """
    report = SuiteReport()
    found = suites.suite(name).tasks(DataFolder(data_dir), options, report)
    for task in read_tasks(found, report):
        report_unread(task, report)
    return report.unscored


def _finished(kept: Path, key: str, data_dir: Path) -> dict[str, Any] | None:
    """Reads a suite's earlier results; None if they are incomplete or outdated."""
    found = _unchanged(kept, key, data_dir)
    if found is None or found.get("failures") or not found.get("scores"):
        return None
    print(f"{kept.stem}: unchanged, results of the earlier run are kept", file=sys.stderr)
    return found


def _unchanged(kept: Path, key: str, data_dir: Path) -> dict[str, Any] | None:
    """Reads results of an earlier run; None if anything that they depend on has changed."""
    try:
        found = json.loads(kept.read_text(encoding="utf-8"))
        if found["key"] != key:
            return None
        for path, digest in found["files"].items():
            # Corpora of retrieval have gigabytes.
            with inside(data_dir, path, kept).open("rb") as file:
                if hashlib.file_digest(file, "sha256").hexdigest() != digest:
                    return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return found


def _key(fingerprint: str, suite: str, options: Any, strict: bool, state: str) -> str:
    values = json.dumps(dataclasses.asdict(options), sort_keys=True)
    return f"{fingerprint} {suite} {values} strict={strict} {state}"


def _state(data_dir: Path, output_dir: Path) -> str:
    """Digests the data folder's file names and sizes and the code that computes scores.

    Links to folders are followed. What a run writes does not count, should `output_dir` lie in the
    data folder.
    """
    digest = hashlib.sha256()
    own = output_dir.resolve()
    outputs = {own / name for name in _OUTPUTS}
    for path in sorted(_files_below(data_dir)):
        if not any(part in outputs for part in (path.resolve(), *path.resolve().parents)):
            digest.update(f"{path.relative_to(data_dir)} {path.stat().st_size}\n".encode())
    for path in sorted(_PACKAGE.rglob("*.py")):
        if _PACKAGE / "report" not in path.parents:
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _files_below(folder: Path) -> Iterator[Path]:
    """Yields all files, following links to folders; enters a folder that contains itself once."""
    seen: set[Path] = set()
    for name, folders, files in os.walk(folder, followlinks=True):
        here = Path(name)
        new = {child: (here / child).resolve() for child in folders}
        folders[:] = [child for child in folders if new[child] not in seen]
        seen |= set(new.values())
        yield from (path for file in files if (path := here / file).is_file())


def _write_all(results: dict[str, Any], folder: Path, compare: Sequence[dict[str, Any]]) -> None:
    from official_cmlm.evaluation.report.html_report import html_report
    from official_cmlm.evaluation.report.tables import markdown

    _write(
        folder / "results.json", json.dumps(results, indent=1, ensure_ascii=False, allow_nan=False)
    )
    _write(folder / "results.md", markdown(results, *compare))
    _write(folder / "report.html", html_report(results, *compare))


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_write_text(path, text + "\n")
