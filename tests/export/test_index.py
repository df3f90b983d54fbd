"""`cmlm index` and `cmlm search`: a folder indexed, changed, indexed again and asked."""

import io
import json
import re
import sys
from unittest import mock

import pytest

from export.search import index as indexing
from official_cmlm.encoding.sentence_encoder import SentenceEncoder
from official_cmlm.search import Index
from tests.binaries import call
from tests.search.test_documents import write_docx, write_pdf
from tests.search.toy_encoder import Words


@pytest.fixture(autouse=True)
def _toy():
    with mock.patch.object(SentenceEncoder, "load", lambda model, **options: Words()):
        yield


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "my"
    (made / "sub").mkdir(parents=True)
    (made / "a.txt").write_text("the key is kept\nin the box\n")
    (made / "sub" / "b.md").write_text("# Dogs\n\na dog ran over the river\n")
    (made / "c.html").write_text("<p>bread and butter</p><script>no</script>")
    (made / "d.csv").write_text("text,n\nsome cheese,1\nold wine,2\n")
    (made / "e.bin").write_bytes(b"\0")
    return made


def _index(folder, *more):
    target = folder.parent / "my.index"
    return call("export.search.index", f"--input={folder}", f"--index={target}", *more)


def _ask(folder, query, capsys):
    target = folder.parent / "my.index"
    capsys.readouterr()
    assert (
        call("export.search.search", f"--index={target}", f"--query={query}", "--k=1", "--json")
        == 0
    )
    return json.loads(capsys.readouterr().out)


def test_folder_is_indexed_and_searched(folder, capsys):
    assert _index(folder, "--model=toy") == 0
    for query, name, line, text in (
        ("the key is kept in the box", "a.txt", 1, "the key is kept in the box"),
        ("a dog ran over the river", "sub/b.md", 1, "Dogs\na dog ran over the river"),
        ("bread and butter", "c.html", 1, "bread and butter"),
        ("old wine", "d.csv", 3, "old wine"),
    ):
        hit = _ask(folder, query, capsys)
        heading = {"heading": "Dogs"} if "Dogs" in text else {}
        assert hit["metadata"] == {"file": str(folder / name), "line": line} | heading
        assert hit["text"] == text and hit["score"] > 0.8
    target = folder.parent / "my.index"
    settings = Index.read_settings(target)
    # Three of four questions of other fields have no passage that is so near.
    index, root = Index.load(target, Words()), settings["root"]
    far = [hits[0].score >= settings["near"] for hits in index.search(indexing._FAR, 1)]
    assert 0.2 < sum(far) / len(far) < 0.3 and root == str(folder)
    assert call("export.search.search", f"--index={target}", "--query=old wine") == 0
    assert "d.csv:3\n  old wine\n" in capsys.readouterr().out
    # A word of the query alone does not have the vector of its text, but its first rank by words.
    question = [f"--index={target}", "--query=cheese x y z", "--k=1", "--hybrid"]
    assert call("export.search.search", *question) == 0
    assert re.match(r"0\.03\d\d  .*d\.csv:2\n  some cheese\n", capsys.readouterr().out)


def test_second_run_reads_changed_files_only(folder, capsys):
    _index(folder, "--model=toy")
    before = (folder.parent / "my.index" / "index.json").stat().st_mtime_ns
    assert _index(folder) == 0 and "nothing is new" in capsys.readouterr().out
    assert (folder.parent / "my.index" / "index.json").stat().st_mtime_ns == before
    (folder / "a.txt").write_text("the cup is on the table, and this is longer\n")
    (folder / "c.html").unlink()
    (folder / "f.txt").write_text("a new file\n")
    assert _index(folder) == 0 and "2 files new or changed, 1 gone" in capsys.readouterr().out
    texts = set(Index.load(folder.parent / "my.index", Words()).texts)
    assert texts == {
        "the cup is on the table, and this is longer",
        "Dogs\na dog ran over the river",
        *("some cheese", "old wine", "a new file"),
    }


def test_emptied_folder_and_dead_links_are_passed_over(folder, tmp_path, capsys):
    other, target = tmp_path / "other", tmp_path / "my.index"
    other.mkdir()
    (other / "x.txt").write_text("a text of the other folder\n")
    (folder / "broken.md").symlink_to("nowhere")
    options = (f"--input={folder},{other}", f"--index={target}")
    assert call("export.search.index", *options, "--model=toy") == 0
    (other / "x.txt").unlink()
    assert call("export.search.index", *options) == 0
    assert "0 files new or changed, 1 gone" in capsys.readouterr().out
    assert "a text of the other folder" not in Index.load(target, Words()).texts


def test_ctrl_c_leaves_an_index_of_finished_files(folder, capsys, monkeypatch):
    """Before the first file nothing is left behind; the same call reads the others."""
    target = folder.parent / "my.index"

    def index(text=None):
        """Indexes, with an interrupt at a text; returns the last line and the texts."""

        def encode(words, texts):
            if text in texts:
                raise KeyboardInterrupt
            return encode_all(words, texts)

        monkeypatch.setattr(Words, "encode", encode)
        assert _index(folder, "--model=toy") == (130 if text else 0)
        texts = set(Index.load(target, Words()).texts) if target.exists() else set()
        return "".join(capsys.readouterr()).splitlines()[-1], texts

    encode_all = Words.encode
    monkeypatch.setattr(indexing, "_GROUP", 1)
    box, dogs = "the key is kept in the box", "Dogs\na dog ran over the river"
    assert index(box) == ("interrupted; give the same command again", set())
    again = "give the same command again for the others"
    last, texts = index("some cheese")
    assert last == f"interrupted; {target} has 2 of 4 files; {again}"
    assert texts == {box, "bread and butter"}
    assert index()[1] == {box, "bread and butter", "some cheese", "old wine", dogs}
    (folder / "a.txt").write_text("the key is lost\n")
    (folder / "d.csv").write_text("text\nnew cheese\n")
    last, texts = index("new cheese")
    assert last == f"interrupted; {target} has 1 of 2 files; {again}"
    assert texts == {"the key is lost", "bread and butter", dogs}
    assert index()[1] == {"the key is lost", "bread and butter", dogs, "new cheese"}


def test_passages_end_before_the_encoder_would_cut_them(folder, capsys, monkeypatch):
    """Here ten tokens: the text's, those of a prompt of one word, and two more."""
    monkeypatch.setattr(Words, "max_seq_length", 10)
    (folder / "long.txt").write_text("one two three four five six seven eight nine ten\n" * 3)
    assert _index(folder, "--model=toy") == 0
    texts = Index.load(folder.parent / "my.index", Words()).texts
    numbers = [text for text in texts if set(text.split()) & {"one", "five", "ten"}]
    assert len(numbers) == 5 and max(len(text.split()) for text in texts) <= 7
    assert " ".join(numbers).split().count("ten") == 3


def test_files_that_are_left_out_are_counted_by_suffix(folder, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "pypdf", None)
    (folder / "sub" / "f.PDF").write_bytes(b"%PDF")
    (folder / "g.pdf").write_bytes(b"%PDF")
    (folder / "README").write_text("no suffix")
    for _ in range(2):
        assert _index(folder, "--model=toy") == 0
        said = capsys.readouterr().err.splitlines()
        (line,) = [line for line in said if line.startswith("left out: ")]
        kinds, advice = line.removeprefix("left out: ").split("; ")
        assert set(kinds.split(", ")) == {"2 .pdf", "1 .bin", "1 without a suffix"}
        assert advice == 'pip install ".[documents]" reads PDF'
    assert _index(folder / "g.pdf") == 1
    assert 'pypdf is not installed; in the checkout of this project, run pip install ".[doc' in (
        capsys.readouterr().err
    )


def test_pdf_and_word_files_of_a_folder_are_searched(folder, capsys):
    pytest.importorskip("pypdf", reason="an optional extra: requirements-dev.txt")
    write_pdf(folder / "sub" / "f.PDF", ["a page of tea", "a page of coffee"])
    write_docx(folder / "g.docx", "<p><r><t>minutes</t></r></p><p><r><t>of May</t></r></p>")
    (folder / "damaged.docx").write_bytes(b"PK")
    (folder / "damaged.pdf").write_bytes(b"%PDF")
    assert _index(folder, "--model=toy") == 0
    said = capsys.readouterr().err.splitlines()
    for name in ("damaged.docx", "damaged.pdf"):
        assert [line for line in said if f"left out: {folder / name}: damaged" in line]
    assert [line for line in said if line.startswith("left out: ")][-1] == "left out: 1 .bin"
    hit = _ask(folder, "a page of coffee", capsys)
    assert hit["metadata"] == {"file": f"{folder}/sub/f.PDF", "line": 2}
    assert _ask(folder, "minutes of May", capsys)["text"] == "minutes\nof May"
    assert _index(folder / "damaged.pdf") == 1
    assert "damaged.pdf: damaged" in capsys.readouterr().err


def test_index_without_a_model_takes_the_english_one_that_ships(folder, capsys):
    assert _index(folder) == 0
    taken = "taking mini-en, an encoder for English; --model names another, such as mini-multi"
    assert taken in capsys.readouterr().err
    assert Index.read_settings(folder.parent / "my.index")["encoder"]["model"] == "mini-en"
    (folder / "a.txt").write_text("the next call takes the encoder of the index\n")
    assert _index(folder) == 0 and "taking" not in capsys.readouterr().err


def test_mistakes_are_one_line(folder, capsys):
    assert _index(folder / "e.bin", "--model=toy") == 1
    assert _index(folder / "none", "--model=toy") == 1
    assert "no such file or folder" in capsys.readouterr().err
    _index(folder, "--model=toy")
    assert _index(folder, "--model=other") == 1 and "made with --model" in capsys.readouterr().err
    assert call("export.search.search", f"--index={folder}/none", "--query=x") == 1
    assert "no index there" in capsys.readouterr().err
    assert call("export.search.search", f"--index={folder}/e.bin", "--query=x") == 1
    assert "e.bin: not of .txt, .md" in capsys.readouterr().err
    (folder.parent / "my.index/index.json").unlink()
    assert call("export.search.search", f"--index={folder.parent}/my.index", "--query=x") == 1
    assert "it has no index.json" in capsys.readouterr().err


def _ask_text(text, query, capsys, *more):
    """Returns the best passage and the lines on standard error."""
    arguments = [f"--index={text}", f"--query={query}", "--k=1", "--json", *more]
    assert call("export.search.search", *arguments) == 0
    printed = capsys.readouterr()
    return json.loads(printed.out), printed.err.splitlines()


def test_folder_of_text_is_searched_by_an_index_in_the_cache(folder, tmp_path, capsys, monkeypatch):
    """It is made once, its changes are read, and another encoder has its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", f"{tmp_path}/cache")
    hit, lines = _ask_text(folder, "old wine", capsys)
    (made,) = (tmp_path / "cache" / "official_cmlm" / "indices").glob("*/index.json")
    assert hit["text"] == "old wine" and lines[0].startswith("taking mini-en, ")
    built = f"{folder}: index built in {made.parent}, 5 passages of 4 files; 4 files new"
    assert any(line.startswith(built) for line in lines)
    before = made.stat().st_mtime_ns
    hit, lines = _ask_text(folder, "bread and butter", capsys)
    assert hit["metadata"]["file"] == f"{folder}/c.html" and not lines
    assert made.stat().st_mtime_ns == before
    (folder / "a.txt").write_text("the cup is on the table, and this is longer\n")
    hit, lines = _ask_text(folder, "the cup is on the table", capsys)
    assert hit["text"].startswith("the cup") and "1 files new or changed" in lines[-1]
    assert not _ask_text(folder, "old wine", capsys)[1]
    _, lines = _ask_text(folder, "old wine", capsys, "--model=static-en")
    assert "4 files new" in lines[-1] and not any("taking" in line for line in lines)


def test_damaged_index_in_the_cache_is_built_again(folder, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", f"{tmp_path}/cache")
    _ask_text(folder / "d.csv", "old wine", capsys)
    (made,) = (tmp_path / "cache").rglob("index.json")
    made.write_text("{")
    hit, lines = _ask_text(folder / "d.csv", "old wine", capsys)
    assert hit["text"] == "old wine" and "index built in" in lines[-1]


def test_text_of_standard_input_is_searched(capsys, monkeypatch):
    stdin = io.BytesIO(f"{200 * 'tea '}\n\nthe café is open\n".encode())
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(stdin))
    hit, _ = _ask_text("-", "the café is open", capsys)
    assert (hit["text"], hit["metadata"]) == ("the café is open", {"file": "-", "line": 3})


def test_text_of_standard_input_is_indexed_beside_files(folder, capsys, monkeypatch):
    """A later text takes the place of the earlier one."""
    target = f"--index={folder.parent}/my.index"
    for text, inputs in (("the cup", f"{folder},-"), ("the café is open", "-")):
        stdin = io.BytesIO(f"\n{text}\n".encode())
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(stdin))
        assert call("export.search.index", f"--input={inputs}", target, "--model=toy") == 0
        hit = _ask(folder, text, capsys)
        assert (hit["text"], hit["metadata"]) == (text, {"file": "-", "line": 2})
    index = Index.load(folder.parent / "my.index", Words())
    assert "the cup" not in index.texts and "old wine" in index.texts
    # The passages around one are found by the id that the page shows.
    assert index.settings["root"] == ""


def test_file_that_is_not_utf8_is_indexed_with_a_warning(folder, capsys):
    (folder / "latin.txt").write_bytes("the café is open, and the tea is hot\n".encode("latin-1"))
    assert _index(folder, "--model=toy") == 0
    assert "latin.txt: is not UTF-8 from byte 7 on" in capsys.readouterr().err
    assert "the tea is hot" in _ask(folder, "and the tea is hot", capsys)["text"]


@pytest.mark.parametrize("content", [b"%PDF-1.4\nobj", b"PK\3\4abc", b"a\0b"])
def test_text_of_utf16_is_searched_and_other_bytes_are_refused(folder, capsys, content):
    (folder / "no.txt").write_bytes(content)
    (folder / "wide.txt").write_bytes("the café is open".encode("utf-16"))
    assert _index(folder, "--model=toy") == 0
    shown = capsys.readouterr().err
    assert "no.txt: no text; name a PDF or Word file" in shown and "UTF-8" not in shown
    assert _ask(folder, "the café is open", capsys)["text"] == "the café is open"


def test_other_tables_of_a_folder_are_left_out(folder, capsys):
    (folder / "numbers.csv").write_text("a,b\n1,2\n")
    assert _index(folder, "--model=toy") == 0
    assert "left out: " in capsys.readouterr().err
    assert _ask(folder, "old wine", capsys)["text"] == "old wine"
    assert _index(folder / "numbers.csv", "--model=toy") == 1
    assert "no column 'text'" in capsys.readouterr().err
