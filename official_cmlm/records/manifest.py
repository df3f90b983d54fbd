"""`dataset.json`, the manifest of a folder of records: describes them without reading them."""

import dataclasses
import os
import re
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

from official_cmlm.common.errors import UserError
from official_cmlm.common.files import join_inside, read_object, write_json
from official_cmlm.common.validation import at_least, read_dataclass
from official_cmlm.tokenization import VOCABULARY_FILES, Vocabulary, load_vocabulary

FILE_NAME = "dataset.json"
FORMAT_VERSION = 1
# Before a training begins, it checks the files of folders of at most this many shards. Files of
# larger and of remote folders are checked when they are read: asking a file system about 100,000
# files takes hours.
_MOST_CHECKED = 100
_Count = Annotated[int, at_least(0)]
_Counts = Annotated[dict[str, int], at_least(0)]
# Fields that are summed over several folders.
_TOTALS = ("documents", "records", "sentences", "tokens", "languages", "length_histogram")
_TOTALS += ("counters", "labels", "language_tokens", "counters_by_language", "negatives", "scores")
# Names that cannot point outside of the folder.
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,200}")


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
    records: _Count
    bytes: _Count
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
      length_histogram: upper bound in tokens -> number of sentences of at most that many tokens and
        more than the previous bound; the last key is `inf`.
      vocabulary: `hash`, `size`, `kind` and settings of the vocabulary of the ids;
        `after_space: true` if the records hold how the ids of sentences change after a space
        (`records.documents`).
      keep_text: whether the records hold the sentences' text too.
      counters: how much text was dropped or changed by data preparation, by `stage/reason`.
      shards: the files, in order.
      row_size: pairs per row, stored one after the other; 1 unless a row's pairs are translations
        of each other. Not used for documents.
      labels: label -> number of rows; empty if the pairs have none.
      language_tokens: as `languages`, tokens; empty in manifests that older releases wrote.
      counters_by_language: `stage/reason` -> language code -> how much was left out, where the
        language was known; empty in manifests that older releases wrote.
      negatives: of pairs, how many have a third text, a hard negative; not written if none has.
      scores: of pairs, how many have a score; all or none, and not written if none has.
      roles, prompts: of pairs, the role of the first and of the second text, such as `query`, and
        the prompt before it in the ids (not in the text); not written if there are none.
      vectors: `size` of a teacher's vectors in the records, and the `model` that gave them; not
        written if there are none.
    """

    kind: str
    documents: _Count
    records: _Count
    sentences: _Count
    tokens: _Count
    languages: _Counts
    length_histogram: _Counts
    vocabulary: dict[str, Any]
    keep_text: bool
    counters: _Counts
    shards: list[Shard]
    row_size: Annotated[int, at_least(1)] = 1
    labels: _Counts = dataclasses.field(default_factory=dict)
    language_tokens: _Counts = dataclasses.field(default_factory=dict)
    counters_by_language: Annotated[dict[str, dict[str, int]], at_least(0)] = dataclasses.field(
        default_factory=dict
    )
    negatives: _Count = 0
    scores: _Count = 0
    roles: list[str] = dataclasses.field(default_factory=list)
    prompts: list[str] = dataclasses.field(default_factory=list)
    vectors: dict[str, Any] = dataclasses.field(default_factory=dict)
    format_version: int = FORMAT_VERSION

    @property
    def vocab_size(self) -> int | None:
        """Entries of the vocabulary; None if they are not known."""
        size = self.vocabulary.get("size")
        return size if type(size) is int and size > 0 else None

    @property
    def vector_size(self) -> int:
        """Components of the teacher's vectors in the records; 0 if they hold none."""
        size = self.vectors.get("size")
        return size if type(size) is int and size > 0 else 0

    @property
    def after_space(self) -> bool:
        """Whether the records hold how ids change after a space; those of old releases do not."""
        return self.vocabulary.get("after_space") is True

    def to_json(self) -> dict[str, Any]:
        """Returns the content of `dataset.json`."""
        values = dataclasses.asdict(self)
        # Older releases refuse keys that they do not know.
        for name in ("negatives", "scores", "roles", "prompts", "vectors"):
            if not values[name]:
                del values[name]
        return values

    def save(self, folder: str | os.PathLike) -> None:
        """Writes `dataset.json`, last of all files: the folder is complete once it is there."""
        write_json(Path(folder) / FILE_NAME, self.to_json())


@dataclasses.dataclass(frozen=True)
class MergedManifest(Manifest):
    """The manifests of several folders as one, whose shards follow each other; it is never saved.

    Attributes:
      parts: (folder, its manifest), in the order of the shards.
    """

    parts: tuple[tuple[str, Manifest], ...] = ()


def parts_of(folders: Sequence[str], manifest: Manifest) -> tuple[tuple[str, Manifest], ...]:
    """Lists (folder, its manifest) of each folder that a manifest describes, in shard order.

    Args:
      folders: the folders that the manifest was read from, see `load_folders`.
      manifest: of one folder or of several.
    """
    return manifest.parts if isinstance(manifest, MergedManifest) else ((folders[0], manifest),)


def load_folders(folders: Sequence[str], kind: str = "") -> Manifest:
    """Reads the manifests of folders that are read as one; does not look at files of large folders.

    Returns:
      The manifest of one folder as it is, a `MergedManifest` of several.

    Raises:
      UserError: see `load_manifest` and `merge`.
    """
    parts = [(folder, load_manifest(folder, kind, _MOST_CHECKED)) for folder in folders]
    return parts[0][1] if len(parts) == 1 else merge(parts)


def merge(parts: Iterable[tuple[str, Manifest]]) -> MergedManifest:
    """Describes several folders as one.

    Raises:
      UserError: names two folders whose records cannot be read together: of another kind, another
        vocabulary, with and without labels, or with rows of another size.
    """
    parts = tuple(parts)
    folder, first = parts[0]
    for other, manifest in parts[1:]:
        for what, of_first, of_other in zip(
            (
                *("kinds", "vocabularies", "labels", "scores", "numbers of pairs a row"),
                *("settings of data_prep", "teachers' vectors"),
            ),
            _common(first),
            _common(manifest),
        ):
            if of_first != of_other:
                raise UserError(
                    f"{folder} and {other} cannot be read together, their records have different "
                    f"{what}: {of_first} and {of_other}; make the records of one of them again"
                )

    return MergedManifest(
        **{name: getattr(first, name) for name in ("kind", "vocabulary", "row_size", "vectors")},
        **{name: _sum([getattr(manifest, name) for _, manifest in parts]) for name in _TOTALS},
        keep_text=all(manifest.keep_text for _, manifest in parts),
        shards=[shard for _, manifest in parts for shard in manifest.shards],
        parts=parts,
    )


def _sum(values: list[Any]) -> Any:
    """Returns the sum of numbers, or of the numbers below each key of nested mappings."""
    if not isinstance(values[0], dict):
        return sum(values)
    keys = dict.fromkeys(key for value in values for key in value)
    return {key: _sum([value[key] for value in values if key in value]) for key in keys}


def _common(manifest: Manifest) -> tuple[str, ...]:
    """Lists what must be equal in folders that are read together, for messages."""
    return (
        manifest.kind,
        f"{manifest.vocabulary.get('hash')} ({manifest.vocabulary.get('size')} entries)",
        "labels" if manifest.labels else "no labels",
        "scores" if manifest.scores else "no scores",
        str(manifest.row_size),
        "ids after a space" if manifest.after_space else "no ids after a space",
        str(manifest.vectors or "none"),
    )


def load_manifest(
    folder: str | os.PathLike, kind: str = "", most_checked: int | None = None
) -> Manifest:
    """Reads and checks the manifest of a folder of records.

    Args:
      folder: the folder, local or on any file system that `tf.io.gfile` knows.
      kind: `documents` or `pairs`, which it must hold; empty: either.
      most_checked: do not look at the files of a folder of more shards, nor of a remote folder;
        None: look at all of them.

    Raises:
      UserError: if there is none, if it is of another kind or version, if it lists no records, or
        if a shard is missing, has another size than when it was written, or ends inside a row.
    """
    path = join(folder, FILE_NAME)
    if not _exists(path):
        raise UserError(
            f"{folder}: no {FILE_NAME}; cmlm create-{kind or 'documents'} writes such a folder"
        )
    values = read_object(path, "make the records again")
    version = values.get("format_version")
    if version != FORMAT_VERSION:
        raise UserError(
            f"{path}: format version {version!r:.60}, this release reads {FORMAT_VERSION}; "
            "make the records again"
        )
    manifest = read_dataclass(Manifest, values, path)
    check_kind(folder, manifest, kind)
    if not manifest.records:
        raise UserError(f"{path}: holds no records; make them again from text with sentences")
    size = manifest.row_size
    for shard in manifest.shards:
        if not _PLAIN_NAME.fullmatch(shard.name):
            join_inside(folder, shard.name, path)
        if shard.records % size:
            raise UserError(
                f"{join(folder, shard.name)}: {shard.records} records do not divide into rows of "
                f"{size} pairs, which {FILE_NAME} says it holds; make the records again"
            )
    if most_checked is None or (len(manifest.shards) <= most_checked and not _is_remote(folder)):
        check_files(folder, manifest)
    return manifest


def check_kind(folder: str | os.PathLike, manifest: Manifest, kind: str) -> None:
    """Raises `UserError` if a folder's records are not of the needed kind; empty: any."""
    if kind and manifest.kind != kind:
        raise UserError(
            f"{join(folder, FILE_NAME)}: holds {manifest.kind} records, {kind} records are needed "
            f"here; cmlm create-{kind} writes them"
        )


def check_files(folder: str | os.PathLike, manifest: Manifest) -> None:
    """Asks the file system about each shard.

    Raises:
      UserError: if a shard is missing or has another size than when it was written.
    """
    for shard in manifest.shards:
        file = join(folder, shard.name)
        size = _size(file)
        if size is None:
            raise UserError(f"{file}: listed in {FILE_NAME} but missing; make the records again")
        if size != shard.bytes:
            raise UserError(
                f"{file}: {size} bytes, {FILE_NAME} says {shard.bytes} "
                f"({shard.records} records); the copy is incomplete, fetch or make it again"
            )


def join(folder: str | os.PathLike, name: str) -> str:
    """Returns the path of a folder's file, local or remote (`Path` spoils the slashes of gs://)."""
    return os.path.join(os.fspath(folder), name)


def _is_remote(path: str | os.PathLike) -> bool:
    return "://" in os.fspath(path)


def _exists(path: str) -> bool:
    if not _is_remote(path):
        return os.path.exists(path)
    import tensorflow as tf

    try:
        return tf.io.gfile.exists(path)
    except tf.errors.OpError as error:
        raise UserError(f"{path}: cannot be read ({error.message[:200]}); check the path") from None


def _size(path: str) -> int | None:
    """Returns the bytes of a file; None if it is missing."""
    if not _is_remote(path):
        try:
            return os.stat(path).st_size
        except (FileNotFoundError, NotADirectoryError):
            return None
    import tensorflow as tf

    return tf.io.gfile.stat(path).length if tf.io.gfile.exists(path) else None


def load_records_vocabulary(folder: str | os.PathLike, manifest: Manifest) -> Vocabulary:
    """Reads the vocabulary that is stored with the records; checks it against the manifest."""
    vocabulary = _remote_vocabulary(folder) if _is_remote(folder) else load_vocabulary(folder)
    check_vocabulary(folder, manifest, vocabulary)
    return vocabulary


def _remote_vocabulary(folder: str | os.PathLike) -> Vocabulary:
    """Loads the vocabulary of a folder on another file system."""
    import tensorflow as tf

    with tempfile.TemporaryDirectory() as copy:
        for name in VOCABULARY_FILES:
            if _exists(join(folder, name)):
                tf.io.gfile.copy(join(folder, name), join(copy, name))
        try:
            return load_vocabulary(copy)
        except UserError as error:
            raise UserError(str(error).replace(copy, os.fspath(folder))) from None


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
