"""The balance report: shares by hand, every language and reason in it, the same bytes each time."""

import re

import pytest

from data_prep import report_balance
from data_prep.counts import Counts
from data_prep.output.report import figure, shares, table
from data_prep.readers import Document
from official_cmlm.records.manifest import load_manifest
from tests.conftest import write_records
from tests.data_prep.binaries import run_binary


@pytest.fixture
def manifest(vocabulary):
    statistics = Counts(documents=3, sentences=20, tokens=900)
    statistics.languages.update({"en": 16, "sw": 1, "hi": 3, "none": 0})
    statistics.language_tokens.update({"en": 800, "sw": 40, "hi": 60})
    lost = {"duplicates/near_document": 1234, "exclude/sentence": 5, "read/unreadable_file": 2}
    lost |= {"some_release_before": 3, "normalise/hyphens_mended": 7, "records/sentence_cut": 9}
    statistics.counters.update(lost)
    counts = (400, 300, 200, 150, 100, 50, 20, 8, 4, 2)
    statistics.counters.languages["duplicates/near_document"].update(
        dict(zip("abcdefghij", counts))
    )
    statistics.counters.languages["exclude/sentence"]["en"] = 5
    return statistics.manifest(vocabulary, [], False)


def _rows(section):
    """Returns the lines of a section's table."""
    return [line for line in section.splitlines() if line.startswith("|")]


def test_shares_by_hand(manifest):
    """The largest first; 4, √3 and 1 over their sum with S = 1/2."""
    rows = shares(manifest, 0.5)
    assert [(r.language, r.sentences, r.tokens) for r in rows] == [
        ("en", 16, 800),
        ("hi", 3, 60),
        ("sw", 1, 40),
    ]
    assert [row.share for row in rows] == pytest.approx([0.8, 0.15, 0.05])
    scale = 4 + 3**0.5 + 1
    assert [row.smoothed for row in rows] == pytest.approx([4 / scale, 3**0.5 / scale, 1 / scale])


def test_table(manifest):
    """All languages; tokens are left blank where they are not known."""
    text = table(manifest, 0.5)
    assert "| en | 16 | 800 | 80.00 % | 59.42 % |" in text
    assert "none" not in text
    manifest.language_tokens.clear()
    manifest.counters.clear()
    assert "| en | 16 |  | 80.00 % |" in table(manifest)
    assert table(manifest).count("Nothing.") == 2


def test_reasons(manifest):
    """Losses and changes are apart, each with its unit; languages where known."""
    _, left_out, changed = table(manifest).split("## ")
    title, _, *rows = _rows(left_out)
    assert title == "| reason | count | unit | languages |"
    assert rows == [
        "| duplicates/near_document | 1,234 | documents | a 400, b 300, c 200, d 150, e 100, f 50,"
        " g 20, h 8, 2 others 6 |",
        "| exclude/sentence | 5 | sentences | en 5 |",
        "| read/unreadable_file | 2 | files |  |",
        "| some_release_before | 3 |  |  |",
    ]
    assert _rows(changed)[2:] == [
        "| normalise/hyphens_mended | 7 | words |  |",
        "| records/sentence_cut | 9 | cuts |  |",
    ]


def test_figure(manifest):
    """Names and both values of each language; no date in it."""
    drawn = figure(manifest, 0.5)
    assert drawn == figure(manifest, 0.5) != figure(manifest, 0.4)
    texts = re.findall(r">([^<>\n]+)</text>", drawn.decode())
    assert {"en", "sw", "hi", "80.0", "59.4", "5.0", "14.9", "smoothed, S = 0.5"} <= set(texts)
    assert "none" not in texts


def test_binary(tmp_path, vocabulary, capsys):
    """Beside the records."""
    documents = [Document("a", "en", ["The cat sat."] * 3), Document("b", "de", ["A dog."])]
    write_records(tmp_path / "records", documents, vocabulary)
    manifest = load_manifest(tmp_path / "records")
    assert manifest.languages == {"en": 3, "de": 1}
    assert sum(manifest.language_tokens.values()) == manifest.tokens
    assert manifest.language_tokens["de"] == 3
    run_binary(report_balance, records=tmp_path / "records", exponent=0)
    shown = capsys.readouterr().out
    assert "| de | 1 | 3 | 25.00 % | 50.00 % |" in shown
    assert (tmp_path / "records" / "balance.md").read_text() == shown
    assert (tmp_path / "records" / "balance.svg").read_bytes().startswith(b"<?xml")
