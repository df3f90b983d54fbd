"""All suites on a folder with toy data for everything: each column of the papers is filled."""

import functools

import pytest

from official_cmlm.evaluation.data.sts import SUBSETS
from official_cmlm.evaluation.embedding_cache import CachedEncoder
from official_cmlm.evaluation.encoder import add_prompt, prepare
from official_cmlm.evaluation.metrics.senteval_ranking import RankingConfig
from official_cmlm.evaluation.report import driver
from official_cmlm.evaluation.report.papers import own_values, paper_tables
from official_cmlm.evaluation.suites import SUITES, get_results
from official_cmlm.evaluation.suites import senteval as senteval_suite
from official_cmlm.evaluation.suites.tatoeba import XTREME
from tests.evaluation import coco_files, toy

TABLES = paper_tables()
NAMES = list(SUITES)
# Fewer trainings than by default; tasks and metrics are the same.
SETTINGS = (
    "amazon.seeds=1",
    "sts.split=both",
    f"senteval.tasks={','.join(senteval_suite.TASKS)}",
    f"xeval.tasks={','.join(senteval_suite.CMLM_TASKS)}",
)


def _write_everything(root):
    """Writes data of every suite, for every column of the papers' tables."""
    toy.write_senteval(root / "senteval/downstream")
    coco_files.write_coco(root / "senteval/downstream", 30)
    for year in SUBSETS:
        folder = root / f"senteval/downstream/STS/{year}-en-test"
        toy.write_year(folder, ["5", "4", "1", "2"])
    for name in ("track1.ar-ar", "track3.es-es"):
        toy.write(root / f"STS17/STS2017.eval.v1.1/STS.input.{name}.txt", ["a\ta b", "c\td"])
        toy.write(root / f"STS17/STS2017.gs/STS.gs.{name}.txt", ["4", "1"])
    russian = root / "STS2012_MSRvid_translated"
    toy.write(russian / "STS.input.MSRvid.txt", ["a\ta b", "c\td"])
    toy.write(russian / "STS.gs.MSRvid.txt", ["4", "1"])
    toy.write_probing(root / "senteval/probing")
    texts = [f"sentence {i}" for i in range(8)]
    for code in XTREME:
        for side in (code, "eng"):
            toy.write(root / f"tatoeba/v1/tatoeba.{code}-eng.{side}", texts)
    for language in ("en", "de"):
        toy.write(
            root / f"pawsx/dev-{language}.tsv", [f"{language} {text}\tb\t0" for text in texts]
        )
        sentences = [f"{language} {text}" for text in texts]
        toy.write_xquad_r(
            root / f"lareqa/xquad-r/{language}.json", (sentences, [(f"{language}?", 2)])
        )
    languages = {
        column.split("/")[0]
        for table in TABLES
        if table.suite == "xeval"
        for _, column in table.columns
    }
    for language in languages - {"mean"}:
        toy.write_senteval(root / "xeval" / language, count=30)
    rows, labels = toy.sentences(60)
    reviews = [f"{1 + 4 * label}\t{text}" for text, label in zip(rows, labels)]
    toy.write(root / "amazon/en/train.tsv", reviews)
    for language in ("en", "fr", "de", "ja"):
        toy.write(root / f"amazon/{language}/test.tsv", reviews[:20])
    pairs = [f"{i}\tword{i}\tword{i // 2}\tN\t{i % 5}" for i in range(1, 9)]
    for language in ("en", "fr", "et", "ar", "zh", "ru", "es", "pl", "he"):
        toy.write(root / f"multi_simlex/{language}.tsv", pairs)
    for pair in ("en-fr", "en-it", "en-ru", "en-tr", "it-fr", "ru-fr"):
        words = [f"a{i}\tb{i}" for i in range(8)]
        for kind in ("train.freq.5k", "train.freq.3k", "train.freq.1k", "train.freq.500"):
            toy.write(root / f"bli/{pair}/yacle.{kind}.{pair}.tsv", words)
        toy.write(root / f"bli/{pair}/yacle.test.freq.2k.{pair}.tsv", words[:3])
    for corpus in ("ncbi-disease", "bc5cdr-disease", "bc5cdr-chemical", "askapatient", "cometa"):
        toy.write(root / corpus / "entities.txt", [f"D{i}\tname {i}" for i in range(8)])
        toy.write(root / corpus / "mentions.tsv", ["name 1\tD1", "names 2\tD2"])
    mentions = [f"1\t0\t1\t{kind}\t{kind}\tD1" for kind in ("Disease", "Chemical")]
    toy.write(root / "bc5cdr/entities.txt", ["D1\tname 1"])
    toy.write(root / "bc5cdr/test_corpus.txt", mentions)
    documents, queries = ({f"{x}{i}": f"{x} {i}" for i in range(4)} for x in "cq")
    toy.write_beir(root / "beir/toy", documents, queries, [f"q{i}\tc{i}\t1" for i in range(4)])
    header = "index\tquestion\tsentence\tlabel"
    answers = [f"{i}\tq {i}\ts {i}\t{('entailment', 'not_entailment')[i % 2]}" for i in range(6)]
    toy.write(root / "qnli/dev.tsv", [header, *answers])
    labels = ("entailment", "neutral", "contradiction")
    inferences = [f"a {i}\tb {i % 3}\t{labels[i % 3]}" for i in range(30)]
    train = root / "XNLI-MT-1.0/multinli/multinli.train.en.tsv"
    toy.write(train, ["premise\thypo\tlabel", *inferences])
    for language in ("en", "de"):
        toy.write(root / f"xnli/test-{language}.tsv", inferences)
    questions = [f"{i}\t{i}\t{i}\tq {i}\tq {i // 2}\t{i % 2}" for i in range(8)]
    header = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate"
    toy.write(root / "qqp/dev.tsv", [header, *questions])
    for name in (
        "en_words_top_10k",
        "stsbenchmark_train_10k_sents_random_sampled",
        "umls_names_10k",
    ):
        toy.write(root / f"mirror_bert/{name}.txt", texts)


def _fine_tune(texts, labels, classes, seed):
    return lambda others: [seed % classes] * len(others)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Returns the folder."""
    root = tmp_path_factory.mktemp("everything")
    _write_everything(root)
    return root


@pytest.fixture(scope="module")
def results(data):
    """Returns suite -> its results, the number of announced texts and that of the others."""
    options = driver.parse_options(NAMES, SETTINGS)
    by_suite, scored = {}, {}

    def score_once(self, *rest, score=senteval_suite._TextTask._score):
        key = self.task.name, len(self._parts["train"].labels)
        if key not in scored:
            scored[key] = score(self, *rest)
        return scored[key]

    # All languages have the same sentences.
    monkeypatch = pytest.MonkeyPatch()
    monkeypatch.setattr(senteval_suite._TextTask, "_score", score_once)
    config = functools.partial(RankingConfig, max_epoch=0)
    monkeypatch.setattr(senteval_suite, "RankingConfig", config)
    for name, chosen in options.items():
        encode = toy.Recording()
        roles = {"query": add_prompt(encode, "query: ")}
        cached = CachedEncoder(encode, fine_tune=_fine_tune, roles=roles)
        suite_run = driver.SuiteRun(name, data, chosen)
        suite_run.read()
        for task in suite_run.tasks:
            prepare(cached, task.texts())
        announced = len(encode.texts)
        by_suite[name] = suite_run.score(cached)
        by_suite[name] |= {"announced": announced, "late": len(encode.texts) - announced}
    monkeypatch.undo()
    return by_suite


@pytest.mark.parametrize("name", NAMES)
def test_every_suite_is_whole(results, name):
    """Nothing fails, nothing lacks; so an empty column below is the suite's fault.

    The one pass over all suites' texts finds all that the suite embeds. Each metric has a label of
    its own, which is not its name in results.json.
    """
    suite = results[name]
    assert suite["failures"] == [] and suite["missing"] == []
    assert suite["announced"] and not suite["late"]
    metrics = list(dict.fromkeys(score["metric"] for score in suite["scores"]))
    labels = [get_results(name).metric(metric).text for metric in metrics]
    assert not set(metrics) & set(labels) and len(set(labels)) == len(labels)


@pytest.mark.parametrize("table", TABLES, ids=lambda table: f"{table.paper} {table.table}")
def test_every_column_is_filled(results, table):
    """The suite has a score under the column's name, for one of the table's variants at least."""
    values = {f"{s['task']}/{s['metric']}": s["value"] for s in results[table.suite]["scores"]}
    rows = [own_values(table, values, variant) for _, variant in table.variants]
    for i, (label, column) in enumerate(table.columns):
        assert column is None or any(row[i] is not None for row in rows), label
