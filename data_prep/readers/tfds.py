"""Data sets of TensorFlow Datasets that were prepared before; nothing is ever downloaded."""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from official_cmlm.common.errors import UserError, one_line
from official_cmlm.common.extras import check_extra
from official_cmlm.common.input_files import size_of

from ..counts import Counts
from .document import Document, ReadOptions
from .plain_text import decode_text, split_paragraphs

if TYPE_CHECKING:
    from tensorflow_datasets.core import DatasetBuilder

# A path with this prefix names a data set.
PREFIX = "tfds:"
# Names with a namespace of tfds are not matched, as tfds would look for these on a server.
_NAME = re.compile(r"\w+(/[\w.+-]+)?(:\d+\.\d+\.\d+)?")
# The end of a configuration's name that is a language: 20230601.zh-min-nan, en.
_LANGUAGE = re.compile(r"(?:.*\.)?([a-z]{2,3}(?:-[a-z]+)*)")


def get_stored_size(path: str, options: ReadOptions) -> int:
    """Returns the stored bytes of the examples that are read.

    Raises:
      UserError: not prepared in that folder, or no such split.
    """
    name = path.removeprefix(PREFIX)
    builder = _builder(name, options.tfds_data_dir)
    try:
        files = builder.info.splits[options.tfds_split].file_instructions
    except (KeyError, ValueError) as error:
        raise _no_split(builder, name, options, error) from None
    return sum(
        size_of(file.filename) * file.take // max(1, file.examples_in_shard) for file in files
    )


def read(path: str, options: ReadOptions, counts: Counts) -> Iterator[Document]:
    """Yields a document for each example of the split `options.tfds_split`, in the stored order.

    The text is the feature `options.text_feature`, divided into paragraphs as plain text is. The
    language is the end of the configuration's name if that looks like one (`20230601.de`), else
    `options.language`.

    Args:
      path: `tfds:NAME`, with NAME as tfds writes it, e.g. `wikipedia/20230601.en`.
      options: `tfds_data_dir` is where the data set was prepared.
      counts: counts what is read.

    Raises:
      UserError: not prepared in that folder, no such split or feature, or damaged files.
    """
    import tensorflow as tf

    name = path.removeprefix(PREFIX)
    builder = _builder(name, options.tfds_data_dir)
    feature = options.text_feature
    if feature not in builder.info.features or builder.info.features[feature].dtype != tf.string:
        raise UserError(
            f"{path}: no text feature {feature!r}; pass one of its features with --text_feature:"
            f" {', '.join(sorted(builder.info.features))}"
        )
    language = _language(name) or options.language
    counts.files += 1
    is_empty = True
    try:
        for number, example in enumerate(_examples(builder, name, options)):
            content = example[feature].numpy()
            counts.bytes += len(content)
            is_empty = False
            paragraphs = split_paragraphs(decode_text(content, path, counts), options.lines)
            yield Document(f"{path}#{number}", language, paragraphs)
    except tf.errors.OpError as error:
        raise UserError(f"{path}: cannot be read ({error.message[:160]})") from None
    if is_empty:
        counts.empty_files.append(path)


def _builder(name: str, data_dir: str | None) -> "DatasetBuilder":
    check_extra("data", "tensorflow_datasets")
    import tensorflow_datasets as tfds

    if not _NAME.fullmatch(name):
        raise UserError(f"--tfds={name}: not a name such as wikipedia/20230601.en or imdb_reviews")
    try:
        return tfds.builder(name, data_dir=data_dir, try_gcs=False)
    # tfds raises either of these for names, versions and configurations that it does not know.
    except (ValueError, AssertionError) as error:
        raise _unknown(name, data_dir, error) from None


def _examples(
    builder: "DatasetBuilder", name: str, options: ReadOptions
) -> Iterator[dict[str, Any]]:
    check_extra("data", "tensorflow_datasets")
    import tensorflow_datasets as tfds

    # Files are read one at a time and never shuffled, so that the order is always the same.
    config = tfds.ReadConfig(interleave_cycle_length=1, try_autocache=False)
    try:
        return builder.as_dataset(split=options.tfds_split, shuffle_files=False, read_config=config)
    except ValueError as error:
        raise _no_split(builder, name, options, error) from None
    except AssertionError as error:
        raise _unknown(name, options.tfds_data_dir, error) from None


def _no_split(
    builder: "DatasetBuilder", name: str, options: ReadOptions, error: Exception
) -> UserError:
    splits = ", ".join(sorted(builder.info.splits)) or "train"
    return UserError(
        f"--tfds={name}: no split {options.tfds_split!r} ({one_line(str(error))[:160]}); pass"
        f" --tfds_split, one or a part of {splits}"
    )


def _unknown(name: str, data_dir: str | None, error: Exception) -> UserError:
    return UserError(
        f"--tfds={name}: not prepared in {data_dir or 'the default folder of tfds'}"
        f" ({one_line(str(error))[:160]}); prepare it with `tfds build`, or name its folder with"
        " --tfds_data_dir"
    )


def _language(name: str) -> str:
    configuration = name.partition("/")[2].partition(":")[0]
    match = _LANGUAGE.fullmatch(configuration)
    return match[1] if match else ""
