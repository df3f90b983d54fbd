"""Whatever is sent to the exported modules: a right result or an error, and the process lives."""

import faulthandler
from pathlib import Path

import pytest
import tensorflow as tf

from export.formats import tfhub
from export.formats.preprocessing import Preprocess
from export.formats.serving import Serving
from export.formats.tfhub_options import TfhubOptions
from official_cmlm.modeling.sentence_encoder import SentenceEncoderModel
from official_cmlm.tokenization import load_vocabulary
from tests.conftest import tiny_encoder_config, write_encoder
from tests.hostile.serving_cases import KINDS, LENGTH, POSITIONS, cases
from tests.hostile.serving_modules import Modules, find_fault

ROOT = Path(__file__).parents[2]
BYTE_PAIR = ROOT / "tests" / "checkpoints" / "references" / "roberta"
# Seconds after which a case counts as hanging.
_MOST_SECONDS = 60


@pytest.fixture(scope="module")
def both_exports(exported, tmp_path_factory):
    """Makes a folder with the exports of encoders of WordPiece and of byte-level BPE."""
    folder = tmp_path_factory.mktemp("exports")
    (folder / "wordpiece").symlink_to(exported[0].parent)
    vocabulary = load_vocabulary(BYTE_PAIR)
    config = tiny_encoder_config(vocab_size=len(vocabulary), max_position_embeddings=POSITIONS)
    model = folder / "byte_pair" / "model"
    write_encoder(model, vocabulary, LENGTH, model=SentenceEncoderModel(config))
    tfhub.export(TfhubOptions(str(model), str(folder / "byte_pair" / "out")))
    return folder


def test_hostile_input(exported):
    """Every kind of fault by one of its routes: the table says which error or result follows."""
    modules = Modules(exported[1])
    fast = [case for case in cases() if case.fast]
    assert len(fast) > 60 and {case.route for case in fast} > {"raw", "signature", "pack"}
    faults = {case.id: find_fault(case, modules) for case in fast}
    assert {name: fault for name, fault in faults.items() if fault is not None} == {}


@pytest.mark.long
def test_all_hostile_input(both_exports):
    """Every route, byte-level BPE, 10 MiB in one string, 100,000 strings.

    A case that crashes or hangs ends the process of this test.
    """
    every = list(cases())
    assert len({case.id for case in every}) == len(every)
    modules = {kind: Modules(both_exports / kind / "out") for kind in KINDS}
    faults = {}
    for case in every:
        faulthandler.dump_traceback_later(_MOST_SECONDS, exit=True)
        faults[case.id] = find_fault(case, modules[case.kind])
        faulthandler.cancel_dump_traceback_later()
    assert {name: fault for name, fault in faults.items() if fault is not None} == {}


def test_serving_has_no_callable_that_checks_nothing(exported):
    """Only the variables of the encoder are inside."""
    serving = tf.saved_model.load(str(exported[1] / "serving" / "1"))
    assert not hasattr(serving, "encoder")
    functions = {
        name for name in dir(serving) if hasattr(getattr(serving, name), "concrete_functions")
    }
    assert functions == {"serve", "serve_normalized", "serve_examples", "tokenize"}


def _model(vocabulary, **overrides):
    return SentenceEncoderModel(tiny_encoder_config(vocab_size=len(vocabulary), **overrides))


@pytest.fixture(scope="module")
def preprocess(exported):
    return tf.saved_model.load(str(exported[1] / "preprocess"))


def test_serving_raises_instead_of_an_embedding_that_is_not_finite(vocabulary):
    """Weights that are finite, but so large that the embedding overflows."""
    model = _model(vocabulary)
    for variable in model.variables:
        variable.assign(tf.fill(variable.shape, 1e38))
    # A variable, as a function does not keep its module.
    serving = Serving(Preprocess(vocabulary, LENGTH, POSITIONS, {}), model)
    with pytest.raises(tf.errors.InvalidArgumentError, match="embedding"):
        serving.serve(tf.constant(["a cat"]))


def test_an_encoder_without_types_takes_two_segments(preprocess, vocabulary):
    """RoBERTa has one type, DistilBERT none; the second segment's type 1 is type 0 there."""
    encoder = tfhub.build_functional_encoder(_model(vocabulary, type_vocab_size=1))
    tokens = preprocess.tokenize(tf.constant(["a cat"]))
    inputs = preprocess.bert_pack_inputs([tokens, tokens], seq_length=tf.constant(12))
    assert inputs["input_type_ids"].numpy().max() == 1
    zeros = {**inputs, "input_type_ids": tf.zeros([1, 12], tf.int32)}
    tf.debugging.assert_equal(*(encoder(each)["default"] for each in (inputs, zeros)))


@pytest.mark.parametrize("pooling", ["mean", "max"])
def test_rows_without_tokens_are_zeros(vocabulary, pooling):
    """As a batch is padded; the largest of no numbers is not the smallest float."""
    encoder = tfhub.build_functional_encoder(_model(vocabulary, pooling=pooling))
    inputs = {
        "input_word_ids": tf.constant([[3, 7, 4], [0, 0, 0]]),
        "input_mask": tf.constant([[1, 1, 1], [0, 0, 0]]),
        "input_type_ids": tf.zeros([2, 3], tf.int32),
    }
    vectors = encoder(inputs)["default"].numpy()
    assert abs(vectors[0]).max() > 0.1 and not vectors[1].any()
