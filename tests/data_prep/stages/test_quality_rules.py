"""Each rule with a document that just passes and one that just fails."""

from dataclasses import replace

import pytest

from data_prep.counts import DropCounter
from data_prep.readers import Document
from data_prep.stages.quality_rules import QualityRules

# No rule at all; each test turns one on.
NONE = QualityRules(
    end_mark=False,
    min_words_per_paragraph=0,
    javascript=False,
    policy=False,
    lorem_ipsum=False,
    curly_bracket=False,
    min_sentences=0,
    min_words=0,
    max_words=10**9,
    min_mean_word_length=0,
    max_mean_word_length=1e9,
    max_symbols_per_word=1e9,
    max_bullets=1,
    max_ellipses=1,
    min_alphabetic=0,
    min_stop_words=0,
    max_duplicate_paragraphs=1,
    max_duplicate_characters=1,
    max_top_ngrams=(),
    max_duplicate_ngrams=(),
)
DEFAULTS = QualityRules()


def only(*fields):
    """Returns the rules with nothing but these fields at their defaults."""
    return replace(NONE, **{field: getattr(DEFAULTS, field) for field in fields})


def run(rules, *paragraphs, language="en", continues=False):
    """Returns the paragraphs that stay, and the counters."""
    counters = DropCounter()
    result = rules(Document("d", language, list(paragraphs), continues), counters)
    return result and result.paragraphs, dict(counters)


def number_words(count, length=5):
    """Returns `count` different words of so many characters."""
    letters = str.maketrans("0123456789", "abcdefghij")
    return [f"{n:0{length}}".translate(letters) for n in range(count)]


def page():
    """Returns a page that passes every rule."""
    text = (
        "The house that they had bought stood with its back to the river and the town. "
        "Nobody had lived in it for years, and the garden was a wood of old roses. "
        "Her brother wanted to sell it again at once; she did not have the heart to."
    )
    return Document("d", "en", [text, "And so it was kept."])


# Field, a paragraph that passes, one that is removed, the name of the reason.
PARAGRAPHS = [
    ("end_mark", "It ends here.", "It ends here", "without_end_mark"),
    ("min_words_per_paragraph", "one two three four five", "one two three four", "too_short"),
    ("javascript", "Java script is on", "Turn JavaScript on", "javascript"),
    ("policy", "We bake cookies", "This site uses cookies for that", "policy"),
    ("policy", "The terms we use", "See the Terms of Use", "policy"),
    ("policy", "A policy on privacy", "Our privacy policy", "policy"),
]


@pytest.mark.parametrize(("field", "passes", "removed", "reason"), PARAGRAPHS)
def test_paragraph_rules(field, passes, removed, reason):
    rules = only(field)
    assert run(rules, passes) == ([passes], {})
    assert run(rules, passes, removed) == ([passes], {f"quality/paragraph_{reason}": 1})
    assert run(NONE, passes, removed) == ([passes, removed], {})
    assert run(rules, removed) == (
        None,
        {f"quality/paragraph_{reason}": 1, "quality/no_paragraph_left": 1},
    )


def bullets(count, of):
    return [f"• item {n}" if n < count else f"text {n}" for n in range(of)]


def repeat(gram, count, filler):
    """`gram` so many times with different words between; then filler words of 5 letters."""
    words = number_words(filler)
    out = []
    for n in range(count):
        out += [gram, words[n]]
    return " ".join(out + words[count:])


def copy_words(copied, filler):
    """Returns a run of words twice, and different words between and around; all of 5 letters."""
    words = number_words(copied + filler)
    run_, rest = words[:copied], words[copied:]
    return " ".join([*run_, *rest, *run_])


# Fields, paragraphs that just pass, those that just fail, the reason.
DOCUMENTS = [
    ("lorem_ipsum", ["lorem and ipsum"], ["Lorem ipsum dolor"], "lorem_ipsum"),
    ("curly_bracket", ["a (b) [c] }"], ["a {b}"], "curly_bracket"),
    ("min_sentences", ["One. Two!", "Three?"], ["One. Two! Three"], "too_few_sentences"),
    ("min_words", [" ".join(number_words(50))], [" ".join(number_words(49))], "too_few_words"),
    ("max_words", [" ".join(["abc"] * 100_000)], [" ".join(["abc"] * 100_001)], "too_many_words"),
    ("min_mean_word_length", ["abc ab abcd"], ["abc ab abc"], "words_too_short"),
    ("max_mean_word_length", ["a" * 10, "b" * 10], ["a" * 10, "b" * 11], "words_too_long"),
    ("max_symbols_per_word", ["# b c d e f g h i j"], ["# b c d e f g h i"], "too_many_symbols"),
    ("max_symbols_per_word", ["a… c d e f g h i j k"], ["a... c d e f g h i j"],
     "too_many_symbols"),
    ("max_bullets", bullets(9, 10), bullets(10, 10), "bullets"),
    ("max_ellipses", ["a…", "b...", "c…", *"defghij"], ["a…", "b...", "c…", *"defghi"], "ellipses"),
    ("min_alphabetic", ["a b1 é d 1"], ["a b c 1"], "too_few_alphabetic_words"),
    ("min_stop_words", ["cats and dogs with"], ["cats and dogs and"], "too_few_stop_words"),
    ("max_duplicate_paragraphs", ["a"] * 4 + list("bcdefg"), ["a"] * 4 + list("bcdef"),
     "duplicate_paragraphs"),
    ("max_duplicate_characters", ["aaaa", "aaaa", "b" * 12], ["aaaa", "aaaa", "b" * 11],
     "duplicate_paragraph_characters"),
    # "aaa bb" is five characters: 4 × 5 of 100, and of 95.
    ("max_top_ngrams", [repeat("aaa bb", 4, 16)], [repeat("aaa bb", 4, 15)], "top_2gram"),
    # 3 × 6 of 100 characters: 82 others are 16 words of five and one of two.
    ("max_top_ngrams", [repeat("xx yy zz", 3, 16) + " pq"], [repeat("xx yy zz", 3, 16) + " p"],
     "top_3gram"),
    # 2 × 8 of 100, of 99.
    ("max_top_ngrams", [repeat("xx yy zz ww", 2, 16) + " rstu"],
     [repeat("xx yy zz ww", 2, 16) + " rst"], "top_4gram"),
    # Copies of words of one length: 5 of 34 words are under 15 % of the characters, of 33 over.
    ("max_duplicate_ngrams", [copy_words(5, 24)], [copy_words(5, 23)], "duplicate_5gram"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("field", "passes", "fails", "reason"),
    DOCUMENTS,
    ids=[f"{n}-{reason}" for n, (*_, reason) in enumerate(DOCUMENTS)],
)
def test_document_rules(field, passes, fails, reason):
    rules = only(field)
    assert run(rules, *passes) == (passes, {})
    assert run(rules, *fails) == (None, {f"quality/{reason}": 1})
    assert run(NONE, *fails) == (fails, {})


@pytest.mark.parametrize("n", range(6, 11))
def test_each_length_of_duplicates_has_its_threshold(n):
    limit = DEFAULTS.max_duplicate_ngrams[n - 5]
    limits = tuple(limit if length == n else 1.0 for length in range(5, 11))
    rules = replace(NONE, max_duplicate_ngrams=limits)
    # n of n + n + f words are copies: the most fillers with more than the limit, and one more.
    filler = next(f for f in range(500) if n / (2 * n + f) <= limit + 1e-12)
    assert run(rules, copy_words(n, filler))[1] == {}
    assert run(rules, copy_words(n, filler - 1))[1] == {f"quality/duplicate_{n}gram": 1}
    # A text shorter by a word has no n-gram.
    assert run(rules, copy_words(n - 1, filler - 3))[1] == {}


def test_a_good_page_passes_untouched():
    counters = DropCounter()
    document = page()
    assert DEFAULTS(document, counters) is document
    assert not counters


def test_a_page_loses_its_menu_and_keeps_its_text():
    text = page().paragraphs
    left, counts = run(
        DEFAULTS, "Home | News", *text, "Please turn on JavaScript to go on.", "© us"
    )
    assert left == text
    assert counts == {"quality/paragraph_without_end_mark": 2, "quality/paragraph_javascript": 1}


def test_rules_about_pages_see_the_lines_that_would_go():
    assert run(DEFAULTS, *page().paragraphs, "var x = {") == (None, {"quality/curly_bracket": 1})


def test_languages_without_spaces_keep_what_only_words_would_break():
    text = ["委员会将于下周再次开会讨论选举结果。" * 3, "这个问题还没有解决。"]
    assert run(DEFAULTS, *text, language="zh")[0] == text
    assert run(DEFAULTS, *text, language="en")[0] is None
    # Thai ends no sentence with a sign.
    assert run(DEFAULTS, "ภาษาไทย", language="th")[0] == ["ภาษาไทย"]


def test_stop_words_follow_the_language():
    rules = only("min_stop_words")
    german = ["Der Hund und die Katze"]
    assert run(rules, *german, language="de")[0] == german
    assert run(rules, *german, language="en")[0] is None
    assert run(rules, *german, language="fi")[0] == german


def test_the_rest_of_a_long_document_may_be_short():
    rules = only("min_words", "min_sentences")
    assert run(rules, "The end.", continues=True)[0] == ["The end."]
    assert run(rules, "The end.")[0] is None
