"""The options of `tfhub.export`, apart from it because flags are defined without TensorFlow."""

import dataclasses
from typing import Annotated

from official_cmlm.common.validation import between
from official_cmlm.encoding import exporting


@dataclasses.dataclass(frozen=True)
class TfhubOptions(exporting.ExportOptions):
    """Options of `tfhub.export`; `seq_length` is the default length of the preprocess module.

    Attributes:
      normalize: whether vectors have length 1. Default: as the encoder has it.
      dim: leading components of the vector to keep, of an encoder that was trained for it
        (`matryoshka_dims`). Default: all.
      version: number of the serving model, of which TensorFlow Serving takes the highest; 0: the
        next free one. To an export that is there only this version is added, or with --overwrite
        replaced. Default: 1, in a new export.
    """

    normalize: bool | None = None
    dim: Annotated[int, between(1, 1_000_000)] | None = None
    version: Annotated[int, between(0, 1_000_000_000)] | None = None
