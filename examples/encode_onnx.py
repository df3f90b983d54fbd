"""Encodes sentences by ONNX Runtime and `tokenizers` alone: no TensorFlow, no PyTorch.

    cmlm export my_encoder --to=onnx --export_dir=my_export
    pip install onnxruntime tokenizers
    python examples/encode_onnx.py my_export "A sentence." "Another one."

Prints the cosine of each pair. With `file="onnx/model_qint8_avx512_vnni.onnx"` (or `…_avx2.onnx`
where the processor has no VNNI) the products are of 8-bit integers.
"""

import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import tokenizers


class Encoder:
    """The encoder of a folder that `export.export_onnx` wrote."""

    def __init__(self, folder, file="onnx/model.onnx"):
        folder = Path(folder)
        settings = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
        values = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
        special = {token["content"]: token["id"] for token in values["added_tokens"]}
        # A literal `</s>` or `[SEP]` in a text is text, as for this project's `encode`. A Unigram
        # model would match these entries in texts; an entry with a space never matches.
        values["added_tokens"] = []
        if values["model"]["type"] == "Unigram":
            for index in special.values():
                values["model"]["vocab"][index][0] = f" {index}"
        self._tokenizer = tokenizers.Tokenizer.from_str(json.dumps(values))
        self._tokenizer.enable_truncation(settings["model_max_length"])
        pad = settings["pad_token"]
        self._tokenizer.enable_padding(pad_id=special[pad], pad_token=pad)
        providers = ["CPUExecutionProvider"]
        self._session = onnxruntime.InferenceSession(str(folder / file), providers=providers)
        # The default prompt is used where none is asked for, as in `SentenceEncoder.encode`.
        path = folder / "config_sentence_transformers.json"
        stored = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        self.prompt = (stored.get("prompts") or {}).get(stored.get("default_prompt_name")) or ""
        self._inputs = {value.name for value in self._session.get_inputs()}

    def encode(self, sentences, batch_size=32, prompt=None):
        """Returns float32 `[n, dimension]`; each text follows `prompt`, by default the folder's."""
        prompt = self.prompt if prompt is None else prompt
        sentences = [prompt + sentence for sentence in sentences]
        # Sentences of similar length share a batch, so that little is padding.
        order = sorted(range(len(sentences)), key=lambda i: len(sentences[i]))
        vectors = []
        for start in range(0, len(order), batch_size):
            chosen = [sentences[i] for i in order[start : start + batch_size]]
            rows = self._tokenizer.encode_batch(chosen)
            ids = np.array([row.ids for row in rows], np.int64)
            mask = np.array([row.attention_mask for row in rows], np.int64)
            feeds = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
            feeds = {name: value for name, value in feeds.items() if name in self._inputs}
            vectors.append(self._session.run(["sentence_embedding"], feeds)[0])
        return np.concatenate(vectors)[np.argsort(order)]


if __name__ == "__main__":
    encoded = Encoder(sys.argv[1]).encode(sys.argv[2:])
    encoded /= np.linalg.norm(encoded, axis=1, keepdims=True)
    print(np.round(encoded @ encoded.T, 3))
