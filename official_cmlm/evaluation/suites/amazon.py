"""Sentiment of Amazon reviews, learned in English and tested in other languages.

CMLM (Yang et al. 2021), section 4.5.2 and Table 6, on the reviews of Prettenhofer and Stein (2010):
more than 3 stars is positive; 6,000 English reviews, 90 % of them for training and 10 % for
development; 6,000 test reviews per language. The paper lists the features [u, v, |u - v|, u * v] of
a sentence pair, but a review is one text: the features here are its embedding u.
"""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Annotated

import numpy as np

from official_cmlm.common.errors import UserError
from official_cmlm.common.validation import above, at_least, between
from official_cmlm.evaluation.data import amazon as amazon_reviews
from official_cmlm.evaluation.data.amazon import Reviews
from official_cmlm.evaluation.data.folder import DataFolder
from official_cmlm.evaluation.data.language_codes import choose_languages
from official_cmlm.evaluation.encoder import Encode
from official_cmlm.evaluation.metrics.cross_validation import LogisticRegressionSolver, best_on_dev
from official_cmlm.evaluation.scores import SuiteReport
from official_cmlm.evaluation.suite import Metric, SuiteResults, Task, TextsByRole
from official_cmlm.evaluation.suites import register

# Language of the training reviews (CMLM, section 4.5.2).
_SOURCE = "en"
_FOLDERS = ("amazon", "amazon_reviews_multi", "cls-acl10-unprocessed")


@dataclasses.dataclass(frozen=True)
class Options:
    """Options of the transfer of sentiment.

    Attributes:
      languages: test languages. Default: all found, and English.
      max_train: number of training and development reviews; of a larger file a random sample, the
        same for every seed. Default 6000 (same section).
      max_test: number of test reviews per language, sampled likewise. Default 6000 (same section).
      dev_share: share of the training reviews used to choose C. Default 0.1 (same section).
      grid: values of C, the inverse strength of the classifier's L2 penalty. Default: powers of ten
        from 0.01 to 1000; the paper does not state them.
      seeds: number of repetitions, each with its own split and seed of the encoder's training.
        Default 1; the paper does not state it.
      train_encoder: also train the encoder, if possible. Default true (lower half of Table 6).
    """

    languages: list[str] = dataclasses.field(default_factory=list)
    max_train: Annotated[int, at_least(1)] = 6000
    max_test: Annotated[int, at_least(1)] = 6000
    dev_share: Annotated[float, between(0, 1, above_low=True, below_high=True)] = 0.1
    grid: Annotated[list[float], above(0)] = dataclasses.field(
        default_factory=lambda: [0.01, 0.1, 1.0, 10.0, 100.0, 1000.0]
    )
    seeds: Annotated[int, at_least(1)] = 1
    train_encoder: bool = True


RESULTS = SuiteResults(
    (
        Metric("accuracy_frozen", "accuracy", "%", "encoder frozen", main=True),
        Metric("accuracy_trained", "accuracy", "%", "encoder trained too"),
    ),
    averages=r"mean",
    bars="Sentiment of reviews, learned in one language, by test language; frozen encoder",
    axis="accuracy, %",
    references=(("CMLM", "Table 6 (frozen)", "mBERT", "CMLM"),),
)


@register("amazon", Options, RESULTS)
def tasks(data: DataFolder, options: Options, report: SuiteReport) -> Iterator[Task]:
    """Yields one task: training on English, and tests on all languages found, or those chosen.

    Tasks in results: `<language>`, and `mean` over the languages other than English.
    """
    report.seeds = list(range(options.seeds))
    folder = data.folder(*_FOLDERS, hint=amazon_reviews.HINT)
    train = _sample(amazon_reviews.read(data, folder, _SOURCE, "train"), options.max_train)
    tests: dict[str, Reviews] = {}
    there = list(dict.fromkeys([_SOURCE, *amazon_reviews.languages(folder)]))
    for language in choose_languages("amazon.languages", options.languages, there, report):
        with report.task(language):
            reviews = amazon_reviews.read(data, folder, language, "test")
            tests[language] = _sample(reviews, options.max_test)
    for name, reviews in [(f"{_SOURCE} (train)", train), *tests.items()]:
        if reviews.skipped:
            report.notes.append(f"{name}: {reviews.skipped} malformed reviews skipped")
    if tests:
        yield _Sentiment("", train, tests, options)


@dataclasses.dataclass(eq=False)
class _Sentiment(Task):
    """Classifiers of one language's reviews, tested on reviews in several languages."""

    train: Reviews
    tests: dict[str, Reviews]
    options: Options

    def texts(self) -> TextsByRole:
        every = [self.train, *self.tests.values()]
        return {"": [text for reviews in every for text in reviews.texts]}

    def score(self, encode: Encode, report: SuiteReport) -> None:
        train, options = self.train, self.options
        if options.languages:
            others = " ".join(self._others()) or "none"
            report.notes.append(f"mean is over a part that was chosen: {others}")

        def frozen(seed: int) -> Callable[[list[str]], np.ndarray]:
            rows, dev = split(train.labels, options.dev_share, seed)
            vectors = encode(train.texts)
            classifier = best_on_dev(
                (vectors[rows], train.labels[rows]),
                (vectors[dev], train.labels[dev]),
                # Large values of C converge slowly.
                LogisticRegressionSolver(seed, max_iter=2000),
                sorted(options.grid),
            )
            return lambda texts: classifier.predict(encode(texts))

        self._test("accuracy_frozen", frozen, report)
        fine_tune = getattr(encode, "fine_tune", None)
        if options.train_encoder and fine_tune is None:
            report.notes.append("accuracy_trained: this encoder cannot be trained here")
        elif options.train_encoder:

            def train_encoder(seed: int) -> Callable[[list[str]], np.ndarray]:
                # The development part is left out, so that both metrics train on the same reviews.
                part = train.take(split(train.labels, options.dev_share, seed)[0])
                return fine_tune(part.texts, part.labels, 2, seed)

            self._test("accuracy_trained", train_encoder, report)

    def _others(self) -> list[str]:
        return [language for language in self.tests if language != _SOURCE]

    def _test(
        self,
        metric: str,
        train: Callable[[int], Callable[[list[str]], np.ndarray]],
        report: SuiteReport,
    ) -> None:
        accuracies: dict[str, list[float]] = {language: [] for language in self.tests}
        # The seeds follow each other, so that one trained encoder is in memory at a time.
        for seed in range(self.options.seeds):
            predict = train(seed)
            for language, reviews in self.tests.items():
                right = np.asarray(predict(reviews.texts)) == reviews.labels
                accuracies[language].append(100.0 * float(np.mean(right)))
        counts = {language: len(reviews.texts) for language, reviews in self.tests.items()}
        for language, values in accuracies.items():
            report.add(language, metric, values, counts[language])
        if others := self._others():
            means = np.mean([accuracies[language] for language in others], axis=0)
            report.add("mean", metric, means.tolist(), sum(counts[name] for name in others))


def split(labels: np.ndarray, dev_share: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Splits at random into training and development rows, at least one of each label."""
    generator = np.random.default_rng(seed)
    classes, counts = np.unique(labels, return_counts=True)
    if len(classes) < 2 or counts.min() < 2:
        raise UserError(
            "training needs at least two reviews with more than 3 stars and two others; got "
            f"{int(np.sum(np.asarray(labels) == 1))} of {len(labels)} with more"
        )
    train, dev = [], []
    for label, count in zip(classes, counts):
        mixed = generator.permutation(np.flatnonzero(labels == label))
        border = min(count - 1, max(1, round(dev_share * count)))
        dev.append(mixed[:border])
        train.append(mixed[border:])
    return generator.permutation(np.concatenate(train)), np.concatenate(dev)


def _sample(reviews: Reviews, most: int) -> Reviews:
    if len(reviews.texts) <= most:
        return reviews
    return reviews.take(np.random.default_rng(0).permutation(len(reviews.texts))[:most])
