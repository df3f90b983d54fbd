"""Makes files searchable by meaning: `cmlm index my/ --to=my.index`.

Folders are walked; text, Markdown, HTML, PDF and Word files are cut into passages, tables and JSON
lines give one text a row; `-` is text from standard input. The same command again reads only what
is new or has changed, and forgets what is gone. The index remembers model and settings, so `cmlm
search my.index "a question"` needs neither. Ctrl-C leaves an index of the files that are finished.
"""

import dataclasses
import functools
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from absl import flags

from official_cmlm import cli
from official_cmlm.common import progress, signals
from official_cmlm.common.errors import UserError, list_names
from official_cmlm.common.extras import is_installed
from official_cmlm.common.validation import OneOf, at_least, read_dataclass

if TYPE_CHECKING:
    from official_cmlm.search import Index
    from official_cmlm.search.passages import Passage

FLAGS = flags.FLAGS
# Passages that are encoded together, if a file does not have more.
_GROUP = 64
# The best passages for questions of another field are seldom nearer than those for these.
_FAR = (
    *("How do whales breathe under water?", "What is the capital of Mongolia?"),
    *("How is cheese made from milk?", "When did the first train run?", "Where is coffee grown?"),
    *("How many players has a football team?", "Which planet has the most moons?"),
    *("Who painted the ceiling of the chapel?", "What causes an earthquake?"),
    *("How much does an elephant weigh?", "What is the speed of light?", "How do I tie a tie?"),
    *("What are the rules of chess?", "Which king lost his crown in the war?"),
    *("How do vaccines protect us?", "How do I reset my password?", "What does a notary do?"),
)
_FAR_SHARE = 0.75
_FORMS = {".txt": "text", ".md": "markdown", ".markdown": "markdown"}
_FORMS |= {".html": "html", ".htm": "html"}
_SUFFIXES = (*_FORMS, ".csv", ".tsv", ".jsonl", ".ndjson", ".parquet", ".docx", ".pdf")


@dataclasses.dataclass(frozen=True)
class IndexOptions:
    """The files that become an index, and its form.

    Attributes:
      input: files and folders; - for text from standard input.
      index: folder of the index, made or added to.
      column: column of tables, or field of objects, with the text.
      words: most words of a passage, which never has more tokens than the encoder reads.
      embedding_precision: bits that a new index keeps of each vector.
      approximate: whether a new index searches a graph; for millions.
    """

    input: tuple[str, ...]
    index: str
    column: str = ""
    words: Annotated[int, at_least(10)] = 200
    embedding_precision: Annotated[str, OneOf(("float32", "float16", "int8", "bits"))] = "float32"
    approximate: bool = False


@dataclasses.dataclass(frozen=True)
class EncoderSettings(cli.Computation):
    """The arguments of `SentenceEncoder.load` that an index stores.

    Attributes:
      model: the encoder; empty: not named.
      pooling, sentence_vector: the vector. Default: the encoder's own.
    """

    model: str = ""
    pooling: str | None = None
    sentence_vector: str | None = None


@dataclasses.dataclass(frozen=True)
class IndexSettings:
    """The settings of an index, as this command stores them.

    Attributes:
      encoder: the encoder that made the vectors.
      words: most words of a passage; 0: not known.
      files: size, time and digest of each file; None: the index is another program's.
      root: the folder that all files are below.
      near: cosine that the best passages for questions of other fields seldom reach.
    """

    encoder: EncoderSettings = EncoderSettings()
    words: int = 0
    files: dict[str, list] | None = None
    root: str = ""
    near: float = -1.0

    @classmethod
    def read(cls, path: str | os.PathLike) -> "IndexSettings":
        """Reads those of an index; raises `UserError` if there is none or they are damaged."""
        from official_cmlm.search import Index

        values = Index.read_settings(path)
        # Another program may keep settings of its own under the same names.
        return read_dataclass(cls, values if "files" in values else {}, f"{path}: settings")


def define_flags() -> None:
    """Defines the flags: files, encoder, index."""
    cli.define(IndexOptions)
    cli.define_model(required=False)


def main() -> None:
    """Runs the binary."""
    options = cli.read(IndexOptions)
    cli.announce(f"reading {', '.join(options.input)} …")
    change, left_out = update_index(options, _choose_encoder(options.index))
    announce_left_out(left_out)
    print(f"{options.index}: {change or 'nothing is new'}")


def update_index(
    options: IndexOptions, encoder_settings: EncoderSettings
) -> tuple[str, Counter[str]]:
    """Makes an index of files, or reads into it what is new or has changed since.

    Args:
      options: the files and the index.
      encoder_settings: the encoder, which the index stores.

    Returns:
      What was done, in words, empty if nothing was new; and suffix -> number of the files of
      folders that were left out.

    Raises:
      UserError: if files or the index cannot be read or written, or the files hold no text.
      KeyboardInterrupt: after Ctrl-C; the index then holds the files that were finished.
    """
    from official_cmlm.common.files import check_writable
    from official_cmlm.encoding.encoders import load_model
    from official_cmlm.search import Index

    path = Path(os.path.abspath(os.path.expanduser(options.index)))
    exists = os.path.lexists(path)
    before = IndexSettings.read(path) if exists else IndexSettings(files={})
    if before.files is None:
        raise UserError(f"{path}: an index that was not made by this command; name another --index")
    roots = [
        root if root == "-" else os.path.abspath(os.path.expanduser(root)) for root in options.input
    ]
    files, left_out = _list_files(roots, str(path))
    check_writable(path, is_folder=True)
    earlier = before.files
    # Files that are not below this call's inputs stay.
    states = {name: s for name, s in earlier.items() if not any(_is_below(name, r) for r in roots)}
    states |= {file: _read_state(file, earlier.get(file)) for file in files}
    changed = [name for name in files if states[name][2:] != earlier.get(name, [])[2:]]
    removed = set(earlier) - set(states)
    if not changed and not removed:
        return "", left_out
    encoder = load_model("bulk", dataclasses.asdict(encoder_settings))
    words = before.words or options.words
    passages = _read_files(changed, make_cutter(encoder, words), options.column, roots)
    if exists:
        index = Index.load(path, encoder)
        stale = removed | (set(changed) & set(earlier))
        index.remove([name for name in index.ids if name.rsplit(":", 2)[0] in stale])
    elif any(passages.values()):
        form = {"precision": options.embedding_precision, "approximate": options.approximate}
        index = Index.make_empty(encoder, **form)
    else:
        raise UserError(f"{', '.join(roots)}: no text in {len(files)} files; check them")
    done: set[str] = set()
    try:
        _add_files(index, encoder, passages, done)
    except KeyboardInterrupt:
        if not len(index) or not done:
            raise
        states = {name: s for name, s in states.items() if name in done or name not in passages}
        kept = f"{path} has {len(done)} of {len(changed)} files; give the same command again for"
        with signals.keeping(f"{kept} the others"):
            _save(index, path, exists, encoder_settings, words, states)
    _save(index, path, exists, encoder_settings, words, states)
    change = f"{len(changed)} files new or changed, {len(removed)} gone"
    return f"{len(index)} passages of {len(states)} files; {change}", left_out


def make_cutter(encoder: Any, words: int = 200) -> Callable[..., "list[Passage]"]:
    """Returns `split_passages` for passages that an encoder reads to the end."""
    from official_cmlm.search.passages import split_passages

    prompt = encoder.find_prompt("document")
    around = encoder.count_tokens([""], prompt="")[0]

    def count(words: list[str]) -> Any:
        # Some vocabularies have tokens that begin with a space.
        return encoder.count_tokens([f" {word}" for word in words], prompt="") - around

    tokens = encoder.max_seq_length - int(encoder.count_tokens([""], prompt=prompt)[0])
    return functools.partial(split_passages, words=words, tokens=tokens, count=count)


def announce_left_out(left_out: Counter[str]) -> None:
    """Says how many files of each suffix were left out, if any were."""
    counts = [
        f"{number} {suffix or 'without a suffix'}" for suffix, number in left_out.most_common()
    ]
    if counts:
        advice = '; pip install ".[documents]" reads PDF' if left_out[".pdf"] else ""
        cli.announce(f"left out: {list_names(counts, 9)}{advice}")


def _choose_encoder(index: str) -> EncoderSettings:
    """Returns the encoder's settings; raises `UserError` if flags are not those of the index."""
    from official_cmlm.encoding.encoders import model_settings

    exists = os.path.lexists(os.path.expanduser(index))
    of_index = IndexSettings.read(index).encoder if exists else EncoderSettings()
    if not of_index.model:
        cli.take_default_model()
        return EncoderSettings(**model_settings())
    of_flags = model_settings()
    for name, value in dataclasses.asdict(of_index).items():
        if FLAGS[name].present and of_flags[name] != value:
            raise UserError(f"{index}: made with --{name}={value}; give that, or another index")
    return of_index


def _save(
    index: "Index", path: Path, exists: bool, encoder: EncoderSettings, words: int, states: dict
) -> None:
    import numpy as np

    folders = [os.path.dirname(file) for file in states]
    root = "" if "-" in states else os.path.commonpath(folders or [""])
    best = [hits[0].score for hits in index.search(_FAR, k=1) if hits]
    near = float(np.quantile(best or [-1.0], _FAR_SHARE))
    index.settings = dataclasses.asdict(IndexSettings(encoder, words, states, root, near))
    index.save(path, overwrite=exists)


def _read_files(
    files: list[str], cut: Callable[..., "list[Passage]"], column: str, roots: list[str]
) -> "dict[str, list[Passage]]":
    """Returns file -> its passages."""
    passages: dict[str, list[Passage]] = {}
    with progress.bar(len(files), "file", "reading") as bar:
        for file in files:
            try:
                passages[file] = list(read_passages(file, cut, column))
            except UserError as error:
                if file in roots:
                    raise
                # A folder may hold tables of other things.
                cli.warn(f"left out: {error}")
                passages[file] = []
            bar.update(1)
    return passages


def _add_files(
    index: "Index", encoder: Any, passages: "dict[str, list[Passage]]", done: set[str]
) -> None:
    """Encodes passages and adds them to an index; `done` gets the files all of whose are there."""

    def add(files: list[str], vectors: Any) -> None:
        rows = [
            (
                f"{file}:{one.line}:{number}",
                one.text,
                {"file": file, "line": one.line}
                | ({"heading": one.heading} if one.heading else {}),
            )
            for file in files
            for number, one in enumerate(passages[file])
        ]
        if rows:
            ids, texts, metadata = map(list, zip(*rows))
            index.add(texts, ids, vectors, metadata)
        done.update(files)

    count = sum(map(len, passages.values()))
    with (
        progress.bar(count, "passage", "encoding") as bar,
        # An interrupt, which only the main thread gets, lets it add the group to the end.
        ThreadPoolExecutor(1) as adding,
    ):
        files, texts = [], []
        for number, (file, of_file) in enumerate(passages.items(), 1):
            files.append(file)
            texts += [passage.text for passage in of_file]
            if len(texts) >= _GROUP or number == len(passages):
                vectors = encoder.encode_document(texts, show_progress_bar=bar.update)
                adding.submit(add, files, vectors).result()
                files, texts = [], []


def _list_files(roots: list[str], index: str) -> tuple[list[str], Counter[str]]:
    """Returns the input files and, of input folders, all files below that can be read by suffix.

    The second result counts the other files below by suffix.
    """
    from official_cmlm.common.files import refuse_special
    from official_cmlm.common.input_files import walk_files

    paths: list[str] = []
    for root in roots:
        refuse_special(root)
        if os.path.isdir(root):
            # A link in a folder may lead to nothing; a folder may have been emptied since.
            paths += sorted(path for path in walk_files(root) if os.path.isfile(path))
        elif root == "-":
            paths.append(root)
        elif not os.path.exists(root):
            raise UserError(f"{root}: no such file or folder; check the path")
        elif not root.lower().endswith(_SUFFIXES):
            raise UserError(f"{root}: not of {', '.join(_SUFFIXES)}")
        else:
            paths.append(root)
    paths = [path for path in dict.fromkeys(paths) if not _is_below(path, index)]
    suffixes = _SUFFIXES if is_installed("pypdf") else _SUFFIXES[:-1]
    files = [path for path in paths if path.lower().endswith(suffixes) or path in roots]
    left_out = Counter(os.path.splitext(path)[1].lower() for path in set(paths) - set(files))
    if not files:
        announce_left_out(left_out)
        raise UserError(f"{', '.join(roots)}: no files of {', '.join(_SUFFIXES)}; check the path")
    return files, left_out


def _is_below(file: str, root: str) -> bool:
    return file == root or file.startswith(root.rstrip("/") + "/")


def _read_state(file: str, earlier: list | None) -> list:
    """Returns size, time and digest of a file; with the earlier size and time, the same digest."""
    from official_cmlm.common.files import sha256

    if file == "-":
        # Standard input can be read once, so it counts as changed.
        return [0, 0, os.urandom(16).hex()]
    try:
        facts = os.stat(file)
        if earlier and earlier[:2] == [facts.st_size, facts.st_mtime_ns]:
            return earlier
        return [facts.st_size, facts.st_mtime_ns, sha256(file)]
    except OSError as error:
        raise UserError(f"{file}: cannot be read ({error.strerror})") from None


def read_passages(
    file: str, cut: Callable[..., "list[Passage]"], column: str = ""
) -> "Iterator[Passage]":
    """Yields the passages of a file; their lines are those of a table's rows, or a PDF's pages."""
    from official_cmlm.common.files import read_bytes
    from official_cmlm.common.text_files import UTF16_BOMS, Reading, read_rows
    from official_cmlm.search.documents import read_docx, read_pdf

    suffix = os.path.splitext(file)[1].lower()
    form = "text" if file == "-" else _FORMS.get(suffix)
    if form:
        content = sys.stdin.buffer.read() if file == "-" else read_bytes(file)
        coding = "utf-16" if content.startswith(UTF16_BOMS) else "utf-8-sig"
        text = content.decode(coding, "replace")
        if content.startswith((b"%PDF", b"PK\3\4")) or "\0" in text:
            raise UserError(f"{file}: no text; name a PDF or Word file, with its suffix, as input")
        try:
            content.decode(coding)
        except UnicodeDecodeError as error:
            cli.warn(f"{file}: is not UTF-8 from byte {error.start} on; such words are not found")
        yield from cut(text, form)
        return
    if suffix == ".docx":
        yield from cut(read_docx(file), "html")
        return
    if suffix == ".pdf":
        texts = enumerate(read_pdf(file), 1)
    else:
        reading = Reading(column=column, on_missing="empty")
        texts = ((row.number, row.text) for row in read_rows(file, reading))
    for number, text in texts:
        for passage in cut(text, "text"):
            yield passage._replace(line=number)


if __name__ == "__main__":
    define_flags()
    cli.run(main)
