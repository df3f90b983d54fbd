"""Cosine similarity of sentences.

python examples/encode_and_compare.py --encoder=work/minilm "A man eats." "Someone has lunch."
"""

import argparse

import official_cmlm


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--encoder", required=True, help="encoder directory, imported or trained")
    parser.add_argument("sentences", nargs="+")
    arguments = parser.parse_args()

    encoder = official_cmlm.SentenceEncoder.load(arguments.encoder)
    vectors = encoder.encode(arguments.sentences, normalize_embeddings=True)
    similarity = vectors @ vectors.T
    for i, first in enumerate(arguments.sentences):
        for j, second in enumerate(arguments.sentences[:i]):
            print(f"{similarity[i, j]:6.3f}  {second}  |  {first}")


if __name__ == "__main__":
    main()
