"""Data sets of TensorFlow Datasets that were prepared before; nothing is ever downloaded."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from official_cmlm.common.errors import UserError
from official_cmlm.common.input_files import size_of
from official_cmlm.common.prepared_datasets import PreparedDataset

from ..counts import Counts
from .document import Document, ReadOptions
from .plain_text import decode_text, split_paragraphs

# A path with this prefix names a data set.
PREFIX = "tfds:"
# The end of a configuration's name that is a language: 20230601.zh-min-nan, en.
_LANGUAGE = re.compile(r"(?:.*\.)?([a-z]{2,3}(?:-[a-z]+)*)")


def get_stored_size(path: str, options: ReadOptions) -> int:
    """Returns the stored bytes of the examples that are read.

    Raises:
      UserError: not prepared in that folder, or no such split.
    """
    return sum(
        size_of(file.filename) * file.take // max(1, file.examples_in_shard)
        for file in _dataset(path, options).files
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

    dataset, feature = _dataset(path, options), options.text_feature
    features = dataset.builder.info.features
    if feature not in features or features[feature].dtype != tf.string:
        raise UserError(
            f"{path}: no text feature {feature!r}; pass one of its features with --text_feature:"
            f" {', '.join(sorted(features))}"
        )
    language = _language(dataset.name) or options.language
    counts.files += 1
    is_empty = True
    for number, (content,) in enumerate(dataset.read([feature])):
        counts.bytes += len(content)
        is_empty = False
        paragraphs = split_paragraphs(decode_text(content, path, counts), options.lines)
        yield Document(f"{path}#{number}", language, paragraphs)
    if is_empty:
        counts.empty_files.append(path)


def read_rows(
    path: str, features: Sequence[str], options: ReadOptions, counts: Counts
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields (place, feature -> value) of each example, in the stored order.

    The values are texts, names of labels, and numbers.

    Raises:
      UserError: as `read`.
    """
    counts.files += 1
    for number, values in enumerate(_dataset(path, options).read(features)):
        counts.bytes += sum(len(value) for value in values if isinstance(value, bytes))
        texts = [decode_text(v, path, counts) if isinstance(v, bytes) else v for v in values]
        yield f"{path}#{number}", dict(zip(features, texts))


def _dataset(path: str, options: ReadOptions) -> PreparedDataset:
    return PreparedDataset(path.removeprefix(PREFIX), options.tfds_data_dir, options.tfds_split)


def _language(name: str) -> str:
    configuration = name.partition("/")[2].partition(":")[0]
    match = _LANGUAGE.fullmatch(configuration)
    return match[1] if match else ""
