"""QNLI: the area under the curve by counting pairs, and the quirks of the file."""

import numpy as np
import pytest

from official_cmlm.evaluation.suites import qnli
from tests.evaluation import toy


def _encode(texts):
    """Returns a vector that points to what the last letter says."""
    return np.array([{"a": [1, 0], "b": [0, 1], "0": [0, 0]}[t[-1]] for t in texts], np.float32)


HEADER = "index\tquestion\tsentence\tlabel\n"


def _run(tmp_path, text):
    (tmp_path / "qnli").mkdir()
    (tmp_path / "qnli/dev.tsv").write_text(text)
    return toy.run(qnli, _encode, tmp_path)


def test_quotes_are_text_and_bad_lines_are_skipped(tmp_path):
    """Quotation marks are text; short lines and unknown labels are skipped and told."""
    rows = '0\t"Is a\tYes" a\tentailment\n1\tIs a\tno b\tnot_entailment\n2\tIs a\tentailment\n'
    report = _run(tmp_path, HEADER + rows + "3\tIs a\tb\tperhaps\n4\tIs a\tzero 0\tentailment\n")
    # Cosines 1 and 0 for entailment, 0 for the other: one pair won, one tied.
    assert report.get("dev", "auc") == pytest.approx(75)
    assert report.scores[0].count == 3
    assert report.notes == ["dev: 2 malformed lines skipped"]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "its header is ''"),
        (["a\tb"], "its header is 'a b'"),
        ([HEADER.strip(), "0\ta\ta\tentailment"], "each label, entailment and not_entailment"),
    ],
)
def test_files_of_another_form_are_named(tmp_path, rows, message):
    """One line: what was in the file, and what is known."""
    (failure,) = _run(tmp_path, "\n".join(rows)).failures
    assert message in failure and "index, question, sentence, label" in failure
