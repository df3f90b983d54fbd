"""Compiled steps and the cost model's memory as Markdown."""

from typing import Any

from benchmarks.accelerators.cases import case_of
from benchmarks.accelerators.memory import (
    MEMORIES,
    REMEDIES,
    TRAININGS,
    Training,
    largest_batch,
)

_GIB = 2**30


def needed(result: dict[str, Any]) -> float:
    """Bytes that a compiled step needs, whether the TPU has them or not."""
    return result["total"] if "total" in result else result["wanted"]


def tables(results: list[dict[str, Any]]) -> str:
    """A table of compiled steps beside the cost model, and one of batches by accelerator.

    Args:
      results: what `benchmarks.accelerators` keeps; tiny steps are left out.
    """
    lines = [
        "| experiment | examples | `remat` | entries a block | type | arguments | temporaries "
        "| total | model | error | TFLOP | GB accessed | seconds to compile |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    lines += [_compiled(result) for result in results if "--scale=tiny" not in result["settings"]]
    lines += [
        "",
        f"| examples a device | {' | '.join(f'{memory} GiB' for memory in MEMORIES)} |",
        f"|---|{'---|' * len(MEMORIES)}",
    ]
    for name, training in TRAININGS.items():
        cells = " | ".join(_batches(training, memory) for memory in MEMORIES)
        lines.append(f"| `{name}` | {cells} |")
    return "\n".join(lines)


def _compiled(result: dict[str, Any]) -> str:
    experiment = result["settings"].split(" ")[0]
    # The pairs of all objectives are as many.
    examples = next(iter(result["batch"].values()))[0]
    block = result.get("vocabulary_block_size", 0)
    expected = modelled(case_of(experiment).name, examples, result["remat"], block)
    found = needed(result)
    cells = [f"`{experiment}`", examples, f"`{result['remat']}`", block or "all", result["dtype"]]
    if "total" in result:
        cells += [f"{result[name] / _GIB:.2f}" for name in ("arguments", "temporaries", "total")]
    else:
        cells += ["–", "–", f"wants {found / _GIB:.2f} of {result['available'] / _GIB:.2f}"]
    cells += [f"{expected / _GIB:.2f}", f"{100 * (expected / found - 1):+.0f} %"]
    if "total" in result:
        cells += [f"{result['flops'] / 1e12:.2f}", f"{result['bytes_accessed'] / 1e9:.0f}"]
    else:
        cells += ["–", "–"]
    return "| " + " | ".join(map(str, [*cells, f"{result['seconds']:.0f}"])) + " |"


def modelled(name: str, examples: int, remat: str, vocabulary_block: int) -> float:
    """Bytes of a training's step by the cost model; see `memory.Training.bytes_of`."""
    return TRAININGS[name].bytes_of(examples, remat, vocabulary_block)


def _batches(training: Training, memory: int) -> str:
    """`8; with blocks 128`: the largest batches without and with what helps."""
    plain = largest_batch(training, memory)
    text = str(plain) if plain else "none"
    if plain == training.published:
        return text
    most = max(largest_batch(training, memory, **remedies) for remedies in REMEDIES.values())
    for name, remedies in REMEDIES.items():
        if remedies and largest_batch(training, memory, **remedies) == most > plain:
            return f"{text}; {most} with {name}"
    return text
