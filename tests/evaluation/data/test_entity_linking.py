"""Dictionaries and mentions, line by line."""

import pytest

from official_cmlm.common.errors import UserError
from official_cmlm.evaluation.data.entity_linking import (
    Mention,
    concept_row,
    id_mention_row,
    parse_dictionary,
    parse_lines,
    pubtator_row,
    table_row,
)


def test_dictionary_lines():
    """An id may stand on several lines; a line without a tab or a name is counted."""
    names, ids, skipped = parse_dictionary(["A\tone", "A\tuno", "A|B\tboth", "C", "D\t", ""], "x")
    assert names == ["one", "uno", "both"] and ids == [{"A"}, {"A"}, {"A", "B"}] and skipped == 2
    with pytest.raises(UserError, match=r"here: no names; line 1 is 'C'; .*id\|\|name") as error:
        parse_dictionary(["C"], "here")
    assert "\n" not in str(error.value)


def test_pubtator_lines():
    """Composite parts, unlinked mentions, relations, and three malformed lines."""
    mentions, left_out = parse_lines(PUBTATOR.splitlines(), pubtator_row, "\t")
    assert mentions == [
        Mention(("Drug A",), ids("A"), "Chemical"),
        Mention(("b disease", "c disease"), ids("B C"), "Disease"),
        Mention(("BC",), ids("B C"), "Disease"),
    ]
    assert left_out["unlinked"] == 2 and left_out["malformed"] == 3


def test_table_lines():
    """`+` belongs to a name with one id and divides a name with several."""
    lines = ["CD4+ cell\tA", "a+b\tA+B", "a|b\tA|B", "x\tcui-less", "alone", "\tA"]
    mentions, left_out = parse_lines(lines, table_row, "\t")
    assert [mention.parts for mention in mentions] == [("CD4+ cell",), ("a", "b"), ("a", "b")]
    assert left_out["unlinked"] == 1 and left_out["malformed"] == 2


def test_dictionary_of_biosyn():
    """`id||name`; a name may have several ids; a line without an id is left out."""
    lines = ["", "D1||one", "D1|D2||both", "D3+D4||two", "CUI-less||none", "D5||a||b", "D6||"]
    names, ids, skipped = parse_dictionary(lines, "x")
    assert names == ["one", "both", "two"]
    assert ids == [{"D1"}, {"D1", "D2"}, {"D3", "D4"}] and skipped == 2


def test_concept_lines():
    """Five columns between double bars, parts between single ones."""
    lines = ["1||0|3||Disease||a b||D1", "1||0|3||Disease||a|c||D1|D2", "1||0|3||a||D1", "x"]
    mentions, left_out = parse_lines(lines, concept_row)
    assert mentions == [
        Mention(("a b",), ids("D1"), "Disease"),
        Mention(("a", "c"), ids("D1 D2"), "Disease"),
    ]
    assert left_out["malformed"] == 2


def test_id_mention_lines():
    """With or without a sentence; another third column is none of a known form."""
    lines = ["C1||a", "C1|C2||b", "C3||c||a <tgt>c</tgt> || d", "C4||d||e", "C5||", "alone"]
    mentions, left_out = parse_lines(lines, id_mention_row)
    assert [mention.parts for mention in mentions] == [("a",), ("b",), ("c",)]
    assert mentions[1].ids == {"C1", "C2"} and left_out["malformed"] == 3


def ids(text):
    return frozenset(text.split())


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
