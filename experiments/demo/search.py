"""Semantic search with a TF-Hub pair, by a program that knows TF-Hub and nothing else.

    python experiments/demo/search.py --modules=build/demo/tfhub --texts=sentences.txt

Nothing of this project is imported: this is what any user of the exported modules writes.
"""

import argparse
import os
import warnings

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# tensorflow-hub 0.16 still asks setuptools for its version.
warnings.filterwarnings("ignore", message="pkg_resources is deprecated")

import numpy as np
import tensorflow as tf
import tensorflow_hub as hub
import tensorflow_text  # noqa: F401 - registers the ops of the preprocess module

# Questions to English technical prose; --query replaces them.
QUERIES = (
    "How do I read data from a file?",
    "Draw a line plot with labels on the axes.",
    "The shape of the input array is wrong.",
    "Train a model with gradient descent.",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--modules", required=True, help="folder with preprocess/ and encoder/")
    parser.add_argument("--texts", required=True, help="file with one text a line")
    parser.add_argument("--query", action="append", help="what to look for; may be repeated")
    parser.add_argument("--queries", help="file with one query a line, instead of --query")
    parser.add_argument("--most", type=int, default=3, help="answers a query (default: 3)")
    arguments = parser.parse_args()

    preprocess = hub.KerasLayer(os.path.join(arguments.modules, "preprocess"))
    encoder = hub.KerasLayer(os.path.join(arguments.modules, "encoder"))

    def embed(texts: list[str], batch_size: int = 256) -> np.ndarray:
        parts = []
        for start in range(0, len(texts), batch_size):
            batch = tf.constant(texts[start : start + batch_size])
            parts.append(encoder(preprocess(batch))["default"].numpy())
        vectors = np.concatenate(parts)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    def lines(path: str) -> list[str]:
        with open(path, encoding="utf-8") as file:
            return [line.strip() for line in file if line.strip()]

    queries = arguments.query or list(QUERIES)
    if arguments.queries:
        queries = lines(arguments.queries)
    # A query that is one of the texts would find itself first.
    texts = [text for text in lines(arguments.texts) if text not in queries]
    similarity = embed(queries) @ embed(texts).T
    for query, row in zip(queries, similarity):
        print(f"\n{query}")
        for index in np.argsort(-row)[: arguments.most]:
            text = texts[index]
            print(f"  {row[index]:5.2f}  {text if len(text) <= 90 else text[:87] + '...'}")


if __name__ == "__main__":
    main()
