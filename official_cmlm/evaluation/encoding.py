"""What an encoder is here, the checks of what it returns, and how one is named."""

import dataclasses
import hashlib
from collections.abc import Callable

import numpy as np

from official_cmlm.errors import UserError

Encode = Callable[[list[str]], np.ndarray]
"""n strings -> float array `[n, dim]`, row i for string i; `dim` never changes."""


# (texts, int labels [n], number of classes, seed) -> a function from texts to int labels.
FineTune = Callable[[list[str], np.ndarray, int, int], Callable[[list[str]], np.ndarray]]


@dataclasses.dataclass(frozen=True)
class OpenedEncoder:
    """An encoder and what it is called.

    Attributes:
      name: for tables.
      kind: `encoder_directory`, `tfhub`, `sentence_transformers` or `python`.
      fingerprint: sixteen hexadecimal digits; equal for equal weights and settings.
      encode: n strings -> float array `[n, dim]`.
      fine_tune: trains a copy with a classifier; None where that cannot be done here.
    """

    name: str
    kind: str
    fingerprint: str
    encode: Encode
    fine_tune: FineTune | None = None


class EncoderError(UserError):
    """The encoder returned something that is no matrix of embeddings of what it was given."""


def checked(encode: Encode) -> Encode:
    """`encode` with its answers checked.

    Raises (the returned function):
      EncoderError: for another number of rows, a width that changes, or values that are no numbers.
    """
    width: list[int] = []

    def encode_checked(texts: list[str]) -> np.ndarray:
        try:
            vectors = np.asarray(encode(texts))
        except UserError:
            raise
        except Exception as error:
            # Anybody's code: whatever it raises concerns the encoder, not the suite.
            raise EncoderError(
                f"the encoder failed on {len(texts)} texts, the first of them {texts[0]!r:.80}: "
                f"{type(error).__name__}: {error}"
            ) from error
        if vectors.ndim != 2 or len(vectors) != len(texts):
            raise EncoderError(
                f"the encoder returned an array of shape {list(vectors.shape)} for {len(texts)} "
                f"texts; expected [{len(texts)}, dim]"
            )
        if not np.issubdtype(vectors.dtype, np.number) or np.iscomplexobj(vectors):
            raise EncoderError(f"the encoder returned {vectors.dtype}; expected real numbers")
        width[:] = width or [vectors.shape[1]]
        if not width[0]:
            raise EncoderError("the encoder returned vectors without any value")
        if vectors.shape[1] != width[0]:
            raise EncoderError(
                f"the encoder returned vectors of {vectors.shape[1]} values after vectors of "
                f"{width[0]}; all must have one width"
            )
        # A copy: an encoder may use its buffer again.
        with np.errstate(over="ignore"):
            vectors = np.array(vectors, np.float32)
        bad = ~np.isfinite(vectors).all(axis=1)
        if bad.any():
            raise EncoderError(
                f"the encoder returned NaN or infinity (in float32) for {int(bad.sum())} of "
                f"{len(texts)} texts, the first of them {texts[int(np.argmax(bad))]!r:.80}"
            )
        return vectors

    return encode_checked


_PROBES = (
    *("One.", "Zwei Wörter.", "trois mots ici", "ЧЕТЫРЕ", "五个字符呢", "٦ ছয় 7", "UPPER lower"),
    *("a b " * 40, "the end of a long text counts as well " * 60, "x" * 300, "a\ttab, two\nlines"),
    *(f"number {i} of {i * i} things, {'far ' * i}away" for i in range(24)),
)


def fingerprint(encode: Encode) -> str:
    """Sixteen hexadecimal digits that name an encoder by what it makes of a few dozen texts.

    For encoders that are known only as Python objects; a folder is better named by its files. An
    encoder that fails on a text is named by that too.
    """
    digest = hashlib.sha256()
    for probe in _PROBES:
        try:
            vectors = checked(encode)([probe])
            digest.update(vectors.tobytes() + str(vectors.shape).encode())
        except UserError as error:
            digest.update(str(error).encode())
    return digest.hexdigest()[:16]
