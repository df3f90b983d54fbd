"""SentencePiece vocabularies: their ids against two libraries, their files, their refusals."""

import dataclasses
import re
import unicodedata

import pytest
import tokenizers
from tokenizers import models, normalizers, pre_tokenizers

from export.formats.huggingface_tokenizer import write_tokenizer
from official_cmlm.checkpoints.formats.huggingface_tokenizer import (
    WHITE_SPACE_RULES,
    read_vocabulary,
)
from official_cmlm.common.errors import UserError
from official_cmlm.tokenization import load_vocabulary
from official_cmlm.tokenization.sentence_piece import (
    RustSentencePiece,
    parse,
    read_sentence_piece,
    sentence_piece_vocabulary,
)
from tests.checkpoints.helpers import REFERENCES, read_changed
from tests.tokenization.texts import HAND_MADE, LONG, check_graphs, check_joined, different, ids_of

# Cause -> text whose ids differ from Hugging Face's; see the test.
HUGGING_FACE_DIFFERENCES = {
    "it normalises marks together with their letter": "cafe\u0301 e\u0301\u0302 \u0301x",
    "special tokens are entries like others there, unless they are split off": (
        "<mask> </s> [MASK]"
    ),
    "SentencePiece's rules leave U+0085 as it is, and it is split there": "one\u0085two",
}


@pytest.fixture(scope="module")
def trained(news, train_sentence_piece, tmp_path_factory):
    """Pieces and normalisation of a model that SentencePiece learns from real lines."""
    path = tmp_path_factory.mktemp("model") / "m.model"
    path.write_bytes(train_sentence_piece(news[:1000]))
    return path


def _entries(trained):
    """Returns them in XLM-R's order, with scores."""
    pieces, charsmap = parse(trained, trained.read_bytes())
    first = [(token, 0.0) for token in ("<s>", "<pad>", "</s>", "<unk>")]
    return [*first, *((p, score) for p, score, _ in pieces[3:]), ("<mask>", 0.0)], charsmap


@pytest.fixture(scope="module")
def vocabulary(trained):
    entries, charsmap = _entries(trained)
    return sentence_piece_vocabulary(trained, entries, set(), charsmap)


def _hugging_face(trained, texts):
    """Returns the ids of the library, mapped as transformers does for XLM-R."""
    entries, charsmap = _entries(trained)
    library = tokenizers.Tokenizer(models.Unigram(entries, unk_id=3, byte_fallback=False))
    library.normalizer = normalizers.Precompiled(charsmap)
    space = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")
    library.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), space])
    return [e.ids for e in library.encode_batch_fast(texts, add_special_tokens=False)]


def test_ids_equal_those_of_sentencepiece(trained, vocabulary, news):
    """In the order of the encoder: the model as it was trained, its ids moved by one."""
    sentencepiece = pytest.importorskip("sentencepiece")
    library = sentencepiece.SentencePieceProcessor(model_file=str(trained))
    texts = [*news, *HAND_MADE, *LONG]
    theirs = [[i + 1 if i else 3 for i in row] for row in library.encode(texts)]
    ours = ids_of(vocabulary, texts)
    # Equal sums of scores are added in another order.
    assert len(different(texts, ours, theirs)) <= len(texts) // 5000


def test_ids_equal_those_of_hugging_face(trained, vocabulary, news):
    """On lines of ten languages, and on hand-made texts but those of the table."""
    texts = [*news[::7], *{*HAND_MADE, *HUGGING_FACE_DIFFERENCES.values()}]
    unequal = different(texts, ids_of(vocabulary, texts), _hugging_face(trained, texts))
    listed = set(HUGGING_FACE_DIFFERENCES.values())
    assert listed <= set(unequal)
    assert len(set(unequal) - listed) <= len(texts) // 1000


def test_ids_without_tensorflow(vocabulary, news):
    """The Rust library agrees on lines of ten languages, with composed and decomposed letters.

    The padding of a table changes nothing, and no text is tokenised to a padding entry.
    """
    literal = "<mask> </s> <unk> <unused:3>"
    vietnamese = unicodedata.normalize("NFD", "ế ộ ữ Tiếng Việt")
    texts = [*news[::7], *HAND_MADE, literal, vietnamese]
    texts += [unicodedata.normalize("NFD", text) for text in news[:500]]
    # Letters with a mark that Unicode composes, and one that it does not.
    uncomposed = "cafe\u0301 e\u0301\u0302 \u0301x"
    for entries in (vocabulary, vocabulary.pad(len(vocabulary) + 7)):
        ours = RustSentencePiece(entries).tokenize(texts).to_list()
        unequal = different(texts, ours, ids_of(vocabulary, texts))
        assert len(set(unequal) - {uncomposed}) <= len(texts) // 1000, unequal
        assert literal not in unequal and vietnamese not in unequal


def test_without_rules_of_normalisation(tmp_path):
    """Only U+0020 is a space; the Rust library and an export do the same."""
    source = read_vocabulary(REFERENCES / "xlm_roberta", None)
    vocabulary = dataclasses.replace(source, charsmap=b"")
    texts = ["a b", "  a   b  ", "a\u00a0b", "a\u3000 b", "a\u2028b", "", " ", "a </s> <mask>"]
    expected = ids_of(vocabulary, texts)
    assert expected[0] == expected[1] != expected[2]
    assert RustSentencePiece(vocabulary).tokenize(texts).to_list() == expected
    write_tokenizer(tmp_path, vocabulary, "xlm-roberta", 64)
    assert read_vocabulary(tmp_path, None).hash == vocabulary.hash


def test_graphs_give_the_same_ids(vocabulary, tmp_path, news):
    check_graphs(vocabulary, [*news[:200], *HAND_MADE], tmp_path)


def test_texts_joined_by_spaces_keep_their_ids(vocabulary, news):
    check_joined(vocabulary, news[:400])


def test_no_text_becomes_a_special_token(vocabulary):
    special = vocabulary.special_ids
    rows = ids_of(vocabulary, ["<s> </s> <pad> <mask> <s>", "a<mask>"])
    assert not {special[r] for r in ("cls", "sep", "pad", "mask")} & set(sum(rows, []))
    assert [special[r] for r in ("cls", "pad", "sep", "unknown")] == [0, 1, 2, 3]
    assert special["mask"] == len(vocabulary) - 1


def test_vocabulary_survives_its_files(vocabulary, tmp_path):
    """Its own, and those of a Hugging Face folder; unused entries too."""
    padded = vocabulary.pad(len(vocabulary) + 5)
    assert padded.save(tmp_path) == ["sentencepiece.model"]
    loaded = load_vocabulary(tmp_path)
    assert (loaded.hash, loaded.tokens, loaded.controls) == (
        padded.hash, padded.tokens, padded.controls,
    )  # fmt: skip
    assert load_vocabulary(tmp_path / "sentencepiece.model").hash == padded.hash
    assert padded.hash != vocabulary.hash == padded.without_padding().hash
    folder = tmp_path / "hub"
    folder.mkdir()
    write_tokenizer(folder, padded, "xlm-roberta", 512)
    assert read_vocabulary(folder, None).hash == vocabulary.hash
    texts = ["Ein Satz…  mit\tZeichen！", "猫 sits."]
    assert ids_of(padded, texts) == ids_of(vocabulary, texts)


NEVER_SPLIT = {"id": 9, "content": "er", "special": False}
STEPS = [{"type": "NFKD"}, {"type": "Lowercase"}]
SPACES = [{"type": "WhitespaceSplit"}, {"type": "Metaspace", "prepend_scheme": "first"}]
SEVERAL_SPACES = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "▁"}
AROUND = {"type": "RobertaProcessing", "cls": ["<s>", 0], "sep": ["</s>", 2]}


def test_other_spellings_of_the_same_are_read(tmp_path):
    """The spellings are of the special tokens around a text, and of several spaces."""
    expected = read_vocabulary(REFERENCES / "xlm_roberta", None).hash

    def change(values):
        values["post_processor"] = AROUND
        values["pre_tokenizer"] = values["pre_tokenizer"]["pretokenizers"][1]
        steps = [values["normalizer"], {"type": "Strip", "strip_right": True}, SEVERAL_SPACES]
        values["normalizer"] = {"type": "Sequence", "normalizers": steps}

    assert read_changed(tmp_path, "xlm_roberta", change).hash == expected


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda v: v["model"].update(byte_fallback=True), "byte_fallback"),
        (lambda v: v["model"].update(unk_id=0), "unk_id is 0; only 3"),
        (lambda v: v["model"].update(vocab=[["a", "b"]]), "added to the vocabulary"),
        (lambda v: (v["model"]["vocab"].pop(1), v["added_tokens"].pop(1)), "no <pad>"),
        (lambda v: v["model"]["vocab"].append(["er", -1.0]), "stands there twice"),
        (lambda v: v["model"]["vocab"].append(["x", float("nan")]), "not finite"),
        (
            lambda v: v.update(normalizer={"type": "Sequence", "normalizers": STEPS}),
            "normalizer is ['NFKD', 'Lowercase']; only []",
        ),
        (lambda v: v["normalizer"].update(precompiled_charsmap="%"), "damaged (Only base64"),
        (lambda v: v["pre_tokenizer"].update(type="ByteLevel"), "ByteLevel"),
        (lambda v: v["pre_tokenizer"].update(pretokenizers=SPACES), "replacement is None"),
        (lambda v: v["pre_tokenizer"]["pretokenizers"][1].update(split=False), "split is False"),
        (lambda v: v.update(normalizer=SEVERAL_SPACES | {"content": ""}), "normalizer is ['Repl"),
        (lambda v: v.update(post_processor=None), "post_processor.type is None"),
        (lambda v: v["post_processor"]["single"].pop(0), "post_processor.single is [{'Seq"),
        (lambda v: v["post_processor"]["special_tokens"]["<s>"].update(ids=[7]), "<s>.ids is [7]"),
        (lambda v: v.update(post_processor=AROUND | {"sep": ["</s>", 0]}), "sep is ['</s>', 0]"),
        (lambda v: v["added_tokens"].append(NEVER_SPLIT), "never split"),
    ],
)
def test_tokenizers_that_cannot_be_represented_are_refused(tmp_path, change, says):
    with pytest.raises(UserError, match=re.escape(says)):
        read_changed(tmp_path, "xlm_roberta", change)


def test_rules_make_spaces_where_the_library_splits():
    """They change nothing else."""
    split, rules = pre_tokenizers.WhitespaceSplit(), normalizers.Precompiled(WHITE_SPACE_RULES)
    for character in map(chr, range(1, 0x10000)):
        if not "\ud800" <= character <= "\udfff":
            is_space = len(split.pre_tokenize_str(f"a{character}b")) == 2
            assert rules.normalize_str(character) == (" " if is_space else character)


def test_all_white_space_splits_without_rules(tmp_path):
    """As in a `tokenizer.json` without a normalizer, whose split knows every space of Unicode."""
    vocabulary = read_changed(tmp_path, "xlm_roberta", lambda values: values.pop("normalizer"))
    library = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    spaces = "\t\n\v\f\r\x85\xa0\u1680\u2000\u2009\u2028\u2029\u202f\u205f\u3000"
    texts = [f"the{space}cat" for space in spaces] + ["a\u200bcat", " cat\u2028 "]
    theirs = [e.ids for e in library.encode_batch_fast(texts, add_special_tokens=False)]
    assert ids_of(vocabulary, texts) == theirs
    assert RustSentencePiece(vocabulary).tokenize(texts).to_list() == theirs


def test_invalid_models_are_refused(tmp_path, trained):
    path = tmp_path / "x.model"
    path.write_bytes(b"\xff\xff")
    with pytest.raises(UserError, match="damaged .*take a whole copy"):
        read_sentence_piece(path)
    with pytest.raises(UserError, match="no <pad> <mask>; take the tokenizer of an encoder"):
        load_vocabulary(trained)
    with pytest.raises(UserError, match="leave out --lower_case"):
        load_vocabulary(trained, lower_case=True)
