"""The check of a learned vocabulary sees what is wrong and counts what it says."""

import pytest

from data_prep.vocabulary.check import coverage_table, differences
from data_prep.vocabulary.wordpiece import SPECIAL_TOKENS, learn_wordpiece
from official_cmlm.common.errors import UserError
from official_cmlm.tokenization import WordPieceVocabulary

TEXT = [
    "The lowest, the Straße: Γειά σου κόσμος … naïve!",
    "สวัสดีชาวโลกทั้งหลาย 漢字かな交じり文 का की हिन्दी",
    "I don't [MASK] know: ½ e\u0301 №5\u00a0x 😀",
]


def _learned(lower_case, most_bytes=1000):
    entries = learn_wordpiece(TEXT * 2, 400, lower_case, 2)
    return WordPieceVocabulary(tuple(entries), lower_case, most_bytes)


@pytest.mark.parametrize("lower_case", [True, False])
def test_equal_ids(lower_case):
    """Scripts of all kinds, cased and not."""
    assert differences(_learned(lower_case), TEXT) == []


def test_differences_are_named():
    """tensorflow_text's own normalisation folds what BERT's does not: line and tokens are told."""
    found = differences(_learned(True), ["the lowest", *TEXT], "tensorflow_text")
    assert found[0] == (
        "line 2: 'st ##r ##a ##s' by tensorflow_text, 'straße : γεια σου' by tokenizers"
    )


def test_a_vocabulary_that_is_cut_differs():
    """Entries that one library cannot use: a longest word of 100 bytes makes Thai unknown."""
    thai = "สวัสดีชาวโลกทั้งหลาย" * 3
    assert differences(_learned(False), [thai]) == []
    (found,) = differences(_learned(False, 100), [thai])
    assert found.startswith("line 1: '[UNK]' by")


def test_entries_that_do_not_survive_the_file():
    """A line end inside of an entry is found."""
    with pytest.raises(UserError):
        differences(WordPieceVocabulary((*SPECIAL_TOKENS, "a\nb"), True, 1000), ["a"])


def test_coverage_by_hand():
    """Tokens for each word, and the share of unknown ones, of each language."""
    entries = (*SPECIAL_TOKENS, "un", "##known", "a", "漢")
    texts = {"en": ["unknown a", "b a"], "zh": ["漢字"]}
    table = coverage_table(WordPieceVocabulary(entries, True, 1000), texts).splitlines()
    assert table[0] == "| language | tokens per word | unknown |"
    assert table[2:] == ["| en | 1.250 | 20.000 % |", "| zh | 1.000 | 50.000 % |"]
