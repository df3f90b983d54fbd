"""The command `cmlm`, its sub-commands, and the console scripts such as `cmlm-train`.

    cmlm train cmlm/tiny --data=records --to=model
    cmlm evaluate model --suites=sts

A sub-command is a binary of this project with shorter ways to say what every call of it says:
positional arguments, `--to` for the output, and defaults. A console script `cmlm-NAME` is the
binary as `python -m` runs it. pyproject.toml lists the scripts.
"""

import dataclasses
import difflib
import importlib
import importlib.util
import itertools
import os
import re
import sys
import types
from collections.abc import Iterable, Mapping
from pathlib import Path

_USE, _TRAIN, _DATA, _EXPORT = "Use an encoder", "Train", "Make data for a training", "Export"


@dataclasses.dataclass(frozen=True)
class Command:
    """A sub-command.

    Attributes:
      module: the binary, by its name in a checkout or below `official_cmlm`.
      summary: what it does, for `cmlm --help`.
      group: the heading that it is listed under.
      arguments: names of the flags that positional arguments are the values of, in order; the last
        one takes all that are left, joined by commas, if a star follows its name.
      to: the flag of the output, which `--to` gives too; empty for none.
      defaults: flags that are given unless the user gives them. A field such as `{model}` stands
        for a path named like the positional argument, beside it where that is a path; a default
        goes without its positional argument.
    """

    module: str
    summary: str
    group: str
    arguments: tuple[str, ...] = ()
    to: str = ""
    defaults: tuple[str, ...] = ()

    @property
    def script(self) -> str:
        """The name of the console script, without `cmlm-`."""
        *_, folder, last = self.module.removesuffix(".__main__").split(".")
        return (f"{folder}-{last}" if folder == "demo" else last).replace("_", "-")


def _export(kind: str, summary: str) -> Command:
    return Command(
        f"export.export_{kind}",
        summary,
        _EXPORT,
        ("model",),
        defaults=("--export_dir={model}_" + kind,),
    )


COMMANDS = {
    "embed": Command(
        "export.embed", "vectors of the texts in files, however many", _USE, ("input*",)
    ),
    "index": Command(
        "export.index",
        "an index of the passages in files and folders",
        _USE,
        ("input*",),
        to="index",
    ),
    "search": Command(
        "export.search", "passages of an index that answer a question", _USE, ("index", "query")
    ),
    "serve": Command(
        "export.serve",
        "HTTP service, as OpenAI's embeddings; of an index a page to search it too",
        _USE,
        ("model",),
    ),
    "evaluate": Command(
        "experiments.evaluate",
        "scores by the papers' protocols",
        _USE,
        ("encoder",),
        to="output_dir",
        defaults=("--output_dir={encoder}_results",),
    ),
    "info": Command(
        "export.info",
        "what an encoder is, and the backend that is the fastest here",
        _USE,
        ("model",),
    ),
    "push": Command(
        "export.push",
        "an encoder to the Hugging Face hub, as a sentence-transformers folder",
        _USE,
        ("model", "repository"),
    ),
    "import": Command(
        "checkpoints.import_checkpoint",
        "a public checkpoint to an encoder directory",
        _USE,
        ("source",),
        to="output_dir",
    ),
    "shrink": Command(
        "checkpoints.shrink",
        "a smaller encoder of a larger one, to start a training from",
        _TRAIN,
        ("model",),
        to="output_dir",
    ),
    "train": Command(
        "experiments.train",
        "a training by an experiment's name; `cmlm train ?` lists them",
        _TRAIN,
        ("experiment",),
        to="model_dir",
        defaults=("--mode=train",),
    ),
    "train-stages": Command(
        "experiments.train_stages",
        "a chain of trainings; `cmlm train-stages ?` lists them",
        _TRAIN,
        ("stages",),
        to="model_dir",
    ),
    "study": Command(
        "experiments.study.__main__",
        "a comparison over arms and seeds; `cmlm study ?` lists them",
        _TRAIN,
        ("study",),
        to="work_dir",
    ),
    "adapt": Command(
        "experiments.adapt",
        "an encoder, trained on with your own text, pairs or labels",
        _TRAIN,
        ("input*",),
        to="output_dir",
    ),
    "demo": Command("experiments.demo.__main__", "from text to search, in minutes", _TRAIN),
    "demo-report": Command(
        "experiments.demo.report", "the demo's number and figure", _TRAIN, to="output_dir"
    ),
    "build-vocab": Command(
        "data_prep.build_vocab", "learns a WordPiece vocabulary", _DATA, to="output"
    ),
    "create-documents": Command(
        "data_prep.create_documents", "text to documents records", _DATA, to="output_dir"
    ),
    "create-pairs": Command(
        "data_prep.create_pairs",
        "translations, inferences and other pairs to pairs records",
        _DATA,
        to="output_dir",
    ),
    "prepare": Command(
        "data_prep.prepare",
        "crawl files to documents records, on one machine or many",
        _DATA,
        to="output_dir",
    ),
    "add-vectors": Command(
        "data_prep.add_vectors",
        "a teacher's vectors beside the texts of records, for distillation",
        _DATA,
        ("records",),
        to="output_dir",
    ),
    "hold-out": Command(
        "data_prep.hold_out", "splits documents into a training and a held-out part", _DATA
    ),
    "title-pairs": Command(
        "data_prep.title_pairs", "pairs of titles and bodies from running text", _DATA, to="output"
    ),
    "mine-negatives": Command(
        "data_prep.mine_negatives", "hard negatives of pairs", _DATA, to="output"
    ),
    "report-balance": Command(
        "data_prep.report_balance",
        "how records are spread over languages",
        _DATA,
        ("records",),
        to="output_dir",
    ),
    "train-quality-classifier": Command(
        "data_prep.train_quality_classifier",
        "a classifier of main content for prepare",
        _DATA,
        to="output",
    ),
    "docstrings": Command(
        "data_prep.docstrings",
        "a corpus of the docstrings of installed packages",
        _DATA,
        to="output",
    ),
    "random-strings": Command(
        "data_prep.random_strings", "strings without meaning", _DATA, to="output"
    ),
    "export-tfhub": _export("tfhub", "TF-Hub modules and a serving model"),
    "export-onnx": _export("onnx", "graphs for ONNX Runtime"),
    "export-litert": _export("litert", "a model for phones"),
    "export-sentence-transformers": _export(
        "sentence_transformers", "a folder that sentence-transformers loads"
    ),
}


def main() -> None:
    """Runs the sub-command, or the binary of a console script, that the command line names."""
    program, *arguments = sys.argv
    script = Path(program).stem.partition("cmlm-")[2]
    if script:
        (command,) = (command for command in COMMANDS.values() if command.script == script)
        binary = dataclasses.replace(command, arguments=(), to="", defaults=())
        return _run(Path(program).stem, binary, arguments)
    name, *rest = arguments or ["--help"]
    if name in ("--help", "-h", "-help", "help"):
        return print(usage())
    if name == "export":
        name, rest = _chosen_export(rest)
        if not name:
            return print(_export_usage())
    if name not in COMMANDS:
        near = difflib.get_close_matches(name, ["export", *COMMANDS], 1)
        hint = f"did you mean {near[0]}? " if near else ""
        sys.exit(f"error: cmlm has no command {name!r:.60}; {hint}cmlm --help lists them")
    return _run(f"cmlm {name}", COMMANDS[name], rest)


def usage() -> str:
    """Returns the text of `cmlm --help`."""
    rows = {name: command for name, command in COMMANDS.items() if command.group != _EXPORT}
    groups: dict[str, list[str]] = {command.group: [] for command in rows.values()}
    for name, command in rows.items():
        groups[command.group].append(f"  {_call(name, command):<34} {command.summary}")
    to = "|".join(_formats())
    groups[_USE].append(f"  export MODEL_DIR --to=FORMAT{'':6} {to}")
    listed = "\n\n".join("\n".join([f"{group}:", *lines]) for group, lines in groups.items())
    return (
        f"usage: cmlm COMMAND [ARGUMENTS] [--flags]\n\n{listed}\n\n"
        "`cmlm COMMAND --help` explains a command and lists its flags."
    )


def _call(name: str, command: Command) -> str:
    names = [flag.upper().replace("*", " …") for flag in command.arguments]
    return " ".join([name, *names])


def _formats() -> list[str]:
    return [name.removeprefix("export-") for name in COMMANDS if name.startswith("export-")]


def _export_usage() -> str:
    lines = [f"  --to={name:<22} {COMMANDS[f'export-{name}'].summary}" for name in _formats()]
    return "\n".join(
        [
            "usage: cmlm export MODEL_DIR --to=FORMAT [--export_dir=FOLDER] [--flags]\n",
            *lines,
            "\n`cmlm export --to=FORMAT --help` lists the flags of one.",
        ]
    )


def _chosen_export(arguments: list[str]) -> tuple[str, list[str]]:
    """Returns the command that `--to` chooses, and the other arguments; no name without `--to`."""
    rest, chosen = [], ""
    remaining = iter(arguments)
    for argument in remaining:
        name, is_set, value = argument.partition("=")
        if name in ("--to", "-to"):
            chosen = value if is_set else next(remaining, "")
        else:
            rest.append(argument)
    if not chosen and not {"--help", "-h", "-help"} & set(rest):
        sys.exit(f"error: --to is missing; give one of {', '.join(_formats())}")
    if chosen and chosen not in _formats():
        sys.exit(f"error: --to={chosen:.60}: give one of {', '.join(_formats())}")
    return chosen and f"export-{chosen}", rest


def _run(name: str, command: Command, arguments: list[str]) -> None:
    """Runs a binary, as the program `name`, with flags that the user or the table gives."""
    from absl import flags

    from official_cmlm import cli

    binary = _imported(command.module)
    binary.define_flags()
    if command.to:
        flags.DEFINE_alias("to", command.to)
    sys.argv = [name, *_as_flags(command, arguments, flags.FLAGS)]
    # absl shows it above the flags.
    sys.modules["__main__"].__doc__ = f"usage: {_call(name, command)} [--flags]\n\n{binary.__doc__}"
    cli.run(binary.main, arguments=command.module == "data_prep.prepare")


def _imported(name: str) -> types.ModuleType:
    """Returns a module of a checkout or, where the project is installed, below this package."""
    top = f"{__package__}.{name.partition('.')[0]}"
    installed = importlib.util.find_spec(top) is not None
    return importlib.import_module(f"{__package__}.{name}" if installed else name)


def _as_flags(command: Command, arguments: Iterable[str], known: Mapping) -> list[str]:
    """Returns the arguments of the binary: defaults, positional arguments as flags, the flags."""
    given, values = [], []
    remaining = iter(arguments)
    for argument in remaining:
        if not argument.startswith("-"):
            values.append(argument)
        elif argument == "--":
            values += [*([] if command.arguments else ["--"]), *remaining]
        else:
            given.append(argument)
            name, is_set, _ = argument.lstrip("-").partition("=")
            if not is_set and name in known and not known[name].boolean:
                given += itertools.islice(remaining, 1)
    said = {}
    for flag in command.arguments:
        if values:
            taken = len(values) if flag.endswith("*") else 1
            said[flag.removesuffix("*")] = ",".join(values[:taken])
            values = values[taken:]
    beside = {flag: _beside(value) for flag, value in said.items()}
    defaults = []
    for default in command.defaults:
        if set(re.findall(r"{(\w+)}", default)) <= beside.keys():
            defaults.append(default.format(**beside))
    return [*defaults, *(f"--{flag}={value}" for flag, value in said.items()), *given, *values]


def _beside(value: str) -> str:
    """Returns the path of a value, or for a value that is not one, its last part as a name."""
    path = value.rstrip("/")
    return path if os.path.exists(path) else re.sub(r"[^\w.-]+", "_", path.rpartition("/")[2])


if __name__ == "__main__":
    main()
