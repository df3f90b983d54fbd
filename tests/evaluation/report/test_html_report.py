"""The HTML report: one file, nothing from outside, well-formed whatever the results hold."""

import base64
import re
import warnings
from html.parser import HTMLParser

import matplotlib
import pytest
from matplotlib.colors import to_hex

from official_cmlm.evaluation.report import figures
from official_cmlm.evaluation.report.html_report import charts, html_report
from official_cmlm.evaluation.report.main_scores import references
from official_cmlm.evaluation.suites import SUITES, get_results
from tests.evaluation.report.test_tables import results, score, suite

VOID = {"meta", "br", "hr", "img", "link", "input"}


def full(name="mine") -> dict:
    """Returns results of which every part of the report is made."""
    return results(
        name,
        senteval=suite(score("MR", "accuracy", 80.0), score("SICK-R", "pearson", 83.0)),
        sts=suite(
            score("STS12", "spearman_all", 60.0),
            score("STS12.MSRpar", "spearman", 50.0),
            score("SICK-R", "spearman", 55.0),
            score("average", "spearman_all", 57.5),
            score("STS-B.de", "spearman", 40.0),
            score("STS-B.fr", "spearman", 45.0),
        ),
        tatoeba=suite(
            score("fr", "accuracy_mean", 70.0),
            score("fr", "accuracy_mean_pcr", 75.0),
            score("de", "accuracy_mean", 80.0),
        ),
        qnli=suite(score("dev", "auc", 60.0)),
        geometry=suite(score("words", "isotropy", 0.25), score("sentences", "isotropy", 0.5)),
        amazon=suite(
            missing=[{"task": "", "what": "/data/amazon", "hint": "fetch it"}],
            failures=["de: no reviews"],
        ),
    )


class Checker(HTMLParser):
    """Fails on tags that do not match; gathers tags, text, and values of attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.texts: list[str] = []
        self.values: dict[str, list[str]] = {"id": [], "href": [], "src": []}
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag not in VOID:
            self.open.append(tag)
        for key, value in attrs:
            assert not key.startswith("on")
            self.values.setdefault(key, []).append(value)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


@pytest.fixture(scope="module")
def document():
    """Returns the report of one encoder."""
    return html_report(full())


@pytest.fixture(scope="module")
def comparison():
    """Returns the report of two."""
    return html_report(full(), full("other"))


SMALL = {"qnli": suite(score("dev", "auc", 60.0))}
CASES = {
    "one": "document",
    "two": "comparison",
    "five": [results(name, **SMALL) for name in "abcde"],
    "empty and one suite": [results(), results("other", **SMALL)],
    "failed": [results(sts=suite(failures=["sts: no data"]))],
    "unknown suite": [results(zzz=suite(score("a", "b", 1.0)))],
}


@pytest.mark.parametrize("parts", CASES.values(), ids=CASES)
def test_document_is_whole(parts, request):
    """Tags match, ids are unique, references lead to them, nothing is loaded from outside."""
    text = request.getfixturevalue(parts) if isinstance(parts, str) else html_report(*parts)
    page = Checker(text)
    ids = page.values["id"]
    assert len(set(ids)) == len(ids)
    assert set(page.values["href"]) <= {f"#{name}" for name in ids}
    assert all(source.startswith("data:image/svg+xml;base64,") for source in page.values["src"])
    assert not re.search(r"https?://|@import|<script|<link|<iframe", text)
    assert "default-src 'none'" in text
    assert set(page.tags) >= {"html", "title", "h1"}


def test_the_document_has_every_chart(document):
    """A second encoder has a bar beside the first one's."""
    counts = {name: len(charts(name, full())) for name in full()["suites"]}
    assert counts == {"senteval": 1, "sts": 2, "tatoeba": 1, "qnli": 0, "geometry": 1, "amazon": 0}
    marked = [len(charts(name, full(), with_papers=True)) for name in counts]
    assert document.count("<img") == sum(counts.values()) + sum(marked) and marked[:2] == [1, 1]
    assert len(charts("senteval", full(), full("other"))) == 1


def test_component_removal_has_fainter_bars_of_one_encoder():
    """Without scores after the removal, and beside another encoder, there is one kind of bars."""
    (axes,) = axes_of(charts("tatoeba", full())[0])
    assert [len(bars) for bars in axes.containers] == [2, 1]
    assert "component removed" in figures.svg(charts("tatoeba", full())[0])
    for parts in ([full(), full("other")], [full()]):
        parts[0]["suites"]["tatoeba"]["scores"].pop(1)
        assert "component removed" not in figures.svg(charts("tatoeba", *parts)[0])


BARS = [name for name in SUITES if get_results(name).bars]


@pytest.mark.parametrize("name", BARS)
def test_every_suite_with_bars_draws_each_of_its_metrics(name):
    """Two tasks scored by any of a suite's main metrics make a chart."""
    assert get_results(name).main
    for metric in get_results(name).main:
        scores = [score("a", metric.name, 0.5), score("b", metric.name, 0.4)]
        (chart,) = charts(name, results(**{name: suite(*scores)}))
        assert chart.title == get_results(name).bars


def test_drawings_can_be_read(comparison):
    """Labels, units and legends are text in the drawings of the document.

    The smallest letters are 6 points high in a column of three inches and a third.
    """
    sources = Checker(comparison).values["src"]
    drawings = [base64.b64decode(source.partition(",")[2]).decode() for source in sources]
    for label in ("MR", "SICK-R", "STS-B.de", "isotropy score, 0 to 1"):
        assert f">{label}<" in "".join(drawings)
    assert "".join(drawings).count(">other<") > 3
    for drawing in drawings:
        sizes = re.findall(r"font-size: ([\d.]+)px", drawing)
        inches = float(re.search(r'width="([\d.]+)pt"', drawing)[1]) / 72
        assert sizes and min(map(float, sizes)) * 3.33 / inches >= 6


def test_sts_has_a_chart_a_panel():
    """Subsets of a year have no bar; the papers' rows are those of test sets."""
    mine = full()
    mine["suites"]["sts"]["scores"] += [
        score(f"STS-B{part}", "spearman", 50.0) for part in ("", "-dev", "-train")
    ]
    own, others, development = drawn = charts("sts", mine)
    titles = ["", ": other languages", ": development and training sets"]
    assert [chart.title for chart in drawn] == [own.title + title for title in titles]
    assert "STS12" in figures.svg(own)
    assert not re.search("MSRpar|STS-B.de|STS-B-dev", figures.svg(own))
    assert "STS-B.de" in figures.svg(others) and "average" not in figures.svg(others)
    assert "STS-B-dev" in figures.svg(development)


def axes_of(chart):
    """Returns the axes of a drawn chart."""
    figure = figures.Figure()
    chart.draw(figure)
    return figure.axes


def test_averages_stand_apart():
    """They come last, below a line, whatever the order of the scores."""
    (axes,) = axes_of(charts("sts", full())[0])
    assert [label.get_text() for label in axes.get_yticklabels()] == ["STS12", "SICK-R", "average"]
    places = list(axes.get_yticks())
    assert places[2] - places[1] > 1.3 * (places[1] - places[0])
    (line,) = [line for line in axes.lines if len(set(line.get_ydata())) == 1]
    assert places[1] < line.get_ydata()[0] < places[2]


def test_references_are_of_the_same_metric(document):
    """A paper's figure is marked on request, beside bars of its own metric, in our unit."""
    assert "Beside the papers&#x27; rows" in document
    (chart,) = charts("sts", full(), with_papers=True)
    (axes,) = axes_of(chart)
    marks = [segment for lines in axes.collections for segment in lines.get_segments()]
    # CMLM-CSE, Table 1: STS12, SICK-R and average of two rows.
    assert sorted(round(float(mark[0][0]), 2) for mark in marks) == sorted(
        [58.20, 64.80, 67.22, 70.52, 70.20, 76.80]
    )
    assert "CMLM-CSE-BERT-base (CMLM-CSE, Table 1)" in figures.svg(chart)
    assert not re.search(r"\(CMLM-CSE, Table", figures.svg(charts("sts", full())[0]))
    mine = results(word_similarity=suite(score("multi_simlex.en", "spearman", 9.0)))
    (chart,) = charts("word_similarity", mine, with_papers=True)
    (axes,) = axes_of(chart)
    assert all(10 < float(lines.get_segments()[0][0][0]) < 90 for lines in axes.collections)
    assert references("geometry", []) == {}


def test_an_encoder_keeps_its_colour():
    """An encoder that lacks a suite leaves its colour free; nobody else takes it."""
    parts = [results(), full("second"), results(), full("fourth"), full("fifth")]
    seconds = figures.ENCODER_COLORS[1], figures.ENCODER_COLORS[3], figures.ENCODER_COLORS[4]
    (axes,) = axes_of(charts("senteval", *parts)[0])
    assert tuple(to_hex(bars[0].get_facecolor()) for bars in axes.containers) == seconds


def test_long_labels_have_lines():
    """An average names all of its parts, and the bars have more than half of the width."""
    average = "average of STS14+STS15+STS-B+SICK-R"
    names = ("STS14", "STS15", average)
    mine = results(sts=suite(*(score(name, "spearman", 50.0) for name in names)))
    (chart,) = charts("sts", mine)
    figure = figures.Figure(figsize=(4.4, chart.height), layout="constrained")
    chart.draw(figure)
    (axes,) = figure.axes
    labels = axes.get_yticklabels()
    assert labels[-1].get_text().replace("\n", "") == average
    figure.draw_without_rendering()
    assert axes.get_position().width > 0.5
    boxes = [label.get_window_extent() for label in labels]
    assert all(one.y0 > other.y1 for one, other in zip(boxes, boxes[1:]))


def test_deviations_over_seeds_are_thin_lines():
    """A thin line from mean minus to mean plus the deviation, and a word about it."""
    mine = results(
        senteval=suite(score("MR", "accuracy", 80.0, deviation=1.5), score("CR", "accuracy", 70.0))
    )
    (chart,) = charts("senteval", mine)
    (axes,) = axes_of(chart)
    (lines,) = axes.containers[1].errorbar.lines[2]
    assert [list(segment[:, 0]) for segment in lines.get_segments()] == [[78.5, 81.5], [70, 70]]
    assert "standard deviation over seeds" in figures.svg(chart)
    assert "standard deviation" not in figures.svg(charts("senteval", full())[0])


def test_a_dark_page_has_its_own_colours(document):
    """Each colour of the page has a dark counterpart, and drawings are inverted."""
    style = document.partition("<style>")[2].partition("</style>")[0]
    light, dark = re.findall(r":root \{(.*?)\}", style, flags=re.S)
    assert re.findall(r"(--[\w-]+):", light) == re.findall(r"(--[\w-]+):", dark)
    assert set(re.findall(r"var\((--[\w-]+)\)", style)) <= set(re.findall(r"(--[\w-]+):", light))
    assert "filter: invert" in style.partition("prefers-color-scheme: dark")[2]


def test_no_line_crosses_a_value():
    """Values stand right of the axes, where no paper's line is, and inside of the figure."""
    (chart,) = charts("sts", full(), with_papers=True)
    figure = figures.Figure(figsize=(4.4, chart.height), layout="constrained")
    chart.draw(figure)
    figure.draw_without_rendering()
    (axes,) = figure.axes
    assert [text.get_text() for text in axes.texts] == ["60.0", "55.0", "57.5"]
    boxes = [text.get_window_extent() for text in axes.texts]
    assert all(axes.bbox.x1 <= box.x0 and box.x1 <= figure.bbox.x1 for box in boxes)
    middles = [axes.transData.transform((0, place))[1] for place in axes.get_yticks()]
    assert [(box.y0 + box.y1) / 2 for box in boxes] == pytest.approx(middles, abs=3)
    mine = results(geometry=suite(score("a", "isotropy", 1.2e-7), score("b", "isotropy", 0.5)))
    (axes,) = axes_of(charts("geometry", mine)[0])
    assert [text.get_text() for text in axes.texts] == ["1.2e-07", "0.500"]


def test_names_are_escaped():
    """An encoder's name is text, in the tables and in the drawings."""
    name = '<b>"x" & $y_1^2$ --> <script>alert(1)</script>'
    mine = results(name, **{key: full()["suites"][key] for key in ("sts", "geometry")})
    mine["suites"]["sts"]["notes"] = ["<i>note</i>"]
    mine["suites"]["sts"]["scores"].append(score("<u>task</u>", "spearman", 30.0))
    mine["encoder"]["path"] = "</dd><script>"
    mine["suites"]["zz<i>"] = suite(failures=["<i>failure</i>"])
    text = html_report(mine, results("<b>", **SMALL), results("<i>", **SMALL))
    page = Checker(text)
    assert not {"i", "u", "script"} & set(page.tags)
    # The list of failures has these.
    assert page.tags.count("b") == text.count("<li><b>")
    assert "&lt;b&gt;" in text and "<u>task</u>" in page.texts
    mine["suites"]["geometry"]["scores"].append(score("<script>", "isotropy", 0.1))
    drawing = figures.svg(charts("geometry", mine)[0])
    assert "<script" not in drawing and "&lt;script&gt;" in drawing


def test_failures_stand_at_the_top(document):
    """They come before missing data, which is not an alarm, and the first suite."""
    parts = ('role="alert"', "de: no reviews", 'class="notice missing"', "fetch it", "<section")
    places = [document.index(part) for part in parts]
    assert places == sorted(places) and "/data/amazon: fetch it" in document
    assert 'role="alert"' not in html_report(results(sts=suite(score("STS12", "x", 1.0))))


def test_many_scores_are_folded(document):
    """Every score is there."""
    part = re.search(r"<h3>All 6 scores</h3>(.*?)</table>", document, flags=re.S)[1]
    assert "STS12.MSRpar" in part and "50.00" in part
    many = suite(*(score(f"STS12.{i}", "spearman", 50.0 + i) for i in range(20)))
    text = html_report(results(sts=many))
    part = re.search(r"<summary>All 20 scores</summary>(.*?)</details>", text, flags=re.S)[1]
    assert "STS12.19" in part


def test_own_row_is_set_off_in_a_papers_table(document):
    """Our row is set off from the paper's, and comes first; the best of a column are marked.

    Columns without own scores are folded.
    """
    text = document[document.index("CMLM, Table 2") :]
    table, after = text.split("</table>", 1)
    rows = re.findall(r'<tr( class="own")?><th scope="row">([^<]*)', table)
    assert rows[:2] == [(' class="own"', "mine"), ("", "Avg. GloVe embeddings")]
    heads = re.findall(r'<th scope="col"[^>]*>([^<]*)', table)
    assert heads == ["Model", "STS12", "SICK-R", "Avg."]
    assert "<strong>60.00</strong>" in table and table.count("<strong>") == 3
    whole = after[after.index("<summary>All columns</summary>") :].split("</table>")[0]
    assert "STS13" in whole and whole.count("<strong>") == 8


def test_the_same_results_make_the_same_document():
    """No clock and no chance goes into it, and Matplotlib's global settings stay."""
    before = dict(matplotlib.rcParams)
    mine = results(sts=full()["suites"]["sts"])
    assert html_report(mine) == html_report(mine)
    assert dict(matplotlib.rcParams) == before


def test_missing_values_have_no_bar():
    """A task that one encoder lacks has one bar."""
    mine = results(senteval=suite(score("MR", "accuracy", 80.0)))
    other = results("other", senteval=suite(score("TREC", "accuracy", 70.0)))
    (axes,) = axes_of(charts("senteval", mine, other)[0])
    assert [len(container) for container in axes.containers] == [1, 1]
    # A bar alone says nothing without a paper's row.
    mine = results(senteval=suite(score("MR", "accuracy", 80.0)))
    assert charts("senteval", mine) == []
    assert len(charts("senteval", mine, with_papers=True)) == 1


def test_long_names_are_cut_in_the_middle():
    """Letters that Matplotlib's font lacks give no warning."""
    chart = figures.bars(
        "t",
        ["n" * 80 + "end", "中文 $x_1$"],
        [
            figures.Series("a" * 80, [1.0, 2.0], figures.FIRST),
            figures.Series("b", [-3.0, None], figures.SECOND, [0.5, None]),
        ],
        "x, %",
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        drawing = figures.svg(chart)
    assert "n" * 9 + "…" + "n" * 7 + "end" in drawing and "n" * 10 not in drawing
    assert "中文 $x_1$" in drawing
