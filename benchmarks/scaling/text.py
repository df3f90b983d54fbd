"""Tables and the part of `benchmarks/results/scaling.md` that leaves this machine."""

import dataclasses
import textwrap
from collections.abc import Callable, Sequence

from benchmarks.scaling.clusters import (
    SOURCES,
    Assumptions,
    Cluster,
    Input,
    InputCost,
    Projection,
    clusters,
    limits,
    project,
)
from benchmarks.scaling.cost_model import (
    BatchShape,
    ModelShape,
    cmlm_work,
    gather_bytes,
    ring_all_reduce_bytes,
    similarity_bytes,
)

HEADER = """
# Training at scale: a cost model

`CMLM_DATA_DIR=… python -m benchmarks.scaling` measures the constants, predicts this machine's own
runs, and writes this file. The formulas are in `benchmarks/scaling/cost_model.py`, the figures of
other machines in `benchmarks/scaling/clusters.py`.
"""
# CMLM §3 and appendix C.
_STEPS, _DAYS, _TPUS = 1_000_000, 5, 64
_SECONDS_A_DAY = 86400
_COLUMNS = 100
# Share of an accelerator's memory above which an estimate says that it may not fit.
_TIGHT = 0.8


# The published models (CMLM §3, §4.4): experiment, change of the base, steps, `encoder.remat` and
# vocabulary block of its YAML, and whether translations are retrieved beside CMLM.
_LARGE = {"layers": 24, "hidden": 1024, "inner": 4096, "heads": 16}
_MULTILINGUAL = {"vocab": 501_153}
_PUBLISHED: tuple[tuple[str, dict[str, int], int, str, int, bool], ...] = (
    ("cmlm/english_base", {}, 1_000_000, "none", 0, False),
    ("cmlm/english_large", _LARGE, 1_000_000, "blocks", 0, False),
    ("cmlm/multilingual_base", _MULTILINGUAL, 2_000_000, "blocks", 8192, False),
    ("bitext/s3, second stage", _MULTILINGUAL, 1_000_000, "blocks", 8192, True),
)
# Tokens of a translation, `bitext/s1`.
_TRANSLATION = 128


class Row(tuple):
    """The cells of a table's row."""

    __slots__ = ()

    def __new__(cls, *cells: str) -> "Row":
        return super().__new__(cls, cells)


def wrapped(text: str) -> str:
    """Markdown with its paragraphs and list items broken at 100 columns; tables stay."""
    lines = []
    for line in text.split("\n"):
        if len(line) <= _COLUMNS or line.startswith("|"):
            lines.append(line)
        else:
            indent = "  " if line.startswith("- ") else ""
            lines += textwrap.wrap(line, _COLUMNS, subsequent_indent=indent, break_on_hyphens=False)
    return "\n".join(lines)


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def beyond(
    model: ModelShape,
    batch_of: Callable[[int], BatchShape],
    buckets: Sequence[int],
    inputs: InputCost,
) -> str:
    """The sections on larger machines.

    Args:
      model: the paper's.
      batch_of: length -> global batch.
      buckets: its lengths; the last is the paper's.
      inputs: of a pair of the longest bucket.
    """
    batch, assumed = batch_of(buckets[-1]), Assumptions()
    found = [(cluster, project(cluster, model, batch, inputs, assumed)) for cluster in clusters()]
    return "\n\n".join(
        [
            "## The paper's English base run elsewhere",
            f"12×768, 256 tokens, 80 masked, batch {batch.pairs:,}, LAMB, {_STEPS:,} steps (CMLM "
            "§3). Nothing here was run: these are the formulas above with other machines' figures.",
            _inputs([cluster for cluster, _ in found], assumed),
            _steps(found, batch.pairs),
            _check(model, batch),
            "## The published models on 64 TPU cores",
            _published(model, batch, inputs, assumed),
            "## What breaks first",
            _limits(found),
            _sentences(found, model, batch),
            "Length buckets: all replicas share one bucket in a step, so nobody waits for a longer "
            "one, but a short step computes less and sums as many gradients. Share of the step in "
            "which accelerators compute:",
            _buckets(model, batch_of, buckets, inputs, assumed),
        ]
    )


def _figure(value: Input, scale: float, unit: str) -> str:
    source = value.source or "**assumed**"
    return f"{value.value / scale:,.4g}{unit} ({source})"


def _inputs(all_of_them: list[Cluster], assumed: Assumptions) -> str:
    def row(name: str, attribute: str, scale: float, unit: str) -> Row:
        return Row(name, *(_figure(getattr(c, attribute), scale, unit) for c in all_of_them))

    rows = [
        Row("hosts × accelerators", *(f"{c.hosts} × {c.per_host}" for c in all_of_them)),
        row("peak, bfloat16", "peak", 1e12, " TFLOP/s"),
        row("memory", "memory", 1e9, " GB"),
        row("memory bandwidth", "memory_bandwidth", 1e9, " GB/s"),
        row("link within a host, one direction", "link", 1e9, " GB/s"),
        row("link between hosts, its share", "network", 1e9, " GB/s"),
        row("CPU cores of a host", "host_cores", 1, ""),
    ]
    return (
        table(("input", *(c.name for c in all_of_them)), rows)
        + "\n\nPublished: "
        + "; ".join(f"({key}) {text}" for key, text in SOURCES.items())
        + f".\n\n**Assumed** for all: {assumed.utilisation:.0%} of the peak, "
        f"{assumed.link_efficiency:.0%} of a link's bandwidth, {assumed.update_passes} passes over "
        "the weights by clipping and LAMB, CPU cores as fast as one of this machine, "
        f"{assumed.storage / 1e9:.0f} GB/s to storage, a checkpoint every "
        f"{assumed.checkpoint_interval:,} steps, gradients summed after the backward pass and not "
        "during it. Small batches reach less of the peak than large ones: with 2 pairs an "
        "accelerator the time to compute is a lower bound. The paper says \"64 TPUs\"; they are "
        "read as cores of TPU v3."
    )  # fmt: skip


def _milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:.2f}" if seconds < 0.01 else f"{1e3 * seconds:,.1f}"


def _steps(found: list[tuple[Cluster, Projection]], pairs: int) -> str:
    def row(name: str, values: Sequence[str]) -> Row:
        return Row(name, *values)

    rows = [
        row("pairs an accelerator", [f"{pairs // c.replicas}" for c, _ in found]),
        *(
            row(f"{name}, ms", [_milliseconds(getattr(p, key)) for _, p in found])
            for name, key in (
                ("compute", "compute"),
                ("all-reduce", "all_reduce"),
                ("optimizer", "update"),
                ("checkpoint, spread", "checkpoint"),
                ("inputs of a host, beside the rest", "inputs"),
            )
        ),
        row("**step, ms**", [_milliseconds(p.step) for _, p in found]),
        row("share of it that computes", [f"{p.efficiency:.0%}" for _, p in found]),
        row("**days of 1,000,000 steps**", [f"{_days(p):.2f}" for _, p in found]),
        row("records read by each host, MB/s", [f"{p.record_bytes / 1e6:.1f}" for _, p in found]),
        row("accelerator's memory in use", [f"{p.memory_share:.0%}" for _, p in found]),
    ]
    return table(("a step", *(c.name for c, _ in found)), rows)


def _days(projection: Projection) -> float:
    return projection.step * _STEPS / _SECONDS_A_DAY


def _check(model: ModelShape, batch: BatchShape) -> str:
    total = cmlm_work(model, batch).training_flops * _STEPS
    each = total / (_DAYS * _SECONDS_A_DAY * _TPUS)
    core = next(c for c in clusters() if c.replicas == _TPUS).peak.value
    return (
        f"A check against the paper: {_DAYS} days on {_TPUS} TPUs (appendix C) for "
        f"{total:.2e} FLOPs are {each / 1e12:.1f} TFLOP/s each, {each / core:.0%} of the peak of a "
        f"TPU v3 core, {each / core / 2:.0%} if each were a chip of two cores."
    )


def _published(base: ModelShape, batch: BatchShape, inputs: InputCost, assumed: Assumptions) -> str:
    """How long each published model takes on the accelerators of the paper, remedies on."""
    cluster = next(c for c in clusters() if c.replicas == _TPUS)
    rows = []
    for name, changes, steps, remat, block, with_translations in _PUBLISHED:
        model, more, cost = dataclasses.replace(base, **changes), 0.0, inputs
        if with_translations:
            # Both texts pass the blocks, three times and once more by `remat`.
            text = BatchShape(batch.pairs, _TRANSLATION, 0)
            work = cmlm_work(dataclasses.replace(model, projections=1), text)
            more = 4 * work.forward_flops
            cost = inputs.times(1 + _TRANSLATION / batch.length)
        step = project(cluster, model, batch, cost, assumed, more, remat, block)
        busy = step.compute + step.all_reduce + step.update
        rows.append(
            Row(
                *(f"`{name.split(',')[0]}`{name[len(name.split(',')[0]) :]}", f"{steps:,}"),
                *(_milliseconds(step.compute), _milliseconds(step.all_reduce)),
                *(_milliseconds(step.update), _milliseconds(step.inputs)),
                f"{max(busy, step.inputs) * steps / _SECONDS_A_DAY:.1f}",
            )
        )
    header = ("experiment", "steps", "compute, ms", "all-reduce, ms", "optimizer, ms")
    return (
        "Batch 2,048, with the remedies of each experiment's file: `encoder.remat: blocks` for all "
        "but the base, and logits in blocks of the vocabulary for 501,153 entries; what they are "
        "for is computed twice. The paper's base took 5 days. Inputs are made beside the rest, and "
        "are shorter in all cases.\n\n" + table((*header, "inputs of a host, ms", "**days**"), rows)
    )


def _limits(found: list[tuple[Cluster, Projection]]) -> str:
    names = list(limits(found[0][1]))
    rows = [Row(name, *(f"{limits(p)[name]:.3f}" for _, p in found)) for name in names]
    return "Time of each, computation = 1:\n\n" + table(
        ("beside the computation", *(c.name for c, _ in found)), rows
    )


def _sentences(
    found: list[tuple[Cluster, Projection]], model: ModelShape, batch: BatchShape
) -> str:
    lines = [_sentence(cluster, projection, batch.pairs) for cluster, projection in found]
    largest = found[-1][0]
    gathered = gather_bytes(batch.pairs, model.hidden, largest.replicas)
    reduced = ring_all_reduce_bytes(model.parameters, largest.replicas)
    local = batch.pairs // largest.replicas
    lines.append(
        f"- **Gather of embeddings** (retrieval beside CMLM, {largest.name}): {gathered / 1e6:.0f} "
        f"MB an accelerator at {batch.pairs:,} pairs, {8 * gathered / 1e6:.0f} MB at "
        f"{8 * batch.pairs:,}, against {reduced / 1e6:,.0f} MB for the gradients. Its "
        f"similarities are {similarity_bytes(local, batch.pairs) / 1e3:,.0f} kB, and "
        f"{similarity_bytes(8 * local, 8 * batch.pairs) / 1e6:.1f} MB at {8 * batch.pairs:,}. "
        "Neither breaks first."
    )
    return "\n".join(lines)


def _sentence(cluster: Cluster, projection: Projection, pairs: int) -> str:
    """What breaks first on one cluster, a list item."""
    (first, share), (second, less), *_ = sorted(limits(projection).items(), key=lambda i: -i[1])
    line = f"- **{cluster.name}** ({pairs // cluster.replicas} pairs an accelerator): "
    if projection.memory_share > _TIGHT:
        line += (
            f"memory. {projection.memory_share:.0%} of an accelerator's would be activations, "
            "weights and slots; `task.chunk_size` computes the same step in parts. Of the time, "
        )
    line += f"{first} {'breaks first' if share > 1 else 'is nearest'} ({share:.2f} of the "
    line += f"computation), then {second} ({less:.2f})."
    if projection.inputs > projection.compute:
        line += (
            f" All hosts together give {pairs / projection.inputs:,.0f} pairs/s, the accelerators "
            f"could take {pairs / projection.compute:,.0f}."
        )
    if projection.all_reduce > projection.compute:
        added = projection.all_reduce + projection.update + projection.checkpoint
        balanced = pairs * added / projection.compute
        line += (
            f" A global batch of {pairs:,} is too small for {cluster.replicas:,} accelerators: "
            f"half of a step would compute from about {balanced:,.0f} pairs on, "
            "if the inputs kept up."
        )
    return line


def _buckets(
    model: ModelShape,
    batch_of: Callable[[int], BatchShape],
    buckets: Sequence[int],
    inputs: InputCost,
    assumed: Assumptions,
) -> str:
    rows = []
    for length in buckets:
        # The input pipeline's work follows the tokens.
        share = length / buckets[-1]
        shares = [
            project(cluster, model, batch_of(length), inputs.times(share), assumed).efficiency
            for cluster in clusters()
        ]
        rows.append(Row(str(length), *(f"{value:.0%}" for value in shares)))
    return table(("bucket of 2,048 pairs", *(c.name for c in clusters())), rows)
