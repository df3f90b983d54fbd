"""From a folder of text to an encoder, with the project's binaries.

    python examples/train_on_folder.py --texts=my --work_dir=work/folder

Each file is a document. A stage whose output is there is left out, and a training that was stopped
resumes: the same command goes on.
"""

import argparse
import subprocess
import sys
from pathlib import Path


def run(*command: str) -> None:
    """Runs a binary with this Python; its own messages say what went wrong."""
    status = subprocess.run([sys.executable, "-m", *command], check=False).returncode
    if status:
        sys.exit(status)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--texts", required=True, help="folder, files or pattern, e.g. 'my/*.txt'")
    parser.add_argument("--work_dir", required=True, type=Path)
    parser.add_argument("--experiment", default="cmlm/tiny", help="(default: cmlm/tiny)")
    parser.add_argument("--vocab_size", type=int, default=30522, help="(default: 30522)")
    parser.add_argument("--overrides", default="", help="further a.b=1,c.d=2 of the experiment")
    arguments = parser.parse_args()
    work = arguments.work_dir

    read = (f"--input={arguments.texts}", "--documents_by=file")
    if not (work / "vocab.txt").exists():
        size = f"--vocab_size={arguments.vocab_size}"
        run("data_prep.build_vocab", *read, f"--output={work}/vocab.txt", size)
    if not (work / "records").exists():
        vocabulary = f"--vocab_file={work}/vocab.txt"
        run("data_prep.create_documents", *read, vocabulary, f"--output_dir={work}/records")
    overrides = f"task.train_data.input_path={work}/records"
    run(
        "experiments.train",
        f"--experiment={arguments.experiment}",
        "--mode=train",
        f"--model_dir={work}/model",
        f"--params_override={','.join(filter(None, [overrides, arguments.overrides]))}",
    )
    if not (work / "tfhub").exists():
        run("export.export_tfhub", f"--model_dir={work}/model", f"--export_dir={work}/tfhub")
    print(f"encoder: {work}/model, TF-Hub modules: {work}/tfhub")


if __name__ == "__main__":
    main()
