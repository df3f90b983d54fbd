"""Writes the sentences of documents records that hold text, with their language, as JSON lines.

    python -m experiments.shipped.sentences records sentences.jsonl

Each line has `lang` and `text`. Equal sentences are written once, in the order of their hashes: the
first lines of a language are a sample.
"""

import hashlib
import json

from official_cmlm import cli
from official_cmlm.common.files import atomic_write
from official_cmlm.records.manifest import join, load_manifest
from official_cmlm.records.teacher_vectors import texts_of


def main(records: str, output: str) -> None:
    """Writes the file."""
    cli.import_tensorflow()
    import tensorflow as tf

    manifest, language_of = load_manifest(records), {}
    for shard in manifest.shards:
        for stored in tf.data.TFRecordDataset(join(records, shard.name)).as_numpy_iterator():
            texts = texts_of(tf.train.Example.FromString(stored), manifest.kind)
            language_of.update(dict.fromkeys(texts, shard.language))
    rows = sorted(language_of.items(), key=lambda row: hashlib.sha256(row[0].encode()).digest())
    with atomic_write(output) as file:
        for text, language in rows:
            line = json.dumps({"lang": language, "text": text}, ensure_ascii=False) + "\n"
            file.write(line.encode("utf-8"))


if __name__ == "__main__":
    cli.run(main)
