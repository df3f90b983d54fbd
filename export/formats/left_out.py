"""Parts of an encoder's folder that an export does not have."""

from pathlib import Path

from official_cmlm import cli
from official_cmlm.encoding.classifier import Classifier


def warn_of_classifier(folder: Path) -> None:
    """Prints a warning for an export without the classifier that an encoder's folder has."""
    if Classifier.is_at(folder):
        cli.warn(
            f"{folder}: its classifier is not exported; export.export_tfhub does that, without"
            " options that change the vector"
        )
