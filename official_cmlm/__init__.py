"""Sentence encoders in TensorFlow 2: CMLM and its relatives, from raw text to TF-Hub modules.

`import official_cmlm` is instant; TensorFlow is imported when an encoder needs it, without most of
its notices: two come before it reads its log level. `TF_CPP_MIN_LOG_LEVEL=0` in the environment
shows all.

>>> import official_cmlm
>>> encoder = official_cmlm.SentenceEncoder.load("my_encoder")  # doctest: +SKIP
>>> encoder.encode(["A sentence.", "Another one."]).shape       # doctest: +SKIP
(2, 768)
"""

import importlib
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

# TensorFlow reads this variable when it is imported. Errors still arrive as exceptions.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

if os.path.basename(next(iter(sys.argv), "")) == "cmlm":
    # Until `cli.run` handles it, Ctrl-C ends the command without the stack trace of an import.
    signal.signal(signal.SIGINT, signal.SIG_DFL)

if TYPE_CHECKING:
    from official_cmlm.encoding.classifier import Classifier
    from official_cmlm.encoding.encoders import open_encoder
    from official_cmlm.encoding.fine_tuning import FineTuningConfig, fine_tune
    from official_cmlm.encoding.sentence_encoder import SentenceEncoder
    from official_cmlm.search.index import Index

__all__ = [
    "Classifier",
    "FineTuningConfig",
    "Index",
    "SentenceEncoder",
    "fine_tune",
    "open_encoder",
]

# Public name -> the module that defines it, imported when the name is first used.
_MODULES = {
    "Classifier": "encoding.classifier",
    "FineTuningConfig": "encoding.fine_tuning",
    "Index": "search.index",
    "SentenceEncoder": "encoding.sentence_encoder",
    "fine_tune": "encoding.fine_tuning",
    "open_encoder": "encoding.encoders",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
