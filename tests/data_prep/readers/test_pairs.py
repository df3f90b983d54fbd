"""Translation memories, Moses pairs and NLI as published: what is read, what is refused."""

import gzip
import json
from xml.etree import ElementTree
from xml.sax.saxutils import escape

import pandas
import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from data_prep.readers import Counts, ReadOptions
from data_prep.readers.pairs import PairInput, inputs_of
from official_cmlm.common.errors import UserError

_FEW = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
_TEXT = st.text("ab <&>\"'\u00a0\u2028漢😀", max_size=8)
_UNIT = '<tu><tuv xml:lang="en"><seg>{}</seg></tuv><tuv xml:lang="de"><seg>{}</seg></tuv></tu>\n'
_HEAD = '<?xml version="1.0"?>\n<tmx version="1.4"><header srclang="en"/>\n<body>\n'


def _read(paths, form, languages="en-de", columns=None, **options):
    """Returns the pairs and the counts of one input; commas divide its files and its languages."""
    (source,) = inputs_of(str(paths).split(","), languages.split(","), form, columns)
    report = Counts()
    return list(source.read(report, False, ReadOptions(**options))), report


def _tmx(path, body, **options):
    path.write_text(f"{_HEAD}{body}</body></tmx>", encoding="utf-8")
    return _read(path, "tmx", **options)


@_FEW
@given(
    pairs=st.lists(st.tuples(_TEXT, _TEXT), min_size=1, max_size=5),
    encoding=st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "iso-8859-1"]),
    compress=st.sampled_from([bytes, gzip.compress, zstandard.compress]),
    chunk=st.integers(1, 60),
)
def test_translation_memory(tmp_path, pairs, encoding, compress, chunk):
    """The same texts as the standard library's tree has, in any encoding and any chunks."""
    body = "".join(_UNIT.format(escape(a), escape(b)) for a, b in pairs)
    name = encoding.removesuffix("-sig")
    text = f'<?xml version="1.0" encoding="{name}"?><tmx version="1.4"><body>{body}</body></tmx>'
    data = text.encode(encoding, "xmlcharrefreplace")
    path = tmp_path / "a.tmx"
    path.write_bytes(compress(data))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("data_prep.readers.tmx._CHUNK_BYTES", chunk)
        found, report = _read(path, "tmx", max_line_bytes=1000)
    tree = ElementTree.fromstring(data)
    expected = [
        [" ".join((s.text or "").split()) for s in tu.iter("seg")] for tu in tree.iter("tu")
    ]
    assert [list(pair.texts) for pair in found] == expected
    assert {pair.languages for pair in found} == {("en", "de")}
    assert report.bytes == len(data) and not report.counters


def test_markup_of_a_segment(tmp_path):
    """Codes of a word processor are not text; a highlighted part is."""
    body = (
        '<tu>\n<note>n</note><tuv xml:lang="EN_us"><prop>p</prop><seg>A <bpt i="1">&lt;b></bpt>'
        'bold<ept i="1">&lt;/b></ept> <hi>high<ph>x<sub>y</sub></ph>light</hi>.</seg></tuv>\n'
        '<tuv lang="de-AT"><seg>Ein\n fetter Text.</seg></tuv>'
        '<tuv xml:lang="de"><seg>Zweitens.</seg></tuv></tu>'
    )
    ((pair,), _) = _tmx(tmp_path / "a.tmx", body)
    assert pair.texts == ("A bold highlight.", "Ein fetter Text.")
    assert pair.label is None and pair.where == f"{tmp_path}/a.tmx:4"


def test_units_without_both_languages(tmp_path):
    """They are counted; the order of languages in a unit does not matter."""
    body = (
        '<tu><tuv xml:lang="de"><seg>Ja.</seg></tuv><tuv xml:lang="en"><seg>Yes.</seg></tuv></tu>'
        '<tu><tuv xml:lang="en"><seg>No.</seg></tuv><tuv xml:lang="fr"><seg>Non.</seg></tuv></tu>'
        '<tu><tuv xml:lang="eng"><seg>No.</seg></tuv><tuv xml:lang="de"><seg>x</seg></tuv></tu>'
        "<tu/>"
    )
    ((pair,), report) = _tmx(tmp_path / "a.tmx", body)
    assert pair.texts == ("Yes.", "Ja.")
    assert report.counters["read/without_both_languages"] == 3


def test_a_document_type_is_not_fetched(tmp_path):
    """Most files name one; a declaration in the file itself is refused."""
    path = tmp_path / "a.tmx"
    body = "<tmx><body>" + _UNIT.format("a", "b") + "</body></tmx>"
    path.write_text(f'<!DOCTYPE tmx SYSTEM "http://localhost:9/tmx14.dtd">{body}')
    assert _read(path, "tmx")[0][0].texts == ("a", "b")
    bomb = '<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;">'
    for declaration in (bomb, '<!ENTITY x SYSTEM "file:///etc/passwd">', "<!ELEMENT tu ANY>"):
        path.write_text(f"<!DOCTYPE tmx [{declaration}]>{body}")
        with pytest.raises(UserError, match="a.tmx:1: declares entities or elements of its own"):
            _read(path, "tmx")


@pytest.mark.parametrize(
    ("lines", "texts"),
    [
        (["{x}\tb\tc", "d\te"], [("{x}", "b"), ("d", "e")]),
        ([' {"anchor": "a\\tb", "positive": "c"}'], [("a b", "c")]),
    ],
)
def test_tables_of_triples_may_begin_with_a_brace(tmp_path, lines, texts):
    """JSON lines begin with one too, but have no tab."""
    (tmp_path / "t").write_text("\n".join(lines))
    found, _ = _read(tmp_path / "t", "triples", "en")
    assert [pair.texts for pair in found] == texts


_GOOD = _HEAD + _UNIT.format("a", "b")
BAD_MEMORIES = {
    "cut in its gzip stream": (gzip.compress(_GOOD.encode())[:-6], "stream ends early after line"),
    "cut short": (_GOOD, "a.tmx:5: not well-formed XML"),
    "cut in a tag": (_GOOD + "<tu", "a.tmx:5: not well-formed XML"),
    "tags": (_GOOD + "</tmx>", "a.tmx:5: not well-formed XML .mismatched tag"),
    "entity": (_GOOD + "&nbsp;", "a.tmx:5: not well-formed XML .undefined entity"),
    "text": ("no XML", "a.tmx:1: not well-formed XML"),
    "encoding": ('<?xml version="1.0" encoding="big5"?><tmx/>', "a.tmx:1: not well-formed XML"),
    "long text": (_GOOD + _UNIT.format("x" * 5000, "y"), "a.tmx:5: a unit of more than 1000 bytes"),
    "long tag": (_GOOD + "<tu a='" + "x" * 200_000, "a.tmx:5: markup of more than 1000 bytes"),
    "nested": (_GOOD + "<tu>" * 10_000, "a.tmx:5: elements are nested more than 512 deep"),
}


@pytest.mark.parametrize("name", BAD_MEMORIES)
def test_bad_translation_memories(tmp_path, name):
    """One line names file and line."""
    content, message = BAD_MEMORIES[name]
    path = tmp_path / "a.tmx"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(UserError, match=message) as caught:
        _read(path, "tmx", max_line_bytes=1000)
    assert "\n" not in str(caught.value)


def test_an_empty_translation_memory(tmp_path):
    """It is a warning, as any empty file."""
    (tmp_path / "a.tmx").write_bytes(b"")
    found, report = _read(tmp_path / "a.tmx", "tmx")
    assert found == [] and report.empty_files == [f"{tmp_path}/a.tmx"]


def test_moses_pairs(tmp_path):
    """The beginning of two names, with or without an ending of compression."""
    (tmp_path / "corpus.en").write_text("one\ntwo\n")
    (tmp_path / "corpus.de.gz").write_bytes(gzip.compress(b"eins\nzwei\n"))
    found, _ = _read(tmp_path / "corpus", "moses")
    assert [pair.texts for pair in found] == [("one", "eins"), ("two", "zwei")]
    assert inputs_of([f"{tmp_path}/corpus"], ["en-de"], "moses") == [
        PairInput((f"{tmp_path}/corpus.en", f"{tmp_path}/corpus.de.gz"), ("en", "de"))
    ]
    with pytest.raises(UserError, match=r"corpus.fr: no such file, nor with .gz or .zst"):
        inputs_of([f"{tmp_path}/corpus"], ["en-fr"], "moses")


_ROWS = [
    ("A  man sleeps.", "A man is awake.", "contradiction"),
    ('"Quoted" text', "It's quoted.", "entailment"),
    ("No agreement.", "None.", "-"),
]


@pytest.mark.parametrize("compress", [bytes, gzip.compress, zstandard.compress])
@pytest.mark.parametrize("form", ["table", "lines"])
def test_inference(tmp_path, form, compress):
    """Columns by name among others, or keys; quotes are text."""
    if form == "table":
        lines = ["gold_label\tsentence1_parse\tsentence1\tsentence2\tpairID"]
        lines += [f"{label}\t( x )\t{a}\t{b}\t1" for a, b, label in _ROWS]
    else:
        keys = ("sentence1", "sentence2", "gold_label")
        lines = [json.dumps(dict(zip(keys, row)) | {"pairID": 1, "labels": ["x"]}) for row in _ROWS]
    path = tmp_path / "nli"
    path.write_bytes(compress("\r\n".join([*lines, ""]).encode()))
    found, _ = _read(path, "nli", "en")
    assert [(*pair.texts, pair.label) for pair in found] == [
        (" ".join(a.split()), b, label) for a, b, label in _ROWS
    ]
    assert {pair.languages for pair in found} == {("en", "en")}
    assert found[0].where == f"{path}:{2 if form == 'table' else 1}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\tb\tneutral\n", "nli:1: no 'sentence1'; --format=nli needs sentence1, sentence2, gold"),
        ("sentence1\tsentence2\tgold_label\na\tb\n", "nli:2: 2 columns, but the first line names"),
        ('{"sentence1": "a", "sentence2": "b"}', "nli:1: no 'gold_label'"),
        ('{"sentence1": "a", "sentence2": 1, "gold_label": "-"}', 'nli:1: "sentence2" is not of'),
        ('{"sentence1": ', "nli:1: not valid JSON"),
    ],
)
def test_bad_inference(tmp_path, text, message):
    (tmp_path / "nli").write_text(text)
    with pytest.raises(UserError, match=message):
        _read(tmp_path / "nli", "nli", "en")


_TABLE = [
    {"premise": 'A "cat",\n sits.', "id": 1, "claim": "It sits.", "label": "entailment", "no": "x"},
    {"premise": "漢字", "id": 2, "claim": "B.", "label": "neutral", "no": None},
]


@pytest.mark.parametrize("form", ["csv", "tsv.gz", "jsonl.zst", "json", "parquet"])
def test_tables_with_names(tmp_path, form):
    """Each format that `cmlm embed` reads, with its columns in any order and among others."""
    frame, path = pandas.DataFrame(_TABLE), tmp_path / f"a.{form}"
    if form == "parquet":
        frame.to_parquet(path)
    elif form.startswith("json"):
        frame.to_json(path, orient="records", lines=form != "json")
    else:
        frame.to_csv(path, index=False, sep="\t" if form.startswith("tsv") else ",")
    columns = {"first": "claim", "second": "premise", "label": "label", "negative": "no"}
    (first, second), report = _read(path, "table", "en-de", columns)
    assert first.texts == ("It sits.", 'A "cat", sits.') and first.languages == ("en", "de")
    assert (first.label, first.negative) == ("entailment", "x")
    assert (second.texts, second.label, second.negative) == (("B.", "漢字"), "neutral", None)
    assert report.files == 1 and (report.bytes or form == "parquet")
    for wrong, message in ((("claim", "x"), "no column 'x', it has prem"), (("id", "no"), '"id" ')):
        if wrong[0] == "id" and form.startswith(("csv", "tsv")):
            continue
        with pytest.raises(UserError, match=message):
            _read(path, "table", "en", dict(zip(columns, wrong)))
    (tmp_path / "a.txt").write_text("a")
    with pytest.raises(UserError, match="a.txt:1: a text, which has no columns"):
        _read(tmp_path / "a.txt", "table", "en", columns)


# Separators that Python, but no file of lines, would end a line at.
_LINE = st.text("ab \u00a0\u2028\u0085\x0b漢😀", max_size=8)


@_FEW
@given(pairs=st.lists(st.tuples(_LINE, _LINE), min_size=1, max_size=8), crlf=st.booleans())
def test_aligned_lines(tmp_path, pairs, crlf):
    """Line i of one file goes with line i of the other, with any white space in them."""
    for side, name in enumerate(("a", "b")):
        end = "\r\n" if crlf else "\n"
        data = "".join(pair[side] + end for pair in pairs)
        (tmp_path / name).write_bytes(data.encode())
    result, report = _read(f"{tmp_path}/a,{tmp_path}/b", "lines", "en,zh-Hans")
    assert [pair.texts for pair in result] == [
        tuple(" ".join(text.split()) for text in pair) for pair in pairs
    ]
    assert {pair.languages for pair in result} == {("en", "zh-Hans")}
    assert [pair.where for pair in result] == [f"{tmp_path}/a:{i + 1}" for i in range(len(pairs))]
    assert all(pair.label is None for pair in result)
    assert report.files == 2 and report.lines == 2 * len(pairs)


def test_table(tmp_path):
    """Two texts and a label in each line, or no label; white space is made one space."""
    (tmp_path / "t").write_text("A  cat\tan\u00a0animal \t neutral \nx\ty\tentailment\n")
    (first, second), _ = _read(tmp_path / "t", "tsv", "de")
    assert first.texts == ("A cat", "an animal") and first.label == "neutral"
    assert first.languages == ("de", "de") and first.where == f"{tmp_path}/t:1"
    assert (second.texts, second.label) == (("x", "y"), "entailment")
    (tmp_path / "t").write_text("x\t y\n")
    ((plain,), _) = _read(tmp_path / "t", "tsv")
    assert plain.texts == ("x", "y") and plain.label is None
    assert plain.languages == ("en", "de")
