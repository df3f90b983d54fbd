"""From texts to neighbours: speed of `export.embed`, then every way to search its vectors.

    python -m benchmarks.search --candidates=1000000

Sentences are embedded by one worker that is bound to one core, by two workers on two cores, and by
one worker on two, in alternating rounds; the speeds leave out the start of the processes. Then each
way to search runs in a process of its own among these vectors, and again among --candidates of
them: each further one is a point between two sentences' vectors, chosen at random, with noise.
Queries are sentences that are not among the candidates. A query's time is that of one query at a
time, and the largest memory is that of the process which builds the index and searches.
"""

import json
import os
import re
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from absl import flags

from benchmarks import shared
from official_cmlm import cli
from official_cmlm.process_memory import peak_mib

if TYPE_CHECKING:
    import numpy as np

FLAGS = flags.FLAGS
# Side -> workers, cores.
_EMBED = {"one_worker": (1, 1), "two_workers": (2, 2), "one_worker_two_cores": (1, 2)}
_SPEED = re.compile(r"; ([0-9.]+) texts/s")
# Name in the figures -> method, options.
_WAYS = {
    "exact": ("float32", {}),
    "int8": ("int8", {}),
    "binary": ("binary", {}),
    "binary_oversample_16": ("binary", {"oversample": 16}),
    "faiss": ("faiss", {}),
    "faiss_probed_128": ("faiss", {"probed": 128}),
}
_K = 10
# Share of the second sentence in a point between two, and the noise's length.
_MIXED, _NOISE = (0.1, 0.5), 0.35


def define_flags() -> None:
    """Defines the texts, the ways to search and how often they run."""
    shared.define_text_flags()
    shared.define_model_flag()
    flags.DEFINE_integer("sentences", 20_000, "Sentences to embed.", lower_bound=20)
    flags.DEFINE_integer("shard_rows", 1000, "Sentences of a shard.", lower_bound=10)
    flags.DEFINE_integer("rounds", 3, "Alternating rounds of embedding.", lower_bound=1)
    flags.DEFINE_integer("candidates", 1_000_000, "Vectors to search among.", lower_bound=10)
    flags.DEFINE_integer("queries", 1000, "Sentences to search for.", lower_bound=1)
    flags.DEFINE_integer("timed", 100, "Queries of which each is timed by itself.", lower_bound=3)
    flags.DEFINE_multi_enum("ways", list(_WAYS), list(_WAYS), "Ways beside exact search.")
    flags.DEFINE_string("way", "", "The one way to measure, in --folder. Default: all.")
    flags.DEFINE_string("folder", "", "Folder of the vectors for --way.")


def main(argv: list[str]) -> None:
    """Runs the benchmark, or one way where --way is given."""
    del argv
    cli.quiet_tensorflow()
    if FLAGS.way:
        print(json.dumps(_measured(Path(FLAGS.folder), FLAGS.way)))
        return
    with tempfile.TemporaryDirectory() as folder:
        vectors = _embedded(Path(folder))
        queries, real = vectors[: FLAGS.queries], vectors[FLAGS.queries :]
        for label, count in (("sentences", len(real)), ("filled up", FLAGS.candidates)):
            print(f"\n{count} candidates, {label}, {len(queries)} queries\n")
            found = _searched(Path(folder), queries, _filled_up(real, count))
    print()
    for name, one in found.items():
        print(f"figure search_{name}_p50_ms {one['p50_ms']:.2f}")
        print(f"figure search_{name}_recall_at_10 {one['recall']:.4f}")


def _embedded(folder: Path) -> "np.ndarray":
    """Measures `export.embed`; returns the vectors of the last run."""
    import numpy as np

    cores = sorted(os.sched_getaffinity(0))
    sides = {side: n for side, n in _EMBED.items() if n[1] <= len(cores)}
    sentences = shared.real_sentences(shared.text_files(folder), FLAGS.sentences)
    model, file = shared.encoder_directory(folder), folder / "sentences.txt"
    file.write_text("".join(f"{one}\n" for one in sentences), encoding="utf-8")
    speeds: dict[str, list[float]] = {side: [] for side in sides}
    for number in range(1, FLAGS.rounds + 1):
        for side, (workers, count) in sides.items():
            # A folder that is there would be taken for a run that goes on.
            output = folder / f"{side}-{number}"
            # A process that is started takes its parent's cores.
            os.sched_setaffinity(0, cores[:count])
            printed = shared.output_of(
                "export.embed",
                *(f"--model_dir={model}", f"--input={file}"),
                *(f"--output_dir={output}", f"--workers={workers}"),
                f"--shard_rows={FLAGS.shard_rows}",
            )
            os.sched_setaffinity(0, cores)
            speeds[side].append(float(_SPEED.search(printed)[1]))
            print(f"round {number}, {side}: {speeds[side][-1]:.1f} sentences/s", flush=True)
    for side, found in speeds.items():
        print(f"figure embed_{side} {statistics.median(found):.1f}")
    for side in sides.keys() - {"two_workers"} if "two_workers" in sides else ():
        ratios = [a / b for a, b in zip(speeds["two_workers"], speeds[side])]
        print(f"ratio embed_two_workers_vs_{side} {statistics.median(ratios):.2f}")
    return np.concatenate([np.load(path) for path in sorted(output.glob("embeddings-*.npy"))])


def _searched(folder: Path, queries: "np.ndarray", candidates: "np.ndarray") -> dict[str, dict]:
    """Measures every way, prints a table, and returns the figures of each."""
    import numpy as np

    np.save(folder / "candidates.npy", candidates)
    np.save(folder / "queries.npy", queries)
    print("| way | p50 ms | p95 ms | index MiB | peak MiB | recall@10 | build s |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    found = {}
    # The exact way first: the recall of the others is measured against it.
    for name in dict.fromkeys(["exact", *FLAGS.ways]):
        one = found[name] = json.loads(
            shared.run_module(
                "benchmarks.search",
                *(f"--way={name}", f"--folder={folder}", f"--timed={FLAGS.timed}"),
            )
        )
        print(
            f"| {name} | {one['p50_ms']:.1f} | {one['p95_ms']:.1f} | {one['index_mib']:.0f} "
            f"| {one['peak_mib']:.0f} | {one['recall']:.4f} | {one['build_s']:.0f} |",
            flush=True,
        )
    return found


def _filled_up(real: "np.ndarray", count: int) -> "np.ndarray":
    """Returns `count` unit vectors: the real ones, and points between two of them with noise."""
    import numpy as np

    from official_cmlm.nearest import unit

    rng = np.random.default_rng(0)
    real = unit(real[:count].astype(np.float32))
    filled = np.empty([count, real.shape[1]], np.float32)
    filled[: len(real)] = real
    for start in range(len(real), count, 1 << 16):
        part = filled[start : start + (1 << 16)]
        one, other = rng.integers(len(real), size=[2, len(part)])
        share = rng.uniform(*_MIXED, [len(part), 1]).astype(np.float32)
        noise = rng.standard_normal(part.shape, np.float32) / np.float32(part.shape[1] ** 0.5)
        part[:] = (1 - share) * real[one] + share * real[other] + np.float32(_NOISE) * noise
        unit(part, in_place=True)
    return filled


def _measured(folder: Path, name: str) -> dict[str, float]:
    """Builds the index of one way in this process, and searches it."""
    import numpy as np

    from official_cmlm.search.stores import STORES, Options

    method, options = _WAYS[name]
    queries = np.load(folder / "queries.npy", allow_pickle=False)
    candidates = np.load(folder / "candidates.npy", allow_pickle=False)
    began = time.monotonic()
    store = STORES[method].build(candidates, Options(**options))
    build = time.monotonic() - began
    arrays = store.arrays()
    kept, names = sum(array.nbytes for array in arrays.values()), list(arrays)
    # Search alone is measured, as after `Index.load`.
    for array_name, array in arrays.items():
        np.save(folder / f"{array_name}.npy", array)
    del store, arrays, candidates
    store = STORES[method].load(
        {array_name: np.load(folder / f"{array_name}.npy") for array_name in names},
        Options(**options),
    )
    store.nearest(queries[:1], _K)
    times = []
    for i in range(min(FLAGS.timed, len(queries))):
        began = time.perf_counter()
        store.nearest(queries[i : i + 1], _K)
        times.append(1000 * (time.perf_counter() - began))
    found, _ = store.nearest(queries, _K)
    if name == "exact":
        np.save(folder / "truth.npy", found)
    truth = np.load(folder / "truth.npy")
    recall = np.mean([len({*a.tolist()} & {*b.tolist()}) / _K for a, b in zip(truth, found)])
    return {
        "p50_ms": float(np.median(times)),
        "p95_ms": float(np.percentile(times, 95)),
        "index_mib": kept / 2**20,
        "peak_mib": peak_mib(),
        "recall": float(recall),
        "build_s": build,
    }


if __name__ == "__main__":
    define_flags()
    cli.run(main)
