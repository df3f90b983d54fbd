"""What `benchmarks.fuzz` throws random input at.

A target is a class, here or in `benchmarks.fuzz_files`, and an element of a list there. It is made
in the process that draws the cases, and opened and run in one that may crash.
"""

import abc
import dataclasses
import random
import re
import string
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    import numpy as np

    from official_cmlm.tokenization import Vocabulary

Item = TypeVar("Item", bytes, str, bytes | str)


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What came of a case.

    Attributes:
      counts: what was counted, e.g. `vectors`; reported as sums.
      faults: (what is wrong, index of the item); each is reported.
      largest: what was measured, e.g. a difference; reported as maxima.
    """

    counts: dict[str, int] = dataclasses.field(default_factory=dict)
    faults: list[tuple[str, int]] = dataclasses.field(default_factory=list)
    largest: dict[str, float] = dataclasses.field(default_factory=dict)


class Target(abc.ABC, Generic[Item]):
    """Something that must answer to anything.

    Attributes:
      name: in words, for the report.
      share: how many items it gets, in proportion to the other targets of its list.
    """

    name: str
    share: float = 1.0

    @abc.abstractmethod
    def make_case(self, rng: random.Random) -> list[Item]:
        """Draws a case: some items that are tried together, and can be tried apart."""

    @abc.abstractmethod
    def open(self, folder: Path) -> None:
        """Loads what is tried; runs once in each process.

        Args:
          folder: kept from process to process; what one has made there the next one finds.
        """

    @abc.abstractmethod
    def run(self, case: list[Item]) -> Outcome:
        """Tries the items; an exception counts as a fault of all of them."""


# Largest difference of a component between `encode` and the serving model that is rounding.
_TOLERANCE = 1e-4
# Strings of a case: few enough for the time limit, enough that calls cost little.
_CASE = 1000
# Causes for which BPE in graphs differs from `encode`; see `tokenization.byte_pair_graph`.
_NOT_COMPARED = re.compile("[\0\\v\x85\xa0\u096c\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]")
# Words that the tiny vocabularies have pieces for.
_WORDS = "the a cat dog bird sat ran flew Straße élan ΣΊΣΥΦΟΣ кошка 猫 नमस्ते ไทย مُحَمَّد 한국어".split()
_ODD = [*"\u0301\u200b\u200d\ufeff\u00ad\ufffd\u202e\U0010ffff\ufdd0\u096c\u0131\u1e9e\ufb01\xa0"]
_ODD += ["👩\u200d👧", "🇩🇪", "e\u0301\u0302", "[MASK]", "<mask>", "</s>", "##s", "\r\n", "İ", "Ǆ"]


class Strings(Target[bytes | str]):
    """`SentenceEncoder.encode`, the serving model and the preprocess module, of a tiny encoder.

    Each string goes through all three. A text must have a finite vector, the same from `encode` and
    from the serving model; bytes that are no UTF-8, which only a client of a module can send, must
    have a finite one; and the preprocess module must give ids of the vocabulary.
    """

    def __init__(self, kind: str) -> None:
        """Args: kind: a key of `_VOCABULARIES`, the vocabulary of the encoder."""
        self.kind = kind
        self.name = f"strings, {_VOCABULARIES[kind][0]}"

    def make_case(self, rng: random.Random) -> list[bytes | str]:
        if rng.random() < 0.1:
            return [_long_string(rng)]
        kinds = rng.choices(_KINDS, weights=_WEIGHTS, k=_CASE)
        return [kind(rng) for kind in kinds]

    def open(self, folder: Path) -> None:
        import tensorflow as tf
        import tensorflow_text  # noqa: F401 - registers the ops of the modules

        from official_cmlm.sentence_encoder import SentenceEncoder

        if not (folder / "out" / "serving" / "1").exists():
            _make_encoder(folder, self.kind)
        self._encoder = SentenceEncoder.load(folder / "model")
        # The module, not its function, which does not keep the module's variables.
        self._serving = tf.saved_model.load(str(folder / "out" / "serving" / "1"))
        self._preprocess = tf.saved_model.load(str(folder / "out" / "preprocess"))
        # TensorFlow compiles each function at its first call.
        self.run(["a cat"])

    def run(self, case: list[bytes | str]) -> Outcome:
        import numpy as np
        import tensorflow as tf

        from official_cmlm.tokenization.vocabulary import utf8

        raw = [item if isinstance(item, bytes) else utf8([item])[0] for item in case]
        strings = tf.constant(raw, tf.string)
        served = self._serving.serve(strings)["default"].numpy()
        inputs = {name: each.numpy() for name, each in self._preprocess(strings).items()}
        texts = [index for index, item in enumerate(case) if isinstance(item, str)]
        encoded = self._encoder.encode([case[index] for index in texts])

        faults = [("not finite (serving)", i) for i in _rows(~np.isfinite(served))]
        faults += [("not finite (encode)", texts[i]) for i in _rows(~np.isfinite(encoded))]
        faults += [("wrong inputs (preprocess)", i) for i in self._wrong(inputs, len(case))]
        apart = np.abs(encoded - served[texts]).max(axis=1, initial=0)
        if self.kind == "byte_pair":
            apart[[bool(_NOT_COMPARED.search(case[index])) for index in texts]] = 0
        faults += [
            ("encode and serving differ", texts[i]) for i in _rows(apart[:, None] > _TOLERANCE)
        ]
        return Outcome(
            counts={"through encode": len(texts), "through serving and preprocess": len(case)},
            faults=faults,
            largest={"largest difference": float(apart.max(initial=0))},
        )

    def _wrong(self, inputs: "dict[str, np.ndarray]", count: int) -> list[int]:
        """Rows that are not `[CLS] … [SEP]` and padding."""
        ids, mask, types = (inputs[f"input_{name}"] for name in ("word_ids", "mask", "type_ids"))
        special = self._encoder.vocabulary.special_ids
        if not len(ids) == len(mask) == len(types) == count:
            return list(range(count))
        lengths = mask.sum(axis=1)
        wrong = (ids < 0) | (ids >= len(self._encoder.vocabulary)) | (types != 0)
        wrong |= mask != (lengths[:, None] > range(mask.shape[1]))
        wrong |= (mask == 0) & (ids != special["pad"])
        wrong[:, 0] |= (ids[:, 0] != special["cls"]) | (lengths < 2)
        return _rows(wrong)


def _rows(wrong: "np.ndarray") -> list[int]:
    """Rows with anything wrong."""
    return wrong.any(axis=1).nonzero()[0].tolist()


def _random_bytes(rng: random.Random) -> bytes:
    return rng.randbytes(rng.randint(0, 60))


def _damaged(rng: random.Random) -> bytes:
    """UTF-8 in which some bytes are others."""
    data = bytearray(_words(rng).encode("utf-8"))
    for _ in range(rng.randint(1, 3)):
        if data:
            data[rng.randrange(len(data))] = rng.randrange(256)
    return bytes(data)


def _code_points(rng: random.Random) -> str:
    """From one of Unicode's beginnings to all of it, surrogates included."""
    last = rng.choice((0x7F, 0x24F, 0x2FFF, 0xFFFF, 0x1FFFF, 0x10FFFF))
    return "".join(map(chr, rng.choices(range(last + 1), k=rng.randint(0, 30))))


def _surrogates(rng: random.Random) -> str:
    parts = [chr(rng.randint(0xD800, 0xDFFF)) for _ in range(3)]
    return "".join(rng.choices([*parts, "a", " cat", "\U0001f600"], k=rng.randint(1, 10)))


def _controls(rng: random.Random) -> str:
    marks = [chr(rng.choice((rng.randrange(32), rng.randint(0x7F, 0x9F)))) for _ in range(6)]
    return "".join(rng.choices([*marks, "a", "cat", " "], k=rng.randint(0, 20)))


def _words(rng: random.Random) -> str:
    return " ".join(rng.choices(_WORDS, k=rng.randint(0, 12)))


def _odd(rng: random.Random) -> str:
    return "".join(rng.choices([*_ODD, *_WORDS, *" .,'-\n\t"], k=rng.randint(0, 20)))


def _one_word(rng: random.Random) -> str:
    return "".join(rng.choices(string.ascii_letters, k=rng.choice((5, 30, 100, 1100))))


def _repeated(rng: random.Random) -> str:
    return rng.choice([*_WORDS, *_ODD, *_controls(rng), " ", "the "]) * rng.randint(1, 300)


_KINDS = (_random_bytes, _damaged, _code_points, _surrogates, _controls, _words, _odd, _one_word)
_KINDS += (_repeated,)
_WEIGHTS = (20, 10, 25, 8, 10, 10, 12, 2, 1)


def _long_string(rng: random.Random) -> bytes | str:
    """100 kB to 10 MB."""
    size = int(10 ** rng.uniform(5, 7))
    kind = rng.randrange(4)
    if kind == 0:
        return rng.randbytes(size)
    if kind == 1:
        return "".join(rng.choices(string.ascii_lowercase, k=1000)) * (size // 1000)
    part = _odd(rng) + _code_points(rng) + " " if kind == 2 else rng.choice([*_WORDS, *_ODD, "\0"])
    return part * (size // len(part.encode("utf-8", "replace")))


def _make_encoder(folder: Path, kind: str) -> None:
    """Writes a tiny encoder with random weights as `folder/model`, its export as `folder/out`."""
    from export import tfhub

    vocabulary = _VOCABULARIES[kind][1](folder)
    write_encoder(
        folder / "model",
        vocabulary,
        max_seq_length=24,
        hidden_size=16,
        num_layers=2,
        intermediate_size=32,
        max_position_embeddings=48,
        # Far from 0, so that every token matters.
        initializer_range=0.3,
    )
    tfhub.export(str(folder / "model"), str(folder / "out"), None, overwrite=True)


def write_encoder(
    folder: Path,
    vocabulary: "Vocabulary",
    max_seq_length: int,
    with_head: bool = False,
    **sizes: float,
) -> None:
    """Writes an encoder directory with random weights.

    Args:
      folder: where to.
      vocabulary: its vocabulary.
      max_seq_length: default length in tokens.
      with_head: add a language-model head.
      **sizes: fields of the `EncoderConfig`; it has two attention heads.
    """
    import tensorflow as tf

    from official_cmlm.checkpoints.encoder_directory import describe
    from official_cmlm.configs.encoder import EncoderConfig
    from official_cmlm.modeling.language_model_head import build_language_model_head
    from official_cmlm.modeling.sentence_encoder import SentenceEncoderModel

    config = EncoderConfig(vocab_size=len(vocabulary), num_attention_heads=2, **sizes)
    tf.random.set_seed(1)
    encoder = SentenceEncoderModel(config)
    items = {"encoder": encoder}
    if with_head:
        items["language_model_head"] = build_language_model_head(encoder)
    describe(folder, config, vocabulary, max_seq_length)
    tf.train.Checkpoint(**items).save(str(folder / "ckpt"))


def _wordpiece(folder: Path) -> "Vocabulary":
    """Special tokens, single characters and their continuations, and a few words."""
    from official_cmlm.tokenization import load_vocabulary

    letters = sorted({*string.ascii_lowercase, *string.digits, *"".join(_WORDS).lower(), *"?ß"})
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *string.punctuation, *letters]
    tokens += [f"##{letter}" for letter in letters] + _WORDS[:8]
    path = folder / "vocab.txt"
    path.write_text("".join(f"{token}\n" for token in dict.fromkeys(tokens)), encoding="utf-8")
    return load_vocabulary(path, lower_case=True)


def _byte_pair(folder: Path) -> "Vocabulary":
    """256 bytes and the merges of a few words."""
    import json

    import tokenizers

    from official_cmlm.tokenization import BytePairVocabulary

    learner = tokenizers.ByteLevelBPETokenizer()
    special = list(BytePairVocabulary.special_tokens.values())
    learner.train_from_iterator(
        [" ".join(_WORDS)] * 3, vocab_size=400, min_frequency=2, special_tokens=special,
        show_progress=False,
    )  # fmt: skip
    model = json.loads(learner.to_str())["model"]
    merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in model["merges"]]
    return BytePairVocabulary(tuple(sorted(model["vocab"], key=model["vocab"].get)), tuple(merges))


def _sentence_piece(folder: Path) -> "Vocabulary":
    """XLM-R's special tokens, single characters, and a few words; no rules of normalisation."""
    from official_cmlm.tokenization.sentence_piece import sentence_piece_vocabulary

    special = ["<s>", "<pad>", "</s>", "<unk>"]
    letters = sorted({*string.printable.strip(), *"".join(_WORDS), *"".join(_ODD)} - {"▁"})
    words = [f"▁{word}" for word in _WORDS[:8]]
    pieces = [("▁", -3.0), *((letter, -6.0) for letter in letters), *((w, -4.0) for w in words)]
    entries = [*((token, 0.0) for token in special), *pieces, ("<mask>", 0.0)]
    return sentence_piece_vocabulary(folder, entries, {*special, "<mask>"}, b"")


# Kind -> its name, and what makes a small vocabulary of it.
_VOCABULARIES: dict[str, tuple[str, Callable[[Path], "Vocabulary"]]] = {
    "wordpiece": ("WordPiece", _wordpiece),
    "byte_pair": ("byte-level BPE", _byte_pair),
    "sentence_piece": ("SentencePiece", _sentence_piece),
}
STRINGS: list[Target] = [Strings(kind) for kind in _VOCABULARIES]
