"""The protocol of an encoder, the checks of its vectors, and its fingerprint."""

import dataclasses
import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import numpy as np

from official_cmlm.common.errors import UserError

Encode = Callable[[list[str]], np.ndarray]
"""n strings -> float array `[n, dim]`, row i for string i; `dim` is the same in every call."""

FineTune = Callable[[list[str], np.ndarray, int, int], Callable[[list[str]], np.ndarray]]
"""(texts, int labels `[n]`, number of classes, seed) -> trained function from texts to labels."""

CountTokens = Callable[[list[str]], np.ndarray]
"""n strings -> int array `[n]`, tokens of each before it is cut, special ones included."""


@dataclasses.dataclass(frozen=True)
class Role:
    """An encoder's special way of embedding texts of one role, such as queries.

    Attributes:
      encode: n strings, without the prompt -> float array `[n, dim]`.
      prompt: the text that `encode` puts before each text; empty if that is not known, or if the
        role has a model of its own.
    """

    encode: Encode
    prompt: str = ""

    def __str__(self) -> str:
        if self.prompt:
            return f"the encoder's prompt {self.prompt!r} stands before each"
        return "the encoder has a way of its own to embed them"


def add_prompt(encode: Encode, prompt: str) -> Role:
    """Returns the role of texts that get a prompt: a string before each of them."""
    return Role(lambda texts: encode([prompt + text for text in texts]), prompt)


def roles_of(encode: Encode) -> Mapping[str, Role]:
    """Returns name -> role of an encoder: its attribute `roles`; empty for a plain function."""
    return getattr(encode, "roles", {})


def check_roles(names: Sequence[str], available: Collection[str]) -> None:
    """Raises `UserError` if `names`, a value of --roles, are not the roles of two texts.

    Only one of `query` and `document` needs to be `available`: many encoders have a prompt for
    queries alone.
    """
    missing = [name for name in names if name not in available]
    if len(names) != 2 or len(missing) == 2 or not {"query", "document"}.issuperset(missing):
        raise UserError(
            f"--roles={','.join(names)}: name two, as in query,document, for which the encoder has "
            f"prompts; it has {', '.join(available) or 'none'}"
        )


def for_role(encode: Encode, name: str) -> Encode:
    """Returns the function for texts of a role; `encode` itself if the encoder has no such role."""
    roles = roles_of(encode)
    return roles[name].encode if name in roles else encode


@dataclasses.dataclass(frozen=True)
class OpenedEncoder:
    """An encoder with the facts that identify it in results; `encoding.encoders` opens it.

    Attributes:
      name: shown in tables.
      kind: `encoder_directory`, `tfhub`, `sentence_transformers` or `python`.
      fingerprint: sixteen hexadecimal digits; equal for equal weights and settings.
      encode: n strings -> float array `[n, dim]`.
      fine_tune: trains a copy of the encoder with a classifier; None if it cannot be trained.
      roles: by name, such as `query` and `document`.
      max_seq_length: longer texts are cut to this many tokens; None if that is not known.
      count_tokens: lengths of texts in the encoder's own tokens, without any prompt; None if it
        cannot count them.
      workers: number of processes among which `encode` divides its texts.
      prompt: the text that `encode` itself puts before each; empty if unknown.
      tokenize: n strings, which get no prompt, -> the ids of each, not cut, without special ones;
        None if the encoder cannot tokenise texts separately.
      encode_ids: n rows of such ids -> vectors as of `encode`.
    """

    name: str
    kind: str
    fingerprint: str
    encode: Encode
    fine_tune: FineTune | None = None
    roles: Mapping[str, Role] = dataclasses.field(default_factory=dict)
    max_seq_length: int | None = None
    count_tokens: CountTokens | None = None
    workers: int = 1
    prompt: str = ""
    tokenize: Callable[[list[str]], list[np.ndarray]] | None = None
    encode_ids: Callable[[list[np.ndarray]], np.ndarray] | None = None


def requests_by_role(
    texts: Mapping[str, Iterable[str]], roles: Mapping[str, Role]
) -> dict[str, dict[str, None]]:
    """Returns role -> texts, each once; a role that the encoder lacks becomes "", no role."""
    requests: dict[str, dict[str, None]] = {}
    for role, role_texts in texts.items():
        requests.setdefault(role if role in roles else "", {}).update(dict.fromkeys(role_texts))
    return requests


def prepare(encode: Encode, texts: Mapping[str, Iterable[str]]) -> None:
    """Lets an encoder that caches embed the texts of each role together.

    Texts of similar lengths share a batch then. Nothing is done for a plain function.
    """
    if hasattr(encode, "prepare"):
        encode.prepare(requests_by_role(texts, roles_of(encode)).items())


class LanguageEncoders:
    """One encoder for each language, for suites that know which language a text is in.

    Attributes:
      languages: codes of the languages.
    """

    def __init__(self, encoders: Mapping[str, Encode]) -> None:
        self._encoders = dict(encoders)
        self.languages = tuple(encoders)

    def of(self, language: str) -> Encode:
        """Returns a language's encoder.

        Raises:
          UserError: if there is none.
        """
        language = language.lower()
        if language not in self._encoders:
            raise UserError(
                f"no encoder for {language!r}; --encoder has {', '.join(self.languages)}"
            )
        return self._encoders[language]

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        raise EncoderError(
            "this suite needs one encoder for all languages; one a language, as in "
            "--encoder=en:path,fr:path, is for bli, sts and word_similarity"
        )


class EncoderError(UserError):
    """The encoder failed, or did not return one finite vector per text."""


def check_vectors(encode: Encode) -> Encode:
    """Wraps `encode` with checks of its vectors; the result is a float32 copy.

    The returned function raises `EncoderError` for a wrong number of rows, a width that changes
    between calls, or non-finite values.
    """
    width: list[int] = []

    def encode_checked(texts: list[str]) -> np.ndarray:
        try:
            vectors = np.asarray(encode(texts))
        except UserError:
            raise
        except Exception as error:
            # The code is the user's own: any exception is a fault of the encoder, not of the suite.
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
            raise EncoderError("the encoder returned vectors of width 0")
        if vectors.shape[1] != width[0]:
            raise EncoderError(
                f"the encoder returned vectors of width {vectors.shape[1]} after vectors of width "
                f"{width[0]}; all must have the same width"
            )
        # The vectors are copied, since an encoder may reuse its buffer.
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


# Short and long texts in several scripts, whose vectors tell encoders apart.
PROBES = (
    *("One.", "Zwei Wörter.", "trois mots ici", "ЧЕТЫРЕ", "五个字符呢", "٦ ছয় 7", "UPPER lower"),
    *("a b " * 40, "the end of a long text counts as well " * 60, "x" * 300, "a\ttab, two\nlines"),
    *(f"number {i} of {i * i} things, {'far ' * i}away" for i in range(24)),
)


def fingerprint(encode: Encode) -> str:
    """Returns sixteen hexadecimal digits computed from an encoder's vectors of a few dozen texts.

    It is for encoders that exist only as Python objects; for a folder use a digest of its files. If
    the encoder fails on a text, its error message enters the digest instead.
    """
    digest = hashlib.sha256()
    for probe in PROBES:
        try:
            vectors = check_vectors(encode)([probe])
            digest.update(vectors.tobytes() + str(vectors.shape).encode())
        except UserError as error:
            digest.update(str(error).encode())
    return digest.hexdigest()[:16]
