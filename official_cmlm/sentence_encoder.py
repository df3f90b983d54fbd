"""`SentenceEncoder`: strings in, NumPy vectors out."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf

from official_cmlm.checkpoints.encoder_directory import load_encoder
from official_cmlm.modeling.sentence_encoder import SentenceEncoderModel
from official_cmlm.tokenization import Vocabulary, build_tokenizer

# Batches are padded to multiples of this, so that few shapes exist and little is padding.
_LENGTH_STEP = 8
# Sentences tokenised by one call.
_TOKENIZE_CHUNK = 16384


class SentenceEncoder:
    """Encodes sentences with a trained encoder.

    >>> encoder = SentenceEncoder.load("my_encoder")          # doctest: +SKIP
    >>> vectors = encoder.encode(["One.", "Another one."])    # doctest: +SKIP
    >>> vectors.shape, vectors.dtype                          # doctest: +SKIP
    ((2, 768), dtype('float32'))

    Attributes:
      model: the Keras encoder.
      vocabulary: its vocabulary.
      max_seq_length: longer texts are cut to so many tokens, `[CLS]` and `[SEP]` included.
    """

    def __init__(
        self, model: SentenceEncoderModel, vocabulary: Vocabulary, max_seq_length: int
    ) -> None:
        rows = model.config.max_position_embeddings
        if not 3 <= max_seq_length <= rows:
            raise ValueError(
                f"max_seq_length must be 3 to {rows} (the position table), got {max_seq_length}"
            )
        self.model = model
        self.vocabulary = vocabulary
        self.max_seq_length = max_seq_length
        self._tokenizer = build_tokenizer(vocabulary)
        self._forward = tf.function(
            lambda ids, mask: self.model(
                {"input_word_ids": ids, "input_mask": mask, "input_type_ids": tf.zeros_like(ids)},
                training=False,
            )["default"],
            input_signature=[tf.TensorSpec([None, None], tf.int32)] * 2,
        )

    @classmethod
    def load(cls, path: str | os.PathLike, max_seq_length: int | None = None) -> "SentenceEncoder":
        """Loads an encoder directory, e.g. the `--model_dir` of a finished or running training.

        Args:
          path: the folder.
          max_seq_length: in tokens; default is the folder's own, normally 128.

        Raises:
          UserError: if the folder is no encoder directory or its checkpoint cannot be read.
        """
        model, vocabulary, own_length = load_encoder(Path(path))
        return cls(model, vocabulary, own_length if max_seq_length is None else max_seq_length)

    @property
    def dimension(self) -> int:
        """Width of the embeddings."""
        return self.model.config.hidden_size

    def encode(
        self,
        sentences: Sequence[str],
        batch_size: int = 64,
        normalize: bool = False,
        show_progress: bool = False,
    ) -> np.ndarray:
        """Embeds sentences; the order of the rows is the order of the sentences.

        Args:
          sentences: a list of strings; empty strings are allowed. Inside, sentences are batched
            by length, so that little is padding.
          batch_size: sentences a batch.
          normalize: scale each vector to length 1, for cosine similarity.
          show_progress: draw a progress bar with the time left on standard error.

        Returns:
          float32 `[n, dimension]`; `[0, dimension]` for an empty list.

        Raises:
          TypeError: if `sentences` is a single string or holds something other than strings.
          ValueError: if `batch_size` is below 1.
        """
        _check_sentences(sentences)
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {batch_size}")
        embeddings = np.zeros([len(sentences), self.dimension], np.float32)
        rows = self._token_rows(sentences)
        lengths = np.array([len(row) for row in rows], np.int64)
        # Longest first: the first batch shows whether the memory suffices.
        order = np.argsort(-lengths, kind="stable")
        starts = range(0, len(order), batch_size)
        for start in _progress(starts, show_progress, len(sentences), batch_size):
            chosen = order[start : start + batch_size]
            ids, mask = self._pad([rows[i] for i in chosen])
            embeddings[chosen] = self._forward(ids, mask).numpy()
        if normalize:
            norms = np.linalg.norm(embeddings, axis=1, keepdims=True)
            embeddings /= np.maximum(norms, np.finfo(np.float32).tiny)
        return embeddings

    def _token_rows(self, sentences: Sequence[str]) -> list[np.ndarray]:
        """Ids of each sentence, cut, without special tokens."""
        rows: list[np.ndarray] = []
        for start in range(0, len(sentences), _TOKENIZE_CHUNK):
            chunk = sentences[start : start + _TOKENIZE_CHUNK]
            # Lone surrogates cannot be UTF-8; replace them as a decoder would.
            encoded = [text.encode("utf-8", "replace") for text in chunk]
            ragged = self._tokenizer.tokenize(tf.constant(encoded, tf.string))
            cut = ragged[:, : self.max_seq_length - 2]
            rows += np.split(cut.values.numpy(), cut.row_splits.numpy()[1:-1])
        return rows

    def _pad(self, rows: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        ids_of = self.vocabulary.special_ids
        longest = max(len(row) for row in rows) + 2
        length = min(-(-longest // _LENGTH_STEP) * _LENGTH_STEP, self.max_seq_length)
        ids = np.full([len(rows), length], ids_of["[PAD]"], np.int32)
        mask = np.zeros([len(rows), length], np.int32)
        for i, row in enumerate(rows):
            ids[i, 0] = ids_of["[CLS]"]
            ids[i, 1 : len(row) + 1] = row
            ids[i, len(row) + 1] = ids_of["[SEP]"]
            mask[i, : len(row) + 2] = 1
        return ids, mask


def _check_sentences(sentences: Sequence[str]) -> None:
    if isinstance(sentences, (str, bytes)):
        raise TypeError("encode takes a list of strings, got a single string; pass [text]")
    for index, sentence in enumerate(sentences):
        if not isinstance(sentence, str):
            raise TypeError(
                f"encode takes strings, item {index} is {type(sentence).__name__}: {sentence!r:.60}"
            )


def _progress(starts: range, show: bool, total: int, batch_size: int) -> Iterator[int]:
    if not show:
        yield from starts
        return
    from official_cmlm import progress

    with progress.bar(total, "sentence", "encode") as bar:
        for start in starts:
            yield start
            bar.update(min(batch_size, total - start))
