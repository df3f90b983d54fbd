"""Options of suites: lists with commas, values that are refused; and suites without data."""

import typing

import pytest

from official_cmlm.common.errors import UserError
from official_cmlm.evaluation import suites
from official_cmlm.evaluation.report.driver import parse_options
from official_cmlm.evaluation.suites import sts
from tests.evaluation import toy


def _option(setting):
    name, _, rest = setting.strip().partition(".")
    return getattr(parse_options([name], [setting])[name], rest.partition("=")[0].strip())


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("tatoeba.languages=deu,fra", ["deu", "fra"]),
        ("tatoeba.languages=deu, fra ", ["deu", "fra"]),
        ("tatoeba.languages=[deu, fra]", ["deu", "fra"]),
        ("tatoeba.languages=deu", ["deu"]),
        ("senteval.tasks=STS-B,SICK-R", ["STS-B", "SICK-R"]),
        # Words may be in upper or lower case, and spaces make no difference.
        (" senteval.tasks = mr, Sick-E", ["MR", "SICK-E"]),
        ("sts.split=DEV", "dev"),
        ("amazon.grid=0.1,10", [0.1, 10]),
        ("amazon.grid=1", [1]),
        ("language_bias.split=dev,test", "dev,test"),
    ],
)
def test_items_with_commas_are_a_list(setting, value):
    """Where the default is a list; a single item is a list of one, numbers are numbers."""
    assert _option(setting) == value


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("tatoeba.languages=deu,,fra", "an item of 'deu,,fra' is empty"),
        ("tatoeba.languages=no", "tatoeba: languages[0] must be str, got False; quote it"),
        ("tatoeba.languages=[de, no]", "languages[1] must be str, got False; quote it"),
        ("tatoeba.languages=deu,deu", "has a repeated item"),
        ("tatoeba.languages={a: 1}", "tatoeba: languages must be a list, got"),
        ("amazon.grid=0.1,x", "amazon: grid[1] must be a number, got 'x'"),
        ("amazon.grid=0.1,nan", "amazon: grid[1] must be above 0, got nan"),
    ],
)
def test_impossible_lists_are_refused(setting, message):
    """One line that says what to write."""
    with pytest.raises(UserError) as error:
        _option(setting)
    assert message in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("suite", "values", "message"),
    [
        ("amazon", {"dev_share": 1.0}, "dev_share"),
        ("amazon", {"grid": []}, "grid must name at least one"),
        ("amazon", {"grid": [0.0]}, "grid"),
        ("geometry", {"max_texts": 1}, "max_texts must be at least 2"),
        ("language_bias", {"max_rows": -1}, "max_rows"),
        ("probing", {"tasks": []}, "tasks must name at least one"),
        ("retrieval", {"k": 10}, "k must be"),
        ("senteval", {"seeds": 0}, "seeds must be at least 1"),
        ("senteval", {"tasks": ["SST"]}, r"tasks\[0\] must be one of MR, CR.* got 'SST'"),
        ("sts", {"split": "valid"}, "split must be one of test, dev, train, both"),
        ("tatoeba", {"num_components": 0}, "num_components must be at least 1"),
        ("xnli", {"max_train": -1}, "max_train must be at least 0"),
    ],
)
def test_values_out_of_range_are_refused(suite, values, message):
    """One line with the suite and the possible values."""
    with pytest.raises(UserError, match=f"^{suite}: .*{message}"):
        suites.read_options(suite, values)


@pytest.mark.parametrize("suite", suites.SUITES)
def test_options_that_are_words_take_no_other_word(suite):
    """Single words and lists of words: in place of each there could be a slip of the pen."""
    kind = suites.get_suite(suite).options
    for name, hint in typing.get_type_hints(kind, include_extras=True).items():
        if words := [note for note in getattr(hint, "__metadata__", ()) if hasattr(note, "words")]:
            with pytest.raises(UserError, match=f"{name}.* must be one of {words[0].words[0]}"):
                suites.read_options(suite, {name: "slip"})


@pytest.mark.parametrize(
    ("name", "folder", "message"),
    [
        ("amazon", "", "amazon_reviews_multi"),
        ("bli", "", "codogogo/xling-eval"),
        ("bli", "bli", "no dictionary"),
        ("entity_linking", "", r"entities\.txt"),
        ("language_bias", "", "google-research-datasets/paws"),
        ("language_bias", "pawsx", "<split>-<lang>.tsv: missing"),
        ("lareqa", "", "google-research-datasets/lareqa"),
        ("lareqa", "xquad-r", "<lang>.json: missing"),
        ("retrieval", "", "belongs into DATA_DIR/beir/<name>"),
        ("tatoeba", "", "LASER"),
        ("word_similarity", "", "multi_simlex"),
        ("xeval", "", "<language>/<task>: missing; .*xeval/<language>/<task>"),
        ("xeval", "xeval/de", "<language>/<task>: missing; .*xeval/<language>/<task>"),
        ("xnli", "", r"xnli: missing; XNLI-1\.0"),
        ("xnli", "xnli", r"xnli\.test\.tsv: missing; XNLI-1\.0"),
    ],
)
def test_missing_folders_are_named(tmp_path, name, folder, message):
    """One line says what to put where, without the folder and with an empty one."""
    (tmp_path / folder).mkdir(parents=True, exist_ok=True)
    with pytest.raises(UserError, match=message):
        toy.run(suites.get_suite(name), toy.encode, tmp_path)


@pytest.mark.parametrize(
    ("name", "tasks"),
    [("geometry", ["texts", "sts-dev", "qqp"]), ("qnli", ["dev"]), ("sts", sts.YEARS)],
)
def test_tasks_without_data_are_missing_by_themselves(tmp_path, name, tasks):
    """Tasks are missing by themselves where each has files of its own."""
    missing = toy.run(suites.get_suite(name), toy.encode, tmp_path).missing
    assert [one.task for one in missing][: len(tasks)] == list(tasks)
    assert all("DATA_DIR" in one.hint or "STSBenchmark" in one.hint for one in missing)
