"""Reports of a training: a progress bar, `history.jsonl` and `train_summary.json`."""

import contextlib
import importlib.metadata
import json
import math
import sys
import time
from pathlib import Path
from typing import Any

from tqdm import tqdm

from official_cmlm.common import progress
from official_cmlm.common.errors import Stopped
from official_cmlm.common.files import read_object, write_json
from official_cmlm.common.processor import peak_mib

HISTORY_NAME = "history.jsonl"
# Metrics shown after the bar, which itself shows steps, steps per second and the time left.
_SHOWN = {
    "loss": ("training_loss", "{:.3f}"),
    "lr": ("learning_rate", "{:.1e}"),
    "norm": ("gradient_norm", "{:.2f}"),
    "tok/s": ("tokens_per_second", "{:.0f}"),
    "pad": ("padding_share", "{:.0%}"),
    "wait": ("waiting_share", "{:.0%}"),
}

# Seconds of training after which its total time is estimated, once.
_ESTIMATE_SECONDS = 5.0
# If a training takes longer, the encoder is probably too large for the machine.
_LONG_SECONDS = 86_400.0


class TrainingProgress:
    """Train and eval actions of Orbit's controller that report progress, within a `with` block.

    There Orbit's less readable line per loop is suppressed. Each report is also a line of
    `history.jsonl` in the model directory: `step`, `seconds` since the start, `split` and the
    metrics, for figures and comparisons.

    Attributes:
      last: metrics of the last training loop; empty before the first.
      seconds_to_first_step: from the beginning of the run to the end of its first step; None until
        then.
    """

    def __init__(
        self,
        total_steps: int,
        model_dir: str | None,
        global_step: Any,
        started: float | None = None,
    ) -> None:
        """Starts measuring the time of the run.

        Args:
          total_steps: steps of the whole training.
          model_dir: folder of `history.jsonl`; None, for non-chief workers, writes none.
          global_step: the trainer's variable.
          started: when the run began, by `time.monotonic`. Default: now.
        """
        self._path = model_dir and Path(model_dir) / HISTORY_NAME
        self._global_step = global_step
        self._started = time.monotonic()
        self._run_started = self._started if started is None else started
        self.seconds_to_first_step: float | None = None
        self._total_steps = total_steps
        self._estimated = False
        self.last: dict[str, float] = {}

    def __enter__(self) -> "TrainingProgress":
        """Draws the bar, which starts at the restored step."""
        import orbit

        self._restore = contextlib.ExitStack()
        module, log = orbit.controller, orbit.controller._log
        module._log = lambda message: None
        self._restore.callback(setattr, module, "_log", log)
        done = min(int(self._global_step.numpy()), self._total_steps)
        self._bar = progress.bar(self._total_steps, "step", "training", initial=done)
        if done < self._total_steps:
            tqdm.write("tracing the first step, which may take a minute or two …", file=sys.stderr)
        self._restore.callback(self._bar.close)
        return self

    def __exit__(self, *_: object) -> None:
        self._restore.close()

    def on_train(self, output: dict[str, Any]) -> None:
        """Reports the metrics of a loop of `steps_per_loop` steps."""
        values = self.last = _floats(output)
        self._write("train", int(self._global_step.numpy()), values)
        self._show(values)

    def on_first_step(self, seconds: float) -> None:
        """Reports the first step of the run, which took `seconds`, tracing it included."""
        whole = self.seconds_to_first_step = time.monotonic() - self._run_started
        line = f"first step after {whole:.1f} s, {seconds:.1f} s of it for tracing and computing it"
        tqdm.write(line, file=sys.stderr)

    def on_piece(self, values: dict[str, float]) -> None:
        """Shows the metrics of a loop so far, every few seconds; see `Trainer.on_piece`."""
        self._show(values)
        if not self._estimated and values.get("seconds", -1.0) >= _ESTIMATE_SECONDS:
            self._estimated = True
            left = self._total_steps - int(self._global_step.numpy())
            seconds = left / max(values["steps_per_second"], 1e-9)
            advice = "; fewer trainer.train_steps take less" if seconds > _LONG_SECONDS else ""
            line = f"about {progress.in_words(seconds)} for the remaining {left} steps{advice}"
            tqdm.write(line, file=sys.stderr)

    def _show(self, values: dict[str, float]) -> None:
        shown = {n: text.format(values[m]) for n, (m, text) in _SHOWN.items() if m in values}
        self._bar.set_postfix(shown, refresh=False)
        self._bar.update(int(self._global_step.numpy()) - self._bar.n)

    def on_eval(self, output: dict[str, Any]) -> None:
        """Reports the metrics of an evaluation."""
        values = _floats(output)
        step = int(self._global_step.numpy())
        self._write("validation", step, values)
        text = ", ".join(f"{name} {value:.4g}" for name, value in sorted(values.items()))
        tqdm.write(f"step {step}: {text}", file=sys.stderr)

    def _write(self, split: str, step: int, values: dict[str, float]) -> None:
        if not self._path:
            return
        seconds = round(time.monotonic() - self._started, 3)
        # JSON has no non-finite numbers, such as the norm of gradients that all overflowed.
        values = {name: value if math.isfinite(value) else None for name, value in values.items()}
        line = {"split": split, "step": step, "seconds": seconds, **values}
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line, allow_nan=False) + "\n")


def read_history(path: Path) -> list[dict[str, Any]]:
    """Reads a `history.jsonl`; of a step that was reported twice only the last report counts.

    A training that goes on after an interruption repeats some steps. Incomplete lines, which a
    killed process leaves, are left out.
    """
    lines: dict[tuple[str, int], dict[str, Any]] = {}
    for text in path.read_text(encoding="utf-8", errors="replace").splitlines():
        with contextlib.suppress(ValueError, KeyError, TypeError, RecursionError):
            line = json.loads(text)
            lines[str(line["split"]), int(line["step"])] = line
    return [lines[key] for key in sorted(lines, key=lambda key: key[1])]


def read_evaluations(model_dir: str | Path) -> dict[int, dict[str, Any]]:
    """Returns step -> metrics of each validation in a folder's history."""
    path, facts = Path(model_dir) / HISTORY_NAME, ("split", "step", "seconds")
    return {
        int(line["step"]): {k: v for k, v in line.items() if k not in facts and v is not None}
        for line in (read_history(path) if path.is_file() else ())
        if line["split"] == "validation"
    }


def _floats(output: dict[str, Any]) -> dict[str, float]:
    import tensorflow as tf

    # A constant learning rate is a variable, on several replicas a distributed one without float().
    return {name: float(tf.convert_to_tensor(value)) for name, value in output.items()}


SUMMARY_NAME = "train_summary.json"
_PACKAGES = ("tensorflow", "tf-keras", "tf-models-official")
# Field of the summary -> metric of the last training loop.
_LAST = {
    "loss": "training_loss",
    "learning_rate": "learning_rate",
    "gradient_norm": "gradient_norm",
}


def write_summary(
    model_dir: str, trainer: Any, reports: TrainingProgress, checkpoint: str | None
) -> None:
    """Writes the summary of a run that ended or was stopped.

    `steps` … `waiting_share` count this run alone; `step` is the global step. Rates and shares
    leave out the first piece of the run, in which the step is traced and compiled.
    """
    step, aim = int(trainer.global_step.numpy()), trainer.config.trainer.train_steps
    totals, first_step = trainer.totals, reports.seconds_to_first_step
    values = {
        "completed": step >= aim,
        "step": step,
        "train_steps": aim,
        "steps": totals.steps,
        "examples": totals.examples,
        "tokens": totals.tokens,
        "seconds": round(totals.seconds, 3),
        "seconds_to_first_step": first_step and round(first_step, 3),
        "compiled": trainer.compiled,
        **trainer.rates(),
        **{name: _finite(reports.last.get(metric)) for name, metric in _LAST.items()},
        "peak_memory_mib": round(peak_mib()),
        "devices": trainer.devices,
        "replicas": trainer.strategy.num_replicas_in_sync,
        "seed": trainer.config.task.train_data.seed,
        "checkpoint": checkpoint,
        "versions": versions(),
    }
    write_json(Path(model_dir) / SUMMARY_NAME, values)


def _finite(value: float | None) -> float | None:
    """Returns the value; None if it is non-finite, which JSON cannot represent."""
    return value if value is not None and math.isfinite(value) else None


def check_completed(model_dir: Path) -> None:
    """Raises `Stopped` if the last training in a folder was stopped before its last step."""
    path = model_dir / SUMMARY_NAME
    if path.is_file() and not read_object(path).get("completed"):
        raise Stopped(f"{model_dir}: stopped; run the same command to resume")


def total_counts(model_dir: Path, steps: int) -> dict[str, float | None]:
    """Returns the examples, tokens and seconds of all runs of a training.

    They are None unless the steps of the summaries add up: a killed run writes none.

    Args:
      model_dir: the folder, in which a caller has kept the summaries of earlier runs as
        `train_summary.*.json`.
      steps: steps of the whole training.
    """
    parts = [read_object(path) for path in model_dir.glob("train_summary*.json")]
    is_whole = sum(part["steps"] for part in parts) == steps
    return {
        key: sum(part[key] for part in parts) if is_whole else None
        for key in ("examples", "tokens", "seconds")
    }


def versions() -> dict[str, str]:
    """Returns the versions of Python and of the packages that results depend on."""
    packages = [*_PACKAGES, *(["jax"] if "jax" in sys.modules else [])]
    by_package = {name: importlib.metadata.version(name) for name in packages}
    return {"python": sys.version.split()[0], **by_package}
