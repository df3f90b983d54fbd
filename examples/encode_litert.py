"""Embeds sentences with LiteRT: no TensorFlow, two small packages.

    pip install ai-edge-litert tokenizers
    python examples/encode_litert.py --folder=work/litert "A sentence." "Another one."

The folder is one of `cmlm export ENCODER --to=litert`.
"""

import argparse
import json
from pathlib import Path

import numpy as np
from ai_edge_litert.interpreter import Interpreter
from tokenizers import Tokenizer


class LiteRTEncoder:
    """An encoder of one text at a time, by the shortest model that is long enough for it."""

    def __init__(self, folder: str, weights: str = "int8", threads: int = 2) -> None:
        self.settings = json.loads((Path(folder) / "litert.json").read_text())
        self.tokenizer = read_tokenizer(Path(folder) / "tokenizer.json")
        self.tokenizer.enable_truncation(max(self.settings["lengths"]))
        suffix = "" if weights == "float32" else f"_{weights}"
        self.runners = {}
        for length in self.settings["lengths"]:
            path = Path(folder) / f"encoder_{length}{suffix}.tflite"
            interpreter = Interpreter(str(path), num_threads=threads)
            self.runners[length] = interpreter.get_signature_runner()

    def encode(self, texts: list[str], prompt_name: str | None = None) -> np.ndarray:
        """Returns float32 `[texts, embedding_size]`; `prompt_name` is one of the encoder's."""
        prompt_name = prompt_name or self.settings["default_prompt_name"]
        prompt = self.settings["prompts"][prompt_name] if prompt_name else ""
        rows = [self._encode(self.tokenizer.encode(prompt + text).ids) for text in texts]
        return np.stack(rows) if rows else np.zeros([0, self.settings["embedding_size"]], "f")

    def _encode(self, ids: list[int]) -> np.ndarray:
        length = min(length for length in self.runners if length >= len(ids))
        word_ids = np.full([1, length], self.settings["padding_id"], np.int32)
        word_ids[0, : len(ids)] = ids
        mask = (np.arange(length) < len(ids)).astype(np.int32)[np.newaxis]
        return self.runners[length](input_word_ids=word_ids, input_mask=mask)["default"][0]


def read_tokenizer(path: Path) -> Tokenizer:
    """Reads the tokenizer; like `encode` here, it takes a literal `</s>` or `[SEP]` as text."""
    values = json.loads(path.read_text(encoding="utf-8"))
    if values["model"]["type"] == "Unigram":
        # A Unigram model would match these entries in texts; an entry with a space never matches.
        for token in values["added_tokens"]:
            values["model"]["vocab"][token["id"]][0] = f" {token['id']}"
    # Without them `[SEP]` in a text is text. The ids around a text are in the post-processor.
    values["added_tokens"] = []
    return Tokenizer.from_str(json.dumps(values))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", required=True)
    parser.add_argument("--weights", default="int8", choices=["float32", "int8"])
    parser.add_argument("texts", nargs="+")
    arguments = parser.parse_args()
    vectors = LiteRTEncoder(arguments.folder, arguments.weights).encode(arguments.texts)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    print(np.round(unit @ unit.T, 4))
