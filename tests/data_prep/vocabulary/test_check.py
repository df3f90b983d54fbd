"""The check of a learned vocabulary sees what is wrong and counts what it says."""

import pytest

from data_prep.vocabulary.check import Coverage, check_round_trip, coverage, coverage_table
from data_prep.vocabulary.wordpiece import SPECIAL_TOKENS, learn_wordpiece
from official_cmlm.errors import UserError

TEXT = [
    "The lowest, the Straße: Γειά σου κόσμος … naïve!",
    "สวัสดีชาวโลกทั้งหลาย 漢字かな交じり文 का की हिन्दी",
    "I don't [MASK] know: ½ e\u0301 №5\u00a0x 😀",
]


@pytest.mark.parametrize("lower_case", [True, False])
def test_equal_ids(lower_case):
    """Scripts of all kinds, cased and not."""
    entries = learn_wordpiece(TEXT * 2, 400, lower_case, 2)
    assert check_round_trip(entries, TEXT, lower_case) == []


def test_differences_are_named():
    """tensorflow_text's own normalisation folds what BERT's does not: line and tokens are told."""
    entries = learn_wordpiece(TEXT * 2, 400, True, 2)
    found = check_round_trip(entries, ["the lowest", *TEXT], True, 1000, "tensorflow_text")
    assert [difference.line for difference in found][:1] == [2]
    assert "…" in found[0].theirs and "…" not in found[0].ours
    assert str(found[0]).startswith("line 2: '") and "by tokenizers" in str(found[0])


def test_a_vocabulary_that_is_cut_differs():
    """Entries that one library cannot use: a longest word of 100 bytes makes Thai unknown."""
    entries = learn_wordpiece(TEXT * 2, 400, False, 2)
    thai = "สวัสดีชาวโลกทั้งหลาย" * 3
    assert check_round_trip(entries, [thai], False) == []
    (found,) = check_round_trip(entries, [thai], False, 100)
    assert found.ours == ("[UNK]",) and len(found.theirs) > 1


def test_entries_that_do_not_survive_the_file():
    """A line end inside of an entry is found."""
    with pytest.raises(UserError):
        check_round_trip([*SPECIAL_TOKENS, "a\nb"], ["a"], True)


def test_coverage_by_hand():
    """Tokens, words and unknown tokens of each language."""
    entries = [*SPECIAL_TOKENS, "un", "##known", "a", "漢"]
    found = coverage(entries, {"en": ["unknown a", "b a"], "zh": ["漢字"]}, True)
    assert found == {"en": Coverage(4, 5, 1), "zh": Coverage(2, 2, 1)}
    assert found["en"].tokens_per_word == 1.25 and found["zh"].unknown_rate == 0.5
    table = coverage_table(found).splitlines()
    assert table[0] == "| language | tokens per word | unknown |"
    assert table[2] == "| en | 1.250 | 20.000 % |"
