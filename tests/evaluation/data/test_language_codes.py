"""Codes of languages, and the choice of some."""

import pytest

from official_cmlm.common.errors import UserError
from official_cmlm.evaluation.data.language_codes import choose_languages, two_letters


def test_codes_of_multi_simlex():
    """Its twelve languages and Arabic; the codes that a paper's columns have."""
    codes = "ARA CMN CYM ENG EST FIN FRA HEB POL RUS SPA SWA YUE".split()
    assert [two_letters(code) for code in codes] == (
        "ar zh cy en et fi fr he pl ru es sw yue".split()
    )


def test_choice():
    """In the data's order, by either code, each once; the code as written goes first."""
    there = ["deu", "fra", "swh"]
    assert choose_languages("o", [], there) == there
    assert choose_languages("o", ["SW", "deu", "de"], there) == ["deu", "swh"]
    assert choose_languages("o", ["de"], ["de", "deu"]) == ["de"]
    assert choose_languages("o", ["deu"], ["de", "deu"]) == ["deu"]
    # Webis-CLS-10's own code of Japanese.
    assert choose_languages("o", ["ja"], ["en", "jp"]) == ["jp"]
    with pytest.raises(UserError, match=r"^o: the data has no 'xx'; it has deu, fra, swh$"):
        choose_languages("o", ["de", "xx"], there)
