"""The search page and the report of an evaluation in Chromium, as people use them.

Needs the package playwright, and Chromium. With CMLM_AXE, the path of axe-core's `axe.min.js`, the
pages are also checked for what keeps people from reading them.
"""

import os
import shutil

import pytest

from official_cmlm.evaluation.report.html_report import html_report
from official_cmlm.search import Index
from tests.evaluation.report.test_html_report import full
from tests.export.service_helpers import serve
from tests.search.toy_encoder import Words

pytestmark = pytest.mark.long
VIEWS = (("light", 1000), ("dark", 1000), ("light", 390))
HITS = "#hits li"
TEXTS = ["Keys\nA dog ran. The <b>key</b> is here. " + 60 * "and more ", "a cat sat"]


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="needs the package playwright")
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("needs Chromium")
    with playwright.sync_playwright() as started:
        yield started.chromium.launch(executable_path=program, args=["--no-sandbox"])


@pytest.fixture
def page(browser):
    """Yields an empty page, which fails the test if its console has an error."""
    opened, errors = browser.new_page(), []
    opened.on("console", lambda said: said.type == "error" and errors.append(said.text))
    opened.on("pageerror", lambda error: errors.append(str(error)))
    yield opened
    opened.close()
    assert not errors


@pytest.fixture
def searched():
    """Serves 22 passages of three files; yields the address."""
    texts = [*TEXTS, *(f"where a dog ran {i} times" for i in range(20))]
    metadata = [{"file": f"/my/{'ab'[i]}.txt", "line": 3} for i in range(2)] + [{}] * 20
    metadata[0]["heading"] = "Keys"
    metadata[2:] = [{"file": "/my/dogs.csv", "line": i + 2} for i in range(20)]
    index = Index.build(Words(), texts, ids=[f"/my/{i}" for i in range(22)], metadata=metadata)
    index.settings = {"root": "/my", "near": 0.3, "files": dict.fromkeys("abc")}
    with serve(parts={"index": index}) as (port, *_):
        yield f"http://127.0.0.1:{port}/"


def _look(page, scheme, width):
    """Shows the page in a color scheme and a width; asserts that it fits and can be read."""
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 800})
    ink = page.evaluate("getComputedStyle(document.body).color.match(/[\\d.]+/g).map(Number)")
    assert (sum(ink[:3]) > 384) == (scheme == "dark")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    if path := os.environ.get("CMLM_AXE"):
        page.evaluate(f"() => {{ {open(path, encoding='utf-8').read()} }}")
        faults = page.evaluate("axe.run().then(result => result.violations)")
        assert not [one for one in faults if one["impact"] in ("serious", "critical")]


def test_search_page_is_used_by_keyboard(page, searched):
    page.goto(searched)
    page.get_by_text("22 passages of 3 files").wait_for()
    page.keyboard.type("and more and more <b>key</b> is here.")
    page.keyboard.press("Enter")
    page.wait_for_selector(HITS)
    for view in VIEWS:
        _look(page, *view)
    first = page.locator(HITS).first
    assert first.locator("strong").inner_text() == "Keys"
    assert first.locator("mark").inner_text() == "The <b>key</b> is here."
    text = first.inner_text()
    assert text.startswith("a.txt:3\n\nKeys\nA dog ran. The") and text.endswith(" …")
    # The passage in its place, and back.
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_selector(".here")
    _look(page, "light", 390)
    assert page.locator("#hits p").all_inner_texts() == [TEXTS[0].strip()]
    page.go_back()
    page.wait_for_selector("#hits mark")
    assert page.locator(HITS).count() == 10
    page.keyboard.press("/")
    page.keyboard.press("Tab")
    page.locator("#more").press("Enter")
    page.wait_for_selector(f"{HITS}:nth-child(11) a:focus")
    assert page.locator(HITS).count() == 20
    page.goto(f"{searched}?q=whales")
    page.get_by_text("Nothing near was found.").wait_for()
    _look(page, "dark", 390)


def test_report_has_its_answer_on_top(page, tmp_path):
    (tmp_path / "report.html").write_text(html_report(full(), full("other")), "utf-8")
    page.goto((tmp_path / "report.html").as_uri())
    for view in VIEWS:
        _look(page, *view)
    # On a phone the scores of both encoders, and the sentence above them, need no scrolling.
    cells = page.locator("tbody tr").first.locator("td")
    for box in (cells.nth(1).bounding_box(), page.locator(".headline").bounding_box()):
        assert box["x"] + box["width"] <= 390 and box["y"] < 800
    drawings = page.locator("figure img:visible").count()
    page.locator("summary", has_text="papers' rows").first.press("Enter")
    assert page.locator("figure img:visible").count() > drawings
    _look(page, "dark", 390)
