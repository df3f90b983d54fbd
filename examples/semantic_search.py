"""Semantic search: an index of a text file, one text a line, and questions to it.

    python examples/semantic_search.py --encoder=work/minilm --texts=my/sentences.txt \
        --query="Where did the cat sit?"

The vectors are kept beside the texts and made again when the file or the encoder is newer.
"""

import argparse
from pathlib import Path

import numpy as np

import official_cmlm


def index(encoder: official_cmlm.SentenceEncoder, folder: Path, path: Path) -> np.ndarray:
    """The normalised vectors of a file's lines, float32 `[lines, dimension]`."""
    kept = path.with_suffix(".npy")
    newest = max(path.stat().st_mtime, (folder / "checkpoint").stat().st_mtime)
    if kept.exists() and kept.stat().st_mtime > newest:
        return np.load(kept, allow_pickle=False)
    texts = path.read_text(encoding="utf-8").splitlines()
    vectors = encoder.encode(texts, normalize=True, show_progress=True)
    np.save(kept, vectors)
    return vectors


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--encoder", required=True, help="encoder directory, imported or trained")
    parser.add_argument("--texts", required=True, type=Path, help="file with one text a line")
    parser.add_argument("--query", required=True, action="append", help="may be repeated")
    parser.add_argument("--most", type=int, default=3, help="answers a query (default: 3)")
    arguments = parser.parse_args()

    encoder = official_cmlm.SentenceEncoder.load(arguments.encoder)
    texts = arguments.texts.read_text(encoding="utf-8").splitlines()
    vectors = index(encoder, Path(arguments.encoder), arguments.texts)
    similarity = encoder.encode(arguments.query, normalize=True) @ vectors.T
    for query, row in zip(arguments.query, similarity):
        print(query)
        for i in np.argsort(-row)[: arguments.most]:
            print(f"  {row[i]:5.2f}  {texts[i]}")


if __name__ == "__main__":
    main()
