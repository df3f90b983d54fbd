"""Dictionaries and mentions, line by line."""

from collections import Counter
from pathlib import Path

import pytest

from official_cmlm.common.errors import UserError
from official_cmlm.evaluation.data.entity_linking import (
    Mention,
    make_mentions,
    parse_dictionary,
    read_concepts,
    read_ids_first,
    read_pubtator,
    read_table,
)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (
            ["A\tone", "A\tuno", "A|B\tboth", "C", "D\t", ""],
            (["one", "uno", "both"], [{"A"}, {"A"}, {"A", "B"}], 2),
        ),
        # BioSyn's form.
        (
            ["", "D1||one", "D3+D4||two", "CUI-less||none", "D5||a||b", "D6||"],
            (["one", "two"], [{"D1"}, {"D3", "D4"}], 2),
        ),
    ],
)
def test_dictionary_lines(lines, expected):
    """An id may stand on several lines; a line without a separator or a name is counted."""
    assert parse_dictionary(lines, "x") == expected
    with pytest.raises(UserError, match=r"here: no names; line 1 is 'C'; .*id\|\|name") as error:
        parse_dictionary(["C"], "here")
    assert "\n" not in str(error.value)


def _mention(parts, ids, kind=""):
    return Mention(tuple(parts.split("/")), frozenset(ids.split()), kind)


PUBTATOR = """\
1|t|Title with\ttab.
1|a|Abstract. 2 a b
1\t0\t5\tDrug A\tChemical\tA
1\t6\t9\tdrug b\tChemical\t-1
1\t6\t9\tno id\tChemical
1\t9\t30\tb and c disease\tDisease\tB|C\tb disease|c disease
1\t31\t33\tBC\tDisease\tB+C
1\tCID\tA\tB

1\t0\t5
1\t0\t5\t\tDisease\tA
stray
"""


@pytest.mark.parametrize(
    ("read", "text", "mentions", "unlinked", "malformed"),
    [
        (
            read_pubtator,
            PUBTATOR,
            [
                _mention("Drug A", "A", "Chemical"),
                _mention("b disease/c disease", "B C", "Disease"),
                _mention("BC", "B C", "Disease"),
            ],
            2,
            3,
        ),
        # `+` belongs to a name with one id and divides a name with several.
        (
            read_table,
            "CD4+ cell\tA\na+b\tA+B\na|b\tA|B\nx\tcui-less\nalone\n\tA",
            [_mention("CD4+ cell", "A"), _mention("a/b", "A B"), _mention("a/b", "A B")],
            1,
            2,
        ),
        # Five columns between double bars, parts between single ones.
        (
            read_concepts,
            "1||0|3||Disease||a b||D1\n1||0|3||Disease||a|c||D1|D2\n1||0|3||a||D1\nx",
            [_mention("a b", "D1", "Disease"), _mention("a/c", "D1 D2", "Disease")],
            0,
            2,
        ),
        # With or without a sentence; another third column is none of a known form.
        (
            read_ids_first,
            "C1||a\nC1|C2||b\nC3||c||a <tgt>c</tgt> || d\nC4||d||e\nC5||\nalone",
            [_mention("a", "C1"), _mention("b", "C1 C2"), _mention("c", "C3")],
            0,
            3,
        ),
    ],
)
def test_mention_lines(read, text, mentions, unlinked, malformed):
    left_out = Counter()
    assert make_mentions(read(text.splitlines(), Path("x")), left_out) == mentions
    assert (left_out["unlinked"], left_out["malformed"]) == (unlinked, malformed)
