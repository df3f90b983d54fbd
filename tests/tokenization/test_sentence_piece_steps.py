"""ALBERT's tokenizer: what it does before SentencePiece's rules, and these rules rewritten."""

import base64
import re
import sys
import unicodedata

import numpy as np
import pytest
import tensorflow as tf
import tokenizers
from tokenizers import models, normalizers, pre_tokenizers, processors

from export.formats.huggingface_tokenizer import write_tokenizer
from official_cmlm.checkpoints.formats.huggingface_tokenizer import read_vocabulary
from official_cmlm.common.errors import UserError
from official_cmlm.tokenization import load_vocabulary
from official_cmlm.tokenization.sentence_piece import (
    RustSentencePiece,
    parse,
    sentence_piece_vocabulary,
)
from official_cmlm.tokenization.sentence_piece_graph import STEPS as GRAPH_STEPS
from official_cmlm.tokenization.sentence_piece_rules import (
    WHITE_SPACE,
    read_rules,
    rules_for_single_characters,
    write_rules,
)
from tests.checkpoints.helpers import REFERENCES, read_changed
from tests.tokenization.texts import HAND_MADE, LONG, check_graphs, check_joined, different, ids_of

STEPS = "quotes accents lower_case"
SPECIAL = ["[CLS]", "[SEP]", "[MASK]"]
# Hangul is in no language of the lines: some of its parts, and the syllable of three of them.
HANGUL = ["ᄒ", "ᅡ", "ᆫ", "한", "구"]


def _before():
    """Returns ALBERT's steps as transformers spells them."""
    return [
        normalizers.Replace("``", '"'),
        normalizers.Replace("''", '"'),
        normalizers.NFKD(),
        normalizers.StripAccents(),
        normalizers.Lowercase(),
    ]


@pytest.fixture(scope="module")
def folder(news, train_sentence_piece, tmp_path_factory):
    """`tokenizer.json` as transformers writes ALBERT's, of a model learnt from real lines.

    With the rules `nmt_nfkc`, as the release has them.
    """
    before = normalizers.Sequence(_before())
    model = train_sentence_piece(
        [before.normalize_str(line) for line in news[:1000]],
        pad_id=0,
        unk_id=1,
        bos_id=-1,
        eos_id=-1,
        control_symbols=SPECIAL,
    )
    folder = tmp_path_factory.mktemp("albert")
    pieces, charsmap, _ = parse(folder, model)
    entries = [(piece, score) for piece, score, _ in pieces]
    known = {piece for piece, _ in entries}
    entries += [(part, -9.0) for part in HANGUL if part not in known]
    library = tokenizers.Tokenizer(models.Unigram(entries, unk_id=1, byte_fallback=False))
    library.normalizer = normalizers.Sequence([*_before(), normalizers.Precompiled(charsmap)])
    space = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")
    library.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), space])
    library.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0",
        pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    library.add_special_tokens(["<pad>", "<unk>", *SPECIAL])
    library.save(str(folder / "tokenizer.json"))
    return folder


@pytest.fixture(scope="module")
def vocabulary(folder):
    return read_vocabulary(folder, None)


def _library(folder, texts):
    """Returns the ids of the file itself, by the library that transformers calls."""
    library = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    return [e.ids for e in library.encode_batch_fast(texts, add_special_tokens=False)]


def test_ids_are_hugging_faces(folder, vocabulary, news):
    """On lines of ten languages, of which not one differs, and on hand-made ones."""
    assert vocabulary.steps == STEPS
    texts = [*news[::7], *[unicodedata.normalize("NFD", line) for line in news[:400]]]
    texts += [*HAND_MADE, *LONG, "한국어 한 구", "`` '' ''' `a'", "ΣΊΣΥΦΟΣ ẞ ŉ Ǆ İ ſ"]
    ours = ids_of(vocabulary, texts)
    # Literal special tokens are text here.
    special = {"<mask> </s> [MASK]"}
    assert set(different(texts, ours, _library(folder, texts))) <= special
    assert vocabulary.tokens.index("ᄒ") in ours[texts.index("한국어 한 구")]
    assert vocabulary.tokens.index("한") not in sum(ours, [])


def test_ids_without_tensorflow(vocabulary, news):
    texts = [*news[::7], *HAND_MADE, *LONG, "한국어 한 구", "[cls] [CLS] <pad>"]
    ours = RustSentencePiece(vocabulary).tokenize(texts).to_list()
    assert different(texts, ours, ids_of(vocabulary, texts)) == []


def test_graphs_give_the_same_ids(vocabulary, tmp_path, news):
    check_graphs(vocabulary, [*news[:200], *HAND_MADE], tmp_path)


def test_texts_joined_by_spaces_keep_their_ids(vocabulary, news):
    check_joined(vocabulary, [*news[:400], "a'", "'b", "x`", "`y", "Σ", "\u0301e"])


def test_it_survives_its_files(vocabulary, tmp_path):
    """Its own, and those of a Hugging Face folder."""
    assert vocabulary.save(tmp_path) == ["sentencepiece.model"]
    loaded = load_vocabulary(tmp_path)
    assert (loaded.hash, loaded.steps, loaded.markers) == (vocabulary.hash, STEPS, "albert")
    assert loaded.settings() == {"steps": STEPS} and loaded.lower_case
    hub = tmp_path / "hub"
    hub.mkdir()
    write_tokenizer(hub, vocabulary.padded(len(vocabulary) + 3), "albert", 512)
    assert read_vocabulary(hub, None).hash == vocabulary.hash
    without = sentence_piece_vocabulary(
        tmp_path, list(zip(loaded.tokens, loaded.scores)), set(), loaded.charsmap
    )
    assert without.steps == "" and without.hash != vocabulary.hash


def _characters():
    """Returns the characters of Unicode 3.2, as the libraries know different later releases."""
    old = unicodedata.ucd_3_2_0
    characters = map(chr, range(1, sys.maxunicode + 1))
    return [c for c in characters if old.category(c) not in ("Cn", "Cs", "Co")]


@pytest.mark.parametrize("step", STEPS.split())
def test_steps_of_graphs_are_the_librarys(step):
    """Each character between letters becomes what Hugging Face's normalizer makes of it."""
    spelled = {"quotes": _before()[:2], "accents": _before()[2:4], "lower_case": _before()[4:]}
    theirs = normalizers.Sequence(spelled[step])
    texts = [f"A{c}b" for c in _characters()] + ["```'''", "''`` ''", "ΑΣ ΣΑ", "한글漢字"]
    ours = GRAPH_STEPS[step](tf.constant(texts)).numpy()
    different = [
        text for text, got in zip(texts, ours) if got.decode("utf-8") != theirs.normalize_str(text)
    ]
    assert different == []


def test_rules_of_single_characters(train_sentence_piece):
    """The rules of `nmt_nfkc` keep their effect in the library `tokenizers`; Hangul stays apart."""
    charsmap = parse(REFERENCES, train_sentence_piece(["a b c d e f g"] * 9, 12))[1]
    rules = read_rules(charsmap)
    assert len(rules) > 4000 and {*map(len, rules)} == {1}
    assert rules["ﬁ"] == "fi" and rules["\u3000"] == " " and rules["\x07"] == ""
    kept = rules_for_single_characters(charsmap, spaces=True)
    assert rules_for_single_characters(kept, spaces=True) == kept
    assert read_rules(kept) == dict.fromkeys(WHITE_SPACE, " ") | rules
    before, after = normalizers.Precompiled(charsmap), normalizers.Precompiled(kept)
    for key in (*rules, "a", "Z", "猫", "ᄒ"):
        assert before.normalize_str(key) == after.normalize_str(key)
    assert normalizers.Precompiled(charsmap).normalize_str("ㅎ") == "ᄒ"


def test_white_space_is_the_librarys():
    """`WhitespaceSplit` splits at these characters and U+0020."""
    split = pre_tokenizers.WhitespaceSplit()
    found = [c for c in map(chr, range(0x10000)) if not "\ud800" <= c <= "\udfff"]
    found = [c for c in found if len(split.pre_tokenize_str(f"a{c}b")) == 2]
    assert sorted(found) == sorted(" " + WHITE_SPACE)


def test_rules_are_written_as_they_are_read():
    """Random characters and texts, as the library `tokenizers` applies them."""
    rng = np.random.default_rng(0)
    letters = [
        chr(c) for c in (*range(97, 110), *range(0xE0, 0xF0), *range(0x4E00, 0x4E20), 0x1F600)
    ]
    rules = {
        str(key): "".join(rng.choice(letters, rng.integers(0, 3)))
        for key in rng.choice(letters, 40, replace=False)
    }
    written = write_rules(rules)
    assert read_rules(written) == rules and write_rules(dict(reversed(rules.items()))) == written
    library = normalizers.Precompiled(written)
    for letter in letters:
        assert library.normalize_str(letter) == rules.get(letter, letter)
    longer = write_rules(rules | {"ab": "x", "猫é": "y", "Z": "z"})
    assert read_rules(longer) == rules | {"Z": "z"}
    assert write_rules({}) == b""


@pytest.mark.parametrize("cut", [0, 3, 4, 7, 500, 1026, -1])
def test_damaged_rules_are_refused(tmp_path, cut):
    """Cut off anywhere; and with bytes that lead anywhere."""

    def change(steps, _):
        (rules,) = (step for step in steps if step["type"] == "Precompiled")
        charsmap = base64.b64decode(rules["precompiled_charsmap"])
        rules["precompiled_charsmap"] = base64.b64encode(charsmap[:cut]).decode()

    if cut:
        with pytest.raises(UserError, match="precompiled_charsmap is damaged; fetch it again"):
            _read_changed(tmp_path, change)
    else:
        assert _read_changed(tmp_path, change).steps == STEPS


def test_bytes_that_lead_anywhere_end():
    charsmap = bytearray(write_rules({"a": "b", "é": "e", "猫": "c"}))
    rng = np.random.default_rng(1)
    for _ in range(300):
        damaged = bytearray(charsmap)
        for place in rng.integers(4, len(charsmap), 8):
            damaged[place] = rng.integers(256)
        try:
            read_rules(bytes(damaged))
        except ValueError:
            pass


def _read_changed(tmp_path, change):
    return read_changed(
        tmp_path, "albert", lambda values: change(values["normalizer"]["normalizers"], values)
    )


SPACES = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}


def test_older_spellings_are_read(tmp_path):
    """Several spaces made one, as transformers 4 has it; ALBERT's steps in parts."""
    expected = read_vocabulary(REFERENCES / "albert", None)
    assert _read_changed(tmp_path, lambda s, _: s.append(SPACES)).hash == expected.hash
    for name, left in (("quotes", (0, 2)), ("accents", (2, 4)), ("lower_case", (4, 5))):
        cut = slice(*left)
        vocabulary = _read_changed(tmp_path, lambda s, _, c=cut: s.__delitem__(c))
        assert vocabulary.steps.split() == [step for step in STEPS.split() if step != name]


def test_all_white_space_splits_without_rules(tmp_path):
    """As the library does, whose split knows every space of Unicode."""
    vocabulary = _read_changed(tmp_path, lambda steps, _: steps.pop())
    assert read_rules(vocabulary.charsmap) == dict.fromkeys(WHITE_SPACE, " ")
    texts = [f"the{space}cat" for space in WHITE_SPACE] + ["a\u200bcat", " cat\u2028 "]
    expected = _library(tmp_path, texts)
    assert ids_of(vocabulary, texts) == expected
    assert RustSentencePiece(vocabulary).tokenize(texts).to_list() == expected


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda s, _: s.pop(3), "normalizer is ['NFKD', 'Lowercase']; only []"),
        (lambda s, _: s.pop(2), "normalizer is ['StripAccents', 'Lowercase']; only []"),
        (lambda s, _: s.pop(0), "normalizer is ['Replace', 'NFKD'"),
        (lambda s, _: s.insert(0, {"type": "NFC"}), "normalizer is ['NFC', 'Replace'"),
        (
            lambda s, _: s.append({"type": "Lowercase"}),
            "normalizer is ['Precompiled', 'Lowercase']",
        ),
        (lambda s, _: s[0].update(content="x"), "normalizer is ['Replace', 'Replace'"),
        (lambda _, v: v["model"].update(unk_id=0), "unk_id is 0; only 1"),
        (lambda _, v: v["post_processor"]["single"].pop(0), "post_processor.single is [{'Seq"),
    ],
)
def test_other_steps_are_refused(tmp_path, change, says):
    with pytest.raises(UserError, match=re.escape(says)):
        _read_changed(tmp_path, change)


def test_a_file_of_another_release_is_refused(tmp_path):
    vocabulary = read_vocabulary(REFERENCES / "albert", None)
    content = vocabulary.serialized().replace(STEPS.encode(), STEPS.replace("a", "z").encode())
    (tmp_path / "sentencepiece.model").write_bytes(content)
    with pytest.raises(UserError, match="normalisation by 'quotes zccents lower_czse', which"):
        load_vocabulary(tmp_path)
