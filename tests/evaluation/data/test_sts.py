"""Files of sentence pairs with scores, and their irregularities."""

import pytest

from official_cmlm.errors import UserError
from official_cmlm.evaluation.data.folder import DataFolder
from official_cmlm.evaluation.data.sts import (
    parse_csv,
    parse_sick,
    read_sts_benchmark,
    read_subsets,
    together,
)


def test_files(tmp_path):
    """Quotes stay in the sentences; pairs without gold are left out; subsets are joined."""
    (tmp_path / "sts.csv").write_text(
        'g\tf\ty\t1\t2.5\ta "b\tc\nshort line\ng\tf\ty\t2\t0\td\te\tz\n'
    )
    pairs = read_sts_benchmark(tmp_path / "sts.csv")
    assert (pairs.first, pairs.second) == (['a "b', "d"], ["c", "e"])
    assert pairs.gold.tolist() == [2.5, 0.0]
    sick = [
        '1\tA "x\tB\t3.3\tNEUTRAL',
        "2\tC\tD\t1\tNEUTRAL",
    ]
    assert parse_sick(tmp_path, sick).first == ['A "x', "C"]
    table = ['"a, ""b""",c,2.5', "d,e,0", "too,few"]
    assert parse_csv(tmp_path, table).first == ['a, "b"', "d"]
    _write_subset(tmp_path, "b", ["p\tq", "r\ts", "v\tw"], ["1", "", "2"])
    _write_subset(tmp_path, "a", ["t\tu\textra", "y\tz"], ["4", "3"])
    pairs = together(read_subsets(DataFolder(tmp_path), tmp_path))
    assert (pairs.first, pairs.second) == (["t", "y", "p", "v"], ["u", "z", "q", "w"])
    assert pairs.gold.tolist() == [4.0, 3.0, 1.0, 2.0]


def _write_subset(folder, name, texts, scores):
    (folder / f"STS.input.{name}.txt").write_text("\n".join(texts) + "\n")
    (folder / f"STS.gs.{name}.txt").write_text("\n".join(scores) + "\n")


def test_missing_and_unequal_files(tmp_path):
    with pytest.raises(UserError, match=r"sts\.csv: missing"):
        read_sts_benchmark(tmp_path / "sts.csv")
    with pytest.raises(UserError, match=r"nowhere/sts\.csv: missing"):
        read_sts_benchmark(tmp_path / "nowhere" / "sts.csv")
    with pytest.raises(UserError, match=r"no STS\.input"):
        read_subsets(DataFolder(tmp_path), tmp_path)
    _write_subset(tmp_path, "a", ["p\tq", "r\ts", "t\tu"], ["1"])
    with pytest.raises(UserError, match="3 pairs but 1 scores"):
        read_subsets(DataFolder(tmp_path), tmp_path)
    _write_subset(tmp_path, "a", ["p\tq", "r\ts"], ["1", "two"])
    with pytest.raises(UserError, match="1 of 2 lines are two texts and a score"):
        read_subsets(DataFolder(tmp_path), tmp_path)
