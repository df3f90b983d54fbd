"""Helpers of the pipeline's tests: reading records by hand, and collecting batches."""

import itertools
from collections import Counter
from pathlib import Path

import numpy as np
import tensorflow as tf

from official_cmlm.configs.data import DataConfig
from official_cmlm.inputs.pipeline import Replicas, build_dataset
from official_cmlm.inputs.plan import Plan, shard_repetitions
from official_cmlm.inputs.reader import Blocks, parse_block
from official_cmlm.inputs.views import AdjacentPairs, SpecialIds, View
from official_cmlm.records.manifest import Manifest, Shard, load_manifest


def read_by_hand(folder: Path) -> list[tuple[list[list[int]], bool]]:
    """Reads (sentences, repeats_last) of each record, in the order of the shards."""
    result = []
    for path in sorted(folder.glob("*.tfrecord")):
        for serialized in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
            feature = tf.train.Example.FromString(serialized).features.feature
            ids = list(feature["token_ids"].int64_list.value)
            sentences = []
            for length in feature["sentence_lengths"].int64_list.value:
                sentences.append(ids[:length])
                del ids[:length]
            assert not ids
            result.append((sentences, bool(feature["repeats_last"].int64_list.value[0])))
    return result


def pairs_by_hand(folder: Path, special: SpecialIds, seq_length: int) -> list[tuple]:
    """Lists every adjacent pair of the corpus, the halves in sorted order."""
    pairs = []
    for sentences, _ in read_by_hand(folder):
        cut = [(special.cls, *s[: seq_length - 2], special.sep) for s in sentences]
        pairs += [tuple(sorted(cut[i : i + 2])) for i in range(len(cut) - 1)]
    return pairs


def manifest_of(records: list[tuple[str, int]], kind: str = "documents", **changes) -> Manifest:
    """Makes a manifest of shards of (language, records), with one sentence a record."""
    languages = Counter()
    for language, count in records:
        languages[language] += count
    total = sum(languages.values())
    shards = [Shard(f"{i}", count, 1, "", name) for i, (name, count) in enumerate(records)]
    fields = dict.fromkeys(("documents", "records", "sentences", "tokens"), total)
    known = {"languages": dict(languages), "length_histogram": {"8": total, "inf": 1}}
    known |= {"vocabulary": {"hash": "a", "size": 9}, "keep_text": False, "counters": {}}
    return Manifest(kind, **(fields | known | {"shards": shards} | changes))


def blocks_of(config: DataConfig, manifest: Manifest, *args) -> Blocks:
    """Returns the blocks of a folder's records; further arguments are those of `Blocks`."""
    return Blocks(config, manifest, shard_repetitions(config, manifest), *args)


class Pipeline:
    """Builds pipelines over one folder of records and takes batches from them as NumPy arrays."""

    # Padded length -> examples of a batch, at 8 · 24 tokens.
    sizes = {12: 16, 16: 12, 24: 8}

    def __init__(self, folder: Path, vocabulary, augments=(), view: View | None = None) -> None:
        """Takes a view, by default adjacent pairs of the settings of each pipeline."""
        self.folder, self.special, self._augments = folder, SpecialIds.of(vocabulary), augments
        self._view, self._read = view, {}

    def open(self, folder: Path | None = None, **settings) -> tuple[DataConfig, Manifest, View]:
        """Returns what a pipeline reads; `folder` takes the place of its own."""
        folder = folder or self.folder
        values = {"seq_length": 24, "global_batch_size": 8, "bucket_boundaries": [*self.sizes]}
        config = DataConfig(input_path=str(folder), **(values | settings))
        config.check("data")
        pairs = (config.segment, config.seq_length, config.swap_probability, self.special)
        return config, load_manifest(folder), self._view or AdjacentPairs(*pairs)

    def examples(self, epoch: int, **settings) -> dict[int, tuple]:
        """Maps the key of each example of an epoch to it: the view of each block as it comes."""
        config, manifest, view = self.open(**settings)
        rows = {}
        for _, serialized, keys in blocks_of(config, manifest).epoch(epoch):
            examples = view(parse_block(view.kind, serialized, keys, view.reads_text))
            lists = [examples[name].to_list() for name in view.sequences]
            lists += [examples[name].numpy().tolist() for name in view.scalars]
            rows |= zip(examples["key"].numpy().tolist(), zip(*lists, strict=True), strict=True)
        return rows

    def build(
        self,
        replicas: Replicas = Replicas(),
        reached=None,
        folder=None,
        static_shapes=False,
        **settings,
    ) -> tf.data.Dataset:
        """Builds a new pipeline."""
        config, manifest, view = self.open(folder, **settings)
        plan = Plan.of(config, manifest, view, replicas.total, reached, static_shapes)
        return build_dataset(plan, self._augments, replicas)

    def batches(self, count: int = -1, replicas: Replicas = Replicas(), **settings) -> list[dict]:
        """Takes the first `count` batches, or all of a validation pass.

        The pipeline is built and started once, as both take seconds; reading again takes `build`.
        """
        key = repr((replicas, sorted(settings.items())))
        if key not in self._read:
            self._read[key] = (self.build(replicas, **settings).as_numpy_iterator(), [])
        iterator, read = self._read[key]
        if count < 0 or len(read) < count:
            read.extend(itertools.islice(iterator, None if count < 0 else count - len(read)))
        return read[: count if count >= 0 else None]


def rows_of(view: View, batch: dict) -> list[tuple[int, tuple]]:
    """Lists (key, example) of a batch, without padding, as `Pipeline.examples` has them."""
    lists = [
        [
            ids[mask > 0].tolist()
            for ids, mask in zip(batch[name]["input_word_ids"], batch[name]["input_mask"])
        ]
        for name in view.sequences
    ]
    lists += [batch[name].tolist() for name in view.scalars]
    return list(zip(batch["key"].tolist(), zip(*lists, strict=True), strict=True))


def pairs_of(batches) -> list[tuple]:
    """Lists the pairs of the batches in order, without padding."""
    return [
        tuple(
            tuple(batch[name]["input_word_ids"][i][batch[name]["input_mask"][i] > 0].tolist())
            for name in ("first", "second")
        )
        for batch in batches
        for i in range(len(batch["key"]))
    ]


def assert_same(left, right) -> None:
    """Asserts that two lists of batches are equal in every feature."""
    assert len(left) == len(right) > 0
    for a, b in zip(left, right):
        tf.nest.map_structure(np.testing.assert_array_equal, a, b)


def assert_same_data(left, right) -> None:
    """Asserts equality but for positions, which may name an older block after a restart."""
    assert_same(*([{**batch, "position": 0} for batch in side] for side in (left, right)))


def count_unordered(pairs) -> Counter:
    """Counts pairs whatever the order of their halves."""
    return Counter(tuple(sorted(pair)) for pair in pairs)


def concatenate(batches) -> dict:
    """Joins the shares of a batch, all of which have its position."""
    batches = [dict(batch) for batch in batches]
    positions = [batch.pop("position") for batch in batches if "position" in batch]
    joined = tf.nest.map_structure(lambda *values: np.concatenate(values), *batches)
    if positions:
        np.testing.assert_array_equal(positions, [positions[0]] * len(batches))
        joined["position"] = positions[0]
    return joined
