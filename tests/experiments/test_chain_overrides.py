"""Overrides that all stages share: each stage takes what it trains, and begins nothing else."""

import re
from pathlib import Path

import pytest
import yaml

from experiments import chains, registry
from experiments.chains import check_common, concerning, merged
from official_cmlm.configs.yaml_loading import parse_override
from official_cmlm.errors import UserError
from official_cmlm.training.config import chosen_objectives

RECIPES = Path(__file__).parents[2] / "docs" / "recipes.md"
NLI = "task.objectives.nli.train_data.input_path=work/nli"
# Weights of the objectives in each stage (CMLM §4.2, §4.3).
PUBLISHED = {
    "bitext_s2": [{"cmlm": 1.0}, {"bitext_retrieval": 1.0}],
    "bitext_s3": [{"cmlm": 1.0}, {"cmlm": 1.0, "bitext_retrieval": 0.2}],
    "bitext_s3_nli": [{"cmlm": 1.0}, {"cmlm": 1.0, "bitext_retrieval": 0.2}, {"nli": 1.0}],
}


def _documented_override():
    """Returns the overrides for all stages in the command of docs/recipes.md."""
    command = r"train_stages --stages=\S+.*?--params_override=(\S+)"
    return re.search(command, RECIPES.read_text(encoding="utf-8"), re.DOTALL)[1]


def _configs(chain, common):
    values = parse_override(common) if common else {}
    check_common(chain, values)
    return [
        registry.load(
            stage.experiment,
            [*stage.config_files],
            merged(stage.params_override, concerning(stage, values)),
        )
        for stage in chain
    ]


def _weights(chain, common):
    return [
        {name: one.weight for name, one in chosen_objectives(config.task.objectives).items()}
        for config in _configs(chain, common)
    ]


def _read(config):
    """Returns (objective, folder, batch size) of all training records."""
    return [
        (name, data.input_path, data.global_batch_size)
        for name, where, data in config.task.used_data()
        if where.endswith("train_data")
    ]


def test_every_chain_is_here():
    """A new chain needs its published weights."""
    assert set(PUBLISHED) == set(chains.stage_files())


@pytest.mark.parametrize("name", PUBLISHED)
def test_objectives_are_the_published_ones(name):
    """With and without the documented override, no stage trains more or with other weights."""
    common = _documented_override()
    assert "task.objectives.bitext_retrieval.train_data.input_path=" in common
    if name.endswith("nli"):
        common += f",{NLI}"
    chain = chains.read_stages(name)
    assert _weights(chain, common) == _weights(chain, None) == PUBLISHED[name]


def test_each_objective_reads_its_own_records():
    """The whole of S3+NLI by one command, each stage with its experiment's batches."""
    configs = _configs(chains.read_stages("bitext_s3_nli"), f"{_documented_override()},{NLI}")
    cmlm, pairs = ("cmlm", "work/records", 2048), ("bitext_retrieval", "work/pairs", 2048)
    inferences = ("nli", "work/nli", 16)
    assert [_read(config) for config in configs] == [[cmlm], [pairs, cmlm], [inferences]]


def test_an_objective_that_no_stage_has():
    """It is named, with those that there are; null for it changes nothing."""
    chain = chains.read_stages("bitext_s2")
    with pytest.raises(
        UserError, match=r"task\.objectives\.nli: no stage trains nli.*cmlm, bitext"
    ):
        check_common(chain, parse_override(NLI))
    assert _weights(chain, "task.objectives.nli=null") == PUBLISHED["bitext_s2"]


@pytest.mark.parametrize("common", ["task.objectives.cmml.weight=2.0", "task.objectives=3"])
def test_other_mistakes_are_left_to_the_configuration(common):
    """A misspelt objective is not dropped in silence."""
    with pytest.raises(UserError, match="cmml; did you mean|objectives must be a mapping"):
        _configs(chains.read_stages("bitext_s2"), common)


def test_own_overrides_and_files_choose_objectives(tmp_path):
    """A stage that switches an objective on or off itself has it, or not."""
    (tmp_path / "no_cmlm.yaml").write_text("task: {objectives: {cmlm: null, mlm: {}}}")
    entries = [
        {"params_override": {"task": {"objectives": {"quick_thought": None}}}},
        {"params_override": {"task": {"objectives": {"mlm": {"weight": 0.5}}}}},
        {"config_files": [str(tmp_path / "no_cmlm.yaml")]},
    ]
    entries = [{"name": f"s{i}", "experiment": "demo", **entry} for i, entry in enumerate(entries)]
    (tmp_path / "chain.yaml").write_text(yaml.safe_dump({"stages": entries}))
    chain = chains.read_stages(str(tmp_path / "chain.yaml"))
    common = "task.objectives.quick_thought.weight=3.0,task.objectives.mlm.masking_rate=0.3"
    assert _weights(chain, common) == [
        {"cmlm": 1.0},
        {"cmlm": 1.0, "mlm": 0.5, "quick_thought": 3.0},
        {"mlm": 1.0, "quick_thought": 3.0},
    ]
    # null in the common overrides switches it off everywhere.
    off = [{"cmlm": 1.0}, {"cmlm": 1.0, "mlm": 0.5}, {"mlm": 1.0}]
    assert _weights(chain, "task.objectives.quick_thought=null") == off
