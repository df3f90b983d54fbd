"""Dictionaries and mentions, line by line."""

import pytest

from official_cmlm.errors import UserError
from official_cmlm.evaluation.data.entity_linking import (
    Mention,
    parse_dictionary,
    parse_pubtator,
    parse_table,
    split_ids,
)


def test_split_ids():
    """`|` and `+` join several; empty ones do not count."""
    assert split_ids("D1|D2+D3") == {"D1", "D2", "D3"}
    assert split_ids(" D1 |") == {"D1"}


def test_dictionary_lines():
    """An id may stand on several lines; a line without a tab or a name is counted."""
    names, found, skipped = parse_dictionary(["A\tone", "A\tuno", "A|B\tboth", "C", "D\t", ""], "x")
    assert names == ["one", "uno", "both"] and found == [{"A"}, {"A"}, {"A", "B"}] and skipped == 2
    with pytest.raises(UserError, match="here: no names"):
        parse_dictionary(["C"], "here")


def test_pubtator_lines():
    """Composite parts, unlinked mentions, relations, and three malformed lines."""
    mentions, left_out = parse_pubtator(PUBTATOR.splitlines())
    assert mentions == [
        Mention(("Drug A",), ids("A"), "Chemical"),
        Mention(("b disease", "c disease"), ids("B C"), "Disease"),
        Mention(("BC",), ids("B C"), "Disease"),
    ]
    assert left_out["unlinked"] == 2 and left_out["malformed"] == 3


def test_table_lines():
    """`+` belongs to a name with one id and divides a name with several."""
    lines = ["CD4+ cell\tA", "a+b\tA+B", "a|b\tA|B", "x\tcui-less", "alone", "\tA"]
    mentions, left_out = parse_table(lines)
    assert [mention.parts for mention in mentions] == [("CD4+ cell",), ("a", "b"), ("a", "b")]
    assert left_out["unlinked"] == 1 and left_out["malformed"] == 2


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
