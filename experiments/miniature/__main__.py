"""Runs a study: `python -m experiments.miniature --study=mlm_cmlm --work_dir=… --data_dir=…`.

Makes the study's records, trains each arm with each seed, scores it with `experiments.evaluate`,
and writes `results/ARM.SEED.json`, the table `study.md` and the figure `study.png` into the folder.
The same command goes on where a stopped one was; nothing is trained twice.
"""

import os
from pathlib import Path

from absl import flags

from official_cmlm import cli
from official_cmlm.errors import UserError
from official_cmlm.extras import check_extra
from official_cmlm.files import check_writable

from .study import Study, read_study, study_files

FLAGS = flags.FLAGS


def define_flags() -> None:
    """Defines the flags of the binary."""
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
        "Arms to run now, and what these start from; the report has all that are there."
        " Default: all.",
    )
    flags.DEFINE_bool(
        "report_only",
        False,
        "Whether to make table and figure only, of what is there.",
    )


def main(argv: list[str]) -> None:
    """Runs the binary."""
    del argv
    if FLAGS.study in (None, "?", "list"):
        for name, path in study_files().items():
            print(f"  {name}  {path.read_text(encoding='utf-8').splitlines()[0].lstrip('# ')}")
        if FLAGS.study is None:
            raise UserError("--study is missing; name a file, or one of these")
        return
    if not FLAGS.work_dir:
        raise UserError("--work_dir is missing; name the folder for the study")
    check_extra("report", "matplotlib")
    check_writable(os.path.expanduser(FLAGS.work_dir), is_folder=True)
    cli.quiet_tensorflow()
    study = read_study(FLAGS.study)
    # The trainings get paths, and have a working directory of their own choice.
    work_dir = Path(os.path.expanduser(FLAGS.work_dir)).resolve()
    if not FLAGS.report_only:
        _run(study, work_dir)
    from .report import write_report

    print(write_report(study, work_dir, FLAGS.study))


def _run(study: Study, work_dir: Path) -> None:
    cli.import_tensorflow()
    import tensorflow as tf

    from . import plan, records, runs

    # Arms are checked in this process and trained in others, which need the GPUs' memory.
    tf.config.set_visible_devices([], "GPU")
    if not FLAGS.data_dir:
        raise UserError("--data_dir is missing; name the folder of texts and evaluation data")
    data_dir = Path(os.path.expanduser(FLAGS.data_dir)).resolve()
    if not data_dir.is_dir():
        raise UserError(f"--data_dir={data_dir}: no such folder")
    start = FLAGS.start and Path(os.path.expanduser(FLAGS.start)).resolve()
    if not start and study.names("start"):
        raise UserError(
            "--start is missing; this study's arms start from an encoder of yours: name its folder"
        )
    unknown = set(FLAGS.arms) - {arm.name for arm in study.arms}
    if unknown:
        raise UserError(
            f"--arms: the study has no {', '.join(sorted(unknown))}; its arms are "
            f"{', '.join(arm.name for arm in study.arms)}"
        )
    names = records.places(study, data_dir, work_dir, start)
    records.check_flags(study)
    plan.check_settings(study, names)
    for warning in plan.check_evaluation(study, data_dir):
        print(f"warning: {warning}", flush=True)
    with runs.working_in(work_dir) as call:
        records.make_data(study, names, call)
        planned = plan.plan(study, names, work_dir, FLAGS.arms)
        runs.execute(planned, study, data_dir, work_dir, call)


if __name__ == "__main__":
    define_flags()
    cli.run(main)
