"""Helpers for tests of pairs: rows, folders of records, reading them by hand."""

import itertools
import random
from collections.abc import Iterable
from pathlib import Path

from tests.conftest import WORDS, write_encoder

# Documents have the name that E5's encoders give them.
PROMPTS = {"query": "the old house ", "passage": "a dog, "}


def write_prompted_encoder(folder: Path, vocabulary, default: str | None = None, **settings):
    """Writes an encoder directory as `write_encoder` does, of an encoder with `PROMPTS`."""
    from official_cmlm.checkpoints.encoder_directory import EncodingSettings, write_settings

    write_encoder(folder, vocabulary, **settings)
    write_settings(folder, EncodingSettings(PROMPTS, default))
    return folder


def pair(
    first: str,
    second: str,
    languages: str = "en-de",
    label: str | None = None,
    negative: str | None = None,
):
    """Returns one pair; `languages` names both, e.g. `en-de`."""
    from data_prep.readers.document import Pair

    left, right = languages.split("-")
    return Pair((first, second), (left, right), label, "hand:1", negative)


def _text(rng: random.Random) -> str:
    return " ".join(rng.choices(WORDS, k=rng.randint(2, 9)))


def bitext(count: int, languages: str = "en-de", seed: int = 0) -> list[tuple]:
    """Rows of one pair each, of random texts of 2 to 9 words."""
    rng = random.Random(f"{languages} {seed}")
    return [(pair(_text(rng), _text(rng), languages),) for _ in range(count)]


def triples(count: int, languages: str = "en-de", seed: int = 0) -> list[tuple]:
    """Makes rows like `bitext`; two of three have a hard negative."""
    import dataclasses

    rows, negatives = bitext(count, languages, seed), bitext(count, languages, seed + 1)
    return [
        (dataclasses.replace(row[0], negative=other[0].texts[1]),) if i % 3 else row
        for i, (row, other) in enumerate(zip(rows, negatives))
    ]


def make_graded(count: int, seed: int = 0) -> list[tuple]:
    """Makes rows like `bitext`; pair i has the score (i mod 5) / 4."""
    import dataclasses

    rows = bitext(count, "en-en", seed)
    return [(dataclasses.replace(row[0], score=i % 5 / 4),) for i, row in enumerate(rows)]


def nli_rows(count: int, languages: Iterable[str] = ("en", "de", "fr"), seed: int = 0) -> list:
    """Makes labelled rows of translations: per language a premise and a hypothesis of 2 to 9 words.

    The labels take turns, so that row i has label i mod 3.
    """
    from official_cmlm.records.pairs import NLI_LABELS

    rng = random.Random(seed)
    return [
        tuple(
            pair(_text(rng), _text(rng), f"{language}-{language}", NLI_LABELS[i % 3])
            for language in languages
        )
        for i in range(count)
    ]


def write_pairs(folder: Path, rows, vocabulary, shard_bytes: int = 4000, keep_text: bool = False):
    """Writes a folder of pairs records, in several shards; returns its manifest.

    `rows` are tuples of `data_prep.readers.document.Pair`, all of one length: 1, or the number of
    each row's languages.
    """
    from data_prep.counts import Counts
    from data_prep.output.folder import ShardWriter
    from data_prep.output.pairs import pair_records
    from official_cmlm.records.pairs import KIND

    rows = list(rows)
    folder.mkdir(parents=True, exist_ok=True)
    statistics = Counts()
    writer = ShardWriter(folder, KIND, shard_bytes)
    for language, row in pair_records(rows, vocabulary, statistics, keep_text=keep_text):
        writer.write(language, *row)
    writer.close()
    vocabulary.save(folder)
    manifest = statistics.manifest(
        vocabulary, writer.shards, keep_text, kind=KIND, row_size=len(rows[0])
    )
    manifest.save(folder)
    return manifest


def read_pairs_by_hand(folder: Path) -> dict[str, list[dict]]:
    """Returns the records of each shard, without the project's own parser.

    A record is a dict of `ids` (a list of each text's ids), `languages`, `label`, `row` and `text`
    (as many strings, or empty).
    """
    import tensorflow as tf

    shards = {}
    for path in sorted(folder.glob("*.tfrecord")):
        shards[path.name] = []
        for serialized in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
            feature = tf.train.Example.FromString(serialized).features.feature
            ids = list(feature["token_ids"].int64_list.value)
            ends = list(itertools.accumulate(feature["lengths"].int64_list.value, initial=0))
            assert ends[-1] == len(ids)
            shards[path.name].append(
                {
                    "ids": [ids[a:b] for a, b in itertools.pairwise(ends)],
                    "languages": [x.decode() for x in feature["languages"].bytes_list.value],
                    "label": feature["label"].int64_list.value[0],
                    "row": feature["row"].int64_list.value[0],
                    "text": [x.decode() for x in feature["text"].bytes_list.value],
                }
            )
    return shards
