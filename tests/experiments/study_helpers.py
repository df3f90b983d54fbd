"""A tiny study, and a replacement for the processes that a study starts."""

import copy
import json
import shutil
from pathlib import Path

import numpy as np
import tensorflow as tf
import tf_keras
import yaml

from experiments import registry
from experiments.study.definition import read_study
from experiments.study.runs import StudyRunner
from official_cmlm.checkpoints.weights import save_weights
from official_cmlm.common.errors import Stopped
from official_cmlm.encoding.encoders import open_encoder
from official_cmlm.evaluation.report import driver
from official_cmlm.training.progress import versions
from official_cmlm.training.run import describe_run, with_counted_steps
from official_cmlm.training.task import SentenceEncoderTask
from tests.conftest import WORDS
from tests.training.tiny_training import TINY

STS_B = "senteval/downstream/STS/STSBenchmark/sts-test.csv"
STUDY = {
    "title": "Tiny",
    "seeds": [1, 2],
    "baseline": "mlm",
    "data": [
        {"name": "books", "run": "create_documents", "flags": {"input": "$data/*.txt"}},
    ],
    "common": {
        "runtime": {"distribution_strategy": "one_device"},
        "task": {
            "encoder": {**TINY["encoder"], "vocab_size": 0},
            "train_data": {**TINY["train_data"], "input_path": "$books"},
            "validation_data": {**TINY["validation_data"], "input_path": "$books"},
            "objectives": {"mlm": {"masking_rate": 0.2, "max_predictions": 6}},
        },
        "trainer": {
            "train_steps": 2,
            "steps_per_loop": 2,
            "summary_interval": 2,
            "checkpoint_interval": 2,
            "validation_interval": 2,
            "validation_steps": -1,
            "best_checkpoint_export_subdir": "",
        },
    },
    "arms": [
        {"name": "mlm", "experiment": "mlm/english_base"},
        {
            "name": "readout",
            "experiment": "mlm/english_base",
            "starts_from": "mlm",
            "train": False,
            "params_override": {"task": {"encoder": {"pooling": "max"}}},
        },
    ],
    "comparisons": [
        {
            "arm": "readout",
            "minus": "mlm",
            "title": "maximum against mean",
            "paper": [
                {
                    "paper": "CMLM",
                    "table": "Table 2",
                    "row": "CMLM base",
                    "minus": "BERT Mean embeddings",
                }
            ],
        },
    ],
    "scores": {
        "suites": ["sts"],
        "set": ["sts.other_languages=false"],
        "validation": True,
        "columns": [
            {"id": "sts/STS-B/spearman", "label": "STS-B"},
            {"id": "validation/mlm/masked_token_accuracy", "label": "masked", "scale": 100},
        ],
    },
}


def write_study(folder, change=None, **values):
    """Writes the tiny study as a file and reads it.

    Args:
      folder: the file's folder.
      change: edits the study, if given.
      **values: replace values at its top level.
    """
    study = copy.deepcopy({**STUDY, **values})
    if change is not None:
        change(study)
    path = folder / "study.yaml"
    path.write_text(yaml.safe_dump(study))
    return read_study(str(path))


def write_data(folder):
    """Makes a data folder with a few scored pairs."""
    path = folder / "data" / STS_B
    path.parent.mkdir(parents=True)
    rng = np.random.default_rng(0)
    rows = []
    for i in range(12):
        one, two = (" ".join(rng.choice(WORDS, 5)) for _ in range(2))
        rows.append(f"main\tnone\t2012\t{i:04d}\t{rng.uniform(0, 5):.3f}\t{one}\t{two}\n")
    path.write_text("".join(rows))
    return folder / "data"


def change_at(*path):
    """Returns a change of a study: the last of `path` becomes the value of the key before."""

    def change(study):
        *keys, last, value = path
        for key in keys:
            study = study.setdefault(key, {}) if isinstance(study, dict) else study[key]
        study[last] = value

    return change


def instead_of_training(params, folder):
    """Writes the files of a finished training, with the weights that it would start from."""
    tf_keras.utils.set_random_seed(params.task.train_data.seed)
    task = SentenceEncoderTask(params.task)
    # Unlike the study's process, a training sees the GPUs.
    params = with_counted_steps(params, task, num_replicas=2)
    steps = params.trainer.train_steps
    model = task.build_model()
    task.initialize(model)
    describe_run(params, task, "train", str(folder))
    step = tf.Variable(steps, dtype=tf.int64)
    checkpoint = tf.train.Checkpoint(encoder=model.encoder, global_step=step)
    save_weights(folder, model.encoder, checkpoint=checkpoint.save(str(folder / "ckpt")))
    line = {"split": "validation", "step": steps, "seconds": 1.0, "mlm/masked_token_accuracy": 0.1}
    (folder / "history.jsonl").write_text(json.dumps(line) + "\n")
    counts = {"steps": steps, "examples": 8 * steps, "tokens": 80 * steps, "seconds": 1.5}
    summary = {
        **counts,
        "completed": True,
        "train_steps": steps,
        "devices": ["/device:CPU:0"],
        "versions": versions(),
    }
    (folder / "train_summary.json").write_text(json.dumps(summary))


class InProcess:
    """Runs in this process what a study runs in others, and can stop at one; counts the calls."""

    def __init__(self, records_dir, stop_at=None):
        self.trained, self.scored, self.made = [], [], []
        self._records, self._stop_at, self._calls = records_dir, stop_at, 0

    def __call__(self, command):
        self._calls += 1
        if self._calls == self._stop_at:
            raise Stopped("stopped; run the same command to resume")
        flags = dict(a.removeprefix("--").split("=", 1) for a in command if "=" in a)
        module = command[2]
        if module.startswith("data_prep."):
            self.made.append(module)
            shutil.copytree(self._records, flags["output_dir"])
        elif module == "experiments.train":
            self.trained.append(Path(flags["model_dir"]).name)
            start = flags.get("init_checkpoint")
            params = registry.load(flags["experiment"], [], flags["params_override"], start)
            instead_of_training(params, Path(flags["model_dir"]))
        else:
            self.scored.append(Path(flags["encoder"]).name)
            settings = [a.removeprefix("--set=") for a in command if a.startswith("--set=")]
            driver.run(
                open_encoder(flags["encoder"]),
                flags["encoder"],
                flags["name"],
                Path(flags["data_dir"]),
                Path(flags["output_dir"]),
                driver.parse_options(flags["suites"].split(","), settings),
            )
            # As STS12 and others are missing.
            return 1
        return 0


def plan_trials(study, data, work):
    """Plans the runs of a study, whose records are there."""
    with StudyRunner(study, work, data) as runner:
        return runner.plan_trials()
