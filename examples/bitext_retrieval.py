"""Translations found in two files, line i of one being a translation of line i of the other.

    python examples/bitext_retrieval.py --encoder=work/model --first=train.en --second=train.de

Shows how often the true translation is the nearest line, in both directions, with and without
principal component removal (CMLM §5.2), and the pairs that a miner would propose.
"""

import argparse
from pathlib import Path

import numpy as np

import official_cmlm
from official_cmlm.evaluation.metrics.principal_components import PrincipalComponentRemoval


def unit(vectors: np.ndarray) -> np.ndarray:
    """Returns the rows, scaled to length 1."""
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--encoder", required=True, help="encoder directory, imported or trained")
    parser.add_argument("--first", required=True, type=Path, help="one sentence a line")
    parser.add_argument("--second", required=True, type=Path, help="its translations")
    parser.add_argument("--most", type=int, default=3, help="pairs to show (default: 3)")
    arguments = parser.parse_args()

    texts = [path.read_text("utf-8").splitlines() for path in (arguments.first, arguments.second)]
    if len(texts[0]) != len(texts[1]):
        parser.error(f"{len(texts[0])} lines against {len(texts[1])}; the files must be parallel")
    encoder = official_cmlm.SentenceEncoder.load(arguments.encoder)
    vectors = {side: encoder.encode(lines) for side, lines in zip(("first", "second"), texts)}
    removal = PrincipalComponentRemoval.fit(vectors)
    removed = {side: removal(matrix, side) for side, matrix in vectors.items()}
    for name, sides in (("as encoded", vectors), ("one component removed", removed)):
        similarity = unit(sides["first"]) @ unit(sides["second"]).T
        own = np.arange(len(similarity))
        there = 100 * np.mean(similarity.argmax(axis=1) == own)
        back = 100 * np.mean(similarity.argmax(axis=0) == own)
        print(f"{name}: found {there:.1f} % of first → second, {back:.1f} % of second → first")
    best = similarity.max(axis=1)
    for i in np.argsort(-best)[: arguments.most]:
        print(f"{best[i]:6.3f}  {texts[0][i]}  |  {texts[1][similarity[i].argmax()]}")


if __name__ == "__main__":
    main()
