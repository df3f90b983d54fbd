"""A text classifier whose encoder is trained with it, by `official_cmlm.encoding.fine_tuning`.

    python examples/fine_tune_classifier.py --encoder=work/minilm --train=my/a.tsv --test=my/b.tsv

The tables have a label and a text a line, with a tab between them. The encoder directory is left as
it is; examples/fine_tune_keras2.py does the same with an exported pair, without this project.
"""

import argparse
from pathlib import Path

import numpy as np

from official_cmlm import FineTuningConfig, fine_tune


def read(path: Path) -> tuple[list[str], list[str]]:
    rows = [line.split("\t", 1) for line in path.read_text("utf-8").splitlines()]
    return [label for label, _ in rows], [text for _, text in rows]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--encoder", required=True, type=Path, help="encoder directory")
    parser.add_argument("--train", required=True, type=Path, help="table of labels and texts")
    parser.add_argument("--test", required=True, type=Path, help="table of labels and texts")
    parser.add_argument("--epochs", type=int, default=3, help="(default: 3)")
    parser.add_argument("--learning_rate", type=float, default=2e-5, help="(default: 2e-5)")
    parser.add_argument("--save", type=Path, help="folder for `Classifier.load` (default: none)")
    arguments = parser.parse_args()

    labels, texts = read(arguments.train)
    names = sorted(set(labels))
    classifier = fine_tune(
        arguments.encoder,
        texts,
        np.array([names.index(label) for label in labels]),
        num_classes=len(names),
        seed=0,
        config=FineTuningConfig(epochs=arguments.epochs, learning_rate=arguments.learning_rate),
    )
    expected, texts = read(arguments.test)
    predictions = [names[number] for number in classifier.predict(texts)]
    right = sum(a == b for a, b in zip(predictions, expected))
    if arguments.save:
        classifier.save(arguments.save)
    print(f"accuracy on the test data: {right / len(texts):.3f}, classes: {names}")


if __name__ == "__main__":
    main()
