"""Records of a study: runs of `data_prep`'s binaries, each once."""

import difflib
import hashlib
import json
import re
import shutil
import string
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from official_cmlm import cli
from official_cmlm.errors import UserError
from official_cmlm.files import atomic_write_text, read_object
from official_cmlm.tokenization import load_vocabulary

from .. import module_of
from .study import OUTPUTS, DataStep, Study, expand

# Runs a program and returns its exit status.
Call = Callable[[list[str]], int]


def write_aside(path: Path, values: dict[str, Any]) -> None:
    """Writes JSON under another name and renames it, so that the file is whole or absent."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(values, indent=1, ensure_ascii=False, allow_nan=False)
    atomic_write_text(path, text + "\n")


def places(
    study: Study, data_dir: Path, work_dir: Path, start: Path | None = None
) -> dict[str, str]:
    """What `$data`, `$start` and the `$name` of each step of data stand for."""
    made = {step.name: str(work_dir / "data" / step.name) for step in study.data}
    given = {"data": str(data_dir)} | ({"start": str(start)} if start else {})
    return {**given, **made}


def check_flags(study: Study) -> None:
    """Raises `UserError` for a flag of a step of `data` that its binary does not have."""
    known: dict[str, list[str]] = {}
    for step in study.data:
        if step.run not in known:
            command = [sys.executable, "-m", module_of(f"data_prep.{step.run}"), "--helpfull"]
            printed = subprocess.run(  # noqa: S603
                command, capture_output=True, text=True, check=False
            ).stdout
            known[step.run] = re.findall(r"^  --(?:\[no\])?(\w+):", printed, re.MULTILINE)
        for name in step.flags:
            if name not in known[step.run]:
                near = difflib.get_close_matches(name, known[step.run], n=1)
                hint = f"did you mean {near[0]}?" if near else f"see data_prep.{step.run} --help"
                raise UserError(f"data {step.name}: {step.run} has no flag {name}; {hint}")


def make_data(study: Study, names: dict[str, str], call: Call) -> None:
    """Runs the steps of `data` that have not been run.

    Args:
      study: the study.
      names: see `places`.
      call: runs a program.

    Raises:
      UserError: if a step fails, or if it was run with other flags before.
    """
    for step in study.data:
        folder, recipe = Path(names[step.name]), _recipe(study, step, names)
        # Written when the step is complete.
        path = folder.with_name(f"{step.name}.json")
        if path.is_file():
            if read_object(path) != recipe:
                raise UserError(
                    f"{folder}: made by another version of the study, whose step {step.name} of "
                    f"data was another; delete {folder} and {path.name}, or name another --work_dir"
                )
            print(f"data {step.name}: as before", flush=True)
            continue
        if folder.exists():
            shutil.rmtree(folder)
        print(f"data {step.name}: {step.run} …", flush=True)
        outputs = OUTPUTS[step.run]
        if all(outputs.values()):
            folder.mkdir(parents=True)
        flags = {flag: str(folder / name) for flag, name in outputs.items()}
        flags |= expand(step.flags, names)
        arguments = [_flag(name, value) for name, value in flags.items()]
        status = call([sys.executable, "-m", module_of(f"data_prep.{step.run}"), *arguments])
        # The step has asked for skipping, and says what it left out.
        if status not in (0, cli.EXIT_SKIPPED):
            raise UserError(f"data {step.name}: {step.run} ended with status {status}; see above")
        write_aside(path, recipe)


def _flag(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return f"--{name}" if value else f"--no{name}"
    return f"--{name}={','.join(map(str, value)) if isinstance(value, list) else value}"


def _recipe(study: Study, step: DataStep, names: dict[str, str]) -> dict[str, Any]:
    """A step, and those whose output it reads; of `$start`, records depend on the vocabulary."""
    read = string.Template(json.dumps(step.flags)).get_identifiers()
    earlier = {o.name: _recipe(study, o, names) for o in study.data if o.name in read}
    if "start" in read:
        earlier["start"] = load_vocabulary(Path(names["start"])).hash
    return {"run": step.run, "flags": step.flags, "reads": earlier}


def content(folder: Path) -> str:
    """Sixteen digits of what a step of data made; of records their manifest names it all."""
    manifest, digest = folder / "dataset.json", hashlib.sha256()
    for path in [manifest] if manifest.is_file() else sorted(folder.rglob("*")):
        if path.is_file():
            digest.update(f"{path.relative_to(folder)}\n".encode())
            with path.open("rb") as file:
                while chunk := file.read(1 << 22):
                    digest.update(chunk)
    return digest.hexdigest()[:16]
