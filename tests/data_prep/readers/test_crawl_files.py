"""WET and WARC: pages become documents; broken files and pages are told from good ones."""

import gzip

import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from data_prep.readers import Counts, Document, ReadOptions, read_documents
from data_prep.readers.crawl_files import MAX_DEPTH, UnreadablePageError, main_text
from official_cmlm.common.errors import UserError
from official_cmlm.common.languages import language_code
from tests.data_prep.readers.crawl_pages import article, page, record

FIRST = "The first paragraph of this page says something about rivers and the stones in them."
SECOND = "The second one goes on about trees, and about the birds that sit in the trees."
PACK = {
    "plain": lambda records: b"".join(records),
    "gzip by record": lambda records: b"".join(gzip.compress(r) for r in records),
    "gzip whole": lambda records: gzip.compress(b"".join(records)),
    "zstd by record": lambda records: b"".join(zstandard.compress(r) for r in records),
}


def _read(path, content, **options):
    path.write_bytes(content)
    report = Counts()
    return list(read_documents([str(path)], ReadOptions(**options), report)), report


@pytest.mark.parametrize("pack", PACK)
def test_wet(tmp_path, pack):
    """A document a page: its URI, its first language in two letters, its lines."""
    text = f"{FIRST}\n  {SECOND}  \n\nLetzte Zeile é語😀.\n".encode()
    records = [
        record("warcinfo", b"software: x\r\n"),
        record("conversion", text, "http://a/1", WARC_Identified_Content_Language="deu,eng"),
        record("conversion", b"caf\xe9", "http://a/2"),
        record("conversion", b" \n\n", "http://a/3"),
        record("conversion", b"unnamed"),
    ]
    path = tmp_path / "x.warc.wet.gz"
    documents, report = _read(path, PACK[pack](records), language="fr", lines="wrapped")
    assert documents == [
        Document("http://a/1", "de", [FIRST, SECOND, "Letzte Zeile é語😀."]),
        Document("http://a/2", "fr", ["caf\ufffd"]),
        Document(f"{path}#4", "fr", ["unnamed"]),
    ]
    assert (report.documents_read, report.counters["read/without_text"], report.files) == (3, 1, 1)
    assert report.not_utf8 == {str(path): 1}
    assert report.bytes == len(b"".join(records))


@pytest.mark.parametrize("pack", PACK)
def test_warc(tmp_path, pack):
    """A document a page of HTML with status 200: the main text alone."""
    html = article(FIRST, SECOND)
    records = [
        record("warcinfo", b"software: x\r\n"),
        record("request", b"GET / HTTP/1.1\r\n\r\n", "http://a/1"),
        page("http://a/1", html),
        page("http://a/missing", html, status=404),
        page("http://a/image", b"\x89PNG", "Content-Type: image/png"),
        page("http://a/empty", b"<html><body></body></html>"),
        record("response", b"xyz", "dns:a"),
        page("http://a/2", html, WARC_Identified_Payload_Type="text/html"),
    ]
    documents, report = _read(tmp_path / "x.warc.gz", PACK[pack](records))
    assert [document.id for document in documents] == ["http://a/1", "http://a/2"]
    assert all(document.paragraphs == [FIRST, SECOND] for document in documents)
    reasons = ("other_http_status", "not_html", "not_http", "without_text")
    assert report.counters == {f"read/{reason}": 1 for reason in reasons}


@pytest.mark.parametrize(
    ("identified", "html", "http", "expected"),
    [
        ("deu,eng", "fr", "it", "de"),
        ("", "fr-CA", "it", "fr"),
        ("", "", "it, en", "it"),
        ("", "", "", "sw"),
        ("", "english", "", "sw"),
        ("", "EN_us", "", "en"),
    ],
)
def test_language_of_a_page(tmp_path, identified, html, http, expected):
    """Crawler, page, server, flag: the first that names one."""
    headers = {"WARC_Identified_Content_Language": identified} if identified else {}
    lines = [f"Content-Language: {http}"] if http else []
    content = page("http://a/1", article(FIRST, SECOND, language=html), *lines, **headers)
    ((document,), _) = _read(tmp_path / "x.warc", content, language="sw")
    assert document.language == expected


def test_language_codes():
    """Long codes have short ones; other strings have none."""
    known = {"zho": "zh", "jpn": "ja", "swa": "sw", "ceb": "ceb", "zh-Hant-TW": "zh", " De": "de"}
    assert {tag: language_code(tag) for tag in known} == known
    assert not any(map(language_code, (None, "", "x", "german", "12", "-", "d3")))


@pytest.mark.parametrize(
    ("encoding", "http", "meta"),
    [
        ("utf-8", "", ""),
        ("windows-1252", "iso-8859-1", ""),
        ("shift_jis", "Shift_JIS", ""),
        ("shift_jis", "", "shift_jis"),
        ("utf-16", "", ""),
        ("utf-16", "utf-8", ""),
        ("utf-8-sig", "iso-8859-1", ""),
        ("utf-8", "unicode_escape", ""),
        ("utf-8", "no-such-encoding", ""),
    ],
)
def test_encodings_of_pages(tmp_path, encoding, http, meta):
    """Byte order mark, server, page, then what the bytes look like."""
    text = "日本語の文章です。" * 8 if "jis" in encoding else f"{FIRST} Été à \\x41 la plage, où."
    html = article(text, text).decode()
    html = html.replace("<head>", f"<head><meta charset={meta}>") if meta else html
    header = f"Content-Type: text/html{f'; charset={http}' if http else ''}"
    content = page("http://a/1", html.encode(encoding), header)
    ((document,), _) = _read(tmp_path / "x.warc", content)
    assert document.paragraphs == [text, text]


@pytest.mark.parametrize("how", ["chunked", "gzip", "both"])
def test_pages_as_the_server_sent_them(tmp_path, how):
    """Transfer and content encodings that the crawler left are undone."""
    body, lines = article(FIRST, SECOND), []
    if how != "chunked":
        body, lines = gzip.compress(body), ["Content-Encoding: gzip"]
    if how != "gzip":
        parts = [body[i : i + 50] for i in range(0, len(body), 50)] + [b""]
        body = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts)
        lines.append("Transfer-Encoding: chunked")
    ((document,), _) = _read(tmp_path / "x.warc", page("http://a/1", body, *lines))
    assert document.paragraphs == [FIRST, SECOND]


def test_every_cut_is_seen(tmp_path):
    """A cut anywhere but between records: whole records are read, and the rest is named."""
    records = [record("conversion", b"Some text.", f"http://a/{i}") for i in range(3)]
    whole, size = b"".join(records), len(records[0])
    path = tmp_path / "x.wet"
    for cut in range(1, len(whole)):
        documents, report = _read_beside_a_good_file(path, whole[:cut])
        # The four bytes after a record hold no text.
        assert len(documents) == (cut + 4) // size
        if cut % size:
            (message,) = report.files_failed.values()
            assert message.startswith(f"{path}: ") and "fetch the file again" in message
        else:
            assert not report.files_failed


def _read_beside_a_good_file(path, content):
    """Reads with `skip`; the error that all files failed does not apply to a file alone."""
    path.write_bytes(content)
    good = path.with_name("good.txt")
    good.write_text("Good.")
    report = Counts()
    options = ReadOptions(on_error="skip")
    documents = list(read_documents([str(path), str(good)], options, report))
    assert documents.pop().paragraphs == ["Good."]
    return documents, report


@pytest.mark.parametrize("content", [b"not a crawl file\n" * 50, b"\x00" * 500, b"WARC/1.0\r\n"])
def test_another_kind_of_file(tmp_path, content):
    """Another file is an error, not an empty file."""
    with pytest.raises(UserError, match="x.wet: (not a crawl file after|is cut short)"):
        _read(tmp_path / "x.wet", content)


def test_an_empty_crawl_file(tmp_path):
    """It is a warning, as for text."""
    documents, report = _read(tmp_path / "x.wet", b"")
    assert documents == [] and report.warnings() == [f"{tmp_path}/x.wet: the file is empty"]


BAD_PAGES = {
    "nested": (page("http://a/1", b"<div>" * 10_000 + b"x"), "nested more than 512 deep"),
    "bomb": (
        page("http://a/1", gzip.compress(b"<p>x" + b" " * 200_000), "Content-Encoding: gzip"),
        "expands to more than 100000 bytes",
    ),
    "large": (page("http://a/1", b"<p>x" + b" " * 200_000), "more than 100000; raise --max_exp"),
    "broken": (page("http://a/1", b"no gzip", "Content-Encoding: gzip"), "Gzip"),
}


@pytest.mark.parametrize("name", BAD_PAGES)
def test_bad_pages(tmp_path, name):
    """They are named, and end the run or are left out; the pages after them are read."""
    bad, message = BAD_PAGES[name]
    good = page("http://a/good", article(FIRST, SECOND))
    path = tmp_path / "x.warc"
    with pytest.raises(UserError, match=message) as caught:
        _read(path, good + bad + bad + good, max_expanded_bytes=100_000)
    assert str(caught.value).startswith(f"{path}: ") and "http://a/1" in str(caught.value)
    options = {"max_expanded_bytes": 100_000, "on_error": "skip"}
    documents, report = _read(path, good + bad + bad + good, **options)
    assert [document.id for document in documents] == ["http://a/good"] * 2
    assert report.files_failed == {} and report.records_failed[str(path)] == 2
    assert report.counters["read/unreadable_record"] == 2
    assert report.describe_skipped(1) == ", 2 unreadable record(s) skipped"
    (warning,) = report.warnings()
    assert warning.startswith("skipped a record: ") and "and 1 more" in warning


def test_a_record_that_lies_about_its_length(tmp_path):
    """More than is left, less than it holds, or nothing that is a number."""
    good = record("conversion", b"Good text.", "http://a/1")
    for length in (b"500", b"9", b"-1", b"x", b""):
        bad = good.replace(b"Content-Length: 10", b"Content-Length: " + length)
        with pytest.raises(UserError, match="x.wet: "):
            _read(tmp_path / "x.wet", good + bad + good)


def test_depth_is_that_of_the_tree():
    """At the limit a page is read; siblings and void tags are not depth."""
    inner = MAX_DEPTH - 2
    html = b"<html><body>" + b"<div>" * (inner - 1) + f"<p>{FIRST}".encode()
    assert main_text(html)[0].strip() == FIRST
    with pytest.raises(UnreadablePageError, match="nested more than"):
        main_text(html.replace(b"<p>", b"<div><p>"))
    assert main_text(b"<body>" + b"<br>" * 5000 + f"<p>{FIRST}".encode())[0].strip() == FIRST


@settings(
    max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(data=st.data())
def test_damaged_crawl_files(tmp_path, data):
    """Whatever a file holds, it is read or refused in one line."""
    whole = bytearray(b"".join([page("http://a/1", article(FIRST, SECOND)) for _ in range(2)]))
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(whole) - 1))
        whole[start : start + data.draw(st.integers(0, 20))] = data.draw(st.binary(max_size=4))
    try:
        documents, _ = _read(tmp_path / "x.warc", bytes(whole))
    except UserError as error:
        assert str(error).startswith(f"{tmp_path}/x.warc: ")
    else:
        assert len(documents) <= 2
