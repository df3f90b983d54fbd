"""Publishes an encoder on the Hugging Face hub: `python -m export.push`.

    python -m export.push --model_dir=work/encoder --repository=org/name --license=apache-2.0

Exports it as `export.export_sentence_transformers` does, into a temporary folder, and uploads it.
It needs a token that may write, of `hf auth login` or in HF_TOKEN. A repository that is made here
is private unless `--noprivate` is given.
"""

import re
import tempfile
from pathlib import Path
from typing import Any

from absl import flags

from official_cmlm import cli
from official_cmlm.common.errors import UserError

from . import export_sentence_transformers

FLAGS = flags.FLAGS
_NAME = re.compile(r"[\w-][\w.-]*/[\w.-]*\w")


def define_flags() -> None:
    """Defines the flags: encoder, repository, and the fields of the model card."""
    flags.DEFINE_string("repository", None, "Name on the hub, as org/name. Required.")
    flags.DEFINE_bool("private", True, "Whether a repository that is made here is private.")
    cli.define_model_name()
    export_sentence_transformers.define_card()
    cli.define_import_module()
    cli.required("model", "repository")


def main(argv: list[str]) -> None:
    """Runs the binary."""
    del argv
    name = FLAGS.repository
    if not _NAME.fullmatch(name):
        raise UserError(f"--repository={name:.60}: is not a name of the hub; give org/name")
    card = export_sentence_transformers.card()
    import huggingface_hub

    if huggingface_hub.get_token() is None:
        raise UserError(
            "no token of the Hugging Face hub; run `hf auth login`, or set HF_TOKEN to one that "
            "may write"
        )
    # This comes before the export, as it finds out whether the hub can be reached and written.
    _asked(name, huggingface_hub.create_repo, private=FLAGS.private, exist_ok=True)
    cli.import_tensorflow()
    cli.import_modules()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / name.rpartition("/")[2]
        export_sentence_transformers.export(FLAGS.model, str(folder), **card, overwrite=False)
        cli.announce(f"uploading to {name} …")
        print(_asked(name, huggingface_hub.upload_folder, folder_path=folder))


def _asked(name: str, call: Any, **arguments: Any) -> Any:
    """Calls a function of the hub for a repository; its failures become a `UserError`."""
    try:
        return call(repo_id=name, **arguments)
    except Exception as error:  # Errors of the network and the hub have no common class.
        raise UserError(
            f"{name}: the hub did not take it ({type(error).__name__}: {str(error)[:300]}); check "
            "the network, the name and the token"
        ) from None


if __name__ == "__main__":
    define_flags()
    cli.run(main)
