"""From texts to neighbours: speed of `cmlm embed`, then every way to search its vectors.

    python -m benchmarks.search --only_search --candidates=1000000

Sentences are embedded by one worker on one core, by two workers on two cores, and by one worker on
two cores, in alternating rounds; the speeds leave out the start of the processes. Then, for each
way to search, one process builds an index of these vectors and another one searches it; with
--only_search the index is of --candidates vectors in random clusters. Queries are not among the
candidates. Times are of one query at a time. `peak` is the peak memory of the process that builds
the index from shards and saves it, `opened` that of the searching process before its first query.
"""

import functools
import itertools
import json
import os
import re
import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from absl import flags

from benchmarks import shared
from official_cmlm import cli
from official_cmlm.common.processor import peak_mib

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import numpy as np

FLAGS = flags.FLAGS
# Side -> workers, cores.
_EMBED = {"one_worker": (1, 1), "two_workers": (2, 2), "one_worker_two_cores": (1, 2)}
_SPEED = re.compile(r"; ([0-9.]+) texts/s")
# Name in the figures -> options of the index; of faiss, the peer, the number of cells it searches.
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


def define_flags() -> None:
    """Defines the texts, the ways to search and how often they run."""
    shared.define_text_flags()
    shared.define_model_flag()
    flags.DEFINE_integer("sentences", 20_000, "Sentences to embed.", lower_bound=20)
    flags.DEFINE_integer("shard_rows", 1000, "Sentences of a shard.", lower_bound=10)
    flags.DEFINE_integer("rounds", 3, "Alternating rounds of embedding.", lower_bound=1)
    flags.DEFINE_integer("candidates", 1_000_000, "Random vectors for --only_search.", 10)
    flags.DEFINE_integer("queries", 1000, "Vectors to search for.", 1, _SHARD // 2)
    flags.DEFINE_integer("timed", 100, "Queries of which each is timed by itself.", lower_bound=3)
    flags.DEFINE_multi_enum("ways", list(_WAYS), list(_WAYS), "Ways to search.")
    flags.DEFINE_bool("only_search", False, "Search among clusters of random vectors; no encoder.")


def main() -> None:
    """Measures embedding, then each way to search."""
    cli.quiet_tensorflow()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        parts = _make_clusters() if FLAGS.only_search else iter([_measure_embedding(folder)])
        first = next(parts)
        queries, rest = first[: FLAGS.queries], first[FLAGS.queries :]
        rows = _write_vectors(folder, queries, itertools.chain([rest], parts))
        del first, rest
        print(f"\n{rows} candidates, {len(queries)} queries\n")
        by_way = _measure_search(folder)
    print()
    for name, figures in by_way.items():
        print(f"figure search_{name}_peak_mib {figures['peak_mib']:.0f}")
        print(f"figure search_{name}_p50_ms {figures['p50_ms']:.2f}")
        print(f"figure search_{name}_recall_at_10 {figures['recall']:.4f}")


def _make_clusters(width: int = 384) -> "Iterator[np.ndarray]":
    """Yields unit vectors near random centres, about 200 each: the centre plus noise as long."""
    import numpy as np

    from official_cmlm.vectors.nearest import unit

    rng, count = np.random.default_rng(0), FLAGS.candidates + FLAGS.queries
    centres = rng.standard_normal([max(1, count // 200), width], np.float32)
    for start in range(0, count, _SHARD):
        part = rng.standard_normal([min(_SHARD, count - start), width], np.float32)
        part += centres[rng.integers(len(centres), size=len(part))]
        yield unit(part, in_place=True)


def _measure_embedding(folder: Path) -> "np.ndarray":
    """Measures `cmlm embed`; returns the last run's vectors, of length 1 as an index has them."""
    import numpy as np

    from official_cmlm.vectors.nearest import unit

    cores = sorted(os.sched_getaffinity(0))
    sentences = shared.real_sentences(shared.text_files(folder), FLAGS.sentences)
    file = folder / "sentences.txt"
    file.write_text("".join(f"{text}\n" for text in sentences), encoding="utf-8")
    output = folder / "embedded"

    def embed(workers: int, count: int) -> dict[str, float]:
        # `export.embedding.embed` would resume from an existing folder.
        shutil.rmtree(output, ignore_errors=True)
        # A started process inherits the cores of its parent.
        os.sched_setaffinity(0, cores[:count])
        printed = shared.run_module(
            *("export.embedding.embed", f"--model={FLAGS.model}", f"--input={file}"),
            *(f"--workers={workers}", f"--output_dir={output}", f"--shard_rows={FLAGS.shard_rows}"),
        )
        os.sched_setaffinity(0, cores)
        return {"per_second": float(_SPEED.search(printed)[1])}

    calls = {side: functools.partial(embed, *n) for side, n in _EMBED.items() if n[1] <= len(cores)}
    speeds = shared.in_turns(range(1, FLAGS.rounds + 1), calls)
    for side, figures in speeds.items():
        print(f"figure embed_{side} {shared.median(figures, 'per_second'):.1f}")
    two = speeds.pop("two_workers", None)
    for side, figures in speeds.items() if two else ():
        shared.print_ratio(f"embed_two_workers_vs_{side}", "per_second", two, figures)
    return unit(np.concatenate([np.load(path) for path in sorted(output.glob("embeddings-*.npy"))]))


def _measure_search(folder: Path) -> dict[str, dict]:
    """Measures every way, prints a table, and returns the figures of each."""
    print("| way | p50 ms | p95 ms | index MiB | peak MiB | opened MiB | recall@10 | build s |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    by_way = {}
    for name in FLAGS.ways:
        built = shared.in_new_process(_build, folder, name)
        row = by_way[name] = built | shared.in_new_process(_measure, folder, name, FLAGS.timed)
        print(
            f"| {name} | {row['p50_ms']:.2f} | {row['p95_ms']:.2f} | {row['index_mib']:.0f} "
            f"| {row['peak_mib']:.0f} | {row['opened_mib']:.0f} | {row['recall']:.4f} "
            f"| {row['build_s']:.0f} |",
            flush=True,
        )
    return by_way


def _write_vectors(folder: Path, queries: "np.ndarray", parts: "Iterable[np.ndarray]") -> int:
    """Writes the shards that `export.embedding.embed` would, the queries and the true neighbours.

    Ten million vectors do not fit into memory, so the nearest ones of each part are merged.

    Returns:
      The number of vectors.
    """
    import numpy as np

    from official_cmlm.vectors.nearest import nearest, top

    (folder / "vectors").mkdir()
    shards, rows = [], 0
    truth, cosines = np.empty([len(queries), 0], np.int64), np.empty([len(queries), 0], np.float32)
    for part in parts:
        shards.append({"file": f"embeddings-{len(shards):05d}.npy", "rows": len(part)})
        np.save(folder / "vectors" / shards[-1]["file"], part)
        indices, values = nearest(queries, part, min(_K, len(part)))
        truth, cosines = np.hstack([truth, rows + indices]), np.hstack([cosines, values])
        best = top(cosines, min(_K, cosines.shape[1]))
        truth, cosines = (np.take_along_axis(values, best, axis=1) for values in (truth, cosines))
        rows += len(part)
    manifest = {"rows": rows, "columns": part.shape[1], "precision": "float32", "shards": shards}
    (folder / "vectors" / "manifest.json").write_text(json.dumps(manifest))
    np.save(folder / "queries.npy", queries)
    np.save(folder / "truth.npy", truth)
    return rows


def _build(folder: Path, name: str) -> dict[str, float]:
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
    """Returns a stand-in for an encoder, whose vectors cost nothing."""
    import numpy as np

    return lambda texts: np.ones([len(texts), width], np.float32)


def _measure(folder: Path, name: str, timed: int) -> dict[str, float]:
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
    for i in range(min(timed, len(queries))):
        began = time.perf_counter()
        search(queries[i : i + 1])
        times.append(1000 * (time.perf_counter() - began))
    rows = search(queries)
    truth = np.load(folder / "truth.npy")
    return {
        "p50_ms": float(np.median(times)),
        "p95_ms": float(np.percentile(times, 95)),
        "opened_mib": opened_mib,
        "recall": float(
            np.mean([len({*a.tolist()} & {*b.tolist()}) / _K for a, b in zip(truth, rows)])
        ),
    }


if __name__ == "__main__":
    define_flags()
    cli.run(main)
