"""The demo's number and figure: `cmlm demo-report`.

The number is how often the sentence that really follows is found first among the second sentences
of all held-out pairs: by the trained encoder, by the encoder that it started from, by the same
encoder with random weights, and by TF-IDF.
"""

import dataclasses
import itertools
import random
from pathlib import Path
from typing import Annotated

from official_cmlm import cli
from official_cmlm.common.errors import UserError
from official_cmlm.common.extras import check_extra
from official_cmlm.common.files import write_json
from official_cmlm.common.validation import between
from official_cmlm.evaluation.encoder import Encode


@dataclasses.dataclass(frozen=True)
class ReportRequest:
    """The model, the records to score, and the output.

    Attributes:
      model_dir: model directory of the training.
      training_records: records trained on, with text, for TF-IDF.
      held_out_records: records to score on, with text.
      output_dir: folder for the figure and the results.
      start: encoder directory that the training started from. Default: random weights.
      pairs: most pairs to score, and so candidates of each query.
    """

    model_dir: str
    training_records: str
    held_out_records: str
    output_dir: str
    start: str = ""
    pairs: Annotated[int, between(2, 1_000_000)] = 1000


def define_flags() -> None:
    """Defines the flags of the request."""
    cli.define(ReportRequest)


def read_sentences(folder: Path) -> list[list[str]]:
    """Reads the sentences of each document from documents records that hold their text.

    Raises:
      UserError: no such records, or records without text.
    """
    import tensorflow as tf

    from official_cmlm.records.documents import parse
    from official_cmlm.records.manifest import load_manifest

    manifest = load_manifest(folder, "documents")
    if not manifest.keep_text:
        raise UserError(f"{folder}: holds no text; make the records again with --keep_text")
    shards = [str(folder / shard.name) for shard in manifest.shards]
    documents: list[list[str]] = []
    for serialized in tf.data.TFRecordDataset(shards).batch(1024):
        block = parse(serialized, tf.zeros(tf.size(serialized), tf.int64), with_text=True)
        for sentences, continues in zip(block.text.to_list(), block.repeats_last.numpy()):
            decoded = [sentence.decode("utf-8", "replace") for sentence in sentences]
            if continues:
                documents[-1] += decoded[1:]
            else:
                documents.append(decoded)
    return documents


def sample_pairs(documents: list[list[str]], most: int) -> tuple[list[str], list[str]]:
    """Draws up to `most` adjacent pairs with a fixed seed; no sentence is twice on a side."""
    pairs = [pair for sentences in documents for pair in itertools.pairwise(sentences)]
    random.Random(0).shuffle(pairs)  # noqa: S311 - a sample, not a secret
    # Dictionaries keep the order.
    firsts: dict[str, None] = {}
    seconds: dict[str, None] = {}
    for first, second in pairs:
        if len(firsts) < most and first not in firsts and second not in seconds:
            firsts[first], seconds[second] = None, None
    return list(firsts), list(seconds)


def load_encoders(request: ReportRequest, sentences: list[str]) -> dict[str, Encode]:
    """Returns name -> function from texts to vectors, of the encoders that are compared.

    Args:
      request: the encoders.
      sentences: what was trained on, for TF-IDF.
    """
    import tf_keras
    from sklearn.feature_extraction.text import TfidfVectorizer

    from official_cmlm.encoding.sentence_encoder import SentenceEncoder
    from official_cmlm.modeling.sentence_encoder import SentenceEncoderModel

    trained = SentenceEncoder.load(request.model_dir, backend="tensorflow")
    tf_keras.utils.set_random_seed(0)
    model = SentenceEncoderModel(trained.model.config)
    untrained = SentenceEncoder(model, trained.vocabulary, trained.max_seq_length)
    tfidf = TfidfVectorizer(sublinear_tf=True).fit(sentences)
    encoders = {"this encoder": trained.encode}
    if request.start:
        start = SentenceEncoder.load(request.start, backend="tensorflow")
        encoders[f"{Path(request.start).name}, its start"] = start.encode
    encoders["the same encoder, untrained"] = untrained.encode
    encoders["TF-IDF"] = lambda texts: tfidf.transform(texts).toarray()
    return encoders


def main() -> None:
    """Runs the binary."""
    cli.quiet_tensorflow()
    from official_cmlm.evaluation.metrics.nearest import next_sentence_recall
    from official_cmlm.evaluation.report import figures
    from official_cmlm.training.curve import write_curve

    check_extra("report", "matplotlib")
    request = cli.read(ReportRequest)
    held_out = read_sentences(Path(request.held_out_records))
    first, second = sample_pairs(held_out, request.pairs)
    if len(first) < 2:
        raise UserError(
            f"{request.held_out_records}: fewer than two pairs of adjacent sentences are held out; "
            "give more text"
        )
    sentences = itertools.chain.from_iterable(read_sentences(Path(request.training_records)))
    recalls = {
        name: next_sentence_recall(encode, first, second)
        for name, encode in load_encoders(request, list(sentences)).items()
    }
    output = Path(request.output_dir)
    output.mkdir(parents=True, exist_ok=True)
    print(f"the sentence that really follows, found first among {len(first)} held-out candidates:")
    for name, recall in recalls.items():
        print(f"  {100 * recall:5.1f} %  {name}")
    axis = f"next sentence found first, % of {len(first)} held-out pairs"
    values = [100 * recall for recall in recalls.values()]
    series = figures.Series("recall at 1", values, figures.FIRST)
    chart = figures.bars("Recall at 1", list(recalls), [series], axis)
    (output / "recall.png").write_bytes(figures.image(chart, "png", "white", 160))
    # The curve has one panel a quantity: recall in a batch cannot be compared with recall here.
    curve = write_curve(request.model_dir)
    queries = [s for s in first if 5 <= len(s.split()) <= 15][:4] or first[:4]
    texts = {
        "held_out_sentences.txt": dict.fromkeys(itertools.chain.from_iterable(held_out)),
        "queries.txt": queries,
    }
    for name, lines in texts.items():
        (output / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    write_json(output / "results.json", {"pairs": len(first), "recall_at_1": recalls})
    print(f"figures: {', '.join(map(str, filter(None, [curve, output / 'recall.png'])))}")


if __name__ == "__main__":
    define_flags()
    cli.run(main)
