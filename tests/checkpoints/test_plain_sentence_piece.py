"""Folders with a SentencePiece model and no `tokenizer.json`: the ids that this file would give."""

import json
import re
import shutil

import pytest

from official_cmlm.checkpoints.formats.huggingface_tokenizer import read_vocabulary
from official_cmlm.common.errors import UserError
from official_cmlm.tokenization import build_tokenizer
from official_cmlm.tokenization.sentence_piece_model import USER_DEFINED, parse_model
from tests.checkpoints.helpers import REFERENCES, read_changed

SETTINGS, CONFIG, ADDED = "tokenizer_config.json", "config.json", "added_tokens.json"
# Reference -> the name of its model in releases, and the model.
MODELS = {
    "xlm_roberta": ("sentencepiece.bpe.model", REFERENCES / "sentencepiece.model"),
    "camembert": ("sentencepiece.bpe.model", REFERENCES / "sentencepiece.model"),
    "multilingual_minilm": ("sentencepiece.bpe.model", REFERENCES / "sentencepiece.model"),
    "albert": ("spiece.model", REFERENCES / "albert" / "spiece.model"),
}


def _folder(folder, name, *without, settings=None, **config):
    """Copies a reference with its SentencePiece model instead of `tokenizer.json`.

    Args:
      folder: where to write it.
      name: of the reference.
      *without: files that it lacks, too.
      settings: what its `tokenizer_config.json` has else.
      **config: what its `config.json` has else.
    """
    shutil.copytree(REFERENCES / name, folder)
    file, model = MODELS[name]
    if not (folder / file).exists():
        shutil.copy(model, folder / file)
    for missing in ("tokenizer.json", *without):
        (folder / missing).unlink()
    for path, more in ((folder / SETTINGS, settings), (folder / CONFIG, config)):
        if more:
            path.write_text(json.dumps(json.loads(path.read_text()) | more))
    return folder


def _model(folder, change):
    """Changes ALBERT's model by a function."""
    path = folder / "spiece.model"
    model = parse_model(path.read_bytes())
    change(model)
    path.write_bytes(model.SerializeToString())


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("said_by", ["settings", "config", "model_type"])
def test_the_vocabulary_is_that_of_tokenizer_json(tmp_path, name, said_by):
    """Wherever the kind of tokenizer is named; a network of BERT's says nothing about it."""
    of = json.loads((REFERENCES / name / SETTINGS).read_text())["tokenizer_class"]
    without = [] if said_by == "settings" else [SETTINGS]
    config = {"tokenizer_class": of} if said_by == "config" else {}
    folder = _folder(tmp_path / "source", name, *without, **config)
    if (name, said_by) == ("multilingual_minilm", "model_type"):
        with pytest.raises(UserError, match="tokenizer_class '' says nothing about the ids of"):
            read_vocabulary(folder, None)
        return
    ours, theirs = read_vocabulary(folder, None), read_vocabulary(REFERENCES / name, None)
    assert (ours.tokens, ours.hash) == (theirs.tokens, theirs.hash)


@pytest.mark.parametrize(
    ("settings", "left_out"),
    [
        ({"do_lower_case": False}, ["Lowercase"]),
        ({"keep_accents": True}, ["NFKD", "StripAccents"]),
        ({"keep_accents": True, "do_lower_case": False}, ["NFKD", "StripAccents", "Lowercase"]),
    ],
)
def test_alberts_settings(tmp_path, settings, left_out):
    """As a `tokenizer.json` without these steps."""

    def change(values):
        steps = values["normalizer"]["normalizers"]
        values["normalizer"]["normalizers"] = [s for s in steps if s["type"] not in left_out]

    theirs = read_changed(tmp_path, "albert", change)
    ours = read_vocabulary(_folder(tmp_path / "source", "albert", settings=settings), None)
    assert ours.hash == theirs.hash
    assert ours.hash != read_vocabulary(REFERENCES / "albert", None).hash


def _single_characters(model):
    """Pieces of one character that no other piece has."""
    pieces = [piece.piece for piece in model.pieces]
    return [
        piece
        for piece in model.pieces
        if len(piece.piece) == 1 and sum(piece.piece in other for other in pieces) == 1
    ]


def test_user_defined_characters_are_entries(tmp_path):
    """ALBERT's `(` and the like: the ids of SentencePiece itself, wherever they stand."""
    sentencepiece = pytest.importorskip("sentencepiece")
    folder, symbols = _folder(tmp_path / "source", "albert"), []

    def change(model):
        for piece in _single_characters(model):
            piece.type, piece.score = USER_DEFINED, 0.0
            symbols.append(piece.piece)

    _model(folder, change)
    assert len(symbols) > 2
    library = sentencepiece.SentencePieceProcessor(model_file=str(folder / "spiece.model"))
    texts = [text for symbol in symbols for text in (f"the{symbol}cat", f"{symbol} {symbol * 2}a")]
    texts += ["".join(symbols), "the cat sat on the mat", *(f"old {s}house{s}" for s in symbols)]
    # The tests of other tokenizers cover the steps before the model.
    plain = [text for text in texts if text == text.lower() and text.isascii()]
    assert len(plain) > 5
    vocabulary = read_vocabulary(folder, None)
    assert build_tokenizer(vocabulary).tokenize(plain).to_list() == library.encode(plain)


def _added(model, piece, kind=1):
    model.pieces.add(piece=piece, score=-3.0, type=kind)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda m: _added(m, "▁5,"), "'▁5,', a digit and a comma"),
        (lambda m: _added(m, "zz", USER_DEFINED), "user-defined piece 'zz'"),
        (lambda m: (_added(m, "é", USER_DEFINED), _added(m, "éa")), "user-defined piece 'é'"),
        (lambda m: _added(m, "\u200b", USER_DEFINED), "may be normalised"),
        (lambda m: setattr(m.trainer_spec, "model_type", 2), "model_type is not unigram"),
        (lambda m: m.pieces.pop(2), "take the tokenizer of an encoder"),
    ],
)
def test_models_that_cannot_be_decided_are_refused(tmp_path, change, says):
    folder = _folder(tmp_path / "source", "albert")
    _model(folder, change)
    line = rf"^{re.escape(str(folder))}/spiece\.model: .*{re.escape(says)}.*"
    with pytest.raises(UserError, match=line):
        read_vocabulary(folder, None)


@pytest.mark.parametrize(
    ("name", "settings", "says"),
    [
        ("xlm_roberta", {"tokenizer_class": "MBartTokenizer"}, "'MBartTokenizer' says nothing"),
        ("xlm_roberta", {"tokenizer_class": "AlbertTokenizer"}, "'AlbertTokenizer' says nothing"),
        ("albert", {"tokenizer_class": "XLNetTokenizerFast"}, "of spiece.model; XLMRoberta, Camem"),
        ("albert", {"tokenizer_class": 5}, "tokenizer_class must be a string"),
        ("albert", {"remove_space": False}, "remove_space is False; only True"),
        ("albert", {"do_lower_case": "no"}, "do_lower_case must be true or false"),
        ("albert", {"mask_token": {"content": "<mask>"}}, "mask_token is '<mask>'; only '[MASK]'"),
        ("xlm_roberta", {"cls_token": "</s>"}, "cls_token is '</s>'; only '<s>'"),
        ("xlm_roberta", {"add_prefix_space": False}, "add_prefix_space is False"),
        ("xlm_roberta", {"extra_special_tokens": ["<x>"]}, "'<x>', …); tokens that are never"),
        ("xlm_roberta", {"additional_special_tokens": {"a": "<x>"}}, "'<x>', …"),
        ("xlm_roberta", {"added_tokens_decoder": {"9": {"content": "er"}}}, "'er', …"),
    ],
)
def test_settings_that_cannot_be_represented_are_refused(tmp_path, name, settings, says):
    folder = _folder(tmp_path / "source", name, settings=settings)
    line = rf"^{re.escape(str(folder))}/{re.escape(SETTINGS)}: .*{re.escape(says)}"
    with pytest.raises(UserError, match=line):
        read_vocabulary(folder, None)


def test_added_tokens(tmp_path):
    """Added tokens that are entries already, as in files of older releases, add nothing."""
    folder = _folder(tmp_path / "source", "xlm_roberta")
    expected_hash = read_vocabulary(folder, None).hash
    (folder / ADDED).write_text('{"<mask>": 80}')
    assert read_vocabulary(folder, None).hash == expected_hash
    (folder / ADDED).write_text('{"<new>": 81}')
    with pytest.raises(UserError, match=r"added_tokens.json: 1 token\(s\) .*'<new>'"):
        read_vocabulary(folder, None)
