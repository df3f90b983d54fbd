"""`SentenceEncoder`: strings in, NumPy vectors out."""

import dataclasses
import os
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from official_cmlm import progress
from official_cmlm.backends import Backend, open_folder
from official_cmlm.checkpoints.encoder_directory import (
    NO_SETTINGS,
    EncoderDirectory,
    EncodingSettings,
    write_settings,
)
from official_cmlm.configs.encoder import VectorOverride
from official_cmlm.embeddings import Ranges, quantize, similarity
from official_cmlm.errors import UserError
from official_cmlm.nearest import unit
from official_cmlm.tokenization import Tokenizer, TokenRows, Vocabulary, build_tokenizer

if TYPE_CHECKING:
    import tensorflow as tf

    from official_cmlm.modeling.sentence_encoder import SentenceEncoderModel

# Maximum numbers of sentences and of characters in a call of the tokenizer.
_TOKENIZE_CHUNK, _TOKENIZE_CHARACTERS = 16384, 1 << 22
ON_LONG = ("cut", "error", "ignore")
# Names of prompts for the roles of retrieval in sentence-transformers' folders.
_QUERY, _DOCUMENT = ("query",), ("document", "passage", "corpus")


class TextCutWarning(UserWarning):
    """A warning that texts were cut at `max_seq_length`.

    Attributes:
      texts: number of these texts.
      tokens: number of tokens that were cut off, at least.
    """

    def __init__(self, message: str, texts: int = 0, tokens: int = 0) -> None:
        super().__init__(message)
        self.texts, self.tokens = texts, tokens


class SentenceEncoder:
    """Encodes sentences with a trained encoder.

    >>> encoder = SentenceEncoder.load("my_encoder")          # doctest: +SKIP
    >>> vectors = encoder.encode(["One.", "Another one."])    # doctest: +SKIP
    >>> vectors.shape, vectors.dtype                          # doctest: +SKIP
    ((2, 768), dtype('float32'))

    Attributes:
      backend: computes the vectors; see `official_cmlm.backends`.
      vocabulary: the encoder's vocabulary.
      max_seq_length: longer texts are cut to this many tokens, `[CLS]` and `[SEP]` included.
      prompts: name -> text that `encode(prompt_name=name)` puts before each sentence.
      default_prompt_name: name of the prompt that is used without `prompt_name`; None: no prompt.
      similarity_fn_name: how `similarity` compares embeddings.
      ranges: the range of each dimension, for embeddings of 8 bits; None: not calibrated, or only
        for another pooling or other weights. See `calibrate`.
    """

    def __init__(
        self,
        model: "SentenceEncoderModel | Backend",
        vocabulary: Vocabulary,
        max_seq_length: int,
        precision: str = "float32",
        tokenizer: Tokenizer | None = None,
        settings: EncodingSettings | None = None,
    ) -> None:
        """Makes an encoder from objects in memory.

        Args:
          model: a Keras encoder, which the backend `tensorflow` computes, or another backend.
          vocabulary: its vocabulary.
          max_seq_length: see the attribute.
          precision: precision of the arithmetic of a Keras encoder; see `load`.
          tokenizer: turns texts into ids. Default: built by `tokenization.build_tokenizer`.
          settings: prompts and the like. Default: none.

        Raises:
          ValueError: for another precision or a length that the position table does not cover.
        """
        settings = settings or NO_SETTINGS
        if isinstance(model, Backend):
            backend = model
        else:
            from official_cmlm.backends.tensorflow import TensorFlowBackend

            backend = TensorFlowBackend(model, precision)
            settings = dataclasses.replace(settings, normalize=model.config.normalize)
        rows = backend.max_positions
        if not 3 <= max_seq_length <= rows:
            raise ValueError(
                f"max_seq_length must be 3 to {rows} (the position table), got {max_seq_length}"
            )
        self.backend = backend
        self.vocabulary = vocabulary
        self.max_seq_length = max_seq_length
        self._tokenizer = tokenizer or build_tokenizer(vocabulary)
        self._normalizes = settings.normalize
        self.prompts = {_QUERY[0]: "", _DOCUMENT[0]: ""} | dict(settings.prompts)
        self.default_prompt_name = settings.default_prompt_name
        self.similarity_fn_name = settings.similarity_fn_name
        self._id = dataclasses.replace(backend.embedding_id, weights=settings.weights)
        self.ranges = settings.ranges
        self._other_ranges: tuple[Ranges, str] | None = None
        if self.ranges is not None and (why := self.ranges.origin.difference(self._id)):
            self.ranges, self._other_ranges = None, (self.ranges, why)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike,
        max_seq_length: int | None = None,
        precision: str = "float32",
        pooling: str | None = None,
        sentence_vector: str | None = None,
        backend: str = "tensorflow",
        layer: int | None = None,
    ) -> "SentenceEncoder":
        """Loads an encoder directory: the `--model_dir` of a training, or an imported checkpoint.

        Args:
          path: the folder.
          max_seq_length: in tokens; default is the folder's own, the longest that was trained.
          precision: precision of the arithmetic; `encode` has an argument for stored embeddings.
            `float32` (default), or `bfloat16`: products of 8-bit mantissas with float32
            sums, about twice as fast on processors that have them (AVX512-BF16, AMX) and slower
            on others; the embeddings then differ in the third digit. With the backend `onnx`,
            `int8`: products of 8-bit integers, about twice as fast; figures of its accuracy are in
            benchmarks/results/encode.md.
          pooling: how token outputs become the vector, one of `configs.encoder.POOLINGS`. Default:
            as the encoder was trained, or imported.
          sentence_vector: `pooled`, or `projected_mean`, the mean of CMLM's projections, which a
            training with the objective `cmlm` has. Default: the encoder's own.
          backend: computes the vectors, one of `official_cmlm.backends.BACKENDS`:
            `tensorflow` (default); `onnx`, ONNX Runtime, for which `path` may be a folder of
            `export.export_onnx` too; `auto`, the faster of these, measured once.
          layer: number of the layer whose outputs are pooled, from 1, for the backend `tensorflow`.
            Default: the last one.

        Raises:
          UserError: if the folder is not an encoder directory, its checkpoint cannot be read, or it
            lacks the vector; for an unknown backend.
          ValueError: for another precision or a length that the position table does not cover.
        """
        if precision in ("uint8", "binary", "ubinary"):
            raise ValueError(
                f"precision {precision} is one of embeddings: encode(…, precision={precision!r}); "
                "here it is that of the arithmetic"
            )
        if layer is not None and backend != "tensorflow":
            raise ValueError(f"layer={layer} is for the backend tensorflow, not for {backend}")
        override = VectorOverride(pooling, sentence_vector, layer)
        opened = open_folder(backend, Path(path), max_seq_length, precision, override)
        return cls(
            opened.backend,
            opened.vocabulary,
            opened.max_seq_length,
            tokenizer=opened.tokenizer,
            settings=opened.settings,
        )

    def save_settings(self, folder: str | os.PathLike) -> None:
        """Stores prompts, similarity and ranges in an encoder directory, in place of those there.

        Ranges are stored with the pooling and a digest of the weights that they belong to. Without
        ranges the folder's file of ranges is removed, unless it came with this encoder and belongs
        to another pooling or other weights.

        Raises:
          UserError: if the folder is not an encoder directory, or the prompts are not strings.
        """
        ranges = self.ranges
        if ranges is None and self._other_ranges:
            ranges = self._other_ranges[0]
        elif ranges is not None and ranges.origin.weights is None:
            # An encoder in memory counts as the folder's encoder.
            origin = dataclasses.replace(
                ranges.origin, weights=EncoderDirectory.open(folder).weights_digest
            )
            ranges = dataclasses.replace(ranges, origin=origin)
        settings = EncodingSettings(
            self.prompts,
            self.default_prompt_name,
            self.similarity_fn_name,
            self._normalizes,
            ranges,
        )
        write_settings(folder, settings)

    def token_rows(
        self,
        sentences: Sequence[str],
        *,
        role: str | None = None,
        prompt_name: str | None = None,
        prompt: str | None = None,
    ) -> TokenRows:
        """Returns the ids of each sentence after its prompt, for `encode_rows`.

        They are not cut and lack the special tokens, so ids from elsewhere can take their place.

        Args:
          sentences, prompt_name, prompt: see `encode`.
          role: `query` or `document`: the prompt of `encode_query` or `encode_document`.

        Returns:
          int32 ids, a row for each sentence.

        Raises:
          TypeError, UserError: as `encode`.
        """
        if role is not None:
            names = {"query": _QUERY, "document": _DOCUMENT}[role]
            prompt = self._of_role(names, {}).get("prompt")
        prompt, sentences = self._prompt(prompt_name, prompt), _checked_sentences(sentences)
        rows = self._tokenizer.tokenize([prompt + sentence for sentence in sentences])
        return TokenRows(rows.values, rows.row_splits)

    def encode_rows(self, rows: TokenRows, batch_size: int = 64) -> np.ndarray:
        """Embeds rows of ids, each cut to `max_seq_length` with its special tokens.

        Args:
          rows: ids of the vocabulary without special tokens, see `token_rows`.
          batch_size: see `encode`.

        Returns:
          float32 `[n, dimension]`, as `encode` without options.

        Raises:
          ValueError: if `batch_size` is below 1.
          UserError: if an embedding is not finite.
        """
        return self._embed(_cut(rows, self.max_seq_length - 2), batch_size, False)

    @property
    def dimension(self) -> int:
        """Width of the embeddings."""
        return self.backend.dimension

    @property
    def model(self) -> "SentenceEncoderModel":
        """The Keras encoder.

        Raises:
          UserError: if the backend has none.
        """
        if not hasattr(self.backend, "model"):
            raise UserError(
                f"encoder.model: the backend {self.backend.name} has no Keras model; load the "
                'encoder with backend="tensorflow"'
            )
        return self.backend.model

    def encode(
        self,
        sentences: Sequence[str],
        batch_size: int = 64,
        normalize: bool = False,
        show_progress: bool = False,
        *,
        prompt_name: str | None = None,
        prompt: str | None = None,
        on_long: str = "cut",
        truncate_dim: int | None = None,
        precision: str = "float32",
    ) -> np.ndarray:
        """Embeds sentences; the order of the rows is the order of the sentences.

        Args:
          sentences: a list of strings, or another collection of them; empty strings are allowed,
            and a lone surrogate, which has no UTF-8, counts as `?`. Sentences are batched by
            length, so that there is little padding.
          batch_size: maximum sentences a batch; long sentences come in smaller batches.
          normalize: scale each vector to length 1, for cosine similarity.
          show_progress: draw a progress bar with the time left on standard error.
          prompt_name: key of `prompts`; its text is put before each sentence. Default:
            `default_prompt_name`.
          prompt: another text in place of it; "" for no prompt.
          on_long: treatment of sentences with more than `max_seq_length` tokens, prompt included:
            `cut`, with one `TextCutWarning` that counts them; `error`; or `ignore`, which cuts
            silently. `encode_long` cuts nothing.
          truncate_dim: keep this many first dimensions, before `normalize`. Default: all.
          precision: precision of the returned embeddings, one of `embeddings.PRECISIONS`; see
            `embeddings.quantize`. `int8` and `uint8` need `ranges`. Default `float32`. (`load` has
            an argument for the arithmetic.)

        Returns:
          float32 `[n, dimension]`, or as `truncate_dim` and `precision` say; an empty list gives
          the same number of columns.

        Raises:
          TypeError: if `sentences` is a single string or holds something other than strings.
          ValueError: if `batch_size` is below 1, or another argument has an unknown value.
          UserError: if an embedding is not finite, as with weights that overflow; if a sentence is
            too long and `on_long` is `error`; if the prompt is unknown, or ranges are missing.
        """
        sentences = _checked_sentences(sentences)
        if on_long not in ON_LONG:
            raise ValueError(f"on_long must be one of {', '.join(ON_LONG)}; got {on_long!r}")
        # A wrong argument is an error before any work.
        self._finish(self._rows(0), normalize, truncate_dim, precision)
        prompt = self._prompt(prompt_name, prompt)
        truncated = _Truncated(self.max_seq_length)
        rows = self._token_rows(sentences, prompt, None if on_long == "ignore" else truncated)
        truncated.report(on_long, len(sentences))
        embeddings = self._embed(rows, batch_size, show_progress)
        return self._finish(embeddings, normalize, truncate_dim, precision)

    def encode_query(self, sentences: Sequence[str], **options: Any) -> np.ndarray:
        """Embeds queries of retrieval: `encode` with the prompt `query`, if there is one.

        Otherwise they get no prompt, not even the default one.

        Args:
          sentences, **options: see `encode`; a prompt among the options has priority.
        """
        return self.encode(sentences, **self._of_role(_QUERY, options))

    def encode_document(self, sentences: Sequence[str], **options: Any) -> np.ndarray:
        """Embeds documents of retrieval: `encode` with their prompt.

        It is the first of `document`, `passage` and `corpus` that is not empty; otherwise documents
        get no prompt.

        Args:
          sentences, **options: see `encode`; a prompt among the options has priority.
        """
        return self.encode(sentences, **self._of_role(_DOCUMENT, options))

    def encode_long(
        self,
        texts: str | Sequence[str],
        batch_size: int = 64,
        normalize: bool = False,
        show_progress: bool = False,
        *,
        overlap: int | None = None,
        prompt_name: str | None = None,
        prompt: str | None = None,
        truncate_dim: int | None = None,
        precision: str = "float32",
    ) -> np.ndarray:
        """Embeds texts of any length: the mean over windows of `max_seq_length` tokens.

        Each window begins `max_seq_length - 2 - overlap` tokens (fewer with a prompt) after the one
        before it; the last one ends with the text. Windows are weighted by their numbers of tokens.
        Every window gets the prompt. An encoder that scales its embeddings to length 1 scales the
        mean too. A text that fits into one window has the vector of `encode`.

        Args:
          texts: one text, or a list of them.
          overlap: tokens that a window shares with the one before it. Default: an eighth of it.
          batch_size, normalize, show_progress, prompt_name, prompt, truncate_dim, precision: see
            `encode`; batches consist of windows.

        Returns:
          The result of `encode`; for one text only its row.

        Raises:
          ValueError: for an overlap as long as a window.
          TypeError, UserError: as `encode`.
        """
        several = _checked_sentences([texts] if isinstance(texts, str) else texts)
        # A wrong argument is an error before any work.
        self._finish(self._rows(0), normalize, truncate_dim, precision)
        prompt = self._prompt(prompt_name, prompt)
        ids = [row for c in _chunks(several, None, prompt) for row in self._ids(c)]
        ahead = _common_starts(self._ids([prompt])[0], ids) if prompt else [0] * len(ids)
        width = self.max_seq_length - 2 - max(ahead, default=0)
        if width < 1 or (overlap is not None and not 0 <= overlap < width):
            raise ValueError(
                f"overlap must be 0 to {width - 1} tokens, as a window holds {width} of the text, "
                f"got {overlap or 0}"
            )
        windows, owners = _windows(ids, ahead, self.max_seq_length - 2, overlap)
        vectors = self._embed(windows, batch_size, show_progress, owners)
        lengths = np.diff(windows.row_splits) - np.array(ahead, np.int64)[owners]
        weights = np.maximum(lengths, 1).astype(np.float64)
        sums = np.zeros([len(several), self.dimension], np.float64)
        np.add.at(sums, owners, vectors * weights[:, np.newaxis])
        totals = np.bincount(owners, weights, len(several))
        means = (sums / totals[:, np.newaxis]).astype(np.float32)
        alone = np.bincount(owners, minlength=len(several)) == 1
        if self._normalizes:
            means = unit(means, in_place=True)
        # A text of a single window keeps that window's vector bit for bit.
        first = np.searchsorted(owners, np.flatnonzero(alone))
        means[alone] = vectors[first]
        done = self._finish(means, normalize, truncate_dim, precision)
        return done[0] if isinstance(texts, str) else done

    def calibrate(
        self,
        sentences: Sequence[str],
        normalize: bool = False,
        truncate_dim: int | None = None,
        **options: Any,
    ) -> Ranges:
        """Finds the range of each dimension, which `precision="int8"` and `"uint8"` need.

        The attribute `ranges` keeps it; `save_settings` stores it.

        Args:
          sentences: thousands of texts of the kind that will be embedded.
          normalize, truncate_dim: the arguments that `encode` will get.
          **options: further arguments of `encode`.

        Raises:
          ValueError: for fewer than two texts.
        """
        found = self.encode(sentences, normalize=normalize, truncate_dim=truncate_dim, **options)
        self.ranges, self._other_ranges = Ranges.of(found, normalize, self._id), None
        return self.ranges

    def similarity(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Computes the similarity of each row of `a` with each of `b` by `similarity_fn_name`.

        Args:
          a, b: embeddings, float `[n, dim]` and `[m, dim]`.

        Returns:
          float32 `[n, m]`, see `embeddings.similarity`.
        """
        return similarity(a, b, self.similarity_fn_name)

    def count_tokens(
        self,
        sentences: Sequence[str],
        *,
        prompt_name: str | None = None,
        prompt: str | None = None,
    ) -> np.ndarray:
        """Counts the tokens of each sentence before it is cut, special ones and prompt included.

        Sentences with more than `max_seq_length` are cut by `encode`.

        Args:
          sentences, prompt_name, prompt: see `encode`.

        Returns:
          int64 `[n]`.

        Raises:
          TypeError, UserError: as `encode`.
        """
        sentences, prompt = _checked_sentences(sentences), self._prompt(prompt_name, prompt)
        chunks = (self._tokenizer.tokenize(chunk) for chunk in _chunks(sentences, None, prompt))
        return np.concatenate([np.zeros([0], np.int64), *map(_lengths, chunks)])

    def inputs(self, sentences: Sequence[str]) -> "dict[str, tf.Tensor]":
        """Returns the inputs of `model` for these sentences, e.g. to train it further.

        Returns:
          `input_word_ids`, `input_mask` and `input_type_ids`, int32 `[n, longest]`; `[0, 2]` for
          an empty list.

        Raises:
          TypeError: as `encode`.
        """
        import tensorflow as tf

        ids, lengths = self._padded(self._token_rows(_checked_sentences(sentences)))
        mask = np.arange(ids.shape[1]) < lengths[:, np.newaxis]
        return {
            "input_word_ids": tf.constant(ids),
            "input_mask": tf.constant(mask, tf.int32),
            "input_type_ids": tf.zeros(ids.shape, tf.int32),
        }

    def _embed(
        self,
        rows: TokenRows,
        batch_size: int,
        show_progress: bool,
        numbers: np.ndarray | None = None,
    ) -> np.ndarray:
        """Embeds rows of ids; `numbers` are the numbers of their texts, for messages."""
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {batch_size}")
        lengths = _lengths(rows)
        embeddings = self._rows(len(lengths))

        def run(chosen: np.ndarray) -> np.ndarray:
            return self.backend.embed(*self._padded(rows, chosen))

        # Padding is computed too, so batches are made by the padded length.
        computed = np.maximum(lengths, self.backend.padded_length)
        batches = list(_batches(computed, batch_size, self.backend.batch_tokens))
        pool = ThreadPoolExecutor(self.backend.concurrent)
        with pool, closing(pool.map(run, batches)) as results:
            for chosen, vectors in _progress(zip(batches, results), show_progress, len(lengths)):
                embeddings[chosen] = vectors
                _check_finite(vectors, chosen if numbers is None else numbers[chosen])
        return embeddings

    def _rows(self, count: int) -> np.ndarray:
        return np.zeros([count, self.dimension], np.float32)

    def _finish(
        self, embeddings: np.ndarray, normalize: bool, truncate_dim: int | None, precision: str
    ) -> np.ndarray:
        """Shortens, scales and quantises, in the order of sentence-transformers."""
        if truncate_dim is not None and not 1 <= truncate_dim <= self.dimension:
            raise ValueError(f"truncate_dim must be 1 to {self.dimension}, got {truncate_dim}")
        if truncate_dim not in (None, self.dimension):
            embeddings = embeddings[:, :truncate_dim].copy()
        if normalize:
            unit(embeddings, in_place=True)
        ranges = self.ranges
        if precision in ("int8", "uint8"):
            if ranges is not None:
                ranges = ranges.cut(embeddings.shape[1], normalize)
            elif self._other_ranges:
                raise UserError(
                    f"precision {precision}: the stored ranges are of other vectors: "
                    f"{self._other_ranges[1]}; call calibrate(texts)"
                )
        return quantize(embeddings, precision, ranges)

    def _prompt(self, name: str | None, prompt: str | None) -> str:
        """Returns the text that is put before each sentence."""
        if prompt is not None:
            return prompt
        name = self.default_prompt_name if name is None else name
        if name is None:
            return ""
        if name not in self.prompts:
            raise UserError(
                f"no prompt {name!r:.60}; the encoder has {', '.join(sorted(self.prompts))}"
            )
        return self.prompts[name]

    def _of_role(self, names: tuple[str, ...], options: dict[str, Any]) -> dict[str, Any]:
        if options.get("prompt") is not None or options.get("prompt_name") is not None:
            return options
        prompts = (self.prompts.get(name) for name in names)
        return options | {"prompt": next(filter(None, prompts), "")}

    def _ids(self, texts: list[str]) -> list[np.ndarray]:
        rows = self._tokenizer.tokenize(texts)
        return np.split(rows.values, rows.row_splits[1:-1])

    def _token_rows(
        self, sentences: Sequence[str], prompt: str = "", truncated: "_Truncated | None" = None
    ) -> TokenRows:
        """Returns the ids of each sentence without special tokens, cut at `max_seq_length`."""
        values, splits = [np.zeros([0], np.int32)], [np.zeros([1], np.int64)]
        # Each character has at least one byte.
        most = self.vocabulary.most_bytes(self.max_seq_length)
        start = 0
        for texts in _chunks(sentences, most, prompt):
            whole = self._tokenizer.tokenize(texts)
            if truncated is not None:
                truncated.count(whole, sentences[start : start + len(texts)], len(prompt), most)
                start += len(texts)
            chunk = _cut(whole, self.max_seq_length - 2)
            values.append(chunk.values)
            splits.append(chunk.row_splits[1:] + splits[-1][-1])
        return TokenRows(np.concatenate(values), np.concatenate(splits))

    def _padded(
        self, rows: TokenRows, chosen: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Builds a batch of rows, by default of all; see `backends.Backend.embed`.

        Returns:
          `[CLS] tokens [SEP]` and padding, int32 `[n, longest]`, and the lengths, int32 `[n]`.
        """
        chosen = np.arange(len(rows.row_splits) - 1) if chosen is None else chosen
        starts = rows.row_splits[chosen]
        lengths = (rows.row_splits[chosen + 1] - starts + 2).astype(np.int32)
        # Every row has the two special tokens, so no row is shorter.
        ids_of, width = self.vocabulary.special_ids, int(lengths.max(initial=2))
        columns = np.arange(width)
        # Column 1 holds the first token; values outside a row are overwritten below.
        source = starts[:, np.newaxis] + columns - 1
        inside = (columns > 0) & (columns < lengths[:, np.newaxis] - 1)
        ids = np.full([len(chosen), width], ids_of["pad"], np.int32)
        ids[inside] = rows.values[source[inside]]
        ids[:, 0] = ids_of["cls"]
        ids[np.arange(len(chosen)), lengths - 1] = ids_of["sep"]
        return ids, lengths


def _lengths(rows: TokenRows) -> np.ndarray:
    """Counts the tokens of each row with its two special ones: int64 `[n]`."""
    return np.diff(rows.row_splits) + 2


@dataclasses.dataclass
class _Truncated:
    """Counts the texts that are cut at `max_seq_length`, and their tokens.

    Attributes:
      max_seq_length: longest length, special tokens included.
      texts: number of longer texts.
      tokens: number of their tokens beyond that length.
      exact: whether all of their tokens were seen.
    """

    max_seq_length: int
    texts: int = 0
    tokens: int = 0
    exact: bool = True

    def count(
        self, rows: TokenRows, sentences: Sequence[str], prompt: int, most: int | None
    ) -> None:
        """Adds tokenised texts, of which only the first `most` characters were tokenised."""
        over = np.maximum(_lengths(rows) - self.max_seq_length, 0)
        if most is not None:
            partly = np.array([len(s) + prompt > most for s in sentences], bool)
            self.exact &= not partly.any()
            over = np.maximum(over, partly)
        self.texts += int(np.count_nonzero(over))
        self.tokens += int(over.sum())

    def report(self, on_long: str, total: int) -> None:
        """Warns, or raises `UserError`, if a text is cut."""
        if not self.texts:
            return
        least = "" if self.exact else "at least "
        what = (
            f"{self.texts} of {total} texts have more than {self.max_seq_length} tokens, together "
            f"{least}{self.tokens} too many"
        )
        if on_long == "error":
            raise UserError(
                f"{what}; shorten them, load the encoder with a larger max_seq_length, or take "
                "encode_long"
            )
        message = (
            f"{what}, which are cut off; encode_long reads all, on_long='ignore' cuts silently"
        )
        warnings.warn(TextCutWarning(message, self.texts, self.tokens), stacklevel=_stacklevel())


def _stacklevel() -> int:
    """Returns the `stacklevel` of a warning for the first caller outside of this module."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals is globals():
        level, frame = level + 1, frame.f_back
    return level


def _common_starts(prompt: np.ndarray, ids: list[np.ndarray]) -> list[int]:
    """Counts the tokens of a prompt with which each row of ids begins.

    The last ones may be missing: they may be joined with the text, as byte pair encoding joins a
    space and the word after it.
    """
    starts = []
    for row in ids:
        shorter = min(len(prompt), len(row))
        same = prompt[:shorter] == row[:shorter]
        starts.append(shorter if same.all() else int(np.argmin(same)))
    return starts


def _windows(
    ids: list[np.ndarray], ahead: list[int], longest: int, overlap: int | None
) -> tuple[TokenRows, np.ndarray]:
    """Cuts rows of ids into windows.

    Args:
      ids: int32 ids of each text, the prompt's first.
      ahead: for each text, the number of the prompt's tokens that precede each of its windows.
      longest: tokens of a window, these included.
      overlap: tokens that a window shares with the one before it; None: an eighth of its tokens
        after the prompt.

    Returns:
      The windows, and the number of each window's text, ascending, int64.
    """
    rows, owners = [np.zeros([0], np.int32)], []
    for number, (row, start) in enumerate(zip(ids, ahead)):
        # Each window begins with the prompt as it was tokenised before the text.
        prompt, width = row[:start], longest - start
        shared = width // 8 if overlap is None else overlap
        while True:
            rows.append(np.concatenate([prompt, row[start : start + width]]))
            owners.append(number)
            if start + width >= len(row):
                break
            start += width - shared
    splits = np.cumsum([len(row) for row in rows])
    return TokenRows(np.concatenate(rows), splits.astype(np.int64)), np.array(owners, np.int64)


def _chunks(sentences: Sequence[str], most: int | None, prompt: str = "") -> Iterator[list[str]]:
    """Yields the sentences after the prompt, in lists that fit in memory.

    Each has at most `most` characters, prompt included.
    """
    chunk, characters = [], 0
    for sentence in sentences:
        chunk.append((prompt + sentence)[:most] if prompt else sentence[:most])
        characters += len(chunk[-1])
        if len(chunk) == _TOKENIZE_CHUNK or characters >= _TOKENIZE_CHARACTERS:
            yield chunk
            chunk, characters = [], 0
    if chunk:
        yield chunk


def _cut(rows: TokenRows, longest: int) -> TokenRows:
    """Cuts each row to its first ids."""
    lengths = np.diff(rows.row_splits)
    if lengths.max(initial=0) <= longest:
        return rows
    places = np.arange(len(rows.values)) - np.repeat(rows.row_splits[:-1], lengths)
    splits = np.concatenate([[0], np.cumsum(np.minimum(lengths, longest))])
    return TokenRows(rows.values[places < longest], splits.astype(np.int64))


def _batches(lengths: np.ndarray, batch_size: int, tokens: int) -> Iterator[np.ndarray]:
    """Yields the indices of each batch's sentences, the longest first; `lengths` in tokens.

    A batch of long sentences has fewer of them, so memory does not grow with their length. Batches
    have little padding, and the first one shows whether memory suffices.
    """
    order = np.argsort(-lengths, kind="stable")
    start = 0
    while start < len(order):
        count = min(batch_size, max(1, tokens // int(lengths[order[start]])))
        yield order[start : start + count]
        start += count


def _checked_sentences(sentences: Iterable[str]) -> list[str]:
    """Lists the sentences of any collection, such as a set or a generator, after a check."""
    if isinstance(sentences, (str, bytes)):
        raise TypeError("encode takes a list of strings, got a single string; pass [text]")
    found = list(sentences)
    for index, sentence in enumerate(found):
        if not isinstance(sentence, str):
            raise TypeError(
                f"encode takes strings, item {index} is {type(sentence).__name__}: {sentence!r:.60}"
            )
    return found


def _check_finite(vectors: np.ndarray, chosen: np.ndarray) -> None:
    finite = np.isfinite(vectors).all(axis=1)
    if not finite.all():
        raise UserError(
            f"the embedding of sentence {int(chosen[~finite][0])} is not finite: the encoder's "
            "weights are too large; train it again with a lower learning rate"
        )


def _progress(results: Iterable[tuple], show: bool, total: int) -> Iterator[tuple]:
    """Passes on (indices, vectors) of batches and draws the number of finished sentences."""
    with progress.bar(total, "sentence", "encode") if show else nullcontext() as bar:
        for chosen, vectors in results:
            yield chosen, vectors
            if bar is not None:
                bar.update(len(chosen))
