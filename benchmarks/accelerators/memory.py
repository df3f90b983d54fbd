"""A model of a step's memory for other batches and accelerators, printed by `--table`.

Float32 weights, two slots and gradients, and what blocks and logits keep for the backward pass,
two bytes a value of a block. A compiled step is printed beside it.
"""

import dataclasses
from collections.abc import Iterable

from benchmarks.accelerators.cases import CASES, Case, case_of

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
class ModelShape:
    """A BERT encoder with CMLM's projection and the language-model head.

    Attributes:
      layers, hidden, inner, heads: sizes of the blocks; `inner` is the feed-forward width.
      vocab: rows of the embedding table, to which the head is tied.
      positions, types: rows of the position and of the token-type table.
      projections: N, the identity included (CMLM §3: 15); 1 without a projection.
    """

    layers: int
    hidden: int
    inner: int
    heads: int
    vocab: int
    positions: int
    types: int = 2
    projections: int = 1

    @property
    def parameters(self) -> int:
        """Number of trained weights."""
        h, f = self.hidden, self.inner
        embeddings = (self.vocab + self.positions + self.types + 2) * h
        block = 4 * (h * h + h) + (h * f + f) + (f * h + h) + 4 * h
        head = h * h + h + 2 * h + self.vocab
        # FC(h, 2h) → FC(2h, 2h) → FC(2h, h), CMLM appendix C.
        projection = (self.projections - 1) * (8 * h * h + 5 * h)
        return embeddings + self.layers * block + head + projection

    @property
    def state_bytes(self) -> int:
        """Bytes of weights, two slots and gradients; the pooler is kept and not trained."""
        return _FLOAT * (4 * self.parameters + self.hidden**2 + self.hidden)


@dataclasses.dataclass(frozen=True)
class Training:
    """A published training.

    Attributes:
      case: what an example adds to a step.
      model: sizes of the encoder.
      published: examples of the whole published batch.
    """

    case: Case
    model: ModelShape
    published: int

    def bytes_of(self, examples: int, remat: str = "none", vocabulary_block: int = 0) -> float:
        """Returns the bytes of a step of `examples` examples on one device."""
        model, case = self.model, self.case
        sequences = [(count * examples, length) for count, length in case.sequences]
        layers, length = case.beside
        beside = dataclasses.replace(model, layers=layers)
        bare = dataclasses.replace(model, layers=0)
        entries = min(vocabulary_block or model.vocab, model.vocab)
        return (
            model.state_bytes
            + (beside.state_bytes - bare.state_bytes)
            + block_bytes(model, sequences, remat)
            + block_bytes(beside, [(examples, length)], remat)
            # Logits and their gradient.
            + 2 * _FLOAT * case.predictions * examples * entries
            + self._copies()
        )

    def _copies(self) -> float:
        """Returns the bytes that a compiled step holds twice, fitted to compiled steps.

        These are the blocks' kernels in bfloat16 and, where the table is tied to a head, its
        gradient by the head beside that by the embeddings.
        """
        model = self.model
        kernels = 4 * model.hidden**2 + 2 * model.hidden * model.inner
        blocks = _BFLOAT * (model.layers + self.case.beside[0]) * kernels
        return blocks + (_FLOAT * model.vocab * model.hidden if self.case.predictions else 0)


def block_bytes(
    model: ModelShape, sequences: Iterable[tuple[float, int]], remat: str = "none"
) -> float:
    """Returns the bytes that the blocks' backward pass needs of their forward pass.

    A block keeps 17 h + 2.5 · heads · length values a token (Korthikanti et al. 2022, "Reducing
    Activation Recomputation in Large Transformer Models", Eq. 1: s·b·h·(34 + 5·a·s/h) bytes at two
    bytes each, dropout masks of one byte included).

    Args:
      model: sizes of the encoder.
      sequences: (how many, their length) of everything that is encoded.
      remat: `encoder.remat`; the part that is computed again is in memory for one block at a time.
    """
    sequences = list(sequences)
    tokens = sum(count * length for count, length in sequences)
    scores = sum(count * length**2 for count, length in sequences)
    inputs = model.hidden * tokens * _BFLOAT
    rows, attention = 17 * inputs, 2.5 * model.heads * scores * _BFLOAT
    # Bytes that each block keeps, and those of the one that is computed again.
    kept, again = {
        "none": (rows + attention, 0),
        "blocks": (inputs, rows + attention),
        "attention": (rows, attention),
    }[remat]
    return model.layers * kept + again


def training_of(experiment: str) -> Training:
    """Returns a published training, with the sizes that its experiment has."""
    from experiments import registry

    task = registry.load(experiment).task
    encoder, cmlm = task.encoder, getattr(task.objectives, "cmlm", None)
    model = ModelShape(
        layers=encoder.num_layers,
        hidden=encoder.hidden_size,
        inner=encoder.intermediate_size,
        heads=encoder.num_attention_heads,
        vocab=encoder.vocab_size,
        positions=encoder.max_position_embeddings,
        types=encoder.type_vocab_size,
        projections=cmlm.num_projections if cmlm else 1,
    )
    return Training(case_of(experiment), model, task.train_data.global_batch_size)


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
    """Returns `8; 128 with both`: the largest batches without and with remedies."""
    plain = largest_batch(training, memory)
    text = str(plain) if plain else "none"
    if plain == training.published:
        return text
    most = max(largest_batch(training, memory, **remedies) for remedies in REMEDIES.values())
    for name, remedies in REMEDIES.items():
        if remedies and largest_batch(training, memory, **remedies) == most > plain:
            return f"{text}; {most} with {name}"
    return text
