"""`dataset.json`, the manifest of a folder of records: describes them without reading them."""

import dataclasses
import json
import os
import typing
from pathlib import Path
from typing import Any

from official_cmlm.errors import UserError
from official_cmlm.files import atomic_write_text, inside, read_object
from official_cmlm.tokenization import Vocabulary, load_vocabulary

FILE_NAME = "dataset.json"
FORMAT_VERSION = 1


@dataclasses.dataclass(frozen=True)
class Shard:
    """One TFRecord file of the folder.

    Attributes:
      name: file name inside the folder.
      records: how many records it holds.
      bytes: its size on disk.
      sha256: checksum of the file, hexadecimal.
      language: the one language of all its records, `en-de` for pairs; empty if it is not known.
    """

    name: str
    records: int
    bytes: int
    sha256: str
    language: str = ""


@dataclasses.dataclass(frozen=True)
class Manifest:
    """The description of a folder of records.

    Attributes:
      kind: `documents` or `pairs`.
      documents, records, sentences, tokens: totals; a sentence that a cut repeats counts once.
        Pairs count their rows as documents and their texts as sentences.
      languages: language tag -> number of sentences; of pairs `en-de` -> number of pairs.
      length_histogram: upper bound in tokens -> number of sentences of at most so many tokens and
        more than the bound before; the last key is `inf`.
      vocabulary: `hash`, `size`, `kind` and settings of what made the ids; `after_space: true` if
        the records hold how the ids of sentences change behind a space (`records.documents`).
      keep_text: whether the records hold the sentences' text too.
      counters: how much text was dropped or changed by data preparation, by `stage/reason`.
      shards: the files, in order.
      row_size: pairs per row, stored one after the other; 1 unless a row's pairs are translations
        of each other. Not used for documents.
      labels: label -> number of rows; empty if the pairs have none.
      language_tokens: as `languages`, tokens; empty in manifests that older releases wrote.
      counters_by_language: of what was left out, `stage/reason` -> language code -> count, where
        the language was known; empty in manifests that older releases wrote.
      negatives: of pairs, how many have a third text, a hard negative; not written if none has.
    """

    kind: str
    documents: int
    records: int
    sentences: int
    tokens: int
    languages: dict[str, int]
    length_histogram: dict[str, int]
    vocabulary: dict[str, Any]
    keep_text: bool
    counters: dict[str, int]
    shards: list[Shard]
    row_size: int = 1
    labels: dict[str, int] = dataclasses.field(default_factory=dict)
    language_tokens: dict[str, int] = dataclasses.field(default_factory=dict)
    counters_by_language: dict[str, dict[str, int]] = dataclasses.field(default_factory=dict)
    negatives: int = 0
    format_version: int = FORMAT_VERSION

    @property
    def vocab_size(self) -> int | None:
        """Entries of the vocabulary; None if they are not known."""
        size = self.vocabulary.get("size")
        return size if type(size) is int and size > 0 else None

    @property
    def after_space(self) -> bool:
        """Whether the records hold how ids change behind a space; those of old releases do not."""
        return self.vocabulary.get("after_space") is True

    def save(self, folder: str | os.PathLike) -> None:
        """Writes `dataset.json`, last of all files: the folder is complete once it is there."""
        values = dataclasses.asdict(self)
        if not self.negatives:
            # Older releases refuse keys that they do not know.
            del values["negatives"]
        text = json.dumps(values, indent=2) + "\n"
        atomic_write_text(Path(folder) / FILE_NAME, text)


def load_manifest(folder: str | os.PathLike, kind: str = "") -> Manifest:
    """Reads and checks the manifest of a folder of records.

    Args:
      folder: the folder.
      kind: `documents` or `pairs`, which it must hold; empty: either.

    Raises:
      UserError: if there is none, if it is of another kind or version, if it lists no records, or
        if a shard is missing, has another size than when it was written, or ends inside a row.
    """
    folder = Path(folder)
    path = folder / FILE_NAME
    if not path.exists():
        raise UserError(
            f"{folder}: no {FILE_NAME}; python -m data_prep.create_{kind or 'documents'} writes "
            "such a folder"
        )
    values = read_object(path, "make the records again")
    version = values.get("format_version")
    if version is None:
        raise _damaged(path, "no format_version")
    if version != FORMAT_VERSION:
        raise UserError(
            f"{path}: format version {version!r:.60}, this release reads {FORMAT_VERSION}; "
            "make the records again"
        )
    manifest = _typed(path, Manifest, values)
    if kind and manifest.kind != kind:
        raise UserError(
            f"{path}: holds {manifest.kind} records, {kind} records are needed here; "
            f"python -m data_prep.create_{kind} writes them"
        )
    if not manifest.records:
        raise UserError(f"{path}: holds no records; make them again from text with sentences")
    size = manifest.row_size
    if size < 1:
        raise _damaged(path, f"row_size must be 1 or more, got {size}")
    for shard in manifest.shards:
        file = inside(folder, shard.name, path)
        if not file.exists():
            raise UserError(f"{file}: listed in {FILE_NAME} but missing; make the records again")
        if file.stat().st_size != shard.bytes:
            raise UserError(
                f"{file}: {file.stat().st_size} bytes, {FILE_NAME} says {shard.bytes} "
                f"({shard.records} records); the copy is incomplete, fetch or make it again"
            )
        if shard.records % size:
            raise UserError(
                f"{file}: {shard.records} records do not divide into rows of {size} pairs, which "
                f"{FILE_NAME} says it holds; make the records again"
            )
    return manifest


def _damaged(path: Path, what: str) -> UserError:
    return UserError(f"{path}: not a manifest of this project ({what}); make the records again")


def _typed(path: Path, kind: type, values: Any) -> Any:
    """Builds one of the dataclasses above; raises `UserError` if a field is of another type."""
    if not isinstance(values, dict):
        raise _damaged(path, f"{kind.__name__} must be an object")
    fields = {field.name: field for field in dataclasses.fields(kind)}
    if surplus := sorted(values.keys() - fields.keys()):
        raise _damaged(path, f"unknown key {surplus[0][:60]!r}")
    for name, field in fields.items():
        needed = field.default is field.default_factory is dataclasses.MISSING
        if name not in values and needed:
            raise _damaged(path, f"no {name}")
    hints = typing.get_type_hints(kind)
    return kind(**{name: _value(path, name, hints[name], value) for name, value in values.items()})


def _value(path: Path, name: str, hint: Any, value: Any) -> Any:
    """`value`, whose type is checked; inner values are those of dicts and lists."""
    if hint is Any:
        return value
    outer = typing.get_origin(hint) or hint
    if dataclasses.is_dataclass(outer):
        return _typed(path, outer, value)
    if type(value) is not outer:
        raise _damaged(path, f"{name} must be {outer.__name__}, got {value!r:.60}")
    if outer is int and not 0 <= value < 1 << 63:
        raise _damaged(path, f"{name} must be 0 to 2^63 - 1, got {value!r:.60}")
    if outer is list:
        return [_value(path, name, typing.get_args(hint)[0], each) for each in value]
    if outer is dict:
        inner = typing.get_args(hint)[1]
        return {key: _value(path, f"{name}.{key}", inner, each) for key, each in value.items()}
    return value


def load_records_vocabulary(folder: str | os.PathLike, manifest: Manifest) -> Vocabulary:
    """Reads the vocabulary that is stored with the records; checks it against the manifest."""
    vocabulary = load_vocabulary(folder)
    check_vocabulary(folder, manifest, vocabulary)
    return vocabulary


def check_vocabulary(folder: str | os.PathLike, manifest: Manifest, vocabulary: Vocabulary) -> None:
    """Raises `UserError` with both hashes if the records were made with another vocabulary."""
    made_with = manifest.vocabulary.get("hash"), manifest.vocabulary.get("size")
    if made_with[0] != vocabulary.hash:
        raise UserError(
            f"{folder}: the records were made with vocabulary {made_with[0]} "
            f"({made_with[1]} entries), the encoder uses {vocabulary.hash} "
            f"({len(vocabulary)} entries); make the records again with "
            "--vocab_file= the encoder's folder"
        )
