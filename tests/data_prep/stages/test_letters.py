"""Letters and words of texts, against loops over characters; signatures, against sets."""

import hashlib
import random
import re
import unicodedata

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from data_prep.stages.duplicates import MinHash, band_keys, minima, similarities
from data_prep.stages.letters import analyse, letter_keys, shingles

QUICK = settings(max_examples=60, deadline=None)
_ALPHABET = "abAB éÉßΣς'.,-_ \t\n0②漢字かのไทยकीका؟你\u0301😀\ud800"
TEXTS = st.lists(st.text(_ALPHABET, max_size=12) | st.text(max_size=5), max_size=6)
_HAN_OR_THAI = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\U00020000-\U000323af]"
)


def _words_by_hand(text: str) -> list[str]:
    """Words of a text, character by character."""
    words, open_word = [], False
    for character in unicodedata.normalize("NFKC", text).casefold():
        if unicodedata.category(character)[0] not in "LMN" or ord(character) > 0x323AF:
            open_word = False
        elif _HAN_OR_THAI.match(character):
            words.append(character)
            open_word = False
        elif open_word:
            words[-1] += character
        else:
            words.append(character)
            open_word = True
    return words


@QUICK
@given(TEXTS, st.sampled_from([1, 7, 1 << 16]))
@example(["0\U00020000"], 1)
def test_letters_and_words(texts, chunk):
    """A loop finds the same, however many texts are analysed at once."""
    whole = analyse(texts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("data_prep.stages.letters._CHUNK_CHARACTERS", chunk)
        analysis = analyse(texts)
    for one, other in zip(vars(whole).values(), vars(analysis).values(), strict=True):
        np.testing.assert_array_equal(one, other)
    hashes = {}
    for i, text in enumerate(texts):
        words = _words_by_hand(text)
        letters = analysis.letters[slice(*analysis.letter_splits[i : i + 2])]
        assert "".join(map(chr, letters.tolist())) == "".join(words)
        own = analysis.words[slice(*analysis.word_splits[i : i + 2])].tolist()
        assert len(own) == len(words)
        for word, value in zip(words, own):
            assert hashes.setdefault(word, value) == value
    assert len(set(hashes.values())) == len(hashes)


@QUICK
@given(TEXTS)
def test_keys(texts):
    """A hash of the letters alone; 0 without letters; of a group, of all its letters in a row."""
    analysis = analyse(texts)
    for text, key in zip(texts, letter_keys(analysis).tolist(), strict=True):
        letters = "".join(_words_by_hand(text))
        data = letters.encode("utf-32-le", "surrogatepass")
        digest = hashlib.blake2b(data, digest_size=8).digest()
        assert key == (int.from_bytes(digest, "little") if letters else 0)
    half = len(texts) // 2
    groups = letter_keys(analysis, np.array([0, half, len(texts)]))
    joined = letter_keys(analyse(["\n".join(texts[:half]), "\n".join(texts[half:])]))
    assert groups.tolist() == joined.tolist()


def test_characters_that_do_not_count():
    """Case, punctuation, tokenisation and Unicode's ways to write a character."""
    same = ["Don't   go, Café!", "do n't go , cafe\u0301 .", "ＤＯＮ’Ｔ GO\u00a0CAFÉ"]
    different = ["don't go, cafe", "का", "की", "के"]
    keys = letter_keys(analyse([*same, *different])).tolist()
    assert len(set(keys[:3])) == 1 and len(set(keys)) == 5


@QUICK
@given(TEXTS, st.integers(1, 4))
def test_shingles(texts, size):
    """They are all runs of words within each text, or group of texts."""
    analysis = analyse(texts)
    splits = np.array([0, len(texts) // 2, len(texts)])
    for bounds in (np.arange(len(texts) + 1), splits):
        hashes, rows = shingles(analysis, size, bounds)
        assert rows[-1] == len(hashes)
        known = {}
        for i, (start, stop) in enumerate(zip(bounds[:-1], bounds[1:])):
            words = [word for text in texts[start:stop] for word in _words_by_hand(text)]
            runs = [tuple(words[at : at + size]) for at in range(len(words) - size + 1)]
            own = hashes[rows[i] : rows[i + 1]].tolist()
            assert len(own) == len(runs)
            assert all(known.setdefault(run, value) == value for run, value in zip(runs, own))
        assert len(set(known.values())) == len(known)


def _edit(words: list[str], share: float, rng: random.Random) -> list[str]:
    return [rng.choice(["x", "y"]) + w if rng.random() < share else w for w in words]


@pytest.mark.parametrize("share", [0.0, 0.01, 0.03, 0.1, 1.0])
def test_estimated_similarity(share):
    """Near the Jaccard similarity of the sets of shingles, within four standard deviations."""
    rng = random.Random(3)
    words = [f"w{rng.randrange(500)}" for _ in range(900)]
    texts = [" ".join(words), " ".join(_edit(words, share, rng))]
    sets = [{tuple(t.split()[i : i + 5]) for i in range(len(t.split()) - 4)} for t in texts]
    exact = len(sets[0] & sets[1]) / len(sets[0] | sets[1])
    options = MinHash(bands=40, rows=10)
    least = minima(*shingles(analyse(texts), 5), options)
    analysis = least.astype(np.uint8)
    (estimate,) = similarities(analysis[0], analysis[1:])
    spread = (max(exact * (1 - exact), 0.004) / options.permutations) ** 0.5
    assert abs(estimate - exact) <= 4 * spread
    keys = band_keys(least, options)
    rows = least.reshape(2, 40, 10)
    assert ((keys[0] == keys[1]) == (rows[0] == rows[1]).all(axis=1)).all()
    assert len(np.unique(keys[0])) == 40


def test_repeated_shingles_do_not_count():
    """A signature is that of a set."""
    options = MinHash()
    once, thrice = np.arange(1, 30, dtype=np.uint64), np.tile(np.arange(1, 30, dtype=np.uint64), 3)
    analysis = minima(np.concatenate([once, thrice]), np.array([0, 29, 116]), options)
    assert analysis.dtype == np.uint32 and analysis.shape == (2, 160)
    assert (analysis[0] == analysis[1]).all()
