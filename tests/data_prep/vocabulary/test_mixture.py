"""Languages of a vocabulary's text: their shares, which paragraphs stand for them."""

import functools
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_prep.readers import Counts, ReadOptions, TextFile, expand_text_files, read_documents
from data_prep.vocabulary.mixture import (
    count_words,
    smooth_paragraphs,
    smoothing_coefficients,
    text_bytes,
    times,
)
from official_cmlm.common.errors import UserError

QUICK = settings(max_examples=60, deadline=None)
OPTIONS = ReadOptions(lines="paragraphs", documents_by="file")


@QUICK
@given(
    st.dictionaries(st.text("abc", min_size=1, max_size=3), st.integers(1, 10**9), min_size=1),
    st.floats(0, 1),
)
def test_coefficients(counts, exponent):
    """Shares become p^S / Σ p^S and the total stays; 1 changes nothing, 0 makes all alike."""
    result = smoothing_coefficients(counts, exponent)
    total = sum(counts.values())
    scaled = {language: n * result[language] for language, n in counts.items()}
    assert sum(scaled.values()) == pytest.approx(total)
    powers = {language: (n / total) ** exponent for language, n in counts.items()}
    for language, value in scaled.items():
        assert value / total == pytest.approx(powers[language] / sum(powers.values()))
    ones = smoothing_coefficients(counts, 1.0)
    assert list(ones.values()) == pytest.approx([1.0] * len(ones))
    alike = smoothing_coefficients(counts, 0.0)
    assert {round(n * alike[x] / total * len(counts), 9) for x, n in counts.items()} == {1}


@QUICK
@given(st.text(), st.floats(0, 50))
def test_times(text, coefficient):
    """The coefficient rounded down or up, and never fewer for a larger one."""
    result = times(text, coefficient)
    assert int(coefficient) <= result <= int(coefficient) + 1
    assert times(text, coefficient + 0.5) >= result
    assert times(text, float(int(coefficient))) == int(coefficient)


def test_times_on_average():
    """Over many paragraphs the rest decides for its share; four standard deviations."""
    for coefficient in (0.1, 0.5, 2.25):
        uses = [times(f"paragraph {i}", coefficient) for i in range(4000)]
        assert abs(sum(uses) / 4000 - coefficient) < 4 * 0.5 / 4000**0.5


@pytest.mark.parametrize(
    ("text", "words"),
    [("", 0), ("a  b-c", 2), ("你好 世界", 4), ("我有 3只cat。", 5), ("ไทย ไทย", 2), ("é", 1)],
)
def test_words(text, words):
    """Between spaces, and each Han character."""
    assert count_words(text) == words


def _write(folder, counts: dict[str, int]) -> list[str]:
    for language, count in counts.items():
        lines = [f"{language}{i} w{i % 7} x y" for i in range(count)]
        (folder / f"{language}.txt").write_text("\n".join(lines))
    return [f"{language}:{folder}/{language}.txt" for language in counts]


def test_shares_of_a_mixture(tmp_path):
    """The small language comes up as the exponent says, its paragraphs several times."""
    files = expand_text_files(_write(tmp_path, {"en": 4000, "sw": 40}))
    read = functools.partial(read_documents, files, OPTIONS)
    result = Counter(smooth_paragraphs(read, Counts(), 1e9, 0.3))
    shares = Counter()
    for (language, _), n in result.items():
        shares[language] += n
    small = (40 / 4040) ** 0.3 / ((40 / 4040) ** 0.3 + (4000 / 4040) ** 0.3)
    assert shares["sw"] / shares.total() == pytest.approx(small, abs=0.02)
    assert shares.total() == pytest.approx(4040, rel=0.03)
    assert {language for language, _ in result} == {"en", "sw"}
    assert len([text for language, text in result if language == "sw"]) == 40
    # A tenth of the bytes: the same shares.
    size = sum(path.stat().st_size for path in tmp_path.iterdir())
    few = list(smooth_paragraphs(read, Counts(), size / 10, 0.3))
    assert sum(language == "sw" for language, _ in few) / len(few) == pytest.approx(small, abs=0.06)
    assert sum(len(text) for _, text in few) == pytest.approx(size / 10, rel=0.15)


def test_languages_of_files(tmp_path, monkeypatch):
    """Before the path, or the default; documents that name theirs keep it; a file once."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("a")
    (tmp_path / "b.jsonl").write_text('{"text": "b", "lang": "fi"}\n{"text": "c"}')
    (tmp_path / "xx:y").write_text("d")
    patterns = ["de-AT:a.txt", "sw:*.jsonl", "xx:y", "fr:a.txt"]
    files = expand_text_files(patterns)
    assert files == [("a.txt", "de-AT"), ("b.jsonl", "sw"), ("xx:y", "")]
    documents = read_documents(files, ReadOptions(), Counts())
    result = [(d.language, d.paragraphs) for d in documents]
    assert result == [("de-AT", ["a"]), ("fi", ["b"]), ("sw", ["c"]), ("en", ["d"])]
    with pytest.raises(UserError, match="no input is given|pattern is empty"):
        expand_text_files([])
    with pytest.raises(UserError, match="none: no such file"):
        expand_text_files(["de:none"])


def test_size_of_data_sets_and_files(tmp_path):
    """Data sets of tfds come with files; of compressed text there is more than is stored."""
    (tmp_path / "a.txt").write_text("One.\nTwo.")
    (tmp_path / "b.txt").write_bytes(b"\0")
    (tmp_path / "c.txt.zst").write_bytes(bytes(10))
    files = [*expand_text_files([f"de:{tmp_path}"]), TextFile("tfds:x")]
    assert text_bytes(files) == 9 + 1 + 30
