"""Every benchmark on tiny input: it comes to its end, and prints its figures."""

import os
import re
import subprocess
import sys
from importlib.util import find_spec

import pytest

from tests.checkpoints.helpers import REFERENCES
from tests.conftest import make_documents
from tests.evaluation.toy import write_senteval

_FIGURE = re.compile(r"^(?:figure|ratio) (\S+) (\S+)$", re.MULTILINE)


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """Writes three files of 60 sentences, a paragraph each."""
    folder = tmp_path_factory.mktemp("text")
    for number in range(3):
        paragraphs = [d.paragraphs[0] for d in make_documents(60, number)]
        (folder / f"{number}.txt").write_text("\n\n".join(paragraphs) + "\n")
    return folder


@pytest.fixture
def run(text, tmp_path):
    """Runs a benchmark without any data of its own; returns its output and its figures."""

    def benchmark(name, *arguments):
        command = [sys.executable, "-m", f"benchmarks.{name}", *arguments]
        environment = {k: v for k, v in os.environ.items() if k != "CMLM_DATA_DIR"}
        done = subprocess.run(command, env=environment, check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout, {key: float(value) for key, value in _FIGURE.findall(done.stdout)}

    return benchmark


@pytest.mark.long
def test_encode(run, text):
    """Every way of ours; sentence-transformers is left out where it is not installed."""
    printed, ratios = run(
        "encode",
        *(f"--text={text}", f"--model={REFERENCES / 'minilm'}", "--rounds=1", "--sentences=20"),
    )
    rows = [line for line in printed.splitlines() if line.startswith("| ours")]
    assert len(rows) >= 6
    assert all(float(row.split("|")[8]) < 0.1 for row in rows)
    assert ratios["serving_single_vs_encode"] > 0


@pytest.mark.long
def test_service(run, text):
    """No request fails, and a text's vector stays the same."""
    _, figures = run(
        "service",
        *(f"--text={text}", f"--model={REFERENCES / 'minilm'}", "--sentences=20"),
        *("--seconds=3", "--clients=2"),
    )
    assert (figures["errors"], figures["exit_status"]) == (0, 0)
    assert figures["requests_per_second"] > 0 and figures["service_p50_ms"] > 0
    assert figures["largest_difference"] < 1e-5


@pytest.mark.long
def test_search(run, text):
    """Exact search finds all, half precision most; the peer only where it is installed."""
    ways = ["exact", "float16", "int8", "bits", "graph_int8"]
    ways += ["faiss"] * bool(find_spec("faiss"))
    _, figures = run(
        "search",
        *(f"--text={text}", f"--model={REFERENCES / 'minilm'}", "--sentences=60"),
        *(f"--ways={way}" for way in ways),
        *("--shard_rows=10", "--rounds=1", "--queries=5", "--timed=3"),
    )
    recalls = {name: value for name, value in figures.items() if name.endswith("recall_at_10")}
    assert recalls.keys() == {f"search_{way}_recall_at_10" for way in ways}
    assert recalls["search_exact_recall_at_10"] == 1 and min(recalls.values()) > 0
    assert recalls["search_float16_recall_at_10"] > 0.7
    assert figures["embed_one_worker"] > 0


@pytest.mark.long
def test_train_step(run, text):
    """Steps by TensorFlow's kernels; PyTorch only where it is installed."""
    torch = "eager" if find_spec("torch") else ""
    _, figures = run(
        "train_step",
        *(f"--text={text}", "--sizes=1x64", "--rounds=1", "--steps=2", "--examples=64"),
        *("--ours=kernels", f"--pytorch={torch}"),
        *("--batch_size=2", "--bucket_boundaries=16,32,256"),
    )
    for objective in ("cmlm", "mlm", "contrastive"):
        assert figures[f"train_step_{objective}_1x64_per_second"] > 0


@pytest.mark.long
def test_data_prep(run):
    """On docstrings of the installed packages, and a vocabulary of them."""
    _, figures = run(
        "data_prep", "--text_mb=0.2", "--model_garden_mb=0.1", "--memory_mb=0.1", "--rounds=1"
    )
    assert min(figures[f"data_prep_vs_{peer}"] for peer in ("model_garden", "tokenizers")) > 0
    for deduplicate in ("off", "normalised", "near"):
        assert 0 < figures[f"data_prep_memory_MiB_{deduplicate}"] < 4000


@pytest.mark.long
def test_input(run, text, tmp_path):
    """One objective that reads ids, and one that reads text."""
    _, figures = run(
        "input",
        *(f"--text={text}", f"--work_dir={tmp_path}", "--rounds=1"),
        *("--examples=64", "--few_examples=64", "--objectives=cmlm,contrastive"),
    )
    assert figures["input_pairs_per_second_cmlm"] > 0
    assert all(figures[f"input_per_second_{o}"] > 0 for o in ("cmlm", "contrastive"))


@pytest.mark.long
def test_vocabulary(run, text):
    """Both generators have the same size; most entries are in both."""
    _, figures = run(
        "vocabulary",
        *(f"--input={text}", "--documents_by=line", "--", "--vocab_size=100"),
    )
    sizes = {figures[f"vocabulary_entries_{g}"] for g in ("tokenizers", "tensorflow_text")}
    assert len(sizes) == 1 and 5 < figures["vocabulary_entries_common"] < max(sizes)


@pytest.mark.long
def test_distil(tmp_path):
    """Both sides are scored; model2vec only where it is installed."""
    write_senteval(tmp_path / "senteval" / "downstream", 8)
    command = [sys.executable, "-m", "benchmarks.distil", f"--data_dir={tmp_path}"]
    command.append(f"--model={REFERENCES / 'minilm'}")
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    figures = dict(_FIGURE.findall(done.stdout))
    assert {f"distil_ours_{key}" for key in ("seconds", "stsb")} <= figures.keys()
    assert float(figures["distil_ours_seconds"]) > 0
    assert ("distil_model2vec_stsb" in figures) == bool(find_spec("model2vec"))
