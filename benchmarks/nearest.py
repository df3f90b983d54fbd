"""How much memory exact nearest neighbours take: `python -m benchmarks.nearest`.

Searches random unit vectors, by default 1,000 queries among a million candidates of 768 dimensions,
with ten neighbours and CSLS's means, in a process of its own without TensorFlow.
"""

import time

from absl import flags

from official_cmlm import cli
from official_cmlm.process_memory import peak_mib

FLAGS = flags.FLAGS


def define_flags() -> None:
    """Defines the flags of the binary."""
    flags.DEFINE_integer("candidates", 1_000_000, "Vectors to search among.", lower_bound=10)
    flags.DEFINE_integer("queries", 1000, "Vectors to search for.", lower_bound=1)
    flags.DEFINE_integer("dimension", 768, "Of the vectors.", lower_bound=1)


def main(argv: list[str]) -> None:
    """Runs the search."""
    del argv
    import numpy as np

    from official_cmlm.evaluation.metrics.nearest import mean_of_nearest, nearest, unit

    generator = np.random.default_rng(0)
    candidates = generator.standard_normal([FLAGS.candidates, FLAGS.dimension], np.float32)
    candidates = unit(candidates, in_place=True)
    # A query is a candidate with some noise, so the answer is known.
    answers = generator.choice(FLAGS.candidates, FLAGS.queries, replace=False)
    noise = generator.standard_normal([FLAGS.queries, FLAGS.dimension], np.float32)
    queries = unit(candidates[answers] + 0.02 * noise)
    began = time.monotonic()
    found, _ = nearest(queries, candidates, k=10)
    print(f"figure seconds_10_nearest {time.monotonic() - began:.1f}")
    began = time.monotonic()
    mean_of_nearest(queries, candidates, k=10)
    print(f"figure seconds_mean_of_nearest {time.monotonic() - began:.1f}")
    print(f"figure found {np.mean(found[:, 0] == answers):.3f}")
    print(f"figure peak_MiB {peak_mib():.0f}")


if __name__ == "__main__":
    define_flags()
    cli.run(main)
