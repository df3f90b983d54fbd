"""The cost model on other people's machines: named inputs, and what a step takes there."""

import dataclasses

from benchmarks.scaling.cost_model import (
    FLOAT,
    BatchShape,
    ModelShape,
    activation_bytes,
    checkpoint_bytes,
    cmlm_work,
    gather_bytes,
    ring_all_reduce_bytes,
    similarity_flops,
    state_bytes,
)

_A100, _DGX, _TPU = "A100", "DGX", "TPU v3"
SOURCES = {
    _A100: "NVIDIA A100 80GB SXM datasheet: 312 TFLOP/s bfloat16 without sparsity, 80 GB at "
    "2,039 GB/s, NVLink 600 GB/s of both directions together",
    _DGX: "NVIDIA DGX A100 datasheet: 8 GPUs, 8 network ports of 200 Gb/s, 2 CPUs of 64 cores",
    _TPU: "Google Cloud documentation, TPU v3: a chip of 2 cores has 123 TFLOP/s bfloat16 and "
    "32 GiB at 900 GB/s; a pod of 1,024 chips 340 TB/s of all-reduce bandwidth",
}


@dataclasses.dataclass(frozen=True)
class Input:
    """A figure that we did not measure.

    Attributes:
      value: in SI units: operations, bytes, seconds.
      source: where it is published, a key of `SOURCES`; empty: assumed.
    """

    value: float
    source: str = ""


@dataclasses.dataclass(frozen=True)
class Cluster:
    """Accelerators of one kind, `hosts` of them alike.

    Attributes:
      name: for tables.
      hosts, per_host: machines, and accelerators of each.
      peak: bfloat16 operations a second of an accelerator, dense.
      memory: bytes of its own memory.
      memory_bandwidth: bytes a second of that memory.
      link: bytes a second that it sends to the others of its host, one direction.
      network: the same to other hosts, its share of the host's network.
      host_cores: CPU cores of a host.
    """

    name: str
    hosts: int
    per_host: int
    peak: Input
    memory: Input
    memory_bandwidth: Input
    link: Input
    network: Input
    host_cores: Input

    @property
    def replicas(self) -> int:
        return self.hosts * self.per_host


@dataclasses.dataclass(frozen=True)
class Assumptions:
    """What no datasheet says.

    Attributes:
      utilisation: share of the peak that a step's operations reach.
      link_efficiency: share of a link's bandwidth that a ring reaches.
      update_passes: reads and writes of each weight by clipping and LAMB: the gradient, weight and
        both slots are read, three written, and the norms read weight, update and gradient again.
      storage: bytes a second that a checkpoint is written with.
      checkpoint_interval: steps; that of `cmlm/english_base`.
    """

    utilisation: float = 0.4
    link_efficiency: float = 0.7
    update_passes: int = 10
    storage: float = 1e9
    checkpoint_interval: int = 10_000


def _dgx(name: str, hosts: int) -> Cluster:
    return Cluster(
        name,
        hosts,
        per_host=8,
        peak=Input(312e12, _A100),
        memory=Input(80e9, _A100),
        memory_bandwidth=Input(2.039e12, _A100),
        # NVLink's 600 GB/s are those of both directions.
        link=Input(300e9, _A100),
        # Eight ports of 200 Gb/s.
        network=Input(25e9, _DGX),
        host_cores=Input(128, _DGX),
    )


def clusters() -> list[Cluster]:
    """8 GPUs, the paper's 64 TPUs read as cores of TPU v3, and 1,024 accelerators."""
    # 340 TB/s of all-reduce bandwidth in a pod of 1,024 chips of two cores.
    ring = Input(340e12 / 2048, _TPU)
    return [
        _dgx("8 GPUs", 1),
        Cluster(
            "64 TPU cores",
            hosts=8,
            per_host=8,
            peak=Input(123e12 / 2, _TPU),
            memory=Input(32 * 2**30 / 2, _TPU),
            memory_bandwidth=Input(900e9 / 2, _TPU),
            link=ring,
            network=ring,
            host_cores=Input(96),
        ),
        _dgx("1,024 GPUs", 128),
    ]


# `train_data.streams` as assumed; with more hosts, as many as these.
STREAMS = 16


@dataclasses.dataclass(frozen=True)
class InputCost:
    """What a pair costs an input pipeline; every host makes its share of the global batch.

    Attributes:
      cpu_seconds: of all stages.
      serial_seconds: of those that one thread of a stream does: reading and grouping.
      record_bytes: that are read.
    """

    cpu_seconds: float
    serial_seconds: float
    record_bytes: float

    def times(self, factor: float) -> "InputCost":
        """The cost of pairs `factor` times as long."""
        return InputCost(*(factor * value for value in dataclasses.astuple(self)))


@dataclasses.dataclass(frozen=True)
class Projection:
    """One step of a cluster, in seconds; what each part takes alone.

    Attributes:
      compute: forward and backward pass.
      all_reduce: of the gradients; added to `compute`, since clipping waits for all of them.
      update: clipping and the optimizer, the same on every replica.
      inputs: of a host's input pipeline: the serial stages of a stream, or all stages on all cores,
        whichever takes longer; hidden behind the rest as long as it is shorter.
      checkpoint: spread over the steps between two.
      retrieval: what in-batch retrieval beside CMLM would add: gather, its transpose, similarities.
      memory_share: of an accelerator's memory that weights, slots, gradients and activations take.
      record_bytes: that each host reads in a second.
    """

    compute: float
    all_reduce: float
    update: float
    inputs: float
    checkpoint: float
    retrieval: float
    memory_share: float
    record_bytes: float

    @property
    def step(self) -> float:
        busy = self.compute + self.all_reduce + self.update + self.checkpoint
        return max(busy, self.inputs)

    @property
    def efficiency(self) -> float:
        """Share of the step in which the accelerators compute."""
        return self.compute / self.step


def all_reduce_seconds(cluster: Cluster, size: float, assumed: Assumptions) -> float:
    """A ring in every host, then rings of a share each between the hosts.

    Args:
      cluster: the cluster.
      size: bytes to sum.
      assumed: for the efficiency of links.
    """
    within = ring_all_reduce_bytes(1, cluster.per_host, 1) * size / cluster.link.value
    share = size / cluster.per_host
    between = ring_all_reduce_bytes(1, cluster.hosts, 1) * share / cluster.network.value
    return (within + between) / assumed.link_efficiency


def project(
    cluster: Cluster,
    model: ModelShape,
    batch: BatchShape,
    inputs: InputCost,
    assumed: Assumptions = Assumptions(),
    more_flops: float = 0.0,
    remat: str = "none",
    vocabulary_block: int = 0,
) -> Projection:
    """A step of a global batch on a cluster.

    Args:
      cluster: the cluster.
      model, batch: the model and the global batch.
      inputs: of a pair.
      assumed: see `Assumptions`.
      more_flops: of the global batch, beside forward and backward pass of CMLM.
      remat, vocabulary_block: see `activation_bytes`; the forward pass of the blocks, or of the
        logits, is computed twice.
    """
    work = cmlm_work(model, batch)
    flops = work.training_flops + more_flops
    if remat == "blocks":
        flops += work.dense + work.attention
    if vocabulary_block:
        flops += work.head
    replicas = cluster.replicas
    local = dataclasses.replace(
        batch, pairs=batch.pairs // replicas, predictions=batch.predictions / replicas
    )
    speed = cluster.peak.value * assumed.utilisation
    gradients = FLOAT * model.parameters
    # The slowest of the links that the gather crosses.
    link = (cluster.link if cluster.hosts == 1 else cluster.network).value
    gathered = gather_bytes(batch.pairs, model.hidden, replicas) / link / assumed.link_efficiency
    compared = similarity_flops(local.pairs, batch.pairs, model.hidden) / speed
    found = Projection(
        compute=flops / replicas / speed,
        all_reduce=all_reduce_seconds(cluster, gradients, assumed),
        update=gradients * assumed.update_passes / cluster.memory_bandwidth.value,
        inputs=batch.pairs
        / cluster.hosts
        * max(
            inputs.serial_seconds / (max(STREAMS, cluster.hosts) // cluster.hosts),
            inputs.cpu_seconds / cluster.host_cores.value,
        ),
        checkpoint=checkpoint_bytes(model) / assumed.storage / assumed.checkpoint_interval,
        retrieval=gathered + compared,
        memory_share=(
            state_bytes(model)
            + activation_bytes(model, local, remat=remat, vocabulary_block=vocabulary_block)
        )
        / cluster.memory.value,
        record_bytes=0.0,
    )
    read = batch.pairs / cluster.hosts * inputs.record_bytes
    return dataclasses.replace(found, record_bytes=read / found.step)


def limits(projection: Projection) -> dict[str, float]:
    """What can break, as its share of the step's computation; 1 is as much as that."""
    return {
        "all-reduce of the gradients": projection.all_reduce / projection.compute,
        "optimizer on every replica": projection.update / projection.compute,
        "input pipeline of a host": projection.inputs / projection.compute,
        "checkpoint writing": projection.checkpoint / projection.compute,
        "gather and similarities of retrieval": projection.retrieval / projection.compute,
    }
