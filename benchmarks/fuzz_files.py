"""Mutated files for `benchmarks.fuzz`: every reader of the project against damaged input.

A reader has to answer any file with a result or with one line (`UserError`). Everything else is a
fault: another exception, a message of several lines, a result that is not finite.
"""

import abc
import dataclasses
import gzip
import json
import random
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.fuzz_targets import Outcome, Target, write_encoder
from official_cmlm.errors import UserError

if TYPE_CHECKING:
    from official_cmlm.tokenization import Vocabulary

# Files of a case, all of one reader.
_CASE = 40
_MOST_LETTERS = 2000
_WORDS = "the cat sat on mat a dog ran over it and then slept".split()
_VALUES = [
    *(None, True, False, 0, 1, -1, 3, 2**31, 2**63, -(2**63) - 1, 10**30, 10**400, 0.5, -0.0),
    *(1e-320, 1e308, float("nan"), float("inf"), "", "a", "../x", "/etc/passwd", "a\0b", "\ud800"),
    *("<script>", "|\n|", "1" * 5000, [], {}, [[]], [None], {"": ""}, [[[[[]]]]], {"a": {"a": {}}}),
]
_BYTES = [
    *(
        b"\0",
        b"\xff",
        b"\xef\xbb\xbf",
        b"\n",
        b"\r\n",
        b"-1",
        b"9" * 30,
        b"1e999",
        b"{",
        b"]",
        b'"',
    ),
    *(
        b'"',
        b"[" * 5000,
        b"../",
        b"\xed\xa0\x80",
        b"NaN",
        b": &a [*a]",
        b"!!python/object:os.system x",
    ),
]


@dataclasses.dataclass(frozen=True)
class Mutation:
    """A file as it is tried.

    Attributes:
      name: of the file, inside the reader's folder.
      content: what is in it.
    """

    name: str
    content: bytes

    def packed(self) -> bytes:
        """Name and content in one piece, as the driver writes items down."""
        return self.name.encode() + b"\0" + self.content

    @classmethod
    def unpacked(cls, item: bytes) -> "Mutation":
        """What `packed` made."""
        name, _, content = item.partition(b"\0")
        return cls(name.decode(), content)


def mutated(content: bytes, rng: random.Random) -> bytes:
    """The content with one to three changes; of JSON usually a change of its values."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        if content[:1] in b"{[" and rng.random() < 0.7:
            content = _other_value(content, rng)
        else:
            content = _other_bytes(content, rng)
    return content


def _other_value(content: bytes, rng: random.Random) -> bytes:
    """JSON with a value replaced, or a key removed, renamed or added."""
    try:
        root = json.loads(content)
    except (ValueError, RecursionError):
        return _other_bytes(content, rng)
    places: list[tuple[Any, Any]] = []

    def collect(node: Any) -> None:
        keys = list(node) if isinstance(node, dict) else range(len(node))
        for key in keys:
            places.append((node, key))
            if isinstance(node[key], (dict, list)):
                collect(node[key])

    if isinstance(root, (dict, list)):
        collect(root)
    if not places:
        return json.dumps(rng.choice(_VALUES)).encode("utf-8", "surrogatepass")
    node, key = rng.choice(places)
    what = rng.random()
    if what < 0.7:
        node[key] = rng.choice(_VALUES)
    elif what < 0.85:
        del node[key]
    elif isinstance(node, dict):
        node[str(rng.choice(_VALUES))[:100]] = node.pop(key)
    else:
        node.append(rng.choice(_VALUES))
    return json.dumps(root, ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass")


def _other_bytes(content: bytes, rng: random.Random) -> bytes:
    data, size = bytearray(content), len(content)
    start = rng.randrange(size + 1)
    length = min(int(10 ** rng.uniform(0, 3)), size - start)
    kind = rng.randrange(8)
    if kind == 0 and size:
        data[rng.randrange(size)] ^= 1 << rng.randrange(8)
    elif kind == 1:
        del data[start : start + length]
    elif kind == 2:
        data[start:start] = rng.randbytes(rng.choice((1, 4, 100)))
    elif kind == 3:
        del data[start:]
    elif kind == 4:
        data[start : start + length] = data[start : start + length] * 2
    elif kind == 5:
        data[start : start + rng.choice((0, 1, 4))] = rng.choice(_BYTES)
    elif kind == 6:
        numbers = list(re.finditer(rb"\d+", content[: 1 << 16]))
        if numbers:
            found = rng.choice(numbers)
            data[found.start() : found.end()] = rng.choice((b"0", b"-1", b"9" * 12, b"1e400", b""))
    else:
        lines = content.split(b"\n")
        rng.shuffle(lines)
        data = bytearray(b"\n".join(lines))
    return bytes(data)


class Files(Target[bytes]):
    """One reader. Each item replaces a file of a valid folder, which is then read."""

    # Weight of each file that is mutated, by name; others stay as they are.
    files: dict[str, int]

    @abc.abstractmethod
    def write(self, folder: Path) -> None:
        """Writes the valid folder."""

    @abc.abstractmethod
    def read(self, folder: Path, name: str) -> None:
        """Reads the folder; a `UserError` is an answer.

        Args:
          folder: the folder.
          name: the file that was mutated.

        Raises:
          ArithmeticError: for a result that is not finite.
        """

    def make_case(self, rng: random.Random) -> list[bytes]:
        valid = self._valid()
        names = rng.choices(list(valid), [self.files[name] for name in valid], k=_CASE)
        return [Mutation(name, mutated(valid[name], rng)).packed() for name in names]

    def _valid(self) -> dict[str, bytes]:
        """Content of the files, made once in each process."""
        if not hasattr(self, "_contents"):
            import tempfile

            with tempfile.TemporaryDirectory() as folder:
                root = Path(folder) / "valid"
                root.mkdir()
                self.write(root)
                self._contents = {name: (root / name).read_bytes() for name in self.files}
        return self._contents

    def open(self, folder: Path) -> None:
        self._folder = folder / "valid"
        # A process that crashed has left a mutated file there.
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir()
        self.write(self._folder)
        for name in self.files:
            self.read(self._folder, name)

    def run(self, case: list[bytes]) -> Outcome:
        counts = {"read": 0, "refused": 0}
        faults = []
        for index, item in enumerate(case):
            mutation = Mutation.unpacked(item)
            path = self._folder / mutation.name
            before = path.read_bytes()
            path.write_bytes(mutation.content)
            try:
                self.read(self._folder, mutation.name)
                counts["read"] += 1
            except UserError as error:
                counts["refused"] += 1
                message = str(error)
                if "\n" in message or len(message) > _MOST_LETTERS:
                    faults.append(("not one line", index))
            except Exception as error:
                faults.append((f"{type(error).__name__} ({mutation.name})", index))
            finally:
                path.write_bytes(before)
        return Outcome(counts, faults)


def _vocabulary() -> "Vocabulary":
    from official_cmlm.tokenization import WordPieceVocabulary

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    letters = [chr(code) for code in range(97, 123)]
    tokens = [*special, *letters, *(f"##{letter}" for letter in letters), *_WORDS]
    return WordPieceVocabulary(tuple(dict.fromkeys(tokens)), True, 100)


def _encoder_directory(folder: Path, with_head: bool = False) -> None:
    write_encoder(
        folder,
        _vocabulary(),
        max_seq_length=16,
        with_head=with_head,
        hidden_size=8,
        num_layers=1,
        intermediate_size=16,
        max_position_embeddings=24,
    )


class EncoderDescription(Files):
    """`encoder_config.json` and the vocabulary of an encoder directory."""

    name = "files of an encoder directory"
    files = {"encoder_config.json": 3, "vocab.txt": 1, "vocab.json": 1}  # noqa: RUF012

    def write(self, folder: Path) -> None:
        _encoder_directory(folder)

    def read(self, folder: Path, name: str) -> None:
        from official_cmlm.checkpoints.encoder_directory import read_description

        config, _, _ = read_description(folder)
        config.check_memory()


class Checkpoint(Files):
    """A checkpoint: its list, its index, its data."""

    name = "checkpoints"
    # Slower than the others.
    share = 0.5
    files = {"checkpoint": 1, "ckpt-1.index": 2, "ckpt-1.data-00000-of-00001": 3}  # noqa: RUF012

    def write(self, folder: Path) -> None:
        _encoder_directory(folder)

    def read(self, folder: Path, name: str) -> None:
        import numpy as np

        from official_cmlm.checkpoints.encoder_directory import restore_pretrained
        from official_cmlm.checkpoints.integrity import damage, latest_good_checkpoint
        from official_cmlm.modeling.sentence_encoder import SentenceEncoderModel

        if not hasattr(self, "_encoder"):
            from official_cmlm.checkpoints.encoder_directory import read_description

            config, self._vocabulary, _ = read_description(folder)
            self._encoder = SentenceEncoderModel(config)
        damage(str(folder / "ckpt-1"))
        latest_good_checkpoint(folder)
        restore_pretrained(folder, self._encoder, None, self._vocabulary)
        if not all(np.isfinite(weight).all() for weight in self._encoder.get_weights()):
            raise ArithmeticError("weights")


class Manifest(Files):
    """`dataset.json` and the vocabulary of a folder of records."""

    name = "files of a folder of records"
    files = {"dataset.json": 4, "vocab.txt": 1, "vocab.json": 1}  # noqa: RUF012

    def write(self, folder: Path) -> None:
        _write_records(folder)

    def read(self, folder: Path, name: str) -> None:
        from official_cmlm.records.manifest import load_manifest, load_records_vocabulary

        load_records_vocabulary(folder, load_manifest(folder, "documents"))


class Shards(Files):
    """Bytes of a TFRecord file, and of records whose checksums are right."""

    name = "records"
    # Slower than the others.
    share = 0.3
    files = {"documents-00000.tfrecord": 1, "record": 2, "spaced": 2}  # noqa: RUF012

    def write(self, folder: Path) -> None:
        import numpy as np
        import tensorflow as tf

        from official_cmlm.records import documents
        from official_cmlm.tokenization import AfterSpace, TokenRows

        _write_records(folder)
        dataset = tf.data.TFRecordDataset(str(folder / "documents-00000.tfrecord"))
        (folder / "record").write_bytes(next(iter(dataset)).numpy())
        # One with ids behind a space, as byte-level BPE has.
        heads = AfterSpace(
            np.array([1, 0, 2]), TokenRows(np.array([7, 8, 9]), np.array([0, 1, 2, 3]))
        )
        lengths = np.array([2, 1, 3])
        spaced = documents.encode(np.arange(6), lengths, "en", "d", False, None, heads)
        (folder / "spaced").write_bytes(spaced)

    def read(self, folder: Path, name: str) -> None:
        import tensorflow as tf

        from official_cmlm.records import documents
        from official_cmlm.records.corruption import find_damage

        size = len(_vocabulary())
        if not hasattr(self, "_parse"):
            self._parse = tf.function(
                lambda records, keys: documents.parse(records, keys, False, size).running(),
                input_signature=[tf.TensorSpec([None], tf.string), tf.TensorSpec([None], tf.int64)],
            )
        try:
            path = str(folder / "documents-00000.tfrecord")
            for record in tf.data.TFRecordDataset(path):
                self._parse(record[tf.newaxis], tf.zeros([1], tf.int64))
        except (tf.errors.OpError, UnicodeDecodeError):
            found = find_damage([str(folder)])
            if found is None:
                raise
            raise found from None
        for single in ("record", "spaced"):
            self._read_record(folder / single, size)

    def _read_record(self, path: Path, size: int) -> None:
        import tensorflow as tf

        record = tf.constant([path.read_bytes()])
        try:
            ids = self._parse(record, tf.zeros([1], tf.int64)).flat_values.numpy()
        except (tf.errors.OpError, UnicodeDecodeError):
            return
        if len(ids) and not 0 <= ids.min() <= ids.max() < size:
            raise ArithmeticError("ids")


def _write_records(folder: Path) -> None:
    from data_prep.counts import Counts
    from data_prep.output.documents import RecordOptions, document_records
    from data_prep.output.folder import ShardWriter
    from data_prep.readers import Document

    rng = random.Random(1)  # noqa: S311
    text = [" ".join(rng.choices(_WORDS, k=6)) + "." for _ in range(12)]
    vocabulary, options, statistics = _vocabulary(), RecordOptions(), Counts()
    writer = ShardWriter(folder, "documents", 1 << 20)
    found = [Document(f"d{n}", "en", [" ".join(text[n : n + 4])]) for n in range(8)]
    for language, record in document_records(found, vocabulary, options, statistics):
        writer.write(language, record)
    writer.close()
    vocabulary.save(folder)
    statistics.manifest(vocabulary, writer.shards, options.keep_text).save(folder)


class HuggingFace(Files):
    """A sentence-transformers folder, as the import reads it."""

    name = "sentence-transformers folders"
    files = {  # noqa: RUF012
        "config.json": 3,
        "modules.json": 1,
        "sentence_bert_config.json": 1,
        "1_Pooling/config.json": 1,
        "tokenizer.json": 2,
        "tokenizer_config.json": 1,
        "vocab.txt": 1,
        "model.safetensors": 3,
    }

    def write(self, folder: Path) -> None:
        from export import sentence_transformers_folder

        source = folder.with_name("source")
        shutil.rmtree(source, ignore_errors=True)
        source.mkdir()
        _encoder_directory(source, with_head=True)
        folder.rmdir()
        sentence_transformers_folder.export(str(source), str(folder), False, None, False)

    def read(self, folder: Path, name: str) -> None:
        from official_cmlm.checkpoints.importing import read_source
        from official_cmlm.checkpoints.source import ImportOptions, check_finite

        check_finite(str(folder), read_source(str(folder), ImportOptions()))


class Experiment(Files):
    """A user's own experiment."""

    name = "experiments"
    # Slower than the others.
    share = 0.4
    files = {"own.yaml": 1}  # noqa: RUF012

    def write(self, folder: Path) -> None:
        text = (
            "# An experiment.\nbase: demo\ntask:\n  encoder: {num_layers: 2, hidden_size: 64}\n"
            "  objectives:\n    cmlm: {num_projections: 3, masking_rate: 0.3}\n"
            "  train_data: {seq_length: 64, bucket_boundaries: [32, 64], seed: 3}\n"
            "trainer:\n  train_steps: 100\n  optimizer_config:\n    optimizer:\n      type: adamw\n"
            "      adamw: {weight_decay_rate: 0.01, gradient_clip_norm: 1.0}\n"
            "  schedule: {type: cosine, peak: 1e-3, warmup_share: 0.1, end_share: 0.1}\n"
            "runtime: {num_gpus: 0, distribution_strategy: mirrored}\n"
        )
        (folder / "own.yaml").write_text(text)

    def read(self, folder: Path, name: str) -> None:
        from experiments import registry

        config = registry.load(str(folder / "own.yaml"))
        config.task.check()


class Results(Files):
    """The `results.json` that `--compare` names."""

    name = "results of evaluations"
    # Slower than the others.
    share = 0.3
    files = {"results.json": 1}  # noqa: RUF012

    def write(self, folder: Path) -> None:
        scores = [
            {
                "task": task,
                "metric": "spearman_all",
                "value": value,
                "count": 100,
                "deviation": 0.3,
            }
            for task, value in (("STS12", 60.1), ("STS-B", 70.2), ("SICK-R", 65.3))
        ]
        suite = {
            "protocol": "Cosines.",
            "options": {"split": "test"},
            "seeds": [],
            "scores": scores,
            "figures": {},
            "notes": ["a note"],
            "missing": [{"task": "STS13", "what": "STS13-en-test", "hint": "fetch it"}],
            "failures": [],
            "files": {},
            "seconds": 1.5,
        }
        edges = [-1.0, 0.0, 1.0]
        histogram = {"texts": {"edges": edges, "random": [0.4, 0.6], "positive": [0.1, 0.9]}}
        geometry = suite | {
            "scores": [{"task": "texts", "metric": "isotropy", "value": 0.5, "count": 9}],
            "figures": {"cosine_histogram": histogram},
        }
        encoder = {"name": "e", "path": "p", "kind": "k", "fingerprint": "0" * 16, "dimension": 8}
        results = {"encoder": encoder, "data_dir": "d", "started": "2026-01-01", "seconds": 2.0}
        results["suites"] = {"sts": suite, "geometry": geometry}
        (folder / "results.json").write_text(json.dumps(results))

    def read(self, folder: Path, name: str) -> None:
        from official_cmlm.evaluation.report.driver import read_results

        read_results(folder / "results.json")


class Retrieval(Files):
    """A data set in BEIR's form, and one in NanoBEIR's."""

    name = "data sets of retrieval"
    # Slower than the others.
    share = 0.5
    files = {  # noqa: RUF012
        "a/corpus.jsonl": 3,
        "a/queries.jsonl": 1,
        "a/qrels/test.tsv": 2,
        "b/corpus/train-00000-of-00001.parquet": 2,
        "b/queries/train-00000-of-00001.parquet": 1,
        "b/qrels/train-00000-of-00001.parquet": 1,
    }

    def write(self, folder: Path) -> None:
        import pyarrow
        from pyarrow import parquet

        ids, texts = [f"d{n}" for n in range(6)], [" ".join(_WORDS[n : n + 5]) for n in range(6)]
        (folder / "a/qrels").mkdir(parents=True)
        for part in ("corpus", "queries"):
            rows = [{"_id": i, "title": "", "text": text} for i, text in zip(ids, texts)]
            lines = "".join(json.dumps(row) + "\n" for row in rows)
            (folder / f"a/{part}.jsonl").write_text(lines)
        judged = "".join(f"{i}\td{n % 4}\t{n % 3}\n" for n, i in enumerate(ids))
        (folder / "a/qrels/test.tsv").write_text(f"query-id\tcorpus-id\tscore\n{judged}")
        tables = {
            "corpus": {"_id": ids, "text": texts},
            "queries": {"_id": ids, "text": texts},
            "qrels": {"query-id": ids, "corpus-id": ids[::-1]},
        }
        for part, columns in tables.items():
            (folder / "b" / part).mkdir(parents=True)
            path = folder / "b" / part / "train-00000-of-00001.parquet"
            parquet.write_table(pyarrow.table(columns), path)

    def read(self, folder: Path, name: str) -> None:
        import numpy as np

        from official_cmlm.evaluation.data import beir
        from official_cmlm.evaluation.data.folder import DataFolder
        from official_cmlm.evaluation.suites.retrieval import Options, score

        def encode(texts: list[str]) -> np.ndarray:
            return np.array([[len(text), text.count("a"), 1.0] for text in texts], np.float32)

        found = beir.read(DataFolder(folder), folder / name.partition("/")[0], "test")
        values = score(encode, found, Options(k=100)).values()
        if not all(0 <= value <= 100 + 1e-9 for value in values):
            raise ArithmeticError("a measure outside of 0 to 100")


class WordPairs(Files):
    """Multi-SimLex and SimLex-999 as published, and in other tables."""

    name = "word pairs"
    files = {  # noqa: RUF012
        "multi_simlex/translation.csv": 2,
        "multi_simlex/scores.csv": 2,
        "multi_simlex/FRA.csv": 2,
        "multi_simlex/ENG-FRA.csv": 1,
        "multi_simlex/es.tsv": 1,
        "simlex/SimLex-999.txt": 1,
    }

    def write(self, folder: Path) -> None:
        rows = [(i, f"w{i}", f'"v{i}, or ""so"""', i % 6, 5) for i in range(1, 9)]
        tables = {
            "translation.csv": ("ID,ENG 1,ENG 2", "{},{},{}"),
            "scores.csv": ("ID,ENG", "{0},{3}"),
            "FRA.csv": ("ID,Word 1,Word 2,POS,Annotator 1,Annotator 2", "{},{},{},N,{},{}"),
            "ENG-FRA.csv": ("ID,ENG,FRA,POS,Score", "{},{},{},N,{}"),
            "es.tsv": ("id\tword1\tword2\tpos\tscore", "{0}\t{1}\tv\tN\t{3}"),
        }
        for kind in ("multi_simlex", "simlex"):
            (folder / kind).mkdir()
        for name, (header, form) in tables.items():
            lines = [header, *(form.format(*row) for row in rows)]
            (folder / "multi_simlex" / name).write_text("\n".join(lines) + "\n")
        lines = ["word1\tword2\tPOS\tSimLex999\tc\td\te\tf\tg\th"]
        lines += [f"{row[1]}\tv\tN\t{row[3]}\t1\t2\t3\t4\t5\t6" for row in rows]
        (folder / "simlex/SimLex-999.txt").write_text("\n".join(lines) + "\n")

    def read(self, folder: Path, name: str) -> None:
        import numpy as np

        from official_cmlm.evaluation.data.folder import DataFolder
        from official_cmlm.evaluation.data.word_similarity import all_crossed, discover, read
        from official_cmlm.evaluation.scores import SuiteReport

        data, report = DataFolder(folder), SuiteReport()
        found = discover(data, report)
        numbered = {}
        for data_set, sources in found.items():
            for language, source in sources.items():
                with report.task(language):
                    pairs = read(data, source)
                    if not np.isfinite(pairs.scored.gold).all():
                        raise ArithmeticError("scores")
                    if data_set == "multi_simlex":
                        numbered[language] = pairs.numbered
        all_crossed(numbered)
        _check_report(report)


class ParallelSentences(Files):
    """PAWS-X, as Google has it and as XTREME has it."""

    name = "PAWS-X"
    files = {  # noqa: RUF012
        "test-de.tsv": 2,
        "dev-de.tsv": 2,
        "x-final/de/test_2k.tsv": 2,
    }

    def write(self, folder: Path) -> None:
        google = ["id\tsentence1\tsentence2\tlabel"]
        google += [f'{i}\tEin "Satz" {i}\t"x" y\t{i % 2}' for i in range(6)]
        test = [f'"Ein ""Satz"" {i}"\tZwei' for i in range(6)]
        (folder / "x-final/de").mkdir(parents=True)
        for name, lines in (
            ("x-final/de/test_2k.tsv", google),
            ("test-de.tsv", test),
            ("dev-de.tsv", [f"{line}\t1" for line in test]),
        ):
            (folder / name).write_text("\n".join(lines) + "\n")

    def read(self, folder: Path, name: str) -> None:
        from official_cmlm.evaluation.data.folder import DataFolder
        from official_cmlm.evaluation.data.pawsx import aligned_distinct, first_sentences, splits

        data = DataFolder(folder)
        for _, files in splits(folder):
            columns = {language: first_sentences(data, path) for language, path in files.items()}
            aligned_distinct(columns, {language: str(path) for language, path in files.items()})


def _check_report(report: Any) -> None:
    """Raises what a suite's report has caught.

    Raises:
      RuntimeError: for an exception that was not expected.
      UserError: for a file that cannot be scored.
    """
    if report.traces:
        raise RuntimeError(report.traces[0])
    if report.unscored:
        raise UserError(report.unscored[0])


class Texts(Files):
    """Text as data preparation reads it: plain or compressed, JSON lines, crawls, tables, TMX."""

    name = "text"
    files = {  # noqa: RUF012
        "a.txt": 1,
        "a.jsonl": 2,
        "a.warc": 2,
        "a.wet": 2,
        "a.txt.gz": 1,
        "a.txt.zst": 1,
        "a.tsv": 1,
        "a.tmx": 2,
    }

    def write(self, folder: Path) -> None:
        import zstandard

        plain = b"The cat sat. It ran.\n\nA dog slept on the mat.\n" * 3
        (folder / "a.txt").write_bytes(plain)
        (folder / "a.txt.gz").write_bytes(gzip.compress(plain, mtime=0))
        (folder / "a.txt.zst").write_bytes(zstandard.compress(plain))
        lines = [{"text": "The cat sat.", "lang": "en", "id": f"d{n}"} for n in range(5)]
        (folder / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        html = b"<html lang=en><body><p>The cat sat on the mat and it slept.</p></body></html>"
        http = b"HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\n\r\n" + html
        kind = {"Content-Type": "application/http; msgtype=response"}
        (folder / "a.warc").write_bytes(_warc("response", http, kind) * 3)
        kind = {"Content-Type": "text/plain", "WARC-Identified-Content-Language": "eng"}
        (folder / "a.wet").write_bytes(_warc("conversion", plain, kind) * 3)
        (folder / "a.tsv").write_bytes(b"The cat.\tDie Katze.\nA dog.\tEin Hund.\n" * 4)
        unit = "".join(
            f'<tuv xml:lang="{tag}"><seg>{text}</seg></tuv>'
            for tag, text in (("en", "The cat."), ("de", "Die Katze."))
        )
        header = '<?xml version="1.0" encoding="utf-8"?><tmx version="1.4"><header/><body>'
        (folder / "a.tmx").write_text(f"{header}{f'<tu>{unit}</tu>' * 4}</body></tmx>")

    def read(self, folder: Path, name: str) -> None:
        from data_prep.readers import Counts, ReadOptions, read_documents

        for on_error in ("fail", "skip"):
            options = ReadOptions(on_error=on_error, max_expanded_bytes=1 << 24)
            if Path(name).suffix in (".tsv", ".tmx"):
                _read_pairs(folder / name, options)
                continue
            for document in read_documents([str(folder / name)], options, Counts()):
                # What is written later must be text.
                "".join(document.paragraphs).encode()


class ScoredTexts(Files):
    """Evaluation data of the suites `sts` and `entity_linking`, in their publishers' forms."""

    name = "sentence pairs and entities"
    files = {  # noqa: RUF012
        "STS/STSBenchmark/sts-test.csv": 1,
        "SICK/SICK_test_annotated.txt": 1,
        "stsb_multi_mt/stsb-de-test.csv": 1,
        "STS17/STS2017.eval.v1.1/STS.input.track3.es-es.txt": 1,
        "STS17/STS2017.gs/STS.gs.track3.es-es.txt": 1,
        "bc5cdr/entities.txt": 1,
        "bc5cdr/CDR_TestSet.PubTator.txt": 1,
        "ncbi-disease/test_dictionary.txt": 1,
        "ncbi-disease/processed_test/1.concept": 1,
        "xl_bel/umls_onto_all_lang.txt": 1,
        "xl_bel/xlbel_v0.0/de_1k_test_query.txt": 1,
        "cometa/COMETA_id_sf_dictionary.txt": 1,
        "cometa/splits/stratified_general/test.csv": 1,
    }

    def write(self, folder: Path) -> None:
        names, ids = ("The cat", "a dog", "mat"), ("D1", "D2|D3", "D4")
        dictionary = "".join(f"{one}||{name}\n" for one, name in zip(ids, names))
        header = "ID\tTerm\tGeneral SNOMED ID\tExample\n"
        contents = [
            "".join(f"g\tf\ty\t{n}\t{n}.5\t{a}\t{names[0]}\n" for n, a in enumerate(names)),
            "".join(f"{n}\t{a}\t{names[0]}\t{n}\tNEUTRAL\n" for n, a in enumerate(names)),
            "".join(f'"{a}, so",{names[0]},{n}.0\n' for n, a in enumerate(names)),
            "".join(f"{a}\t{names[0]}\n" for a in names),
            "5.0\n2.4\n0\n",
            "".join(f"{one}\t{name}\n" for one, name in zip(ids, names)),
            "1|t|Title\n1|a|Text\n"
            + "".join(f"1\t0\t3\t{a}\tDisease\t{one}\n" for one, a in zip(ids, names)),
            dictionary,
            "".join(f"1||0|3||Disease||{a}||{one}\n" for one, a in zip(ids, names)),
            dictionary,
            dictionary,
            dictionary,
            header + "".join(f'{n}\t{a}\t{n}\t"{a} ""x"""\n' for n, a in enumerate(names)),
        ]
        for name, content in zip(self.files, contents):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(content)

    def read(self, folder: Path, name: str) -> None:
        from official_cmlm.evaluation import suites
        from official_cmlm.evaluation.data.folder import DataFolder
        from official_cmlm.evaluation.scores import SuiteReport
        from official_cmlm.evaluation.suite import read_tasks, score_tasks

        suite = "sts" if name.startswith(("ST", "SI", "stsb")) else "entity_linking"
        options = {"tasks": ["STS-B", "SICK-R", "STS17"], "languages": ["de", "es"]}
        chosen = suites.options(suite, options if suite == "sts" else {})
        report = SuiteReport()
        tasks = suites.suite(suite).tasks(DataFolder(folder), chosen, report)
        score_tasks(read_tasks(tasks, report), _letters, report)
        if report.traces:
            raise RuntimeError(report.traces[0])
        for line in report.unscored:
            raise UserError(line)


def _letters(texts: Sequence[str]) -> np.ndarray:
    """Counts of a few letters."""
    return np.array([[1 + text.count(letter) for letter in "aeot"] for text in texts], np.float32)


class Pickles(Files):
    """The pickled arrays and captions of SentEval's COCO."""

    name = "pickles"
    files = {"COCO/train.pkl": 1}  # noqa: RUF012

    def write(self, folder: Path) -> None:
        import numpy as np

        features = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3).dumps()
        # Written by hand in the form of Python 2: a dict of an array, dicts and lists.
        captions = b"".join(
            b"}U\x0fcleaned_captionU" + bytes([len(word)]) + word.encode() + b"s"
            for word in (_WORDS * 2)[:20]
        )
        ids = b"".join(
            b"](" + b"".join(b"K" + bytes([5 * n + i]) for i in range(5)) + b"e" for n in range(4)
        )
        content = b"U\x08features" + features[2:-1] + b"U\x08captions](" + captions + b"e"
        content += b"U\x14image_to_caption_ids](" + ids + b"e"
        (folder / "COCO").mkdir()
        for name in ("train", "valid", "test"):
            (folder / "COCO" / f"{name}.pkl").write_bytes(b"\x80\x02}(" + content + b"u.")

    def read(self, folder: Path, name: str) -> None:
        from official_cmlm.evaluation.data.coco import read_coco
        from official_cmlm.evaluation.data.folder import DataFolder

        read_coco(DataFolder(folder), folder)


def _warc(kind: str, content: bytes, headers: dict[str, str]) -> bytes:
    lines = ["WARC/1.0", f"WARC-Type: {kind}", "WARC-Target-URI: https://example.org/a"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    head = "\r\n".join([*lines, f"Content-Length: {len(content)}", "", ""])
    return head.encode() + content + b"\r\n\r\n"


def _read_pairs(path: Path, options: Any) -> None:
    from data_prep.readers import Counts
    from data_prep.readers.pairs import PairInput

    pairs = PairInput((str(path),), ("en", "de"), path.suffix[1:])
    for _ in pairs.read(Counts(), False, options):
        pass


FILES: list[Target] = [
    EncoderDescription(),
    Manifest(),
    Results(),
    Experiment(),
    HuggingFace(),
    Retrieval(),
    Texts(),
    ScoredTexts(),
    WordPairs(),
    ParallelSentences(),
    Pickles(),
    Shards(),
    Checkpoint(),
]
