"""Training steps for a TPU and a GPU: cases, kernels, every objective compiled."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.accelerators.cases import CASES, case_of, overrides
from benchmarks.accelerators.compiling import ENVIRONMENT, compile_step
from benchmarks.accelerators.kernels import count_kernels
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


def test_without_a_compiler(monkeypatch):
    """One line that says what to install."""
    monkeypatch.setitem(sys.modules, "libtpu", None)
    with pytest.raises(UserError, match=r"needs JAX and libtpu .*requirements-bench"):
        compile_step(Path("step"), "v5e:2x2")
    monkeypatch.setitem(sys.modules, "jax_plugins.xla_cuda13", None)
    with pytest.raises(UserError, match="device=h100: compiling for it needs JAX and jax_plugins"):
        compile_step(Path("step"), "h100")


def test_an_h100_needs_no_remedies():
    """Neither the case's nor the experiment's; the number of examples can be chosen."""
    from experiments import registry

    params, case = registry.load("cmlm/multilingual_base"), case_of("cmlm/multilingual_base")
    task = overrides(params, case, Path("records"), examples=96, small=False)["task"]
    assert task["encoder"]["remat"] == "none" and case.remedies["remat"] == "blocks"
    assert task["objectives"]["cmlm"]["vocabulary_block_size"] == 0
    assert task["train_data"]["max_bucket_batch_size"] == 96


_PROGRAM = """HloModule step, is_scheduled=true

%fused (p0: bf16[8,4], p1: bf16[4,16]) -> f32[8,16] {
  %p0 = bf16[8,4]{1,0} parameter(0)
  %p1 = bf16[4,16]{1,0} parameter(1)
  ROOT %d = f32[8,16]{1,0} dot(%p0, %p1), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}

%body (t: (s32[], f32[100])) -> (s32[], f32[100]) {
  %t = (s32[], f32[100]{0}) parameter(0)
  %n = s32[] get-tuple-element(%t), index=0
  %x = f32[100]{0} get-tuple-element(%t), index=1
  %double = f32[100]{0} multiply(%x, %x)
  ROOT %r = (s32[], f32[100]{0}) tuple(%n, %double)
}

%idle (u: f32[10]) -> f32[10] {
  ROOT %u = f32[10]{0} parameter(0)
}

%busy (v: f32[10]) -> f32[10] {
  %v = f32[10]{0} parameter(0)
  ROOT %w = f32[10]{0} negate(%v)
}

ENTRY %main (a: bf16[8,4], b: bf16[4,16], c: f32[100], e: f32[10]) -> f32[8,16] {
  %a = bf16[8,4]{1,0} parameter(0)
  %b = bf16[4,16]{1,0} parameter(1)
  %c = f32[100]{0} parameter(2)
  %e = f32[10]{0} parameter(3)
  %f = f32[8,16]{1,0} fusion(%a, %b), kind=kOutput, calls=%fused
  %g = (bf16[8,16]{1,0}, s8[4096]{0}) custom-call(%a, %b), custom_call_target="__cublas$lt$matmul", backend_config={"dot_dimension_numbers":{"lhs_contracting_dimensions":["1"]}}
  %s = (s32[], f32[100]{0}) tuple(%n, %c)
  %l = (s32[], f32[100]{0}) while(%s), condition=%idle, body=%body, backend_config={"known_trip_count":{"n":"3"}}
  ROOT %k = f32[10]{0} conditional(%p, %e, %e), true_computation=%idle, false_computation=%busy
}
"""  # noqa: E501 - the compiler's lines


def test_kernels_of_a_program():
    """A product in a fusion and one by a library, a loop's body three times, the larger branch."""
    kernels = count_kernels(_PROGRAM, bandwidth=1e3, peak=1e4)
    fused, library = 2 * (8 * 4 + 4 * 16) + 4 * 8 * 16, 2 * (8 * 4 + 4 * 16 + 8 * 16)
    loop, branch = 3 * 4 * 2 * 100, 4 * 2 * 10
    assert kernels.count == 2 + 3 + 1
    assert kernels.bytes == fused + library + loop + branch
    assert kernels.flops == 2 * 2 * 8 * 16 * 4
    assert kernels.floor == pytest.approx((fused + library + loop + branch) / 1e3)
    product_bound = count_kernels(_PROGRAM, bandwidth=1e6, peak=1e3)
    assert product_bound.floor == pytest.approx(kernels.flops / 1e3 + (loop + branch) / 1e6)


_ATTENTION = """ENTRY %main (q: bf16[4,6,2,8], k: bf16[4,8,2,8], s: f32[4,2,6]) -> bf16[4,2,6,8] {
  %q = bf16[4,6,2,8]{3,2,1,0} parameter(0)
  %k = bf16[4,8,2,8]{3,2,1,0} parameter(1)
  %s = f32[4,2,6]{2,1,0} parameter(2)
  %f = (bf16[4,2,6,8]{3,1,2,0}, f32[4,2,6]{2,1,0}, u8[9]{0}) custom-call(%q, %k, %k), custom_call_target="__cudnn$fmhaSoftmax", backend_config={"cudnn_fmha_backend_config":{CONFIG}}
  ROOT %b = (bf16[4,2,6,8]{3,1,2,0}, bf16[4,2,8,8]{3,1,2,0}, bf16[4,2,8,8]{3,1,2,0}, u8[9]{0}) custom-call(%q, %k, %k, %s, %q, %q), custom_call_target="__cudnn$fmhaSoftmaxBackward", backend_config={"cudnn_fmha_backend_config":{CONFIG}}
}
"""  # noqa: E501 - the compiler's lines
# The compiler prints what the step says, with its spaces.
_ATTENTION = _ATTENTION.replace(
    "CONFIG",
    '"intermediate_tensor_shape": {"element_type": "BF16", "dimensions": ["4", "2", "6", "8"]}, '
    '"bmm1_dot_dimension_numbers": {"lhs_contracting_dimensions": ["3"]}',
)


def test_kernels_of_attention():
    """All results but the workspace; two products of weights that are not written, then five."""
    kernels = count_kernels(_ATTENTION, bandwidth=1.0, peak=1.0)
    query, key, sums = 2 * 4 * 6 * 2 * 8, 2 * 4 * 8 * 2 * 8, 4 * 4 * 2 * 6
    assert kernels.bytes == (2 * query + key + sums) + (2 * query + 3 * key + sums)
    assert kernels.flops == (2 + 5) * 2 * (4 * 2 * 6 * 8) * 8


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
@pytest.mark.parametrize(
    ("device", "compiler"), [("v5e:2x2", "libtpu"), ("h100", "jax_plugins.xla_cuda13")]
)
def test_the_command(tmp_path, device, compiler):
    """A tiny step of an experiment; what was compiled once is kept."""
    pytest.importorskip(compiler, reason=f"needs {compiler}: requirements-bench.txt")
    override = f"--params_override={json.dumps(TINY)}"
    command = [
        *(sys.executable, "-m", "benchmarks.accelerators", override, f"--device={device}"),
        *("--experiments=bitext/s3", f"--work_dir={tmp_path}"),
    ]
    for _ in range(2):
        printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        assert f"figure {device.partition(':')[0]}_gib_bitext_s3 0.0" in printed
    (output,) = tmp_path.glob("bitext_s3-????????.json")
    results = json.loads(output.read_text())
    assert results["settings"].startswith(f"bitext/s3 {override}")
    assert (results["remat"], results["dtype"]) == ("attention", "bfloat16")
    assert results["batch"]["cmlm/first"] == results["batch"]["bitext_retrieval/first"] == [4, 16]
    assert ("kernels" in results) == (device == "h100")
