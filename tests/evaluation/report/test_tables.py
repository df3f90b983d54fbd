"""Markdown tables of an evaluation: our rows, the papers' rows, every score."""

import re

import pytest

from official_cmlm.evaluation.report import html_report, main_scores, tables
from official_cmlm.evaluation.suites import get_results


def score(task, metric, value, count=10, deviation=None):
    fields = {"task": task, "metric": metric, "value": value, "count": count}
    return fields | {"deviation": deviation}


def suite(*scores, **parts):
    return {
        "scores": list(scores),
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
    """Returns the cells of the table below the first heading that contains `title`."""
    lines = text.split("\n")
    start = next(i for i, line in enumerate(lines) if line.startswith("#") and title in line)
    rows = []
    for line in lines[start + 1 :]:
        if line.startswith("|"):
            rows.append([cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]])
        elif rows:
            return rows
    return rows


def best(table):
    """Returns (row, column) of the best values of a table."""
    cells = ((i, j, cell) for i, row in enumerate(table.rows) for j, cell in enumerate(row))
    return {(i, j) for i, j, cell in cells if isinstance(cell, tables.Best)}


STS = suite(
    score("STS12", "spearman_all", 61.234, 3108),
    score("STS12", "spearman_mean", 55.0, 3108),
    score("STS-B", "spearman", 70.0, 1379),
)


def test_own_rows_come_first_in_papers_tables():
    """Own rows come first, and only scored columns, in the paper's decimals, above the protocol.

    Mirror-BERT prints correlations from 0 to 1; ours are times 100, and so are its rows.
    """
    text = tables.markdown(results(sts=STS))
    header, rule, own, *published = section(text, "CMLM, Table 2")
    assert header == "Model STS12 STSB".split()
    assert rule == ["---"] + ["---:"] * 2
    assert own == ["*mine*", "**61.23**", "70.00"]
    assert published[-2] == ["CMLM base", "58.20", "**76.60**"]
    assert "Not scored: STS13, STS14, STS15, STS16, SICK-R, Avg.\n" in text
    rows = section(text, "Mirror-BERT, Table 3")
    assert rows[2][1] == "61.2"
    assert next(row for row in rows if row[0] == "RoBERTa + Mirror")[1:3] == ["64.6", "78.7"]
    below = text[text.index("### DeCLUTR, Table 2 (similarity)") :]
    assert re.search(r"\|\n\nProtocol: Spearman's correlation of cosines, mean over", below)
    assert section(below, "DeCLUTR")[2][:2] == ["*mine*", "55.00"]


def test_own_scores_come_before_the_papers():
    """The summary first, then all scores, then the papers' tables."""
    text = tables.markdown(results(sts=STS, qnli=suite(score("dev", "auc", 70.0))))
    places = [text.index(part) for part in ("## Summary", "## sts", "## qnli", "## Papers' tables")]
    assert places == sorted(places)
    assert text.index("CMLM, Table 2") > places[-1]
    assert section(text, "Summary") == [
        ["Task", "Value", "Count", "Metric"],
        ["---", "---:", "---:", "---"],
        ["sts: STS12", "61.23", "3108", "Spearman's ρ × 100, all pairs together"],
        ["sts: STS-B", "70.00", "1379", "Spearman's ρ × 100"],
        ["qnli: dev", "70.00", "10", "area under the ROC curve × 100"],
    ]
    # One score makes a short page, in which ablations are named only.
    text = tables.markdown(results(sts=suite(score("STS-B", "spearman", 70.0, 1379))))
    assert len(text.splitlines()) < 95
    assert "DeCLUTR, Table" not in text and "dropout and span masking |" not in text
    assert "Mirror-BERT, Table 20: " in text[text.index("### Ablations") :]


def test_many_tasks_are_represented_by_averages():
    """Many tasks are represented by their averages, or by the mean of those that all have."""
    languages = [score(f"l{i}", "accuracy_mean", float(i)) for i in range(20)]
    mine = results(tatoeba=suite(*languages, score("macro", "accuracy_mean", 9.5, 20)))
    assert [row[0] for row in tables.summary(mine).rows] == ["tatoeba: macro"]
    pairs = [score(f"l{i}.5k", "p@1", float(i)) for i in range(20)]
    mine, other = results(bli=suite(*pairs)), results("other", bli=suite(*pairs[4:]))
    table = tables.summary(mine, results("third"), other)
    # 4 to 19.
    assert table.rows == [
        ["bli: mean of 16 tasks", "11.50", "–", "11.50", "16", "precision at 1, %"]
    ]
    # Equal values: none is the best.
    assert best(table) == set()
    better = results("other", bli=suite(*(score(f"l{i}.5k", "p@1", 30.0) for i in range(20))))
    assert best(tables.summary(mine, better)) == {(0, 2)}
    fewer = results("other", bli=suite(*(score(f"l{i}.5k", "p@1", 30.0, 9) for i in range(20))))
    assert best(tables.summary(mine, fewer)) == set()


def test_summary_shows_the_score_after_component_removal():
    """It stands below the score before, where there is one."""
    shares = [score("all", f"share_own{end}", value) for end, value in (("", 90.0), ("_pcr", 40.0))]
    mine = results(language_bias=suite(*shares), qnli=suite(score("dev", "auc", 70.0)))
    rows = tables.summary(mine, results("other", language_bias=suite(shares[0]))).rows
    assert [(row[-1], *row[1:4]) for row in rows] == [
        ("neighbours in the query's language, %", "90.00", "90.00", "+0.00"),
        ("neighbours in the query's language, %, component removed", "40.00", "–", "–"),
        ("area under the ROC curve × 100", "70.00", "–", "–"),
    ]


def test_best_of_each_column_is_bold():
    """Printed values decide: equal ones are all bold, lower ones where lower is better."""
    text = "en_words_top_10k"
    mine = results(geometry=suite(score(text, "isotropy", 0.9), score(text, "mean_vector_norm", 9)))
    rows = section(tables.markdown(mine), "Mirror-BERT, Table 14")
    assert rows[0] == ["Model", "word MVN", "word IS"]
    label = "*mine, c: eigenvectors (Equation 2)*"
    assert next(row for row in rows if row[0] == label) == [label, "9.000", "**0.900**"]
    lowest = min(float(row[1].strip("*")) for row in rows[2:])
    assert [row[1] for row in rows if row[1].startswith("**")] == [f"**{lowest:.3f}**"]
    table = tables.all_scores(
        "sts",
        *(
            results(name, sts=suite(score("STS-B", "spearman", value), score("x", "share_de", 1)))
            for name, value in (("a", 70.001), ("b", 70.004), ("c", 69.9))
        ),
    )
    assert table.header == ["Task", "a", "b", "c", "Count", "Metric"]
    # A share of a language is neither good nor bad.
    assert best(table) == {(0, 1), (0, 2)}


def test_configuration_stands_beside_own_rows():
    """Wherever a row is compared with a paper's; results of before say nothing."""
    part = suite(score("MR", "accuracy", 81.2)) | {"configuration": "fast: 5 folds, 1 seed"}
    other = results(senteval=suite(score("MR", "accuracy", 80.0)))
    other["encoder"] = other["encoder"] | {"name": "theirs"}
    rows = section(tables.markdown(results(senteval=part), other), "CMLM, Table 1")
    own = [row[:2] for row in rows if row[0].startswith("*")]
    assert own == [["*mine (fast: 5 folds, 1 seed)*", "81.2"], ["*theirs*", "80.0"]]


def test_variants_have_a_row_each():
    """Where a paper does not state the direction, each that was scored has its row."""
    directions = {"mean": "mean of both directions", "from_english": "from English"}
    directions["to_english"] = "to English"
    scores = [score("fr", f"accuracy_{name}", 70.0 + i) for i, name in enumerate(directions)]
    rows = section(tables.markdown(results(tatoeba=suite(*scores))), "CMLM, Table 5")
    column = rows[0].index("fr")
    own = [(row[0], row[column]) for row in rows if row[0].startswith("*")]
    labels = [f"*mine, {label}*" for label in directions.values()]
    assert own == list(zip(labels, ("70.0", "71.0", "72.0")))


def test_a_table_without_any_of_our_scores_stays_away():
    """A score of its suite is not enough, it needs one of its columns."""
    text = tables.markdown(results(bli=suite(score("en-xx.5k", "p@1", 9.0))))
    assert "Mirror-BERT" not in text and "Papers' tables" not in text
    text = tables.markdown(results(bli=suite(score("en-it.5k", "p@1", 9.0))))
    assert section(text, "Mirror-BERT, Table 19")[0] == ["Model", "EN-IT"]


def test_mean_of_own_values_needs_every_column():
    """An average that is not a score of ours is taken where no column is missing."""
    languages = "en fr et ar zh ru es pl".split()
    scores = [score(f"multi_simlex.{x}", "spearman", float(i)) for i, x in enumerate(languages)]
    whole = section(
        tables.markdown(results(word_similarity=suite(*scores))), "Mirror-BERT, Table 16"
    )
    assert whole[2][-2:] == ["7.0", "3.5"]
    part = tables.markdown(results(word_similarity=suite(*scores[1:])))
    assert section(part, "Mirror-BERT, Table 16")[0][-1] == "PL"


def test_all_scores_are_listed():
    """Every score has a row with deviation and count."""
    text = tables.markdown(
        results(sts=suite(score("SICK-R", "spearman", 81.256, 10662, 0.304), *STS["scores"]))
    )
    header, _, *rows = section(text, "All scores")
    assert header == ["Task", "Value", "Count", "Metric"]
    assert rows[0] == ["SICK-R", "81.26 ± 0.30", "10662", "Spearman's ρ × 100"]
    assert rows[1] == ["STS12", "61.23", "3108", "Spearman's ρ × 100, all pairs together"]
    assert len(rows) == 4


def test_compare_adds_a_row_and_differences():
    """A second encoder has its own row, and each score the difference to it."""
    other = results("other", sts=suite(score("STS12", "spearman_all", 60.0, 3108)))
    other["suites"]["qnli"] = suite(score("dev", "auc", 70.0))
    text = tables.markdown(results(sts=STS), other)
    rows = section(text, "CMLM, Table 2")
    assert [row[:2] for row in rows[2:4]] == [["*mine*", "**61.23**"], ["*other*", "60.00"]]
    header, _, first, second, third = section(text, "All scores")
    assert header == ["Task", "mine", "other", "Difference", "Count", "Metric"]
    assert first[1:5] == ["**61.23**", "60.00", "+1.23", "3108"]
    assert second[1:5] == ["55.00", "–", "–", "3108"]
    assert third[0] == "STS-B"
    # A suite that only the second has.
    assert "## qnli" not in text


def test_intervals_stand_in_brackets():
    """Scores and the difference to the second encoder are followed by their intervals."""
    mine = suite(score("STS-B", "spearman", 70.0) | {"interval": [68.123, 71.5]})
    mine["scores"][0]["differences"] = {"f" * 16: [0.2, 1.8]}
    other = results("other", sts=suite(score("STS-B", "spearman", 69.0)))
    other["encoder"]["fingerprint"] = "f" * 16
    row = tables.all_scores("sts", results(sts=mine), other).rows[0]
    assert row[1:4] == ["70.00 [68.12, 71.50]", "69.00", "+1.00 [0.20, 1.80]"]


def test_a_sentence_says_which_encoder_is_better():
    """A difference is clear if its interval, which is of the first minus the second, has no 0."""
    names = ("STS-B", "SICK-R", "STS12", "STS13")
    mine = suite(*(score(name, "spearman", 70.0) for name in names))
    ends = ([0.2, 1.8], [-0.2, 2.2], [-9.0, -1.0])
    for one, interval in zip(mine["scores"], ends):
        one["differences"] = {"f" * 16: interval}
    values = (69.0, 69.0, 75.0, 70.0)
    other = results("other", sts=suite(*map(score, names, ["spearman"] * 4, values)))
    other["encoder"]["fingerprint"] = "f" * 16
    text = tables.headline(results(sts=mine), other)
    assert text.startswith(
        "Of 4 scores mine is best in 2 (clearly in 1) and other is best in 1 (clearly in 1)."
    )
    third = tables.headline(results(sts=mine), other, results("third", sts=mine))
    assert third == "Of 4 scores mine is best in 2, other is best in 1 and third is best in 2."
    alone = tables.headline(results(sts=STS, qnli=suite(score("dev", "auc", 9.0))))
    assert alone == "mine has 70.00 in sts (STS-B) and 9.00 in qnli (dev)."


def test_scores_of_different_examples_are_not_compared():
    """Where the counts differ, neither a best value nor a difference is shown."""
    mine = results(tatoeba=suite(score("macro", "accuracy_mean", 4.45, 1)))
    other = results("other", tatoeba=suite(score("macro", "accuracy_mean", 1.66, 18)))
    text = tables.markdown(mine, other)
    for title in ("Summary", "All scores"):
        assert section(text, title)[2][1:5] == ["4.45", "1.66", "–", "1 / 18"]
    assert tables.headline(mine, other) == ""
    assert "none where the counts differ" in text


def test_nothing_is_best_where_nothing_differs():
    """Equal as printed: none is bold; values near zero show two of their figures."""
    scores = [score("words", "isotropy", 1.2e-7), score("words", "mean_vector_norm", 0.5)]
    parts = [results(name, geometry=suite(*scores)) for name in "ab"]
    table = tables.all_scores("geometry", *parts)
    assert [row[1:4] for row in table.rows] == [
        ["1.2e-07", "1.2e-07", "+0.0000"],
        ["0.5000", "0.5000", "+0.0000"],
    ]
    assert best(table) == set()
    parts[1]["suites"]["geometry"] = suite(score("words", "isotropy", 3.4e-6))
    table = tables.all_scores("geometry", *parts)
    assert table.rows[0][1:4] == ["1.2e-07", "3.4e-06", "-3.3e-06"] and best(table) == {(0, 2)}
    # The papers print three decimals, and have others that are better.
    assert "**0.000**" not in tables.markdown(*parts)


def test_suites_that_only_others_have_are_named():
    """They have no section, table, row of the summary or missing data, in either report."""
    missing = [{"task": "STS13", "what": "/x", "hint": "fetch SemEval"}]
    other = results(
        "other",
        sts=suite(*STS["scores"], missing=missing, notes=["a note"]),
        xeval=suite(score("bg", "average", 80.0)),
        qnli=suite(score("dev", "auc", 70.0)),
        amazon=suite(failures=["no reviews"]),
    )
    own = suite(missing=[missing[0] | {"hint": "fetch QNLI"}], notes=["own note"])
    mine = results(senteval=suite(score("MR", "accuracy", 81.2)), qnli=own)
    text = tables.markdown(mine, other)
    assert text.endswith("\n\nOnly in compared results: sts, xeval, qnli.\n")
    assert [row[0] for row in section(text, "Summary")[2:]] == ["senteval: MR"]
    # A line names the suites that only the compared results have.
    assert "- qnli: STS13: fetch QNLI" in text and "own note" in text and "70.00" not in text
    for gone in ("## sts", "SemEval", "a note", "reviews", "CMLM, Table 2", "CMLM, Table 4"):
        assert gone not in text
    page = html_report.html_report(mine, other)
    assert page.index("Only in compared results: sts, xeval, qnli.") > page.index('id="suite-1"')
    assert page.count("<section") == 3 and "fetch SemEval" not in page and "70.00" not in page
    assert tables.summary(results(), other) is None
    assert "Only in" not in tables.markdown(mine)


@pytest.mark.parametrize(
    ("name", "averages", "others"),
    [
        ("retrieval", "macro NanoBEIR macro-dev NanoBEIR-train", "all average average-prices mean"),
        ("sts", "average average|of|STS12+SICK-R", "all macro average-x STS-B.average mean"),
        ("senteval", "average average_of_chosen", "mean all MR average_x"),
        ("probing", "average average_of_chosen", "mean all"),
        ("tatoeba", "macro macro14 macro36 macro112", "all mean macro3 average"),
        ("xeval", "mean", "all macro average de.mean"),
        ("amazon", "mean", "all macro average"),
        ("language_bias", "all", "mean macro average"),
        ("word_similarity", "multi_simlex.average simlex.average", "average x.mean all"),
        ("entity_linking", "", "all average mean macro all.Disease"),
        ("zzz", "", "all average mean macro"),
    ],
)
def test_averages_are_known_by_their_suite(name, averages, others):
    """Names of data sets are free: `all` is an average in one suite and a data set in another."""
    tasks = [task.replace("|", " ") for task in averages.split()]
    assert all(get_results(name).is_average(task) for task in tasks)
    assert not any(get_results(name).is_average(task) for task in others.split())


def test_encoders_of_one_name_are_told_apart():
    """Two encoders of one name bear their fingerprints."""
    other = results("mine", sts=STS)
    other["encoder"]["fingerprint"] = "fedcba9876543210"
    names = tables.encoder_names(results(sts=STS), other)
    assert names == ["mine (01234567)", "mine (fedcba98)"]
    assert tables.encoder_names(results(sts=STS)) == ["mine"]
    assert tables.encoder_names(results(), results(), other, results("x")) == [
        "mine (01234567)",
        "mine (01234567), 2",
        "mine (fedcba98)",
        "x",
    ]


def test_notes_and_failures_are_listed():
    """Failures and missing data are at the top; what not all have is named."""
    tasks = ("STS12", "fetch SemEval"), ("SICK-R", "fetch SICK"), ("STS13", "fetch SemEval")
    missing = [{"task": task, "what": f"/data/{task}", "hint": hint} for task, hint in tasks]
    notes = ["STS15: 3 pairs"]
    mine = results(sts=suite(notes=notes, failures=["STS13: no pairs"], missing=missing))
    text = tables.markdown(mine)
    assert "**Failed:**\n\n- sts: STS13: no pairs\n" in text
    assert "**No data:**\n\n- sts: STS12, STS13: fetch SemEval\n- sts: SICK-R: fetch SICK\n" in text
    assert text.index("**Failed:**") < text.index("**No data:**") < text.index("## sts")
    assert "### Notes\n\n- STS15: 3 pairs" in text and "All scores" not in text
    other = results("other", sts=suite(notes=["STS15: 3 pairs", "one more"]))
    assert tables.lines_of("notes", "sts", mine, other) == ["STS15: 3 pairs", "other: one more"]
    assert tables.lines_of("failures", "sts", mine, other) == ["mine: STS13: no pairs"]
    third = results("third", sts=suite(notes=["one more"]))
    assert tables.lines_of("notes", "sts", mine, other, third) == [
        "mine, other: STS15: 3 pairs",
        "other, third: one more",
    ]
    # Results of earlier versions have no missing data.
    assert tables.lines_of("missing", "sts", results(sts=STS)) == []


def test_lines_of_a_suite_are_grouped():
    """Failures for one reason name its remedy once; settings are listed where there are any."""
    failures = ["A: no rows; write some", "B: damaged", "C: no columns; write some", "D: damaged"]
    options = {"kfold": 10, "tasks": ["MR", "CR"], "languages": [], "subsets": True, "fixed": None}
    parts = {"protocol": "as published", "options": options, "seeds": [1111]}
    mine = results(senteval=suite(failures=failures, **parts))
    assert tables.lines_of("failures", "senteval", mine) == [
        *("A: no rows; C: no columns; write some", "B: damaged", "D: damaged"),
    ]
    assert tables.lines_of("settings", "senteval", mine) == [
        *("Protocol: as published", "Options: kfold: 10; tasks: MR, CR; subsets: yes"),
        *("Seeds: 1111", "Duration: 1 s"),
    ]


def test_text_is_escaped():
    """Names cannot break a table or become markup."""
    mine = results("a|b <b>*c*</b> $x$\nnext", sts=STS)
    text = tables.markdown(mine)
    assert "<b>" not in text and "&lt;b&gt;\\*c\\*" in text
    assert section(text, "CMLM, Table 2")[2][0].startswith("*a\\|b")
    widths = {len(row) for row in section(text, "CMLM, Table 2")}
    assert widths == {3}
    other = results("# b|`c`", sts=STS)
    assert {len(row) for row in section(tables.markdown(mine, other), "Summary")} == {6}
    part = suite(score("x|y\n# z", "<i>", 1.0), notes=["[a](b)"], missing=[])
    part["missing"] = [{"task": "t|", "what": "", "hint": "<script>"}]
    text = tables.markdown(results(**{"s|": part}))
    assert not re.search(r"<i>|<script>|^# z|(?<!\\)\[a", text, re.MULTILINE)
    assert {len(row) for row in section(text, "All scores")} == {4}


def test_results_without_a_suite_have_a_heading_only():
    """Nothing but a heading where nothing was run; a suite of another version is shown.

    An encoder that encoded nothing has no dimension.
    """
    nothing = results()
    nothing["encoder"]["dimension"] = None
    text = tables.markdown(nothing)
    assert text.startswith(
        "# Evaluation of mine\n\n## Encoders\n\n- mine: folder, fingerprint 0123"
    )
    assert "None" not in html_report.html_report(nothing)
    mine = results(zzz=suite(score("a", "b", 1.0)), sts=STS)
    assert main_scores.suite_names(mine) == ["sts", "zzz"]
    text = tables.markdown(mine)
    assert section(text[text.index("## zzz") :], "All scores")[2][:2] == ["a", "1.00"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.2, "0 s"), (59.4, "59 s"), (59.6, "1 min 0 s"), (200.4, "3 min 20 s"), (7500, "2 h 5 min")],
)
def test_duration_has_two_units_at_most(seconds, text):
    """Durations are told in two units at most."""
    assert tables.duration(seconds) == text
