"""Numbers by name that a user's results depend on, computed by the present code.

`write.py` stored them once, `test_unchanged.py` computes them again and compares. Everything is
asked for as a user would: experiments as YAML keys, weights under their names in checkpoints.
"""

import json
import shutil
from pathlib import Path

import numpy as np
import tensorflow as tf
import tensorflow_hub as hub
import tf_keras
from official.modeling import optimization

from experiments import registry
from export.formats import tfhub
from export.formats.tfhub_options import TfhubOptions
from official_cmlm.checkpoints.formats.imported_encoder import ImportOptions
from official_cmlm.checkpoints.formats.importing import import_checkpoint
from official_cmlm.configs.yaml_loading import override
from official_cmlm.encoding.sentence_encoder import SentenceEncoder
from official_cmlm.training.config import SentenceEncoderTaskConfig
from official_cmlm.training.run import run
from official_cmlm.training.task import SentenceEncoderTask

DATA = Path(__file__).parent / "data"
# A Hugging Face folder of random weights, which the reference library wrote.
PUBLIC = Path(__file__).parents[1] / "checkpoints" / "references" / "bert"
TEXTS = ["The cat sat on the mat.", "a dog ran over the old house!", "Water", ""]

# Objective -> its settings and the folder of records that it reads.
OBJECTIVES = {
    "bitext_retrieval": ({"logit_scale": 5.0, "margin": 0.2}, "bitext"),
    "cmlm": ({"num_projections": 3}, "documents"),
    "cmlm_cse": (
        {
            "mlm_weight": 0.5,
            "lexical_layers": 1,
            "fusion_layers": 1,
            "augmentation": "word_deletion",
        },
        "documents",
    ),
    "contrastive": ({"temperature": 0.2, "augmentation": "word_repetition"}, "documents"),
    "declutr": (
        {"temperature": 0.2, "min_span_length": 6, "max_span_length": 16},
        "long_documents",
    ),
    "diff_cse": (
        {"replaced_token_weight": 0.5, "lexical_layers": 1, "fusion_layers": 1},
        "documents",
    ),
    "mlm": ({}, "documents"),
    "nli": ({}, "nli"),
    "nsp": ({}, "documents"),
    "quick_thought": ({"logit_scale": 5.0, "encoders": "separate"}, "documents"),
}
_ENCODER = {
    "hidden_size": 16,
    "num_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 48,
    "dropout_rate": 0.1,
    "attention_dropout_rate": 0.1,
    "initializer_range": 0.3,
}
_BATCHES = {
    "seq_length": 24,
    "bucket_boundaries": [12, 24],
    "global_batch_size": 8,
    "shuffle_sentences": 200,
    "seed": 5,
}
# A large epsilon makes Adam's step proportional to the gradient, so that a gradient that is zero
# but for rounding moves nothing.
_OPTIMIZER = {
    "optimizer": {
        "type": "adamw",
        "adamw": {"epsilon": 1.0, "gradient_clip_norm": 1.0, "weight_decay_rate": 0.001},
    },
    "learning_rate": {"type": "constant", "constant": {"learning_rate": 10.0}},
}

_SLOT = "/.OPTIMIZER_SLOT/optimizer"

Numbers = dict[str, list[float]]


def summary(array: np.ndarray) -> list[float]:
    """Returns a tensor's norm, a projection that all its entries enter, and three entries."""
    flat = np.asarray(array, np.float64).ravel()
    projection = np.cos(np.arange(flat.size)) @ flat
    return [np.linalg.norm(flat), projection, flat[0], flat[flat.size // 2], flat[-1]]


def three_steps(name: str, folder: Path) -> Numbers:
    """Computes losses and gradient norms of three steps, the first gradients, the last weights.

    The gradients are read from Adam's first moments, which after one step are a tenth of them,
    clipped.
    """
    settings, records = OBJECTIVES[name]
    config = SentenceEncoderTaskConfig()
    values = {
        "encoder": _ENCODER,
        "objectives": {name: {"weight": 0.5, **settings}},
        "train_data": {"input_path": str(DATA / "records" / records), **_BATCHES},
    }
    override(config, values, name)
    tf_keras.utils.set_random_seed(config.train_data.seed)
    task = SentenceEncoderTask(config)
    model, metrics = task.build_model(), task.build_metrics()
    task.initialize(model)
    optimizer = task.create_optimizer(optimization.OptimizationConfig(_OPTIMIZER))
    checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer, **model.checkpoint_items)
    norm = next(metric for metric in metrics if metric.name == "gradient_norm")
    numbers, batches = {}, iter(task.build_inputs(config.train_data))
    for step in (1, 2, 3):
        norm.reset_state()
        logs = task.train_step(next(batches), model, optimizer, metrics)
        numbers[f"step {step}: loss, gradient norm"] = [float(logs["loss"]), float(norm.result())]
        if step == 2:
            continue
        tensors = checkpoint_numbers(checkpoint.write(str(folder / f"{name}-{step}")))
        for key, value in tensors.items():
            wanted = key.endswith(f"{_SLOT}/m") if step == 1 else _SLOT not in key
            if wanted:
                numbers[f"step {step}: {key}"] = value
    return numbers


def checkpoint_numbers(prefix: str) -> Numbers:
    """Summarises every float tensor of a checkpoint, optimizer state included."""
    reader = tf.train.load_checkpoint(prefix)
    types = reader.get_variable_to_dtype_map()
    return {
        key.removesuffix("/.ATTRIBUTES/VARIABLE_VALUE"): summary(reader.get_tensor(key))
        for key in sorted(types)
        if types[key] == tf.float32
    }


def continue_training(folder: Path) -> Numbers:
    """Reads the checkpoint after one more step of the stored training, which had three."""
    model = folder / "model"
    shutil.copytree(DATA / "trained", model)
    run(training(4, DATA / "records", model / "params.yaml"), "train", str(model))
    return checkpoint_numbers(str(model / "ckpt-4"))


def training(steps: int, records: Path, params: Path | None = None):
    """Loads CMLM and bitext retrieval, each on its own records, or the experiment `params`."""
    own = {"input_path": str(records / "bitext")}
    changes = {
        "task": {
            "objectives": {"bitext_retrieval": {"train_data": own}},
            "train_data": {"input_path": str(records / "documents")},
        },
        "trainer": {"train_steps": steps},
        "runtime": {"mixed_precision_dtype": None},
    }
    if params:
        return registry.load("demo", [str(params)], json.dumps(changes))
    cmlm, bitext = OBJECTIVES["cmlm"][0], OBJECTIVES["bitext_retrieval"][0]
    objectives = {
        "cmlm": cmlm,
        "bitext_retrieval": {**bitext, "weight": 0.2, "train_data": {**_BATCHES, **own}},
        "quick_thought": None,
    }
    changes["task"] = {
        "encoder": _ENCODER,
        "objectives": objectives,
        "train_data": {**_BATCHES, **changes["task"]["train_data"]},
    }
    changes["trainer"] |= {
        "steps_per_loop": 1,
        "summary_interval": 1,
        "checkpoint_interval": steps,
        "max_to_keep": 1,
        "optimizer_config": {**_OPTIMIZER, "warmup": {"type": None}},
    }
    return registry.load("demo", params_override=json.dumps(changes))


def import_again(folder: Path) -> Numbers:
    """Embeddings of `TEXTS` by the public checkpoint, imported now."""
    import_checkpoint(str(PUBLIC), str(folder / "imported"), ImportOptions(), False)
    return embeddings(folder / "imported")


def embeddings(encoder_directory: Path) -> Numbers:
    """Embeddings of `TEXTS`."""
    vectors = SentenceEncoder.load(encoder_directory).encode(TEXTS)
    return {text: vector.tolist() for text, vector in zip(TEXTS, vectors)}


def export_again(folder: Path) -> Numbers:
    """Outputs of the TF-Hub pair and of the serving model of the stored imported directory."""
    tfhub.export(TfhubOptions(str(DATA / "imported"), str(folder / "tfhub")))
    texts = tf.constant(TEXTS)
    inputs = hub.load(str(folder / "tfhub" / "preprocess"))(texts)
    outputs = hub.KerasLayer(str(folder / "tfhub" / "encoder"))(inputs)
    serving = tf.saved_model.load(str(folder / "tfhub" / "serving" / "1"))
    served = serving.signatures["serving_default"](texts)
    numbers = {f"inputs {key}": summary(value) for key, value in inputs.items()}
    for name, values in (("encoder", outputs["default"]), ("serving", served["default"])):
        numbers |= {f"{name}: {text}": row.tolist() for text, row in zip(TEXTS, values.numpy())}
    numbers["sequence_output"] = summary(outputs["sequence_output"])
    for i, layer in enumerate(outputs["encoder_outputs"]):
        numbers[f"encoder_outputs {i}"] = summary(layer)
    return numbers


def all_values(folder: Path) -> dict[str, Numbers]:
    """Computes everything, by title; `folder` is for intermediate files."""
    numbers = {f"{name}: three steps": three_steps(name, folder) for name in OBJECTIVES}
    numbers["training continued"] = continue_training(folder)
    numbers["trained directory"] = embeddings(DATA / "trained")
    numbers["imported directory"] = embeddings(DATA / "imported")
    numbers["import"] = import_again(folder)
    numbers["export"] = export_again(folder)
    return numbers
