"""Text of PDF and Word files, and the one line for those that have none."""

import zipfile

import pytest

from official_cmlm.common.errors import UserError
from official_cmlm.search import documents

_WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
_OTHER = "http://schemas.openxmlformats.org/markup-compatibility/2006"


def write_docx(path, body, before=""):
    """Writes a Word file of a body's markup."""
    names = f'xmlns="{_WORD}" xmlns:w="{_WORD}" xmlns:mc="{_OTHER}"'
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(
            "word/document.xml",
            f'<?xml version="1.0" encoding="UTF-8"?>{before}'
            f"<document {names}><body>{body}</body></document>",
        )


def write_pdf(path, pages, more=""):
    """Writes a PDF of pages with a line each; an empty one shows nothing, as a scanned page."""
    kids = " ".join(f"{4 + 2 * number} 0 R" for number in range(len(pages)))
    objects = [
        "<</Type/Catalog/Pages 2 0 R>>",
        f"<</Type/Pages/Count {len(pages)}/Kids[{kids}]/MediaBox[0 0 600 800]>>",
        "<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
    ]
    for number, text in enumerate(pages):
        shown = f"BT /F 12 Tf 72 720 Td ({text}) Tj ET" if text else ""
        font, content = "/Resources<</Font<</F 3 0 R>>>>", f"/Contents {5 + 2 * number} 0 R"
        objects.append(f"<</Type/Page/Parent 2 0 R{font}{content}>>")
        objects.append(f"<</Length {len(shown)}>>stream\n{shown}\nendstream")
    file, places = "%PDF-1.4\n", ["0000000000 65535 f \n"]
    for number, content in enumerate(objects, 1):
        places.append(f"{len(file):010} 00000 n \n")
        file += f"{number} 0 obj\n{content}\nendobj\n"
    trailer = f"trailer<</Size {len(places)}/Root 1 0 R{more}>>\nstartxref\n{len(file)}\n%%EOF\n"
    path.write_text(f"{file}xref\n0 {len(places)}\n{''.join(places)}{trailer}")


def test_paragraphs_of_a_word_file_are_lines_with_their_headings(tmp_path):
    write_docx(
        tmp_path / "a.docx",
        '<p><pPr><pStyle w:val="Heading2"/></pPr><r><t>Dogs &amp; cats</t></r></p>\n<p/>'
        "<p><r><t>o</t></r>\n<r><t>ne</t><tab/><t>two</t><delText>no</delText></r></p>"
        "<tbl><tr><tc><p><r><t>&lt;cell></t></r></p></tc></tr></tbl>"
        "<p><mc:Choice><t>box</t></mc:Choice><mc:Fallback><t>twice</t></mc:Fallback></p>",
    )
    assert documents.read_docx(str(tmp_path / "a.docx")).splitlines() == [
        "<h1>Dogs &amp; cats</h1>",
        "<p>one two</p>",
        "<p>&lt;cell&gt;</p>",
        "<p>box</p>",
    ]


def test_pages_of_a_pdf_are_read_one_by_one(tmp_path):
    pytest.importorskip("pypdf", reason="an optional extra: requirements-dev.txt")
    write_pdf(tmp_path / "a.pdf", ["The key is in the box.", "", "A dog ran."])
    pages = ["The key is in the box.", "", "A dog ran."]
    assert documents.read_pdf(str(tmp_path / "a.pdf")) == pages


@pytest.mark.parametrize("name", ["a.docx", "a.pdf"])
@pytest.mark.parametrize("content", [b"", b"\xd0\xcf\x11\xe0 encrypted", b"%PDF-1.4\nno more"])
def test_damaged_files_are_one_line(tmp_path, name, content):
    if name == "a.pdf":
        pytest.importorskip("pypdf", reason="an optional extra: requirements-dev.txt")
    (tmp_path / name).write_bytes(content)
    read = documents.read_pdf if name == "a.pdf" else documents.read_docx
    with pytest.raises(UserError, match=rf"{name}: damaged .*; save it again, without a password"):
        read(str(tmp_path / name))


def test_word_files_that_expand_too_much_are_one_line(tmp_path, monkeypatch):
    """One tells its size; one tells a smaller one; one declares an entity."""
    monkeypatch.setattr(documents, "_MOST", 10_000)
    path = tmp_path / "a.docx"
    write_docx(path, "<p/>" * 3000)
    with pytest.raises(UserError, match=r"a\.docx: its text expands to 12\d\d\d bytes, at most"):
        documents.read_docx(str(path))
    content = path.read_bytes()
    size = zipfile.ZipFile(path).infolist()[0].file_size.to_bytes(4, "little")
    assert content.count(size) == 2
    path.write_bytes(content.replace(size, (9000).to_bytes(4, "little")))
    with pytest.raises(UserError, match=r"a\.docx: damaged"):
        documents.read_docx(str(path))
    write_docx(path, "<p><t>&e;</t></p>", '<!DOCTYPE d [<!ENTITY e "text">]>')
    with pytest.raises(UserError, match=r"a\.docx: declares entities"):
        documents.read_docx(str(path))


def test_pdf_with_a_password_without_text_or_too_long_is_one_line(tmp_path, monkeypatch):
    pytest.importorskip("pypdf", reason="an optional extra: requirements-dev.txt")
    path = tmp_path / "a.pdf"
    keys = f"/O<{'00' * 32}>/U<{'00' * 32}>/P -4"
    write_pdf(path, ["secret"], f"/Encrypt<</Filter/Standard/V 1/R 2{keys}>>")
    with pytest.raises(UserError, match=r"a\.pdf: damaged .*not been decrypted.* a password"):
        documents.read_pdf(str(path))
    write_pdf(path, ["", ""])
    with pytest.raises(UserError, match=r"a\.pdf: 2 pages without text; are they scanned\? OCR"):
        documents.read_pdf(str(path))
    monkeypatch.setattr(documents, "_MOST", 10)
    write_pdf(path, ["eight ch", "eight ch"])
    with pytest.raises(UserError, match=r"a\.pdf: more than 10 characters"):
        documents.read_pdf(str(path))
