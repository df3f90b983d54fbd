"""PAWS-X: its two layouts, and the rows that are kept."""

from official_cmlm.evaluation.data.folder import DataFolder
from official_cmlm.evaluation.data.pawsx import aligned_distinct, first_sentences


def test_rows_are_complete_and_distinct_in_every_language():
    """A copy in one language alone takes the row out; the first of the copies stays."""
    columns = {
        "en": ["a", "b", "a", "c", "", "d", "e"],
        "de": ["A", "B", "C", "A", "E", "D", "F"],
    }
    sources = {"en": "en.tsv", "de": "de.tsv"}
    kept, notes = aligned_distinct(columns, sources)
    assert kept == {"en": ["a", "b", "d", "e"], "de": ["A", "B", "D", "F"]}
    assert notes[0].startswith("1 rows skipped: malformed")
    assert notes[1].startswith("2 rows skipped: a sentence that occurs")
    assert aligned_distinct(columns, sources, 2) == ({"en": ["a", "b"], "de": ["A", "B"]}, [])
    assert aligned_distinct(columns, sources, 3)[0]["en"] == ["a", "b", "d"]


def test_sentences_of_both_layouts(tmp_path):
    """With a header and without; malformed rows and `NS` are missing sentences."""
    plain, header = tmp_path / "dev-en.tsv", tmp_path / "dev-de.tsv"
    plain.write_text("one\tuno\t1\nNS\ttwo\t0\nbroken\nfour\tvier\t1\n")
    header.write_text("id\tsentence1\tsentence2\tlabel\r\n1\teins\tzwei\t0\r\n2\tzwei\t1\r\n")
    data = DataFolder(tmp_path)
    assert first_sentences(data, plain, "") == ["one", "", "", "four"]
    assert first_sentences(data, header, "") == ["eins", ""]
