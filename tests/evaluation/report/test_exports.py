"""CSV and LaTeX of the compared scores."""

import csv
import io
import re

from official_cmlm.evaluation.report.exports import csv_table, latex
from tests.evaluation.report.test_tables import results, score, suite


def _parts():
    scores = [score("STS12", "spearman_all", 61.23456789, 3108), score("a, b", "spearman", 5.0)]
    mine = results("my_model & Söhne", sts=suite(*scores))
    tested = score("STS12", "spearman_all", 60.0, 3108, 0.5) | {"interval": [58.0, 62.0]}
    return mine, results("other", sts=suite(tested), qnli=suite(score("dev", "auc", 70.0)))


def test_csv_has_all_digits():
    """A row a score of the first encoder's suites; empty where an encoder has none."""
    rows = list(csv.DictReader(io.StringIO(csv_table(*_parts()))))
    assert [row["task"] for row in rows] == ["STS12", "a, b"]
    assert rows[0] == {
        **{"suite": "sts", "task": "STS12", "metric": "spearman_all", "count": "3108"},
        **{"my_model & Söhne": "61.23456789", "my_model & Söhne deviation": ""},
        **{"my_model & Söhne low": "", "my_model & Söhne high": ""},
        **{"other": "60.0", "other deviation": "0.5", "other low": "58.0", "other high": "62.0"},
    }
    assert rows[1]["other"] == ""


def test_latex_tables_are_whole():
    """Each row has a cell a column, signs of LaTeX are escaped, own rows stand above a line."""
    text = latex(*_parts())
    tabulars = re.findall(r"\\begin\{tabular\}\{(\w+)\}(.*?)\\end\{tabular\}", text, flags=re.S)
    assert len(tabulars) > 1
    for kinds, body in tabulars:
        rows = [line for line in body.splitlines() if line.endswith(r"\\")]
        assert rows and all(len(re.findall(r"(?<!\\)&", row)) == len(kinds) - 1 for row in rows)
    assert r"my\_model \& Söhne" in text and r"Spearman's $\rho$ $\times$ 100" in text
    table = text[text.index("% CMLM, Table 2:") :].split(r"\bottomrule")[0]
    own, papers = table.split(r"\midrule")[1:]
    assert r"\textbf{61.23}" in own and "CMLM base" in papers
