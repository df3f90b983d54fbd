"""Public weights, trained on with text of your domain, and back to sentence-transformers.

    python examples/adapt_to_domain.py --source=path/to/all-MiniLM-L6-v2 --texts='my/*.txt' \
        --work_dir=work/domain

`recipes/adapt` keeps what the encoder is: pooling, normalisation and length. What it was good at
before may still suffer from many steps or a high rate: compare both with `experiments.evaluate`.
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
    parser.add_argument("--source", required=True, help="local Hugging Face or s-t folder")
    parser.add_argument("--texts", required=True, help="text of the domain, each file a document")
    parser.add_argument("--work_dir", required=True, type=Path)
    parser.add_argument("--experiment", default="recipes/adapt", help="(recipes/adapt)")
    parser.add_argument("--steps", type=int, default=1000, help="(default: 1000)")
    parser.add_argument("--overrides", default="", help="further a.b=1,c.d=2 of the experiment")
    arguments = parser.parse_args()
    work = arguments.work_dir

    public, records = work / "public", work / "records"
    if not public.exists():
        source = f"--source={arguments.source}"
        run("official_cmlm.checkpoints.import_checkpoint", source, f"--output_dir={public}")
    if not records.exists():
        # The encoder's own vocabulary, or its embeddings would mean other words.
        read = (f"--input={arguments.texts}", "--documents_by=file", f"--vocab_file={public}")
        run("data_prep.create_documents", *read, f"--output_dir={records}")
    overrides = [
        f"task.train_data.input_path={records}",
        f"trainer.train_steps={arguments.steps}",
        *filter(None, [arguments.overrides]),
    ]
    run(
        "experiments.train",
        f"--experiment={arguments.experiment}",
        f"--init_checkpoint={public}",
        "--mode=train",
        f"--model_dir={work}/model",
        f"--params_override={','.join(overrides)}",
    )
    folder = work / "sentence_transformers"
    if not folder.exists():
        model = f"--model_dir={work}/model"
        run("export.export_sentence_transformers", model, f"--export_dir={folder}")
    print(f"encoder: {work}/model, for PyTorch: {folder}")


if __name__ == "__main__":
    main()
