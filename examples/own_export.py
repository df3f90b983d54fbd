"""An exporter outside of the package: vocabulary and weights in one file for NumPy.

    cmlm export mini-en --to=examples.own_export --export_dir=work/npz

`numpy.load("work/npz/encoder.npz")` gives the weights by name; `vocabulary` has the token of each
row of `word_embeddings/embeddings`.
"""

import dataclasses
import json
from pathlib import Path
from typing import Annotated

import numpy as np

from official_cmlm import cli
from official_cmlm.checkpoints.encoder_directory import CONFIG_NAME
from official_cmlm.common.validation import OneOf
from official_cmlm.encoding import exporting

WEIGHTS = "encoder.npz"
# All files that are written. A folder with other files is never replaced.
OWN_FILES = rf"encoder\.npz|encoder_config\.json|{exporting.PARAMS_NAME}"


@dataclasses.dataclass(frozen=True)
class NumpyOptions(exporting.ExportOptions):
    """Options of this export; the flags and their help are made of them.

    Attributes:
      number_type: float32; or float16, half of the size.
    """

    number_type: Annotated[str, OneOf(("float32", "float16"))] = "float32"


def define_flags() -> None:
    exporting.define_flags(NumpyOptions)


def is_export(folder: Path) -> bool:
    return (folder / WEIGHTS).exists()  # Then `--overwrite` may replace the folder.


def main() -> None:
    options = exporting.begin(NumpyOptions)
    # The folder appears when it is complete; after an error nothing is left of it.
    with exporting.stage_export(options, is_export, OWN_FILES) as (folder, source):
        arrays = dict(source.weights.encoder)
        # The vector `projected_mean` also needs the layers of its projection.
        for number, (kernel, bias) in enumerate(source.weights.projection):
            arrays |= {f"projection/kernel_{number}": kernel, f"projection/bias_{number}": bias}
        arrays = {name: array.astype(options.number_type) for name, array in arrays.items()}
        np.savez(folder / WEIGHTS, vocabulary=source.directory.vocabulary.tokens, **arrays)
        config = json.dumps(source.weights.config.as_dict(), indent=2)
        (folder / CONFIG_NAME).write_text(config)
        source.write_params(folder)  # without folders of this machine
    print(options.export_dir)


if __name__ == "__main__":
    define_flags()
    cli.run(main)
