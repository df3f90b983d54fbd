"""Writes `benchmarks/results/scaling.md` from what was measured and from the cost model."""

import dataclasses
import json
import statistics
from collections.abc import Iterable
from pathlib import Path

from benchmarks.scaling.clusters import InputCost
from benchmarks.scaling.cost_model import (
    FLOAT,
    BatchShape,
    ModelShape,
    checkpoint_bytes,
    cmlm_work,
    ring_all_reduce_bytes,
)
from benchmarks.scaling.text import HEADER, Row, beyond, table, wrapped

# CMLM §3: base, 256 tokens, 80 of them masked, batch 2,048.
PAPER = ModelShape(layers=12, hidden=768, inner=3072, heads=12, vocab=30522)
GLOBAL_BATCH = 2048
BUCKETS = (64, 128, 192, 256)


@dataclasses.dataclass(frozen=True)
class Figures:
    """What was measured here.

    Attributes:
      sides: of each number of cores, `runs.Side` as a dict.
      bytes_a_token: of records.
      all_reduce: bytes of gradients -> seconds of two processes on loopback.
    """

    sides: list[dict]
    bytes_a_token: float
    all_reduce: dict[str, float]

    @classmethod
    def read(cls, path: Path) -> "Figures":
        return cls(**json.loads(path.read_text(encoding="utf-8")))

    @property
    def inputs(self) -> InputCost:
        """Of a pair as the paper has it, measured on one core, where no thread waits for others.

        A document of n segments gives n − 1 pairs, so a pair reads one segment.
        """
        side = self.sides[0]
        read = self.bytes_a_token * BUCKETS[-1]
        return InputCost(side["packed_cpu_seconds"], side["packed_serial_seconds"], read)


def paper_batch(length: int = 256) -> BatchShape:
    """The paper's global batch in a bucket; 80 of 256 tokens masked."""
    return BatchShape(GLOBAL_BATCH, length, GLOBAL_BATCH * 80 * length / 256)


def errors(figures: Figures) -> list[tuple[dict, float]]:
    """(one run's totals, predicted / measured − 1, the median over rounds)."""
    found: dict[tuple, list[dict]] = {}
    for side in figures.sides:
        for run in side["runs"]:
            found.setdefault((run["model"], run["cores"]), []).append(run)
    result = []
    for rounds in found.values():
        total = {k: sum(run[k] for run in rounds) for k in ("steps", "pairs", "tokens")}
        ratio = statistics.median(run["predicted"] / run["measured"] for run in rounds)
        a_pair = statistics.median(run["measured"] / run["pairs"] for run in rounds)
        a_token = statistics.median(run["measured"] / run["tokens"] for run in rounds)
        first = rounds[0]
        result.append(
            (
                {**total, "model": first["model"], "cores": first["cores"]}
                | {"pair": a_pair, "token": a_token},
                ratio - 1,
            )
        )
    return result


def summary(figures: Figures) -> str:
    """The errors, and the closing line."""
    lines = [
        f"figure scaling_error_{run['model'].replace('×', 'x')}_{run['cores']}_cores {error:+.3f}"
        for run, error in errors(figures)
    ]
    worst = max(abs(error) for _, error in errors(figures))
    return "\n".join([*lines, f"ratio scaling_worst_predicted_vs_measured {1 + worst:.2f}"])


def render(figures: Figures) -> str:
    """The whole document, Markdown."""
    parts = [
        HEADER.strip(),
        "## What a step computes",
        _formulas(),
        _by_bucket(),
        "## Constants of this machine",
        _constants(figures),
        "## Predicted and measured",
        _predicted(figures),
        beyond(PAPER, paper_batch, BUCKETS, figures.inputs),
    ]
    return wrapped("\n\n".join(parts)) + "\n"


def _formulas() -> str:
    rows = [
        Row("blocks' products", "2 · (4 h² + 2 h f) · layers · tokens"),
        Row("attention", "4 · h · layers · Σ S², S = L for s1, L + N for s2"),
        Row("projection", "16 · (N − 1) · h² a pair"),
        Row("head", "2 · (h² + h · V) · K"),
        Row("gradients summed by R replicas", "2 (R − 1) / R · 4 bytes · P sent by each"),
        Row(
            "vectors gathered for retrieval",
            "4 (R − 1) / R · 4 bytes · B · h, gradients too",
        ),
        Row("similarities of retrieval", "12 · B² / R · h, both directions, backward included"),
        Row("checkpoint", "4 bytes · (3 P + pooler): weights and two slots; 4 P with an average"),
    ]
    parameters, pooler = PAPER.parameters, PAPER.untrained_parameters
    return (
        "CMLM encodes s1 (L tokens), then the masked s2 with N projected vectors (L + N), and "
        "computes logits at K masked positions. h is the width, f that of the feed-forward layer, "
        "V the vocabulary, P the trained weights. FLOPs are of the forward pass; training takes "
        "three times as many.\n\n"
        + table(("what", "formula"), rows)
        + f"\n\nThe paper's base has P = {parameters / 1e6:.1f} M trained weights "
        f"({pooler / 1e6:.1f} M more in the pooler), of which the projection is "
        f"{(PAPER.projections - 1) * (8 * PAPER.hidden**2 + 5 * PAPER.hidden) / 1e6:.0f} M. "
        f"Gradients are {FLOAT * parameters / 1e6:.0f} MB, a checkpoint "
        f"{checkpoint_bytes(PAPER) / 1e9:.2f} GB ({checkpoint_bytes(PAPER, average=True) / 1e9:.2f}"
        " GB with a moving average)."
    )


def _by_bucket() -> str:
    rows = []
    for length in BUCKETS:
        batch = paper_batch(length)
        work = cmlm_work(PAPER, batch)
        parts = (work.dense, work.attention, work.projection, work.head)
        rows.append(
            Row(
                *(str(length), f"{work.training_flops / batch.pairs / 1e9:.1f}"),
                *(f"{100 * part / work.forward_flops:.1f} %" for part in parts),
                f"{work.training_flops / 1e12:.0f}",
            )
        )
    header = ("bucket", "GFLOP a pair", "products", "attention", "projection", "head")
    return "Paper's base by bucket, K = 80/256 of the length, forward and backward:\n\n" + table(
        (*header, "TFLOP a step of 2,048"), rows
    )


def _constants(figures: Figures) -> str:
    costs = [side["costs"] for side in figures.sides]

    def row(name: str, values: Iterable[float], digits: int = 1) -> Row:
        return Row(name, *(f"{value:.{digits}f}" for value in values))

    rows = [
        row(f"{name}, width {width}, GFLOP/s", [c[key][width] / 1e9 for c in costs])
        for key, name in (("dense", "products"), ("logits", "logits"), ("projection", "projection"))
        for width in costs[0][key]
    ]
    for key, name in (
        ("hidden", "dropout, residual, norm, ns an element"),
        ("inner", "GELU, ns an element"),
        ("attended", "splitting into heads and joining, ns an element"),
        ("score", "attention, ns a weight of heads 64 wide"),
        ("logit", "bias, cross-entropy, accuracy, ns a logit"),
        ("parameter", "clipping and LAMB, ns a trained weight"),
    ):
        rows.append(row(name, [1e9 * c[key] for c in costs]))
    rows += [
        row("overhead of a step, ms a block", [1e3 * c["layer_overhead"] for c in costs], 2),
        row("a 3×192 step over its kernels alone", [c["factor"] for c in costs], 2),
        row("inputs, µs CPU a token", [1e6 * s["input_cpu_seconds"] for s in figures.sides]),
    ]
    reduced = [
        f"{int(size) / 1e6:.0f} MB in {1e3 * seconds:.0f} ms, "
        f"{ring_all_reduce_bytes(1, 2, 1) * int(size) / seconds / 1e9:.2f} GB/s each way"
        for size, seconds in figures.all_reduce.items()
    ]
    return (
        "Micro-kernels, each forward and backward on tensors of a step's size. The overhead and "
        "the factor over the kernels are fitted to steps of a 3×192 model in buckets of 24, 48, 96 "
        "and 128 tokens, none of which is predicted below.\n\n"
        + table(("constant", *(_cores(s["cores"]) for s in figures.sides)), rows)
        + "\n\nSumming gradients between two processes over loopback: "
        + "; ".join(reduced)
        + f". Records: {figures.bytes_a_token:.2f} bytes a token. The paper's own inputs (packed "
        f"to 256 tokens): {1e3 * figures.inputs.cpu_seconds:.3f} ms of CPU a pair, of which "
        f"{1e3 * figures.inputs.serial_seconds:.3f} ms of it reading and grouping, by one thread "
        "of a stream."
    )


def _cores(count: int) -> str:
    return "1 core" if count == 1 else f"{count} cores"


def _predicted(figures: Figures) -> str:
    rows = [
        Row(
            *(run["model"], str(run["cores"]), str(run["steps"]), f"{1 / run['pair']:.1f}"),
            *(f"{run['token'] * 1e6:.1f}", f"{run['token'] * (1 + error) * 1e6:.1f}"),
            f"{100 * error:+.1f} %",
        )
        for run, error in errors(figures)
    ]
    header = ("model", "cores", "steps", "pairs/s", "µs a token", "predicted", "error")
    kinds = list(next(iter(figures.sides[0]["shares"].values())))
    shares = [
        Row(name, str(side["cores"]), *(f"{100 * share[kind]:.0f} %" for kind in kinds))
        for side in figures.sides
        for name, share in side["shares"].items()
    ]
    worst = max(abs(error) for _, error in errors(figures))
    return (
        "Training steps of `cmlm/english_base` at two other sizes, on real sentences in buckets of "
        "16, 32, 64 and 128 tokens (2,048 tokens of each side a step), dropout and LAMB as in the "
        "experiment, the live input pipeline included, the process pinned to its cores. Median of "
        f"rounds that alternate with the kernels. The largest error is {100 * worst:.1f} %.\n\n"
        + table(header, rows)
        + "\n\nWhere the predicted time goes:\n\n"
        + table(("model", "cores", *kinds), shares)
    )
