"""The command `cmlm` and its sub-commands.

    cmlm train cmlm/tiny --data=records --to=model
    cmlm evaluate model --suites=sts

A sub-command is a binary of this project with shorter ways to give what every call needs:
positional arguments, `--to` for the output, and defaults. `python -m` runs the same binary with its
flags alone.
"""

import argparse
import dataclasses
import difflib
import importlib
import importlib.util
import io
import itertools
import os
import re
import sys
import types
from collections.abc import Iterable, Mapping


@dataclasses.dataclass(frozen=True)
class Command:
    """A sub-command.

    Attributes:
      module: the binary, by its name in a checkout or below `official_cmlm`.
      summary: what it does, for `cmlm --help`.
      arguments: names of the flags whose values the positional arguments are, in order; if a star
        follows the last name, its flag takes all remaining arguments, joined by commas.
      to: the flag of the output, which `--to` sets too. Default: `output_dir` or `output`, if the
        binary has one of them.
      defaults: flags that are set unless the user sets them. A field such as `{model}` is replaced
        by the positional argument if that is an existing path, else by its last part as a file
        name; a default is left out if its positional argument is missing.
    """

    module: str
    summary: str
    arguments: str = ""
    to: str = ""
    defaults: tuple[str, ...] = ()


# Name -> sub-command, by the headings of `cmlm --help`.
_USE = {
    "embed": Command(
        "export.embedding.embed", "vectors of the texts in files, however many", "input*"
    ),
    "index": Command(
        "export.search.index", "an index of the passages in files and folders", "input*", "index"
    ),
    "search": Command(
        "export.search.search",
        "passages of an index, a file or a folder that answer a question",
        "index query",
    ),
    "serve": Command(
        "export.service.serve",
        "HTTP service, as OpenAI's embeddings; of an index a page to search it too",
        "model",
    ),
    "evaluate": Command(
        "experiments.evaluate",
        "scores by the papers' protocols",
        "encoder",
        defaults=("--output_dir={encoder}_results",),
    ),
    "classify": Command(
        "export.classify", "labels of the texts in a table, by a classifier of `adapt`", "input*"
    ),
    "compare": Command(
        "experiments.compare", "encoders and BM25 on queries of your own", "encoders*"
    ),
    "info": Command("export.info", "what an encoder, a classifier or an index is", "model"),
    "import": Command(
        "checkpoints.import_checkpoint", "a public checkpoint to an encoder directory", "source"
    ),
}
_TRAIN = {
    "shrink": Command(
        "encoding.shrink",
        "a smaller encoder of a larger one, or one with a map on its vectors",
        "model",
    ),
    "train": Command(
        "experiments.train",
        "a training by an experiment's name; `cmlm train ?` lists them",
        "experiment",
        "model_dir",
        ("--mode=train",),
    ),
    "lower": Command(
        "experiments.lower", "a training for a machine with JAX but no TensorFlow", "experiment"
    ),
    "train-stages": Command(
        "experiments.train_stages",
        "a chain of trainings; `cmlm train-stages ?` lists them",
        "stages",
        "model_dir",
    ),
    "study": Command(
        "experiments.study.__main__",
        "a comparison over arms and seeds; `cmlm study ?` lists them",
        "study",
        "work_dir",
    ),
    "show-view": Command(
        "experiments.show_view", "what an experiment's objectives read, as text", "experiment"
    ),
    "adapt": Command(
        "experiments.adapt",
        "an encoder, trained on with your own text, pairs, labels or scores",
        "input*",
    ),
    "distil": Command(
        "experiments.distil",
        "a small, fast encoder that follows a large one; with --static in a minute, without text",
        "teacher",
    ),
    "demo": Command("experiments.demo.__main__", "from text to search, in minutes", to="work_dir"),
    "demo-report": Command("experiments.demo.report", "the demo's number and figure"),
}
_DATA = {
    "build-vocab": Command("data_prep.build_vocab", "learns a WordPiece vocabulary"),
    "create-documents": Command("data_prep.create_documents", "text to documents records"),
    "create-pairs": Command(
        "data_prep.create_pairs", "translations, inferences and other pairs to pairs records"
    ),
    "prepare": Command(
        "data_prep.prepare", "crawl files to documents records, on one machine or many"
    ),
    "add-vectors": Command(
        "data_prep.add_vectors",
        "a teacher's vectors beside the texts of records, for distillation",
        "records",
    ),
    "hold-out": Command(
        "data_prep.hold_out",
        "splits documents into a training and a held-out part",
        to="train_output",
    ),
    "title-pairs": Command("data_prep.title_pairs", "pairs of titles and bodies from running text"),
    "mine-negatives": Command("data_prep.mine_negatives", "hard negatives of pairs"),
    "train-quality-classifier": Command(
        "data_prep.train_quality_classifier", "a classifier of main content for prepare"
    ),
    "docstrings": Command(
        "data_prep.docstrings", "a corpus of the docstrings of installed packages"
    ),
    "random-strings": Command("data_prep.random_strings", "strings without meaning"),
}
_GROUPS = {"Use an encoder": _USE, "Train": _TRAIN, "Make data for a training": _DATA}
# Format of `cmlm export --to=FORMAT` -> the files that it writes.
_FORMATS = {
    "tfhub": "TF-Hub modules and a serving model",
    "onnx": "graphs for ONNX Runtime",
    "litert": "a model for phones",
    "sentence-transformers": "a folder that sentence-transformers loads",
    "model2vec": "a folder of a static encoder that model2vec loads",
}


def _exporter(module: str, summary: str = "") -> Command:
    """Returns the command of an exporter, which writes beside the encoder by default."""
    beside = "--export_dir={model}_" + module.rpartition(".")[2].removeprefix("export_")
    return Command(module, summary, "model", defaults=(beside,))


COMMANDS = _USE | _TRAIN | _DATA
COMMANDS |= {
    f"export-{name}": _exporter(f"export.export_{name.replace('-', '_')}", summary)
    for name, summary in _FORMATS.items()
}


def main() -> None:
    """Runs the sub-command that the command line names."""
    name, *rest = sys.argv[1:] or ["--help"]
    if name in ("--help", "-h", "-help", "help"):
        return _print(usage())
    if name == "--version":
        from importlib import metadata

        return _print(f"cmlm {metadata.version('official-cmlm')}")
    if name == "export":
        name, rest = _choose_export(rest)
        if not name:
            return _print(_export_usage())
    if name.startswith("export-") and "." in name:
        module = name.removeprefix("export-")
        return _run(name, _exporter(module), rest, _import_exporter(module))
    if name not in COMMANDS:
        near = difflib.get_close_matches(name, ["export", *COMMANDS], 1)
        hint = f"did you mean {near[0]}? " if near else ""
        sys.exit(f"error: cmlm has no command {name!r:.60}; {hint}cmlm --help lists them")
    return _run(name, COMMANDS[name], rest, _import_binary(COMMANDS[name].module))


def usage() -> str:
    """Returns the text of `cmlm --help`."""
    groups = {
        heading: [f"  {_write_usage(name, row):<34} {row.summary}" for name, row in rows.items()]
        for heading, rows in _GROUPS.items()
    }
    groups["Use an encoder"].append(f"  export MODEL_DIR --to=FORMAT{'':6} {'|'.join(_FORMATS)}")
    listed = "\n\n".join("\n".join([f"{group}:", *lines]) for group, lines in groups.items())
    return (
        f"usage: cmlm COMMAND [ARGUMENTS] [--flags]\n\n{listed}\n\n"
        "`cmlm COMMAND --help` explains a command and lists its flags.\n"
        "`cmlm --version` prints the version."
    )


def _print(text: str) -> None:
    """Prints a text, in a locale of ASCII too; an output that takes none of it is reported."""
    try:
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="backslashreplace")
        print(text, flush=True)
    except OSError as error:
        from official_cmlm import cli

        sys.exit(cli.report_lost_output(error))


def _write_usage(name: str, command: Command) -> str:
    return f"{name} {command.arguments.upper().replace('*', ' …')}".rstrip()


def _export_usage() -> str:
    lines = [f"  --to={name:<22} {summary}" for name, summary in _FORMATS.items()]
    return "\n".join(
        [
            "usage: cmlm export MODEL_DIR --to=FORMAT [--export_dir=FOLDER] [--flags]\n",
            *lines,
            "  --to=PACKAGE.MODULE         an exporter of your own",
            "\n`cmlm export --to=FORMAT --help` lists the flags of one.",
        ]
    )


def _choose_export(arguments: list[str]) -> tuple[str, list[str]]:
    """Returns the command that `--to` chooses, empty for `--help` alone, and other arguments."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--to", "-to", nargs="?", const="", default="")
    chosen, rest = parser.parse_known_args(arguments)
    if not chosen.to and not {"--help", "-h", "-help"} & set(rest):
        sys.exit(f"error: --to is missing; give one of {', '.join(_FORMATS)}")
    if chosen.to and chosen.to not in _FORMATS and "." not in chosen.to:
        sys.exit(f"error: --to={chosen.to:.60}: give one of {', '.join(_FORMATS)}")
    return chosen.to and f"export-{chosen.to}", rest


def _run(name: str, command: Command, arguments: list[str], binary: types.ModuleType) -> None:
    """Runs the binary of a sub-command."""
    from absl import flags

    from official_cmlm import cli

    binary.define_flags()
    define_to(command, flags.FLAGS)
    sys.argv = [f"cmlm {name}", *_convert_to_flags(command, arguments, flags.FLAGS)]
    # absl shows this docstring above the flags.
    usage = f"usage: cmlm {_write_usage(name, command)} [--flags]"
    sys.modules["__main__"].__doc__ = f"{usage}\n\n{binary.__doc__}"
    cli.run(binary.main)


def define_to(command: Command, own_flags: Mapping) -> None:
    """Defines `--to` among a binary's flags, unless it has one itself."""
    from absl import flags

    names = [name for name in (command.to, "output_dir", "output") if name in own_flags]
    if names and "to" not in own_flags:
        flags.DEFINE_alias("to", names[0], flag_values=own_flags)


def _import_exporter(name: str) -> types.ModuleType:
    """Imports an exporter of the user's own; ends with one line if it is not one."""
    from official_cmlm import cli
    from official_cmlm.common.errors import UserError

    formats = f"--to takes one of {', '.join(_FORMATS)}, or an exporter's package.module"
    try:
        module = cli.import_user_module(name, formats)
    except UserError as error:
        sys.exit(f"error: {error}")
    if not hasattr(module, "define_flags"):
        sys.exit(f"error: {name}: has no define_flags; {formats}")
    return module


def _import_binary(name: str) -> types.ModuleType:
    """Imports a module of a checkout or, if the project is installed, of this package."""
    top = f"{__package__}.{name.partition('.')[0]}"
    installed = importlib.util.find_spec(top) is not None
    return importlib.import_module(f"{__package__}.{name}" if installed else name)


def _convert_to_flags(command: Command, arguments: Iterable[str], own_flags: Mapping) -> list[str]:
    """Returns the arguments of the binary: defaults, positional arguments as flags, the flags."""
    options, values = [], []
    remaining = iter(arguments)
    for argument in remaining:
        if not argument.startswith("-") or argument == "-":
            values.append(argument)
        elif argument == "--":
            values += [*([] if command.arguments else ["--"]), *remaining]
        else:
            options.append(argument)
            name, is_set, _ = argument.lstrip("-").partition("=")
            if not is_set and name in own_flags and not own_flags[name].boolean:
                options += itertools.islice(remaining, 1)
    positional = {}
    for flag in command.arguments.split():
        if values and flag.endswith("*"):
            positional[flag[:-1]], values = ",".join(map(_quote, values)), []
        elif values:
            positional[flag] = values.pop(0)
    beside = {flag: _name_beside(value) for flag, value in positional.items()}
    defaults = []
    for default in command.defaults:
        if set(re.findall(r"{(\w+)}", default)) <= beside.keys():
            defaults.append(default.format(**beside))
    first = [f"--{flag}={value}" for flag, value in positional.items()]
    return [*defaults, *first, *options, *values]


def _quote(name: str) -> str:
    """Returns a value for a flag that takes several; commas in the name of a file part none."""
    is_quoted = not {",", '"'}.isdisjoint(name) and os.path.exists(name)
    return '"' + name.replace('"', '""') + '"' if is_quoted else name


def _name_beside(value: str) -> str:
    """Returns a value that is an existing path; of another value, its last part as a file name."""
    path = value.rstrip("/")
    return path if os.path.exists(path) else re.sub(r"[^\w.-]+", "_", path.rpartition("/")[2])


if __name__ == "__main__":
    main()
