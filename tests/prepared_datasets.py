"""Data sets as TensorFlow Datasets prepares them: written, and then read for real."""

from pathlib import Path


def write_dataset(root: Path, name: str, features, splits: dict[str, list[dict]]) -> None:
    """Writes a data set with a shard an example, so that shards out of order are seen.

    Args:
      name: `<data set>/<configuration>/<version>`.
      features: a `FeaturesDict` of tfds.
      splits: split -> its examples.
    """
    import tensorflow as tf
    import tensorflow_datasets as tfds

    folder, infos = root / name, []
    folder.mkdir(parents=True)
    for split, examples in splits.items():
        count = len(examples)
        for number, example in enumerate(examples):
            file = f"{name.partition('/')[0]}-{split}.tfrecord-{number:05d}-of-{count:05d}"
            with tf.io.TFRecordWriter(str(folder / file)) as writer:
                writer.write(features.serialize_example(example))
        infos.append(tfds.core.SplitInfo(name=split, shard_lengths=[1] * count, num_bytes=1))
    tfds.folder_dataset.write_metadata(
        data_dir=folder, features=features, split_infos=infos, check_data=False
    )
