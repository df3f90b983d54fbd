"""Checks of records against a view's needs, and counts of the records that it cannot use."""

import numpy as np
import tensorflow as tf

from official_cmlm.common.errors import UserError
from official_cmlm.configs.data import DataConfig
from official_cmlm.inputs.plan import Plan, shard_repetitions
from official_cmlm.inputs.reader import READ_BYTES, Blocks, Reader, shard_paths
from official_cmlm.inputs.views import View
from official_cmlm.records import documents, pairs
from official_cmlm.records.manifest import Manifest, parts_of
from official_cmlm.tokenization import Vocabulary


@tf.autograph.experimental.do_not_convert
def check_examples(config: DataConfig, manifest: Manifest, view: View) -> None:
    """Checks that the records give an example of a view, or for training a batch in an epoch.

    With fewer, training would read epoch after epoch, hold all examples and get no whole batch.

    Raises:
      UserError: if the records give no example of this view, fewer than a batch of a training, or
        lack a chosen language, or if their rows do not align.
    """
    once = config.replace(is_training=False, shuffle_sentences=1024)
    check_rows(once, manifest)
    count, size = 0, config.global_batch_size
    for _, examples in Reader(Plan.of(once, manifest, view)).epoch(0):
        count += int(tf.size(examples["key"]))
        if count >= (size if config.is_training else 1):
            return
    if count:
        raise UserError(
            f"{config.named_folders}: training has too few examples for one batch of {size}, an "
            f"epoch has {count}; lower train_data.global_batch_size, or use more records"
        )
    raise UserError(
        f"{config.named_folders}: no record gives a {type(view).__name__} example with segment: "
        f"{config.segment} and seq_length {config.seq_length}; it takes {view.needs}"
    )


def check_running_text(
    config: DataConfig, manifest: Manifest, view: View, vocabulary: Vocabulary
) -> None:
    """Checks that a view that joins sentences gets the ids of their running text.

    Raises:
      UserError: if the records lack the ids of sentences after a space, as records of older
        releases do.
    """
    if view.joins_sentences and vocabulary.space_changes_ids and not manifest.after_space:
        raise UserError(
            f"{config.named_folders}: the records do not hold how ids change after a space, so "
            f'{type(view).__name__} would join sentences without one ("read.The"); make them again '
            "with this release"
        )


def check_text(config: DataConfig, manifest: Manifest, view: View) -> None:
    """Raises `UserError` with the folder whose records lack the text that a view reads."""
    for folder, part in parts_of(config.folders(), manifest):
        if view.reads_text and not part.keep_text:
            raise UserError(
                f"{folder}: the records hold no text, but {type(view).__name__} reads text; "
                "make them again with --keep_text"
            )


def check_rows(config: DataConfig, manifest: Manifest) -> None:
    """Checks that pairs which should be translations of each other have the same row id.

    Reads only the first block of each folder, which holds records of several shards.

    Raises:
      UserError: names the differing row ids of one row.
    """
    size = manifest.row_size
    if manifest.kind != pairs.KIND or size < 2:
        return
    for folder, part in parts_of(config.folders(), manifest):
        # Each folder is read separately, as a first block of all need not hold records of each.
        alone = config.replace(input_path=folder, sources=[])
        blocks = Blocks(alone, part, shard_repetitions(alone, part))
        for _, serialized, keys in blocks.epoch(0).take(1):
            rows = pairs.parse(serialized, keys).rows.numpy()
            rows = rows[: len(rows) // size * size].reshape(-1, size)
            for row in rows[(rows != rows[:, :1]).any(axis=1)]:
                raise UserError(
                    f"{folder}: its rows do not align: {size} consecutive pairs must have "
                    f"the same row id, got {', '.join(map(str, row))}; make the records again with "
                    "data_prep.create_pairs --row_aligned"
                )


# Most records that are counted before a training, a sample, and most shards that it is taken from.
_MOST_COUNTED = 200_000
_MOST_SHARDS_COUNTED = 64


def unusable_records(config: DataConfig, manifest: Manifest, view: View, where: str) -> list[str]:
    """Returns a line for each reason for which a view makes no example of some records.

    `where` names the settings of the records.

    Reads only the lengths, of at most 200,000 records of 64 shards, which are spread evenly over
    the folders.
    """
    paths = shard_paths(config, manifest)
    number = min(len(paths), _MOST_SHARDS_COUNTED)
    chosen = [paths[len(paths) * i // number] for i in range(number)]
    # Each shard gives as many records as the others, or all of its own if it has fewer.
    most = _MOST_COUNTED // number
    records = tf.data.Dataset.from_tensor_slices(chosen).flat_map(
        lambda path: tf.data.TFRecordDataset(path, buffer_size=READ_BYTES).take(most)
    )
    is_unusable = {}
    if view.pairs_segments:
        is_unusable["have one sentence"] = lambda batch: (
            documents.parse_lengths(batch)[0].row_lengths() < 2
        )
    if least := view.min_record_tokens:
        is_unusable[f"have fewer than {least} tokens"] = lambda batch: (
            documents.token_counts(batch) < least
        )
    lines = []
    for reason, condition in is_unusable.items():
        batches = records.batch(4096).map(condition).as_numpy_iterator()
        unusable = np.concatenate([np.zeros(0, bool), *batches])
        if unusable.any():
            counts = f"{unusable.sum()} of {len(unusable)} records of {where}"
            lines.append(f"{counts} {reason} and are skipped")
    return lines
