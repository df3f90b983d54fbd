"""`dataset.json`, the manifest of a folder of records: describes them without reading them."""

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

from official_cmlm.errors import UserError
from official_cmlm.files import atomic_write_text
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
        Pairs count their rows as documents and both texts as sentences.
      languages: language tag -> number of sentences; of pairs `en-de` -> number of pairs.
      length_histogram: upper bound in tokens -> number of sentences of at most so many tokens and
        more than the bound before; the last key is `inf`.
      vocabulary: `hash`, `size`, `kind` and settings of what made the ids.
      keep_text: whether the records hold the sentences' text too.
      counters: how much text was dropped or changed by data preparation, by `stage/reason`.
      shards: the files, in order.
      row_size: pairs per row, stored one after the other; 1 unless a row's pairs are translations
        of each other. Not used for documents.
      labels: label -> number of rows; empty if the pairs have none.
      language_tokens: as `languages`, tokens; empty in manifests that older releases wrote.
      counters_by_language: of what was left out, `stage/reason` -> language code -> count, where
        the language was known; empty in manifests that older releases wrote.
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
    format_version: int = FORMAT_VERSION

    def save(self, folder: str | os.PathLike) -> None:
        """Writes `dataset.json`, last of all files: the folder is complete once it is there."""
        text = json.dumps(dataclasses.asdict(self), indent=2) + "\n"
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
    try:
        values = json.loads(path.read_text())
        version = values["format_version"]
    except (ValueError, TypeError, KeyError) as error:
        raise _damaged(path, error) from None
    if version != FORMAT_VERSION:
        raise UserError(
            f"{path}: format version {version}, this release reads {FORMAT_VERSION}; "
            "make the records again"
        )
    try:
        values["shards"] = [Shard(**shard) for shard in values["shards"]]
        manifest = Manifest(**values)
    except (TypeError, KeyError) as error:
        raise _damaged(path, error) from None
    if kind and manifest.kind != kind:
        raise UserError(
            f"{path}: holds {manifest.kind} records, {kind} records are needed here; "
            f"python -m data_prep.create_{kind} writes them"
        )
    if not manifest.records:
        raise UserError(f"{path}: holds no records; make them again from text with sentences")
    size = manifest.row_size
    if type(size) is not int or size < 1:
        raise _damaged(path, ValueError(f"row_size must be 1 or more, got {size!r}"))
    for shard in manifest.shards:
        file = folder / shard.name
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


def _damaged(path: Path, error: Exception) -> UserError:
    return UserError(f"{path}: not a manifest of this project ({error}); make the records again")


def load_records_vocabulary(folder: str | os.PathLike, manifest: Manifest) -> Vocabulary:
    """Reads the vocabulary that is stored with the records; checks it against the manifest."""
    vocabulary = load_vocabulary(folder)
    check_vocabulary(folder, manifest, vocabulary)
    return vocabulary


def check_vocabulary(folder: str | os.PathLike, manifest: Manifest, vocabulary: Vocabulary) -> None:
    """Raises `UserError` with both hashes if the records were made with another vocabulary."""
    if manifest.vocabulary["hash"] != vocabulary.hash:
        raise UserError(
            f"{folder}: the records were made with vocabulary {manifest.vocabulary['hash']} "
            f"({manifest.vocabulary['size']} entries), the encoder uses {vocabulary.hash} "
            f"({len(vocabulary)} entries); make the records again with "
            "--vocab_file= the encoder's folder"
        )
