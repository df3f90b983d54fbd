"""The balance report: shares by hand, and every language and reason in it."""

import pytest

from data_prep.counts import Counts
from data_prep.output.report import format_balance, smooth_shares


@pytest.fixture
def manifest(vocabulary):
    statistics = Counts(documents=3, sentences=20, tokens=900)
    statistics.languages.update({"en": 16, "sw": 1, "hi": 3, "none": 0})
    statistics.language_tokens.update({"en": 800, "sw": 40, "hi": 60})
    removals = {"duplicates/near_document": 1234, "exclude/sentence": 5, "read/unreadable_file": 2}
    removals |= {"normalise/hyphens_mended": 7, "records/sentence_cut": 9}
    statistics.counters.update(removals)
    counts = (400, 300, 200, 150, 100, 50, 20, 8, 4, 2)
    statistics.counters.languages["duplicates/near_document"].update(
        dict(zip("abcdefghij", counts))
    )
    statistics.counters.languages["exclude/sentence"]["en"] = 5
    return statistics.manifest(vocabulary, [], False)


def _rows(section):
    """Returns the lines of a section's table."""
    return [line for line in section.splitlines() if line.startswith("|")]


def test_smoothed_shares_by_hand():
    """4, √3 and 1 over their sum with S = 1/2."""
    scale = 4 + 3**0.5 + 1
    expected = {"en": 4 / scale, "hi": 3**0.5 / scale, "sw": 1 / scale}
    assert smooth_shares({"en": 16, "sw": 1, "hi": 3, "none": 0}, 0.5) == pytest.approx(expected)


def test_languages_are_rows_the_largest_first(manifest):
    """The smoothed shares are 16^0.3, 3^0.3 and 1 over their sum of 4.688."""
    languages, _, _ = format_balance(manifest).split("## ")
    assert _rows(languages)[2:] == [
        "| en | 16 | 800 | 80.00 % | 49.01 % |",
        "| hi | 3 | 60 | 15.00 % | 29.66 % |",
        "| sw | 1 | 40 | 5.00 % | 21.33 % |",
    ]
    manifest.counters.clear()
    assert format_balance(manifest).count("Nothing.") == 2


def test_removals_and_changes_have_tables_of_their_own(manifest):
    """Each reason has its unit, and its languages where they are known."""
    _, left_out, changed = format_balance(manifest).split("## ")
    title, _, *rows = _rows(left_out)
    assert title == "| reason | count | unit | languages |"
    assert rows == [
        "| duplicates/near_document | 1,234 | documents | a 400, b 300, c 200, d 150, e 100, f 50,"
        " g 20, h 8, 2 others 6 |",
        "| exclude/sentence | 5 | sentences | en 5 |",
        "| read/unreadable_file | 2 | files |  |",
    ]
    assert _rows(changed)[2:] == [
        "| normalise/hyphens_mended | 7 | words |  |",
        "| records/sentence_cut | 9 | cuts |  |",
    ]
