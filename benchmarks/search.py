"""From texts to neighbours: speed of `export.embed`, then every way to search its vectors.

    python -m benchmarks.search --candidates=1000000

Sentences are embedded by one worker that is bound to one core, by two workers on two cores, and by
one worker on two, in alternating rounds; the speeds leave out the start of the processes. Then each
way to search is built in a process, and searched in another, among these vectors, and again among
--candidates of them: each further one is a point between two sentences' vectors, chosen at random,
with noise. --only_search takes clusters of random vectors for all of this. Queries are not among
the candidates. A query's time is that of one query at a time; `peak` is the largest memory of the
process that builds from shards and saves, `opened` that of the other one before its first query.
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
    from collections.abc import Callable

    import numpy as np

FLAGS = flags.FLAGS
# Side -> workers, cores.
_EMBED = {"one_worker": (1, 1), "two_workers": (2, 2), "one_worker_two_cores": (1, 2)}
_SPEED = re.compile(r"; ([0-9.]+) texts/s")
# Name in the figures -> options of an index; faiss and its cells for the peer.
_WAYS = {
    "exact": {"precision": "float32"},
    "float16": {"precision": "float16"},
    "int8": {"precision": "int8"},
    "bits": {"precision": "bits"},
    "graph_int8": {"precision": "int8", "approximate": True},
    "faiss": {"probed": 128},
}
_K = 10
# Vectors that are made, written and indexed at a time.
_SHARD = 1 << 14
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
    flags.DEFINE_enum("step", "build", ["build", "search"], "What to do for --way.")
    flags.DEFINE_bool("only_search", False, "Search among clusters of random vectors; no encoder.")


def main(argv: list[str]) -> None:
    """Runs the benchmark, or one way where --way is given."""
    del argv
    cli.quiet_tensorflow()
    if FLAGS.way:
        step = _built if FLAGS.step == "build" else _measured
        print(json.dumps(step(Path(FLAGS.folder), FLAGS.way)))
        return
    with tempfile.TemporaryDirectory() as folder:
        if FLAGS.only_search:
            vectors = _clustered(FLAGS.candidates + FLAGS.queries)
            queries, real = vectors[: FLAGS.queries], vectors[FLAGS.queries :]
            _print_figures(_searched(Path(folder), queries, real))
            return
        vectors = _embedded(Path(folder))
        queries, real = vectors[: FLAGS.queries], vectors[FLAGS.queries :]
        for label, count in (("sentences", len(real)), ("filled up", FLAGS.candidates)):
            print(f"\n{count} candidates, {label}, {len(queries)} queries\n")
            found = _searched(Path(folder), queries, _filled_up(real, count))
    _print_figures(found)


def _print_figures(found: dict[str, dict]) -> None:
    print()
    for name, one in found.items():
        print(f"figure search_{name}_peak_mib {one['peak_mib']:.0f}")
        print(f"figure search_{name}_p50_ms {one['p50_ms']:.2f}")
        print(f"figure search_{name}_recall_at_10 {one['recall']:.4f}")


def _clustered(count: int, width: int = 384) -> "np.ndarray":
    """Returns unit vectors around one centre in 200: the centre and noise, about as long as it."""
    import numpy as np

    from official_cmlm.nearest import unit

    rng = np.random.default_rng(0)
    centres = rng.standard_normal([max(1, count // 200), width], np.float32)
    made = np.empty([count, width], np.float32)
    for start in range(0, count, _SHARD):
        part = made[start : start + _SHARD]
        rng.standard_normal(part.shape, np.float32, part)
        part += centres[rng.integers(len(centres), size=len(part))]
        unit(part, in_place=True)
    return made


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

    _write_shards(folder / "vectors", candidates)
    np.save(folder / "queries.npy", queries)
    del candidates
    print("| way | p50 ms | p95 ms | index MiB | peak MiB | opened MiB | recall@10 | build s |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    found = {}
    # The exact way first: the recall of the others is measured against it.
    for name in dict.fromkeys(["exact", *FLAGS.ways]):
        for step in ("build", "search"):
            one = shared.run_module(
                "benchmarks.search",
                *(f"--way={name}", f"--folder={folder}", f"--timed={FLAGS.timed}"),
                f"--step={step}",
            )
            found[name] = found.get(name, {}) | json.loads(one)
        one = found[name]
        print(
            f"| {name} | {one['p50_ms']:.2f} | {one['p95_ms']:.2f} | {one['index_mib']:.0f} "
            f"| {one['peak_mib']:.0f} | {one['opened_mib']:.0f} | {one['recall']:.4f} "
            f"| {one['build_s']:.0f} |",
            flush=True,
        )
    return found


def _write_shards(folder: Path, vectors: "np.ndarray") -> None:
    """Writes the folder that `export.embed` would."""
    import numpy as np

    folder.mkdir(exist_ok=True)
    shards = []
    for start in range(0, len(vectors), _SHARD):
        part = vectors[start : start + _SHARD]
        shards.append({"file": f"embeddings-{len(shards):05d}.npy", "rows": len(part)})
        np.save(folder / shards[-1]["file"], part)
    rows, columns = vectors.shape
    manifest = {"rows": rows, "columns": columns, "precision": "float32", "shards": shards}
    (folder / "manifest.json").write_text(json.dumps(manifest))


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


def _built(folder: Path, name: str) -> dict[str, float]:
    """Builds and saves the index of one way in this process."""
    import numpy as np

    from official_cmlm.search import Index

    began, options = time.monotonic(), _WAYS[name]
    if name == "faiss":
        import faiss

        rows = np.concatenate([np.load(path) for path in sorted(folder.glob("vectors/*.npy"))])
        cells = max(1, min(int(len(rows) ** 0.5), len(rows) // 64))
        index = faiss.index_factory(rows.shape[1], f"IVF{cells},Flat", faiss.METRIC_INNER_PRODUCT)
        index.train(rows)
        index.add(rows)
        faiss.write_index(index, str(folder / name))
    else:
        width = np.load(folder / "queries.npy", mmap_mode="r").shape[1]
        index = Index.from_embeddings(folder / "vectors", _encoder(width), **options)
        index.save(folder / name, overwrite=True)
    files = [folder / name] if name == "faiss" else (folder / name).iterdir()
    return {
        "build_s": time.monotonic() - began,
        "peak_mib": peak_mib(),
        "index_mib": sum(path.stat().st_size for path in files) / 2**20,
    }


def _encoder(width: int) -> "Callable[[list[str]], np.ndarray]":
    """Returns a function from texts to vectors that cost nothing."""
    import numpy as np

    return lambda texts: np.ones([len(texts), width], np.float32)


def _measured(folder: Path, name: str) -> dict[str, float]:
    """Opens the index of one way in this process, and searches it."""
    import numpy as np

    from official_cmlm.search import Index

    queries = np.load(folder / "queries.npy", allow_pickle=False)
    if name == "faiss":
        import faiss

        opened = faiss.read_index(str(folder / name))
        opened.nprobe = min(opened.nlist, _WAYS[name]["probed"])

        def search(some: np.ndarray) -> np.ndarray:
            return opened.search(some, _K)[1]
    else:
        index = Index.load(folder / name, _encoder(queries.shape[1]), verify=False)

        def search(some: np.ndarray) -> np.ndarray:
            return index.search_vectors(some, _K)[0]

    opened_mib, times = peak_mib(), []
    for i in range(min(FLAGS.timed, len(queries))):
        began = time.perf_counter()
        search(queries[i : i + 1])
        times.append(1000 * (time.perf_counter() - began))
    found = search(queries)
    if name == "exact":
        np.save(folder / "truth.npy", found)
    truth = np.load(folder / "truth.npy")
    return {
        "p50_ms": float(np.median(times)),
        "p95_ms": float(np.percentile(times, 95)),
        "opened_mib": opened_mib,
        "recall": float(
            np.mean([len({*a.tolist()} & {*b.tolist()}) / _K for a, b in zip(truth, found)])
        ),
    }


if __name__ == "__main__":
    define_flags()
    cli.run(main)
