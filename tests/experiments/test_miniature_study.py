"""Studies as files: each mistake is one line, before anything is made; statistics of the report."""

import re
from pathlib import Path

import numpy as np
import pytest

from experiments.miniature import plan, records, report
from experiments.miniature.study import Column, PaperRow, paper_values, read_study, study_files
from official_cmlm.checkpoints.encoder_directory import describe
from official_cmlm.configs.encoder import EncoderConfig
from official_cmlm.errors import UserError
from official_cmlm.tokenization import WordPieceVocabulary
from tests.experiments.miniature_helpers import change_at, write_study


def _change_start(study):
    study["arms"][0]["starts_from"] = "/nowhere/encoder"


def _objective(study):
    study["common"]["task"]["objectives"]["nli"] = {"weight": 2.0}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (change_at("titel", "x"), "unknown key titel; did you mean title"),
        (change_at("arms", 1, "experimnt", "x"), r"arms\[1\].experimnt; did you mean"),
        (change_at("seeds", ["one"]), r"seeds\[0\] must be int"),
        (change_at("seeds", [1, 1]), "two seeds are called 1"),
        (change_at("seeds", []), "there are no seeds"),
        (change_at("arms", 1, {"name": "mlm"}), r"arms\[1\] lacks experiment"),
        (change_at("arms", 1, "name", "readout"), "two arms are called readout"),
        (change_at("arms", 1, "name", "a.b"), "'a.b': a name has letters"),
        (change_at("arms", 0, "starts_from", "mlmm"), "'mlmm', which is no arm; did you mean mlm"),
        (change_at("arms", 1, "starts_from", "readout"), "start from each other: .*→"),
        (change_at("arms", 1, "starts_from", "mlm"), "start from each other: .*mlm → mlm"),
        (change_at("arms", 1, "start_seed", 1), "start_seed is for arms that start from another"),
        (change_at("arms", 0, "start_seed", 5), "start_seed 5 is none of the seeds"),
        (change_at("arms", 0, "params_override", "a.b=1"), "params_override must be a mapping"),
        (change_at("arms", 0, "params_override", {"a": "$bok"}), r"\$bok is not known .*\$books"),
        (change_at("arms", 0, "paper", [{"paper": "CMLM", "table": "T", "row": "r"}]), "table 'T'"),
        (change_at("baseline", "bert"), "baseline 'bert' is no arm; there are readout, mlm"),
        (change_at("data", 0, "run", "make_records"), "no binary 'make_records'; there are"),
        (change_at("data", 0, "flags", "output_dir", "x"), "output_dir is set by the study"),
        (change_at("scores", "suites", ["stss"]), "no suite 'stss'"),
        (change_at("scores", "set", ["sts.splitt=dev"]), "no option 'splitt'"),
        (change_at("scores", "validation", False), "needs validation: true"),
        (change_at("scores", "columns", 0, "id", "mteb/x/y"), "'mteb' is none of the suites"),
        (change_at("scores", "columns", 0, "id", "sts/x"), "must be suite/task/metric"),
        (change_at("scores", "columns", []), "there are no columns"),
    ],
)
def test_mistakes_in_the_file_are_named(tmp_path, change, message):
    """One line with the file's name."""
    with pytest.raises(UserError, match=message) as caught:
        write_study(tmp_path, change)
    assert "\n" not in str(caught.value) and "study.yaml" in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (change_at("arms", 1, "experiment", "mlm/english"), "arm mlm: no experiment is called"),
        (
            change_at("arms", 1, "params_override", {"trainer": {"train_step": 1}}),
            "arm mlm: .*did you mean trainer.train_steps",
        ),
        (
            change_at("arms", 1, "params_override", {"task": {"encoder": {"pooling": "median"}}}),
            "arm mlm: task.encoder.pooling must be one of",
        ),
        (change_at("arms", 1, "experiment", "simcse/bert_base"), "BERT base uncased.*starts_from"),
        (_change_start, "arm readout: /nowhere/encoder: not an encoder directory"),
        (_objective, "common: .*nli: no arm trains nli, they train mlm"),
    ],
)
def test_settings_are_checked_before_any_records(tmp_path, change, message):
    """The arm is named."""
    study = write_study(tmp_path, change)
    with pytest.raises(UserError, match=message) as caught:
        plan.check_settings(study, records.places(study, tmp_path, tmp_path))
    assert "\n" not in str(caught.value)


def test_the_documented_study_is_one(tmp_path):
    """As it is printed, on whatever data."""
    text = (Path(__file__).parents[2] / "docs" / "studies.md").read_text(encoding="utf-8")
    path = tmp_path / "study.yaml"
    path.write_text(re.search(r"```yaml\n(title: .*?)```", text, re.DOTALL)[1])
    study = read_study(str(path))
    assert [arm.name for arm in study.arms] == ["mlm", "cmlm", "cmlm_max"]
    plan.check_settings(study, records.places(study, tmp_path, tmp_path))


def test_statistics_are_those_computed_by_hand():
    """Differences 1, −1, 5: mean 5/3, deviation √(28/3), t of two degrees of freedom 4.302653."""
    found = report.paired({1: 10.0, 2: 12.0, 3: 17.0, 4: 1.0}, {1: 9.0, 2: 13.0, 3: 12.0, 5: 2.0})
    assert found.values == {1: 1.0, 2: -1.0, 3: 5.0}
    assert found.mean == pytest.approx(5 / 3)
    assert found.deviation == pytest.approx((28 / 3) ** 0.5)
    half = 4.302653 * (28 / 3) ** 0.5 / 3**0.5
    assert (found.low, found.high) == pytest.approx((5 / 3 - half, 5 / 3 + half), rel=1e-6)
    one = report.estimate({7: 3.0})
    assert (one.mean, one.deviation, one.low) == (3.0, None, None)
    assert report.paired({1: 1.0}, {2: 1.0}) is None


def test_the_interval_holds_the_mean_as_often_as_it_says():
    """Of 2,000 samples of four, 95 % within three standard errors of that share."""
    rng = np.random.default_rng(1)
    samples = [report.estimate(dict(enumerate(row))) for row in rng.normal(3.0, 2.0, (2000, 4))]
    share = np.mean([found.low <= 3.0 <= found.high for found in samples])
    assert abs(share - report.CONFIDENCE) < 3 * (0.95 * 0.05 / 2000) ** 0.5


def test_a_paper_s_row_is_in_our_unit():
    """Mirror-BERT prints shares, CMLM percentages."""
    mirror = paper_values(PaperRow("Mirror-BERT", "Table 3", "BERT-mp"))
    assert mirror["sts/STS-B/spearman"] == pytest.approx(46.4)
    column = Column("sts/none/spearman|sts/STS-B/spearman", "STS-B")
    assert column.value(mirror) == pytest.approx(46.4)
    assert column.value({}) is None


@pytest.mark.parametrize("name", study_files())
def test_the_projects_studies_are_read(name, tmp_path):
    """With all experiments and fields that they name; those of several stages with a start."""
    study, start = read_study(name), None
    if study.names("start"):
        start = tmp_path / "start"
        values = read_study("setting").common["task"]["encoder"] | {"vocab_size": 8000}
        config = EncoderConfig().replace(**values)
        words = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *map(str, range(7995)))
        describe(str(start), config, WordPieceVocabulary(words, True, 100), 64, False)
    names = records.places(study, Path("/data"), Path("/work"), start)
    records.check_flags(study)
    plan.check_settings(study, names)


def test_unknown_flags_of_records_are_named(tmp_path):
    """Before the first step, with the nearest one that there is."""
    study = write_study(tmp_path, change_at("data", 0, "flags", "vocab_flie", "vocab.txt"))
    with pytest.raises(UserError, match="data books: .*no flag vocab_flie; did you mean vocab_f"):
        records.check_flags(study)


def test_an_unnamed_start_is_asked_for(tmp_path):
    """`$start` is known only with --start."""
    study = write_study(tmp_path, change_at("arms", 1, "starts_from", "$start"))
    assert study.names("start") and not study.names("data_dir")
    with pytest.raises(UserError, match="arm mlm: .*start is not known here"):
        plan.check_settings(study, records.places(study, tmp_path, tmp_path))
