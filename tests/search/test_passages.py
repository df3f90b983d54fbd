"""Documents cut into passages, by examples whose passages are plain to see."""

from official_cmlm.search.passages import Passage, split_passages


def test_wrapped_lines_are_joined_and_paragraphs_put_together():
    text = "One line\nand its end.\n\n\nAnother.\n- an item\n- more\n"
    assert split_passages(text) == [
        Passage(1, "One line and its end.\nAnother.\n- an item\n- more")
    ]
    assert split_passages(text, words=6) == [
        Passage(1, "One line and its end.\nAnother."),
        Passage(6, "- an item\n- more"),
    ]


def test_heading_begins_a_passage_and_stays_with_its_section():
    text = "intro\n\n# First #\n\na b c\n\nd e f\n## Second\n```\n# code\n```\n"
    assert split_passages(text, "markdown", words=3) == [
        Passage(1, "intro"),
        Passage(3, "First\na b c"),
        Passage(7, "First\nd e f"),
        Passage(8, "Second\n# code"),
    ]


def test_long_paragraph_is_cut_after_a_sentence():
    text = " ".join(["word"] * 7 + ["end."] + ["other"] * 12)
    parts = split_passages(text, words=10)
    assert [part.text.split()[-1] for part in parts] == ["end.", "other", "other"]
    assert " ".join(part.text for part in parts) == text


def test_pages_lose_scripts_and_styles():
    text = (
        "<title>T</title><style>p {}</style>\n<h1>Keys</h1>\n<p>The <b>key</b>\nis here."
        "<script>no()</script><p>&amp; there.</p>"
    )
    assert split_passages(text, "html") == [
        Passage(1, "T"),
        Passage(2, "Keys\nThe key is here.\n& there."),
    ]


def test_empty_text_has_no_passage():
    assert [split_passages(text, form) for text in ("", "\n \n") for form in ("text", "html")] == [
        []
    ] * 4
