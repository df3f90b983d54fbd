"""Documents cut into passages, by examples whose passages are plain to see."""

from official_cmlm.search.passages import Passage, passages


def test_wrapped_lines_are_joined_and_paragraphs_put_together():
    text = "One line\nand its end.\n\n\nAnother.\n- an item\n- more\n"
    assert passages(text) == [Passage(1, "One line and its end.\nAnother.\n- an item\n- more")]
    assert passages(text, words=6) == [
        Passage(1, "One line and its end.\nAnother."),
        Passage(6, "- an item\n- more"),
    ]


def test_a_heading_begins_a_passage_and_stays_with_its_section():
    text = "intro\n\n# First #\n\na b c\n\nd e f\n## Second\n```\n# code\n```\n"
    assert passages(text, "markdown", words=3) == [
        Passage(1, "intro"),
        Passage(3, "First\na b c"),
        Passage(7, "First\nd e f"),
        Passage(8, "Second\n# code"),
    ]


def test_a_long_paragraph_is_cut_after_a_sentence():
    text = " ".join(["word"] * 7 + ["end."] + ["other"] * 12)
    found = passages(text, words=10)
    assert [one.text.split()[-1] for one in found] == ["end.", "other", "other"]
    assert " ".join(one.text for one in found) == text


def test_pages_lose_scripts_and_styles():
    text = (
        "<title>T</title><style>p {}</style>\n<h1>Keys</h1>\n<p>The <b>key</b>\nis here."
        "<script>no()</script><p>&amp; there.</p>"
    )
    assert passages(text, "html") == [
        Passage(1, "T"),
        Passage(2, "Keys\nThe key is here.\n& there."),
    ]


def test_nothing_is_no_passage():
    assert [passages(one, form) for one in ("", "\n \n") for form in ("text", "html")] == [[]] * 4
