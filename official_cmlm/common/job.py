"""A long job in a folder: it may be stopped or killed, and the same command goes on with it.

    folder/
      lock              held by the process that works there
      plan.json         all that decides the output; written first
      parts/NAME.json   the result of a part; written after the part's own files
      manifest.json     what the output is; written last, when all parts are done

A part is a unit of work: a bundle of input files, ten thousand rows, a suite, an arm of a study, a
stage of a chain. A part that is done is never computed again.
"""

import contextlib
import functools
import json
import re
import shutil
import urllib.parse
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from official_cmlm.common.errors import UserError, list_names
from official_cmlm.common.files import (
    atomic_write_text,
    hold_lock,
    read_object,
    remove_unfinished,
    report_write_errors,
    write_json,
)
from official_cmlm.common.worker_processes import Processes

LOCK, PLAN, PARTS, MANIFEST = "lock", "plan.json", "parts", "manifest.json"
_REMEDY = "make room, then give the same command again: it goes on with what is left"
# The process id and random digits that `atomic_write` puts after a name until the file is whole.
_UNFINISHED = r"(\.\d+-[0-9a-f]{8}\.tmp)?"


class Part(NamedTuple):
    """A unit of work.

    Attributes:
      name: its name among all parts of the job.
      work: the argument of the function that computes it.
      size: its length in the progress bar, in the bar's unit.
    """

    name: str
    work: Any
    size: int = 1


class Job:
    """A folder that one process at a time fills, part by part; a context manager.

    A job that fails before a part of it is done leaves nothing; a folder that is empty in the end
    is removed.

    >>> parts = [Part("00000", "a b"), Part("00001", "c")]
    >>> with Job(Path("words"), {"input": "a.txt"}) as job:            # doctest: +SKIP
    ...     if job.manifest is None:
    ...         counts = job.compute(count_words, parts, Processes(2), bar)
    ...         job.finish({"words": sum(result["words"] for result in counts.values())})

    Attributes:
      folder: the output, which has the files of the module's text.
      plan: what was given, as JSON gives it back.
      resumed: whether an earlier process began the job.
    """

    def __init__(
        self,
        folder: Path,
        plan: Mapping[str, Any],
        *,
        own: str = "",
        shares: bool = False,
        overwrite: bool = False,
        may_change: Callable[[str, Any, Any], bool] = lambda name, before, now: False,
        remedy: str = "pass --overwrite, or name another output",
        lock: Path | None = None,
        plan_name: str = PLAN,
        manifest_name: str = MANIFEST,
    ) -> None:
        """Describes the job; the folder is made and locked when the context is entered.

        Args:
          folder: see the class.
          plan: all that decides the output; JSON values. Another plan in the folder is refused if a
            part was begun. A folder whose plan has another `format` is never overwritten.
          own: regular expression of the other names that the job writes into the folder. Only
            these are ever removed.
          shares: whether the folder may hold files of others, such as a log, which stay. Default:
            a folder with files of others is refused.
          overwrite: whether what another plan has left in the folder is removed.
          may_change: called with name, value before and value now of a difference between the
            plans; returns whether the job may go on nevertheless.
          remedy: what the user can do about another plan, for messages.
          lock: the lock file. Default: `lock` in the folder.
          plan_name, manifest_name: names of the two files.
        """
        self.folder, self.plan = folder, json.loads(json.dumps(plan))
        self.resumed = False
        self._own = re.compile(
            rf"(lock|parts|{re.escape(plan_name)}|{re.escape(manifest_name)}|{own or '(?!)'})"
            + _UNFINISHED
        )
        self._shares, self._overwrite, self._may_change = shares, overwrite, may_change
        self._remedy = remedy
        self._lock = lock or folder / LOCK
        self._plan_path, self._manifest_path = folder / plan_name, folder / manifest_name
        self._stack = contextlib.ExitStack()
        self._made_folder = False

    def __enter__(self) -> "Job":
        """Locks the folder, and begins the job there or resumes it.

        Raises:
          UserError: another process works there; the folder holds something else, or another plan.
        """
        with contextlib.ExitStack() as stack:
            with report_write_errors(self.folder, _REMEDY):
                self._made_folder = not self.folder.exists() or self._plan_path.exists()
                stack.callback(self._remove_empty)
                self._lock.parent.mkdir(parents=True, exist_ok=True)
                refusal = f"{self.folder}: another run writes there"
                stack.enter_context(hold_lock(self._lock, refusal))
                self._begin()
            stack.enter_context(report_write_errors(self.folder, _REMEDY))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, *exception: Any) -> None:
        if kind is not None and not (self.resumed or self.is_begun):
            # If there are files of others, all stays.
            with contextlib.suppress(UserError, OSError):
                self.discard()
        self._stack.__exit__(kind, *exception)
        if kind is KeyboardInterrupt and self.is_begun and not exception[0].args:
            exception[0].args = (
                f"{self.folder} keeps what is whole; give the same command again to go on",
            )

    @property
    def is_begun(self) -> bool:
        """Whether a part was begun or done, or the whole job is complete."""
        return self._manifest_path.exists() or any((self.folder / PARTS).glob("*.json"))

    @property
    def manifest(self) -> dict[str, Any] | None:
        """The manifest of a job that is complete, otherwise None.

        Raises:
          UserError: if it is damaged and may not be overwritten.
        """
        path = self._manifest_path
        if not path.exists():
            return None
        try:
            return read_object(path, self._remedy)
        except UserError:
            if not self._overwrite:
                raise
        self.discard()
        write_json(self._plan_path, self.plan)
        return None

    def result(self, name: str, key: Any = None) -> dict[str, Any] | None:
        """Returns the result of a part that is done and was made with this key, otherwise None."""
        record = self.record(name)
        return record["result"] if record and record["key"] == _plain(key) else None

    def record(self, name: str) -> dict[str, Any] | None:
        """Returns `key` and `result` of a part that was begun; the result is None until it is done.

        Raises:
          UserError: if the part's file is damaged.
        """
        path = part_path(self.folder, name)
        if not path.exists():
            return None
        advice = "delete it, and the part is computed again"
        values = read_object(path, advice)
        if values.keys() != {"key", "result"}:
            raise UserError(f"{path}: damaged; {advice}")
        return values

    def begin(self, name: str, key: Any = None) -> None:
        """Notes that a part is begun, so that what it leaves in the folder is known as the job's.

        Only parts that write files under names of their own need it.
        """
        store(self.folder, name, None, key)

    def store(self, name: str, result: dict[str, Any], key: Any = None) -> None:
        """Notes that a part is done.

        Args:
          name: see `Part`.
          result: JSON values.
          key: all that decides the result beside the plan; JSON values.
        """
        store(self.folder, name, result, key)

    def compute(
        self,
        function: Callable[..., dict[str, Any]],
        parts: Iterable[Part],
        processes: Processes,
        bar: Any,
        is_whole: Callable[[dict[str, Any]], bool] = lambda result: True,
    ) -> dict[str, dict[str, Any]]:
        """Computes the parts that are not done.

        Args:
          function: `function(tool, work)` returns the result of a part, after it has written the
            part's files. The tool is what each process has made.
          parts: they are read while others are computed, one more than there are processes.
          processes: where the function runs.
          bar: a progress bar, moved by each part's size, and meanwhile by `Moves` of the function.
          is_whole: tells from a stored result whether the part's files are still there.

        Returns:
          Name -> result of all parts, in their order.

        Raises:
          UserError: as the function, or if a process has died.
        """
        results: dict[str, dict[str, Any]] = {}
        left = self.find_left(parts, results, bar, is_whole)
        compute = functools.partial(compute_part, folder=self.folder, function=function)
        for part, result in processes.as_completed(compute, left, bar.update):
            results[part.name] = result
            bar.update(part.size)
        return results

    def find_left(
        self,
        parts: Iterable[Part],
        results: dict[str, dict[str, Any]],
        bar: Any,
        is_whole: Callable[[dict[str, Any]], bool] = lambda result: True,
    ) -> Iterator[Part]:
        """Yields the parts that are not done; see `compute` for the arguments.

        The results of the others are put into `results`, which gets the names of all in order.
        """
        for part in parts:
            result = self.result(part.name)
            if result is None or not is_whole(result):
                results[part.name] = {}
                yield part
                continue
            results[part.name] = result
            # The time left is estimated from the parts of this run alone.
            bar.initial += part.size
            bar.update(part.size)

    def finish(self, manifest: Mapping[str, Any]) -> None:
        """Writes the manifest, which says that the output is complete, and removes the parts."""
        write_json(self._manifest_path, manifest)
        shutil.rmtree(self.folder / PARTS, ignore_errors=True)

    def discard(self) -> None:
        """Removes all that the job has written, but for the lock; in a shared folder nothing else.

        The manifest goes first, as it says that the output is complete, and the plan last, as a
        folder without one counts as somebody else's.

        Raises:
          UserError: if a folder that is not shared holds anything else; nothing is removed then.
        """
        others = [path for path in sorted(self.folder.iterdir()) if path != self._lock]
        paths = [path for path in others if self._is_own(path)]
        foreign = [path.name for path in others if path not in paths]
        if foreign and not self._shares:
            raise UserError(
                f"{self.folder}: holds {list_names(foreign, 5)}, which this program has not written"
                "; move that away, or name another output"
            )
        places = {self._manifest_path: 0, self._plan_path: 2}
        for path in sorted(paths, key=lambda path: places.get(path, 1)):
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    def _remove_empty(self) -> None:
        if self._made_folder:
            with contextlib.suppress(OSError):
                self.folder.rmdir()

    def _is_own(self, path: Path) -> bool:
        return not path.is_symlink() and self._own.fullmatch(path.name) is not None

    def _begin(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        # A process may have been killed while it wrote the plan.
        unfinished = re.compile(re.escape(self._plan_path.name) + _UNFINISHED)
        has_plan = self._plan_path.exists()
        others = [
            path.name
            for path in sorted(self.folder.iterdir())
            if path != self._lock and not unfinished.fullmatch(path.name)
            # Files of the job's own names are of a job that this one cannot go on with.
            if not self._shares or self._own.fullmatch(path.name)
        ]
        if others and not has_plan:
            raise UserError(
                f"{self.folder}: holds other files ({list_names(others, 5)}); name another output"
            )
        place = f"its {self._plan_path.name} and {PARTS}" if self._shares else self.folder
        advice = f"name another output, or delete {place} to start again"
        before = read_object(self._plan_path, advice) if has_plan else self.plan
        if before.get("format") != self.plan.get("format"):
            raise UserError(
                f"{self._plan_path}: is of another program or release (format"
                f" {_brief(before.get('format'))}, here it is {_brief(self.plan.get('format'))});"
                f" {advice}"
            )
        changes = [
            change for change in differences(before, self.plan) if not self._may_change(*change)
        ]
        if changes:
            if self.is_begun and not self._overwrite:
                name, then, now = changes[0]
                raise UserError(
                    f"{self.folder}: was begun with {name} {_brief(then)}, now it is {_brief(now)};"
                    f" give the same options to resume it, or {self._remedy}"
                )
            self.discard()
        self.resumed = has_plan and not changes
        for path in self.folder.glob("*.tmp"):
            if self._is_own(path):
                path.unlink()
        remove_unfinished(self.folder / PARTS)
        if self._manifest_path.exists():
            # A process was killed after it had written the manifest.
            shutil.rmtree(self.folder / PARTS, ignore_errors=True)
        if not self._plan_path.exists() or before != self.plan:
            write_json(self._plan_path, self.plan)


def part_path(folder: Path, name: str) -> Path:
    """Returns the file of a part's result in the folder of a job; any name gives a file's name."""
    return folder / PARTS / f"{urllib.parse.quote(name, safe='')}.json"


def store(folder: Path, name: str, result: dict[str, Any] | None, key: Any = None) -> None:
    """Writes the result of a part, from whichever process; see `Job.store`."""
    path = part_path(folder, name)
    path.parent.mkdir(exist_ok=True)
    atomic_write_text(path, json.dumps({"key": key, "result": result}) + "\n")


def compute_part(
    tool: Any, part: Part, folder: Path, function: Callable[..., dict[str, Any]]
) -> dict[str, Any]:
    """Computes a part and stores its result; runs in the process, or on the machine, of the tool.

    Raises:
      UserError: as the function, or if the disk is full.
    """
    with report_write_errors(folder, _REMEDY):
        result = function(tool, part.work)
        store(folder, part.name, result)
    return _plain(result)


def differences(before: Any, now: Any, name: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yields (name, value before, value now) of the differences; names of nested values have dots.

    >>> list(differences({"a": {"b": 1}, "c": 2}, {"a": {"b": 3}, "c": 2}))
    [('a.b', 1, 3)]
    """
    if isinstance(before, dict) and isinstance(now, dict):
        for key in sorted(before.keys() | now.keys()):
            yield from differences(before.get(key), now.get(key), f"{name}.{key}".lstrip("."))
    elif before != now:
        yield name, before, now


def _plain(values: Any) -> Any:
    return json.loads(json.dumps(values))


def _brief(value: Any) -> str:
    text = "missing" if value is None else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}…"
