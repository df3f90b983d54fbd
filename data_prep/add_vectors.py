"""Adds a teacher's vectors to records: `cmlm add-vectors`.

    cmlm add-vectors data/records --model=all-MiniLM-L6-v2 --to=data/taught

A training with the objective `distillation` reads them. They are computed here once, by any encoder
that this project opens. The student has the vocabulary of the records. The teacher reads their
text if they hold it (--keep_text): pairs that have roles with its own prompts for these, all else
with its default prompt; queries and documents for which it has no prompt get none. Otherwise it
must have the same vocabulary and reads the token ids as they are. Equal texts are encoded once. The
shards and the order of the records stay the same.
"""

import dataclasses
import functools
import os
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from absl import flags

from official_cmlm import cli
from official_cmlm.common import progress
from official_cmlm.common.errors import UserError
from official_cmlm.common.validation import OneOf
from official_cmlm.records.teacher_vectors import texts_of

if TYPE_CHECKING:
    import numpy as np
    import tensorflow as tf

    from official_cmlm.encoding.sentence_encoder import SentenceEncoder
    from official_cmlm.records.manifest import Manifest

# Texts that an encoder gets at a time: enough to sort them by length, and to show progress.
_TEXTS = 4096
# Most texts whose vectors are remembered from one shard to the next: about 0.4 GB of vectors of 384
# components, with their texts.
_MOST_REMEMBERED = 300_000


@dataclasses.dataclass(frozen=True)
class Options:
    """The records that are read, and those that are written.

    Attributes:
      records: folder of records.
      output_dir: folder to write; it appears when complete.
      overwrite: whether to replace existing records.
      keep_text: whether the new records hold the text too.
      targets: own (default): each text gets its own vector; first: both texts of a pair get that of
        the first, the only one that the teacher reads, as translations of it need.
    """

    records: str
    output_dir: str
    overwrite: bool = False
    keep_text: bool = True
    targets: Annotated[str, OneOf(("own", "first"))] = "own"


def define_flags() -> None:
    """Defines the flags of the records, the teacher and the output."""
    cli.define(Options)
    cli.define_model()


def main() -> None:
    """Runs the binary."""
    from official_cmlm.records.manifest import join, load_manifest, load_records_vocabulary
    from official_cmlm.records.teacher_vectors import token_ids_of
    from official_cmlm.tokenization.vocabulary import token_rows

    from .output.folder import check_place, fill_folder

    options, model = cli.read(Options), flags.FLAGS.model
    manifest = load_manifest(options.records)
    check_place(
        options.output_dir, [join(options.records, shard.name) for shard in manifest.shards]
    )
    if options.targets == "first" and manifest.kind != "pairs":
        raise UserError(
            f"--records={options.records}: they hold {manifest.kind}; --targets=first is for pairs"
        )
    cli.import_tensorflow()
    from official_cmlm.encoding.encoders import load_model

    teacher, read = load_model("bulk"), texts_of
    encode = teacher.encode
    if not manifest.keep_text:
        if load_records_vocabulary(options.records, manifest).hash != teacher.vocabulary.hash:
            raise UserError(
                f"--records={options.records}: the records hold no text for the teacher to read, "
                "and it has another vocabulary; make them again with --keep_text"
            )
        read, encode = token_ids_of, lambda rows: teacher.encode_rows(token_rows(rows))
    elif manifest.roles:
        check_teacher_roles(manifest.roles, teacher, options.records)
        prompts = [teacher.find_prompt(role) for role in manifest.roles]
        encode = functools.partial(teacher.encode, prompt="")

        def read(record: "tf.train.Example", kind: str) -> list[str]:
            return [prompt + text for prompt, text in zip(prompts, texts_of(record, kind))]

    with fill_folder(Path(options.output_dir), options.overwrite) as folder:
        taught = write_taught(
            options.records, folder, encode, model, options.keep_text, read, options.targets
        )
    print(
        f"{options.output_dir}: {taught.records} records with vectors of {taught.vector_size} "
        f"components by {model}"
    )


def check_teacher_roles(roles: list[str], teacher: "SentenceEncoder", records: str) -> None:
    """Raises `UserError` if pairs have a role that is not among the names of a teacher's prompts.

    `query` and `document` always are: as in `encode_query`, they may have no prompt.
    """
    from official_cmlm.evaluation.encoder import check_roles

    if set(roles) <= set(teacher.prompts):
        return
    try:
        check_roles(roles, [name for name in teacher.prompts if teacher.find_prompt(name)])
    except UserError as error:
        raise UserError(f"--records={records}: made with {error}") from None


def write_taught(
    records: str | os.PathLike,
    folder: Path,
    encode: Callable[[list], "np.ndarray"],
    model: str,
    keep_text: bool,
    read: Callable[["tf.train.Example", str], list] = texts_of,
    targets: str = "own",
) -> "Manifest":
    """Copies records into an empty folder, and adds the vectors of their texts.

    Args:
      records, folder: the folders that are read and written.
      encode: the teacher, which turns results of `read` into float `[texts, size]`. It gets equal
        texts once, or once each 300,000 other texts.
      model: the teacher's name.
      keep_text: whether the new records hold the text too, if there is one.
      read: returns the texts of a record, or their token ids as tuples.
      targets: see `Options`.

    Returns:
      The new manifest, which is in `folder` too.
    """
    import numpy as np

    from official_cmlm.records.manifest import join, load_manifest, load_records_vocabulary
    from official_cmlm.records.teacher_vectors import add_vectors

    from .output.folder import ShardWriter

    manifest = load_manifest(records)
    # Each call of `write` makes a whole shard: with `max_bytes=1` the next call begins another.
    writer = ShardWriter(folder, manifest.kind, max_bytes=1)
    known: dict[Hashable, np.ndarray] = {}
    # A hard negative has no vector.
    with progress.bar(manifest.sentences - manifest.negatives, "text", "adding vectors") as bar:
        for shard in manifest.shards:
            records_of_shard = _read(join(records, shard.name))
            texts = [read(record, manifest.kind) for record in records_of_shard]
            if targets == "first":
                texts = [some[:1] * len(some) for some in texts]
            if len(known) > _MOST_REMEMBERED:
                known.clear()
            each = [text for some in texts for text in some]
            new = list(dict.fromkeys(text for text in each if text not in known))
            if new:
                vectors = encode_in_pieces(new, encode, bar.update).astype("<f2")
                known.update(zip(new, vectors))
            bar.update(len(each) - len(new))
            parts = (np.array([known[text] for text in some]) for some in texts)
            rows = zip(records_of_shard, parts, strict=True)
            writer.write(shard.language, *(add_vectors(*row, keep_text) for row in rows))
    writer.close()
    load_records_vocabulary(records, manifest).save(folder)
    described = {"model": model, "size": len(next(iter(known.values())))}
    taught = dataclasses.replace(
        manifest,
        shards=writer.shards,
        keep_text=keep_text and manifest.keep_text,
        vectors=described,
    )
    taught.save(folder)
    return taught


def _read(path: str) -> list["tf.train.Example"]:
    import tensorflow as tf

    stored = tf.data.TFRecordDataset(path).as_numpy_iterator()
    return [tf.train.Example.FromString(record) for record in stored]


def encode_in_pieces(
    texts: list, encode: Callable[[list], "np.ndarray"], update: Callable[[int], object]
) -> "np.ndarray":
    """Returns the vectors of texts, float32 `[texts, size]`; `update` moves a progress bar."""
    import numpy as np

    vectors = None
    for start in range(0, len(texts), _TEXTS):
        part = encode(texts[start : start + _TEXTS])
        if vectors is None:
            vectors = np.empty([len(texts), part.shape[1]], part.dtype)
        vectors[start : start + len(part)] = part
        update(len(part))
    return vectors


if __name__ == "__main__":
    define_flags()
    cli.run(main)
