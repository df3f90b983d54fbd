"""Chains of experiments: each stage starts from the one before, in a folder of its own."""

import copy
import functools
import re
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import yaml

from experiments import chains, registry
from experiments.chains import merge
from official_cmlm.checkpoints.encoder_directory import EncoderDirectory
from official_cmlm.checkpoints.weights import load_encoder
from official_cmlm.common.errors import UserError
from official_cmlm.configs.yaml_loading import parse_override
from official_cmlm.training.config import get_objectives
from official_cmlm.training.run import run
from official_cmlm.training.task import SentenceEncoderTask
from tests.training.quick_runs import quick_runs
from tests.training.tiny_training import TINY


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

    def __init__(self):
        self.commands = []

    def __call__(self, command):
        self.commands.append(command)
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


def test_an_interrupted_chain_goes_on(tmp_path, monkeypatch):
    """A stage that fails is named; the same call resumes with it. Stages import users' modules."""
    commands, statuses = [], [0, 1, 0]

    def call(command):
        commands.append(command)
        return statuses.pop(0)

    monkeypatch.setattr(chains, "is_finished", lambda folder, length, result: True)
    chain = _chain(tmp_path, FIRST, SECOND)
    loaded = [(stage, registry.load(stage.experiment)) for stage in chain]
    with pytest.raises(UserError, match="stage second: experiments.train ended with status 1"):
        chains.run_stages(loaded, tmp_path / "model", None, call, ["my.own", "other"])
    (tmp_path / "model" / "01_first").mkdir()
    chains.run_stages(loaded, tmp_path / "model", None, call)
    folders = [argument for command in commands for argument in command if "model_dir" in argument]
    first, second = (f"--model_dir={tmp_path}/model/{name}" for name in ("01_first", "02_second"))
    assert folders == [first, second, second]
    assert {"--import_module=my.own", "--import_module=other"} <= set(commands[0])


def test_another_architecture_or_vocabulary_is_refused(common):
    config = registry.load("demo", params_override=common)
    task = SentenceEncoderTask(config.task)
    encoder, own = task.encoder_config, task.vocabulary.hash
    larger = encoder.replace(num_layers=encoder.num_layers + 1)
    for before, message in (
        ((larger, own), rf"stage first: num_layers \d \(here {encoder.num_layers}\)"),
        ((encoder, "another"), f"with vocabulary {own}, those of stage first with another"),
    ):
        with pytest.raises(UserError, match=message):
            chains.check_training(config, "stage second", "train", ("stage first", *before))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("stages: []", "stages is empty"),
        ("stage: []", "unknown key stage; did you mean stages"),
        ("name: a}, {name: a", "two stages have the same name"),
        ("name: a, mode: eval", "mode must be one of train"),
        ("name: a/b", r"stages\[0\].name must be the name of a folder"),
        ("name: ..", "name of a folder: .*, got '..'"),
        ("name: .", "name of a folder: .*, got '.'"),
        (r"name: 'a\b'", "name of a folder"),
        ("name: ''", "name of a folder"),
    ],
)
def test_mistakes_in_the_file_are_named(tmp_path, text, message):
    if text.startswith("name"):
        text = f"stages: [{{{text}}}]".replace("}", ", experiment: demo}")
    (tmp_path / "chain.yaml").write_text(text)
    with pytest.raises(UserError, match=f"chain.yaml: .*{message}"):
        chains.read_stages(str(tmp_path / "chain.yaml"))


@pytest.mark.parametrize(
    ("values", "mode", "message"),
    [
        (
            {"task": {"train_data": {"global_batch_size": 1}}},
            "train",
            "leaves quick_thought nothing to compare",
        ),
        LONG({"task": {"validation_data": {"input_path": ""}}}, "train", None),
        LONG({"task": {"validation_data": {"input_path": ""}}}, "train_and_eval", "no valid"),
    ],
)
def test_all_stages_are_checked_before_the_first_step(tmp_path, common, values, mode, message):
    """A mistake in the second stage stops the chain before the first one, by the stage's name."""
    own = merge(common, values)
    second = {"name": "second", "experiment": "demo", "mode": mode, "params_override": own}
    chain = _chain(tmp_path, {**FIRST, "params_override": common}, second)
    if message is None:
        assert len(chains.load_stages(chain, None, {})) == 2
        return
    with pytest.raises(UserError, match=f"^stage second: .*{message}"):
        chains.load_stages(chain, None, {})


def test_a_missing_file_lists_the_projects_chains():
    with pytest.raises(UserError, match="nowhere: no such file.*bitext_s3"):
        chains.read_stages("nowhere")


def test_a_missing_start_is_asked_for(tmp_path, records_dir):
    """An experiment that starts from public weights does not silently start from random ones."""
    path = f"task.train_data.input_path={records_dir}"
    params = registry.load("simcse/bert_base", params_override=path)
    with pytest.raises(UserError, match="starts from BERT base uncased.*--init_checkpoint"):
        run(params, "train", str(tmp_path / "model"))


# Overrides that all stages share: each stage takes what it trains, and begins nothing else.

RECIPES = Path(__file__).parents[2] / "docs" / "recipes.md"
NLI = "task.objectives.nli.train_data.input_path=work/nli"
# Weights of the objectives in each stage (CMLM §4.2, §4.3).
PUBLISHED = {
    "bitext_s2": [{"cmlm": 1.0}, {"bitext_retrieval": 1.0}],
    "bitext_s3": [{"cmlm": 1.0}, {"cmlm": 1.0, "bitext_retrieval": 0.2}],
    "bitext_s3_nli": [{"cmlm": 1.0}, {"cmlm": 1.0, "bitext_retrieval": 0.2}, {"nli": 1.0}],
}


def _read_documented_override():
    """Returns the overrides for all stages in the command of docs/recipes.md."""
    command = r"train-stages \S+.*?--params_override=(\S+)"
    return re.search(command, RECIPES.read_text(encoding="utf-8"), re.DOTALL)[1]


def _load_configs(chain, common):
    values = parse_override(common) if common else {}
    chains.check_common(chain, values)
    return [
        registry.load(
            stage.experiment,
            [*stage.config_files],
            merge(stage.params_override, chains.select_overrides(stage, values)),
        )
        for stage in chain
    ]


def _get_weights(chain, common):
    return [
        {name: one.weight for name, one in get_objectives(config.task.objectives).items()}
        for config in _load_configs(chain, common)
    ]


def _list_data(config):
    """Returns (objective, folder, batch size) of all training records."""
    return [
        (name, data.input_path, data.global_batch_size)
        for name, where, data in config.task.list_data()
        if where.endswith("train_data")
    ]


@pytest.mark.parametrize("name", chains.stage_files())
def test_objectives_are_the_published_ones(name):
    """With and without the documented override, no stage trains more or with other weights."""
    common = _read_documented_override()
    assert "task.objectives.bitext_retrieval.train_data.input_path=" in common
    if name.endswith("nli"):
        common += f",{NLI}"
    chain = chains.read_stages(name)
    assert _get_weights(chain, common) == _get_weights(chain, None) == PUBLISHED[name]


def test_each_objective_reads_its_own_records():
    """The whole of S3+NLI by one command, each stage with its experiment's batches."""
    configs = _load_configs(
        chains.read_stages("bitext_s3_nli"), f"{_read_documented_override()},{NLI}"
    )
    cmlm, pairs = ("cmlm", "work/records", 2048), ("bitext_retrieval", "work/pairs", 2048)
    inferences = ("nli", "work/nli", 16)
    assert [_list_data(config) for config in configs] == [[cmlm], [pairs, cmlm], [inferences]]


def test_an_objective_that_no_stage_has_is_named():
    """It is named, with those that there are; null for it changes nothing."""
    chain = chains.read_stages("bitext_s2")
    with pytest.raises(
        UserError, match=r"task\.objectives\.nli: no stage trains nli.*cmlm, bitext"
    ):
        chains.check_common(chain, parse_override(NLI))
    assert _get_weights(chain, "task.objectives.nli=null") == PUBLISHED["bitext_s2"]


@pytest.mark.parametrize("common", ["task.objectives.cmml.weight=2.0", "task.objectives=3"])
def test_other_mistakes_are_left_to_the_configuration(common):
    """A misspelt objective is not dropped in silence."""
    with pytest.raises(UserError, match="cmml; did you mean|objectives must be a mapping"):
        _load_configs(chains.read_stages("bitext_s2"), common)


def test_own_overrides_and_files_choose_objectives(tmp_path):
    """A stage that switches an objective on or off itself has it, or not."""
    (tmp_path / "no_cmlm.yaml").write_text("task: {objectives: {cmlm: null, mlm: {}}}")
    entries = [
        {"params_override": {"task": {"objectives": {"quick_thought": None}}}},
        {"params_override": {"task": {"objectives": {"mlm": {"weight": 0.5}}}}},
        {"config_files": [str(tmp_path / "no_cmlm.yaml")]},
    ]
    entries = [{"name": f"s{i}", "experiment": "demo", **entry} for i, entry in enumerate(entries)]
    chain = _chain(tmp_path, *entries)
    common = "task.objectives.quick_thought.weight=3.0,task.objectives.mlm.masking_rate=0.3"
    assert _get_weights(chain, common) == [
        {"cmlm": 1.0},
        {"cmlm": 1.0, "mlm": 0.5, "quick_thought": 3.0},
        {"mlm": 1.0, "quick_thought": 3.0},
    ]
    # null in the common overrides switches it off everywhere.
    off = [{"cmlm": 1.0}, {"cmlm": 1.0, "mlm": 0.5}, {"mlm": 1.0}]
    assert _get_weights(chain, "task.objectives.quick_thought=null") == off
