"""Shows the effect of smoothing on vocabularies: `python -m benchmarks.vocabulary`.

Learns two cased vocabularies, with S = 1.0 (as the data are) and S = 0.3 (CMLM §4.4), over ten
languages of unequal size below CMLM_DATA_DIR: books in English, German and French, translated
MultiNLI, and the first half of NTREX's documents. Tokens per word and unknown tokens are counted on
the second half of NTREX's, which say the same in all languages.
"""

import os
import tempfile
import time
from collections import Counter
from pathlib import Path

from absl import flags

from official_cmlm import cli
from official_cmlm.errors import UserError

FLAGS = flags.FLAGS
# Name of each language in NTREX's files; the order of the table, by text at hand.
LANGUAGES = {
    **{"en": "src.eng", "de": "ref.deu", "fr": "ref.fra", "ar": "ref.arb", "es": "ref.spa"},
    **{"fi": "ref.fin", "tr": "ref.tur", "zh": "ref.zho-CN", "sw": "ref.swa", "hi": "ref.hin"},
}
_EXPONENTS = (1.0, 0.3)


def define_flags() -> None:
    """Defines the flags of the binary."""
    flags.DEFINE_integer("vocab_size", 60_000, "Entries of each vocabulary.")
    flags.DEFINE_float("max_input_mb", 60.0, "Text to learn from, in megabytes (10^6 bytes).")
    flags.DEFINE_string("output", "", "Markdown file for the table. Default: print only.")


def prepare(data: Path, folder: Path) -> tuple[list[str], dict[str, list[str]]]:
    """Inputs by language, as `build_vocab` takes them, and held-out lines by language."""
    documents = (data / "ntrex" / "DOCUMENT_IDS.tsv").read_text().splitlines()
    half = sorted(set(documents), key=documents.index)[: len(set(documents)) // 2]
    first = [document in set(half) for document in documents]
    inputs: list[str] = []
    held_out: dict[str, list[str]] = {}
    for language, name in LANGUAGES.items():
        path = data / "ntrex" / f"newstest2019-{name}.txt"
        lines = path.read_text(encoding="utf-8").splitlines()
        held_out[language] = [line for line, known in zip(lines, first, strict=True) if not known]
        known = "\n".join(line for line, known in zip(lines, first) if known)
        (folder / f"{language}.txt").write_text(known, encoding="utf-8")
        inputs.append(f"{language}:{folder / language}.txt")
        table = data / "multinli_translated" / f"multinli.train.{language}.tsv"
        if table.exists():
            # Both texts of a row, without its label.
            rows = table.read_text(encoding="utf-8").splitlines()[1:]
            texts = [cell for row in rows for cell in row.split("\t")[:2]]
            (folder / f"{language}.nli.txt").write_text("\n".join(texts), encoding="utf-8")
            inputs.append(f"{language}:{folder / language}.nli.txt")
        if (data / "text" / language).is_dir():
            inputs.append(f"{language}:{data / 'text' / language}")
    return inputs, held_out


def main(argv: list[str]) -> None:
    """Runs the benchmark."""
    del argv
    data = Path(os.environ.get("CMLM_DATA_DIR", ""))
    if not (data / "ntrex" / "DOCUMENT_IDS.tsv").exists():
        raise UserError("CMLM_DATA_DIR names no folder with ntrex/DOCUMENT_IDS.tsv; set it")
    from data_prep.readers import ReadOptions, ReadReport, expand_text_files
    from data_prep.vocabulary.mixture import (
        TextInput,
        count_words,
        smoothed_paragraphs,
        smoothing_coefficients,
    )
    from data_prep.vocabulary.wordpiece import learn_wordpiece

    vocabularies: dict[str, list[str]] = {}
    seconds: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        inputs, held_out = prepare(data, Path(folder))
        source = TextInput(tuple(expand_text_files(inputs)), ReadOptions(lines="paragraphs"))
        words: Counter[str] = Counter()
        for document in source.documents(ReadReport()):
            words[document.language] += sum(map(count_words, document.paragraphs))
        for exponent in _EXPONENTS:
            began = time.process_time()
            paragraphs = smoothed_paragraphs(
                source, ReadReport(), FLAGS.max_input_mb * 1e6, exponent
            )
            texts = (text for _, text in paragraphs)
            name = f"S = {exponent}"
            vocabularies[name] = learn_wordpiece(texts, FLAGS.vocab_size, False, 2)
            seconds[name] = time.process_time() - began
            print(f"{name}: learned in {seconds[name]:.0f} CPU-s", flush=True)
    cli.quiet_tensorflow()
    from data_prep.vocabulary.check import check_round_trip, coverage, coverage_table

    lines = [text for texts in held_out.values() for text in texts]
    columns = {}
    report = []
    for name, entries in vocabularies.items():
        columns[name] = coverage(entries, held_out, lower_case=False)
        differences = check_round_trip(entries, lines, lower_case=False)
        report.append(
            f"{name}: {len(entries)} entries, {seconds[name]:.0f} CPU-s; ids of tensorflow_text"
            f" and tokenizers equal on {len(lines) - len(differences)} of {len(lines)} lines\n"
        )
    total = sum(words.values())
    powers = smoothing_coefficients(words, _EXPONENTS[1])
    shares = [
        f"{language} {100 * n / total:.2f} → {100 * n * powers[language] / total:.1f}"
        for language, n in words.most_common()
    ]
    report.append(f"shares of the words, %: {', '.join(shares)}\n")
    report.append("\n" + coverage_table(columns))
    print("".join(report), end="")
    if FLAGS.output:
        Path(FLAGS.output).write_text("".join(report), encoding="utf-8")
    one, smoothed = columns.values()
    small = [language for language in words if words[language] < total / len(words)]
    gains = [one[x].tokens_per_word / smoothed[x].tokens_per_word for x in small]
    # A Han character is a token anyway: Chinese can only gain in characters that are known.
    gained = [
        gain > 1 or one[x].unknown_rate > smoothed[x].unknown_rate for x, gain in zip(small, gains)
    ]
    print(f"figure small_languages_that_gain {sum(gained)}/{len(small)}")
    print(f"ratio tokens_per_word_small_languages {sum(gains) / len(gains):.3f}")


if __name__ == "__main__":
    define_flags()
    cli.run(main)
