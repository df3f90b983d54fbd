"""Semantic search: an index of a text file, one text a line, and questions to it.

    python examples/semantic_search.py --encoder=work/minilm --texts=my/sentences.txt \
        --query="Where did the cat sit?"

The index is kept beside the texts and made again when the file or the encoder is newer.
"""

import argparse
from pathlib import Path

import official_cmlm
from official_cmlm.search import Index


def index(encoder: official_cmlm.SentenceEncoder, folder: Path, path: Path) -> Index:
    """Returns the index of a file's lines, a saved one if it is newer than the file."""
    kept = path.with_suffix(".index")
    newest = max(path.stat().st_mtime, (folder / "checkpoint").stat().st_mtime)
    if kept.exists() and kept.stat().st_mtime > newest:
        return Index.load(kept, encoder)
    texts = path.read_text(encoding="utf-8").splitlines()
    found = Index.build(encoder, texts, show_progress=True)
    found.save(kept, overwrite=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--encoder", required=True, help="encoder directory, imported or trained")
    parser.add_argument("--texts", required=True, type=Path, help="file with one text a line")
    parser.add_argument("--query", required=True, action="append", help="may be repeated")
    parser.add_argument("--most", type=int, default=3, help="answers a query (default: 3)")
    arguments = parser.parse_args()

    encoder = official_cmlm.SentenceEncoder.load(arguments.encoder)
    found = index(encoder, Path(arguments.encoder), arguments.texts)
    for query, hits in zip(arguments.query, found.search(arguments.query, arguments.most)):
        print(query)
        for hit in hits:
            print(f"  {hit.score:5.2f}  {hit.text}")


if __name__ == "__main__":
    main()
