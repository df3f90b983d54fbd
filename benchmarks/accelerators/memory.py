"""A model of a step's memory for other batches and accelerators, printed by `--table`.

The model counts float32 weights, their two optimizer slots and gradients, and the values that
blocks and logits keep for the backward pass, at two bytes a value of a block. Without `--table` its
result is printed after that of the compiler.
"""

import dataclasses
from collections.abc import Iterable

from benchmarks.accelerators.cases import CASES, Case, case_of
from official_cmlm.configs.encoder import EncoderConfig

_GIB = 2**30
_FLOAT, _BFLOAT = 4, 2
# Share of the memory that the compiler leaves to a program: 15.75 of 16 GiB on a v5e.
_USABLE = 15.75 / 16
MEMORIES = (16, 24, 40, 80)
BLOCK_SIZE = 8192
# Remedies by name, in the order in which they are tried: the first ones cost less time.
REMEDIES = {
    "none": {},
    "blocks of the vocabulary": {"vocabulary_block": BLOCK_SIZE},
    "`remat: blocks`": {"remat": "blocks"},
    "both": {"remat": "blocks", "vocabulary_block": BLOCK_SIZE},
}


@dataclasses.dataclass(frozen=True)
class Training:
    """A published training.

    Attributes:
      case: what an example adds to a step.
      encoder: the encoder that is trained, with CMLM's projection.
      published: examples of the whole published batch.
    """

    case: Case
    encoder: EncoderConfig
    published: int

    def bytes_of(self, examples: int, remat: str = "none", vocabulary_block: int = 0) -> float:
        """Returns the bytes of a step of `examples` examples on one device."""
        encoder, (beside, length) = self.encoder, self.case.beside
        layers = encoder.num_layers + beside
        hidden, inner, entries = encoder.hidden_size, encoder.intermediate_size, encoder.vocab_size
        sequences = [(count * examples, length) for count, length in self.case.sequences]
        weights = encoder.replace(num_layers=layers).num_weights()
        # The head has a dense layer, a norm, and a bias for each entry of the embedding table.
        head = hidden * (hidden + 3) + entries
        # Compiled steps hold copies of the blocks' kernels in bfloat16 and, where the embedding
        # table is tied to a head, of the table's gradient; this term was fitted to compiled steps.
        copies = _BFLOAT * layers * (4 * hidden**2 + 2 * hidden * inner)
        copies += _FLOAT * entries * hidden if self.case.predictions else 0
        # Logits and their gradient.
        logits = 2 * self.case.predictions * examples * min(vocabulary_block or entries, entries)
        return (
            # Weights, two slots and gradients.
            4 * _FLOAT * (weights + head)
            + block_bytes(encoder, encoder.num_layers, sequences, remat)
            + block_bytes(encoder, beside, [(examples, length)], remat)
            + _FLOAT * logits
            + copies
        )


def block_bytes(
    encoder: EncoderConfig, layers: int, sequences: Iterable[tuple[float, int]], remat: str
) -> float:
    """Returns the bytes that the blocks' backward pass needs of their forward pass.

    A block keeps 17 h + 2.5 · heads · length values a token (Korthikanti et al. 2022, "Reducing
    Activation Recomputation in Large Transformer Models", Eq. 1: s·b·h·(34 + 5·a·s/h) bytes at two
    bytes each, dropout masks of one byte included).

    Args:
      encoder: sizes of the blocks.
      layers: number of the blocks.
      sequences: (number of sequences, their length) of everything that the blocks read.
      remat: `encoder.remat`; the part that is computed again is in memory for one block at a time.
    """
    sequences = list(sequences)
    tokens = sum(count * length for count, length in sequences)
    scores = sum(count * length**2 for count, length in sequences)
    inputs = encoder.hidden_size * tokens * _BFLOAT
    rows, attention = 17 * inputs, 2.5 * encoder.num_attention_heads * scores * _BFLOAT
    # Bytes that each block keeps, and bytes of the block that is being computed again.
    stored, recomputed = {
        "none": (rows + attention, 0),
        "blocks": (inputs, rows + attention),
        "attention": (rows, attention),
    }[remat]
    return layers * stored + recomputed


def training_of(experiment: str) -> Training:
    """Returns a published training, with the sizes that its experiment has."""
    from experiments import registry

    task = registry.load(experiment).task
    cmlm = getattr(task.objectives, "cmlm", None)
    encoder = task.encoder.replace(num_projections=cmlm.num_projections if cmlm else 0)
    return Training(case_of(experiment), encoder, task.train_data.global_batch_size)


def largest_batch(training: Training, memory_gib: float, **remedies: str | int) -> int:
    """Returns the most examples that fit: a power of two, or the whole batch; 0 if none does."""
    usable = memory_gib * _USABLE * _GIB
    sizes = {training.published, *(2**i for i in range(20) if 2**i < training.published)}
    return max((n for n in sizes if training.bytes_of(n, **remedies) <= usable), default=0)


def table() -> str:
    """Returns Markdown: the largest batches of each published training, by memory."""
    lines = [
        f"| experiment | published | {' | '.join(f'{memory} GiB' for memory in MEMORIES)} |",
        f"|---|---|{'---|' * len(MEMORIES)}",
    ]
    for experiment, case in CASES.items():
        training = training_of(experiment)
        cells = " | ".join(_batches(training, memory) for memory in MEMORIES)
        lines.append(f"| `{experiment}` | {training.published} on {case.cores} | {cells} |")
    return "\n".join(lines)


def _batches(training: Training, memory: int) -> str:
    """Returns, e.g., `8; 128 with both`: the largest batches without and with remedies."""
    plain = largest_batch(training, memory)
    text = str(plain) if plain else "none"
    if plain == training.published:
        return text
    most = max(largest_batch(training, memory, **remedies) for remedies in REMEDIES.values())
    for name, remedies in REMEDIES.items():
        if remedies and largest_batch(training, memory, **remedies) == most > plain:
            return f"{text}; {most} with {name}"
    return text
