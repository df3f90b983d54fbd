"""Sources that cannot be imported are refused in one helpful line and leave no files."""

import json
import re
import shutil
import struct
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import load_file, save_file

from official_cmlm.checkpoints.encoder_arrays import flat_shape
from official_cmlm.checkpoints.formats import importing
from official_cmlm.checkpoints.formats.imported_encoder import ImportOptions
from official_cmlm.checkpoints.formats.importing import import_checkpoint, read_source
from official_cmlm.checkpoints.weights import build
from official_cmlm.common.errors import UserError
from tests.binaries import call
from tests.checkpoints.helpers import REFERENCES

WEIGHTS, INDEX, SHARD = "model.safetensors", "model.safetensors.index.json", "part.safetensors"
CONFIG, TOKENIZER, PICKLE = "config.json", "tokenizer.json", "pytorch_model.bin"
MODULES, POOLING, LENGTH = "modules.json", "1_Pooling/config.json", "sentence_bert_config.json"
PROMPTS, BERT, OPTIONS = "config_sentence_transformers.json", REFERENCES / "bert", ImportOptions()
DENSE = "2_Dense/config.json"
DISTILUSE = json.loads((REFERENCES / "distiluse" / MODULES).read_text())
SETTINGS, TABLE = "tokenizer_config.json", "bert.embeddings.word_embeddings.weight"
WHOLE, TENSORS = (BERT / WEIGHTS).read_bytes(), load_file(BERT / WEIGHTS)
VOCAB = json.loads((BERT / TOKENIZER).read_text())["model"]["vocab"]
HELP = r"""(?x)\b(fetch|download|convert|take|pass|check|use|must|only|needs?|expected|known)\b|can$
    |name\ (a|another)\b|cannot\ be\ (represented|imported)|belong\ to\ different\ models
    |incomplete\ or\ of\ another\ architecture|plain\ BERT\ encoder|no\ BERT\ encoder"""


def check_refused(source, tmp_path, at, *says):
    """Asserts one line that names the file at fault, and no folder under the output's name."""
    output = tmp_path / "output" / "encoder"
    with pytest.raises(UserError) as caught:
        import_checkpoint(str(source), str(output), OPTIONS, overwrite=False)
    message = str(caught.value)
    assert "\n" not in message and message.startswith(f"{at}: "), message
    assert [words for words in says if words not in message] == [], message
    assert re.search(HELP, message.removeprefix(str(at))), f"says not what to do: {message}"
    assert not output.parent.exists() or not list(output.parent.iterdir())


def copy(folder, changes, of="bert"):
    """Copies a reference with other content of some files, or without them (None)."""
    shutil.copytree(REFERENCES / of, folder)
    for path, new in ((folder / name, new) for name, new in changes.items()):
        path.parent.mkdir(exist_ok=True)
        path.unlink(missing_ok=True)
        if isinstance(new, dict) and path.suffix == ".safetensors":
            save_file(new, path)
        elif new is not None:
            path.write_bytes(new if isinstance(new, bytes) else json.dumps(new).encode())
    return folder


def edit(name, of="bert", **new):
    return {name: json.loads((REFERENCES / of / name).read_text()) | new}


def model(of="bert", **new):
    return edit(TOKENIZER, of, model=edit(TOKENIZER, of)[TOKENIZER]["model"] | new)


def halve(of):
    """Returns the vocabulary with half a surrogate pair as an entry."""
    vocab = model(of)[TOKENIZER]["model"]["vocab"]
    if isinstance(vocab, list):
        return [*vocab[:9], ["\ud800", vocab[9][1]], *vocab[10:]]
    return dict(zip([*list(vocab)[:-1], "\ud800"], vocab.values()))


def sentence(pooling, *more, path="1_Pooling"):
    paths = {"Transformer": "", "Pooling": path, **dict.fromkeys(more, "2_More")}
    listed = [{"type": f"sentence_transformers.models.{k}", "path": p} for k, p in paths.items()]
    return {MODULES: listed, POOLING: pooling}


def case(at, holds, changes, *says, of="bert"):
    return pytest.param(at, changes, says, of, id=f"{at or 'folder'}: {holds}")


AGAIN, UNFIT = "fetch it again", "vocabulary and merges belong to different models"
SHARDED = {WEIGHTS: None, SHARD: WHOLE}
HALF = [{n: t.astype(d) for n, t in TENSORS.items()} for d in ("float16", ml_dtypes.bfloat16)]
SHARDS = {SHARD: dict([*TENSORS.items()][:20]), "2.safetensors": dict([*TENSORS.items()][20:])}
MAP = {"weight_map": {name: file for file in SHARDS for name in SHARDS[file]}}
ACCENTS = {"type": "BertNormalizer", "strip_accents": False, "lowercase": True}
SURPLUS = {"classifier.weight": np.zeros([2, 16], np.float32)}
UNTIED = {"cls.predictions.decoder.weight": np.zeros([90, 16], np.float32)}
MEAN, WEIGHTED = ({f"pooling_mode_{k}_tokens": True} for k in ("mean", "weightedmean"))
CASES = [
    case("", "no weights", {WEIGHTS: None}, "no weights", WEIGHTS),
    case(PICKLE, "pickle", {WEIGHTS: None, PICKLE: b""}, "runs whatever code", "save_pretrained('"),
    *[case(INDEX, f"shard {n!r}", SHARDED | {INDEX: {"weight_map": {TABLE: n}}}, f"{n}", says)
      for n, says in (("x.safetensors", "fetch the missing"), *(
          (n, "is not a file inside") for n in ("../x.safetensors", "/x", "..", "", 5)))],
    case(SHARD, "lacks a tensor", SHARDED | {INDEX: {"weight_map": {"x.y": SHARD}}}, "lacks x.y"),
    case(INDEX, "of another kind", SHARDED | {INDEX: []}, "no index", "fetch"),
    *[case(at, f"{n} {dtype}", {WEIGHTS: TENSORS | {TABLE: np.zeros([90, n], dtype)}}, says)
      for at, n, dtype, says in ((WEIGHTS, 16, "int8", "I8;"), (WEIGHTS, 16, "float64", "F64;"),
          ("", 8, "float32", f"{TABLE[5:]} is [90, 8], the configuration makes it [90, 16]"))],
    case("", "missing", {WEIGHTS: {k: v for k, v in TENSORS.items() if "1.output.d" not in k}},
         "2 tensor(s) missing", "layer.1.output.dense.bias, encoder.layer.1.output.dense.weight"),
    case("", "surplus", {WEIGHTS: TENSORS | SURPLUS}, "1 tensor(s)", *SURPLUS, "--drop_surplus"),
    case("", "untied", {WEIGHTS: TENSORS | UNTIED}, *UNTIED, "untied", "pass --drop_head"),
    *[case(WEIGHTS, f"cut at {n}", {WEIGHTS: WHOLE[:n]}, "damaged", AGAIN) for n in (-100, 100, 0)],
    case(WEIGHTS, "a folder", {WEIGHTS: None, f"{WEIGHTS}/x": b""}),
    *[case(WEIGHTS, f"{shape} in {end} bytes", {WEIGHTS: size + text + bytes(8)}, "damaged", AGAIN)
      for shape, end in ((1 << 32, 1 << 34), (1 << 62, 8), (90, 8))
      for text in [b'{"x":{"dtype":"F32","shape":[%d],"data_offsets":[0,%d]}}' % (shape, end)]
      for size in (struct.pack("<Q", len(text)), struct.pack("<Q", 8 << 30))],
    case(CONFIG, "missing", {CONFIG: None}, "no such file"),
    *[case(file, f"{content!r}", {file: content}, AGAIN)
      for file in (CONFIG, TOKENIZER, MODULES) for content in (b"", b"{", b"\xff", b"[5]")],
    case(CONFIG, "other buckets", edit(CONFIG, "mpnet", relative_attention_num_buckets=16),
         "buckets is 16, only 32", of="mpnet"),
    case(CONFIG, "narrow BERT", edit(CONFIG, embedding_size=8), "embedding_size 8 differs"),
    *[case(CONFIG, f"{key} {value}", edit(CONFIG, **{key: value}), repr(value), says)
      for key, value, says in (
          ("model_type", "t5", "known: bert, roberta"), ("model_type", ["x"], "known:"),
          ("model_type", "albert", "known: bert, roberta"),
          ("hidden_size", "16", "hidden_size must be"), ("vocab_size", True, "vocab_size must be"),
          ("num_hidden_layers", 2.0, "num_hidden_layers must"), ("layer_norm_eps", "1", "eps must"),
          ("hidden_act", "silu", "gelu_new"), ("hidden_act", ["gelu"], "cannot be represented"),
          ("position_embedding_type", "relative_key", "position_embedding_type is"),
          ("is_decoder", True, "is_decoder is"), ("pruned_heads", {"0": [1]}, "pruned_heads is"))],
    *[case("", f"{len(v)} entries", model(vocab=v), f"{len(v)} entries", "90 rows", "take")
      for v in (VOCAB | {"new": 90}, dict([*VOCAB.items()][:-1]))],
    case(TOKENIZER, "WordLevel", model(type="WordLevel"), "'WordLevel' cannot be", "WordPiece"),
    case(TOKENIZER, "Unigram", model(type="Unigram"), "vocab must be a list", AGAIN),
    *[case(TOKENIZER, "half a surrogate pair", model(of, vocab=halve(of)), r"the entry '\ud800'",
           of=of) for of in ("bert", "roberta", "xlm_roberta")],
    *[case("", f"{name} alone", {TOKENIZER: None, name: b"x"}, f"{name} needs tokenizer.json",
           "AutoTokenizer.from_pretrained(", ").save_pretrained(", of="xlm_roberta")
      for name in ("sentencepiece.bpe.model", "spiece.model", "sentencepiece.model")],
    case(TOKENIZER, "accents", edit(TOKENIZER, normalizer=ACCENTS), "accents False with lower-"),
    case(TOKENIZER, "added", edit(TOKENIZER, added_tokens=[{"content": "<x>", "id": 90}]), "<x>"),
    *[case(TOKENIZER, f"{key} {value}", edit(TOKENIZER, **{key: value}), key)
      for key, value in (("model", 5), ("normalizer", [5]))],
    case(TOKENIZER, "added tokens", edit(TOKENIZER, added_tokens=[{"id": 0}]), "'content'"),
    case(TOKENIZER, "longest word", model(max_input_chars_per_word="x"), "max_input_chars"),
    *[case(TOKENIZER, f"merges {m}", model("roberta", merges=m), says, of="roberta")
      for m, says in ((["q zz"], UNFIT), ([5], "merge"))],
    *[case(at, f"merges {m!r}", {TOKENIZER: None, "merges.txt": m}, says, of="roberta")
      for at, m, says in (("vocab.json", b"q zz\n", UNFIT), ("merges.txt", b"\xff", "UTF-8"))],
    case(SETTINGS, "casing", {TOKENIZER: None, **edit(SETTINGS, do_lower_case="no")}, "lower_case"),
    case(MODULES, "LSTM", sentence(MEAN, "LSTM"), "Transformer, Pooling, LSTM", "Normalize can"),
    case("", "two Dense", {MODULES: [*DISTILUSE[:3], *DISTILUSE[2:]]}, "two modules Dense cannot",
         of="distiluse"),
    case(MODULES, "three Dense", {MODULES: [*DISTILUSE, *DISTILUSE[2:3] * 2]}, "Dense, Dense",
         of="distiluse"),
    *[case(at, f"{key} {value}", edit(DENSE, "distiluse", **{key: value}), says, of="distiluse")
      for at, key, value, says in (
          (DENSE, "activation_function", "torch.nn.GELU", "'torch.nn.GELU' cannot be represented"),
          (DENSE, "use_residual", True, "use_residual True"),
          ("2_Dense", "out_features", 9, "16 to 9 components"))],
    *[case(POOLING, f"{p}", sentence(p), *(k for k in p if p[k] is True), "mean can")
      for p in (WEIGHTED, MEAN | {"pooling_mode_cls_token": True}, {"pooling_mode": 5})],
    *[case(MODULES, f"path {path}", sentence(MEAN, path=path), f"names {path!r}, which is")
      for path in ("../1_Pooling", "/1_Pooling")],
    case(PROMPTS, "prompt", sentence(MEAN) | {PROMPTS: {"default_prompt_name": "q"}}, "_name 'q'"),
    case(PROMPTS, "prompts", sentence(MEAN) | {PROMPTS: {"prompts": {"q": 1}}}, "prompts must be"),
    case(POOLING, "prompts left out", sentence(MEAN | {"include_prompt": False})
         | {PROMPTS: {"prompts": {"q": "q: "}}}, "include_prompt false", "delete the prompts"),
    *[case(LENGTH, n, sentence(MEAN) | {LENGTH: {"max_seq_length": n}}, "max_") for n in ("x", -4)],
]  # fmt: skip


@pytest.mark.parametrize("at, changes, says, of", CASES)
def test_a_bad_folder_is_refused_by_the_file_at_fault(tmp_path, at, changes, says, of):
    check_refused(copy(tmp_path / "source", changes, of), tmp_path, tmp_path / "source" / at, *says)


@pytest.mark.parametrize("path, says", [
    ("https://x/y", "a URL; download"), ("gs://x/y", "a URL; download"), ("/no/x", "no such fold"),
    ("a.bin", "not a checkpoint that can be imported; name a folder"), (SHARD, "damaged"),
])  # fmt: skip
def test_sources_without_a_checkpoint_are_refused(tmp_path, monkeypatch, path, says):
    monkeypatch.chdir(copy(tmp_path / "source", {"a.bin": WHOLE[9:500], SHARD: WHOLE[9:500]}))
    check_refused(path, tmp_path, path, says)


@pytest.mark.parametrize("kind, wrong, says", [
    *[(k, part, "fetch") for k in ("TF1", "TF2") for part in ("data-00000-of-00001", "index")],
    ("TF1", "layer_0/self_attention/query/kernel", "query/kernel"),
    *[("TF1", f'{{"num_attention_heads": {heads}}}', "heads") for heads in ("3", '"2"')],
    ("TF1", '{"num_attention_heads": 2, "hidden_act": "silu"}', "'silu'"),
])  # fmt: skip
def test_a_bad_tensorflow_checkpoint_is_refused(tmp_path, kind, wrong, says):
    """`wrong`: a file to truncate, a tensor to leave out (TF1), or the configuration."""
    config = wrong if wrong.startswith("{") else '{"num_attention_heads": 2}'
    folder = copy(tmp_path / "source", {"bert_config.json": config.encode()})
    source, prefix = read_source(str(BERT), OPTIONS), str(folder / "bert_model.ckpt")
    if kind == "TF2":
        tf.train.Checkpoint(encoder=build(source)[0]).write(prefix)
    else:
        tensors = {n: t for n, t in source.encoder.items() if not n.endswith(wrong)}
        flat = [tensor.reshape(flat_shape(name, tensor.shape)) for name, tensor in tensors.items()]
        slices, names = [""] * len(tensors), [*tensors]
        tf.raw_ops.SaveV2(prefix=prefix, tensor_names=names, shape_and_slices=slices, tensors=flat)
    if (path := Path(f"{prefix}.{wrong}")).exists():
        read_source(str(folder), OPTIONS)
        path.write_bytes(path.read_bytes()[:-100])
    check_refused(
        folder, tmp_path, folder / "bert_config.json" if config == wrong else prefix, says
    )


@pytest.mark.parametrize("call, at, says", [
    (None, "variables/variables", "holds no BERT encoder"),
    ("uncallable", "", "damaged (TypeError"),
    (lambda o: o * 2, "", "outputs differ"),
    (lambda o: o[:, :3], "", "sequence_output"),
], ids=["no encoder", "no function", "other outputs", "other shape"])  # fmt: skip
def test_saved_model_without_encoder_is_refused(tmp_path, call, at, says):
    module, encoder = tf.Module(), build(read_source(str(BERT), OPTIONS))[0]
    # The variables alone: Keras would save every call of its layers, which takes seconds.
    module.part = list(encoder.variables) if call else tf.Variable(1.0)
    if callable(call):
        spec = tf.TensorSpec([None, None], tf.int32)
        ids = {f"input_{name}": spec for name in ("word_ids", "mask", "type_ids")}
        module.__call__ = tf.function(
            lambda inputs, training: {"sequence_output": call(encoder(inputs)["sequence_output"])},
            [ids, tf.TensorSpec([], tf.bool)], autograph=False)  # fmt: skip
    tf.saved_model.save(module, str(tmp_path / "source"))
    shutil.copy(BERT / "vocab.txt", tmp_path / "source" / "assets")
    check_refused(tmp_path / "source", tmp_path, tmp_path / "source" / at, says)


def test_an_output_in_the_way_stays_until_a_whole_one_replaces_it(tmp_path, monkeypatch):
    def write(name, source, overwrite=True):
        import_checkpoint(str(source), str(tmp_path / name), OPTIONS, overwrite)

    write("encoder", BERT, overwrite=False)
    copy(tmp_path / "other", {WEIGHTS: None})
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    with pytest.raises(UserError, match="other: exists and holds no encoder; name another"):
        write("other", BERT)
    with pytest.raises(UserError, match="encoder: holds an encoder already; pass --overwrite"):
        write("encoder", BERT, overwrite=False)
    with pytest.raises(UserError, match="other: no weights"):
        write("encoder", tmp_path / "other")
    with monkeypatch.context() as patch, pytest.raises(TypeError, match="not callable"):
        patch.setattr(importing, "write_weights", None)  # A failure after half of the writing.
        write("encoder", BERT)
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before
    (tmp_path / "encoder" / "train_summary.json").write_text("{}")
    with pytest.raises(UserError, match="encoder: holds train_summary.json, which this program"):
        write("encoder", BERT)
    (tmp_path / "encoder" / "train_summary.json").unlink()
    write("encoder", REFERENCES / "roberta")
    assert {p.name for p in tmp_path.iterdir()} == {"encoder", "other"}
    assert (tmp_path / "encoder" / "merges.txt").exists()  # RoBERTa's now.


@pytest.mark.parametrize("changes, like", [
    *[({WEIGHTS: h}, {WEIGHTS: {n: t.astype("float32") for n, t in h.items()}}) for h in HALF],
    (SHARDS | {WEIGHTS: None, INDEX: MAP}, {}),
    ({WEIGHTS: {n.replace("Norm.weight", "Norm.gamma").replace("Norm.bias", "Norm.beta"): t
                for n, t in TENSORS.items()}}, {}),
    ({WEIGHTS: TENSORS | SURPLUS}, {}),
    ({WEIGHTS: TENSORS | {"steps": np.zeros([1], np.int64)}}, {}),
], ids=["float16", "bfloat16", "sharded", "gamma, beta", "surplus", "int64 surplus"])  # fmt: skip
def test_other_forms_are_widened_joined_and_renamed_to_the_same(tmp_path, changes, like):
    folders = copy(tmp_path / "a", changes), copy(tmp_path / "b", like)
    a, b = (read_source(str(f), ImportOptions(drop_surplus=True)) for f in folders)
    np.testing.assert_equal([a.encoder, a.head], [b.encoder, b.head])
    assert {tensor.dtype.name for tensor in a.encoder.values()} == {"float32"}


def test_non_finite_weights_are_refused(tmp_path):
    broken = TENSORS | {TABLE: np.full([90, 16], np.nan, np.float32)}
    folder = copy(tmp_path / "source", {WEIGHTS: broken})
    check_refused(
        folder,
        tmp_path,
        folder,
        "word_embeddings/embeddings holds non-finite values",
        "take another",
    )


def test_the_current_folder_can_be_named(monkeypatch):
    monkeypatch.chdir(BERT)
    assert read_source(".", OPTIONS).config.vocab_size == 90


def test_the_binary_says_one_line_and_exits_with_1(tmp_path, capsys):
    source = copy(tmp_path / "source", {WEIGHTS: WHOLE[:-100]})
    arguments = (f"--source={source}", f"--output_dir={tmp_path / 'output'}")
    assert call("official_cmlm.checkpoints.import_checkpoint", *arguments) == 1
    output, errors = capsys.readouterr()
    assert output == ""
    assert re.fullmatch(f"error: {source / WEIGHTS}: damaged .*fetch it again\n", errors)
    assert not (tmp_path / "output").exists()
