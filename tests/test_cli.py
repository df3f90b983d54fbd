"""The command line: instant help, one-line errors, exit statuses."""

import os
import subprocess
import sys

import pytest

from official_cmlm.command import COMMANDS
from tests.binaries import BINARIES, ROOT, call, flags_of, modules_with


def run(*command, **options):
    return subprocess.run(
        [sys.executable, *command], cwd=ROOT, capture_output=True, text=True, **options
    )


def test_binaries_are_those_that_start_by_cli():
    """A file with `__main__` that did not would show stack traces for mistakes."""
    started, by_cli = map(set, map(modules_with, ('if __name__ == "__main__"', "cli.run(")))
    others = {"experiments.demo.search", "experiments.run_lowered"}
    assert started - by_cli == others | {"benchmarks.train_step_lowered"}
    binaries = {"data_prep.prepare", "experiments.train", "export.service.serve"}
    assert binaries <= set(BINARIES) <= by_cli


@pytest.mark.parametrize("module", BINARIES)
def test_every_flag_is_described(module):
    """Each help says more than the flag's name and type."""
    flag_values = flags_of(module)
    assert list(flag_values)
    assert all(len(flag_values[name].help) > 10 for name in flag_values)
    # The help has lines of 80 characters, four of them blank, and no word needs two lines.
    words = " ".join(flag_values[name].help for name in flag_values).split()
    assert module.startswith("benchmarks.") or max(map(len, words)) <= 76


@pytest.mark.parametrize(
    "name", ["", "embed", *(pytest.param(name, marks=pytest.mark.long) for name in COMMANDS)]
)
def test_help_is_shown_in_a_locale_of_ascii(name):
    ascii_only = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    arguments = [name, "--help"] if name else ["--help"]
    done = run("-m", "official_cmlm.command", *arguments, env=os.environ | ascii_only)
    assert done.stderr == "" and "usage: cmlm" in done.stdout and done.stdout.isascii()


@pytest.mark.parametrize("output", ["full", "pipe", "closed"])
@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["embed", "--help"]])
def test_output_that_takes_nothing_shows_no_stack_trace(arguments, output):
    """A full disk is an error of one line; a pipe without a reader, as of `| head`, is silent."""
    reading, writing = os.pipe()
    os.close(reading)
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "official_cmlm.command", *arguments],
            cwd=ROOT,
            stdout={"full": full, "pipe": writing, "closed": None}[output],
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=(lambda: os.close(1)) if output == "closed" else None,
        )
    os.close(writing)
    is_full = output == "full"
    assert done.stderr == ("error: No space left on device\n" if is_full else "")
    assert output == "closed" or done.returncode == (1 if is_full else 141)


@pytest.mark.parametrize(
    ("module", "arguments", "message"),
    [
        ("data_prep.create_documents", ["--input=nowhere", "--vocab_file=v", "--output_dir=o"],
         "error: nowhere: no such file"),
        ("data_prep.create_documents",
         ["--input=README.md", "--vocab_file=nowhere.txt", "--output_dir=o"],
         "error: nowhere.txt: no such file; name a vocabulary"),
        ("experiments.train", [], "error: --experiment is missing"),
        ("experiments.train", ["--experiment=demo"], "error: --model_dir is missing"),
        ("experiments.train", ["--experiment=cmlm"], "error: unexpected argument 'stray'"),
    ],
)  # fmt: skip
def test_mistakes_are_one_line_with_exit_status_1(module, arguments, message, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    arguments = [*arguments, "stray"] if "stray" in message else arguments
    assert call(module, *arguments) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(message)


def test_a_question_mark_lists_the_experiments(capsys):
    assert call("experiments.train", "--experiment=?") == 0
    printed = capsys.readouterr().out
    assert "cmlm/english_base" in printed and "Table 1" in printed


@pytest.mark.parametrize(("variables", "level"), [({}, "3"), ({"TF_CPP_MIN_LOG_LEVEL": "0"}, "0")])
def test_the_log_level_of_tensorflow_is_set_unless_the_user_set_it(variables, level):
    environment = {key: value for key, value in os.environ.items() if key != "TF_CPP_MIN_LOG_LEVEL"}
    program = "import os, official_cmlm; print(os.environ['TF_CPP_MIN_LOG_LEVEL'])"
    assert run("-c", program, env=environment | variables).stdout == f"{level}\n"


# Runs a binary where the import of TensorFlow ends the process.
_STOP_AT_TENSORFLOW = """
import runpy, sys

class Stop:
    def find_spec(self, name, path=None, target=None):
        if name == "tensorflow":
            sys.exit(7)

sys.meta_path.insert(0, Stop())
sys.argv = sys.argv[1:]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""


@pytest.mark.parametrize("pairs", [True, False])
def test_the_import_of_tensorflow_is_announced(tmp_path, pairs):
    """It takes ten seconds or more, so a line on standard error comes before."""
    (tmp_path / "a.txt").write_text("A cat sat.")
    (tmp_path / "v.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n")
    text = f"{tmp_path}/a.txt"
    arguments = [f"--input={text},{text}", "--languages=en,de"] if pairs else [f"--input={text}"]
    arguments += [f"--vocab_file={tmp_path}/v.txt", "--lower_case", f"--output_dir={tmp_path}/out"]
    kind = "data_prep.create_pairs" if pairs else "data_prep.prepare"
    result = run("-c", _STOP_AT_TENSORFLOW, kind, *arguments)
    assert (result.returncode, result.stderr) == (7, "importing TensorFlow …\n")
