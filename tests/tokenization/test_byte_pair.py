"""Byte-level BPE: its files, its hash, its errors, its tokenizers in Python and in graphs."""

import dataclasses
import functools
import json
import shutil

import numpy as np
import pytest
import tensorflow as tf

from official_cmlm.common.errors import UserError
from official_cmlm.tokenization import (
    BytePairVocabulary,
    build_graph_tokenizer,
    build_tokenizer,
    load_vocabulary,
)
from tests.checkpoints.helpers import REFERENCES
from tests.tokenization.texts import HAND_MADE, check_graphs, ids_of

FOLDER = REFERENCES / "roberta"


@pytest.fixture
def files(tmp_path):
    """A copy of the small vocabulary, to damage."""
    for name in ("vocab.json", "merges.txt"):
        shutil.copy(FOLDER / name, tmp_path / name)
    return tmp_path


def _entries(vocabulary, texts):
    return [[vocabulary.tokens[i] for i in row] for row in ids_of(vocabulary, texts)]


# Tracing a graph takes seconds.
_graph_tokenizer = functools.cache(build_graph_tokenizer)


def _graph_ids(vocabulary, texts, build=_graph_tokenizer):
    return build(vocabulary).tokenize(tf.constant(texts, tf.string)).to_list()


@pytest.mark.parametrize("add_prefix_space", [False, True])
def test_saved_vocabulary_is_read_back(small, tmp_path, add_prefix_space):
    vocabulary = dataclasses.replace(small, add_prefix_space=add_prefix_space)
    names = vocabulary.save(tmp_path)
    assert sorted(names) == sorted(path.name for path in tmp_path.iterdir())
    for path in (tmp_path, tmp_path / "merges.txt", tmp_path / "vocab.json", str(tmp_path)):
        loaded = load_vocabulary(path)
        assert loaded == vocabulary and loaded.hash == vocabulary.hash
        assert loaded.settings() == {"add_prefix_space": add_prefix_space}


def test_line_ends_and_order_do_not_matter(small, files):
    """Ids come from the file in any order; the header does not count as a merge."""
    merges = (files / "merges.txt").read_bytes()
    (files / "merges.txt").write_bytes(merges.replace(b"\n", b"\r\n"))
    ids = json.loads((files / "vocab.json").read_text("utf-8"))
    (files / "vocab.json").write_text(json.dumps(dict(reversed(ids.items()))))
    assert {token: i for i, token in enumerate(small.tokens)} == ids
    assert load_vocabulary(files) == small and not small.add_prefix_space
    assert list(small.merges) == merges.decode().splitlines()[1:]


def test_special_ids_go_by_role(small, files):
    assert small.special_ids == {"cls": 0, "pad": 1, "sep": 2, "unknown": 3, "mask": 4}
    _edit(files, lambda ids: ids | {"<s>": 300, "<mask>": 0, "new": 4})
    assert load_vocabulary(files).special_ids == small.special_ids | {"cls": 300, "mask": 0}


def test_hash_changes_with_all_that_changes_ids(small):
    tokens, merges = small.tokens, small.merges
    vocabularies = [
        small,
        dataclasses.replace(small, add_prefix_space=True),
        dataclasses.replace(small, tokens=(*tokens, "new")),
        dataclasses.replace(small, tokens=(*tokens[:-2], tokens[-1], tokens[-2])),
        dataclasses.replace(small, merges=merges[:-1]),
        dataclasses.replace(small, merges=(merges[1], merges[0], *merges[2:])),
        dataclasses.replace(small, tokens=(*tokens, merges[0]), merges=merges[1:]),
    ]
    assert len({vocabulary.hash for vocabulary in vocabularies}) == len(vocabularies)
    assert BytePairVocabulary(tokens, merges, False).hash == small.hash
    assert len(small.hash) == 16 and int(small.hash, 16)


def _edit(folder, change):
    path = folder / "vocab.json"
    path.write_text(json.dumps(change(json.loads(path.read_text("utf-8")))))


def _without(ids, *tokens):
    return {token: i for i, token in enumerate(token for token in ids if token not in tokens)}


def _append(folder, line):
    with (folder / "merges.txt").open("ab") as file:
        file.write(line + b"\n")


DAMAGES = {
    "a gap": (lambda f: _edit(f, lambda i: i | {"x y": 301}), "ids must be 0 to 300"),
    "a doubled id": (lambda f: _edit(f, lambda i: i | {"<pad>": 0}), "ids must be 0 to 299"),
    "a truth value": (lambda f: _edit(f, lambda i: i | {"<pad>": True}), "ids must be"),
    "text for an id": (lambda f: _edit(f, lambda i: i | {"<pad>": "1"}), "ids must be"),
    "no mask": (lambda f: _edit(f, lambda i: _without(i, "<mask>")), "299 entries but no <mask>"),
    "nothing": (lambda f: _edit(f, lambda i: {}), "no <pad> <unk> <s> </s> <mask>; add them"),
    "a list": (lambda f: _edit(f, list), "must hold an object"),
    "half a file": (lambda f: (f / "vocab.json").write_text('{"a":\n\n'), "not valid JSON"),
    "latin-1": (lambda f: (f / "vocab.json").write_bytes(b'{"\xe9": 0}'), "not UTF-8 at byte 2"),
    "merges in latin-1": (lambda f: _append(f, b"\xe9 a"), "merges.txt: not UTF-8 at byte"),
    "three parts": (lambda f: _append(f, b"a b c"), "merge 40 ('a b c')"),
    "one part": (lambda f: _append(f, b"ab"), "merge 40 ('ab')"),
    "no such part": (lambda f: _append(f, b"h nowhere"), "merge 40 ('h nowhere')"),
    "no such whole": (lambda f: _append(f, b"z z"), "merge 40 ('z z') does not join"),
    "no vocab.json": (lambda f: (f / "vocab.json").unlink(), "vocab.json: no such file"),
    "settings": (lambda f: (f / "byte_pair.json").write_text("{"), "byte_pair.json: not valid"),
    "no settings": (lambda f: (f / "byte_pair.json").write_text("[]"), "must hold an object"),
}
# Strict: whoever mends one has to take its mark away.
DAMAGES |= {
    "a doubled merge": (lambda f: _append(f, b"h e"), "merges.txt"),
    "a byte without entry": (lambda f: _edit(f, lambda i: _without(i, "Q")), "vocab.json"),
    "a word for a truth value": (
        lambda f: (f / "byte_pair.json").write_text('{"add_prefix_space": "false"}'),
        "byte_pair.json",
    ),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damaged_files_are_refused_in_one_line(files, name):
    damage, message = DAMAGES[name]
    damage(files)
    with pytest.raises(UserError) as caught:
        load_vocabulary(files)
    assert message in str(caught.value) and str(caught.value).startswith(f"{files}/")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("flag", [{"lower_case": True}, {"max_bytes_per_word": 100}])
def test_flags_of_wordpiece_are_refused(files, flag):
    with pytest.raises(UserError, match="neither casing nor a longest word") as caught:
        load_vocabulary(files / "merges.txt", **flag)
    assert str(files / "merges.txt") in str(caught.value)


def test_empty_texts_and_lone_surrogates(small):
    """Types stay as promised without any text; a lone surrogate counts as `?`."""
    tokenizer = build_tokenizer(small)
    rows = tokenizer.tokenize([])
    assert rows.to_list() == [] == _graph_ids(small, [])
    assert (rows.values.dtype, rows.row_splits.dtype) == (np.int32, np.int64)
    assert rows.row_splits.tolist() == [0]
    assert tokenizer.tokenize(["", "a", ""]).to_list() == [[], [small.tokens.index("a")], []]
    assert _graph_ids(small, ["", "a", ""]) == [[], [small.tokens.index("a")], []]
    assert _entries(small, ["a\ud800b", "\udfff"]) == [["a", "?", "b"], ["?"]]


def test_names_of_special_tokens_are_plain_text(small):
    texts = ["<mask>", "a</s> <s>b", "<pad><unk>"]
    assert _entries(small, texts[:1]) == [["<", "m", "as", "k", ">"]]
    for ids in (ids_of(small, texts), _graph_ids(small, texts)):
        assert not set(small.special_ids.values()) & {i for row in ids for i in row}


@pytest.mark.long
def test_graph_works_in_tf_data_and_saved(small, tmp_path):
    """As Python's tokenizer, also without what built it."""
    texts = [*HAND_MADE, "the three birds were walking under the larger green tree"]
    check_graphs(small, texts, tmp_path)


def test_prefix_space(small):
    """The first word is tokenised as any other."""
    spaced = dataclasses.replace(small, add_prefix_space=True)
    assert _entries(spaced, ["tree", "the tree"]) == [["Ġtree"], ["Ġthe", "Ġtree"]]
    texts = [text for text in HAND_MADE if text and text[0] != " "]
    # No space is put before another one, nor before nothing.
    texts += ["", " tree", "  "]
    assert _graph_ids(spaced, texts) == ids_of(spaced, texts)


@pytest.mark.parametrize("texts", ["a cat", [["a", "cat"]], []])
def test_graph_checks_the_rank(small, texts):
    """The way of a server's client, which Python's check of the signature does not see."""
    concrete = _graph_tokenizer(small).tokenize.get_concrete_function()
    if texts == []:
        assert concrete(tf.constant([], tf.string)).shape[0] in (0, None)
        return
    with pytest.raises(tf.errors.InvalidArgumentError, match="not compatible"):
        concrete(tf.constant(texts))


def test_graph_cuts_words_that_would_take_too_long(small, monkeypatch):
    """A longer word's ids are those of its parts; others are not touched."""
    from official_cmlm.tokenization import byte_pair_graph

    monkeypatch.setattr(byte_pair_graph, "LONGEST_WORD", 8)
    word = "thethethere"
    parts = [word[:8], word[8:]]
    (ids,) = _graph_ids(small, [word], build_graph_tokenizer)
    assert ids == [i for row in ids_of(small, parts) for i in row]
    assert ids != ids_of(small, [word])[0] or len(word) <= 8


def test_deciding_bytes_give_the_first_tokens(small):
    """Cut there, a text has the same first tokens; the longest entries are the worst case."""
    longest = max(small.tokens, key=len)
    texts = ["the cat and the dog " * 50, f" {longest}" * 100, "é" * 500, "    " * 100]
    most = small.most_bytes(9)
    assert most == 9 * len(longest)
    tokenizer = build_tokenizer(small)
    whole, cut = (tokenizer.tokenize(t).to_list() for t in (texts, [t[:most] for t in texts]))
    assert [row[:9] for row in whole] == [row[:9] for row in cut]


def test_graph_takes_overlapping_pairs_from_the_left(small):
    """`aaa` has the pair `aa` twice, of which only the first can be joined."""
    same = [letter * count for letter in "aeolt " for count in range(1, 9)]
    assert _graph_ids(small, same) == ids_of(small, same)
