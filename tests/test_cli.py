"""The command line: instant help, one-line errors, exit statuses."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BINARIES = [
    "benchmarks.accelerators",
    "benchmarks.data_prep",
    "benchmarks.embed",
    "benchmarks.encode",
    "benchmarks.encode_side",
    "benchmarks.fuzz",
    "benchmarks.input",
    "benchmarks.input_side",
    "benchmarks.memory",
    "benchmarks.methods",
    "benchmarks.mixed_precision",
    "benchmarks.scaling",
    "benchmarks.search",
    "benchmarks.senteval",
    "benchmarks.senteval_training",
    "benchmarks.service",
    "benchmarks.serving",
    "benchmarks.serving_side",
    "benchmarks.soak",
    "benchmarks.train_step",
    "benchmarks.train_step_examples",
    "benchmarks.train_step_side",
    "benchmarks.train_step_torch",
    "data_prep.build_vocab",
    "data_prep.create_documents",
    "data_prep.create_pairs",
    "data_prep.docstrings",
    "data_prep.hold_out",
    "data_prep.mine_negatives",
    "data_prep.prepare",
    "data_prep.random_strings",
    "data_prep.report_balance",
    "data_prep.train_quality_classifier",
    "experiments.demo",
    "experiments.demo.report",
    "experiments.evaluate",
    "experiments.miniature",
    "experiments.train",
    "experiments.train_stages",
    "export.embed",
    "export.export_litert",
    "export.export_onnx",
    "export.export_sentence_transformers",
    "export.export_tfhub",
    "export.serve",
    "official_cmlm.checkpoints.import_checkpoint",
]


def run(module, *arguments):
    return subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
    )


def test_the_list_of_binaries_is_complete():
    packages = ("benchmarks", "data_prep", "experiments", "export", "official_cmlm")
    found = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__main__")
        for package in packages
        for path in (ROOT / package).rglob("*.py")
        if "cli.run(" in path.read_text(encoding="utf-8") and path.name != "cli.py"
    ]
    assert sorted(found) == BINARIES


@pytest.mark.parametrize("module", BINARIES)
def test_help_comes_without_tensorflow_and_describes_every_flag(module):
    """absl's `--help` exits with 1; the text is what counts."""
    code = (
        "import sys, runpy; sys.argv = ['prog', '--help']\n"
        f"try: runpy.run_module({module!r}, run_name='__main__', alter_sys=True)\n"
        "except SystemExit: pass\n"
        "assert not {'tensorflow', 'tf_keras', 'tokenizers'} & set(sys.modules)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, check=False, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    assert "flags:" in result.stdout
    flags = [line for line in result.stdout.splitlines() if line.startswith("  --")]
    assert flags and all(len(line.split(":", 1)[1]) > 10 for line in flags if ":" in line)


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
def test_mistakes_are_one_line_with_exit_status_1(module, arguments, message):
    arguments = [*arguments, "stray"] if "stray" in message else arguments
    result = run(module, *arguments)
    assert result.returncode == 1
    assert result.stderr.startswith(message), result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_a_question_mark_lists_the_experiments():
    result = run("experiments.train", "--experiment=?")
    assert result.returncode == 0
    assert "cmlm/english_base" in result.stdout and "Table 1" in result.stdout


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


@pytest.mark.parametrize("kind", ["create_documents", "create_pairs", "prepare"])
def test_the_import_of_tensorflow_is_announced(tmp_path, kind):
    """It takes ten seconds or more, so a line on standard error comes before."""
    (tmp_path / "a.txt").write_text("A cat sat.")
    (tmp_path / "v.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n")
    text = f"{tmp_path}/a.txt"
    arguments = [f"--input={text},{text}", "--languages=en,de"]
    if kind != "create_pairs":
        arguments = [f"--input={text}"]
    result = subprocess.run(
        [sys.executable, "-c", _STOP_AT_TENSORFLOW, f"data_prep.{kind}", *arguments]
        + [f"--vocab_file={tmp_path}/v.txt", "--lower_case", f"--output_dir={tmp_path}/out"],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
    )
    assert (result.returncode, result.stderr) == (7, "importing TensorFlow …\n")
