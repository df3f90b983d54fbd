"""Every objective with settings and records that fit a tiny encoder."""

import functools
import zlib
from pathlib import Path

import numpy as np
import tensorflow as tf

from data_prep.add_vectors import write_taught
from data_prep.readers import Document
from official_cmlm.inputs.reader import parse_block
from official_cmlm.inputs.views import View
from official_cmlm.objectives.bitext_retrieval import BitextRetrievalConfig
from official_cmlm.objectives.cmlm import CmlmConfig
from official_cmlm.objectives.cmlm_cse import CmlmCseConfig
from official_cmlm.objectives.contrastive import ContrastiveConfig
from official_cmlm.objectives.declutr import DeclutrConfig
from official_cmlm.objectives.diff_cse import DiffCseConfig
from official_cmlm.objectives.distillation import DistillationConfig, PairDistillationConfig
from official_cmlm.objectives.graded_similarity import CosentConfig, GradedSimilarityConfig
from official_cmlm.objectives.mlm import MlmConfig
from official_cmlm.objectives.nli import NliConfig
from official_cmlm.objectives.nsp import NspConfig
from official_cmlm.objectives.quick_thought import QuickThoughtConfig
from official_cmlm.records.manifest import load_manifest
from official_cmlm.training.task import SentenceEncoderTask
from tests.conftest import make_documents, write_records
from tests.pairs_helpers import make_graded, nli_rows, triples, write_pairs
from tests.training.helpers import data, task_config
from tests.training.step_values import halves_of

# Components of a teacher's vectors; the encoder has others.
TEACHER_SIZE = 6
# Settings by objective; the encoder has one layer.
SETTINGS = {
    "bitext_retrieval": BitextRetrievalConfig(logit_scale=5.0, hard_negative_weight=0.5),
    "cmlm": CmlmConfig(num_projections=3),
    "cmlm_cse": CmlmCseConfig(
        mlm_weight=0.5, lexical_layers=1, fusion_layers=1, augmentation="word_deletion"
    ),
    "contrastive": ContrastiveConfig(temperature=0.2, augmentation="word_repetition"),
    "cosent": CosentConfig(similarity="angle", logit_scale=5.0),
    "cosine_similarity": GradedSimilarityConfig(),
    "declutr": DeclutrConfig(temperature=0.2, min_span_length=6, max_span_length=16),
    "diff_cse": DiffCseConfig(replaced_token_weight=0.5, lexical_layers=1, fusion_layers=1),
    "distillation": DistillationConfig(matryoshka_dims=[4], teacher_size=TEACHER_SIZE),
    "mlm": MlmConfig(),
    "nli": NliConfig(),
    "nsp": NspConfig(),
    "pair_distillation": PairDistillationConfig(targets="first", teacher_size=TEACHER_SIZE),
    "quick_thought": QuickThoughtConfig(logit_scale=5.0, encoders="separate"),
}
# The records of those that do not read `documents`.
_RECORDS = {
    "bitext_retrieval": "bitext",
    "nli": "nli",
    "cosent": "graded",
    "cosine_similarity": "graded",
    "declutr": "long_documents",
    "distillation": "taught_documents",
    "pair_distillation": "taught_bitext",
}


def write_folders(folder: Path, vocabulary) -> Path:
    """Records for every objective, one folder a kind, below `folder`."""
    write_records(folder / "documents", make_documents(60), vocabulary)
    # Spans of 16 tokens need documents of 64; these have about 300.
    texts = [
        " ".join(document.paragraphs[0] for document in make_documents(6, i)) for i in range(30)
    ]
    long = [Document(f"long{i}", "en", [text]) for i, text in enumerate(texts)]
    write_records(folder / "long_documents", long, vocabulary)
    # Some with a hard negative, some without.
    write_pairs(folder / "bitext", triples(40), vocabulary)
    write_pairs(folder / "nli", nli_rows(20), vocabulary)
    write_pairs(folder / "graded", make_graded(40), vocabulary)
    write_records(folder / "with_text", make_documents(60), vocabulary, keep_text=True)
    teach(folder / "with_text", folder / "taught_documents")
    write_pairs(folder / "bitext_with_text", triples(40), vocabulary, keep_text=True)
    teach(folder / "bitext_with_text", folder / "taught_bitext")
    return folder


def teach(records: Path, output: Path, size: int = TEACHER_SIZE) -> None:
    """Writes records again with vectors of their texts, random ones for each text."""
    output.mkdir()
    write_taught(records, output, functools.partial(_vectors, size=size), "a teacher", False)


def _vectors(texts: list[str], size: int) -> np.ndarray:
    seeds = [zlib.crc32(text.encode()) for text in texts]
    return np.stack([np.random.default_rng(seed).standard_normal(size) for seed in seeds])


def records_of(folder: Path, name: str) -> Path:
    """Returns the folder of records that an objective reads."""
    return folder / _RECORDS.get(name, "documents")


def with_own_records(folder: Path, name: str, **settings):
    """Returns the settings of an objective that reads its own records."""
    records = records_of(folder, name)
    return SETTINGS[name].replace(
        train_data=data(records), validation_data=data(records, is_training=False), **settings
    )


def task_of(
    folder: Path, name: str, encoder=None, static_shapes=False, **settings
) -> SentenceEncoderTask:
    """Returns a task of one objective over its records, with a weight that is not 1."""
    config = SETTINGS[name].replace(weight=0.5, **settings)
    encoder = {"num_layers": 1, **(encoder or {})}
    config = task_config(records_of(folder, name), {name: config}, encoder)
    return SentenceEncoderTask(config, static_shapes=static_shapes)


def batch_of(task: SentenceEncoderTask, name: str, count: int = 8, start: int = 0) -> dict:
    """Examples `start` … of the task's records as a batch for its objective `name`.

    The same features as `build_inputs` gives, without the seconds that a pipeline takes to start.
    """
    (group,) = (group for group in task.train_groups if name in group.objectives)
    data, view = group.data, group.view
    stored = examples_of(data.input_path, view)
    examples = {key: values[start : start + count] for key, values in stored.items()}
    features = {key: examples[key] for key in ("key", *view.scalars)}
    for sequence in view.sequences:
        ids = examples[sequence]
        padded = ids.to_tensor(view.special.pad, shape=[count, data.seq_length])
        features[sequence] = {
            "input_word_ids": padded,
            "input_mask": tf.sequence_mask(ids.row_lengths(), data.seq_length, tf.int32),
            "input_type_ids": tf.zeros_like(padded),
        }
    for augment in task.chosen[name].augments(view.special):
        features = augment(features)
    return {name: features}


def _mask(half: dict) -> float:
    """Returns the number of masked tokens in the features of one replica."""
    return sum(
        float(tf.reduce_sum(sequence["masked_lm_weights"]))
        for name, sequence in half.items()
        if name.endswith("_masked")
    )


def unequal_batch(task: SentenceEncoderTask, name: str) -> dict:
    """Returns a batch; where tokens are masked, one half has more of them.

    Replicas with equally many could not tell a mean of means from the mean.
    """
    for start in range(20):
        whole = batch_of(task, name, start=start)
        first, second = (_mask(half[name]) for half in halves_of(whole))
        if first != second or not first:
            return whole
    raise AssertionError("all batches have equally many masked tokens in both halves")


@functools.cache
def examples_of(folder: str, view: View) -> dict:
    """Returns all examples of a folder of records, cached: a view takes a second."""
    manifest = load_manifest(folder)
    paths = [str(Path(folder) / shard.name) for shard in manifest.shards]
    serialized = tf.stack([*tf.data.TFRecordDataset(paths)])
    keys = tf.range(manifest.records, dtype=tf.int64)
    given = (view.kind, serialized, keys, view.reads_text)
    return view(parse_block(*given, vector_size=view.vector_size))
