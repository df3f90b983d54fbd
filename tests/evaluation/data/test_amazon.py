"""Amazon reviews in their three formats."""

from official_cmlm.evaluation.data import amazon as amazon_reviews

ITEMS = """<?xml version="1.0" encoding="UTF-8"?><items>
<item><rating>5.0</rating><text>good &amp; fine
two lines</text><title>x</title></item>
<item><text><![CDATA[bad & <b>]]></text><rating>2.0</rating></item>
<item><rating>4.0</rating></item>
<item><rating>3.0</rating><text>bad &bomb; &quot;so so&quot;</text></item>
"""


def test_markup():
    """Items of a file that is not well-formed XML; entities that it defines stay as they are."""
    assert amazon_reviews.parse_markup(ITEMS.splitlines()) == [
        (5.0, "good & fine\ntwo lines"),
        (2.0, "bad & <b>"),
        None,
        (3.0, 'bad &bomb; "so so"'),
    ]


def test_table_lines():
    """Exactly two columns, a number and a text."""
    lines = ["5\ta", "x\ta", "4", "4\t ", "nan\ta", "3\ta\tb", ""]
    assert amazon_reviews.parse_table(lines) == [(5.0, "a"), None, None, None, None, None]
