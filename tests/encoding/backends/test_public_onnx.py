"""ONNX folders of other projects: graphs of one or two operators beside BERT's tokenizer."""

import shutil

import numpy as np
import pytest
import tokenizers

from official_cmlm.common.errors import UserError
from official_cmlm.encoding.backends.onnx_messages import message, node_of, tensor_of, value_info
from official_cmlm.encoding.backends.public_onnx import PublicOnnxBackend
from official_cmlm.encoding.sentence_encoder import SentenceEncoder
from tests.checkpoints.helpers import REFERENCES, TEXTS


def _write(
    folder, dtype="int64", rows="batch", length="seq", name="token_embeddings", pooled=False
):
    """Writes a graph that looks ids up in a table, and returns the table."""
    copied = ("config.json", "tokenizer.json", "tokenizer_config.json", "vocab.txt")
    folder.mkdir()
    for file in copied:
        shutil.copy(REFERENCES / "bert" / file, folder)
    size = len((folder / "vocab.txt").read_text(encoding="utf-8").splitlines())
    table = np.random.default_rng(7).standard_normal([size, 4]).astype(np.float32)
    nodes = [node_of("Gather", ["table", "input_ids"], ["tokens" if pooled else name])]
    if pooled:
        nodes.append(node_of("ReduceMean", ["tokens"], [name], axes=[1], keepdims=0))
    graph = message(
        "GraphProto",
        node=nodes,
        name="graph",
        initializer=[tensor_of("table", table)],
        input=[value_info("input_ids", dtype, [rows, length])],
        output=[value_info(name, "float32", [rows, 4] if pooled else [rows, length, 4])],
    )
    model = message("ModelProto", ir_version=8, graph=graph, opset_import=[{"version": 13}])
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    return table


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize(("rows", "length"), [("batch", "seq"), (1, "seq"), (4, 24), ("batch", 24)])
def test_graphs_of_fixed_sizes_pool_real_tokens_alone(tmp_path, dtype, rows, length):
    table = _write(tmp_path / "public", dtype, rows, length)
    encoder = SentenceEncoder.load(tmp_path / "public")
    library = tokenizers.Tokenizer.from_file(str(REFERENCES / "bert/tokenizer.json"))
    texts = [text for text in [*TEXTS, "a", ""] if len(library.encode(text).ids) <= 24]
    expected = [table[library.encode(text).ids].mean(axis=0) for text in texts]
    np.testing.assert_allclose(encoder.encode(texts), expected, atol=1e-6)
    assert encoder.max_seq_length == (24 if length == 24 else 40) and len(texts) > 2
    assert np.isfinite(encoder.encode(["a " * 100], on_long="ignore")).all()


def test_sentence_vectors_are_taken_as_they_are(tmp_path):
    table = _write(tmp_path / "public", "int32", 1, name="sentence_embedding", pooled=True)
    library = tokenizers.Tokenizer.from_file(str(REFERENCES / "bert/tokenizer.json"))
    vector = SentenceEncoder.load(tmp_path / "public").encode(["a"])[0]
    np.testing.assert_allclose(vector, table[library.encode("a").ids].mean(axis=0), atol=1e-6)


def test_graph_with_an_endless_loop_is_stopped_in_one_line(tmp_path, monkeypatch):
    _write(tmp_path / "public")
    onnx = pytest.importorskip("onnx")
    make, info = onnx.helper, onnx.helper.make_tensor_value_info
    flag, number = onnx.TensorProto.BOOL, onnx.TensorProto.INT64
    nodes = [make.make_node("Identity", [name], [f"{name}_out"]) for name in ("go", "tokens")]
    inputs = [info("turn", number, []), info("go", flag, []), info("tokens", 1, None)]
    outputs = [info("go_out", flag, []), info("tokens_out", 1, None)]
    model = onnx.load(tmp_path / "public" / "model.onnx")
    model.graph.node[0].output[0] = "looked_up"
    body = make.make_graph(nodes, "body", inputs, outputs)
    values = ["turns", "always", "looked_up"]
    model.graph.node.append(make.make_node("Loop", values, ["token_embeddings"], body=body))
    for name, value in (("turns", np.int64(2**62)), ("always", np.bool_(True))):
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(value), name))
    onnx.save(model, tmp_path / "public" / "model.onnx")
    monkeypatch.setattr(PublicOnnxBackend, "most_seconds", 0.01)
    with pytest.raises(UserError, match=r"model\.onnx: did not end in 0\.01 s; "):
        SentenceEncoder.load(tmp_path / "public", backend="onnx")


@pytest.mark.parametrize(
    ("graph", "says"),
    [
        ({"pooled": True}, r"token_embeddings has the shape \[1, 4\]"),
        ({"name": "sentence_embedding"}, r"sentence_embedding has the shape \[1, 2, 4\]"),
        ({"name": "pooled", "pooled": True}, r"pooled has the shape \[1, 4\]"),
        ({"dtype": "float32"}, "model.onnx: damaged"),
        ({"length": 1}, "public: "),
    ],
)
def test_other_graphs_are_refused_in_one_line(tmp_path, graph, says):
    _write(tmp_path / "public", **graph)
    with pytest.raises(UserError, match=says) as caught:
        SentenceEncoder.load(tmp_path / "public", backend="onnx")
    assert str(caught.value).isprintable() and str(tmp_path / "public") in str(caught.value)
