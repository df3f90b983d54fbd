"""Documents cut into passages, by examples whose passages are plain to see."""

from official_cmlm.search.passages import Passage, split_passages, split_sentences


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
        Passage(3, "First\na b c", "First"),
        Passage(7, "First\nd e f", "First"),
        Passage(8, "Second\n# code", "Second"),
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
        Passage(2, "Keys\nThe key is here.\n& there.", "Keys"),
    ]


def test_passages_of_pages_know_their_lines():
    page = "<p\nclass='a\nb'>One\n two</p>\n<!--\n-->\n<ul><li>\n\n Three <b\n>x</b>\n</ul>"
    assert split_passages(page, "html", words=2) == [
        Passage(3, "One two"),
        Passage(9, "Three x"),
    ]
    deep = "<div>" * 5000 + "\nthe bottom"
    assert split_passages(deep, "html") == [Passage(2, "the bottom")]


def _count(words):
    """Counts a token for three letters."""
    return [-(-len(word) // 3) for word in words]


def test_passages_fit_into_the_tokens_of_an_encoder():
    """Nothing is lost, and parts of a word, as of Chinese, are not put together again."""
    paragraphs = ["a bb ccc dddd. " * n + "e" * n for n in range(1, 40)]
    text = "\n\n".join(["# " + "long heading " * 20, *paragraphs, "# Short", *paragraphs])
    cut = split_passages(text, "markdown", 50, 30, _count)
    sizes = [sum(_count(passage.text.split())) + passage.text.count("\n") for passage in cut]
    assert max(sizes) <= 30 and sum(size > 20 for size in sizes) > len(sizes) / 2
    letters = "".join(passage.text.removeprefix("Short\n") for passage in cut)
    for letter in "bcde":
        assert letters.count(letter) >= text.count(letter)
    parts = [passage.text for passage in split_passages("x" * 200, tokens=30, count=_count)]
    assert "".join(parts) == "x" * 200 and max(_count(parts)) <= 30


def test_navigation_and_footers_of_pages_are_left_out():
    page = "<nav><a>Home</a> | <a>Login</a></nav><p>The key.</p><footer><p>Copyright</p></footer>"
    assert split_passages(page, "html") == [Passage(1, "The key.")]


def test_empty_text_has_no_passage():
    assert [split_passages(text, form) for text in ("", "\n \n") for form in ("text", "html")] == [
        []
    ] * 4


def test_sentences_of_a_passage_leave_out_lines_without_an_end():
    text = 'Keys\nIt costs 3.50 a key. "Where is it?" he asked…\nHere! 钥匙在这里。你好。'
    sentences = [
        "It costs 3.50 a key.",
        '"Where is it?"',
        "he asked…",
        "Here!",
        "钥匙在这里。",
        "你好。",
    ]
    assert split_sentences(text) == sentences
    assert split_sentences("one\ntwo") == ["one", "two"] and split_sentences(" ") == []
