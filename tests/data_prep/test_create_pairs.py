"""The binary that makes pairs records: what it writes, and what it says of broken input."""

import re

import pytest
import tensorflow as tf
from absl import flags
from absl.testing import flagsaver

from data_prep import create_documents, create_pairs
from official_cmlm.common.errors import UserError
from official_cmlm.encoding.sentence_encoder import SentenceEncoder
from official_cmlm.records.manifest import load_manifest, load_records_vocabulary
from official_cmlm.tokenization import build_tokenizer
from tests.data_prep.binaries import names_in, run_binary
from tests.pairs_helpers import (
    PROMPTS,
    bitext,
    nli_rows,
    read_pairs_by_hand,
    write_prompted_encoder,
)
from tests.pairs_helpers import pair as make_pair

LANGUAGES = ("en", "de", "fr")


@pytest.fixture
def run(tmp_path, vocabulary):
    """Runs the binary in this process on files of tmp_path; writes tmp_path/out."""
    vocabulary.save(tmp_path)

    def run(files, languages, **values):
        values = {
            "input": ",".join(str(tmp_path / name) for name in files),
            "languages": ",".join(languages),
            "vocab_file": tmp_path / "vocab.txt",
            "output_dir": tmp_path / "out",
        } | values
        run_binary(create_pairs, **values)
        return load_manifest(tmp_path / "out", "pairs")

    return run


def _write_lines(folder, rows, names):
    """Writes aligned files of the first and of the second texts."""
    for side, name in enumerate(names):
        (folder / name).write_text("".join(f"{pair.texts[side]}\n" for (pair,) in rows))


def _write_tables(folder, rows, header="premise\thypo\tlabel\n"):
    """Writes a table for each language, row-aligned; returns their names."""
    names = [f"nli.{language}.tsv" for language in LANGUAGES]
    for name, column in zip(names, zip(*rows)):
        lines = ["\t".join([*pair.texts, *([pair.label] if pair.label else [])]) for pair in column]
        (folder / name).write_text(header + "".join(f"{line}\n" for line in lines))
    return names


def test_bitext(run, tmp_path, vocabulary, capsys):
    """Two aligned files a direction; shards of one pair of languages each; one line of summary."""
    german, french = bitext(40, "en-de"), bitext(15, "en-fr")
    _write_lines(tmp_path, german, ["1.en", "1.de"])
    _write_lines(tmp_path, french, ["2.en", "2.fr"])
    files, languages = ["1.en", "1.de", "2.en", "2.fr"], ["en", "de", "en", "fr"]
    manifest = run(files, languages, shard_mb=0.002, keep_text=True)
    folder = tmp_path / "out"
    assert (manifest.documents, manifest.records, manifest.sentences) == (55, 55, 110)
    assert manifest.languages == {"en-de": 40, "en-fr": 15}
    assert manifest.labels == {} and manifest.row_size == 1 and manifest.keep_text
    assert manifest.counters == {} and sum(manifest.length_histogram.values()) == 110
    assert load_records_vocabulary(folder, manifest) == vocabulary
    shards = read_pairs_by_hand(folder)
    names = [shard.name for shard in manifest.shards]
    assert names == [f"pairs-{i:05d}.tfrecord" for i in range(len(names))] == list(shards)
    others = ["vocab.json", "vocab.txt"]
    assert names_in(folder) == ["balance.md", "dataset.json", *names, *others]
    assert "| en-de | 40 |" in (folder / "balance.md").read_text()
    for shard in manifest.shards:
        assert {"-".join(r["languages"]) for r in shards[shard.name]} == {shard.language}
    assert sum(shard.language == "en-de" for shard in manifest.shards) > 1
    texts = [record["text"] for name in names for record in shards[name]]
    assert sorted(texts) == sorted(list(pair.texts) for (pair,) in german + french)
    summary = f"55 rows, 55 pairs, {manifest.tokens} tokens in {len(names)} shard(s)"
    assert summary in capsys.readouterr().out


def test_inference(run, tmp_path, vocabulary):
    """Row-aligned tables with a header: rows stay together, in the order of the languages."""
    rows = nli_rows(20, LANGUAGES)
    files = _write_tables(tmp_path, rows)
    values = {"format": "tsv", "header": True, "row_aligned": True, "shard_mb": 0.001}
    manifest = run(files, LANGUAGES, **values)
    assert (manifest.documents, manifest.records, manifest.sentences) == (20, 60, 120)
    assert manifest.languages == {"en-en": 20, "de-de": 20, "fr-fr": 20}
    assert manifest.labels == {"entailment": 7, "neutral": 7, "contradiction": 6}
    assert manifest.row_size == 3 and not manifest.keep_text
    assert len(manifest.shards) > 3 and {shard.language for shard in manifest.shards} == {""}
    assert all(shard.records % 3 == 0 for shard in manifest.shards)
    records = [r for shard in read_pairs_by_hand(tmp_path / "out").values() for r in shard]
    tokenizer = build_tokenizer(vocabulary)
    expected = [pair for row in rows for pair in row]
    for i, (record, pair) in enumerate(zip(records, expected, strict=True)):
        assert record["ids"] == tokenizer.tokenize(pair.texts).to_list()
        assert record["languages"] == list(pair.languages) and record["text"] == []
        assert (record["row"], record["label"]) == (i // 3, i // 3 % 3)


ROWS = [("a cat", "the cat", "a dog"), ("a house", "the house"), ("trees", "a tree", "a river")]


@pytest.mark.parametrize("header", [True, False])
def test_triples(run, tmp_path, vocabulary, header, capsys):
    """A hard negative is stored where there is one; the manifest and the summary count them."""
    # An empty cell is not a text.
    lines = ["anchor\tpositive\tnegative"] * header + ["\t".join(row) for row in ROWS]
    lines[-2] += "\t "
    (tmp_path / "t").write_text("\n".join(lines))
    manifest = run("t", ["en"], format="triples", keep_text=True, header=header)
    assert (manifest.records, manifest.sentences, manifest.negatives) == (3, 8, 2)
    assert manifest.languages == {"en-en": 3} and manifest.labels == {}
    (records,) = read_pairs_by_hand(tmp_path / "out").values()
    assert [tuple(record["text"]) for record in records] == ROWS
    tokenizer = build_tokenizer(vocabulary)
    assert [record["ids"] for record in records] == [
        tokenizer.tokenize(list(row)).to_list() for row in ROWS
    ]
    assert "3 rows, 3 pairs (2 with a hard negative), " in capsys.readouterr().out


def test_texts_are_read_as_the_encoder_reads_them(run, tmp_path, vocabulary):
    """Ids have the prompts, before a negative that of documents; texts and filters do not."""
    encoder = write_prompted_encoder(tmp_path / "encoder", vocabulary)
    # A row without tokens of its own is left out, and so is one that repeats a text.
    rows = [*ROWS, ("\u200b", "a cat"), ("A cat!", "a river")]
    (tmp_path / "t").write_text("\n".join("\t".join(row) for row in rows))
    values = {"format": "triples", "vocab_file": encoder, "keep_text": True, "repeated": "either"}
    manifest = run("t", ["en"], **values, roles="query,document")
    assert (manifest.roles, manifest.prompts) == (["query", "document"], [*PROMPTS.values()])
    assert manifest.counters == {"pairs/repeated_first_text": 1, "pairs/without_tokens": 1}
    (records,) = read_pairs_by_hand(tmp_path / "out").values()
    assert [tuple(record["text"]) for record in records] == ROWS
    loaded = SentenceEncoder.load(encoder)
    for record, (query, *documents) in zip(records, ROWS, strict=True):
        ids = loaded.token_rows([query], role="query").to_list()
        assert record["ids"] == ids + loaded.token_rows(documents, role="document").to_list()
        assert [vocabulary.tokens[i] for i in record["ids"][1][:3]] == ["a", "dog", ","]


@pytest.mark.parametrize(
    ("roles", "message"),
    [
        ("query,answer", "--roles=query,answer: name two, .*; it has query, document, passage"),
        ("query", "--roles=query: name two, as in query,document"),
        ("document,document", "vocab.txt: not an encoder directory"),
    ],
)
def test_roles_that_the_encoder_has_not_are_one_line(run, tmp_path, vocabulary, roles, message):
    encoder = write_prompted_encoder(tmp_path / "encoder", vocabulary)
    (tmp_path / "t").write_text("a cat\tthe cat\n")
    with pytest.raises(UserError, match=message):
        path = tmp_path / "vocab.txt" if "vocab.txt" in message else encoder
        run("t", ["en"], format="tsv", vocab_file=path, roles=roles)
    assert not (tmp_path / "out").exists()


def test_hard_negatives_that_are_left_out(run, tmp_path):
    """A row goes whole if its negative is the anchor, the positive or an evaluation sentence."""
    long = "the old house by the river was sold to a man from the town"
    rows = [*ROWS, ("a", "b", "b"), ("a", "b", "a"), ("a", "c", long)]
    (tmp_path / "t").write_text("\n".join("\t".join(row) for row in rows))
    (tmp_path / "sts").write_text(long)
    manifest = run("t", ["en"], format="triples", exclude=tmp_path / "sts")
    assert manifest.counters == {"pairs/negative_is_text_of_pair": 2, "exclude/row": 1}
    assert (manifest.records, manifest.negatives) == (3, 2)


def test_scores_of_a_table_become_shares_of_their_scale(run, tmp_path):
    """They are stored beside the texts, and counted; other pairs have none."""
    (tmp_path / "t.csv").write_text("a,b,score\na cat,the cat,4\na house,trees,1\na,b,5\n")
    table = {"format": "table", "columns": "a,b", "score_column": "score"}
    manifest = run(["t.csv"], ["en"], **table, score_min=1, score_max=5)
    assert (manifest.records, manifest.scores, manifest.labels) == (3, 3, {})
    (path,) = (tmp_path / "out").glob("*.tfrecord")
    records = [
        tf.train.Example.FromString(record).features.feature["score"].float_list.value[:]
        for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator()
    ]
    assert records == [[0.75], [0.0], [1.0]]
    manifest = run(["t.csv"], ["en"], format="table", columns="a,b", overwrite=True)
    assert manifest.scores == 0 and "scores" not in (tmp_path / "out/dataset.json").read_text()


@pytest.mark.parametrize(
    ("cell", "settings", "message"),
    [
        ("4.5", {}, 't.csv:3: "score" is 4.5, not from 0 to 1; name the ends of the scale'),
        ("nan", {}, '"score" is nan, not from 0 to 1'),
        ("high", {}, "\"score\" is 'high', not a number; mend the row"),
        ("1", {"score_min": 2}, "--score_min=2: it must be below --score_max=1"),
        ("1", {"score_column": "", "score_max": 5}, "name the scores with --score_column"),
        ("1", {"score_column": "grade"}, "no column 'grade'"),
        ("1", {"format": "tsv", "columns": ""}, "--score_column: only --format=table has it"),
    ],
)
def test_scores_that_are_none_are_one_line(run, tmp_path, cell, settings, message):
    (tmp_path / "t.csv").write_text(f"a,b,score\na cat,the cat,1\na house,trees,{cell}\n")
    table = {"format": "table", "columns": "a,b", "score_column": "score"} | settings
    with pytest.raises(UserError, match=re.escape(message)):
        run(["t.csv"], ["en"], **table)


def test_tables_that_are_not_aligned(run, tmp_path):
    """Each pair is a row of its own, and each language has its shards."""
    files = _write_tables(tmp_path, nli_rows(5, LANGUAGES), header="")
    manifest = run(files, ["en", "de", "fr-en"], format="tsv")
    assert (manifest.documents, manifest.records, manifest.row_size) == (15, 15, 1)
    assert [shard.language for shard in manifest.shards] == ["en-en", "de-de", "fr-en"]
    assert sum(manifest.labels.values()) == 15


def test_losses_are_counted(run, tmp_path, capsys):
    """Empty texts, rows without a gold label, bytes that are not UTF-8: manifest and summary."""
    lines = [b"a\tb\tneutral", b"\tb\tneutral", b"a\tb\t-", b"a \xff\tb\tentailment"]
    (tmp_path / "t").write_bytes(b"\n".join([*lines, b"a\t \tneutral"]))
    manifest = run("t", ["en"], format="tsv", drop_empty=True)
    lost = {"pairs/empty_text": 2, "pairs/without_gold_label": 1}
    assert manifest.counters == {"read/not_utf8": 1} | lost
    assert manifest.records == 2 and manifest.labels == {"neutral": 1, "entailment": 1}
    shown = capsys.readouterr().out
    assert "left out: pairs/empty_text 2 (rows), pairs/without_gold_label 1 (rows); ch" in shown


TABLE = {"format": "tsv"}
TRIPLES = {"format": "triples"}
ALIGNED = {"format": "tsv", "row_aligned": True}
MISTAKES = {
    "length": (["a\nb", "c"], {}, "1: ends before line 2"),
    "length of the first": (["a", "b\nc"], {}, "0: ends before line 2, {folder}/0 and {folder}/1"),
    "empty": (["a\n\n", "b\nc\n"], {}, "0:2: the first text is empty; mend the row, or"),
    "empty second": (["a\nb\n", "b\n \n"], {}, "0:2: the second text is empty"),
    "columns": (["a\tb\na\tb\tneutral\tx"], TABLE, "0:2: 4 columns; a table of pairs has"),
    "no column": (["a\tb\n\na\tb"], TABLE, "0:2: 1 columns"),
    "label": (["a\tb\tneutral\na\tb\tmaybe"], TABLE, "0:2: label 'maybe'; it must be one of"),
    "header": (["p\th\tlabel\na\tb\tneutral"], TABLE, "0:1: label 'label'; it must be one of"),
    "some labels": (["a\tb\tneutral\na\tb"], TABLE, "0:2: no label, unlike the rows before"),
    "label again": (["a\tb", "a\tb\tneutral"], TABLE, "1:1: a label, unlike the rows before"),
    "rows": (["a\tb\na\tb", "a\tb"], ALIGNED, "1: has no row for {folder}/0:2"),
    "more rows": (["a\tb", "a\tb\na\tb"], ALIGNED, "0: has no row for {folder}/1:2"),
    "labels": (
        ["a\tb\tneutral", "a\tb\tentailment"],
        ALIGNED,
        "1:1: label 'entailment', but 'neutral' in {folder}/0:1; the files are not row-aligned",
    ),
    "triple columns": (["a\tb\tc\na"], TRIPLES, "0:2: 1 columns; a table of triples"),
    "triple key": (['{"anchor": "a"}'], TRIPLES, "0:1: no 'positive'; --format=triples needs"),
    "triple type": (
        ['{"anchor": "a", "positive": "b", "negative": ["c"]}'],
        TRIPLES,
        '0:1: "negative" is not of the right type; make it a string',
    ),
    "nothing": ([""], TABLE, "0: no usable pair; check --format and --header"),
    "header alone": (["a\tb"], TABLE | {"header": True}, "0: no usable pair"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_in_files(run, tmp_path, name):
    """One line names file and line; nothing is left under any name."""
    texts, values, message = MISTAKES[name]
    files = [f"{i}" for i in range(len(texts))]
    for file, text in zip(files, texts):
        (tmp_path / file).write_text(text)
    with pytest.raises(UserError) as caught:
        run(files, LANGUAGES[: len(files)], **values)
    assert str(caught.value).startswith(f"{tmp_path}/{message.format(folder=tmp_path)}")
    assert "\n" not in str(caught.value)
    assert names_in(tmp_path) == [*files, "vocab.json", "vocab.txt"]


@pytest.mark.parametrize(
    ("files", "languages", "values", "message"),
    [
        ("ab", ["en"], {}, "--languages names 1 languages for 2 files of --input"),
        ("a", ["en", "de"], TABLE, "--languages names 2 languages for 1 files of --input"),
        ("aab", ["en"] * 3, {}, "--input names 3 files; .* every two belong together"),
        ("a", ["en"], {"format": "table"}, "--columns=: --format=table needs two, those of both"),
        ("ab", ["en", "de"], {"header": True}, "--header: only --format=tsv or triples has it"),
        ("a", ["en"], TABLE | {"label_column": "c"}, "--label_column: only --format=table has it"),
        ("a", ["en"], {"format": "moses"}, "=en: with --format=moses name two languages, e.g."),
        ("ab", ["en", "de"], {"row_aligned": True}, "--row_aligned joins tables; pass --format"),
        ("ab", ["en", "en"], ALIGNED, "--languages=en,en names one twice"),
        # Otherwise a premise could meet a hypothesis of its own language under `different`.
        ("ab", ["en", "en-en"], ALIGNED, "--languages=en,en names one twice"),
        ("ab", ["en-de", "de-en"], ALIGNED, "--languages=en-de,de-en: each table needs one"),
        ("ax", ["en", "de"], {}, "x: no such file; check --input"),
        ("ab", ["en", "de"], {"vocab_file": "none.txt"}, "none.txt: no such file; name a vocab"),
    ],
)
def test_mistakes_in_flags(run, tmp_path, files, languages, values, message):
    """They are found before any work."""
    for name in "ab":
        (tmp_path / name).write_text("a\tb\n")
    with pytest.raises(UserError, match=message):
        run(files, languages, **values)
    assert "out" not in names_in(tmp_path)


def test_long_lines(run, tmp_path):
    """The message names file and line, and no flag that the binary does not have."""
    (tmp_path / "t").write_text("a\tb\n" + "a" * 50)
    with pytest.raises(UserError, match="t:2: the line is longer than 20 bytes") as caught:
        run("t", ["en"], **TABLE, max_line_mb=20 / (1 << 20))
    with flagsaver.flagsaver():
        create_pairs.define_flags()
        named = re.findall(r"--(\w+)", str(caught.value))
        assert [name for name in named if name not in flags.FLAGS] == []


def test_check_language(run, tmp_path):
    """A text that is surely in another language than declared takes its row with it."""
    english = "This is a plain English sentence about the weather of tomorrow and of next week."
    german = "Das ist ein schlichter deutscher Satz über das Wetter von morgen und nächster Woche."
    texts = [(english, german), (german, german), ("yes", "ja")]
    _write_lines(tmp_path, [(make_pair(*both),) for both in texts], "ab")
    manifest = run("ab", ["en", "de"], check_language=True)
    assert (manifest.documents, manifest.counters) == (2, {"pairs/another_language": 1})


def test_exclude(run, tmp_path):
    """A row goes if either side is an evaluation sentence, or holds one; translations go whole."""
    texts = [
        *(("the cat sat", "a dog"), ("the cat", "Ein Hund LIEF!"), ("a bird. the tree", "a stone")),
        *(("a bird and the tree", "a stone"), ("the river", "water")),
    ]
    _write_lines(tmp_path, [(make_pair(*both),) for both in texts], "ab")
    (tmp_path / "tatoeba.deu").write_text("Ein Hund lief.\nA bird.\n")
    (tmp_path / "sts.json").write_text('[{"sentence1": "The river."}]')
    manifest = run("ab", ["en", "de"], exclude=f"{tmp_path}/tatoeba.deu,{tmp_path}/sts.json")
    assert (manifest.documents, manifest.counters) == (2, {"exclude/row": 3})
    assert manifest.counters_by_language == {"exclude/row": {"en-de": 3}}
    assert "| exclude/row | 3 | rows | en-de 3 |" in (tmp_path / "out" / "balance.md").read_text()
    rows = nli_rows(4, LANGUAGES)
    tables = _write_tables(tmp_path, rows)
    (tmp_path / "xnli").write_text(f"x\t{rows[2][1].texts[1]}\n")
    values = {"header": True, "overwrite": True, "exclude": tmp_path / "xnli"}
    manifest = run(tables, LANGUAGES, **ALIGNED, **values)
    assert (manifest.documents, manifest.counters) == (3, {"exclude/row": 1})


def test_half_a_character(run, tmp_path):
    """It is legal JSON: replaced and counted."""
    row = r'{"sentence1": "A cat. \ud800 A dog.", "sentence2": "b", "gold_label": "neutral"}'
    (tmp_path / "a.jsonl").write_text(row)
    manifest = run(["a.jsonl"], ["en"], format="nli", keep_text=True)
    assert manifest.counters == {"read/not_utf8": 1}
    (record,) = read_pairs_by_hand(tmp_path / "out")["pairs-00000.tfrecord"]
    assert record["text"] == ["A cat. \ufffd A dog.", "b"]


def test_the_vocabulary_is_that_of_documents(run, tmp_path):
    """A bare vocab.txt takes the same flags, so that both kinds of records share one hash."""
    (tmp_path / "vocab.json").unlink()
    _write_lines(tmp_path, bitext(2), "ab")
    (tmp_path / "text.txt").write_text("The cat sat. A dog ran.")
    values = {"lower_case": True, "max_bytes_per_word": 100}
    manifest = run("ab", ["en", "de"], **values)
    values |= {"vocab_file": tmp_path / "vocab.txt", "output_dir": tmp_path / "documents"}
    run_binary(create_documents, input=tmp_path / "text.txt", **values)
    documents = load_manifest(tmp_path / "documents")
    assert documents.vocabulary == manifest.vocabulary
    assert manifest.vocabulary["max_bytes_per_word"] == 100
