"""A classifier from a few labelled texts: scikit-learn on vectors of a frozen encoder.

    python examples/few_shot_scikit_learn.py --encoder=work/minilm --train=my/labelled.tsv "Hello."

The table has a label and a text a line, with a tab between them; eight texts a label are enough to
begin with. For some thousands, train the encoder too: examples/fine_tune_classifier.py.
"""

import argparse
from pathlib import Path

from sklearn.linear_model import LogisticRegression

import official_cmlm


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--encoder", required=True, help="encoder directory, imported or trained")
    parser.add_argument("--train", required=True, type=Path, help="table of labels and texts")
    parser.add_argument("texts", nargs="+", help="texts to classify")
    arguments = parser.parse_args()

    rows = [line.split("\t", 1) for line in arguments.train.read_text("utf-8").splitlines()]
    labels, texts = [label for label, _ in rows], [text for _, text in rows]
    encoder = official_cmlm.SentenceEncoder.load(arguments.encoder)
    # The vectors have length 1, so that one strength of regularisation suits every encoder.
    classifier = LogisticRegression(C=10.0, max_iter=1000)
    classifier.fit(encoder.encode(texts, normalize_embeddings=True), labels)

    vectors = encoder.encode(arguments.texts, normalize_embeddings=True)
    chances = classifier.predict_proba(vectors).max(axis=1)
    for text, label, chance in zip(arguments.texts, classifier.predict(vectors), chances):
        print(f"{label}  ({100 * chance:.0f} %)  {text}")


if __name__ == "__main__":
    main()
