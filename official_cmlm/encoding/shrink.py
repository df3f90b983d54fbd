"""Makes a smaller encoder of a larger one: `cmlm shrink`.

The encoder directory that it writes is one to start a training from, such as a distillation whose
teacher is the larger encoder: some of its blocks, a narrower table, fewer entries. With
`--weights=int8` alone it is the same encoder in a quarter of the bytes. With `--whiten` its vectors
are whitened (Su et al. 2021, "Whitening Sentence Representations for Better Semantics and Faster
Retrieval"): a linear map after the pooling, which needs texts and no training. So is the projection
of `--language_components`, after which a text's language no longer decides what is near it.
"""

import collections
import dataclasses
import itertools
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Annotated, Any

import numpy as np
from absl import flags

from official_cmlm import cli
from official_cmlm.checkpoints.encoder_arrays import (
    EncoderWeights,
    encoder_shapes,
    hold_table,
    make_centred_basis,
)
from official_cmlm.checkpoints.encoder_directory import (
    COMPATIBLE,
    EncoderDirectory,
    describe,
    output_directory,
)
from official_cmlm.checkpoints.encoder_weights import WEIGHT_FORMS, read_weights, write_weights
from official_cmlm.checkpoints.find_encoder import encoder_directory_of, find_encoder
from official_cmlm.common.errors import UserError
from official_cmlm.common.files import atomic_write, check_writable, stage_folder, write_array
from official_cmlm.common.input_files import expand_inputs
from official_cmlm.common.text_files import Reading, read_rows, read_with_language
from official_cmlm.common.validation import OneOf, at_least, between
from official_cmlm.configs.encoder import POOLINGS, EncoderConfig
from official_cmlm.encoding.backends.onnx import OnnxBackend
from official_cmlm.encoding.backends.onnx_graph import graph_of
from official_cmlm.encoding.sentence_encoder import SentenceEncoder
from official_cmlm.encoding.token_batches import cut_rows
from official_cmlm.evaluation.encoder import PROBES
from official_cmlm.evaluation.metrics.principal_components import language_subspace
from official_cmlm.tokenization import (
    BytePairVocabulary,
    SentencePieceVocabulary,
    TokenRows,
    Vocabulary,
    build_tokenizer,
)
from official_cmlm.vectors.nearest import unit

FLAGS = flags.FLAGS
# Standard deviation of a table of principal components, as in the trial that showed such a start to
# be useful. The layer normalisation after the table scales any deviation to 1.
_TABLE_DEVIATION = 0.5
_TEXTS_AT_ONCE = 10_000
# The constant a of the weights a / (a + p), Arora et al. 2017, §4.1.
_SMOOTHING = 1e-3
# Texts that --table=outputs finds an entry in weigh against this number of guesses.
_GUESS_COUNT = 3
# The map that guesses counts an entry at most so often, and its squared norm this much.
_MOST_TRUSTED, _RIDGE = 20, 1e-2
_RESERVED = re.compile(r"\[unused\d+\]")
# Variances below this share of the largest one are rounding errors of float32: outputs of a layer
# normalisation have one such direction, repeated texts may have others.
_LEAST_VARIANCE = 1e-10
# Tables with one row for each entry of the vocabulary.
_WORDS, _TOKEN_WEIGHTS = "word_embeddings/embeddings", "token_weights/embeddings"


@dataclasses.dataclass(frozen=True)
class Shrinking:
    """How the smaller encoder is made of the larger one.

    Attributes:
      layers: Transformer blocks to keep, from 0, such as 0,2,4; none keeps the embeddings alone.
        Default: all.
      hidden_size: columns of the table of words, with --layers=none: its first principal
        components, centred, with a standard deviation of 0.5; positions and types begin at zero.
        Default: as it is.
      table: what the new table is made of: words, the table of words; vectors, the vectors of the
        encoder for each entry as a text of its own, so that no training is needed (Tulkens and van
        Dongen 2024, "Model2Vec"); or outputs, each entry's mean output, over the texts of --input,
        of the blocks before those of --layers, so that the blocks that stay read nearly what they
        have always read. The pooling of vectors, and of outputs with --layers=none, is
        weighted_mean; a dense layer leads to the width of the vectors.
      embedding_width: columns of a table of words that a linear layer leads to the width of the
        blocks. Default: as it is.
      vocab_size: entries of a WordPiece or SentencePiece vocabulary to keep: special tokens, single
        characters, the prompts' entries, and those that are the most frequent in --input. Default:
        all.
      input: files of texts that --vocab_size counts entries in, that --table=outputs reads, and
        that --whiten or --language_components is fitted to.
      column: column of a table, or field of JSON objects, with the text. Default: text.
      language_column: column or field with the text's language, for --language_components.
      dense_size: width of a new dense layer on the sentence vector, without activation, such as
        that of the teacher's vectors. Default: the encoder's own layer, if it fits.
      pooling: how token outputs become the vector. Default: as it is.
      whiten: dimensions of vectors that are whitened on the texts of --input, before they are
        scaled to length 1: their first principal components, each with mean 0 and variance 1.
        Su et al. take 256 of BERT base and 384 of BERT large. Default: as they are.
      whiten_power: the power of its variance by which --whiten divides a component; below 0.5 the
        larger components stay larger. Default: 0.5, for variances of 1.
      language_components: directions to remove from the vectors, before they are scaled to length
        1: those in which the means of the languages of --input differ most, at most one less than
        the languages (after Xie et al. 2022). Default: none.
      weights: how weights are stored: int8 takes a quarter of the bytes, by a scale for each row.
      drop_head: whether to leave out the language-model head. Default: keep it where it fits.
      drop_prompts: whether to leave out the prompts, for a student that reads texts without them.
      seed: seed of the weights of the new dense layer.
      compatible_with: an encoder whose vectors those of this one follow, such as the teacher of its
        distillation; an index of that encoder may then be searched with this one. Default: none.
    """

    layers: tuple[str, ...] | None = None
    hidden_size: Annotated[int, at_least(0)] = 0
    table: Annotated[str, OneOf(("words", "vectors", "outputs"))] = "words"
    embedding_width: Annotated[int, at_least(0)] = 0
    vocab_size: Annotated[int, at_least(0)] = 0
    input: tuple[str, ...] = ()
    column: str = ""
    language_column: str = "lang"
    dense_size: Annotated[int, at_least(0)] = 0
    pooling: Annotated[str, OneOf(("", *POOLINGS))] = ""
    whiten: Annotated[int, at_least(0)] = 0
    whiten_power: Annotated[float, between(0, 0.5)] = 0.5
    language_components: Annotated[int, at_least(0)] = 0
    weights: Annotated[str, OneOf(WEIGHT_FORMS)] = WEIGHT_FORMS[0]
    drop_head: bool = False
    drop_prompts: bool = False
    seed: int = 0
    compatible_with: str = ""

    def blocks(self, number: int) -> list[int]:
        """Returns the blocks to keep of an encoder with this number of them."""
        if self.layers is None:
            return list(range(number))
        if self.layers == ("none",):
            return []
        blocks = [int(layer) if layer.isdecimal() else -1 for layer in self.layers]
        if not blocks or not all(0 <= block < number for block in blocks):
            raise UserError(
                f"--layers={','.join(self.layers)}: give blocks of the encoder, 0 to {number - 1}, "
                "or none"
            )
        return blocks

    def check(self, model: str, config: EncoderConfig, vocabulary: Vocabulary) -> None:
        """Raises `UserError` for settings that contradict each other or the encoder `model`."""
        if config.num_projections:
            raise UserError(
                f"{model}: its vector is a mean of projections, which cannot be made smaller; name "
                "another encoder"
            )
        width, narrow = config.token_width, self.embedding_width
        width = width if self.table == "words" else config.embedding_size
        if self.hidden_size > width or (self.hidden_size and self.blocks(config.num_layers)):
            raise UserError(
                f"--hidden_size={self.hidden_size}: give 1 to {width} (the table's columns), with "
                "--layers=none"
            )
        blocks = self.blocks(config.num_layers)
        first = config.num_layers - len(blocks)
        if self.table == "outputs" and blocks:
            if not first or blocks != list(range(first, config.num_layers)) or not narrow:
                raise UserError(
                    "--table=outputs: give --layers that are the last blocks, and not all of them, "
                    "with --embedding_width; or none"
                )
        elif self.table != "words" and (
            not 2 <= self.hidden_size <= config.embedding_size
            or self.dense_size
            or self.pooling not in ("", "weighted_mean")
        ):
            raise UserError(
                f"--table={self.table}: give --hidden_size, 2 to {config.embedding_size}, and "
                "neither --dense_size nor --pooling"
            )
        if narrow and (self.hidden_size or config.embedding_width or not 2 <= narrow < width):
            raise UserError(
                f"--embedding_width={narrow}: give 2 to {width - 1}, without --hidden_size, for an "
                "encoder whose table is as wide as its blocks"
            )
        is_mapped = bool(self.whiten or self.language_components)
        if bool(self.vocab_size or is_mapped or self.table == "outputs") != bool(self.input):
            raise UserError(
                "--input: give the texts in which --vocab_size counts entries, which "
                "--table=outputs reads, or to which --whiten or --language_components is fitted, "
                "with one of these flags"
            )
        if self.whiten and self.language_components:
            raise UserError(
                f"--language_components={self.language_components}: leave it out, or --whiten"
            )
        most = self.dense_size or self.hidden_size or config.embedding_size
        if self.whiten > most:
            raise UserError(f"--whiten={self.whiten}: give 1 to {most}, the width of the vectors")
        has_old_dense = config.dense_size and not (self.dense_size or self.hidden_size)
        if is_mapped and has_old_dense and config.dense_activation != "none":
            raise UserError(
                f"{model}: its vector ends with a dense layer with {config.dense_activation}, "
                "which cannot take in another map; leave out --whiten and --language_components"
            )
        if self.vocab_size and isinstance(vocabulary, BytePairVocabulary):
            raise UserError(
                f"{model}: has a {vocabulary.kind} vocabulary; --vocab_size cuts WordPiece and "
                "SentencePiece alone"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class SmallEncoder(EncoderWeights):
    """An encoder that is being changed; each method returns a new one.

    Attributes:
      vocabulary: its vocabulary.
    """

    vocabulary: Vocabulary

    def with_entries(self, ids: np.ndarray) -> "SmallEncoder":
        """Returns the encoder with only these entries, by old ids in the new order."""
        vocabulary = self.vocabulary.select(ids.tolist())
        tables = {name: self.encoder[name][ids] for name in self._tables()}
        head = self.head
        if head is not None:
            head = head | {"output_bias/bias": head["output_bias/bias"][ids]}
        config = self.config.for_vocabulary(len(ids), vocabulary.special_ids["pad"])
        encoder = self.encoder | tables
        return dataclasses.replace(
            self, config=config, vocabulary=vocabulary, encoder=encoder, head=head
        )

    def _tables(self) -> set[str]:
        return {_WORDS, _TOKEN_WEIGHTS} & self.encoder.keys()

    def with_blocks(self, blocks: Sequence[int]) -> "SmallEncoder":
        """Returns the encoder with only these Transformer blocks, in this order."""
        config = self.config.replace(num_layers=len(blocks))
        if not blocks:
            config = config.replace(relative_position_buckets=0)

        def old_name(name: str) -> str:
            return re.sub(
                r"(?<=^transformer/layer_)\d+", lambda new: str(blocks[int(new[0])]), name
            )

        encoder = {name: self.encoder[old_name(name)] for name in encoder_shapes(config)}
        return dataclasses.replace(self, config=config, encoder=encoder)

    def with_components(self, width: int) -> "SmallEncoder":
        """Returns an encoder without blocks, with principal components as its table of words.

        Args:
          width: number of the components, which are the new table's columns.
        """
        table, _, _ = principal_components(self.encoder[_WORDS], width)
        config = self.config.replace(
            hidden_size=width, embedding_width=0, num_attention_heads=1, dense_size=0
        )
        encoder = {name: np.zeros(shape) for name, shape in encoder_shapes(config).items()}
        encoder |= {name: self.encoder[name] for name in self._tables()}
        encoder[_WORDS] = table * (_TABLE_DEVIATION / table.std())
        encoder["embeddings/layer_norm/gamma"] = np.ones(width)
        return dataclasses.replace(self, config=config, encoder=encoder, head=None)

    def with_entry_vectors(self, width: int, directory: EncoderDirectory) -> "SmallEncoder":
        """Returns an encoder without blocks, whose table has the vectors of single entries.

        The table is made of their first `width - 1` principal components, see `hold_table`, and
        weighted by their ranks in the vocabulary, which are those of their frequency (Tulkens and
        van Dongen 2024, "Model2Vec"; the weights are those of Arora et al. 2017, "A Simple but
        Tough-to-Beat Baseline for Sentence Embeddings").

        Args:
          width: columns of the table.
          directory: see `make_encode`.
        """
        ids = np.arange(len(self.vocabulary))
        rows = TokenRows(np.int32(ids), np.arange(len(ids) + 1))
        vectors = self._open(directory, self.config.normalize).encode_rows(rows)
        return self._with_vectors(width, vectors)

    def with_entry_outputs(
        self, width: int, outputs: np.ndarray, counts: np.ndarray
    ) -> "SmallEncoder":
        """Returns the same with the vector that the mean output of each entry alone would lead to.

        Args:
          width: columns of the table.
          outputs, counts: see `mean_outputs`.
        """
        vectors = outputs
        if self.config.dense_size:
            vectors = outputs @ self.encoder["dense/kernel"] + self.encoder["dense/bias"]
        return self._with_vectors(width, vectors, np.sqrt(counts + 1))

    def _with_vectors(
        self, width: int, vectors: np.ndarray, importance: np.ndarray | None = None
    ) -> "SmallEncoder":
        weights = weigh_by_rank(self.vocabulary)
        components, basis, _ = principal_components(vectors, width - 1, importance)
        held = hold_table(self.config, components, weights, basis)
        return dataclasses.replace(self, **vars(held))

    def mean_outputs(
        self, directory: EncoderDirectory, chunks: Iterable[list[str]]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns the mean output of the last block for each entry, and how often it was read.

        The mean of an entry that is read seldom leans on a linear map, fitted to the others, of
        what the first block reads for the entry.

        Args:
          directory: has the length that texts are cut to, and their prompt.
          chunks: texts.

        Returns:
          float64 `[vocab_size, hidden]` and `[vocab_size]`.
        """
        encoder = self._open(directory, normalize=False)
        prompt = directory.settings.default_prompt
        special = self.vocabulary.special_ids
        total = np.zeros((len(self.vocabulary), self.config.hidden_size))
        counts = np.zeros(len(total))
        for texts in chunks:
            rows = cut_rows(encoder.token_rows(texts, prompt=prompt), encoder.max_seq_length - 2)
            outputs = encoder.encode(
                texts, prompt=prompt, output_value="token_embeddings", on_long="ignore"
            )
            for number, output in enumerate(outputs):
                row = rows.values[rows.row_splits[number] : rows.row_splits[number + 1]]
                ids = [special["cls"], *row, special["sep"]]
                np.add.at(total, ids, output)
                np.add.at(counts, ids, 1)
        read = np.column_stack([self._read_by_first_block()[0], np.ones(len(total))])
        is_read = counts > 0
        means = total[is_read] / counts[is_read, np.newaxis]
        trust = np.minimum(counts[is_read], _MOST_TRUSTED)[:, np.newaxis]
        squares = (trust * read[is_read]).T @ read[is_read] + _RIDGE * np.eye(read.shape[1])
        guess = read @ np.linalg.solve(squares, (trust * read[is_read]).T @ means)
        return (total + _GUESS_COUNT * guess) / (counts + _GUESS_COUNT)[:, np.newaxis], counts

    def _open(self, directory: EncoderDirectory, normalize: bool) -> SentenceEncoder:
        """Returns an encoder of these weights that cuts texts as that of a directory."""
        weights = dataclasses.replace(
            self,
            config=self.config.replace(normalize=normalize),
            encoder={name: np.float32(array) for name, array in self.encoder.items()},
        )
        length = directory.max_seq_length
        backend = OnnxBackend(graph_of(weights, self.vocabulary, length, "float32"), directory.path)
        tokenizer = build_tokenizer(self.vocabulary, tensorflow=False)
        return SentenceEncoder(backend, self.vocabulary, length, tokenizer=tokenizer)

    def _read_by_first_block(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns what the first block reads for each entry at an average position, and deviations.

        Returns:
          float64 `[vocab_size, hidden]`, and `[vocab_size, 1]`, by which the layer normalisation
          divided.
        """
        positions, types, words, gamma, beta = (
            np.asarray(self.encoder[name], np.float64)
            for name in (
                "position_embedding/embeddings",
                "type_embeddings/embeddings",
                _WORDS,
                "embeddings/layer_norm/gamma",
                "embeddings/layer_norm/beta",
            )
        )
        average = positions[self.config.position_offset :].mean(axis=0)
        words = _centre(words + average + types[0])
        deviations = np.sqrt(words.var(axis=1, keepdims=True) + self.config.layer_norm_epsilon)
        return gamma * words / deviations + beta, deviations

    def with_embedding_width(
        self,
        width: int,
        outputs: np.ndarray | None = None,
        counts: np.ndarray | None = None,
    ) -> "SmallEncoder":
        """Returns the encoder with a table of `width` columns and a linear layer after it.

        Let y be the vector that the first block reads for an entry at an average position. The
        layer is made of the first principal components of all y. It maps the normalised rows of the
        new table to y again, except that the smaller components are missing and that the part in
        the larger components has another length. The normalisation loses nothing but that length,
        because each row of the new table has a mean of 0.

        Args:
          width: columns of the table.
          outputs, counts: y, and how often each entry was read, see `mean_outputs`; positions and
            types begin at zero then. None: as the encoder's tables say.
        """
        read, deviations = self._read_by_first_block()
        importance = None if counts is None else np.sqrt(counts + 1)
        components, basis, mean = principal_components(
            read if outputs is None else outputs, width - 1, importance
        )
        turn = make_centred_basis(width)
        length = np.average(np.linalg.norm(components, axis=1), weights=importance) / np.sqrt(width)
        gamma = np.asarray(self.encoder["embeddings/layer_norm/gamma"], np.float64)

        def narrow(table: str, origin: slice) -> np.ndarray:
            rows = np.asarray(self.encoder[table], np.float64)
            if outputs is not None:
                return np.zeros((len(rows), width))
            rows = _centre(rows - rows[origin].mean(axis=0))
            return (gamma * rows / deviations.mean()) @ basis.T @ turn

        positions, types = "position_embedding/embeddings", "type_embeddings/embeddings"
        new = {
            _WORDS: components @ turn,
            positions: narrow(positions, slice(self.config.position_offset, None)),
            types: narrow(types, slice(1)),
            "embeddings/layer_norm/gamma": np.ones(width),
            "embeddings/layer_norm/beta": np.zeros(width),
            "embedding_projection/kernel": turn.T @ basis * length,
            "embedding_projection/bias": mean,
        }
        config, encoder = self.config.replace(embedding_width=width), self.encoder | new
        return dataclasses.replace(self, config=config, encoder=encoder, head=None)

    def with_dense(self, width: int, seed: int) -> "SmallEncoder":
        """Returns the encoder with a new dense layer on the vector, with normal random weights."""
        config = self.config.replace(dense_size=width, dense_activation="none")
        drawn = np.random.default_rng(seed).standard_normal((config.hidden_size, width))
        dense = {"dense/kernel": drawn * config.initializer_range, "dense/bias": np.zeros(width)}
        return dataclasses.replace(self, config=config, encoder=self.encoder | dense)

    def make_encode(self, directory: EncoderDirectory) -> Callable[[list[str]], np.ndarray]:
        """Returns a function from texts to vectors that are not scaled to length 1.

        Args:
          directory: has the length that texts are cut to, and their prompt.
        """
        encoder = self._open(directory, normalize=False)
        prompt = directory.settings.default_prompt
        return lambda texts: encoder.encode(texts, prompt=prompt, on_long="ignore")

    def with_map(self, kernel: np.ndarray, bias: np.ndarray) -> "SmallEncoder":
        """Returns the encoder with a dense layer, without activation, on its vectors.

        A dense layer that the encoder has is multiplied into the new one.
        """
        if self.config.dense_size:
            bias = bias + self.encoder["dense/bias"] @ kernel
            kernel = self.encoder["dense/kernel"] @ kernel
        config = self.config.replace(dense_size=len(bias), dense_activation="none")
        dense = {"dense/kernel": kernel, "dense/bias": bias}
        return dataclasses.replace(self, config=config, encoder=self.encoder | dense)

    def with_pooling(self, pooling: str) -> "SmallEncoder":
        """Returns the encoder with another pooling.

        New weights of tokens are 0, with which `weighted_mean` equals `mean`.
        """
        padded = self.config.padded_length if pooling == self.config.pooling else 0
        config = self.config.replace(pooling=pooling, padded_length=padded)
        encoder = dict(self.encoder)
        if pooling == "weighted_mean":
            encoder.setdefault(_TOKEN_WEIGHTS, np.zeros((config.vocab_size, 1)))
        else:
            encoder.pop(_TOKEN_WEIGHTS, None)
        return dataclasses.replace(self, config=config, encoder=encoder)


def _centre(rows: np.ndarray) -> np.ndarray:
    return rows - rows.mean(axis=-1, keepdims=True)


def principal_components(
    rows: np.ndarray, number: int, importance: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns components `[rows, number]`, orthonormal basis `[number, columns]` and mean.

    If `number` is the number of columns, `components @ basis + mean` are the rows again. Rows
    count by their `importance`, `[rows]`, by default all the same.
    """
    mean = np.average(np.asarray(rows, np.float64), axis=0, weights=importance)
    centred = rows - mean
    weighted = centred if importance is None else centred * importance[:, np.newaxis]
    # Eigenvectors of the covariance are the right singular vectors, in ascending order.
    basis = np.linalg.eigh(centred.T @ weighted)[1].T[::-1][:number]
    return centred @ basis.T, basis, mean


def whitening(
    chunks: Iterable[np.ndarray], width: int, power: float = 0.5
) -> tuple[np.ndarray, np.ndarray]:
    """Returns kernel `[columns, width]` and bias `[width]` that whiten rows (Su et al. 2021, §3).

    `rows @ kernel + bias` are the first principal components of the rows, each divided by a power
    of its variance: their mean is 0, and their covariance the identity if the power is 0.5.

    Args:
      chunks: the rows, `[rows, columns]` each.
      width: number of the components.
      power: the power.

    Raises:
      UserError: if the rows do not span so many dimensions.
    """
    count, origin, total, products = 0, 0.0, 0.0, 0.0
    for chunk in chunks:
        # Products of rows that are far from the origin would lose digits.
        origin = origin if count else np.mean(chunk, axis=0, dtype=np.float64)
        rows = chunk - origin
        count, total, products = (
            count + len(rows),
            total + rows.sum(axis=0),
            products + rows.T @ rows,
        )
    rank = 0
    if count:
        mean = total / count
        variances, axes = np.linalg.eigh(products / count - np.outer(mean, mean))
        rank = int((variances > _LEAST_VARIANCE * variances[-1]).sum())
    if rank < width:
        raise UserError(
            f"--whiten={width}: the vectors of the {count} texts of --input span {rank} "
            "dimensions; give more texts, or a smaller number"
        )
    # The eigenvalues are in ascending order.
    kernel = axes[:, ::-1][:, :width] / variances[::-1][:width] ** power
    return kernel, -(mean + origin) @ kernel


def weigh_by_rank(vocabulary: Vocabulary) -> np.ndarray:
    """Returns how much each entry counts, `[entries]`: a / (a + p), with p by Zipf's law.

    A single character counts as the most frequent other entry: many vocabularies have these in
    alphabetical order. Special tokens and BERT's reserved entries count 0.
    """
    tokens, special = vocabulary.tokens, set(vocabulary.special_tokens.values())
    is_used = np.array([not (token in special or _RESERVED.fullmatch(token)) for token in tokens])
    is_single = np.array([len(token.removeprefix("##")) == 1 for token in tokens])
    is_ranked = is_used & ~is_single
    shares = is_ranked / np.maximum(np.cumsum(is_ranked), 1)
    weights = _SMOOTHING / (_SMOOTHING + shares / max(shares.sum(), 1))
    return np.where(is_single, weights.min(), weights) * is_used


def language_projection(
    chunks: Iterable[tuple[np.ndarray, Sequence[str]]], directions: int
) -> tuple[np.ndarray, np.ndarray]:
    """Returns kernel `[columns, columns]` and bias `[columns]` that remove a language's directions.

    See `language_subspace`.

    Args:
      chunks: vectors, `[rows, columns]`, and the language of each.
      directions: to remove.
    """
    totals: dict[str, np.ndarray] = {}
    counts: collections.Counter[str] = collections.Counter()
    for vectors, languages in chunks:
        counts.update(languages)
        for language in set(languages):
            rows = vectors[np.array(languages) == language]
            totals[language] = totals.get(language, 0.0) + rows.sum(axis=0, dtype=np.float64)
    means = {language: totals[language] / count for language, count in counts.items()}
    basis, mean = language_subspace(means, directions)
    kernel = np.eye(len(mean)) - basis.T @ basis
    return kernel, -mean @ kernel


def entries_to_keep(
    vocabulary: Vocabulary, size: int, counts: np.ndarray, of_prompts: Sequence[int] = ()
) -> np.ndarray:
    """Returns the ids of a smaller vocabulary, ascending.

    Special tokens, single characters, and entries that single characters cannot spell stay, so that
    each word that had pieces still has some. The rest are the most frequent entries; of entries
    with equal counts, lower ids are kept. The padding of a table is left out.

    Args:
      vocabulary: the larger vocabulary.
      size: entries to keep.
      counts: how often each entry occurs, `[entries]`.
      of_prompts: ids that stay too.

    Raises:
      UserError: if `size` is too small, or not smaller than the vocabulary.
    """
    spell = _word_pieces
    needed = np.zeros(len(counts), bool)
    needed[[*vocabulary.special_ids.values(), *of_prompts]] = True
    if isinstance(vocabulary, SentencePieceVocabulary):
        spell = list
        # CamemBERT's padding token has the id 1 because of an entry that no text has.
        needed[list(vocabulary.controls)] = True
        vocabulary = vocabulary.without_padding()
        needed, counts = needed[: len(vocabulary)], counts[: len(vocabulary)]
    tokens = set(vocabulary.tokens)
    for i, pieces in enumerate(map(spell, vocabulary.tokens)):
        needed[i] |= len(pieces) == 1 or not tokens.issuperset(pieces)
    if not needed.sum() <= size < len(vocabulary):
        raise UserError(
            f"--vocab_size={size}: give {needed.sum()} (special tokens, single characters and "
            f"prompts) to {len(vocabulary) - 1}, one less than the vocabulary has"
        )
    order = np.lexsort((np.arange(len(vocabulary)), -counts, ~needed))
    return np.sort(order[:size])


def _word_pieces(token: str) -> list[str]:
    """Returns the entries of one character that would spell an entry of a WordPiece vocabulary."""
    word = token.removeprefix("##") or token
    first, *others = word
    return [first if word == token else f"##{first}", *(f"##{other}" for other in others)]


def count_entries(vocabulary: Vocabulary, patterns: list[str], column: str = "") -> np.ndarray:
    """Counts how often each entry occurs in the texts of files, `[entries]`."""
    tokenizer = build_tokenizer(vocabulary, tensorflow=False)
    counts = np.zeros(len(vocabulary), np.int64)
    for texts in read_texts(patterns, column):
        counts += np.bincount(tokenizer.tokenize(texts).values, minlength=len(vocabulary))
    return counts


def read_texts(patterns: list[str], column: str = "") -> Iterator[list[str]]:
    """Yields the texts of files, 10,000 at a time."""
    paths, reading = expand_inputs(patterns), Reading(column=column, on_missing="empty")
    return _chunks(row.text for path in paths for row in read_rows(path, reading))


def _chunks(items: Iterator[Any]) -> Iterator[list[Any]]:
    while chunk := list(itertools.islice(items, _TEXTS_AT_ONCE)):
        yield chunk


@dataclasses.dataclass(frozen=True)
class ShrinkRequest:
    """The encoder directory to write, and the way to it.

    Attributes:
      output_dir: encoder directory to write; it appears when complete.
      shrinking: see the class.
      overwrite: whether to replace an encoder directory of that name.
    """

    output_dir: str
    shrinking: Shrinking
    overwrite: bool = False


def define_flags() -> None:
    """Defines the flags of the source and of the request."""
    cli.define_model_name()
    cli.define(ShrinkRequest)


def main() -> None:
    """Runs the binary."""
    write(FLAGS.model, cli.read(ShrinkRequest))


def write(model: str, request: ShrinkRequest) -> None:
    """Writes the encoder directory that is asked for, and prints what it is."""
    check_writable(os.path.expanduser(request.output_dir), is_folder=True, replaced=True)
    cli.announce(f"reading {model} …")
    output = output_directory(request.output_dir, request.overwrite)
    directory = encoder_directory_of(find_encoder(model))
    shrinking = request.shrinking
    shrinking.check(model, directory.config, directory.vocabulary)
    small = shrink(directory, shrinking)
    config, name = small.config, shrinking.compatible_with
    compatible = embed_probes(name, config.embedding_size) if name else None
    with stage_folder(output) as partial:
        is_mapped = bool(shrinking.whiten or shrinking.language_components)
        for_sentences = is_mapped or directory.for_sentences
        length, settings = directory.max_seq_length, directory.settings
        if shrinking.drop_prompts:
            settings = dataclasses.replace(settings, prompts={}, default_prompt_name=None)
        describe(partial, config, small.vocabulary, length, for_sentences, settings)
        write_weights(partial, small, shrinking.weights)
        if compatible is not None:
            with atomic_write(partial / COMPATIBLE) as file:
                write_array(file, compatible)
    size = sum(path.stat().st_size for path in output.iterdir())
    print(
        f"{request.output_dir}: {config.num_layers} layers of {config.hidden_size}, "
        f"{config.vocab_size} entries, pooling {config.pooling}, vectors of "
        f"{config.embedding_size}, {'with' if small.head else 'without'} language-model head, "
        f"{size / 1e6:.1f} MB ({shrinking.weights})"
    )


def embed_probes(model: str, width: int) -> np.ndarray:
    """Returns what `COMPATIBLE` holds: vectors of an encoder, float16 `[texts, width]`.

    Raises:
      UserError: if nothing has that name, or its vectors are of another width.
    """
    encoder = SentenceEncoder.load(model)
    if encoder.dimension != width:
        raise UserError(
            f"--compatible_with={model}: has vectors of {encoder.dimension} dimensions, this "
            f"encoder's have {width}; name the encoder that it follows"
        )
    return np.float16(unit(encoder.encode_document(list(PROBES), on_long="ignore")))


def read_small(directory: EncoderDirectory, with_head: bool = False) -> SmallEncoder:
    """Reads the encoder that is to be changed."""
    weights = read_weights(directory, with_head=with_head)
    return SmallEncoder(**vars(weights), vocabulary=directory.vocabulary)


def shrink(directory: EncoderDirectory, shrinking: Shrinking) -> SmallEncoder:
    """Returns the smaller encoder; the settings are checked already."""
    layers = shrinking.blocks(directory.config.num_layers)
    small = read_small(directory, not shrinking.drop_head)
    if shrinking.vocab_size:
        vocabulary = small.vocabulary
        counts = count_entries(vocabulary, list(shrinking.input), shrinking.column)
        tokenizer = build_tokenizer(vocabulary, tensorflow=False)
        prompts = {} if shrinking.drop_prompts else directory.settings.prompts
        of_prompts = tokenizer.tokenize(list(prompts.values())).values
        small = small.with_entries(
            entries_to_keep(vocabulary, shrinking.vocab_size, counts, of_prompts)
        )
    outputs = ()
    if shrinking.table == "outputs":
        cli.announce(f"reading the texts of {','.join(shrinking.input)} …")
        before = small.with_blocks(range(layers[0] if layers else directory.config.num_layers))
        texts = read_texts(list(shrinking.input), shrinking.column)
        outputs = before.mean_outputs(directory, texts)
    if outputs and not layers:
        small = small.with_entry_outputs(shrinking.hidden_size, *outputs)
    elif shrinking.table == "vectors":
        cli.announce(f"embedding {len(small.vocabulary)} entries …")
        small = small.with_entry_vectors(shrinking.hidden_size, directory)
    else:
        small = small.with_blocks(layers)
        if shrinking.hidden_size:
            small = small.with_components(shrinking.hidden_size)
    if shrinking.embedding_width:
        small = small.with_embedding_width(shrinking.embedding_width, *outputs)
    if shrinking.dense_size:
        small = small.with_dense(shrinking.dense_size, shrinking.seed)
    small = small.with_pooling(shrinking.pooling or small.config.pooling)
    small.config.check()
    files = list(shrinking.input)
    if shrinking.whiten or shrinking.language_components:
        cli.announce(f"embedding the texts of {','.join(files)} …")
        encode = small.make_encode(directory)
    if shrinking.whiten:
        vectors = map(encode, read_texts(files, shrinking.column))
        small = small.with_map(*whitening(vectors, shrinking.whiten, shrinking.whiten_power))
    if shrinking.language_components:
        columns = shrinking.column or "text", shrinking.language_column
        rows = read_with_language(expand_inputs(files), *columns)
        chunks = (zip(*chunk) for chunk in _chunks(rows))
        embedded = ((encode(list(texts)), languages) for texts, languages in chunks)
        small = small.with_map(*language_projection(embedded, shrinking.language_components))
    return small


if __name__ == "__main__":
    define_flags()
    cli.run(main)
