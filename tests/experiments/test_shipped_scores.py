"""The tables that `make -f experiments/shipped/Makefile multi_scores multi_bias` prints."""

import json
from pathlib import Path

from experiments.shipped import bias, scores

EIGHT = "all of ar+de+en+es+hi+ru+vi+zh"
TEN = ("de", "ru", "hi", "ja", "vi", "sw", "tr", "ko", "ar", "fi")


def _write_results(folder, name, suites):
    suite = {
        "protocol": "",
        "seconds": 1.0,
        "seeds": [],
        "notes": [],
        "failures": [],
        "options": {},
    }
    encoder = {"path": name, "kind": "x", "fingerprint": "x", "dimension": 4, "name": name}
    written = {
        suite_name: suite
        | {
            "scores": [
                {"task": task, "metric": metric, "value": value, "count": 9}
                for task, metric, value in rows
            ]
        }
        for suite_name, rows in suites.items()
    }
    folder.mkdir()
    (folder / "results.json").write_text(
        json.dumps(
            {"encoder": encoder, "data_dir": "", "started": "", "seconds": 1.0, "suites": written}
        )
    )
    return str(folder)


def test_a_row_of_several_languages_is_their_mean_and_a_missing_one_is_said(tmp_path, capsys):
    """A score of another metric or language does not count; half of a row is not a row."""
    ten = [(task, "accuracy_to_english", float(i)) for i, task in enumerate(TEN)]
    other = [("de", "accuracy_from_english", 90.0), ("ta", "accuracy_to_english", 90.0)]
    whole = _write_results(tmp_path / "a", "whole", {"tatoeba": ten + other})
    part = _write_results(tmp_path / "b", "part", {"tatoeba": ten[1:] + other})
    scores.main(whole, part)
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["| score | whole | part |", "|---|---|---|"]
    assert "| … de ru hi ja vi sw tr ko ar fi | 4.50 | not measured |" in lines


def test_the_table_of_bias_has_a_row_for_each_removal_after_the_one_without(tmp_path, capsys):
    """Scores before any removal stand once, and each removal's come from its own file."""
    folder = tmp_path / "small"
    folder.mkdir()
    for number, (file, _) in enumerate(bias.REMOVALS):
        rows = [(EIGHT, "map", 30.0), (EIGHT, "map_pcr", 40.0 + number)]
        written = _write_results(tmp_path / file, "small", {"lareqa": rows})
        (folder / f"{file}.json").write_text(Path(written, "results.json").read_text())
    bias.main(str(folder))
    rows = [line.split(" | ") for line in capsys.readouterr().out.splitlines()[2:]]
    assert [row[1] for row in rows] == ["nothing", *(title for _, title in bias.REMOVALS)]
    at = [title for title, *_ in bias.COLUMNS].index("XQuAD-R, eight languages, mAP × 100") + 2
    assert [row[at] for row in rows] == ["30.00", *(f"{40 + n}.00" for n in range(len(rows) - 1))]
