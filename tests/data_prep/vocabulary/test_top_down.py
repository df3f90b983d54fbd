"""TensorFlow Text's generator: its entries are the library's own, on the words of the fast one."""

import random
import sys

import pytest

from data_prep import build_vocab
from data_prep.vocabulary.top_down import learn_top_down
from data_prep.vocabulary.wordpiece import SPECIAL_TOKENS, learn_wordpiece
from official_cmlm.common.errors import UserError
from official_cmlm.tokenization import load_vocabulary
from tests.data_prep.binaries import run_binary


def make_text(words: int) -> list[str]:
    """Returns lines of words with endings in common, the first words most frequent."""
    rng = random.Random(0)
    stems = ["".join(rng.choices("abcdefg", k=rng.randint(2, 5))) for _ in range(words)]
    return [
        " ".join(
            stems[int(rng.random() ** 3 * words)] + rng.choice(["", "ing", "ed", "s"])
            for _ in range(20)
        )
        for _ in range(40)
    ]


def reference(text: list[str], vocab_size: int) -> list[str]:
    """Returns the entries by the function that TensorFlow's guide shows, its own splitting too."""
    import tensorflow as tf
    from tensorflow_text.tools.wordpiece_vocab import bert_vocab_from_dataset

    return bert_vocab_from_dataset.bert_vocab_from_dataset(
        tf.data.Dataset.from_tensor_slices(text),
        vocab_size,
        list(SPECIAL_TOKENS),
        bert_tokenizer_params={"lower_case": True},
        learn_params={"lower_thresh": 2},
    )


def test_entries_are_those_of_the_library():
    """Where the library stays below the size, nothing is left out."""
    text = make_text(200)
    expected = reference(text, 90)
    assert len(expected) == 89
    assert learn_top_down(iter(text), 90, True, 2) == expected
    random.Random(1).shuffle(text)
    assert learn_top_down(text, 90, True, 2) == expected
    assert set(learn_wordpiece(text, 89, True, 2)) != set(expected)


@pytest.mark.parametrize(("size", "larger"), [(70, 82), (100, 104)])
def test_a_size_is_never_exceeded(size, larger):
    """The library's bisection may end with more entries; the rarest pieces are left out then."""
    text = make_text(40)
    expected = reference(text, size)
    assert len(expected) == larger
    pieces = [entry for entry in expected[5:] if len(entry.removeprefix("##")) > 1]
    rarest = pieces[size - larger :]
    assert learn_top_down(text, size, True, 2) == [x for x in expected if x not in rarest]


@pytest.mark.parametrize("lower_case", [True, False])
def test_words_and_characters_are_those_of_the_fast_generator(lower_case, monkeypatch):
    """Accents, Chinese, control characters and half a surrogate pair are split alike."""
    from tensorflow_text.tools.wordpiece_vocab import wordpiece_tokenizer_learner_lib as library

    counted = {}
    learn = library.learn

    def count(words, *arguments, **options):
        counted.update(words)
        return learn(words, *arguments, **options)

    monkeypatch.setattr(library, "learn", count)
    long = "x" * 51
    entries = learn_top_down(["Café, café\x1cno\u200bw 語語 \ud800", long], 90, lower_case, 1)
    cafe = {"cafe": 2} if lower_case else {"Café": 1, "café": 1}
    assert counted == {**cafe, ",": 1, "now": 1, "語": 2, "?": 1}
    fast = learn_wordpiece(["Café, café\x1cno\u200bw 語語 \ud800"], 90, lower_case, 1)
    assert {entry for entry in fast if len(entry.removeprefix("##")) == 1} <= set(entries)
    assert tuple(entries[:5]) == SPECIAL_TOKENS and "##x" not in entries


def test_more_characters_than_the_library_takes_by_itself():
    characters = [chr(0x4E00 + i) for i in range(1200)]
    entries = learn_top_down(["".join(characters)], 3000, False, 1)
    assert set(characters) <= set(entries)


def test_binary(tmp_path, capsys):
    """The vocabulary is read again and its coverage printed, as of the fast generator."""
    (tmp_path / "text.txt").write_text("\n\n".join(make_text(200)))
    output = tmp_path / "v.txt"
    values = {"input": tmp_path / "text.txt", "output": output, "vocab_size": 5000}
    assert run_binary(build_vocab, generator="tensorflow_text", **values) == 0
    printed = capsys.readouterr().out
    assert "| en | 1." in printed
    assert "(of 5000 asked for; the threshold that was found yields no more)" in printed
    assert list(load_vocabulary(output).tokens) == reference(make_text(200), 5000)


def test_a_generator_that_is_not_installed_is_named_before_the_text_is_read(
    tmp_path, monkeypatch, capsys
):
    (tmp_path / "text.txt").write_text("text")
    monkeypatch.setitem(sys.modules, "tensorflow_text", None)
    values = {"input": tmp_path / "text.txt", "output": tmp_path / "v.txt"}
    with pytest.raises(UserError, match=r"tensorflow_text is not installed; .*\.\[train\]"):
        run_binary(build_vocab, generator="tensorflow_text", **values)
    assert "reading" not in capsys.readouterr().err and not (tmp_path / "v.txt").exists()
    assert run_binary(build_vocab, check=False, vocab_size=20, **values) == 0
