"""What a person sees of a training: one line with loss, speed and time left; a history file."""

import contextlib
import json
import math
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orbit
import tensorflow as tf
from tqdm import tqdm

from official_cmlm import progress

HISTORY_NAME = "history.jsonl"
# What stands behind the bar, which itself shows steps, steps per second and the time left.
_SHOWN = {
    "loss": ("training_loss", "{:.3f}"),
    "lr": ("learning_rate", "{:.1e}"),
    "norm": ("gradient_norm", "{:.2f}"),
    "tok/s": ("tokens_per_second", "{:.0f}"),
    "pad": ("padding_share", "{:.0%}"),
    "wait": ("waiting_share", "{:.0%}"),
}


class TrainingProgress:
    """Train and eval actions of Orbit's controller that report to a person.

    Each report is also a line of `history.jsonl` in the model directory: `step`, `seconds` since
    the start, `split` and the metrics, for figures and comparisons.

    Attributes:
      last: metrics of the last loop of training; empty before it.
    """

    def __init__(self, total_steps: int, model_dir: str | None, global_step: Any) -> None:
        """Args: `model_dir`, None for a worker that is not to report; the trainer's step."""
        self._path = model_dir and Path(model_dir) / HISTORY_NAME
        self._global_step = global_step
        self._started = time.monotonic()
        self._total_steps = total_steps
        self._bar = None
        self.last: dict[str, float] = {}

    def start(self) -> None:
        """Draws the bar from the step that a checkpoint has brought the training to."""
        done = min(int(self._global_step.numpy()), self._total_steps)
        self._bar = progress.bar(self._total_steps, "step", "training", initial=done)

    def on_train(self, output: dict[str, Any]) -> None:
        """Called with the metrics of each loop of `steps_per_loop` steps."""
        values = self.last = _floats(output)
        step = int(self._global_step.numpy())
        self._write("train", step, values)
        self._bar.set_postfix(
            {name: text.format(values[metric]) for name, (metric, text) in _SHOWN.items()},
            refresh=False,
        )
        self._bar.update(step - self._bar.n)

    def on_eval(self, output: dict[str, Any]) -> None:
        """Called with the metrics of each evaluation."""
        values = _floats(output)
        step = int(self._global_step.numpy())
        self._write("validation", step, values)
        text = ", ".join(f"{name} {value:.4g}" for name, value in sorted(values.items()))
        tqdm.write(f"step {step}: {text}", file=sys.stderr)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()

    def _write(self, split: str, step: int, values: dict[str, float]) -> None:
        if not self._path:
            return
        seconds = round(time.monotonic() - self._started, 3)
        # JSON has no word for what is not finite, as the norm of gradients that all overflowed.
        values = {name: value if math.isfinite(value) else None for name, value in values.items()}
        line = {"split": split, "step": step, "seconds": seconds, **values}
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line, allow_nan=False) + "\n")


def evaluated_steps(model_dir: str) -> set[int]:
    """The steps with a line of validation in a folder's history."""
    path, steps = Path(model_dir) / HISTORY_NAME, set()
    for text in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
        # A killed process may have left half a line.
        with contextlib.suppress(json.JSONDecodeError):
            line = json.loads(text)
            if line["split"] == "validation":
                steps.add(line["step"])
    return steps


@contextlib.contextmanager
def progress_reports(
    total_steps: int, model_dir: str | None, trainer: Any
) -> Iterator[TrainingProgress]:
    """Reports of one run; Orbit's own print of every loop, less readable, is silenced meanwhile."""
    module = orbit.controller
    original = module._log
    module._log = lambda message: None
    reports = TrainingProgress(total_steps, model_dir, trainer.global_step)
    try:
        reports.start()
        yield reports
    finally:
        reports.close()
        module._log = original


def _floats(output: dict[str, Any]) -> dict[str, float]:
    # A constant learning rate is a variable, on several replicas a distributed one without float().
    return {name: float(tf.convert_to_tensor(value)) for name, value in output.items()}
