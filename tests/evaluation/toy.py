"""A toy encoder and toy files of SentEval's formats, for tests of suites."""

import functools
import hashlib
import json

import numpy as np

from official_cmlm.evaluation.data.folder import DataFolder
from official_cmlm.evaluation.data.sts import SUBSETS
from official_cmlm.evaluation.scores import SuiteReport
from official_cmlm.evaluation.suite import Suite, read_tasks, score_tasks
from official_cmlm.evaluation.suites.probing import TASKS as PROBING


def run(suite, encode, root, options=None, **fields):
    """Returns the report of a suite, or of its module, with options or some fields of them."""
    report = SuiteReport()
    kind = suite.options if isinstance(suite, Suite) else suite.Options
    evaluate(suite, encode, DataFolder(root), options or kind(**fields), report)
    return report


def evaluate(suite, encode, data, options, report):
    """Reads and scores the tasks of a suite; raises what concerns the whole suite."""
    report.encoder_languages = getattr(encode, "languages", ())
    tasks = read_tasks(suite.tasks(data, options, report), data.files)
    score_tasks(tasks, report, lambda task: task.score(task.encoder_of(encode), report))


def lookup(vectors):
    """Returns an encoder of the texts that are keys of `vectors`."""
    return lambda texts: np.array([vectors[text] for text in texts], np.float32)


# The cosines of x with x, xy, y and -x are 1, 0.71, 0 and -1, and 0 with the zero vector.
VECTORS = {"x": [1.0, 0.0], "y": [0.0, 2.0], "xy": [3.0, 3.0], "-x": [-5.0, 0.0], "0": [0.0, 0.0]}


def read_numbers(texts):
    """Reads each text as the numbers of its vector."""
    return np.array([[float(part) for part in text.split()] for text in texts], np.float32)


def as_numbers(vectors):
    """Returns a text for each vector, which `read_numbers` reads."""
    return [" ".join(f"{value:.4f}" for value in row) for row in vectors]


def encode(texts, dim=64):
    """Counts hashed words and letter trigrams: similar strings get similar vectors."""
    vectors = np.zeros([len(texts), dim], np.float32)
    for row, text in zip(vectors, texts):
        padded = f" {text} "
        for piece in [*text.split(), *(padded[i : i + 3] for i in range(len(padded) - 2))]:
            first, second = _hash(piece)
            row[first % dim] += 1.0 if second % 2 else -1.0
    return vectors


@functools.cache
def _hash(piece):
    return hashlib.blake2b(piece.encode(), digest_size=8).digest()[:2]


class Recording:
    """An encoder that notes its texts, call by call, before it passes them on."""

    def __init__(self, encode=encode):
        self.encode, self.calls = encode, []

    def __call__(self, texts):
        self.calls.append(list(texts))
        return self.encode(texts)

    @property
    def texts(self):
        """The texts of all calls."""
        return [text for call in self.calls for text in call]


def write(path, lines, encoding="utf-8"):
    """Writes lines below a folder that is made if needed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes("".join(f"{line}\n" for line in lines).encode(encoding))


def write_text(path, text):
    """Writes a text, with its line ends as they are, below a folder that is made if needed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())


GOOD, BAD = ("fine lovely film", "great warm film"), ("dull awful film", "poor cold film")


def sentences(count, offset=0):
    """Returns alternately good and bad sentences, all different, with their labels."""
    labels = [i % 2 for i in range(count)]
    texts = [
        f"{(GOOD if label else BAD)[i // 2 % 2]} number {i + offset}"
        for i, label in enumerate(labels)
    ]
    return texts, labels


def write_senteval(root, count=60):
    """Writes SentEval's tasks in their formats, `count` rows a class or part; TREC in Latin-1."""
    texts, labels = sentences(2 * count)
    good = [t for t, label in zip(texts, labels) if label]
    bad = [t for t, label in zip(texts, labels) if not label]
    for folder, positive, negative in (
        ("MR", "rt-polarity.pos", "rt-polarity.neg"),
        ("CR", "custrev.pos", "custrev.neg"),
        ("SUBJ", "subj.objective", "subj.subjective"),
        ("MPQA", "mpqa.pos", "mpqa.neg"),
    ):
        write(root / folder / positive, good)
        write(root / folder / negative, bad)
    for part in ("train", "dev", "test"):
        rows, classes = sentences(count, 1000)
        write(root / f"SST/binary/sentiment-{part}", [f"{t} \t{c}" for t, c in zip(rows, classes)])
        fine = [f"{c + 2 * (i % 2)} {t}" for i, (t, c) in enumerate(zip(rows, classes))]
        write(root / f"SST/fine/sentiment-{part}", fine)
        scores = [
            f"g\tf\ty\t{i}\t{5.0 * c}\t{t}\t{rows[1]}"
            for i, (t, c) in enumerate(zip(rows, classes))
        ]
        write(root / f"STS/STSBenchmark/sts-{part}.csv", scores)
        labels = ["entailment" if c else "contradiction" for c in classes]
        write(root / f"SNLI/s1.{part}", rows)
        write(root / f"SNLI/s2.{part}", [rows[1]] * count)
        write(root / f"SNLI/labels.{part}", [*labels[:-1], "-"])
    questions = [
        f"{('NUM:count', 'LOC:city')[i % 2]} {('how many', 'where is')[i % 2]} caf\xe9 {i}"
        for i in range(4 * count)
    ]
    write(root / "TREC/train_5500.label", questions, "latin-1")
    write(root / "TREC/TREC_10.label", questions[:20], "latin-1")
    header = "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String"
    for part in ("train", "test"):
        rows, classes = sentences(count, 500)
        pairs = [f"{c}\t1\t2\t{t}\t{rows[1]}" for t, c in zip(rows, classes)]
        write(root / f"MRPC/msr_paraphrase_{part}.txt", [header, *pairs])
    header = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment"
    for name in ("SICK_train", "SICK_trial", "SICK_test_annotated"):
        rows, classes = sentences(count, 700)
        pairs = [
            f"{i}\t{t}\t{rows[1]}\t{1 + 4 * c}\t{('CONTRADICTION', 'ENTAILMENT')[c]}"
            for i, (t, c) in enumerate(zip(rows, classes))
        ]
        write(root / f"SICK/{name}.txt", [header, *pairs])


def write_probing(root, count=60):
    """Writes SentEval's probing tasks, `count` rows a part; the label is the first word."""
    words = ("past", "present", "future")
    lines = [
        f"{part}\t{words[i % 3].upper()}\t{words[i % 3]} x{i} y"
        for part in ("tr", "va", "te")
        for i in range(count)
    ]
    for name in PROBING.values():
        write(root / name, lines)


def write_beir(folder, documents, queries, judged, splits=("test",)):
    """Writes a data set of retrieval, with texts by id, and lines of judgements."""
    for name, texts in (("corpus", documents), ("queries", queries)):
        rows = [json.dumps({"_id": key, "text": text}) for key, text in texts.items()]
        write(folder / f"{name}.jsonl", rows)
    for split in splits:
        write(folder / f"qrels/{split}.tsv", ["query-id\tcorpus-id\tscore", *judged])


def write_xquad_r(path, *paragraphs):
    """Writes paragraphs of XQuAD-R: sentences, and questions with the row of their answer."""
    articles = []
    for sentences, questions in paragraphs:
        ends = np.cumsum([len(sentence) + 1 for sentence in sentences]).tolist()
        breaks = [[end - len(one) - 1, end - 1] for end, one in zip(ends, sentences)]
        # Answers begin with the first character of a sentence, or are the last one.
        asked = [
            {"id": f"q{i}", "question": text, "answers": [{"answer_start": begin}]}
            for i, (text, row) in enumerate(questions)
            for begin in [breaks[row][i % 2] - i % 2]
        ]
        fields = {"context": " ".join(sentences), "sentences": sentences, "qas": asked}
        articles.append({"paragraphs": [fields | {"sentence_breaks": breaks}]})
    write(path, [json.dumps({"data": articles})])


def write_year(folder, gold):
    """Writes the subsets of an STS year: four pairs each, with these scores."""
    for subset in SUBSETS[folder.name.partition("-")[0]]:
        texts = [f"{sentence}\t{GOOD[0]}" for sentence in (*GOOD, *BAD)]
        write(folder / f"STS.input.{subset}.txt", texts)
        write(folder / f"STS.gs.{subset}.txt", gold)
