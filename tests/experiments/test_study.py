"""Studies as files: each mistake is one line, before anything is made; statistics of the report."""

import contextlib
import datetime
import re
import shutil
from pathlib import Path

import pytest

from experiments.study.definition import Column, Comparison, expand, read_study, study_files
from experiments.study.findings import PAGES, RESULTS, ROOT, insert_findings
from experiments.study.report import (
    NO,
    NO_FIGURE,
    UNDECIDED,
    YES,
    Outcome,
    list_outcomes,
    write_report,
)
from experiments.study.results import read_results
from experiments.study.runs import StudyRunner
from official_cmlm.checkpoints.encoder_directory import describe
from official_cmlm.common.errors import UserError
from official_cmlm.configs.encoder import EncoderConfig
from official_cmlm.evaluation.metrics.intervals import Estimate
from official_cmlm.evaluation.report.papers import MEAN_OF, Printed
from official_cmlm.tokenization import WordPieceVocabulary
from tests.experiments.study_helpers import change_at, write_study


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (change_at("titel", "x"), "unknown key titel; did you mean title"),
        (change_at("seeds", [1, 1]), "two seeds are called 1"),
        (change_at("seeds", []), "there are no seeds"),
        (change_at("arms", 1, "name", "mlm"), "two arms are called mlm"),
        (change_at("arms", 1, "name", "a.b"), "must be letters, digits, _ and -, got 'a.b'"),
        (change_at("arms", 0, "starts_from", "readout"), "'readout' is not known above it"),
        (change_at("arms", 1, "params_override", {"a": "$bok"}), r"\$bok is not known .*\$books"),
        (change_at("data", 0, "flags", "input", ["$data/a", "$b.c"]), r"'\$b.c': \$b is not known"),
        (change_at("data", 0, "flags", "input", "5 $"), r"'5 \$': a \$ stands before no name"),
        (
            change_at("data", 0, "flags", {"since": datetime.date(2024, 1, 2)}),
            "data books: 2024-01-02 is a date, not a text; put it in quotes",
        ),
        (change_at("baseline", "bert"), "baseline 'bert' is not known; there are mlm, readout"),
        (change_at("comparisons", 0, "minus", "m"), "comparison maximum against mean: minus 'm'"),
        (change_at("comparisons", 0, "paper", 0, "table", "T"), "CMLM, T: no such table"),
        (change_at("comparisons", 0, "paper", 0, "minus", "x"), "CMLM, Table 2: .*the row 'x'"),
        (change_at("precision", "auto"), "precision must be one of float32, bfloat16, float16"),
        (change_at("data", 0, "run", "make_records"), "run must be one of build_vocab, .*'make_re"),
        (change_at("data", 0, "name", "start"), "and not data or start, got 'start'"),
        *[
            (
                change_at("data", 0, "flags", {flag: "x"}),
                f"{flag!r} is not a flag that a study sets",
            )
            for flag in ("output_dir", "flagfile", "output_dir=y", 5)
        ],
        (change_at("scores", "suites", ["stss"]), "no suite 'stss'"),
        (change_at("scores", "set", ["sts.splitt=dev"]), "unknown key splitt; did you mean split"),
        (change_at("scores", "validation", False), "needs validation: true"),
        (change_at("scores", "columns", 0, "id", "xyz/x/y"), "'xyz' is none of the suites"),
        (change_at("scores", "columns", 0, "id", "sts/x"), "must be suite/task/metric"),
        (change_at("scores", "columns", []), "there are no columns"),
    ],
)
def test_mistakes_in_the_file_are_named(tmp_path, change, message):
    with pytest.raises(UserError, match=f"study.yaml: .*{message}"):
        write_study(tmp_path, change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (change_at("arms", 0, "experiment", "mlm/english"), "arm mlm: no experiment is called"),
        (
            change_at("arms", 0, "params_override", {"trainer": {"train_step": 1}}),
            "arm mlm: .*did you mean trainer.train_steps",
        ),
        (
            change_at("arms", 0, "params_override", {"task": {"encoder": {"pooling": "median"}}}),
            "arm mlm: task.encoder.pooling must be one of",
        ),
        (change_at("arms", 0, "experiment", "simcse/bert_base"), "BERT base uncased.*starts_from"),
        (
            change_at("arms", 1, "starts_from", "/nowhere/encoder"),
            "arm readout: /nowhere/encoder: no folder",
        ),
        (
            change_at("common", "task", "objectives", "nli", {"weight": 2.0}),
            "common: .*nli: no arm trains nli, they train mlm",
        ),
        (
            change_at("arms", 0, "experiment", "quick_thought/english_base"),
            r"arm mlm: task.train_data.bucket_boundaries is \[16, 32\], .*quick_thought another",
        ),
    ],
)
def test_settings_are_checked_before_any_records(tmp_path, change, message):
    study = write_study(tmp_path, change)
    with pytest.raises(UserError, match=message):
        StudyRunner(study, tmp_path, tmp_path).check_settings()


@pytest.mark.parametrize("weight", [1.0, 0.0])
def test_without_negatives_buckets_are_not_another_method(tmp_path, weight):
    """The contrastive loss alone needs random batches."""

    def change(study):
        own = {"contrastive_weight": weight, "lexical_layers": 1}
        task = {"init_checkpoint": "", "objectives": {"diff_cse": own}}
        study["arms"][0] |= {"experiment": "diff_cse/tiny", "params_override": {"task": task}}
        del study["common"]["task"]["objectives"], study["arms"][1:], study["comparisons"]

    study = write_study(tmp_path, change)
    refusal = pytest.raises(UserError, match="makes diff_cse another method")
    with refusal if weight else contextlib.nullcontext():
        StudyRunner(study, tmp_path, tmp_path).check_settings()


def test_the_documented_study_is_valid(tmp_path):
    """It is read as it is printed, on whatever data."""
    text = (ROOT / "docs" / "studies.md").read_text(encoding="utf-8")
    path = tmp_path / "study.yaml"
    path.write_text(re.search(r"```yaml\n(title: .*?)```", text, re.DOTALL)[1])
    study = read_study(str(path))
    assert [arm.name for arm in study.arms] == ["mlm", "cmlm", "cmlm_max"]
    StudyRunner(study, tmp_path, tmp_path).check_settings()


@pytest.mark.parametrize(
    ("gain", "half", "printed", "answer"),
    [
        (1.1, 0.7, -2.7, NO),
        (-1.1, 0.7, -2.7, YES),
        (1.1, 1.2, -2.7, UNDECIDED),
        (1.1, None, 2.7, UNDECIDED),
        (1.1, 0.7, 0.0, NO),
        (1.1, 0.7, None, NO_FIGURE),
    ],
)
def test_the_sign_follows_from_interval_and_paper(gain, half, printed, answer):
    """Only a gain whose interval excludes zero agrees with a paper, or does not."""
    estimated = Estimate({1: gain}, gain, None, half)
    if printed is not None:
        printed = Printed((printed > 0) - (printed < 0), printed, "sts/STS-B/spearman", "Table 1")
    comparison = Comparison("a", "b", "a against b")
    column = Column("sts/STS-B/spearman", "STS-B")
    assert Outcome(comparison, column, estimated, printed).has_paper_sign == answer


def test_outcomes_are_those_of_the_papers_text():
    """The figures were read in the papers, and means of several tasks taken by hand."""
    signs = {}
    for name in ("bitext", "cmlm_ablation", "declutr", "language_models", "student"):
        study = read_study(name)
        for outcome in list_outcomes(study, read_results(study, RESULTS / name)):
            key = (name, outcome.comparison.arm, outcome.comparison.minus, outcome.column.id)
            signs[key] = (outcome.describe_printed(), outcome.has_paper_sign)
    senteval, sts_b = "senteval/average_of_chosen/main_metrics", "sts/STS-B/spearman"
    tatoeba = "tatoeba/de/accuracy_mean"
    # CMLM's Table 1 has, over the seven tasks, 588.4 for CMLM, 580.7 for MLM and 544.2 for
    # QuickThought; Table 7 554.7 for skip and 585.0 for proj; Table 9 587.21 and 560.3.
    assert signs["language_models", "cmlm", "mlm", senteval] == ("+1.1", UNDECIDED)
    assert signs["language_models", "cmlm", "quick_thought", senteval] == ("+6.3", YES)
    assert signs["language_models", "cmlm_skip", "mlm", senteval] == ("−3.7", NO)
    assert signs["language_models", "quick_thought", "mlm", senteval] == ("−5.2", YES)
    assert signs["cmlm_ablation", "skip", "n_15", senteval] == ("−4.8", UNDECIDED)
    assert signs["cmlm_ablation", "projected", "n_15", senteval] == ("−0.5", YES)
    assert signs["cmlm_ablation", "n_15", "max", senteval] == ("+0.2", YES)
    assert signs["cmlm_ablation", "n_15", "cls", senteval] == ("+4.0", YES)
    # DeCLUTR's Table 2: 585.23 and 582.37; of CR and TREC 178.32 and 178.2, CMLM 180.9 and 179.9.
    assert signs["declutr", "both", "start", senteval] == ("+0.4", YES)
    assert signs["student", "declutr", "start", senteval] == ("+0.1", YES)
    assert signs["student", "cmlm", "mlm", senteval] == ("+0.5", UNDECIDED)
    assert signs["language_models", "cmlm_skip", "mlm", sts_b] == ("–", NO_FIGURE)
    # 76.60 and 46.35.
    assert signs["language_models", "cmlm", "mlm", sts_b] == ("+30.2", NO)
    assert signs["language_models", "quick_thought", "mlm", sts_b] == ("–", NO_FIGURE)
    # 78.6 and 81.6 of XEVAL; 97.6 and 97.7 of Tatoeba's German.
    assert signs["bitext", "s2", "s1_short", tatoeba] == ("−3.0\\*", UNDECIDED)
    assert signs["bitext", "s3_nli", "s3", tatoeba] == ("−0.1", YES)
    # .764 and .464; in words.
    assert signs["student", "mirror_bert", "start", sts_b] == ("+30.0", UNDECIDED)
    assert signs["student", "declutr", "declutr_mlm", senteval] == ("above\\*", YES)


@pytest.mark.parametrize("name", ["language_models", "cmlm_ablation", "declutr", "student"])
def test_means_of_the_papers_figures_are_of_the_tasks_that_are_scored(name):
    """A star marks any other score, and these have none."""
    scores = read_study(name).scores
    scored = [option for option in scores.set if option.startswith("senteval.tasks=")]
    means = [ids for column in scores.columns for ids in column.paper_ids if MEAN_OF in ids]
    tasks = [[score.split("/")[1] for score in ids.split(MEAN_OF)] for ids in means]
    assert [f"senteval.tasks=[{', '.join(each)}]" for each in tasks] == scored


@pytest.mark.parametrize("page", PAGES)
def test_pages_have_the_findings_of_the_published_results(page):
    """`python -m experiments.study --findings` makes their tables."""
    assert insert_findings(page) == (ROOT / page).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", study_files())
def test_the_projects_studies_are_read(name, tmp_path):
    """With all experiments and fields that they name; those of several stages with a start."""
    study, start = read_study(name), None
    if any(arm.starts_from == "$start" for arm in study.arms):
        start = tmp_path / "start"
        values = read_study("setting").common["task"]["encoder"] | {"vocab_size": 8000}
        config = EncoderConfig().replace(**values)
        words = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *map(str, range(7995)))
        describe(str(start), config, WordPieceVocabulary(words, True, 100), 64, False)
    StudyRunner(study, Path("/work"), Path("/data"), start).check_settings()


def test_names_are_replaced_in_texts_alone():
    """Keys, numbers and null stay as they are, also in lists."""
    values = {3: ["$data/x", "$$5", 'a "b"'], "$data": {"n": 1.5, "no": None, "yes": True}}
    replaced = {**values, 3: ['/d "1"/x', "$5", 'a "b"']}
    assert expand(values, {"data": '/d "1"'}) == replaced


def test_an_unnamed_start_is_asked_for(tmp_path):
    study = write_study(tmp_path, change_at("arms", 0, "starts_from", "$start"))
    with pytest.raises(UserError, match="arm mlm: .*start is not known here; .*--start"):
        StudyRunner(study, tmp_path, tmp_path).check_settings()


@pytest.mark.parametrize(
    "name",
    [
        name if name == "contrastive" else pytest.param(name, marks=pytest.mark.long)
        for name in study_files()
        if (RESULTS / name / "results.json").is_file()
    ],
)
def test_published_results_still_give_the_published_table(name, tmp_path):
    shutil.copy(RESULTS / name / "results.json", tmp_path)
    write_report(read_study(name), tmp_path, name)
    published = RESULTS / name / "study.md"
    if published.is_file():
        assert (tmp_path / "study.md").read_text() == published.read_text()
