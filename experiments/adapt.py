"""Adapts an encoder to texts of a domain: `python -m experiments.adapt`.

    python -m experiments.adapt --model=all-MiniLM-L6-v2 --input='my/*.txt' --output_dir=work/mine
    python -m experiments.adapt --model=all-MiniLM-L6-v2 --input=my/pairs.csv \
        --columns=question,answer --output_dir=work/mine

The training needs pairs of texts that belong together. A table has them; of running text its
headings and first sentences are asked for what follows them. The encoder directory is the folder
`model` of the output. Each step is a binary of this project; a second run goes on where the first
one stopped.
"""

from pathlib import Path

from absl import flags

from official_cmlm import cli
from official_cmlm.errors import UserError
from official_cmlm.files import check_writable

from . import module_of
from .stages import Stages

FLAGS = flags.FLAGS


def define_flags() -> None:
    """Defines the encoder, the text and the output."""
    cli.define_model_name()
    flags.DEFINE_string(
        "input",
        None,
        "Text files, folders or glob patterns, separated by commas; or with --columns one table"
        " (.csv, .tsv, .jsonl, .json or .parquet). Required.",
    )
    flags.DEFINE_list(
        "columns", [], "Two columns of the table: a text, and one that belongs to it."
    )
    flags.DEFINE_enum(
        "documents_by", "file", ("blank_line", "file"), "Where a document of a text file ends."
    )
    flags.DEFINE_string("language", "en", "Language of the text, a BCP-47 tag.")
    flags.DEFINE_string("output_dir", None, "Folder for records and encoder. Required.")
    flags.DEFINE_string(
        "params_override", "", "Overrides of the experiment recipes/pairs, a.b=1,c.d=2."
    )
    cli.required("model", "input", "output_dir")


def main(argv: list[str]) -> None:
    """Runs the binary."""
    del argv
    if len(FLAGS.columns) not in (0, 2):
        raise UserError(f"--columns={','.join(FLAGS.columns)}: name two, as in title,body")
    check_writable(FLAGS.output_dir, is_folder=True)
    from official_cmlm.checkpoints.find_encoder import encoder_directory_of, find_encoder
    from official_cmlm.input_files import expand_inputs

    start = encoder_directory_of(find_encoder(FLAGS.model)).path
    folder = Path(FLAGS.output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    table, columns = FLAGS.input, FLAGS.columns
    # Rough seconds on two cores, of 10 MB of text and an encoder of MiniLM's size.
    stages = Stages(folder, (30, 600) if columns else (10, 30, 600))
    stages.depends_on(expand_inputs(FLAGS.input.split(",")))
    if not columns:
        table, columns = str(folder / "pairs.jsonl"), ["title", "body"]
        stages.run(
            "pairs of titles and bodies",
            folder / "pairs.jsonl",
            *("-m", module_of("data_prep.title_pairs"), f"--input={FLAGS.input}"),
            *(f"--documents_by={FLAGS.documents_by}", f"--language={FLAGS.language}"),
            f"--output={table}",
        )
    stages.run(
        "records",
        folder / "records",
        *("-m", module_of("data_prep.create_pairs"), "--format=table", f"--input={table}"),
        *(f"--columns={','.join(columns)}", f"--languages={FLAGS.language}"),
        # A text that occurs twice would be its own negative.
        *(f"--vocab_file={start}", "--repeated=either", "--drop_empty"),
        f"--output_dir={folder / 'records'}",
    )
    stages.run(
        "training",
        folder / "model",
        *("-m", module_of("experiments.train"), "--experiment=recipes/pairs", "--mode=train"),
        *(f"--init_checkpoint={start}", f"--data={folder / 'records'}"),
        *(f"--model_dir={folder / 'model'}", f"--params_override={FLAGS.params_override}"),
    )
    print(folder / "model")


if __name__ == "__main__":
    define_flags()
    cli.run(main)
