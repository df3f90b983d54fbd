"""Sentence encoders in TensorFlow 2: CMLM and its relatives, from raw text to TF-Hub modules.

`import official_cmlm` is instant; TensorFlow is imported when an encoder needs it, without its
notices, which `TF_CPP_MIN_LOG_LEVEL=0` in the environment shows.

>>> import official_cmlm
>>> encoder = official_cmlm.SentenceEncoder.load("my_encoder")  # doctest: +SKIP
>>> encoder.encode(["A sentence.", "Another one."]).shape       # doctest: +SKIP
(2, 768)
"""

import os
from typing import TYPE_CHECKING, Any

# TensorFlow reads this variable when it is imported. Errors still arrive as exceptions.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

if TYPE_CHECKING:
    from official_cmlm.sentence_encoder import SentenceEncoder

__version__ = "0.1.0"
__all__ = ["SentenceEncoder", "__version__"]


def __getattr__(name: str) -> Any:
    if name == "SentenceEncoder":
        from official_cmlm.sentence_encoder import SentenceEncoder

        return SentenceEncoder
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
