"""The frame of an exporter: its flags, the encoder, and a folder that appears when it is complete.

An exporter is a module with `define_flags` and `main`, as `examples/own_export.py` shows;
`cmlm export ENCODER --to=MODULE` runs it. The frame decides for all exporters which folders may be
replaced, which text of a training is published, and what the user is told of parts that are left
out.
"""

import contextlib
import dataclasses
import functools
import json
import os
import re
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import yaml

from official_cmlm import cli
from official_cmlm.checkpoints.encoder_arrays import EncoderWeights
from official_cmlm.checkpoints.encoder_directory import EncoderDirectory
from official_cmlm.checkpoints.encoder_weights import read_weights
from official_cmlm.checkpoints.find_encoder import encoder_directory_of, find_encoder
from official_cmlm.common import files
from official_cmlm.common.errors import UserError
from official_cmlm.common.validation import between
from official_cmlm.configs.encoder import OWN_VECTOR, VectorOverride
from official_cmlm.encoding.classifier import Classifier

if TYPE_CHECKING:
    from official_cmlm.modeling.sentence_encoder import SentenceEncoderModel

T = TypeVar("T", bound="ExportOptions")
PARAMS_NAME = "params.yaml"
_CHANGED = "# Absolute paths are left out but for their last part."


@dataclasses.dataclass(frozen=True)
class ExportOptions:
    """The options of all exporters.

    Attributes:
      model: any name of an encoder that `find_encoder` takes.
      export_dir: folder to write; it appears when complete.
      overwrite: whether to replace an earlier export.
      seq_length: longer texts are cut to this many tokens. Default: the encoder directory's own.
      override: see `VectorOverride`.
    """

    model: str | os.PathLike
    export_dir: str | os.PathLike
    overwrite: bool = False
    seq_length: Annotated[int, between(1, 1_000_000)] | None = None
    override: VectorOverride = OWN_VECTOR


@dataclasses.dataclass(frozen=True)
class Source:
    """An encoder that is exported.

    Attributes:
      directory: its encoder directory.
      weights: its weights, for the vector that was chosen.
      seq_length: the length that texts are cut to, in tokens.
    """

    directory: EncoderDirectory
    weights: EncoderWeights
    seq_length: int

    @classmethod
    def open(
        cls, options: ExportOptions, length_flag: str = "seq_length", with_head: bool = False
    ) -> "Source":
        """Opens the encoder of an export.

        Args:
          options: which encoder.
          length_flag: the flag that gave the length.
          with_head: whether the weights are to have the language-model head, if there is one.

        Raises:
          UserError: as `read_weights`; also for a length that the position table does not cover.
        """
        directory = encoder_directory_of(find_encoder(options.model))
        weights = read_weights(directory, options.override, options.seq_length, with_head)
        length, rows = directory.length(options.seq_length), weights.config.max_seq_length
        if not 3 <= length <= rows:
            raise UserError(
                f"--{length_flag} must be 3 to {rows} (the position table), got {length}"
            )
        return cls(directory, weights, length)

    @functools.cached_property
    def encoder(self) -> "SentenceEncoderModel":
        """The encoder's Keras model."""
        from official_cmlm.checkpoints.weights import model_of

        return model_of(self.weights)

    def params(self) -> str | None:
        """Returns the training's `params.yaml`, without folders; None if it was not trained here.

        Raises:
          UserError: if the file cannot be read.
        """
        path = self.directory.path / PARAMS_NAME
        if not path.exists():
            return None
        return without_folders(files.read_text(path, "it goes into the export"))

    def write_params(self, folder: Path) -> Path | None:
        """Writes what `params` returns into a folder; returns the path, or None without a text."""
        text = self.params()
        if text is None:
            return None
        (folder / PARAMS_NAME).write_text(text, encoding="utf-8")
        return folder / PARAMS_NAME

    def warn_of_classifier(self) -> None:
        """Prints a warning that the classifier of the directory, if there is one, is left out."""
        if Classifier.is_at(self.directory.path):
            cli.warn(
                f"{self.directory.path}: its classifier is not exported; export.export_tfhub does "
                "that, without options that change the vector"
            )


@contextlib.contextmanager
def stage_export(
    options: ExportOptions,
    is_export: Callable[[Path], bool],
    own: str,
    length_flag: str = "seq_length",
    with_head: bool = False,
) -> Iterator[tuple[Path, Source]]:
    """Yields a folder to fill, which takes its name after the block, and the encoder.

    Examples:
      >>> with stage_export(options, is_export, r"encoder\\.npz|params\\.yaml") as (folder, source):
      ...     source.write_params(folder)                                      # doctest: +SKIP

    Args:
      options: which encoder, and where to.
      is_export: whether a folder holds an earlier export of this kind, which may be replaced.
      own: regular expression of the paths, relative to the folder, that the exporter writes; a
        folder that holds other files is not replaced.
      length_flag, with_head: see `Source.open`.

    Raises:
      UserError: if the folder holds anything else, or an export without `overwrite`; or as
        `Source.open` does.
    """
    output = files.output_folder(options.export_dir, options.overwrite, is_export, own)
    source = Source.open(options, length_flag, with_head)
    source.warn_of_classifier()
    with files.stage_folder(output) as folder:
        yield folder, source


def define_flags(kind: type[ExportOptions] = ExportOptions, skip: Collection[str] = ()) -> None:
    """Defines the flags of an exporter's options, but for the fields `skip`."""
    cli.define_model_name()
    cli.define(kind, skip={"model", "layer", *skip})
    cli.define_import_module()


def begin(kind: type[T] = ExportOptions) -> T:
    """Returns the options that the flags give; imports TensorFlow and the user's modules.

    Raises:
      UserError: if `--export_dir` cannot be written, or a module cannot be imported.
    """
    options = cli.read(kind)
    files.check_writable(options.export_dir, is_folder=True, replaced=True)
    cli.import_tensorflow()
    cli.import_modules()
    return options


def without_folders(params: str) -> str:
    """Replaces absolute local paths in a YAML text by their base names; a comment says so.

    Such paths reveal the machine and its user; all other text stays as it is.

    >>> print(without_folders("a: {b: /home/me/news, c: 1}"))
    # Absolute paths are left out but for their last part.
    a: {b: news, c: 1}
    """
    parts, end = [], 0
    try:
        for token in yaml.scan(params):
            if not isinstance(token, yaml.ScalarToken):
                continue
            value = ",".join(map(_base_name, token.value.split(",")))
            if value != token.value:
                parts.append(params[end : token.start_mark.index])
                plain = re.fullmatch(r"[A-Za-z][\w.-]*", value) and yaml.safe_load(value) == value
                # A string of JSON is valid YAML. A scalar of several lines includes its line end,
                # which is kept.
                parts.append(value if plain else json.dumps(value))
                end = token.end_mark.index
                parts.append("\n" if params[end - 1] == "\n" else "")
    except yaml.YAMLError:
        # The text is not valid YAML, and may hold paths anywhere.
        parts, end = [re.sub(r"(?<![\w./:])[/~][^\s'\",\]}]*/", "", params)], len(params)
    text = "".join(parts) + params[end:]
    return text if text == params else f"{_CHANGED}\n{text}"


def _base_name(text: str) -> str:
    """Returns the last part of an absolute local path; other texts as they are."""
    path = text.strip().removeprefix("file://")
    if not re.match(r"[/~]|[A-Za-z]:[/\\]", path):
        return text
    return re.split(r"[/\\]", path.rstrip("/\\"))[-1]
