"""Runs a study: `cmlm study mlm_cmlm --to=… --data_dir=…`.

Makes the study's records, trains each arm with each seed, scores it with `experiments.evaluate`,
and writes `results.json`, the table `study.md` and the figure `study.png` into the folder. The same
command resumes a stopped study; nothing is trained twice.
"""

import os
from pathlib import Path

from absl import flags

from official_cmlm import cli
from official_cmlm.common.errors import UserError
from official_cmlm.common.extras import check_extra
from official_cmlm.common.files import check_writable

from ..registry import list_files
from .definition import Study, read_study, study_files

FLAGS = flags.FLAGS


def define_flags() -> None:
    """Defines the study, its folders and the arms to run."""
    flags.DEFINE_string(
        "study", None, "YAML file, or the name of one below experiments/studies; ? lists. Required."
    )
    flags.DEFINE_string("work_dir", None, "Folder for everything that the study makes. Required.")
    flags.DEFINE_string(
        "data_dir",
        os.environ.get("CMLM_DATA_DIR"),
        "Folder of texts and evaluation data, $data of the study. Default: the environment variable"
        " CMLM_DATA_DIR.",
    )
    flags.DEFINE_string(
        "start", None, "Encoder directory, $start of the study. Needed by studies that name it."
    )
    flags.DEFINE_list(
        "arms",
        [],
        "Arms to run now, and the arms that these start from; the report has all finished ones."
        " Default: all.",
    )
    flags.DEFINE_bool(
        "findings",
        False,
        "Whether to write the tables of README.md and docs/results.md anew, of all published"
        " results, and nothing else.",
    )
    flags.DEFINE_bool(
        "report_only", False, "Whether to make only table and figure, of the finished arms."
    )


def main() -> None:
    """Runs the binary."""
    if FLAGS.findings:
        from .findings import write_findings

        print(write_findings())
        return
    if FLAGS.study in (None, "?", "list"):
        print(list_files(study_files()))
        if FLAGS.study is None:
            raise UserError("--study is missing; name a file, or one of these")
        return
    if not FLAGS.work_dir:
        raise UserError("--work_dir is missing; name the folder for the study")
    check_extra("report", "matplotlib")
    work_dir = _path(FLAGS.work_dir)
    check_writable(work_dir, is_folder=True)
    cli.quiet_tensorflow()
    study = read_study(FLAGS.study)
    if not FLAGS.report_only:
        _run(study, work_dir)
    from .report import write_report

    print(write_report(study, work_dir, FLAGS.study))


def _path(flag: str) -> Path:
    # The path is made absolute, as trainings may have another working directory.
    return Path(flag).expanduser().resolve()


def _run(study: Study, work_dir: Path) -> None:
    if not FLAGS.data_dir or not _path(FLAGS.data_dir).is_dir():
        raise UserError(
            f"--data_dir={FLAGS.data_dir or ''}: no folder of texts and evaluation data"
        )
    names = [arm.name for arm in study.arms]
    if unknown := sorted(set(FLAGS.arms) - {*names}):
        raise UserError(f"--arms: unknown {', '.join(unknown)}; the arms are {', '.join(names)}")
    cli.import_tensorflow()
    import tensorflow as tf

    from .runs import StudyRunner

    # Arms are checked in this process and trained in others, which need the GPUs' memory.
    tf.config.set_visible_devices([], "GPU")
    start = _path(FLAGS.start) if FLAGS.start else None
    StudyRunner(study, work_dir, _path(FLAGS.data_dir), start).run(FLAGS.arms)


if __name__ == "__main__":
    define_flags()
    cli.run(main)
