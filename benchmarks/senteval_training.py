"""How long SentEval's trainings take alone: `python -m benchmarks.senteval_training`.

The tasks below CMLM_DATA_DIR are scored by means of random word vectors, which are made before the
clock starts, so that no encoder is needed. Prints wall and CPU seconds of each task and its scores,
by which two versions of the code can be compared. With `--coco_steps` also the time of a step of
COCO's training, and of a pass over the published number of images.
"""

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from absl import flags

from official_cmlm import cli
from official_cmlm.errors import UserError

if TYPE_CHECKING:
    import numpy as np

FLAGS = flags.FLAGS
TASKS = ["MR", "CR", "SST2", "SST5", "TREC", "MRPC", "SICK-E", "SICK-R", "STS-B"]
# Of the published training set.
_IMAGES, _WIDTH, _CAPTIONS = 113_287, 2048, 5


def define_flags() -> None:
    """Defines the flags of the binary."""
    flags.DEFINE_list("tasks", TASKS, "SentEval's tasks.")
    flags.DEFINE_string("configuration", "fast", "See the suite.")
    flags.DEFINE_integer("dimension", 384, "Of the word vectors.", lower_bound=1)
    flags.DEFINE_integer("coco_steps", 0, "Steps of COCO to time. Default: none.", lower_bound=0)


def main(argv: list[str]) -> None:
    """Scores the tasks."""
    del argv
    data_dir = Path(os.environ.get("CMLM_DATA_DIR", ""))
    root = data_dir / "senteval" / "downstream"
    if FLAGS.tasks and not root.is_dir():
        raise UserError("CMLM_DATA_DIR is not set: this trains on SentEval's files")
    from official_cmlm.evaluation.data.folder import DataFolder
    from official_cmlm.evaluation.data.senteval import TASKS as READERS
    from official_cmlm.evaluation.scores import SuiteReport
    from official_cmlm.evaluation.suite import read_tasks, score_tasks
    from official_cmlm.evaluation.suites import senteval

    encode, total, cpu_total = _Words(FLAGS.dimension), 0.0, 0.0
    for name in FLAGS.tasks:
        data, report = DataFolder(data_dir), SuiteReport()
        for examples in READERS[name].read(data, root, []).values():
            encode(examples.first + examples.second)
        options = senteval.Options(FLAGS.configuration, tasks=[name])
        began, cpu = time.monotonic(), time.process_time()
        tasks = read_tasks(senteval.tasks_in(data, root, options), report)
        score_tasks(tasks, encode, report)
        seconds, cpu = time.monotonic() - began, time.process_time() - cpu
        total, cpu_total = total + seconds, cpu_total + cpu
        print(f"figure training_seconds:{name} {seconds:.2f}")
        print(f"figure training_cpu_seconds:{name} {cpu:.2f}")
        for score in report.scores:
            print(f"  {score.task} {score.metric} {score.value:.6f}")
        if report.unscored:
            raise UserError(report.unscored[0])
    print(f"figure training_seconds {total:.1f}")
    print(f"figure training_cpu_seconds {cpu_total:.1f}")
    if FLAGS.coco_steps:
        _time_coco(FLAGS.coco_steps, FLAGS.dimension)


class _Words:
    """Means of random word vectors, kept."""

    def __init__(self, dimension: int) -> None:
        import numpy as np

        self._dimension = dimension
        self._generator = np.random.default_rng(0)
        self._words: dict[str, np.ndarray] = {}
        self._texts: dict[str, np.ndarray] = {}

    def __call__(self, texts: list[str]) -> "np.ndarray":
        import numpy as np

        for text in texts:
            if text not in self._texts:
                self._texts[text] = np.mean([self._word(word) for word in text.split()], axis=0)
        return np.stack([self._texts[text] for text in texts])

    def _word(self, word: str) -> "np.ndarray":
        if word not in self._words:
            vector = self._generator.standard_normal(self._dimension, "float32") / 20
            self._words[word] = vector
        return self._words[word]


def _time_coco(steps: int, dimension: int) -> None:
    """Steps on random features of the published width, of some images only."""
    import numpy as np

    from official_cmlm.evaluation.metrics import senteval_ranking

    config, generator = senteval_ranking.RankingConfig(), np.random.default_rng(0)
    # A training set with as many batches as are to be timed: one pass, and the ranking after it.
    images = -(-steps * config.batch_size // _CAPTIONS)
    rows = generator.random([images, _WIDTH], np.float32)
    mapped = rows @ generator.standard_normal([_WIDTH, dimension], np.float32)
    captions = np.repeat(mapped, _CAPTIONS, axis=0)
    captions += generator.standard_normal(captions.shape, np.float32)
    part = rows[:5000], captions[: 5000 * _CAPTIONS]
    config = senteval_ranking.RankingConfig(max_epoch=0)
    began, cpu = time.monotonic(), time.process_time()
    senteval_ranking.rank_captions((rows, captions), part, part, 1111, config)
    seconds = (time.monotonic() - began) / steps
    cpu = (time.process_time() - cpu) / steps
    batches = -(-_IMAGES * _CAPTIONS // config.batch_size)
    print(f"figure coco_step_seconds {seconds:.3f}")
    print(f"figure coco_step_cpu_seconds {cpu:.3f}")
    print(f"figure coco_pass_minutes {batches * seconds / 60:.0f}")
    print(f"figure coco_pass_cpu_minutes {batches * cpu / 60:.0f}")


if __name__ == "__main__":
    define_flags()
    cli.run(main)
