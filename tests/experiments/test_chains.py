"""Chains of experiments: each stage starts from the one before, in a folder of its own."""

import copy
import functools

import numpy as np
import pytest
import tensorflow as tf
import yaml

from experiments import chains, registry
from experiments.chains import merged
from official_cmlm.checkpoints.encoder_directory import EncoderDirectory
from official_cmlm.checkpoints.weights import load_encoder
from official_cmlm.errors import UserError
from official_cmlm.training.run import run
from tests.conftest import make_documents, write_records
from tests.training.quick_runs import quick_runs
from tests.training.test_run import TINY


@pytest.fixture
def common(records_dir):
    """Overrides of all stages: tiny sizes and the records."""
    task = copy.deepcopy(TINY)
    for split in ("train_data", "validation_data"):
        task[split]["input_path"] = str(records_dir)
    names = ("train_steps", "steps_per_loop", "checkpoint_interval", "summary_interval")
    return {"task": task, "trainer": dict.fromkeys(names, 1)}


def _chain(tmp_path, *entries):
    path = tmp_path / "chain.yaml"
    path.write_text(yaml.safe_dump({"stages": list(entries)}))
    return chains.read_stages(str(path))


LONG = functools.partial(pytest.param, marks=pytest.mark.long)
FIRST = {"name": "first", "experiment": "demo"}
SECOND = {
    "name": "second",
    "experiment": "demo",
    "params_override": {"task": {"objectives": {"quick_thought": None}}},
}


class InProcess:
    """Runs the trainings that would be processes; remembers their commands."""

    def __init__(self, fail_at=None):
        self.commands, self._fail_at = [], fail_at

    def __call__(self, command):
        self.commands.append(command)
        if len(self.commands) == self._fail_at:
            return 1
        flags = dict(a.removeprefix("--").split("=", 1) for a in command if a.startswith("--"))
        params = registry.load(
            flags["experiment"], [], flags["params_override"], flags.get("init_checkpoint")
        )
        run(params, flags["mode"], flags["model_dir"])
        return 0


def test_each_stage_starts_from_the_one_before(tmp_path, common):
    """Encoder, head and the objective's weights are passed on; a finished chain does nothing."""
    # Both train CMLM alone, so they share all of its weights.
    first = {**SECOND, "name": "first"}
    runner = InProcess()
    with quick_runs():
        loaded = chains.load_stages(_chain(tmp_path, first, SECOND), None, common)
        last = chains.run_stages(loaded, tmp_path / "model", None, runner)
    assert last == tmp_path / "model" / "02_second"
    assert f"--init_checkpoint={tmp_path / 'model' / '01_first'}" in runner.commands[1]
    first, second = (
        tf.train.load_checkpoint(tf.train.latest_checkpoint(str(folder)))
        for folder in (tmp_path / "model" / "01_first", last)
    )
    keys = [
        key
        for key in second.get_variable_to_shape_map()
        if key.startswith(("model/objectives/cmlm/", "encoder/")) and "SLOT" not in key
    ]
    assert any("projection" in key for key in keys)
    for key in keys:
        before, after = first.get_tensor(key), second.get_tensor(key)
        # A step of warm-up hardly moves the weights; another start would draw them anew.
        np.testing.assert_allclose(after, before, atol=0.05)
        # Biases begin at 0 either way; kernels drawn anew would have nothing in common.
        if "kernel" in key or ("embeddings" in key and "bias" not in key):
            assert np.corrcoef(before.ravel(), after.ravel())[0, 1] > 0.9, key
    again = InProcess()
    chains.run_stages(loaded, tmp_path / "model", None, again)
    assert not again.commands
    load_encoder(EncoderDirectory.open(last))


def test_stages_import_the_users_modules(tmp_path):
    """Each stage is a process of its own, which must know the user's objectives too."""
    commands = []

    def call(command):
        commands.append(command)
        return 1

    stage = chains.Stage("first", "demo")
    with pytest.raises(UserError, match="stage first ended"):
        chains.run_experiment(stage, tmp_path, None, call, ["my.own", "other"])
    assert commands[0][-2:] == ["--import_module=my.own", "--import_module=other"]


@pytest.mark.long
def test_an_interrupted_chain_goes_on(tmp_path, common):
    """A stage that fails is named; the same call resumes with it."""
    chain = _chain(tmp_path, FIRST, SECOND)
    loaded = chains.load_stages(chain, None, common)
    with pytest.raises(UserError, match="stage second ended with status 1"):
        chains.run_stages(loaded, tmp_path / "model", None, InProcess(fail_at=2))
    runner = InProcess()
    chains.run_stages(loaded, tmp_path / "model", None, runner)
    assert len(runner.commands) == 1 and "--experiment=demo" in runner.commands[0]


def test_another_architecture_is_refused_before_the_first_step(tmp_path, common):
    """The differing field is named with both values."""
    other = {**SECOND, "params_override": {"task": {"encoder": {"num_layers": 2}}}}
    task = copy.deepcopy(common)
    task["task"]["encoder"].pop("num_layers")
    first = {**FIRST, "params_override": {"task": {"encoder": {"num_layers": 1}}}}
    chain = _chain(tmp_path, first, other)
    with pytest.raises(UserError, match=r"stage second: .* stage first: num_layers 1 \(here 2\)"):
        chains.load_stages(chain, None, task)


def test_another_vocabulary_is_refused_before_the_first_step(tmp_path, common, vocabulary):
    """Both hashes are named."""
    import dataclasses

    other = dataclasses.replace(vocabulary, lower_case=False)
    write_records(tmp_path / "records", make_documents(20), other)
    values = copy.deepcopy(common)
    folders = {"input_path": str(tmp_path / "records")}
    path = values["task"]["train_data"].pop("input_path")
    values["task"]["validation_data"].pop("input_path")
    chain = _chain(
        tmp_path,
        {**FIRST, "params_override": {"task": {"train_data": {"input_path": path}}}},
        {**FIRST, "name": "b", "params_override": {"task": {"train_data": folders}}},
    )
    with pytest.raises(UserError, match=f"{other.hash}.*stage first.*{vocabulary.hash}"):
        chains.load_stages(chain, None, values)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("stages: []", "stages is empty"),
        ("- a", "top level must be a mapping"),
        ("stage: []", "unknown key stage; did you mean stages"),
        ("stages: [{name: a}]", r"stages\[0\].experiment is missing"),
        ("name: a}, {name: a", "two stages have the same name"),
        ("name: a, steps: 3", r"unknown key stages\[0\].steps; valid: name"),
        ("name: a, mode: eval", "mode must be one of train"),
        ("name: a/b", r"stages\[0\].name must be the name of a folder"),
        ("name: ..", "name of a folder: .*, got '..'"),
        ("name: .", "name of a folder: .*, got '.'"),
        (r"name: 'a\b'", "name of a folder"),
        ("name: ''", "name of a folder"),
        ("name: 1", r"stages\[0\].name must be str, got 1; quote it"),
        ("stages: [{name: a, experiment: [demo]}]", "experiment must be str, got .'demo'."),
        (
            "name: a, params_override: a.b=1",
            r"stages\[0\].params_override must be a mapping, got 'a.b=1'",
        ),
        ("name: a, params_override: null", "params_override must be a mapping, got None"),
        ("name: a, config_files: a.yaml", r"\[0\].config_files must be a list, got 'a.yaml'"),
        ("name: a, config_files: [1]", r"config_files\[0\] must be str, got 1; quote it"),
    ],
)
def test_mistakes_in_the_file_are_named(tmp_path, text, message):
    """One line: the file, the stage, what is wrong."""
    if text.startswith("name"):
        text = f"stages: [{{{text}}}]".replace("}", ", experiment: demo}")
    (tmp_path / "chain.yaml").write_text(text)
    with pytest.raises(UserError, match=message) as caught:
        chains.read_stages(str(tmp_path / "chain.yaml"))
    assert "\n" not in str(caught.value) and "chain.yaml" in str(caught.value)


@pytest.mark.parametrize(
    ("values", "mode", "message"),
    [
        (
            {"task": {"train_data": {"global_batch_size": 1}}},
            "train",
            "leaves quick_thought no neg",
        ),
        LONG({"runtime": {"distribution_strategy": "mirrored", "num_gpus": 3}}, "train", "3 re"),
        LONG({"task": {"train_data": {"languages": ["sw"]}}}, "train", "has no sw"),
        LONG({"task": {"validation_data": {"languages": ["sw"]}}}, "train_and_eval", "has no sw"),
        LONG({"task": {"validation_data": {"input_path": ""}}}, "train", None),
        LONG({"task": {"validation_data": {"input_path": ""}}}, "train_and_eval", "no valid"),
        (
            {
                "trainer": {
                    "best_checkpoint_export_subdir": "best",
                    "best_checkpoint_eval_metric": "cmlm/masked_token_accuracy",
                    "best_checkpoint_metric_comp": "lower",
                }
            },
            "train_and_eval",
            "best_checkpoint_metric_comp is 'lower'",
        ),
    ],
)
def test_all_stages_are_checked_before_the_first_step(tmp_path, common, values, mode, message):
    """A mistake in the second stage stops the chain before the first one, by the stage's name."""
    own = merged(common, values)
    second = {"name": "second", "experiment": "demo", "mode": mode, "params_override": own}
    chain = _chain(tmp_path, {**FIRST, "params_override": common}, second)
    if message is None:
        assert len(chains.load_stages(chain, None, {})) == 2
        return
    with pytest.raises(UserError, match=f"^stage second: .*{message}") as caught:
        chains.load_stages(chain, None, {})
    assert "\n" not in str(caught.value)


def test_a_missing_file_lists_the_projects_chains():
    """The project's own chains are offered."""
    with pytest.raises(UserError, match="nowhere: no such file.*bitext_s3"):
        chains.read_stages("nowhere")


def test_a_missing_start_is_asked_for(tmp_path, records_dir):
    """An experiment that starts from public weights does not silently start from random ones."""
    path = f"task.train_data.input_path={records_dir}"
    params = registry.load("simcse/bert_base", params_override=path)
    with pytest.raises(UserError, match="starts from BERT base uncased.*--init_checkpoint"):
        run(params, "train", str(tmp_path / "model"))
