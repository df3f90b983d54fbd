"""Training steps for TPUs: cases, every objective compiled, and the model of a step's memory."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.accelerators.cases import CASES, case_of, overrides
from benchmarks.accelerators.compiling import ENVIRONMENT, compile_step
from benchmarks.accelerators.memory import REMEDIES, largest_batch, table, training_of
from official_cmlm.common.errors import UserError
from tests.training.all_objectives import SETTINGS, batch_of, task_of, write_folders

_DATA = {"seq_length": 16, "global_batch_size": 4}
_DATA |= {"max_bucket_batch_size": 4, "bucket_boundaries": [16]}
_ENCODER = {"num_layers": 1, "hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64}
# Fields of `bitext/s3` that make its step tiny.
TINY = {
    "task": {
        "encoder": {**_ENCODER, "vocab_size": 300, "remat": "attention"},
        "train_data": _DATA,
        "objectives": {
            "cmlm": {"num_projections": 3, "max_predictions": 5},
            "bitext_retrieval": {"train_data": _DATA},
        },
    }
}


@pytest.fixture
def libtpu(monkeypatch):
    """The TPU's compiler."""
    for package in ("jax", "libtpu"):
        pytest.importorskip(package, reason=f"needs {package}: requirements-bench.txt")
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)


@pytest.fixture(scope="module")
def folders(tmp_path_factory, vocabulary):
    return write_folders(tmp_path_factory.mktemp("all_records"), vocabulary)


def _load_task(experiment):
    from experiments import registry

    params = registry.load(experiment)
    return overrides(params, case_of(experiment), Path("records"))["task"]


def test_a_core_gets_its_share_of_the_published_batch():
    """CMLM §3 and appendix C: 2,048 pairs of 2 × 256 tokens on 64 TPUs."""
    for experiment in ("cmlm/english_base", "cmlm/english_large", "cmlm/multilingual_base"):
        data = _load_task(experiment)["train_data"]
        assert data["global_batch_size"] == data["max_bucket_batch_size"] == 2048 // 64
        assert data["bucket_boundaries"] == [256]
    task = _load_task("bitext/s3")
    pairs = task["objectives"]["bitext_retrieval"]
    assert task["train_data"]["global_batch_size"] == 32
    assert pairs["train_data"]["global_batch_size"] == 2048 // 64
    # A remedy goes to the objectives that have it.
    assert task["objectives"]["cmlm"] == {"vocabulary_block_size": 8192}
    assert "vocabulary_block_size" not in pairs
    # The others were trained on one device.
    assert _load_task("mirror_bert/sentence_bert")["train_data"]["global_batch_size"] == 200


def test_names_of_figures():
    assert [case.name for case in CASES.values()] == [
        *("english_base", "english_large", "multilingual_base", "bitext_s3", "declutr_base"),
        *("cmlm_cse_bert_base", "mirror_bert_sentence_bert"),
    ]
    with pytest.raises(UserError, match="'cmlm/english' is not an experiment"):
        case_of("cmlm/english")


def test_without_libtpu(monkeypatch):
    """One line that says what to install."""
    monkeypatch.setitem(sys.modules, "libtpu", None)
    with pytest.raises(UserError, match=r"needs JAX and libtpu .*requirements-bench"):
        compile_step(Path("step"), "v5e:2x2")


def test_remedies_are_where_the_published_batch_needs_them():
    """It fits its accelerators, and a YAML has remedies where it needs them, and only there."""
    from experiments import registry

    for case in CASES.values():
        params, training = registry.load(case.experiment), training_of(case.experiment)
        remedies = {
            "remat": case.remedies.get("remat", "none"),
            "vocabulary_block": case.remedies.get("vocabulary_block_size", 0),
        }
        share = training.published // case.cores
        assert params.task.train_data.seq_length in {length for _, length in case.sequences}
        assert largest_batch(training, 16, **remedies) >= share, case
        block = getattr(getattr(params.task.objectives, "cmlm", None), "vocabulary_block_size", 0)
        fits = largest_batch(training, 16) >= share
        assert (params.task.encoder.remat, block) == (
            ("none", 0) if fits else (remedies["remat"], remedies["vocabulary_block"])
        )


def test_memory_of_a_step_is_linear_in_its_examples():
    training = training_of("cmlm/english_base")
    fixed = training.bytes_of(0)
    # Weights, two slots and gradients, the head's too; then 12 blocks' kernels in bfloat16, and a
    # second gradient of the table.
    state = 4 * 4 * (training.encoder.num_weights() + 768**2 + 3 * 768 + 30522)
    assert fixed == state + 2 * 12 * (4 + 8) * 768**2 + 4 * 30522 * 768
    assert training.bytes_of(6) - fixed == pytest.approx(2 * (training.bytes_of(3) - fixed))
    least = min(training.bytes_of(32, **remedies) for remedies in REMEDIES.values())
    assert least == training.bytes_of(32, **REMEDIES["both"])
    # One byte less than 64 pairs need is not enough for them.
    gib = training.bytes_of(64) * 16 / 15.75 / 2**30
    assert (
        largest_batch(training, gib * 1.0001) == 64 and largest_batch(training, gib * 0.9999) == 32
    )
    assert largest_batch(training, 0.1) == 0


def test_table():
    lines = table().splitlines()
    assert len(lines) == 2 + len(CASES)
    assert lines[2].startswith(
        "| `cmlm/english_base` | 2048 on 64 | 32; 256 with `remat: blocks` |"
    )


@pytest.mark.long
@pytest.mark.parametrize("name", SETTINGS)
def test_every_objective_compiles_for_a_tpu(name, folders, tmp_path, libtpu):
    """Its whole step with an optimizer, and with what saves memory."""
    from official.modeling import optimization

    from official_cmlm.training.jax_loop import portable_step
    from official_cmlm.training.step import optimizer_variables
    from official_cmlm.training.step_module import lower

    config = SETTINGS[name]
    block = {"vocabulary_block_size": 50} if hasattr(config, "vocabulary_block_size") else {}
    remedies = {"dropout_rate": 0.1, "remat": "blocks"}
    task = task_of(folders, name, remedies, static_shapes=True, **block)
    model = task.build_model()
    optimizer = task.create_optimizer(
        optimization.OptimizationConfig(
            {
                "optimizer": {"type": "lamb"},
                "learning_rate": {"type": "constant", "constant": {"learning_rate": 1e-3}},
            }
        )
    )
    _ = optimizer.iterations
    metrics = task.build_metrics()
    step = tmp_path / "step"
    batch = batch_of(task, name)
    module = lower(
        lambda features: task.train_step(features, model, optimizer, metrics) and None,
        batch,
        lambda: [
            *(*model.variables, *optimizer_variables(optimizer)),
            *(variable for metric in metrics for variable in metric.variables),
        ],
    )
    step.write_bytes(portable_step(module, batch, "tpu"))
    costs = compile_step(step, "v5e:2x2")
    # Weights and both slots; the gradients at least are temporary.
    weights = sum(4 * v.shape.num_elements() for v in model.trainable_variables)
    assert costs["arguments"] > 3 * weights and costs["temporaries"] > 0
    # New weights take the place of the old ones.
    assert costs["total"] < costs["arguments"] + costs["temporaries"] + weights
    assert costs["flops"] > 0 and costs["bytes_accessed"] > costs["arguments"]


@pytest.mark.long
def test_the_command(tmp_path, libtpu):
    """A tiny step of an experiment; what was compiled once is kept."""
    override = f"--params_override={json.dumps(TINY)}"
    command = [
        *(sys.executable, "-m", "benchmarks.accelerators", override),
        *("--experiments=bitext/s3", f"--work_dir={tmp_path}"),
    ]
    for _ in range(2):
        printed = subprocess.run(
            command, env=os.environ, check=True, capture_output=True, text=True
        ).stdout
        assert "figure v5e_gib_bitext_s3 0.0" in printed
    (output,) = tmp_path.glob("bitext_s3-????????.json")
    results = json.loads(output.read_text())
    assert results["settings"] == f"bitext/s3 {override}"
    assert (results["remat"], results["dtype"]) == ("attention", "bfloat16")
    assert results["batch"]["cmlm/first"] == results["batch"]["bitext_retrieval/first"] == [4, 16]
