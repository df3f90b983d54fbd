"""Files of sentence pairs with scores, and their irregularities."""

import pytest

from official_cmlm.common.errors import UserError
from official_cmlm.evaluation.data.folder import DataFolder
from official_cmlm.evaluation.data.sts import (
    join_subsets,
    parse_csv,
    parse_sick,
    parse_sts_benchmark,
    read_sts_benchmark,
    read_subsets,
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
    pairs = join_subsets(read_subsets(DataFolder(tmp_path), tmp_path))
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
    with pytest.raises(UserError, match=r"STS\.input\.\*\.txt: missing"):
        read_subsets(DataFolder(tmp_path), tmp_path)
    _write_subset(tmp_path, "a", ["p\tq", "r\ts", "t\tu"], ["1"])
    with pytest.raises(UserError, match="3 pairs but 1 scores"):
        read_subsets(DataFolder(tmp_path), tmp_path)
    _write_subset(tmp_path, "a", ["p\tq", "r\ts"], ["1", "two"])
    with pytest.raises(UserError, match="1 of 2 lines are two texts and a score"):
        read_subsets(DataFolder(tmp_path), tmp_path)
    _write_subset(tmp_path, "a", ["p q", "r s"], ["1", "2"])
    with pytest.raises(UserError, match=r"1 columns by tab.*known: SemEval's STS\.input files"):
        read_subsets(DataFolder(tmp_path), tmp_path)


# GLUE's copy of STS-B: where the publisher's file has the score, this one has a number too.
GLUE = [
    "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore",
    "0\tmain-captions\tMSRvid\t2012test\t0000\tnone\tnone\tA man.\tA man.\t5.000",
    "1\tmain-captions\tMSRvid\t2012test\t0002\tnone\tnone\tA child.\tA child.\t4.750",
]
UNKNOWN = {
    "glue": (parse_sts_benchmark, GLUE, "line 1 has 10 columns by tab, 1 by comma: 'index"),
    "tabs": (parse_csv, ["one\ttwo\t3.0"] * 3, "3 columns by tab, 1 by comma"),
    "other": (parse_sts_benchmark, ["one,two,3.0"] * 3, "1 columns by tab, 3 by comma"),
    "label": (parse_sick, ["1\tA\tB\tNEUTRAL\t3.3"] * 3, "5 columns by tab"),
    "empty": (parse_csv, [], "the file is empty"),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_an_unknown_form_is_one_line(tmp_path, name):
    """It says what was found and what is known."""
    parse, lines, description = UNKNOWN[name]
    with pytest.raises(UserError, match="known: ") as error:
        parse(tmp_path / "file", lines)
    message = str(error.value)
    assert description in message and "\n" not in message and str(tmp_path / "file") in message
