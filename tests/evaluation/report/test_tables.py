"""Markdown tables of an evaluation: our rows, the papers' rows, every score."""

import copy
import re

import pytest

from official_cmlm.evaluation.report import tables


def score(task, metric, value, count=10, deviation=None):
    fields = {"task": task, "metric": metric, "value": value, "count": count}
    return fields | {"deviation": deviation}


def suite(*scores, **parts):
    return {
        "scores": list(scores),
        "figures": {},
        "notes": [],
        "failures": [],
        "files": {},
        "options": {},
        "protocol": "",
        "seconds": 1.0,
        "seeds": [],
    } | parts


def results(name="mine", **suites):
    encoder = {"path": f"/models/{name}", "fingerprint": "0123456789abcdef", "kind": "folder"}
    return {
        "encoder": encoder | {"dimension": 8, "name": name},
        "data_dir": "/data",
        "started": "2030-01-02T03:04:05+00:00",
        "seconds": 200.4,
        "suites": suites,
    }


def section(text: str, title: str) -> list[list[str]]:
    """The cells of the table below the first heading that contains `title`."""
    lines = text.split("\n")
    start = next(i for i, line in enumerate(lines) if line.startswith("#") and title in line)
    rows = []
    for line in lines[start + 1 :]:
        if line.startswith("|"):
            rows.append([cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]])
        elif rows:
            return rows
    return rows


STS = suite(
    score("STS12", "spearman_all", 61.234, 3108),
    score("STS12", "spearman_mean", 55.0, 3108),
    score("STS-B", "spearman", 70.0, 1379),
)


def test_own_row_comes_first_and_missing_is_a_dash():
    """Our values stand in the paper's columns, with its decimals; what we lack is a dash."""
    text = tables.markdown(results(sts=STS))
    header, rule, own, *published = section(text, "CMLM, Table 2")
    assert header == "Model STS12 STS13 STS14 STS15 STS16 STSB SICK-R Avg.".split()
    assert rule == ["---"] + ["---:"] * 8
    assert own == ["**mine**", "61.23", "–", "–", "–", "–", "70.00", "–", "–"]
    assert published[-2][0] == "CMLM base" and published[-2][1] == "58.20"
    assert "Not scored: STS13, STS14, STS15, STS16, SICK-R, Avg.\n" in text


def test_protocol_stands_below_the_table():
    """Under each of the papers' tables is what it says of its protocol."""
    text = tables.markdown(results(sts=STS))
    below = text[text.index("### DeCLUTR, Table 2 (similarity)") :]
    assert re.search(r"\|\n\nProtocol: Spearman's correlation of cosines, mean over", below)
    assert section(below, "DeCLUTR")[2][:2] == ["**mine**", "55.00"]


def test_printed_values_are_in_our_unit():
    """Mirror-BERT prints correlations from 0 to 1; ours are times 100, and so are its rows."""
    rows = section(tables.markdown(results(sts=STS)), "Mirror-BERT, Table 3")
    assert rows[2][1] == "61.2"
    assert next(row for row in rows if row[0] == "RoBERTa + Mirror")[1:3] == ["64.6", "81.8"]


def test_an_empty_value_of_a_paper_is_a_dash():
    """What a paper does not give is a dash, too."""
    rows = section(
        tables.markdown(results(xeval=suite(score("de", "average", 80.0)))), "CMLM, Table 4"
    )
    assert next(row for row in rows if row[0] == "mUSE")[2] == "–"
    assert rows[2][3] == "80.0"


def test_configuration_stands_beside_own_rows():
    """Wherever a row is compared with a paper's; results of before say nothing."""
    part = suite(score("MR", "accuracy", 81.2)) | {"configuration": "fast: 5 folds, 1 seed"}
    other = results(senteval=suite(score("MR", "accuracy", 80.0)))
    other["encoder"] = other["encoder"] | {"name": "theirs"}
    rows = section(tables.markdown(results(senteval=part), other), "CMLM, Table 1")
    own = [row[:2] for row in rows if row[0].startswith("**")]
    assert own == [["**mine (fast: 5 folds, 1 seed)**", "81.2"], ["**theirs**", "80.0"]]


def test_variants_have_a_row_each():
    """Where a paper does not state the direction, each that was scored has its row."""
    scores = [
        score("fr", f"accuracy_{direction}", value)
        for direction, value in (("mean", 70.0), ("from_english", 60.0), ("to_english", 80.0))
    ]
    rows = section(tables.markdown(results(tatoeba=suite(*scores))), "CMLM, Table 5")
    column = rows[0].index("fr")
    own = [(row[0], row[column]) for row in rows if row[0].startswith("**")]
    assert own == [
        ("**mine, mean of both directions**", "70.0"),
        ("**mine, from English**", "60.0"),
        ("**mine, to English**", "80.0"),
    ]
    # Without a score of it, a variant has none; one row stays where there is no score at all.
    rows = section(tables.markdown(results(tatoeba=suite(*scores))), "CMLM, Table 8")
    assert len([row for row in rows if row[0].startswith("**")]) == 3
    text = tables.markdown(results(bli=suite(score("en-xx.5k", "p@1", 9.0))))
    rows = section(text, "Mirror-BERT, Table 19")
    assert [row[0] for row in rows if row[0].startswith("**")] == [
        "**mine, 5k training words, centred**"
    ]
    assert "Not scored: all." in text


def test_a_mean_of_our_own_values():
    """An average that is no score of ours is taken where no column is missing."""
    languages = "en fr et ar zh ru es pl".split()
    scores = [score(f"multi_simlex.{x}", "spearman", float(i)) for i, x in enumerate(languages)]
    whole = section(
        tables.markdown(results(word_similarity=suite(*scores))), "Mirror-BERT, Table 16"
    )
    assert whole[2][-2:] == ["7.0", "3.5"]
    part = tables.markdown(results(word_similarity=suite(*scores[1:])))
    assert section(part, "Mirror-BERT, Table 16")[2][-1] == "–"


def test_tables_of_other_suites_stay_away():
    """A paper's table needs a score of its suite."""
    text = tables.markdown(results(sts=STS, senteval=suite(failures=["MR: missing"])))
    assert "SemEval" not in text
    assert "CMLM, Table 1:" not in text and "CMLM-CSE, Table 1:" in text


def test_all_scores_are_listed():
    """Every score has a row with deviation and count."""
    text = tables.markdown(
        results(senteval=suite(score("MR", "accuracy", 81.256, 10662, 0.304), *STS["scores"]))
    )
    header, _, *rows = section(text, "All scores")
    assert header == ["Task", "Metric", "Value", "Count"]
    assert rows[0] == ["MR", "accuracy", "81.26 ± 0.30", "10662"]
    assert rows[1] == ["STS12", "spearman\\_all", "61.23", "3108"]
    assert len(rows) == 4


def test_compare_adds_a_row_and_differences():
    """A second encoder has its own row, and each score the difference to it."""
    other = results("other", sts=suite(score("STS12", "spearman_all", 60.0, 3000)))
    other["suites"]["qnli"] = suite(score("dev", "auc", 70.0))
    text = tables.markdown(results(sts=STS), other)
    rows = section(text, "CMLM, Table 2")
    assert [row[:2] for row in rows[2:4]] == [["**mine**", "61.23"], ["**other**", "60.00"]]
    header, _, first, second, third = section(text, "All scores")
    assert header == ["Task", "Metric", "mine", "other", "Difference", "Count"]
    assert first[2:] == ["61.23", "60.00", "+1.23", "3108 / 3000"]
    assert second[2:] == ["55.00", "–", "–", "3108"]
    assert third[0] == "STS-B"
    # A suite that only the second has.
    assert section(text[text.index("## qnli") :], "All scores")[2][2:5] == ["–", "70.00", "–"]


def test_encoders_of_one_name_are_told_apart():
    """Two encoders of one name bear their fingerprints."""
    other = results("mine", sts=STS)
    other["encoder"]["fingerprint"] = "fedcba9876543210"
    names = tables.encoder_names(results(sts=STS), other)
    assert names == ["mine (01234567)", "mine (fedcba98)"]
    assert tables.encoder_names(results(sts=STS)) == ["mine"]


def test_notes_and_failures():
    """Notes and failures are listed; failures at the top as well; one of two is named."""
    mine = results(sts=suite(notes=["STS15: 3 pairs"], failures=["STS13: missing"]))
    text = tables.markdown(mine)
    assert text.index("**Not scored:**") < text.index("- sts: STS13: missing")
    assert text.count("STS13: missing") == 2
    assert "### Notes\n\n- STS15: 3 pairs" in text and "All scores" not in text
    other = results("other", sts=suite(notes=["STS15: 3 pairs", "one more"]))
    assert tables.notes("sts", mine, other) == ["STS15: 3 pairs", "other: one more"]
    assert tables.failures("sts", mine, other) == ["mine: STS13: missing"]


def test_settings():
    """Protocol, options and seeds are listed where there are any."""
    part = suite(protocol="as published", options={"kfold": 10, "tasks": ["MR"]}, seeds=[1111])
    assert tables.settings("senteval", results(senteval=part)) == [
        "Protocol: as published",
        "Options: kfold=10, tasks=['MR']",
        "Seeds: 1111",
        "Duration: 1 s",
    ]


def test_text_is_escaped():
    """Names cannot break a table or become markup."""
    mine = results("a|b <b>*c*</b> $x$\nnext", sts=STS)
    text = tables.markdown(mine)
    assert "<b>" not in text and "&lt;b&gt;\\*c\\*" in text
    assert section(text, "CMLM, Table 2")[2][0].startswith("**a\\|b")
    widths = {len(row) for row in section(text, "CMLM, Table 2")}
    assert widths == {9}


@pytest.mark.parametrize("value", [None, float("nan")])
def test_values_that_are_no_numbers(value):
    """A correlation that is not defined is a dash, not a figure."""
    mine = results(sts=suite(score("STS12", "spearman_all", value)))
    text = tables.markdown(mine, results("other", sts=STS))
    assert section(text, "CMLM, Table 2")[2][1] == "–"
    assert section(text, "All scores")[2][2:5] == ["–", "61.23", "–"]


def test_no_suite_and_unknown_suite():
    """Nothing but a heading where nothing was run; a suite of another version is shown."""
    assert tables.markdown(results()).startswith("# Evaluation of mine\n")
    mine = results(zzz=suite(score("a", "b", 1.0)), sts=STS)
    assert tables.suite_names(mine) == ["sts", "zzz"]
    text = tables.markdown(mine)
    assert section(text[text.index("## zzz") :], "All scores")[2][:3] == ["a", "b", "1.00"]


def test_nothing_is_changed():
    """The results are only read."""
    mine = results(sts=STS)
    before = copy.deepcopy(mine)
    assert tables.markdown(mine) == tables.markdown(mine)
    assert mine == before


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.2, "0 s"), (59.4, "59 s"), (59.6, "1 min 0 s"), (200.4, "3 min 20 s"), (7500, "2 h 5 min")],
)
def test_duration(seconds, text):
    """Durations are told in two units at most."""
    assert tables.duration(seconds) == text
