"""What sentence vectors score without a trained encoder: `python -m benchmarks.bag_of_words`.

    python -m benchmarks.bag_of_words --input=path/to/data/text/en --data_dir=path/to/data \\
        --encoders=work/setting/models/random.1 --output_dir=work/bag_of_words

Learns from the text of a study, and scores as an encoder is scored:

- `tf_idf_words`: words, weighted by tf-idf;
- `tf_idf_letters`: runs of 3 to 5 letters within words, weighted so, too: it finds *play* in
  *played*;
- `averaged_vectors`: the mean of a sentence's word vectors, learned from how often words stand near
  each other (factorised positive pointwise mutual information);
- the encoders that are named.

All but the first two also whitened: the vectors of the text's sentences are centred and made
uncorrelated, which weakens what all sentences have in common (Su et al. 2021, "Whitening sentence
representations").

A trained encoder has learned something only if it scores above these.
"""

import functools
import hashlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from absl import flags

from official_cmlm import cli
from official_cmlm.errors import UserError
from official_cmlm.evaluation.encoding import OpenedEncoder

FLAGS = flags.FLAGS
# Sparse vectors are projected to so many dimensions, which keeps the angles between them.
_WIDTH = 1024
_VOCABULARY, _VECTOR_WIDTH, _WINDOW = 30_000, 300, 5
# Label -> (suite, task, metric).
_COLUMNS = {
    "SentEval": ("senteval", "average_of_chosen", "main_metrics"),
    "STS-B": ("sts", "STS-B", "spearman"),
    "SICK-R": ("sts", "SICK-R", "spearman"),
    "STS14": ("sts", "STS14", "spearman_all"),
}

Encode = Callable[[Sequence[str]], np.ndarray]


def define_flags() -> None:
    """Defines the flags of the binary."""
    flags.DEFINE_list("input", None, "English text: files, folders or patterns. Required.")
    flags.DEFINE_string("data_dir", "", "Evaluation data. Default: CMLM_DATA_DIR.")
    flags.DEFINE_list("encoders", [], "Encoder directories to score as they are and whitened.")
    flags.DEFINE_multi_enum(
        "bags", list(_BAGS), list(_BAGS), "What to learn from the text, repeated."
    )
    flags.DEFINE_string("output_dir", "work/bag_of_words", "Folder of the results.")
    flags.DEFINE_integer(
        "whitening_sentences", 20_000, "Sentences to learn the whitening from.", lower_bound=2
    )
    cli.required("input")


def read_sentences(inputs: list[str]) -> list[str]:
    """All sentences of the text, in order.

    Raises:
      UserError: there is none, or a file cannot be read.
    """
    from collections import Counter

    from data_prep.documents.sentences import split_paragraphs
    from data_prep.readers import ReadOptions, ReadReport, expand_inputs, read_documents
    from official_cmlm import progress

    files = expand_inputs(inputs)
    options, found = ReadOptions(), []
    done = progress.counter(len(files), "file", "reading")
    for file in files:
        for document in read_documents([file], options, ReadReport()):
            found += split_paragraphs(document.paragraphs, "en", Counter())
        done(1)
    if not found:
        raise UserError(f"{', '.join(inputs)}: no sentence there")
    return found


def tf_idf(sentences: Sequence[str], letters: bool) -> Encode:
    """Words or runs of letters, weighted by tf-idf, projected to fewer dimensions."""
    from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer
    from sklearn.pipeline import make_pipeline
    from sklearn.random_projection import SparseRandomProjection

    kind = {"analyzer": "char_wb", "ngram_range": (3, 5)} if letters else {"analyzer": "word"}
    count = HashingVectorizer(n_features=1 << 18, norm=None, alternate_sign=False, **kind)
    # A word has 64 of the dimensions; the default leaves some words none.
    project = SparseRandomProjection(_WIDTH, density=1 / 16, dense_output=True, random_state=0)
    pipeline = make_pipeline(count, TfidfTransformer(sublinear_tf=True), project).fit(sentences)
    return lambda texts: pipeline.transform(texts).astype(np.float32)


def averaged_vectors(sentences: Sequence[str]) -> Encode:
    """Means of word vectors: the factorised positive pointwise mutual information of near words."""
    import scipy.sparse
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import CountVectorizer

    counter = CountVectorizer(max_features=_VOCABULARY, token_pattern=r"\w+").fit(sentences)
    vocabulary, words_of = counter.vocabulary_, counter.build_analyzer()
    size = len(vocabulary)
    near = scipy.sparse.csr_matrix((size, size), dtype=np.float32)
    for start in range(0, len(sentences), 200_000):
        rows = [
            [vocabulary[word] for word in words_of(text) if word in vocabulary]
            for text in sentences[start : start + 200_000]
        ]
        words = np.array([word for row in rows for word in row], np.int32)
        sentence = np.repeat(np.arange(len(rows)), [len(row) for row in rows])
        for distance in range(1, _WINDOW + 1):
            together = sentence[distance:] == sentence[:-distance]
            pairs = words[:-distance][together], words[distance:][together]
            weights = np.full(len(pairs[0]), 1 / distance, np.float32)
            near += scipy.sparse.csr_matrix((weights, pairs), shape=(size, size))
    near = (near + near.T).tocoo()
    total = np.asarray(near.sum(axis=0)).ravel()
    # Contexts by their frequency to the power of 0.75, as word2vec draws them.
    context = total**0.75 / (total**0.75).sum()
    information = np.log(near.data / (total[near.row] * context[near.col]))
    kept = information > 0
    matrix = scipy.sparse.csr_matrix(
        (information[kept], (near.row[kept], near.col[kept])), shape=(size, size)
    )
    svd = TruncatedSVD(min(_VECTOR_WIDTH, size - 1), random_state=0).fit(matrix)
    # Singular values to the power of 0.25: the full ones leave little but the first dimensions.
    vectors = svd.transform(matrix) / svd.singular_values_**0.75
    vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)

    def encode(texts: Sequence[str]) -> np.ndarray:
        counts = counter.transform(texts)
        lengths = np.maximum(np.asarray(counts.sum(axis=1)), 1)
        return (counts @ vectors / lengths).astype(np.float32)

    return encode


def whitened(encode: Encode, sentences: Sequence[str]) -> Encode:
    """`encode`, centred and uncorrelated on `sentences` (Su et al. 2021, algorithm 1)."""
    vectors = np.asarray(encode(sentences), np.float64)
    mean = vectors.mean(axis=0)
    _, scales, directions = np.linalg.svd(vectors - mean, full_matrices=False)
    # What has no variance beyond rounding stays out.
    kept = scales > scales[0] * 1e-6
    matrix = directions[kept].T / scales[kept] * np.sqrt(len(vectors))
    return lambda texts: ((np.asarray(encode(texts)) - mean) @ matrix).astype(np.float32)


_BAGS = {
    "tf_idf_words": functools.partial(tf_idf, letters=False),
    "tf_idf_letters": functools.partial(tf_idf, letters=True),
    "averaged_vectors": averaged_vectors,
}


def main(argv: list[str]) -> None:
    """Runs the benchmark."""
    del argv
    data_dir = FLAGS.data_dir or os.environ.get("CMLM_DATA_DIR", "")
    if not os.path.isdir(data_dir):
        raise UserError("--data_dir names no folder, and CMLM_DATA_DIR neither")
    cli.quiet_tensorflow()
    from official_cmlm.encoders import open_encoder
    from official_cmlm.evaluation.report import driver

    opened = {path: open_encoder(path) for path in FLAGS.encoders}
    sentences = read_sentences(FLAGS.input)
    print(f"{len(sentences):,} sentences")
    step = max(1, len(sentences) // FLAGS.whitening_sentences)
    some = sentences[::step][: FLAGS.whitening_sentences]
    # Each is learned when it is its turn, and once.
    learned = {name: functools.partial(_BAGS[name], sentences) for name in FLAGS.bags}
    learned |= {path: lambda encoder=encoder: encoder.encode for path, encoder in opened.items()}
    ways = {}
    for name, learn in learned.items():
        ways[name] = once = functools.cache(learn)
        if not name.startswith("tf_idf"):
            ways[f"{name}, whitened"] = lambda once=once: whitened(once(), some)
    options = driver.parse_options(
        ["senteval", "sts"],
        [
            "senteval.tasks=[MR, CR, SST2, TREC, MRPC, SICK-E, SICK-R]",
            "sts.subsets=false",
            "sts.other_languages=false",
        ],
    )
    text = hashlib.sha256("\n".join([*sentences, f"{len(some)}"]).encode()).hexdigest()
    lines = []
    for number, (name, learn) in enumerate(ways.items(), 1):
        print(f"[{number}/{len(ways)}] {name} …", flush=True)
        identity = hashlib.sha256(f"{name} {text} {_fingerprint(opened, name)}".encode())
        encoder = OpenedEncoder(name, "python", identity.hexdigest()[:16], learn())
        folder = Path(FLAGS.output_dir) / name.replace(", ", "_").replace(os.sep, "_")
        found = driver.run(encoder, name, name, Path(data_dir), folder, options)
        values = {
            (suite, score["task"], score["metric"]): score["value"]
            for suite in options
            for score in found["suites"][suite]["scores"]
        }
        shown = [f"{label} {values[key]:.1f}" for label, key in _COLUMNS.items() if key in values]
        lines.append(f"figure {name}: " + (", ".join(shown) or "no data"))
        print(lines[-1], flush=True)
    print("\n".join(lines))


def _fingerprint(opened: dict[str, OpenedEncoder], name: str) -> str:
    encoder = opened.get(name.removesuffix(", whitened"))
    return encoder.fingerprint if encoder else ""


if __name__ == "__main__":
    define_flags()
    cli.run(main)
