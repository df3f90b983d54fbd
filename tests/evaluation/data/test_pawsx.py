"""PAWS-X: its two layouts, quotes, and the rows that are kept."""

import csv
import io

import pytest

from official_cmlm.common.errors import UserError
from official_cmlm.evaluation.data.folder import DataFolder
from official_cmlm.evaluation.data.pawsx import first_sentences, select_distinct_rows


def test_rows_are_complete_and_distinct_in_every_language():
    """A copy in one language alone takes the row out; the first of the copies stays."""
    columns = {
        "en": ["a", "b", "a", "c", "", "d", "e"],
        "de": ["A", "B", "C", "A", "E", "D", "F"],
    }
    sources = {"en": "en.tsv", "de": "de.tsv"}
    rows, notes = select_distinct_rows(columns, sources)
    assert rows == {"en": ["a", "b", "d", "e"], "de": ["A", "B", "D", "F"]}
    assert notes[0].startswith("1 rows skipped: malformed")
    assert notes[1].startswith("2 rows skipped: a sentence that occurs")
    assert select_distinct_rows(columns, sources, 2) == ({"en": ["a", "b"], "de": ["A", "B"]}, [])
    assert select_distinct_rows(columns, sources, 3)[0]["en"] == ["a", "b", "d"]


def test_sentences_of_both_layouts(tmp_path):
    """With a header and without; malformed rows and `NS` are missing sentences."""
    plain, header = tmp_path / "dev-en.tsv", tmp_path / "dev-de.tsv"
    plain.write_text("one\tuno\t1\nNS\ttwo\t0\nbroken\nfour\tvier\t1\n")
    header.write_text("id\tsentence1\tsentence2\tlabel\r\n1\teins\tzwei\t0\r\n2\tzwei\t1\r\n")
    data = DataFolder(tmp_path)
    assert first_sentences(data, plain) == ["one", "", "", "four"]
    assert first_sentences(data, header) == ["eins", ""]


def _read(tmp_path, text):
    path = tmp_path / "test-fr.tsv"
    path.write_bytes(text.encode())
    return first_sentences(DataFolder(tmp_path), path)


# Quotes at the start, at the end, around all, inside, and none.
QUOTES = ['"a" b', 'a "b"', '"a b"', 'a "b" c', 'a " b', "a b", '"a"', 'a ""b"" c', "''a''"]


def _write_rows(rows, **options):
    file = io.StringIO(newline="")
    csv.writer(file, delimiter="\t", **options).writerows(rows)
    return file.getvalue()


@pytest.mark.parametrize("label", [[], ["1"]])
@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC])
def test_quotes_of_csv_are_taken_off(tmp_path, label, quoting):
    """Whatever `csv` wrote is read back, as XTREME's script writes it and in its other ways."""
    rows = [[text, "x", *label] for text in QUOTES]
    assert _read(tmp_path, _write_rows(rows, quoting=quoting)) == QUOTES


def test_quotes_of_other_files_stay(tmp_path):
    """Google's files have quotes as they are in the text, also around all of a sentence."""
    rows = [f"{i}\t{text}\t{text}\t0" for i, text in enumerate(QUOTES)]
    header = "id\tsentence1\tsentence2\tlabel"
    assert _read(tmp_path, "\n".join([header, *rows])) == QUOTES
    for row, text in zip(rows, QUOTES):
        # One row is enough to tell, and where it tells nothing its quotes stay.
        assert _read(tmp_path, f"{header}\n1\tplain\tplain\t0\n{row}\n") == ["plain", text]


def test_a_damaged_row_does_not_change_the_others(tmp_path):
    """A row that `csv` cannot have written stays as it is, beside rows that it wrote."""
    text = _write_rows([['a "b"', "x", "1"], ['"c"', '"x"', "0"]])
    assert _read(tmp_path, text + '"d" e\tx\t0\nf\t"x\t1\n') == ['a "b"', '"c"', '"d" e', "f"]


def test_a_sentence_of_several_lines_is_one_row(tmp_path):
    """Else the rows after it would not be aligned any more."""
    whole = [["d", 'e "f"']] * 9
    rows = [['first\n"second"', "x"], ["c", 'x\n\n"y"'], *whole]
    assert _read(tmp_path, _write_rows(rows)) == ['first\n"second"', "c", *("d" * 9)]


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("a", "1 columns"),
        ("1\ta\tb", "3 columns, first a number,"),
        ("1\ta\tb\t0", "4 columns, first a number,"),
        ("a\tb\tc\td\t0", "5 columns"),
    ],
)
def test_unknown_columns(tmp_path, line, found):
    """One line with what was found and what is known."""
    with pytest.raises(UserError, match=f"test-fr.tsv: {found} and no header; known are") as error:
        _read(tmp_path, f"{line}\n" * 3)
    assert "\n" not in str(error.value)


def test_header_in_any_case_and_order(tmp_path):
    """Columns are found by their names."""
    assert _read(tmp_path, "Label\tSentence1\tSentence2\n1\ta\tb\n") == ["a"]
    assert _read(tmp_path, "") == []
