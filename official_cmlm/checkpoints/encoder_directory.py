"""The encoder directory: a folder with all that is needed to rebuild an encoder.

    encoder_config.json      the `EncoderConfig`, the default sequence length, whether it is an
                             encoder of sentences, and its prompts
    embedding_ranges.json    the range of each dimension, for embeddings of 8 bits
    compatible.npy           vectors of another encoder, whose index may be searched with this one
    vocab.txt, vocab.json    a WordPiece vocabulary and its settings, or
    vocab.json, merges.txt, byte_pair.json    a byte-level BPE vocabulary and its settings, or
    sentencepiece.model      a SentencePiece vocabulary
    params.yaml              the experiment that trained it, where there was one
    weights.safetensors      the weights of the encoder, of its language-model head and of CMLM's
                             projections, see `encoder_weights`
    checkpoint, ckpt-…       TensorFlow checkpoints, from which a training is resumed

The model directory of a training is an encoder directory from its first checkpoint on. Everything
but the weights is read here; `encoder_weights` reads the weights. Neither module needs TensorFlow.

A training writes `weights.safetensors` after each checkpoint, by one rename, with the name and a
digest of that checkpoint in it. While a training holds `training.lock`, readers take the file as it
is: during a save they get the encoder of the checkpoint before. If the file is missing, is not of
the newest checkpoint after a training was killed, or if somebody went back to an earlier
checkpoint, the weights are read from the newest checkpoint. The next start of the training writes
the file again.
"""

import dataclasses
import functools
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from official_cmlm.checkpoints.formats.published_files import get_typed, read_metadata
from official_cmlm.common import files
from official_cmlm.common.errors import UserError
from official_cmlm.configs.encoder import EncoderConfig
from official_cmlm.tokenization import VOCABULARY_FILES, Vocabulary, load_vocabulary
from official_cmlm.vectors.embeddings import (
    RANGES_NAME,
    SIMILARITIES,
    EmbeddingId,
    Ranges,
    read_ranges,
)

CONFIG_NAME = "encoder_config.json"
WEIGHTS = "weights.safetensors"
# Unit vectors of `evaluation.encoder.PROBES` by an encoder that this one follows, float16
# `[texts, dim]`; see `cmlm shrink --compatible_with`.
COMPATIBLE = "compatible.npy"
# The entry of the metadata of `weights.safetensors` that names the checkpoint of these weights.
CHECKPOINT_ENTRY = "checkpoint"
# The file that a training locks in its model directory, see `files.hold_lock`.
TRAINING_LOCK = "training.lock"
DEFAULT_SEQ_LENGTH = 128
# Regular expression of the files of an encoder directory that was imported or fine-tuned.
OWN_FILES = "|".join(
    [
        r"weights\.safetensors|checkpoint|ckpt-\d+\.(index|data-\d+-of-\d+)",
        *map(re.escape, (CONFIG_NAME, RANGES_NAME, COMPATIBLE, *VOCABULARY_FILES)),
    ]
)
# Where sentence-transformers stores prompts and the similarity.
PROMPTS = "config_sentence_transformers.json"
_ADVICE = "write it again from its source"
# Entries of `encoder_config.json` that `EncodingSettings` holds.
_SETTINGS = ("prompts", "default_prompt_name", "similarity_fn_name")
# The file name that `tf.train.CheckpointManager` gives the index of a checkpoint.
_INDEX = re.compile(r"(ckpt-(\d+))\.index")
# A field of the file `checkpoint`, which is a protobuf message in text form.
_STATE_FIELD = re.compile(r'\s*(\w+):\s*(?:"([^"\\\n]*)"|[-+.\w]+)\s*')
# Fields of the config that may change when a training is resumed.
_FREE_TO_RESUME = (
    "dropout_rate",
    "attention_dropout_rate",
    "drophead_rate",
    "initializer_range",
    "remat",
)
# Fields that may differ from those of the initial weights, as the method decides them.
_FREE_TO_START = (*_FREE_TO_RESUME, "pooling", "padded_length", "padding_id", "normalize")


@dataclasses.dataclass(frozen=True)
class EncodingSettings:
    """Settings of `encode` that belong to an encoder, besides its weights and vocabulary.

    Attributes:
      prompts: name -> text that is put before each sentence.
      default_prompt_name: key of the prompt for calls that name none; None: these use no prompt.
      similarity_fn_name: how embeddings are compared; a key of `embeddings.SIMILARITIES`.
      normalize: whether the encoder itself scales its embeddings to length 1.
      ranges: the range of each dimension, which embeddings of 8 bits need; None: not calibrated.
        They may belong to another vector or other weights: see `EmbeddingId.difference`.
      weights: `EncoderDirectory.weights_digest`; None: unknown.
    """

    prompts: Mapping[str, str] = dataclasses.field(default_factory=dict)
    default_prompt_name: str | None = None
    similarity_fn_name: str = "cosine"
    normalize: bool = False
    ranges: Ranges | None = None
    weights: str | None = None

    @property
    def default_prompt(self) -> str:
        """The text before sentences that name no prompt; empty: none."""
        name = self.default_prompt_name
        return "" if name is None else self.prompts[name]

    def for_export(self, pooling: str, sentence_vector: str) -> "EncodingSettings":
        """Returns the settings of an export; ranges of other vectors or weights are left out."""
        exported_id = EmbeddingId(pooling, sentence_vector, self.weights)
        ranges = self.ranges
        if ranges is not None:
            # The weights of an export do not change, so its ranges need not name them.
            nameless = dataclasses.replace(ranges, origin=EmbeddingId(pooling, sentence_vector))
            ranges = None if ranges.origin.difference(exported_id) else nameless
        return dataclasses.replace(self, ranges=ranges, weights=None)

    def check(self, source: str | os.PathLike) -> None:
        """Raises `UserError` that names `source` if a setting is invalid."""
        prompts = self.prompts
        if not isinstance(prompts, Mapping) or not all(
            isinstance(name, str) and isinstance(prompt, str) for name, prompt in prompts.items()
        ):
            raise UserError(f"{source}: prompts must be name -> string, got {prompts!r:.80}")
        # `in` a tuple compares; a set would hash the value from the file, which may be a list.
        if self.default_prompt_name not in (None, *prompts):
            raise UserError(
                f"{source}: default_prompt_name {self.default_prompt_name!r:.60} must be one of "
                f"its prompts ({', '.join(prompts) or 'it has none'})"
            )
        if self.similarity_fn_name not in tuple(SIMILARITIES):
            raise UserError(
                f"{source}: similarity_fn_name must be one of {', '.join(SIMILARITIES)}; got "
                f"{self.similarity_fn_name!r:.60}"
            )

    @classmethod
    def of_values(cls, values: Mapping[str, Any], source: str | os.PathLike) -> "EncodingSettings":
        """Reads prompts and similarity from a JSON object of this project or sentence-transformers.

        Raises:
          UserError: if one of them is invalid.
        """
        prompts = values.get("prompts") or {}
        if isinstance(prompts, Mapping):
            prompts = {name: "" if text is None else text for name, text in prompts.items()}
        settings = cls(
            prompts,
            values.get("default_prompt_name"),
            values.get("similarity_fn_name") or cls.similarity_fn_name,
        )
        settings.check(source)
        return settings

    def values(self) -> dict[str, Any]:
        """Returns the JSON object that `of_values` reads, without settings that have defaults."""
        prompts = self.prompts.items()
        used = {name: text for name, text in prompts if text or name == self.default_prompt_name}
        written = dataclasses.replace(self, prompts=used)
        values = {name: getattr(written, name) for name in _SETTINGS}
        return {k: value for k, value in values.items() if value != getattr(NO_SETTINGS, k)}


NO_SETTINGS = EncodingSettings()


@dataclasses.dataclass(frozen=True)
class EncoderDirectory:
    """The content of an encoder directory; each file is read once, when it is first needed.

    Attributes:
      path: the folder.
      values: the content of `encoder_config.json`.
      config: the encoder's shape and sentence vector.
      max_seq_length: default length for encoding, in tokens.
      for_sentences: whether the encoder was made to encode sentences. A plain language model was
        not: nothing has chosen its pooling.
    """

    path: Path
    values: Mapping[str, Any]
    config: EncoderConfig
    max_seq_length: int
    for_sentences: bool

    @staticmethod
    def is_at(path: str | os.PathLike) -> bool:
        """Returns whether a folder is an encoder directory."""
        return (Path(path) / CONFIG_NAME).exists()

    @classmethod
    def open(cls, path: str | os.PathLike) -> "EncoderDirectory":
        """Reads `encoder_config.json`.

        Raises:
          UserError: if the folder is not an encoder directory, or the file is damaged.
        """
        if not cls.is_at(path):
            raise UserError(
                f"{path}: not an encoder directory (no {CONFIG_NAME}); name a --model_dir of "
                "experiments.train or an imported checkpoint"
            )
        file = Path(path) / CONFIG_NAME
        values = files.read_object(file, _ADVICE)
        config = EncoderConfig.read(values.get("encoder"), file)
        length = values.get("max_seq_length")
        if type(length) is not int or length < 3:
            raise UserError(f"{file}: max_seq_length must be 3 tokens or more, got {length!r:.60}")
        for_sentences = get_typed(file, values, "for_sentences", bool, True)
        return cls(Path(path), values, config, length, for_sentences)

    @functools.cached_property
    def vocabulary(self) -> Vocabulary:
        """The vocabulary; raises `UserError` if it is damaged or of another encoder's size."""
        vocabulary = load_vocabulary(self.path)
        check_vocabulary_size(str(self.path), vocabulary, self.config.vocab_size)
        return vocabulary

    @functools.cached_property
    def settings(self) -> EncodingSettings:
        """Prompts, similarity and ranges; raises `UserError` if one of them is damaged."""
        return dataclasses.replace(
            EncodingSettings.of_values(self.values, self.path / CONFIG_NAME),
            normalize=self.config.normalize,
            ranges=read_ranges(self.path),
            weights=self.weights_digest,
        )

    def length(self, chosen: int | None) -> int:
        """Returns the length that texts are cut to: the chosen one, by default the folder's."""
        return self.max_seq_length if chosen is None else chosen

    @property
    def checkpoint(self) -> Path | None:
        """The prefix of the newest checkpoint; None if there is none.

        Raises:
          UserError: see `checkpoints_among`; also if the file `checkpoint` is a pipe or a device.
        """
        file = self.path / "checkpoint"
        files.refuse_special(file)
        try:
            text = file.read_text(encoding="utf-8", errors="replace")
        except OSError:
            text = ""
        names = (path.name for path in self.path.iterdir())
        return next(map(Path, checkpoints_among(str(self.path), names, text)), None)

    @property
    def weights_file(self) -> Path | None:
        """`weights.safetensors`; None if there is none, or if the checkpoint is to be read instead.

        Raises:
          UserError: if the file is damaged.
        """
        path = self.path / WEIGHTS
        if not path.exists():
            return None
        # A training writes the checkpoint first, so the newest one is looked for last.
        origin = read_metadata(path).get(CHECKPOINT_ENTRY, "")
        newest = self.checkpoint
        if newest is None or origin == checkpoint_id(newest):
            return path
        if not _is_before(origin, newest):
            return None
        if self._is_being_trained:
            return path
        # A training that ended meanwhile has written the file again.
        is_new = read_metadata(path).get(CHECKPOINT_ENTRY) == checkpoint_id(newest)
        return path if is_new else None

    @property
    def _is_being_trained(self) -> bool:
        """Whether a training saves here, or saves its best checkpoint here."""
        folder = self.path.resolve()
        places = (folder, folder.parent)
        return any(files.is_locked(place / TRAINING_LOCK) for place in places)

    def remove_older_weights(self) -> None:
        """Removes `weights.safetensors` if it is of a checkpoint before the newest one."""
        newest, path = self.checkpoint, self.path / WEIGHTS
        if newest is not None and path.exists():
            if _is_before(read_metadata(path).get(CHECKPOINT_ENTRY, ""), newest):
                path.unlink()

    @property
    def weights_digest(self) -> str | None:
        """Sixteen hexadecimal digits that change with the weights; None without weights.

        They are computed from the index of the weights' checkpoint, which has a checksum of each
        tensor (TensorFlow's `BundleEntryProto.crc32c`), or without one from `weights.safetensors`.
        """
        path, checkpoint, origin = self.weights_file, self.checkpoint, None
        if path is not None:
            origin = read_metadata(path).get(CHECKPOINT_ENTRY)
        elif checkpoint is not None:
            origin = checkpoint_id(checkpoint)
        if origin is not None:
            return origin.partition(" ")[2]
        return files.digest([path]) if path is not None else None

    @property
    def _weight_files(self) -> list[Path]:
        """The files of the weights; empty if there are none."""
        path, checkpoint = self.weights_file, self.checkpoint
        if path is not None:
            return [path]
        if checkpoint is None or checkpoint_id(checkpoint) is None:
            return []
        return [Path(f"{checkpoint}.index"), *sorted(self.path.glob(f"{checkpoint.name}.data-*"))]

    def digest(self, settings: str = "", with_ranges: bool = False) -> str:
        """Returns sixteen hexadecimal digits that change with the embeddings.

        They are computed from config, vocabulary and weights; other files of a model directory
        change while it trains.

        Args:
          settings: further facts on which the embeddings depend.
          with_ranges: whether the embeddings may have 8 bits, which the ranges decide.

        Raises:
          UserError: if the weights are missing.
        """
        if not self._weight_files:
            raise UserError(
                f"{self.path}: no checkpoint there; train first, or name another folder"
            )
        names = (CONFIG_NAME, *VOCABULARY_FILES, *((RANGES_NAME,) if with_ranges else ()))
        read = [self.path / name for name in names if (self.path / name).exists()]
        return files.digest([*read, *self._weight_files], settings)

    def check_takes(self, config: EncoderConfig, vocabulary: Vocabulary) -> None:
        """Raises `UserError` if a training of `config` cannot resume from the folder's weights."""
        if self.checkpoint is not None:
            # A resumed training must keep the same sentence vector.
            check_same(f"{self.path} holds", self, config, vocabulary, free=_FREE_TO_RESUME)
        elif self.weights_file is not None:
            origin = read_metadata(self.path / WEIGHTS).get(CHECKPOINT_ENTRY)
            if origin is not None:
                raise UserError(
                    f"{self.path}: holds {WEIGHTS} of a training without its checkpoint "
                    f"{origin.partition(' ')[0]}; to train anew here, delete {WEIGHTS} too"
                )
            raise UserError(
                f"{self.path}: holds an imported encoder; train in another --model_dir and start "
                "from this one by task.init_checkpoint"
            )


def output_directory(path: str | os.PathLike, overwrite: bool) -> Path:
    """Returns the absolute path of an encoder directory to write; see `files.output_folder`."""
    is_ours = EncoderDirectory.is_at
    return files.output_folder(path, overwrite, is_ours, OWN_FILES, "encoder", "output_dir")


def encoder_digest(folder: Path, settings: str = "", with_ranges: bool = False) -> str:
    """Returns sixteen hexadecimal digits that change with the embeddings of a folder's encoder.

    Args:
      folder: an encoder directory; another folder with an encoder, all files of which count; or
        the one file of an encoder.
      settings, with_ranges: see `EncoderDirectory.digest`.
    """
    if EncoderDirectory.is_at(folder):
        return EncoderDirectory.open(folder).digest(settings, with_ranges)
    read = [path for path in [folder, *folder.rglob("*")] if path.is_file()]
    return files.digest(sorted(read), settings)


def _is_before(origin: str, newest: Path) -> bool:
    """Returns whether weights are of a checkpoint before the newest one."""
    name = origin.partition(" ")[0]
    steps = [prefix.rpartition("-")[2] for prefix in (name, newest.name)]
    return all(step.isdecimal() for step in steps) and int(steps[0]) < int(steps[1])


def checkpoint_id(checkpoint: Path) -> str | None:
    """Returns the name of a checkpoint and a digest of its index; None if it has no index."""
    index = Path(f"{checkpoint}.index")
    return f"{checkpoint.name} {files.digest([index])}" if index.exists() else None


def checkpoints_among(folder: str, names: Iterable[str], state: str) -> list[str]:
    """Lists the prefixes of a folder's checkpoints, newest first.

    Args:
      folder: the folder.
      names: the names of its files.
      state: content of its file `checkpoint`, which lists the checkpoints. If it is empty or
        damaged, checkpoints are found by the names of their files.

    Raises:
      UserError: if `checkpoint` lists checkpoints of another folder; a training would read them,
        and remove them when they are old.
    """
    listed = _list_checkpoints(state)
    if not listed:
        matches = [match for name in names if (match := _INDEX.fullmatch(name))]
        matches.sort(key=lambda match: int(match[2]), reverse=True)
        return [os.path.join(folder, match[1]) for match in matches]
    prefixes = [os.path.join(folder, name) for name in listed]
    for prefix in prefixes:
        if _resolve(os.path.dirname(prefix)) != _resolve(folder):
            raise UserError(
                f"{os.path.join(folder, 'checkpoint')}: names {prefix[:200]!r}, which is not in "
                "this folder; delete that file, and the checkpoints are found by their names"
            )
    return prefixes


def _list_checkpoints(state: str) -> list[str]:
    """Returns the names that a file `checkpoint` lists, newest first; none if it is damaged."""
    newest, older, end = [], [], 0
    while end < len(state):
        field = _STATE_FIELD.match(state, end)
        if not field:
            return []
        end = field.end()
        if field[1] == "model_checkpoint_path":
            newest = [field[2]]
        elif field[1] == "all_model_checkpoint_paths":
            older.insert(0, field[2])
    listed = list(dict.fromkeys([*newest, *older]))
    return listed if newest and all(listed) else []


def _resolve(folder: str) -> str:
    """Returns the canonical path of a folder."""
    return folder.rstrip("/") if "://" in folder else os.path.realpath(folder)


def check_vocabulary_size(where: str, vocabulary: Vocabulary, rows: int) -> None:
    """Raises `UserError` unless vocabulary and embedding table have equally many entries."""
    if len(vocabulary) != rows:
        raise UserError(
            f"{where}: the vocabulary has {len(vocabulary)} entries, the embedding table {rows} "
            "rows; take vocabulary and weights from the same release"
        )


def differences(
    old: EncoderConfig, config: EncoderConfig, free: tuple[str, ...] = _FREE_TO_START
) -> list[str]:
    """Lists the fields that prevent an encoder from taking the weights of another.

    Args:
      old: the config of the weights.
      config: the config of the encoder that is to take them.
      free: fields that may differ.
    """
    before, now = old.as_dict(), config.as_dict()
    return [
        f"{key} {before[key]!r} (here {now[key]!r})"
        for key in now
        if key not in free and before[key] != now[key]
    ]


def check_same(
    holder: str,
    directory: EncoderDirectory,
    config: EncoderConfig,
    vocabulary: Vocabulary,
    free: tuple[str, ...] = _FREE_TO_START,
) -> None:
    """Raises `UserError` unless an encoder can take the weights of a directory.

    Args:
      holder: the beginning of the message, up to a verb, such as `work/model holds`.
      directory: the directory.
      config, vocabulary: of the encoder that is to take the weights.
      free: fields of the config that may differ.
    """
    differing = differences(directory.config, config, free)
    if differing:
        raise UserError(
            f"{holder} an encoder of another architecture: {', '.join(differing)}; use the same "
            "settings or another folder (--init_checkpoint of experiments.train takes them over)"
        )
    old = directory.vocabulary
    if old.hash != vocabulary.hash:
        raise UserError(
            f"{holder} an encoder for vocabulary {old.hash} ({len(old)} entries), the records have "
            f"{vocabulary.hash} ({len(vocabulary)} entries); make the records with "
            "--vocab_file= the encoder's folder"
        )


def architecture_error(source: str | os.PathLike, wrong: str) -> UserError:
    """Returns the error for weights that do not fit an encoder."""
    return UserError(
        f"{source}: cannot be read into this encoder ({wrong}); it was written for another "
        "architecture"
    )


def describe(
    folder: str | os.PathLike,
    config: EncoderConfig,
    vocabulary: Vocabulary,
    max_seq_length: int = DEFAULT_SEQ_LENGTH,
    for_sentences: bool = True,
    encoding: EncodingSettings | None = None,
) -> None:
    """Writes an encoder directory without its weights.

    Args:
      folder: the directory.
      config, vocabulary: its encoder.
      max_seq_length: length for encoding, in tokens.
      for_sentences: see `EncoderDirectory`.
      encoding: prompts and the like. Default: the folder keeps the settings that it has.

    Raises:
      UserError: if the folder holds weights of another shape, pooling or vocabulary.
    """
    folder, before = Path(folder), {}
    if EncoderDirectory.is_at(folder):
        directory = EncoderDirectory.open(folder)
        directory.check_takes(config, vocabulary)
        before = directory.values
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary.save(folder)
    # `remat` says how a training saves memory; it is not a property of the trained encoder.
    encoder = config.replace(remat=EncoderConfig.remat).as_dict()
    values = {
        "encoder": encoder,
        "max_seq_length": max_seq_length,
        "for_sentences": for_sentences,
    }
    if encoding is not None:
        values |= encoding.values()
    else:
        values |= {name: before[name] for name in _SETTINGS if name in before}
    files.write_json(folder / CONFIG_NAME, values)


def write_settings(folder: str | os.PathLike, settings: EncodingSettings) -> None:
    """Replaces the settings of an encoder directory, except `normalize`.

    Raises:
      UserError: if the folder is not an encoder directory, or a setting is invalid.
    """
    directory = EncoderDirectory.open(folder)
    path = directory.path / CONFIG_NAME
    settings.check(path)
    others = {name: value for name, value in directory.values.items() if name not in _SETTINGS}
    files.write_json(path, others | settings.values())
    if settings.ranges is not None:
        settings.ranges.save(directory.path)
    else:
        (directory.path / RANGES_NAME).unlink(missing_ok=True)


def read_published_settings(folder: Path, normalize: bool) -> EncodingSettings:
    """Reads the settings of a sentence-transformers folder; the defaults where it has none.

    Raises:
      UserError: if one of them is damaged.
    """
    path = folder / PROMPTS
    values = files.read_object(path, _ADVICE) if path.exists() else {}
    settings = EncodingSettings.of_values(values, path)
    return dataclasses.replace(settings, normalize=normalize, ranges=read_ranges(folder))


def write_published_settings(folder: Path, settings: EncodingSettings) -> None:
    """Writes what `read_published_settings` reads."""
    files.write_json(folder / PROMPTS, {name: getattr(settings, name) for name in _SETTINGS})
    if settings.ranges is not None:
        settings.ranges.save(folder)
