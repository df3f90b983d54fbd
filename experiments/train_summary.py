"""`train_summary.json`: what a run of training did, with what, and how fast."""

import importlib.metadata
import json
import math
import sys
from pathlib import Path
from typing import Any

from official_cmlm.errors import Stopped
from official_cmlm.process_memory import peak_mib

SUMMARY_NAME = "train_summary.json"
_PACKAGES = ("tensorflow", "tf-keras", "tf-models-official")
# Of the last loop of steps.
_LAST = {
    "loss": "training_loss",
    "learning_rate": "learning_rate",
    "gradient_norm": "gradient_norm",
}


def write_summary(
    model_dir: str,
    trainer: Any,
    last: dict[str, float],
    seed: int,
    checkpoint: str | None,
) -> None:
    """Writes the summary of a run that ended or was stopped.

    `steps` … `waiting_share` are those of this run alone, `step` is where the training stands.
    Rates and shares leave out the first piece of the run, in which the step is traced and
    compiled.

    Args:
      model_dir: the folder.
      trainer: an `experiments.trainer.Trainer`.
      last: metrics of the last loop; empty if there was none.
      seed: of data, weights and dropout.
      checkpoint: the newest one's prefix.
    """
    step, aim = int(trainer.global_step.numpy()), trainer.config.trainer.train_steps
    totals = trainer.totals
    values = {
        "completed": step >= aim,
        "step": step,
        "train_steps": aim,
        "steps": totals.steps,
        "examples": totals.examples,
        "tokens": totals.tokens,
        "seconds": round(totals.seconds, 3),
        **trainer.rates(),
        **{name: _finite(last.get(metric)) for name, metric in _LAST.items()},
        "peak_memory_mib": round(peak_mib()),
        "devices": trainer.devices,
        "replicas": trainer.strategy.num_replicas_in_sync,
        "seed": seed,
        "checkpoint": checkpoint,
        "versions": versions(),
    }
    path = Path(model_dir) / SUMMARY_NAME
    partial = path.with_suffix(".json.partial")
    text = json.dumps(values, indent=2, allow_nan=False)
    partial.write_text(text + "\n", encoding="utf-8")
    partial.replace(path)


def _finite(value: float | None) -> float | None:
    """JSON has no word for other numbers."""
    return value if value is not None and math.isfinite(value) else None


def check_completed(model_dir: Path) -> None:
    """Raises `Stopped` if the last training in a folder was stopped before its last step."""
    path = model_dir / SUMMARY_NAME
    if path.is_file() and not json.loads(path.read_text(encoding="utf-8"))["completed"]:
        raise Stopped(f"{model_dir}: stopped; the same command goes on from there")


def versions() -> dict[str, str]:
    """Python's and those of the packages that the numbers depend on."""
    packages = [*_PACKAGES, *(["jax"] if "jax" in sys.modules else [])]
    found = {name: importlib.metadata.version(name) for name in packages}
    return {"python": sys.version.split()[0], **found}
