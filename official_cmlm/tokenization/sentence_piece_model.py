"""The part of SentencePiece's file format, `sentencepiece_model.proto`, that is used here.

The package `sentencepiece` has generated code for it, but only for newer releases of protobuf than
TensorFlow allows. Field numbers from 200 on are free for users of the format.
"""

from typing import Any

from official_cmlm.common.protobuf_messages import Messages

# Kinds of pieces.
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
# `trainer_spec.model_type`.
UNIGRAM = 1

_MESSAGES = Messages(
    "official_cmlm.sentencepiece",
    {
        "Piece": {
            "piece": (1, "string", None),
            "score": (2, "float", None),
            "type": (3, "int32", str(NORMAL)),
        },
        "TrainerSpec": {
            "model_type": (3, "int32", str(UNIGRAM)),
            "vocab_size": (4, "int32", None),
            "treat_whitespace_as_suffix": (24, "bool", "false"),
            "byte_fallback": (35, "bool", "false"),
            "unk_id": (40, "int32", "0"),
            "bos_id": (41, "int32", "1"),
            "eos_id": (42, "int32", "2"),
            "pad_id": (43, "int32", "-1"),
            "unk_piece": (45, "string", "<unk>"),
            "bos_piece": (46, "string", "<s>"),
            "eos_piece": (47, "string", "</s>"),
            "pad_piece": (48, "string", "<pad>"),
        },
        "NormalizerSpec": {
            "name": (1, "string", None),
            "precompiled_charsmap": (2, "bytes", None),
            "add_dummy_prefix": (3, "bool", "true"),
            "remove_extra_whitespaces": (4, "bool", "true"),
            "escape_whitespaces": (5, "bool", "true"),
            # Earlier versions of this project stored the steps of ALBERT's tokenizer here.
            "steps": (200, "string", None),
        },
        "Model": {
            "pieces": (1, "Piece", []),
            "trainer_spec": (2, "TrainerSpec", None),
            "normalizer_spec": (3, "NormalizerSpec", None),
        },
    },
)


def new_model() -> Any:
    """Returns an empty model, with `pieces`, `trainer_spec` and `normalizer_spec`."""
    return _MESSAGES.new("Model")


def parse_model(content: bytes) -> Any:
    """Parses the bytes of a model's file; raises protobuf's `DecodeError` for other bytes."""
    return _MESSAGES.parse("Model", content)
