"""Embeddings of validation sentences for TensorBoard's projector.

In the model directory, `projector/` holds the embeddings, a row of numbers a sentence, and the
metadata, a row of text a sentence, separated by tabs. `projector_config.pbtxt`, which names these
files, is in each folder that TensorBoard shows as a run. For every run TensorBoard lists first the
embeddings, as they have metadata, then the checkpoint's weights.
"""

import io
import itertools
import os
import random
import unicodedata
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from official_cmlm.common.errors import UserError
from official_cmlm.common.files import atomic_write_text
from official_cmlm.records.corruption import report_damaged_shard
from official_cmlm.records.manifest import join, load_folders
from official_cmlm.tokenization import Vocabulary

if TYPE_CHECKING:
    from official_cmlm.training.config import SentenceEncoderTaskConfig

FOLDER, NAME = "projector", "sentences"
VECTORS_NAME, METADATA_NAME = f"{NAME}.tsv", f"{NAME}_metadata.tsv"
CONFIG_NAME = "projector_config.pbtxt"
# Sentences that are read for each one that is shown, so that they are of many documents.
_READ_FOR_ONE = 20
# Characters of a sentence that are shown.
_SHOWN = 300

# (text, language)
Sentence = tuple[str, str]


def validation_folders(task: "SentenceEncoderTaskConfig") -> list[str]:
    """Returns the folders of validation records.

    Raises:
      UserError: if there are none.
    """
    found = [
        folder
        for _, where, data in task.used_data()
        if "validation" in where
        for folder in data.folders()
    ]
    if not found:
        raise UserError(
            "--projector_sentences shows validation sentences; set task.validation_data.input_path"
        )
    return list(dict.fromkeys(found))


def write_projector(
    model_dir: str | Path, folders: Sequence[str], vocabulary: Vocabulary, most: int
) -> Path:
    """Writes embeddings of a sample of sentences, their metadata and the projector's configuration.

    Args:
      model_dir: an encoder directory, and the folder of TensorBoard's summaries.
      folders: of records, whose sentences are sampled with a fixed seed, each once.
      vocabulary: of the records. Records without text are spelled with its tokens.
      most: number of sentences.

    Returns:
      The folder of the files.

    Raises:
      UserError: if a shard is damaged.
    """
    from official_cmlm.encoding.sentence_encoder import SentenceEncoder

    with report_damaged_shard(folders):
        sentences = sample(folders, vocabulary, most)
    encoder = SentenceEncoder.load(model_dir)
    vectors = encoder.encode([text for text, _ in sentences], show_progress_bar=True)
    target = Path(model_dir) / FOLDER
    target.mkdir(exist_ok=True)
    numbers = io.StringIO()
    np.savetxt(numbers, vectors, fmt="%.6g", delimiter="\t")
    atomic_write_text(target / VECTORS_NAME, numbers.getvalue())
    atomic_write_text(target / METADATA_NAME, metadata(sentences))
    for folder, where in _runs(Path(model_dir)):
        # The message `ProjectorConfig` as text; none of these names needs escapes.
        atomic_write_text(
            folder / CONFIG_NAME,
            "embeddings {\n"
            f'  tensor_name: "{NAME}"\n'
            f'  metadata_path: "{where}/{METADATA_NAME}"\n'
            f'  tensor_path: "{where}/{VECTORS_NAME}"\n'
            "}\n",
        )
    return target


def sample(folders: Sequence[str], vocabulary: Vocabulary, most: int) -> list[Sentence]:
    """Draws distinct sentences from the folders' first ones with a fixed seed, in their order."""
    found: dict[Sentence, None] = {}
    for folder in folders:
        enough = len(found) + _READ_FOR_ONE * most
        for sentence in read_sentences(folder, vocabulary):
            found.setdefault(sentence)
            if len(found) >= enough:
                break
    sentences = list(found)
    chosen = random.Random(0).sample(range(len(sentences)), min(most, len(sentences)))  # noqa: S311
    return [sentences[i] for i in sorted(chosen)]


def read_sentences(folder: str | os.PathLike, vocabulary: Vocabulary) -> Iterator[Sentence]:
    """Yields the sentences of records, documents or pairs, with their languages."""
    import tensorflow as tf

    manifest = load_folders([os.fspath(folder)])
    shards = [join(folder, shard.name) for shard in manifest.shards]
    for serialized in tf.data.TFRecordDataset(shards).as_numpy_iterator():
        feature = tf.train.Example.FromString(serialized).features.feature
        if manifest.kind == "documents":
            lengths = feature["sentence_lengths"].int64_list.value
            languages = list(feature["language"].bytes_list.value) * len(lengths)
        else:
            lengths = feature["lengths"].int64_list.value
            languages = list(feature["languages"].bytes_list.value)
        if manifest.keep_text:
            texts = [text.decode("utf-8", "replace") for text in feature["text"].bytes_list.value]
        else:
            ids, ends = feature["token_ids"].int64_list.value, itertools.accumulate(lengths)
            texts = [spelled(ids[end - n : end], vocabulary) for n, end in zip(lengths, ends)]
        for text, language in zip(texts, languages):
            yield text, language.decode("utf-8", "replace")


def spelled(ids: Sequence[int], vocabulary: Vocabulary) -> str:
    """Returns token ids as text: exact for byte-level BPE; other vocabularies lose some spaces."""
    from official_cmlm.tokenization.byte_pair import BytePairVocabulary, bare_tokenizer

    if isinstance(vocabulary, BytePairVocabulary):
        return bare_tokenizer(vocabulary).decode(list(ids))
    tokens = [vocabulary.tokens[i] for i in ids]
    if vocabulary.kind == "sentencepiece":
        return "".join(tokens).replace("\u2581", " ").strip()
    parts = [t.removeprefix("##") if vocabulary.continues_word(t) else f" {t}" for t in tokens]
    return "".join(parts).strip()


def metadata(sentences: Sequence[Sentence]) -> str:
    """Returns the rows of the metadata, below a heading: a sentence and its language.

    A tab or a line break in a text would shift all that follows to other points. So white space
    becomes single spaces, and control characters are left out.
    """
    rows = [("sentence", "language"), *sentences]
    return "".join(f"{_shown(text)}\t{_shown(language)}\n" for text, language in rows)


def _shown(text: str) -> str:
    # Categories Cc, Cf, Cs …: control characters, marks of direction, halves of pairs.
    kept = (sign for sign in " ".join(text.split()) if unicodedata.category(sign)[0] != "C")
    # The projector skips lines and cells that are empty.
    return " ".join("".join(kept).split())[:_SHOWN] or "–"


def _runs(model_dir: Path) -> Iterator[tuple[Path, str]]:
    """Yields the folders that TensorBoard shows as runs, and each one's path to the embeddings."""
    yield model_dir, FOLDER
    for name in ("train", "validation"):
        if any((model_dir / name).glob("events.out.tfevents.*")):
            yield model_dir / name, f"../{FOLDER}"
