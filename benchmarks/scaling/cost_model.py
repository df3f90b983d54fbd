"""What a training step of CMLM costs, counted on paper: operations, bytes, seconds.

Pure functions of sizes; nothing here imports TensorFlow. A multiplication and an addition are two
operations (FLOPs). A product's backward pass is two products of its size: by its input and by its
kernel, so training costs three times the forward pass. `benchmarks.scaling` measures the constants
and prints what follows.
"""

import dataclasses
from collections.abc import Iterable, Mapping

TRAINING_PASSES = 3
FLOAT = 4


@dataclasses.dataclass(frozen=True)
class ModelShape:
    """A BERT encoder with CMLM's projection and the language-model head.

    Attributes:
      layers, hidden, inner, heads: of the Transformer blocks; `inner` is the feed-forward width.
      vocab: rows of the embedding table, to which the head is tied.
      positions, types: rows of the position and of the token-type table.
      projections: N, the identity included (CMLM §3: 15).
    """

    layers: int
    hidden: int
    inner: int
    heads: int
    vocab: int
    positions: int = 271
    types: int = 2
    projections: int = 15

    @property
    def name(self) -> str:
        return f"{self.layers}×{self.hidden}"

    @property
    def untrained_parameters(self) -> int:
        """BERT's pooler, which is kept for public checkpoints and not trained."""
        return self.hidden**2 + self.hidden

    @property
    def parameters(self) -> int:
        """Trained weights."""
        h, f = self.hidden, self.inner
        embeddings = (self.vocab + self.positions + self.types + 2) * h
        block = 4 * (h * h + h) + (h * f + f) + (f * h + h) + 4 * h
        head = h * h + h + 2 * h + self.vocab
        # FC(h, 2h) → FC(2h, 2h) → FC(2h, h), CMLM appendix C.
        projection = (self.projections - 1) * (8 * h * h + 5 * h)
        return embeddings + self.layers * block + head + projection


@dataclasses.dataclass(frozen=True)
class BatchShape:
    """One step's batch as it is computed, padding included.

    Attributes:
      pairs: examples.
      length: tokens that s1 and s2 are padded to.
      predictions: positions of the whole batch that the head computes logits for.
      last_rows: positions of s2, over the whole batch, that the last block is computed for; None:
        all, projected vectors included.
    """

    pairs: int
    length: int
    predictions: float
    last_rows: float | None = None


@dataclasses.dataclass(frozen=True)
class Work:
    """What one step computes; FLOPs are those of the forward pass.

    Attributes:
      dense: FLOPs of the blocks' products with kernels.
      attention: FLOPs of queries × keys and weights × values; quadratic in the length.
      projection: FLOPs of CMLM's projection.
      head: FLOPs of the head, nearly all of them logits.
      hidden_elements: elements of `[rows, hidden]` that dropout, residual and layer norm pass over.
      inner_elements: elements of `[rows, inner]` that the activation passes over.
      attended_elements: elements of `[rows, hidden]` that attention splits into heads and joins.
      score_elements: attention weights: mask, softmax, dropout.
      logit_elements: logits: bias, cross-entropy, accuracy.
    """

    dense: float
    attention: float
    projection: float
    head: float
    hidden_elements: float
    inner_elements: float
    attended_elements: float
    score_elements: float
    logit_elements: float

    @property
    def forward_flops(self) -> float:
        return self.dense + self.attention + self.projection + self.head

    @property
    def training_flops(self) -> float:
        return TRAINING_PASSES * self.forward_flops


def cmlm_work(model: ModelShape, batch: BatchShape) -> Work:
    """The work of one CMLM step: s1, then the masked s2 with N dense inputs, then the head."""
    h, f = model.hidden, model.inner
    seconds = batch.length + model.projections
    rows = batch.pairs * (batch.length + seconds)
    scores = batch.pairs * (batch.length**2 + seconds**2)
    last = batch.pairs * seconds if batch.last_rows is None else batch.last_rows
    # Rows that the last block leaves out: it still computes keys and values for them.
    left_out = batch.pairs * seconds - last
    whole = model.layers * rows
    computed = whole - left_out
    attended = model.layers * scores - left_out * seconds
    return Work(
        dense=2 * (2 * h * h * whole + (2 * h * h + 2 * h * f) * computed),
        attention=4 * h * attended,
        projection=batch.pairs * (model.projections - 1) * 2 * 8 * h * h,
        head=batch.predictions * (2 * h * h + 2 * h * model.vocab),
        # Two sub-layers of each block, and the embeddings.
        hidden_elements=h * (2 * computed + rows),
        inner_elements=f * computed,
        attended_elements=h * whole,
        score_elements=model.heads * attended,
        logit_elements=batch.predictions * model.vocab,
    )


def similarity_flops(anchors: int, candidates: int, hidden: int, directions: int = 2) -> float:
    """Training FLOPs of in-batch similarities: one replica's anchors × everybody's candidates."""
    return TRAINING_PASSES * directions * 2 * anchors * candidates * hidden


def similarity_bytes(anchors: int, candidates: int) -> int:
    """The float32 similarity matrix of one replica and direction, if it were made whole."""
    return FLOAT * anchors * candidates


def ring_all_reduce_bytes(parameters: int, replicas: int, bytes_each: int = FLOAT) -> float:
    """Bytes that each replica sends (and receives) to sum gradients in a ring."""
    return 2 * (replicas - 1) / replicas * parameters * bytes_each


def gather_bytes(pairs: int, hidden: int, replicas: int, sides: int = 2) -> float:
    """Bytes that each replica receives for in-batch losses: vectors, then their gradients.

    The vectors of `sides` sentences of each pair come from all other replicas; backward the same
    tensor is summed over the replicas (reduce-scatter), the same bytes again.
    """
    return 2 * sides * (replicas - 1) / replicas * pairs * hidden * FLOAT


def checkpoint_bytes(model: ModelShape, slots: int = 2, average: bool = False) -> int:
    """Weights, the optimizer's slots (LAMB and AdamW: 2), and the moving average where used."""
    trained = model.parameters
    return FLOAT * (model.untrained_parameters + trained * (1 + slots + int(average)))


def state_bytes(model: ModelShape) -> int:
    """Weights, two slots and gradients of a step, float32; the gradients are temporary."""
    return FLOAT * (4 * model.parameters + model.untrained_parameters)


def block_bytes(
    model: ModelShape,
    sequences: Iterable[tuple[float, int]],
    bytes_each: float = 2,
    remat: str = "none",
) -> float:
    """What the backward pass of the Transformer blocks needs of their forward pass, in bytes.

    A block keeps 17 h + 2.5 · heads · length values a token (Korthikanti et al. 2022, "Reducing
    Activation Recomputation in Large Transformer Models", Eq. 1: s·b·h·(34 + 5·a·s/h) bytes at two
    bytes each, dropout masks of one byte included).

    Args:
      model: its size.
      sequences: (how many, their length) of everything that is encoded.
      bytes_each: bytes of a value.
      remat: `encoder.remat`. What is computed again is in memory for one block at a time.
    """
    sequences = list(sequences)
    tokens = sum(count * length for count, length in sequences)
    scores = sum(count * length**2 for count, length in sequences)
    inputs = model.hidden * tokens * bytes_each
    rows, attention = 17 * inputs, 2.5 * model.heads * scores * bytes_each
    # Bytes that each block keeps, and those of the one that is computed again.
    kept, again = {
        "none": (rows + attention, 0),
        "blocks": (inputs, rows + attention),
        "attention": (rows, attention),
    }[remat]
    return model.layers * kept + again


def logit_bytes(model: ModelShape, predictions: float, vocabulary_block: int = 0) -> float:
    """Bytes of float32 logits and their gradient.

    Args:
      model: its size.
      predictions: positions that logits are computed for.
      vocabulary_block: entries whose logits are in memory at a time; 0: all.
    """
    entries = min(vocabulary_block or model.vocab, model.vocab)
    return 2 * FLOAT * predictions * entries


def activation_bytes(
    model: ModelShape,
    batch: BatchShape,
    bytes_each: float = 2,
    remat: str = "none",
    vocabulary_block: int = 0,
) -> float:
    """What the backward pass of a CMLM step needs of the forward pass, in bytes.

    Args: see `block_bytes` and `logit_bytes`.
    """
    sequences = [(batch.pairs, batch.length), (batch.pairs, batch.length + model.projections)]
    return block_bytes(model, sequences, bytes_each, remat) + logit_bytes(
        model, batch.predictions, vocabulary_block
    )


@dataclasses.dataclass(frozen=True)
class KernelCosts:
    """Constants of a machine; forward and backward pass together.

    Attributes:
      dense: hidden size -> FLOP/s of the blocks' products with bias.
      projection: hidden size -> FLOP/s of CMLM's projection.
      logits: hidden size -> FLOP/s of the product with the embedding table.
      hidden: seconds an element of dropout, residual and layer norm.
      inner: seconds an element of GELU.
      attended: seconds an element of splitting into heads and joining.
      score: seconds an attention weight, of heads 64 wide: both products, mask, softmax, dropout.
      logit: seconds a logit of bias, cross-entropy and accuracy.
      parameter: seconds a trained weight of clipping and the optimizer's update.
      layer_overhead: seconds of a step for each block, and once for the rest, whatever its size.
      factor: a real step's time over that of its kernels alone.
    """

    dense: Mapping[int, float]
    projection: Mapping[int, float]
    logits: Mapping[int, float]
    hidden: float
    inner: float
    attended: float
    score: float
    logit: float
    parameter: float
    layer_overhead: float = 0.0
    factor: float = 1.0


def kernel_seconds(model: ModelShape, batch: BatchShape, costs: KernelCosts) -> dict[str, float]:
    """Seconds of one step by kind of kernel, as each takes alone."""
    work = cmlm_work(model, batch)
    width = model.hidden
    return {
        "products": TRAINING_PASSES * work.dense / costs.dense[width],
        "projection": TRAINING_PASSES * work.projection / costs.projection[width],
        "attention": work.score_elements * costs.score + work.attended_elements * costs.attended,
        "logits": TRAINING_PASSES * work.head / costs.logits[width]
        + work.logit_elements * costs.logit,
        "dropout, residual, norm": work.hidden_elements * costs.hidden,
        "GELU": work.inner_elements * costs.inner,
        "optimizer": model.parameters * costs.parameter,
    }


def step_seconds(model: ModelShape, batch: BatchShape, costs: KernelCosts) -> float:
    """Predicted seconds of one training step, without waiting for inputs."""
    kernels = sum(kernel_seconds(model, batch, costs).values())
    return costs.factor * kernels + costs.layer_overhead * (model.layers + 1)


def calibrated(
    costs: KernelCosts,
    model: ModelShape,
    tiny: tuple[BatchShape, float],
    steps: list[tuple[BatchShape, float]],
) -> KernelCosts:
    """`costs` with the overhead and the factor that explain measured steps of one model.

    Args:
      costs: of the kernels alone.
      model: what was measured.
      tiny: a batch so small that its step is all overhead, and its seconds.
      steps: batches of usual size and their seconds.
    """
    kernels = sum(kernel_seconds(model, tiny[0], costs).values())
    overhead = max(0.0, tiny[1] - kernels) / (model.layers + 1)
    plain = dataclasses.replace(costs, layer_overhead=overhead, factor=1.0)
    fixed = overhead * (model.layers + 1)
    expected = sum(step_seconds(model, batch, plain) - fixed for batch, _ in steps)
    return dataclasses.replace(
        plain, factor=sum(seconds - fixed for _, seconds in steps) / expected
    )
