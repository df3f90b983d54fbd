"""The ops that the exported modules may have, so that TensorFlow Serving 2.18 loads them.

TensorFlow Serving links all of core TensorFlow of its own version, but TensorFlow Text 2.12.1 up to
its version 2.19 (`tensorflow_serving/workspace.bzl`; https://github.com/tensorflow/serving/pull/4057
says what that breaks).

`TEXT_OPS` are all ops that `import tensorflow_text` of 2.12.1 registers (`TF_GetAllOpList` after it
without those before it). `CORE_OPS` are those that the modules have; each is registered by
TensorFlow 2.12.1 too. An op that is missing here has first to be looked up there.
"""

import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

TEXT_OPS = frozenset(
    """
    CaseFoldUTF8 ConstrainedSequence FastBertNormalize FastWordpieceTokenizeWithOffsets
    FindSourceOffsets MaxSpanningTree NormalizeUTF8 NormalizeUTF8WithOffsetsMap PhraseTokenize
    RegexSplitWithOffsets RougeL SentenceFragments SentenceFragmentsV2
    SentencepieceDetokenizeOp SentencepieceIdToStringOp SentencepieceOp
    SentencepieceStringToIdOp SentencepieceTokenizeOp SentencepieceTokenizeWithOffsetsOp
    SentencepieceVocabSizeOp SplitMergeTokenizeWithOffsets TFText>BoiseTagsToOffsets
    TFText>ByteSplitByOffsets TFText>ByteSplitWithOffsets TFText>FastSentencepieceDetokenize
    TFText>FastSentencepieceTokenize TFText>FastWordpieceDetokenize TFText>NgramsStringJoin
    TFText>OffsetsToBoiseTags TFText>PhraseDetokenize TFText>WhitespaceTokenizeWithOffsetsV2
    TokenizerFromLogits UnicodeScriptTokenizeWithOffsets WhitespaceTokenizeWithOffsets
    WordpieceTokenizeWithOffsets
    """.split()
)

CORE_OPS = frozenset(
    """
    AddN AddV2 All Any Assert AssignVariableOp BatchMatMulV2 BiasAdd BroadcastTo Cast
    CheckNumerics ConcatV2 Const Cumsum DecodeRaw DenseBincount DisableCopyOnRead DivNoNan
    Einsum EnsureShape Equal Erfc ExpandDims Fill FloorDiv FloorMod FusedBatchNormV3
    GatherV2 Greater GreaterEqual HashTableV2 Identity If InvertPermutation Less LessEqual
    LogicalAnd LogicalNot LogicalOr LookupTableFindV2 LookupTableImportV2 LowerBound MatMul
    Max Maximum Mean MergeV2Checkpoints Minimum Mul Neg NoOp NotEqual OneHot Pack Pad
    ParseExampleV2 PartitionedCall Placeholder Pow Prod RaggedGather RandomUniform Range
    ReadVariableOp RealDiv Relu Reshape ResourceGather RestoreV2 Rsqrt SaveV2 SegmentMin
    Select SelectV2 Shape ShardedFilename Size Softmax Split Sqrt SquaredDifference Squeeze
    StatefulPartitionedCall StatelessWhile StaticRegexFullMatch StaticRegexReplace
    StopGradient StridedSlice StringJoin StringLower StringSplit Sub Substr Sum Tanh
    TensorListConcatV2 TensorListReserve TensorListSetItem Tile TopKV2 Transpose Unique
    UniqueWithCounts Unpack UnsortedSegmentMin UnsortedSegmentSum VarHandleOp
    VarIsInitializedOp Where While ZerosLike
    """.split()
)


def module_ops(folder):
    """Names of all ops of a SavedModel, in its graph and its functions."""
    model = saved_model_pb2.SavedModel.FromString((folder / "saved_model.pb").read_bytes())
    graphs = [meta.graph_def for meta in model.meta_graphs]
    functions = [function for graph in graphs for function in graph.library.function]
    nodes = [*(node for graph in graphs for node in graph.node)]
    nodes += [node for function in functions for node in function.node_def]
    return {node.op for node in nodes} - {function.signature.name for function in functions}


def trace_ops(function, *specifications):
    """Names of all ops of a function, in its graph and those that it calls."""
    graph = function.get_concrete_function(*specifications).graph.as_graph_def()
    functions = graph.library.function
    nodes = [*graph.node, *(node for function in functions for node in function.node_def)]
    return {node.op for node in nodes} - {function.signature.name for function in functions}


def example_of(text):
    """Returns a serialized `tf.train.Example`, as the signature `serve_examples` takes it."""
    feature = {"text": {"bytes_list": {"value": [text.encode()]}}}
    return tf.train.Example(features={"feature": feature}).SerializeToString()
