"""Trains in a folder that `cmlm lower` wrote: `python FOLDER/run_lowered.py`.

It needs only jax, numpy and flatbuffers. It goes on from the newest `state-STEP.npz` there, and
stops at SIGTERM or Ctrl-C with another one. With each it writes `weights.safetensors`, which makes
the folder a complete encoder directory. It appends to `history.jsonl` what it prints, and writes
`train_summary.json` last.
"""

import argparse
import collections
import concurrent.futures
import contextlib
import json
import os
import re
import signal
import statistics
import struct
import sys
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import jax
import jax.export
import numpy as np

# Deviation of a standard normal distribution that is cut off at two deviations.
_CUT_DEVIATION = 0.8796


def main() -> None:
    """Trains, and says in one line why it could not."""
    parser = argparse.ArgumentParser(description=__doc__)
    own = Path(__file__).parent
    parser.add_argument("folder", nargs="?", type=Path, default=own, help="default: this file's")
    parser.add_argument("--steps", type=int, help="last step; default: the experiment's")
    parser.add_argument("--seconds", type=float, default=np.inf, help="training time at most")
    parser.add_argument("--report_every", type=int, default=100, help="steps")
    parser.add_argument("--checkpoint_every", type=int, default=1000, help="steps")
    parser.add_argument("--half", action="store_true", help="write the encoder alone, in 16 bits")
    parser.add_argument("--profile", help="folder for a trace of the last reported steps")
    args = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    try:
        train(args)
    except (OSError, RuntimeError, ValueError) as error:
        sys.exit(f"error: {args.folder}: {str(error).strip().partition(chr(10))[0][:300]}")


def train(args: argparse.Namespace) -> None:
    """Trains to the end, to the time limit, or until a signal."""
    stop, times, spent = [], [], 0.0
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.append(True))
    training = Training(args.folder)
    started, first = training.step, training.step + 1
    last = training.contents["train_steps"] if args.steps is None else args.steps
    intervals = args.report_every, args.checkpoint_every
    if min(last, *intervals) < 1:
        raise ValueError("--steps, --report_every and --checkpoint_every must be at least 1")
    while training.step < last and not stop and spent < args.seconds:
        step = training.step
        end = min(last, *(step - step % interval + interval for interval in intervals))
        # The first step compiles, so it is reported alone and not measured.
        end = first if step == started else end
        profiled = args.profile and end == last
        with jax.profiler.trace(args.profile) if profiled else contextlib.nullcontext():
            seconds = training.run(end, stop)
        if step > started and training.step > step:
            times.append(seconds / (training.step - step))
            spent += seconds
        training.report(seconds)
        if training.step % args.checkpoint_every == 0:
            training.save(args.half)
    if training.step == started:
        print(f"{args.folder}: no step is done; it is at step {started} of {last}")
        return
    training.save(args.half)
    memory = training.device.memory_stats() or {}
    summary = {
        "device": training.device.device_kind,
        "jax": jax.__version__,
        "step": training.step,
        "seconds": spent,
        "milliseconds_a_step": 1e3 * statistics.median(times) if times else None,
        "seconds_of_compiling": training.compiling,
        "peak_gib": memory.get("peak_bytes_in_use", 0) / 2**30,
    }
    write(args.folder / "train_summary.json", json.dumps(summary, indent=2).encode())
    print(json.dumps(summary), flush=True)


class Training:
    """A training's variables on the device, and its compiled steps.

    Attributes:
      contents: `lowered.json`.
      device: the device that trains.
      step: steps that are done.
      compiling: seconds spent on compiling.
    """

    def __init__(self, folder: Path) -> None:
        """Reads the newest state, or the first one."""
        self.began, self.folder, self.device = time.monotonic(), folder, jax.devices()[0]
        with guard_reading("lowered.json"):
            self.contents = json.loads((folder / "lowered.json").read_text())
        self.step, path = max(
            ((int(match[1]), p) for p in folder.iterdir() if (match := _STATE.fullmatch(p.name))),
            default=(0, folder / "state.npz"),
        )
        with guard_reading(path.name), np.load(path) as file:
            stored = {int(name): file[name] for name in file.files}
        names = {place: name for name, place in self.contents["weights"].items()}
        values = [
            stored[i] if i in stored else draw(row, names.get(i, str(i)))
            for i, row in enumerate(self.contents["variables"])
        ]
        self.state = jax.device_put(values, self.device)
        with guard_reading("batches.npz"):
            self.batches = np.load(folder / "batches.npz")
        self.reader = concurrent.futures.ThreadPoolExecutor(1)
        self.coming = self.reader.submit(self.read, self.step)
        self.steps, self.compiling = {}, 0.0

    def read(self, step: int) -> tuple[int, list[np.ndarray]]:
        """Returns the kind of step that follows `step` others, and its batch."""
        kinds, count = self.contents["batches"], len(self.contents["names"])
        number = step % len(kinds)
        with guard_reading("batches.npz"):
            return kinds[number], [self.batches[f"{number}/{i}"] for i in range(count)]

    def compile(self, kind: int) -> None:
        """Compiles a kind of step for the device, once."""
        began = time.monotonic()
        platform = jax.export.default_export_platform()
        path = self.folder / f"step_{kind}_{platform}.bin"
        if not path.exists():
            sys.exit(f"error: {path.name} is missing; lower with --platforms={platform}")
        with guard_reading(path.name):
            exported = jax.export.deserialize(bytearray(path.read_bytes()))
        arguments, _ = jax.tree.unflatten(exported.in_tree, exported.in_avals)
        dtypes = [each.dtype for each in arguments[2]]
        lowered = jax.jit(exported.call, donate_argnums=0).lower(*arguments)
        self.steps[kind] = lowered.compile(self.contents["compiler_options"]), dtypes
        self.compiling += time.monotonic() - began

    def run(self, end: int, stop: list) -> float:
        """Runs steps up to `end`, or until a stop; returns their seconds, without compiling."""
        began, ends = time.monotonic() - self.compiling, collections.deque()
        while self.step < end and not stop:
            kind, batch = self.coming.result()
            self.coming = self.reader.submit(self.read, self.step + 1)
            if kind not in self.steps:
                self.compile(kind)
            compiled, dtypes = self.steps[kind]
            batch = [array.astype(dtype) for array, dtype in zip(batch, dtypes, strict=True)]
            places = self.contents["steps"][kind]
            updated, read = ([self.state[i] for i in places[k]] for k in ("updated", "read"))
            results, done = compiled(updated, read, jax.device_put(batch, self.device))
            for i, result in zip(places["updated"], results, strict=True):
                self.state[i] = result
            self.step += 1
            ends.append(done)
            if len(ends) > self.contents["ahead"]:
                ends.popleft().block_until_ready()
        jax.block_until_ready(self.state)
        return time.monotonic() - self.compiling - began

    def report(self, seconds: float) -> None:
        """Prints the metrics since the last report, and sets them to zero; ends at a failure."""
        line = {"split": "train", "step": self.step}
        for name, places in self.contents["metrics"].items():
            total, number = [*(float(self.state[i]) for i in places), 1.0][:2]
            # JSON has no non-finite numbers, such as a mean of nothing.
            line[name] = total / number if number and np.isfinite(total) else None
            for i in places:
                self.state[i] = jax.device_put(np.zeros_like(self.state[i]), self.device)
        line["seconds"] = round(time.monotonic() - self.began, 3)
        line["tokens_per_second"] = line["tokens"] / max(seconds, 1e-9)
        failed, values = (np.asarray(self.state[i]) for i in self.contents["guard"])
        if failed >= 0:
            sys.exit(
                f"error: step {failed}: loss {values[0]:g}, gradient norm {values[1]:g}; the step "
                "was not applied; lower the learning rate"
            )
        print(json.dumps(line), flush=True)
        with (self.folder / "history.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")

    def save(self, half: bool) -> None:
        """Writes the weights, then the state; removes the states of earlier steps."""
        arrays = [np.asarray(array) for array in self.state]
        weights = {name: arrays[i] for name, i in self.contents["weights"].items()}
        if wrong := [name for name, array in weights.items() if not np.isfinite(array).all()]:
            sys.exit(f"error: step {self.step} made {wrong[0]} non-finite; nothing is saved")
        kind = np.float16 if half else np.float32
        left = _TRAINED_WITH if half else ()
        weights = {n: a.astype(kind) for n, a in weights.items() if not n.startswith(left)}
        header, offset = {}, 0
        for name, array in weights.items():
            ends = [offset, offset + array.nbytes]
            dtype = "F16" if half else "F32"
            header[name] = {"dtype": dtype, "shape": array.shape, "data_offsets": ends}
            offset = ends[1]
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        parts = (struct.pack("<Q", len(text)), text, *(a.tobytes() for a in weights.values()))
        write(self.folder / "weights.safetensors", b"".join(parts))
        path = self.folder / f"state-{self.step}.npz"
        with (self.folder / "state.unfinished").open("wb") as file:
            np.savez(file, **{str(i): array for i, array in enumerate(arrays)})
        os.replace(file.name, path)
        for other in self.folder.iterdir():
            if _STATE.fullmatch(other.name) and other != path:
                other.unlink()


_STATE = re.compile(r"state-(\d+)\.npz")
# The weights whose names begin so serve the training; vectors are computed without them.
_TRAINED_WITH = ("language_model_head/", "objectives/")


def draw(row: dict, name: str) -> np.ndarray:
    """Returns the value that `lowered.json` says, or draws one of its mean and deviation.

    It depends on the name: encoders of the same sizes begin alike, whatever trains them.
    """
    if "fill" in row:
        return np.full(row["shape"], row["fill"], row["dtype"])
    mean, deviation = row["normal"]
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    values = rng.standard_normal(row["shape"], np.float32)
    while (beyond := np.abs(values) > 2).any():
        values[beyond] = rng.standard_normal(int(beyond.sum()), np.float32)
    return (values * (deviation / _CUT_DEVIATION) + mean).astype(row["dtype"])


@contextlib.contextmanager
def guard_reading(name: str) -> Iterator[None]:
    """Turns any error of the block, as libraries raise for damaged files, into one with advice."""
    try:
        yield
    except Exception as error:
        raise OSError(
            f"{name} is missing or damaged; copy it again or use cmlm lower ({error})"
        ) from error


def write(path: Path, content: bytes) -> None:
    """Writes a file that is complete whenever it has its name."""
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_bytes(content)
    os.replace(unfinished, path)


if __name__ == "__main__":
    main()
