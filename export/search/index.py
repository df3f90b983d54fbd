"""Makes files searchable by meaning: `cmlm index my/ --model=work/model --to=my.index`.

Folders are walked; text, Markdown and HTML files are cut into passages, tables and JSON lines give
one text a row. The same command again reads only what is new or has changed, and forgets what is
gone. The index remembers model and settings, so `cmlm search my.index "a question"` needs neither.
"""

import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from absl import flags

from official_cmlm import cli
from official_cmlm.common import progress
from official_cmlm.common.errors import UserError

FLAGS = flags.FLAGS
_FORMS = {".txt": "text", ".md": "markdown", ".markdown": "markdown"}
_FORMS |= {".html": "html", ".htm": "html"}
_TABLES = (".csv", ".tsv", ".jsonl", ".ndjson", ".parquet")


def define_flags() -> None:
    """Defines the flags: files, encoder, index."""
    flags.DEFINE_list("input", None, "Files and folders. Required.")
    flags.DEFINE_string("index", None, "Folder of the index, made or added to. Required.")
    cli.define_model()
    flags.DEFINE_string("column", "", "Column of tables, or field of objects, with the text.")
    flags.DEFINE_integer(
        "words",
        None,
        "Most words of a passage. Default: 0.6 a token that the encoder reads, at most 200.",
        lower_bound=10,
    )
    flags.DEFINE_enum(
        "embedding_precision",
        "float32",
        ["float32", "float16", "int8", "bits"],
        "Bits that a new index keeps of each vector.",
    )
    flags.DEFINE_bool("approximate", False, "Whether a new index searches a graph; for millions.")
    cli.required("input", "index")


def main(argv: list[str]) -> None:
    """Runs the binary."""
    del argv
    from official_cmlm.common.files import check_writable
    from official_cmlm.encoding.encoders import load_model, model_settings
    from official_cmlm.encoding.sentence_encoder import TextCutWarning
    from official_cmlm.search import Index

    path = Path(os.path.abspath(os.path.expanduser(FLAGS.index)))
    is_there = os.path.lexists(path)
    before: dict[str, Any] = Index.read_settings(path) if is_there else {}
    if is_there and "files" not in before:
        raise UserError(f"{path}: an index that was not made by this command; name another --index")
    chosen = model_settings()
    if not is_there and not chosen["model"]:
        raise UserError("--model is missing; name the encoder of the new index")
    encoder_settings = before.get("encoder", chosen)
    for name, value in encoder_settings.items():
        if FLAGS[name].present and chosen[name] != value:
            raise UserError(f"{path}: made with --{name}={value}; give that, or another index")
    files = list(dict.fromkeys(_files(FLAGS.input, path)))
    if not files:
        raise UserError(
            f"{', '.join(FLAGS.input)}: no files of {', '.join([*_FORMS, *_TABLES])}; check --input"
        )
    check_writable(path, is_folder=True)
    cli.quiet_tensorflow()
    cli.announce(f"reading {len(files)} files …")
    known, states, changed = before.get("files", {}), {}, []
    for file in files:
        states[file] = _state(file, known.get(file))
        if states[file][2] != known.get(file, ["", "", ""])[2]:
            changed.append(file)
    roots = [os.path.abspath(root) for root in FLAGS.input]
    for file in known:
        # Files that are not below this call's inputs stay.
        if file not in states and not any(_is_below(file, root) for root in roots):
            states[file] = known[file]
    gone = set(known) - set(states)
    if not changed and not gone:
        return print(f"{FLAGS.index}: {len(files)} files, nothing is new")
    encoder = load_model("bulk", encoder_settings)
    words = before.get("words") or FLAGS.words or min(200, int(0.6 * encoder.max_seq_length))
    ids, texts, metadata = [], [], []
    with progress.bar(len(changed), "file", "reading") as bar:
        for file in changed:
            try:
                found = list(_passages(file, words))
            except UserError as error:
                if file in roots:
                    raise
                # A folder may hold tables of other things.
                cli.warn(f"left out: {error}")
                found = []
            for number, (line, text) in enumerate(found):
                ids.append(f"{file}:{line}:{number}")
                texts.append(text)
                metadata.append({"file": file, "line": line})
            bar.update(1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", TextCutWarning)
        if is_there:
            index = Index.load(path, encoder)
            stale = gone | (set(changed) & set(known))
            index.remove([one for one in index.ids if one.rsplit(":", 2)[0] in stale])
            index.add(texts, ids, None, metadata, show_progress=True)
        elif texts:
            options = (FLAGS.embedding_precision, FLAGS.approximate)
            index = Index.build(encoder, texts, *options, None, ids, metadata, show_progress=True)
        else:
            raise UserError(f"{', '.join(FLAGS.input)}: no text in {len(files)} files; check them")
    cut = 0
    for one in caught:
        if isinstance(one.message, TextCutWarning):
            cut += one.message.texts
        else:
            warnings.warn(one.message, stacklevel=1)
    if cut:
        cli.warn(
            f"{cut} of {len(texts)} passages have more than {encoder.max_seq_length} tokens, and "
            "their ends are not found; make the index anew with fewer --words"
        )
    index.settings = {"encoder": encoder_settings, "words": words, "files": states}
    index.save(path, overwrite=is_there)
    print(
        f"{FLAGS.index}: {len(index)} passages of {len(states)} files; {len(changed)} files new or "
        f"changed, {len(gone)} gone"
    )


def _files(inputs: list[str], index: Path) -> Iterator[str]:
    """Yields the input files and, of input folders, all files below with a known suffix."""
    for name in inputs:
        root = os.path.abspath(os.path.expanduser(name))
        if os.path.isfile(root):
            if not root.lower().endswith((*_FORMS, *_TABLES)):
                raise UserError(f"{root}: not of {', '.join([*_FORMS, *_TABLES])}")
            yield root
            continue
        if not os.path.isdir(root):
            raise UserError(f"{root}: no such file or folder; check the path")
        for folder, folders, names in os.walk(root):
            folders[:] = sorted(
                one for one in folders if one[0] != "." and os.path.join(folder, one) != str(index)
            )
            for one in sorted(names):
                path = os.path.join(folder, one)
                if one[0] != "." and one.lower().endswith((*_FORMS, *_TABLES)):
                    if os.path.isfile(path):
                        yield path


def _is_below(file: str, root: str) -> bool:
    return file == root or file.startswith(root.rstrip("/") + "/")


def _state(file: str, known: list | None) -> list:
    """Returns size, time and digest of a file; with known size and time, the known digest."""
    from official_cmlm.common.files import sha256

    try:
        found = os.stat(file)
        if known and known[:2] == [found.st_size, found.st_mtime_ns]:
            return known
        return [found.st_size, found.st_mtime_ns, sha256(file)]
    except OSError as error:
        raise UserError(f"{file}: cannot be read ({error.strerror})") from None


def _passages(file: str, words: int) -> Iterator[tuple[int, str]]:
    """Yields line and text of the passages of a file."""
    from official_cmlm.common.text_files import Reading, read_rows
    from official_cmlm.search.passages import passages

    suffix = os.path.splitext(file)[1].lower()
    if suffix in _FORMS:
        with open(file, "rb") as opened:
            content = opened.read()
        try:
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            text = content.decode("utf-8-sig", "replace")
            cli.warn(f"{file}: is not UTF-8 from byte {error.start} on; such words are not found")
        yield from passages(text, _FORMS[suffix], words)
        return
    for row in read_rows(file, Reading(column=FLAGS.column)):
        for found in passages(row.text, "text", words):
            yield row.number, found.text


if __name__ == "__main__":
    define_flags()
    cli.run(main)
