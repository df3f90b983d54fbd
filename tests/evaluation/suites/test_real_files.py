"""Published files: their texts, and the toy encoder's scores, as when published scores were met."""

import hashlib

import pytest

from official_cmlm.evaluation import suites
from official_cmlm.evaluation.data.folder import DataFolder
from official_cmlm.evaluation.scores import SuiteReport
from official_cmlm.evaluation.suite import read_tasks, score_tasks
from tests.evaluation import toy

# Suite -> its options, the SHA-256 of all texts, and some of the scores with their counts.
FILES = {
    "sts": (
        {
            "tasks": ["STS14", "STS15", "STS-B", "SICK-R"],
            "languages": ["de", "es"],
            "split": "both",
        },
        "2b427148908c6813",
        {
            "STS14/spearman_all": (52.268, 3750),
            "STS15/spearman_all": (65.307, 3000),
            "STS-B/spearman": (55.227, 1379),
            "STS-B-dev/spearman": (62.996, 1500),
            "SICK-R/spearman": (55.635, 4927),
            "STS-B.de/spearman": (53.965, 1379),
            "STS-B-dev.es/spearman": (64.576, 1500),
        },
    ),
    "tatoeba": (
        {"languages": ["de", "ja"]},
        "39bf1296cb4e08c7",
        {"de/accuracy_mean": (1.1, 1000), "ja/accuracy_mean_pcr": (0.1, 1000)},
    ),
    "language_bias": (
        {},
        "f70898e00c1a0719",
        {"en/share_own": (88.640, 1655), "all/accuracy_pcr": (8.988, 6620)},
    ),
    "lareqa": (
        {"languages": ["de", "en"]},
        "a1b12cae7f049114",
        {"de/map_own_language": (25.695, 1190), "all of de+en/map": (14.482, 2380)},
    ),
    "word_similarity": (
        {},
        "3a35d03ff538d477",
        {
            "multi_simlex.zh/spearman": (3.597, 1888),
            "simlex.german/spearman": (3.564, 999),
            "cross_lingual_simlex.average/spearman": (0.222, 29466),
        },
    ),
    "bli": (
        {"pairs": ["fr-en"]},
        "4944f1e3998ccf13",
        {"fr-en.5k/p@5_unmapped": (41.632, 1936), "fr-en.5k/p@1": (32.231, 1936)},
    ),
    "entity_linking": (
        {},
        "0eca0bc65ef00f7d",
        {
            "bc5cdr.pubtator/accuracy@1": (20.066, 9718),
            "bc5cdr.pubtator/accuracy@1_in_dictionary": (21.807, 8942),
            "bc5cdr.pubtator.Disease/accuracy@5": (35.434, 4363),
        },
    ),
    "xnli": (
        {"split": "dev", "languages": ["en", "sw"], "max_train": 3000},
        "f695b8998832b119",
        {"en/dev_accuracy": (41.727, 2490), "macro/dev_accuracy": (36.345, 2490)},
    ),
    "qnli": ({}, "2676e8da2e64ba03", {"dev/auc": (68.665, 5463)}),
    "geometry": (
        {"max_texts": 500},
        "dd9d3945f5749009",
        {"en_words_top_10k/isotropy": (0.804, 500), "sts-dev/alignment": (0.536, 208)},
    ),
}


@pytest.mark.parametrize(
    "name",
    [
        # These have the most texts.
        pytest.param(n, marks=pytest.mark.long if n in ("entity_linking", "qnli") else ())
        for n in FILES
    ],
)
def test_files_are_read_and_scored_as_ever(data_dir, name):
    """Every text is the same, no file differs from the published one, and no score has changed."""
    fields, digest, expected = FILES[name]
    suite, report, data = suites.get_suite(name), SuiteReport(), DataFolder(data_dir)
    tasks = read_tasks(suite.tasks(data, suites.read_options(name, fields), report), data.files)
    readable = [task for task in tasks if task.error is None]
    texts = [text for task in readable for texts in task.texts().values() for text in texts]
    assert hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16] == digest
    score_tasks(tasks, report, lambda task: task.score(toy.encode, report))
    assert not report.failures and not data.warnings
    scores = {f"{s.task}/{s.metric}": (s.value, s.count) for s in report.scores}
    for score, (value, count) in expected.items():
        assert scores[score] == (pytest.approx(value, abs=0.1), count), score
