"""Targets of `benchmarks.fuzz`: random strings for encoders, mutated files for readers.

A target is made in the process that draws the cases, but opened and run in another one, which may
crash. A reader has to answer any file with a result or with one line (`UserError`). Everything else
is a fault: another exception, a message of several lines, a result that is not finite.
"""

import abc
import dataclasses
import json
import random
import re
import shutil
import string
import tempfile
import unicodedata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from official_cmlm.common.errors import UserError

if TYPE_CHECKING:
    import numpy as np

    from official_cmlm.tokenization import Vocabulary


@dataclasses.dataclass(frozen=True)
class Outcome:
    """Result of a case.

    Attributes:
      counts: named counts, e.g. `read`; reported as sums.
      faults: (description, index of the item); each is reported.
    """

    counts: dict[str, int] = dataclasses.field(default_factory=dict)
    faults: list[tuple[str, int]] = dataclasses.field(default_factory=list)


class Target(abc.ABC):
    """A part of the project that must answer to any input.

    Attributes:
      name: name in the report, in words.
      share: number of its items, in proportion to the other targets.
    """

    name: str
    share: float = 1.0

    @abc.abstractmethod
    def make_case(self, rng: random.Random) -> list:
        """Draws a case: some items that are tried together, and can be tried apart."""

    @abc.abstractmethod
    def open(self, folder: Path) -> None:
        """Loads the target; runs once in each process.

        Args:
          folder: the same folder for all processes of the target, with its files.
        """

    @abc.abstractmethod
    def run(self, case: list) -> Outcome:
        """Tries the items; an exception counts as a fault of all of them."""


# Largest difference of a component between `encode` and the serving model that is rounding.
_TOLERANCE = 1e-4
# Strings of a case: few enough for the time limit, enough that calls cost little.
_STRINGS = 1000
# Words that can be written with the tiny vocabulary.
_PIECES = (
    "the a cat dog bird sat ran flew Straße élan ΣΊΣΥΦΟΣ кошка 猫 नमस्ते ไทย مُحَمَّد 한국어".split()
)
_ODD = [*"\u0301\u200b\u200d\ufeff\u00ad\ufffd\u202e\U0010ffff\ufdd0\u096c\u0131\u1e9e\ufb01\xa0"]
_ODD += ["👩\u200d👧", "🇩🇪", "e\u0301\u0302", "[MASK]", "<mask>", "</s>", "##s", "\r\n", "İ", "Ǆ"]


class Strings(Target):
    """`SentenceEncoder.encode`, the serving model and the preprocess module, of a tiny encoder.

    Each string goes through all three. A text must have a finite vector, the same from `encode` and
    from the serving model. Bytes that are not UTF-8, which only a client of a module can send, must
    have a finite vector too. The preprocess module must give ids of the vocabulary.
    """

    name = "strings"
    # Strings are tried faster than files.
    share = 30.0

    def make_case(self, rng: random.Random) -> list[bytes | str]:
        if rng.random() < 0.1:
            return [_long_string(rng)]
        kinds = rng.choices(_KINDS, weights=_WEIGHTS, k=_STRINGS)
        return [kind(rng) for kind in kinds]

    def open(self, folder: Path) -> None:
        import tensorflow as tf
        import tensorflow_text  # noqa: F401 - registers the ops of the modules

        from official_cmlm.encoding.sentence_encoder import SentenceEncoder

        if not (folder / "out" / "serving" / "1").exists():
            from export.formats import tfhub

            write_encoder(folder / "model", _vocabulary(folder))
            tfhub.export(str(folder / "model"), str(folder / "out"), None, overwrite=True)
        self._encoder = SentenceEncoder.load(folder / "model")
        # The module is kept, as its function alone does not keep its variables alive.
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
        differ = [texts[i] for i in _rows(apart[:, None] > _TOLERANCE)]
        known = [_without_newer(case[i]) for i in differ]
        served = self._serving.serve(tf.constant(utf8(known), tf.string))["default"].numpy()
        apart = np.abs(self._encoder.encode(known) - served).max(axis=1, initial=0)
        faults += [
            ("encode and serving differ", differ[i]) for i in _rows(apart[:, None] > _TOLERANCE)
        ]
        return Outcome(
            counts={"through encode": len(texts), "through serving and preprocess": len(case)},
            faults=faults,
        )

    def _wrong(self, inputs: "dict[str, np.ndarray]", count: int) -> list[int]:
        """Returns the rows that are not `[CLS] … [SEP]` and padding."""
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


def _without_newer(text: str) -> str:
    """Returns a text with spaces for characters that only one library may take for punctuation.

    `tokenizers` does not know the punctuation of Unicode 9 and later, TensorFlow does
    (docs/runtimes.md). Python does not know the category of the newest characters.
    """
    kinds = ("Cn", "Pc", "Pd", "Pe", "Pf", "Pi", "Po", "Ps")
    return "".join(" " if c > "~" and unicodedata.category(c) in kinds else c for c in text)


def _rows(wrong: "np.ndarray") -> list[int]:
    """Returns the rows with anything wrong."""
    return wrong.any(axis=1).nonzero()[0].tolist()


def _random_bytes(rng: random.Random) -> bytes:
    return rng.randbytes(rng.randint(0, 60))


def _damaged(rng: random.Random) -> bytes:
    """Returns UTF-8 with some bytes changed."""
    data = bytearray(_words(rng).encode("utf-8"))
    for _ in range(rng.randint(1, 3)):
        if data:
            data[rng.randrange(len(data))] = rng.randrange(256)
    return bytes(data)


def _code_points(rng: random.Random) -> str:
    """Returns code points of the first part of Unicode or of all of it, surrogates included."""
    last = rng.choice((0x7F, 0x24F, 0x2FFF, 0xFFFF, 0x1FFFF, 0x10FFFF))
    return "".join(map(chr, rng.choices(range(last + 1), k=rng.randint(0, 30))))


def _words(rng: random.Random) -> str:
    return " ".join(rng.choices(_PIECES, k=rng.randint(0, 12)))


def _odd(rng: random.Random) -> str:
    return "".join(rng.choices([*_ODD, *_PIECES, *" .,'-\n\t"], k=rng.randint(0, 20)))


_KINDS = (_random_bytes, _damaged, _code_points, _words, _odd)
_WEIGHTS = (20, 10, 40, 10, 20)


def _long_string(rng: random.Random) -> bytes | str:
    """Returns a string of 100 kB to 10 MB."""
    size = int(10 ** rng.uniform(5, 7))
    if rng.random() < 0.2:
        return rng.randbytes(size)
    part = rng.choice([_odd(rng) + _code_points(rng) + " ", *_PIECES, *_ODD, "\0"])
    return part * (size // len(part.encode("utf-8", "replace")))


def write_encoder(folder: Path, vocabulary: "Vocabulary") -> None:
    """Writes a tiny encoder directory with random weights and a language-model head."""
    import tensorflow as tf

    from official_cmlm.checkpoints.encoder_directory import describe
    from official_cmlm.configs.encoder import EncoderConfig
    from official_cmlm.modeling.language_model_head import build_language_model_head
    from official_cmlm.modeling.sentence_encoder import SentenceEncoderModel

    config = EncoderConfig(
        vocab_size=len(vocabulary),
        num_attention_heads=2,
        hidden_size=16,
        num_layers=1,
        intermediate_size=32,
        max_position_embeddings=48,
        # Far from 0, so that every token matters.
        initializer_range=0.3,
    )
    tf.random.set_seed(1)
    encoder = SentenceEncoderModel(config)
    describe(folder, config, vocabulary, 24)
    head = build_language_model_head(encoder)
    checkpoint = tf.train.Checkpoint(encoder=encoder, language_model_head=head)
    checkpoint.save(str(folder / "ckpt"))


def _vocabulary(folder: Path) -> "Vocabulary":
    """Makes a vocabulary of special tokens, characters, their continuations and a few words."""
    from official_cmlm.tokenization import load_vocabulary

    letters = sorted({*string.ascii_lowercase, *string.digits, *"".join(_PIECES).lower(), *"?ß"})
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *string.punctuation, *letters]
    tokens += [f"##{letter}" for letter in letters] + _PIECES[:8]
    path = folder / "vocab.txt"
    path.write_text("".join(f"{token}\n" for token in dict.fromkeys(tokens)), encoding="utf-8")
    return load_vocabulary(path, lower_case=True)


# Files of a case, all of one reader.
_FILES = 40
_MOST_LETTERS = 2000
_WORDS = "the cat sat on mat a dog ran over it and then slept".split()
_VALUES = [
    *(None, True, False, 0, 1, -1, 3, 2**31, 2**63, -(2**63) - 1, 10**30, 10**400, 0.5, -0.0),
    *(1e-320, 1e308, float("nan"), float("inf"), "", "a", "../x", "/etc/passwd", "a\0b", "\ud800"),
    *("<script>", "|\n|", "1" * 5000, [], {}, [[]], [None], {"": ""}, [[[[[]]]]], {"a": {"a": {}}}),
]
_BYTES = (
    b'\0 \xff \xef\xbb\xbf \n -1 1e999 { ] " ../ \xed\xa0\x80 NaN &a[*a] !!python/name:os'.split(
        b" "
    )
)
_BYTES += [b"9" * 30, b"[" * 5000]


def mutated(content: bytes, rng: random.Random) -> bytes:
    """Returns the content with one to three changes; JSON usually has its values changed."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        if content[:1] in b"{[" and rng.random() < 0.7:
            content = _other_value(content, rng)
        else:
            content = _other_bytes(content, rng)
    return content


def _other_value(content: bytes, rng: random.Random) -> bytes:
    """Returns JSON with a value replaced, or a key removed, renamed or added."""
    try:
        root = json.loads(content)
    except (ValueError, RecursionError):
        return _other_bytes(content, rng)
    places: list[tuple[Any, Any]] = []

    def collect(node: Any) -> None:
        keys = list(node) if isinstance(node, dict) else range(len(node))
        for key in keys:
            places.append((node, key))
            if isinstance(node[key], (dict, list)):
                collect(node[key])

    if isinstance(root, (dict, list)):
        collect(root)
    if not places:
        return json.dumps(rng.choice(_VALUES)).encode("utf-8", "surrogatepass")
    node, key = rng.choice(places)
    kind = rng.random()
    if kind < 0.7:
        node[key] = rng.choice(_VALUES)
    elif kind < 0.85:
        del node[key]
    elif isinstance(node, dict):
        node[str(rng.choice(_VALUES))[:100]] = node.pop(key)
    else:
        node.append(rng.choice(_VALUES))
    return json.dumps(root, ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass")


def _other_bytes(content: bytes, rng: random.Random) -> bytes:
    """Returns the content with a bit, a part, a number or the order of its lines changed."""
    data, size = bytearray(content), len(content)
    start = rng.randrange(size + 1)
    end = min(start + int(10 ** rng.uniform(0, 3)), size)
    numbers = list(re.finditer(rb"\d+", content[: 1 << 16]))
    kind = rng.randrange(7)
    if kind == 0 and size:
        data[rng.randrange(size)] ^= 1 << rng.randrange(8)
    elif kind == 1:
        del data[start : rng.choice((end, size))]
    elif kind == 2:
        data[start:start] = rng.randbytes(rng.choice((1, 4, 100)))
    elif kind == 3:
        data[start:end] *= 2
    elif kind == 4 and numbers:
        found = rng.choice(numbers)
        data[found.start() : found.end()] = rng.choice((b"0", b"-1", b"9" * 12, b"1e400", b""))
    elif kind == 5:
        lines = content.split(b"\n")
        rng.shuffle(lines)
        return b"\n".join(lines)
    else:
        data[start : start + rng.choice((0, 1, 4))] = rng.choice(_BYTES)
    return bytes(data)


class Files(Target):
    """A reader. Each item replaces a file of a valid folder, which is then read."""

    # Weight of each file that is mutated, by name; others stay as they are.
    files: dict[str, int]

    @abc.abstractmethod
    def write(self, folder: Path) -> None:
        """Writes the valid folder."""

    @abc.abstractmethod
    def read(self, folder: Path, name: str) -> None:
        """Reads the folder; a `UserError` is an answer.

        Raises:
          ArithmeticError: for a result that is not finite.
        """

    def make_case(self, rng: random.Random) -> list[tuple[str, bytes]]:
        valid = self._valid()
        names = rng.choices(list(valid), [self.files[name] for name in valid], k=_FILES)
        return [(name, mutated(valid[name], rng)) for name in names]

    def _valid(self) -> dict[str, bytes]:
        """Returns the content of the files, made once in each process."""
        if not hasattr(self, "_contents"):
            with tempfile.TemporaryDirectory() as folder:
                root = Path(folder) / "valid"
                root.mkdir()
                self.write(root)
                self._contents = {name: (root / name).read_bytes() for name in self.files}
        return self._contents

    def open(self, folder: Path) -> None:
        self._folder = folder / "valid"
        # A process that crashed has left a mutated file there.
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir()
        self.write(self._folder)
        for name in self.files:
            self.read(self._folder, name)

    def run(self, case: list[tuple[str, bytes]]) -> Outcome:
        counts = {"read": 0, "refused": 0}
        faults = []
        for index, (name, content) in enumerate(case):
            path = self._folder / name
            before = path.read_bytes()
            path.write_bytes(content)
            try:
                self.read(self._folder, name)
                counts["read"] += 1
            except UserError as error:
                counts["refused"] += 1
                message = str(error)
                if "\n" in message or len(message) > _MOST_LETTERS:
                    faults.append(("not one line", index))
            except Exception as error:
                faults.append((f"{type(error).__name__} ({name})", index))
            finally:
                path.write_bytes(before)
        return Outcome(counts, faults)


class EncoderDescription(Files):
    """`encoder_config.json` and the vocabulary of an encoder directory."""

    name = "files of an encoder directory"
    files = {"encoder_config.json": 3, "vocab.txt": 1, "vocab.json": 1}  # noqa: RUF012

    def write(self, folder: Path) -> None:
        write_encoder(folder, _vocabulary(folder))

    def read(self, folder: Path, name: str) -> None:
        from official_cmlm.checkpoints.encoder_directory import EncoderDirectory

        directory = EncoderDirectory.open(folder)
        len(directory.vocabulary)
        directory.config.check_memory()


class HuggingFace(Files):
    """A sentence-transformers folder, as the import reads it."""

    name = "sentence-transformers folders"
    files = {  # noqa: RUF012
        "config.json": 3,
        "modules.json": 1,
        "sentence_bert_config.json": 1,
        "1_Pooling/config.json": 1,
        "tokenizer.json": 2,
        "tokenizer_config.json": 1,
        "vocab.txt": 1,
        "model.safetensors": 3,
    }

    def write(self, folder: Path) -> None:
        from export import export_sentence_transformers

        source = folder.with_name("source")
        shutil.rmtree(source, ignore_errors=True)
        source.mkdir()
        write_encoder(source, _vocabulary(source))
        folder.rmdir()
        export_sentence_transformers.export(str(source), str(folder), False, None, False)

    def read(self, folder: Path, name: str) -> None:
        from official_cmlm.checkpoints.formats.imported_encoder import ImportOptions, check_finite
        from official_cmlm.checkpoints.formats.importing import read_source

        check_finite(str(folder), read_source(str(folder), ImportOptions()))


TARGETS: list[Target] = [Strings(), EncoderDescription(), HuggingFace()]
