"""Writes an encoder as an ONNX graph: the forward pass of `modeling.cpu_forward`.

The graph is made of the operations that ONNX Runtime has for Transformers (`com.microsoft`), so
that nothing depends on what its optimiser recognises. With 8-bit weights the products are integer
products: each input is quantised at run time with one scale, each column of a weight has a scale of
its own, and so has each entry of the word table.
"""

import dataclasses
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from official_cmlm.checkpoints.encoder_arrays import EncoderWeights
from official_cmlm.common.errors import UserError
from official_cmlm.configs.encoder import EncoderConfig, buckets_of_distances
from official_cmlm.encoding.backends.onnx_messages import (
    ELEMENT_TYPES,
    message,
    node_of,
    tensor_of,
    value_info,
)
from official_cmlm.encoding.backends.onnx_session import IDS, MASK, TYPES

if TYPE_CHECKING:
    from official_cmlm.tokenization import Vocabulary

# Version of ONNX's operators, and the oldest version of the format that has them all.
_OPSET, _IR_VERSION = 18, 9
_CONTRIB = "com.microsoft"
# A graph with its weights is one protobuf message, which is limited to 2 GiB.
_MOST_BYTES = (1 << 31) - (1 << 20)
# A lower bound of GELU.
_LOWEST_GELU = -0.17
_FLOAT, _INT32 = ELEMENT_TYPES["float32"], ELEMENT_TYPES["int32"]
TOKENS, SENTENCE = "last_hidden_state", "sentence_embedding"
# Folder of the graphs in an exported folder, where sentence-transformers looks for them.
SUBFOLDER = "onnx"
# Key of the metadata with the `GraphDescription`.
METADATA = "official_cmlm"


# Precision, which is also the end of a file's name -> the largest integer of the weights; the
# smallest is its negative; None: float32. AVX2 without VNNI sums two 8-bit products in 16 bits,
# which saturate: 2 · 255 · 127 is above 32,767, 2 · 255 · 64 is not.
PRECISIONS: dict[str, int | None] = {"float32": None, "qint8_avx2": 64, "qint8_avx512_vnni": 127}


@dataclasses.dataclass(frozen=True)
class GraphDescription:
    """Facts that a program needs besides the graph, which holds them as JSON under `METADATA`.

    Attributes:
      dimension: width of `sentence_embedding`.
      max_positions: the longest sequence that the graph takes, in tokens.
      max_seq_length: longer texts are cut to so many tokens, special ones included.
      padded_length: see `EncoderConfig.padded_length`.
      pooling, sentence_vector, normalize: the encoder's.
      precision: a key of `PRECISIONS`.
      vocabulary: kind of the vocabulary, `wordpiece`, `byte_pair` or `sentencepiece`.
      settings: the vocabulary's settings.
    """

    dimension: int
    max_positions: int
    max_seq_length: int
    padded_length: int
    pooling: str
    sentence_vector: str
    normalize: bool
    precision: str
    vocabulary: str
    settings: Mapping[str, bool | int | str]


def graph_name(precision: str) -> str:
    """Returns the name of a graph's file: `model.onnx`, `model_qint8_avx2.onnx`."""
    return "model.onnx" if precision == "float32" else f"model_{precision}.onnx"


def graph_of(
    encoder: EncoderWeights,
    vocabulary: "Vocabulary",
    max_seq_length: int,
    precision: str,
    token_types: bool = True,
) -> bytes:
    """Writes an encoder as an ONNX file and returns its content.

    Its inputs are int64 `[batch, seq]`: `input_ids`, `attention_mask` (1 for real tokens, which
    come first) and optionally `token_type_ids`. Its outputs are float32: `sentence_embedding`
    `[batch, embedding_size]`, as `encode` returns, and `last_hidden_state` `[batch, seq, hidden]`.

    Args:
      encoder: its config and weights.
      vocabulary: its vocabulary.
      max_seq_length: longer texts are cut to this many tokens.
      precision: a key of `PRECISIONS`.
      token_types: whether the graph takes token types; otherwise each is 0.

    Raises:
      UserError: for an encoder beyond 2 GiB, or one with a weight that the graph does not read.
    """
    config = encoder.config
    description = GraphDescription(
        dimension=config.embedding_size,
        max_positions=config.max_seq_length,
        max_seq_length=max_seq_length,
        padded_length=config.padded_length,
        pooling=config.pooling,
        sentence_vector=config.sentence_vector,
        normalize=config.normalize,
        precision=precision,
        vocabulary=vocabulary.kind,
        settings=vocabulary.settings(),
    )
    graph, read = _Graph(PRECISIONS[precision]), _Read(encoder.encoder)
    names = [IDS, MASK, *([TYPES] if token_types and config.type_vocab_size else [])]
    _Encoder(graph, read, config).build(encoder.projection, TYPES in names)
    # Every encoder has BERT's pooler, but only some vectors go through it.
    unread = sorted(name for name in read.find_unread() if not name.startswith("pooler_transform/"))
    if unread:
        raise UserError(
            f"the encoder's weights {', '.join(unread)[:200]}: ONNX graphs do not have what "
            "computes with them; export it with export.export_tfhub"
        )
    size = sum(len(tensor.raw_data) for tensor in graph.tensors)
    if size > _MOST_BYTES:
        raise UserError(
            f"an ONNX file holds 2 GiB, this encoder's weights are {size / 2**30:.1f} GiB; take "
            "the backend tensorflow, or export it with export.export_tfhub"
        )
    described = json.dumps(dataclasses.asdict(description))
    model = message(
        "ModelProto",
        ir_version=_IR_VERSION,
        producer_name="official_cmlm",
        graph=graph.build(
            {name: ["batch", "seq"] for name in names},
            # Programs that take outputs by their position, such as FastEmbed, take the first one.
            {
                SENTENCE: ["batch", config.embedding_size],
                TOKENS: ["batch", "seq", config.hidden_size],
            },
        ),
        opset_import=[{"domain": "", "version": _OPSET}, {"domain": _CONTRIB, "version": 1}],
        metadata_props=[{"key": METADATA, "value": described}],
    )
    return model.SerializeToString()


class _Read(dict[str, np.ndarray]):
    """Weights by name, with a record of which were looked up."""

    def __init__(self, weights: Mapping[str, np.ndarray]) -> None:
        super().__init__(weights)
        self._names: set[str] = set()

    def __getitem__(self, name: str) -> np.ndarray:
        self._names.add(name)
        return super().__getitem__(name)

    def find_unread(self) -> set[str]:
        """Returns the names of weights that were never looked up."""
        return self.keys() - self._names


class _Graph:
    """An ONNX graph under construction; its methods take and return names of tensors."""

    def __init__(self, largest: int | None) -> None:
        self.tensors: list[Any] = []
        self._nodes: list[Any] = []
        self._constants: dict[tuple, str] = {}
        self._largest = largest

    def tensor(self, name: str, array: np.ndarray) -> str:
        """Adds a weight or another constant."""
        self.tensors.append(tensor_of(name, array))
        return name

    @property
    def is_float(self) -> bool:
        """Whether the weights are float32."""
        return self._largest is None

    def ints(self, *values: int, dtype: type = np.int64) -> str:
        """Adds a constant vector."""
        return self._constant(np.array(values, dtype))

    def scalar(self, value: float, dtype: type = np.float32) -> str:
        """Adds a constant scalar."""
        return self._constant(np.array(value, dtype))

    def _constant(self, array: np.ndarray) -> str:
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self._constants:
            name = f"constant_{len(self._constants)}"
            self._constants[key] = self.tensor(name, array)
        return self._constants[key]

    def add(
        self, kind: str, *inputs: str, domain: str = "", output: str = "", **attributes: Any
    ) -> str:
        """Adds a node and returns its first output; an omitted input is an empty string."""
        name = output or f"{kind}_{len(self._nodes)}"
        node = node_of(kind, inputs, [name], **attributes)
        node.name, node.domain = f"{name}/node", domain
        self._nodes.append(node)
        return name

    def contrib(self, kind: str, *inputs: str, output: str = "", **attributes: Any) -> str:
        """Adds a node of ONNX Runtime's own operators."""
        return self.add(kind, *inputs, domain=_CONTRIB, output=output, **attributes)

    def several(self, kind: str, inputs: list[str], outputs: list[str], **attributes: Any) -> None:
        """Adds a node with several outputs of given names."""
        self._nodes.append(node_of(kind, inputs, outputs, **attributes))

    def product(self, values: str, name: str, kernel: np.ndarray, bias: np.ndarray | None) -> str:
        """Adds `values · kernel (+ bias)`, an integer product if the weights are integers."""
        bias_name = "" if bias is None else self.tensor(f"{name}/bias", bias)
        if self.is_float:
            kernel_name = self.tensor(f"{name}/kernel", kernel)
            out = self.add("MatMul", values, kernel_name)
            return self.add("Add", out, bias_name) if bias_name else out
        integers, scale = self.round(name, kernel)
        zero = self.ints(*[0] * kernel.shape[1], dtype=np.int8)
        return self.contrib("DynamicQuantizeMatMul", values, integers, scale, zero, bias_name)

    def product_by_row(self, values: str, name: str, kernel: np.ndarray, bias: np.ndarray) -> str:
        """Adds a `product` of activations whose rows differ much in size and are above -0.17.

        The outputs of GELU are hundreds of times larger at a few tokens. With one scale for all,
        other tokens would use few of the integers, so each row is first divided by its largest
        value.
        """
        if self.is_float:
            return self.product(values, name, kernel, bias)
        largest = self.add("ReduceMax", values, self.ints(-1), keepdims=1)
        largest = self.add("Max", largest, self.scalar(-_LOWEST_GELU))
        out = self.product(self.add("Div", values, largest), name, kernel, None)
        return self.add("Add", self.add("Mul", out, largest), self.tensor(f"{name}/bias", bias))

    def round(self, name: str, kernel: np.ndarray) -> tuple[str, str]:
        """Adds a kernel `[in, out]` as int8 and the scales of its columns, float32 `[out]`."""
        scale = np.maximum(np.abs(kernel).max(axis=0), 1e-30) / self._largest
        integers = np.clip(np.rint(kernel / scale), -self._largest, self._largest)
        return (
            self.tensor(f"{name}/kernel_int8", integers.astype(np.int8)),
            self.tensor(f"{name}/kernel_scale", scale.astype(np.float32)),
        )

    def build(self, inputs: Mapping[str, list], outputs: Mapping[str, list]) -> Any:
        """Returns the graph, with inputs of int64 and outputs of float32 by name and shape."""
        return message(
            "GraphProto",
            node=self._nodes,
            name="sentence_encoder",
            initializer=self.tensors,
            input=[value_info(name, "int64", shape) for name, shape in inputs.items()],
            output=[value_info(name, "float32", shape) for name, shape in outputs.items()],
        )


class _Encoder:
    """Builder of the forward pass of `modeling.cpu_forward`."""

    def __init__(
        self, graph: _Graph, weights: Mapping[str, np.ndarray], config: EncoderConfig
    ) -> None:
        self._graph, self._weights, self._config = graph, weights, config

    def build(self, projection: list[tuple[np.ndarray, np.ndarray]], token_types: bool) -> None:
        """Adds the whole forward pass to the graph."""
        graph, config = self._graph, self._config
        ids, mask, types = IDS, MASK, TYPES if token_types else ""
        shape = graph.add("Shape", ids)
        if config.padded_length:
            ids, mask, types = self._pad(ids, mask, types)
        mask = graph.add("Cast", mask, to=_INT32)
        hidden = self._embeddings(ids, types)
        bias = self._relative_bias(ids) if config.relative_position_buckets else ""
        layers = [hidden]
        for index in range(config.num_layers):
            hidden = self._layer(hidden, mask, bias, f"transformer/layer_{index}")
            layers.append(hidden)
        ends = graph.add("Slice", shape, graph.ints(1), graph.ints(2), graph.ints(0))
        graph.add("Slice", hidden, graph.ints(0), ends, graph.ints(1), output=TOKENS)
        vector = self._pool(layers, ids, mask)
        if projection:
            vector = self._project_mean(vector, projection)
        if config.dense_size:
            vector = self._dense(vector, "dense")
            vector = graph.add("Tanh", vector) if config.dense_activation == "tanh" else vector
        if config.normalize:
            norm = graph.add("ReduceL2", vector, graph.ints(-1), keepdims=1)
            vector = self._quotient(vector, norm)
        graph.add("Identity", vector, output=SENTENCE)

    def _pad(self, ids: str, mask: str, types: str) -> tuple[str, str, str]:
        """See `modeling.pooling.pad`."""
        graph, config = self._graph, self._config
        length = graph.add("Gather", graph.add("Shape", ids), graph.ints(1))
        more = graph.add("Sub", graph.ints(config.padded_length), length)
        more = graph.add("Max", more, graph.ints(0))
        pads = graph.add("Concat", graph.ints(0, 0, 0), more, axis=0)
        mask = graph.add("Pad", mask, pads)
        real = graph.add("Greater", mask, graph.ints(0))
        padding = graph.scalar(config.padding_id, np.int64)
        ids = graph.add("Where", real, graph.add("Pad", ids, pads), padding)
        return ids, mask, types and graph.add("Pad", types, pads)

    def _embeddings(self, ids: str, types: str) -> str:
        graph, config = self._graph, self._config
        positions = self._weights["position_embedding/embeddings"][config.position_offset :]
        all_types = self._weights["type_embeddings/embeddings"]
        if not types:
            positions = positions + all_types[0]
        length = graph.add("Slice", graph.add("Shape", ids), *(graph.ints(n) for n in (1, 2, 0)))
        table = graph.tensor("position_embedding/embeddings", positions)
        hidden = graph.add("Slice", table, graph.ints(0), length, graph.ints(0))
        if types:
            table = graph.tensor("type_embeddings/embeddings", all_types)
            hidden = graph.add("Add", hidden, graph.add("Gather", table, types))
        hidden = graph.add("Add", self._words(ids), hidden)
        scale, shift = self._norm_weights("embeddings/layer_norm")
        epsilon = config.layer_norm_epsilon
        hidden = graph.add("LayerNormalization", hidden, scale, shift, epsilon=epsilon)
        # This product is always float32: it is a thousandth of the work.
        return self._dense(hidden, "embedding_projection") if config.embedding_width else hidden

    def _words(self, ids: str) -> str:
        """Adds the rows of the word table; rows of integers are gathered before they are scaled."""
        graph, name = self._graph, "word_embeddings/embeddings"
        if graph.is_float:
            return graph.add("Gather", self._tensor(name), ids)
        # Each entry has a scale. No products are summed here that could overflow, so the integers
        # reach 127 in every precision.
        table = self._weights[name]
        scale = np.maximum(np.abs(table).max(axis=1, keepdims=True), 1e-30) / 127
        rows = graph.tensor(f"{name}_int8", np.rint(table / scale).astype(np.int8))
        scales = graph.tensor(f"{name}_scale", scale.astype(np.float32))
        integers = graph.add("Cast", graph.add("Gather", rows, ids), to=_FLOAT)
        return graph.add("Mul", integers, graph.add("Gather", scales, ids))

    def _relative_bias(self, ids: str) -> str:
        """See `modeling.relative_positions.relative_bias`: `[batch, heads, seq, seq]`."""
        graph, table = self._graph, self._weights["relative_attention_bias/embeddings"]
        # The bias of each distance, [distances, heads].
        rows = table[buckets_of_distances(len(table))]
        farthest = len(rows) // 2
        batch, length = (
            graph.add("Gather", graph.add("Shape", ids), graph.scalar(n, np.int64)) for n in (0, 1)
        )
        zero, step = graph.scalar(0, np.int64), graph.scalar(1, np.int64)
        positions = graph.add("Range", zero, length, step)
        queries = graph.add("Unsqueeze", positions, graph.ints(1))
        limits = [graph.scalar(limit, np.int64) for limit in (-farthest, farthest)]
        places = graph.add("Clip", graph.add("Sub", positions, queries), *limits)
        places = graph.add("Add", places, limits[1])
        bias = graph.add("Gather", graph.tensor("relative_attention_bias/distances", rows), places)
        bias = graph.add("Transpose", bias, perm=[2, 0, 1])
        # ONNX Runtime before 1.20 needs the bias of every text.
        batch = graph.add("Unsqueeze", batch, graph.ints(0))
        shape = graph.add("Concat", batch, graph.add("Shape", bias), axis=0)
        return graph.add("Expand", bias, shape)

    def _layer(self, hidden: str, mask: str, bias: str, scope: str) -> str:
        """Adds one Transformer block on `[batch, seq, hidden]`."""
        graph, config = self._graph, self._config
        context = self._attention(hidden, mask, bias, f"{scope}/self_attention")
        attended = self._product(context, f"{scope}/self_attention/attention_output")
        hidden = self._norm(attended, hidden, f"{scope}/self_attention_layer_norm")
        inner = self._product(hidden, f"{scope}/intermediate")
        if config.hidden_activation == "relu":
            inner = graph.add("Relu", inner)
        else:
            kind = "Gelu" if config.hidden_activation == "gelu_exact" else "FastGelu"
            inner = graph.contrib(kind, inner)
        outer = self._product(inner, f"{scope}/output", by_row=True)
        return self._norm(outer, hidden, f"{scope}/output_layer_norm")

    def _attention(self, hidden: str, mask: str, added: str, scope: str) -> str:
        graph, width = self._graph, self._config.hidden_size
        names = [f"{scope}/{role}" for role in ("query", "key", "value")]
        kernels = [self._weights[f"{name}/kernel"].reshape(width, width) for name in names]
        biases = [self._weights[f"{name}/bias"].reshape(width) for name in names]
        kernel, bias = np.concatenate(kernels, axis=1), np.concatenate(biases)
        # Scores of padding get this value, so their attention weights are 0 in float32.
        settings = {"num_heads": self._config.num_attention_heads, "mask_filter_value": -1e9}
        if graph.is_float:
            kernel_name = graph.tensor(f"{scope}/kernel", kernel)
            bias_name = graph.tensor(f"{scope}/bias", bias)
            inputs = [hidden, kernel_name, bias_name, mask, *(["", added] if added else [])]
            return graph.contrib("Attention", *inputs, **settings)
        # The two matrix products of the attention stay in float32.
        both = graph.product(hidden, scope, kernel, bias)
        sizes = graph.ints(width, width, width)
        parts = [f"{scope}/{role}_values" for role in ("query", "key", "value")]
        graph.several("Split", [both, sizes], parts, axis=2)
        inputs = [*parts, "", mask, *([added] if added else [])]
        return graph.contrib("MultiHeadAttention", *inputs, **settings)

    def _product(self, values: str, name: str, by_row: bool = False) -> str:
        bias = self._weights[f"{name}/bias"].reshape(-1)
        kernel = self._weights[f"{name}/kernel"].reshape(-1, len(bias))
        product = self._graph.product_by_row if by_row else self._graph.product
        return product(values, name, kernel, bias)

    def _norm(self, values: str, skipped: str, name: str) -> str:
        scale, shift = self._norm_weights(name)
        epsilon = self._config.layer_norm_epsilon
        inputs = (values, skipped, scale, shift)
        return self._graph.contrib("SkipLayerNormalization", *inputs, epsilon=epsilon)

    def _norm_weights(self, name: str) -> tuple[str, str]:
        return self._tensor(f"{name}/gamma"), self._tensor(f"{name}/beta")

    def _tensor(self, name: str) -> str:
        return self._graph.tensor(name, self._weights[name])

    def _pool(self, layers: list[str], ids: str, mask: str) -> str:
        """See `modeling.pooling.sentence_vector`."""
        graph, pooling, hidden = self._graph, self._config.pooled_by, layers[-1]
        if pooling.averaged_with is not None:
            both = graph.add("Add", layers[pooling.averaged_with], hidden)
            hidden = graph.add("Mul", both, graph.scalar(0.5))
        if pooling.first_token:
            vector = graph.add("Gather", hidden, graph.scalar(0, np.int64), axis=1)
            if pooling.pooler:
                vector = graph.add("Tanh", self._dense(vector, "pooler_transform"))
            return vector
        if pooling.padded:
            mask = self._with_padding(mask)
        real = graph.add("Cast", mask, to=_FLOAT)
        real = graph.add("Unsqueeze", real, graph.ints(2))
        if pooling.weighted:
            counts = np.exp(self._weights["token_weights/embeddings"])
            table = graph.tensor("token_counts", counts)
            real = graph.add("Mul", real, graph.add("Gather", table, ids, axis=0))
        if pooling.reduction == "max":
            # `[batch, 1]`: whether a row has a real token.
            any_real = graph.add("ReduceMax", real, graph.ints(1), keepdims=0)
            is_real = graph.add("Greater", real, graph.scalar(0))
            lowest = graph.scalar(np.finfo(np.float32).min)
            outputs = graph.add("Where", is_real, hidden, lowest)
            largest = graph.add("ReduceMax", outputs, graph.ints(1), keepdims=0)
            there = graph.add("Greater", any_real, graph.scalar(0))
            return graph.add("Where", there, largest, graph.scalar(0))
        total = graph.add("ReduceSum", graph.add("Mul", hidden, real), graph.ints(1), keepdims=0)
        return self._quotient(total, graph.add("ReduceSum", real, graph.ints(1), keepdims=0))

    def _with_padding(self, mask: str) -> str:
        """See `modeling.pooling.with_padding`."""
        graph, length = self._graph, self._config.padded_length
        positions = np.arange(self._config.max_seq_length)[np.newaxis] < length
        table = graph.tensor("within_padded_length", positions.astype(np.int32))
        seq = graph.add("Slice", graph.add("Shape", mask), *(graph.ints(n) for n in (1, 2, 0)))
        inside = graph.add("Slice", table, graph.ints(0), seq, graph.ints(1))
        any_real = graph.add("ReduceMax", mask, graph.ints(1), keepdims=1)
        return graph.add("Max", mask, graph.add("Mul", inside, any_real))

    def _project_mean(self, vector: str, layers: list[tuple[np.ndarray, np.ndarray]]) -> str:
        """Adds the mean over CMLM's projections of `[batch, hidden]`; the first is the identity."""
        graph, count = self._graph, 1 + len(layers[0][0])
        # [N - 1, batch, hidden]; the products stay in float32, as each text has only one vector.
        values = graph.add("Unsqueeze", vector, graph.ints(0))
        for index, (kernel, bias) in enumerate(layers):
            values = values if index == 0 else graph.add("Relu", values)
            values = graph.add("MatMul", values, graph.tensor(f"projection/kernel_{index}", kernel))
            shift = graph.tensor(f"projection/bias_{index}", bias[:, np.newaxis])
            values = graph.add("Add", values, shift)
        total = graph.add("ReduceSum", values, graph.ints(0), keepdims=0)
        return graph.add("Div", graph.add("Add", total, vector), graph.scalar(count))

    def _dense(self, values: str, name: str) -> str:
        product = self._graph.add("MatMul", values, self._tensor(f"{name}/kernel"))
        return self._graph.add("Add", product, self._tensor(f"{name}/bias"))

    def _quotient(self, values: str, divisor: str) -> str:
        """Adds a quotient that is 0 where the divisor is 0; the divisor is not negative."""
        graph = self._graph
        there = graph.add("Greater", divisor, graph.scalar(0))
        safe = graph.add("Where", there, divisor, graph.scalar(1))
        divided = graph.add("Div", values, safe)
        return graph.add("Where", there, divided, graph.scalar(0))
