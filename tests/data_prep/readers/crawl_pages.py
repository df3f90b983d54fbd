"""Crawl files for tests, byte by byte, without the library that reads them."""


def record(kind: str, content: bytes, uri: str = "", **headers: str) -> bytes:
    """Makes a WARC record; names of headers are written with underscores, `WARC_Date`."""
    lines = ["WARC/1.0", f"WARC-Type: {kind}"]
    lines += [f"WARC-Target-URI: {uri}"] if uri else []
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    head = "\r\n".join([*lines, f"Content-Length: {len(content)}", "", ""])
    return head.encode() + content + b"\r\n\r\n"


def page(uri: str, html: bytes, *http: str, status: int = 200, **headers: str) -> bytes:
    """Makes a `response` record of a page; `http` are lines of the server's headers."""
    if not any(line.startswith("Content-Type:") for line in http):
        http = ("Content-Type: text/html; charset=utf-8", *http)
    head = "\r\n".join([f"HTTP/1.1 {status} OK", *http, "", ""])
    headers = {"Content_Type": "application/http; msgtype=response"} | headers
    return record("response", head.encode() + html, uri, **headers)


def article(*paragraphs: str, language: str = "") -> bytes:
    """Makes a page with navigation, the paragraphs as its main text, and a footer."""
    attribute = f' lang="{language}"' if language else ""
    body = "".join(f"<p>{paragraph}</p>\n" for paragraph in paragraphs)
    return (
        f"<!DOCTYPE html><html{attribute}><head><title>Title</title><style>p {{}}</style></head>"
        "<body><nav><ul><li><a href=/>Home</a></li><li><a href=/about>About us</a></li></ul></nav>"
        f"<main><article>{body}</article></main><script>var x = '<p>no text</p>';</script>"
        "<footer><a href=/privacy>Privacy policy</a></footer></body></html>"
    ).encode()
