"""Learning a vocabulary: what is in it, that it is always the same, and the binary."""

import functools
import gzip
import json
import random

import pytest

from data_prep import build_vocab
from data_prep.readers import Counts, ReadOptions, expand_text_files, read_documents
from data_prep.vocabulary.mixture import sample_paragraphs, text_bytes
from data_prep.vocabulary.top_down import learn_top_down
from data_prep.vocabulary.wordpiece import SPECIAL_TOKENS, format_coverage, learn_wordpiece
from official_cmlm.common.errors import UserError
from official_cmlm.tokenization import WordPieceVocabulary
from tests.data_prep.binaries import names_in, run_binary

TEXT = ["The lower, the slower: newer lowest Café.", "the low newest 語 slow"] * 3


def test_entries():
    entries = learn_wordpiece(iter(TEXT), 60, True, 2)
    assert tuple(entries[:5]) == SPECIAL_TOKENS
    assert len(entries) == len(set(entries)) <= 60
    assert {",", ":", "l", "##w", "e", "語", "the", "low"} <= set(entries)
    # Characters that never stand within a word do not get an entry as if they did.
    assert not {"##,", "##語", "é", "T", "C"} & set(entries)
    cased = learn_wordpiece(TEXT, 80, False, 2)
    assert {"T", "C", "##é"} <= set(cased)


def test_min_frequency():
    assert "low" not in learn_wordpiece(TEXT, 200, True, 100)
    # Fewer entries than asked for, as the text has no more.
    assert len(learn_wordpiece(TEXT, 5000, True, 2)) < 200


def test_always_the_same():
    # Every pair occurs about as often as any other, so that ties abound.
    words = random.Random(0)
    text = ["".join(words.choices("abcdefghijklmnop", k=6)) for _ in range(2000)]
    first = learn_wordpiece(text, 500, True, 2)
    assert len(first) == 500
    for _ in range(3):
        words.shuffle(text)
        assert learn_wordpiece(text, 500, True, 2) == first


def test_no_character_is_dropped():
    """Chinese text has thousands, and all get an entry."""
    characters = [chr(0x4E00 + i) for i in range(3000)]
    entries = learn_wordpiece(["".join(characters)], 4000, False, 1)
    assert entries == [*SPECIAL_TOKENS, *characters]


@pytest.mark.parametrize("learn", build_vocab.GENERATORS.values())
@pytest.mark.parametrize("text", [[], [" ", "\u200b"]])
def test_no_text(text, learn):
    with pytest.raises(UserError, match="the input holds no text"):
        learn(text, 100, True, 2)


def test_too_few_entries_for_the_characters():
    # The characters a and b, each also within words.
    with pytest.raises(UserError, match="4 characters alone take 9; raise --vocab_size"):
        learn_top_down(["ab"], 8, True, 1)
    # Five special tokens, a, b and ##b.
    with pytest.raises(UserError, match="3 characters alone take 8; raise --vocab_size"):
        learn_wordpiece(["ab"], 7, True, 1)
    assert learn_wordpiece(["ab"], 8, True, 1) == [*SPECIAL_TOKENS, "a", "b", "##b"]


def test_sample_is_spread_evenly(tmp_path):
    paths = []
    for name in "ab":
        paths.append(str(tmp_path / f"{name}.txt"))
        lines = [f"{name}{number:03d}é" for number in range(200)]
        (tmp_path / f"{name}.txt").write_text("\n".join(lines))
    options, size = ReadOptions(lines="paragraphs"), text_bytes(expand_text_files(paths))

    def sample(max_bytes: float) -> list[str]:
        read = functools.partial(read_documents, paths, options)
        return [text for _, text in sample_paragraphs(read, size, Counts(), max_bytes)]

    assert len(sample(1e9)) == 400
    tenth = sample(240)
    assert 30 <= len(tenth) <= 40
    assert sample(240) == tenth
    for name in "ab":
        numbers = [int(text[1:4]) for text in tenth if text[0] == name]
        gaps = [later - before for before, later in zip(numbers, numbers[1:], strict=False)]
        assert max(gaps) - min(gaps) <= 1


def test_binary(tmp_path, capsys):
    (tmp_path / "a.txt").write_bytes(" ".join(TEXT).encode() + b" \xff")
    (tmp_path / "b.txt").write_bytes(gzip.compress(" ".join(TEXT).encode()))
    output = tmp_path / "out" / "v.txt"
    values = {"vocab_size": 1000, "check": False, "max_bytes_per_word": 100}
    assert run_binary(build_vocab, input=f"{tmp_path}/*.txt", output=output, **values) == 0
    done = capsys.readouterr()
    entries = output.read_text().splitlines()
    assert f"{len(entries)} entries (of 1000 asked for; the text has no more)" in done.out
    assert "a.txt: 1 byte sequence was not UTF-8 and was replaced" in done.err
    assert "the" in entries and names_in(output.parent) == ["v.json", "v.txt"]
    metadata = json.loads(output.with_suffix(".json").read_text())
    assert metadata == {"lower_case": True, "max_bytes_per_word": 100}


def test_binary_shows_the_coverage_of_each_language(tmp_path, capsys):
    """Languages are named before the paths; each has a line."""
    for language, text in {"en": TEXT, "zh": ["漢字語漢字語漢語", "語漢字"]}.items():
        (tmp_path / language).write_text("\n".join(text))
    inputs = ",".join(f"{language}:{tmp_path}/{language}" for language in ("en", "zh"))
    values = {"vocab_size": 200, "lines": "paragraphs", "smoothing": 0.3}
    run_binary(build_vocab, input=inputs, output=tmp_path / "v.txt", **values)
    shown = capsys.readouterr().out
    lines = [line for line in shown.splitlines() if line.startswith("|")]
    assert lines[0] == "| language | tokens per word | unknown |"
    assert lines[3] == "| zh | 1.000 | 0.000 % |" and lines[2].startswith("| en | ")


def test_coverage_by_hand():
    """Tokens for each word, and the share of unknown ones, of each language."""
    entries = (*SPECIAL_TOKENS, "un", "##known", "a", "漢")
    texts = {"en": ["unknown a", "b a"], "zh": ["漢字"]}
    table = format_coverage(WordPieceVocabulary(entries, True, 1000), texts).splitlines()
    assert table[0] == "| language | tokens per word | unknown |"
    assert table[2:] == ["| en | 1.250 | 20.000 % |", "| zh | 1.000 | 50.000 % |"]


def test_the_outputs_names_are_checked_before_learning(tmp_path):
    """No file of somebody else's is replaced, and no folder."""
    output = tmp_path / "words.txt"
    build_vocab.check_outputs(output, overwrite=False)
    (tmp_path / "words.json").write_text("[1, 2]")
    with pytest.raises(UserError, match="words.json: would be replaced"):
        build_vocab.check_outputs(output, overwrite=True)
    (tmp_path / "words.json").write_text('{"lower_case": true}')
    build_vocab.check_outputs(output, overwrite=True)
    for bad in (tmp_path, tmp_path / "vocab.json"):
        with pytest.raises(UserError, match="not a name for a vocabulary"):
            build_vocab.check_outputs(bad, overwrite=True)
