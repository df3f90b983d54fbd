"""Accuracy of language identification: `python -m benchmarks.language_id --data_dir=…`.

Identifies every line of NTREX's files (`ntrex/newstest2019-*.LANGUAGE.txt` below the folder), one
sentence at a time. Prints accuracy by language, the confusion table, the accuracy of confident
answers, and the speed, on single sentences and on a file's sentences as one document.
"""

import os
import time
from collections import Counter
from pathlib import Path

from absl import flags

from data_prep.stages.language_id import UNKNOWN, canonical_language, detectable, identify
from official_cmlm import cli
from official_cmlm.errors import UserError

FLAGS = flags.FLAGS

# NTREX names languages by ISO 639-3; here those that have a shorter code.
_SHORT = dict(
    pair.split(":")
    for pair in (
        "afr:af amh:am arb:ar aze:az bak:ba bel:be ben:bn bod:bo bos:bs bul:bg cat:ca ces:cs"
        " cym:cy dan:da deu:de div:dv dzo:dz ell:el eng:en est:et eus:eu ewe:ee fao:fo fas:fa"
        " fij:fj fil:tl fin:fi fra:fr gle:ga glg:gl guj:gu hau:ha heb:he hin:hi hrv:hr hun:hu"
        " hye:hy ibo:ig ind:id isl:is ita:it jpn:ja kan:kn kat:ka kaz:kk khm:km kin:rw kir:ky"
        " kmr:ku kor:ko lao:lo lav:lv lit:lt ltz:lb mal:ml mar:mr mkd:mk mlg:mg mlt:mt mon:mn"
        " mri:mi msa:ms mya:my nde:nd nep:ne nld:nl nno:nn nob:no nya:ny orm:om pan:pa pol:pl"
        " por:pt prs:fa pus:ps ron:ro rus:ru sin:si slk:sk slv:sl smo:sm sna:sn snd:sd som:so"
        " spa:es sqi:sq srp:sr ssw:ss swa:sw swe:sv tah:ty tam:ta tat:tt tgk:tg tha:th tir:ti"
        " ton:to tsn:tn tuk:tk tur:tr uig:ug ukr:uk urd:ur uzb:uz ven:ve vie:vi wol:wo xho:xh"
        " yor:yo zho:zh zul:zu"
    ).split()
)


def define_flags() -> None:
    """Defines the flags of the binary."""
    flags.DEFINE_string(
        "data_dir", "", "Folder that holds ntrex/. Default: the environment's CMLM_DATA_DIR."
    )


def language_of(path: Path) -> str:
    """The language that the name of one of NTREX's files says: `….deu.txt` is "de"."""
    code = path.name.split(".")[-2]
    return canonical_language(_SHORT.get(code.partition("-")[0], code))


def main(argv: list[str]) -> None:
    """Runs the benchmark."""
    del argv
    folder = Path(FLAGS.data_dir or os.environ.get("CMLM_DATA_DIR", "")) / "ntrex"
    paths = sorted(folder.glob("newstest2019-*.txt"))
    if not paths:
        raise UserError(f"{folder}: no newstest2019-*.txt; give --data_dir or set CMLM_DATA_DIR")
    totals, right, sure, sure_right = Counter(), Counter(), Counter(), Counter()
    confusions: Counter[tuple[str, str]] = Counter()
    size, seconds, whole_seconds = 0, 0.0, 0.0
    identify("The first call reads the tables.")
    for path in paths:
        language = language_of(path)
        lines = path.read_text(encoding="utf-8").splitlines()
        size += sum(len(line.encode()) for line in lines)
        began = time.process_time()
        found = [identify(line) for line in lines]
        seconds += time.process_time() - began
        began = time.process_time()
        identify("\n".join(lines))
        whole_seconds += time.process_time() - began
        for one in found:
            totals[language] += 1
            right[language] += one.language == language
            sure[language] += one.confidence > 0
            sure_right[language] += one.confidence > 0 and one.language == language
            if one.language != language:
                confusions[language, one.language] += 1
    known = [language for language in sorted(totals) if language in detectable()]
    if not known:
        raise UserError(f"{folder}: none of its languages can be detected")
    print("| language | sentences | right | sure | of the sure, right |")
    print("|---|---|---|---|---|")
    for language in known:
        print(
            f"| {language} | {totals[language]} | {right[language] / totals[language]:.1%} "
            f"| {sure[language] / totals[language]:.1%} "
            f"| {sure_right[language] / max(sure[language], 1):.1%} |"
        )
    unknown = sorted(set(totals) - set(known))
    if unknown:
        print(f"\nnot known to the detector, left out below: {', '.join(unknown)}")
    print("\n| is | right | taken for |\n|---|---|---|")
    for language in known:
        wrong = [
            f"{'nothing' if other == UNKNOWN else other} {count}"
            for (own, other), count in confusions.most_common()
            if own == language
        ]
        print(f"| {language} | {right[language]} | {', '.join(wrong) or 'none'} |")
    everything = sum(totals[language] for language in known)
    accuracy = sum(right[language] for language in known) / everything
    certain = sum(sure[language] for language in known)
    print(f"\nfigure languages {len(known)}")
    print(f"figure accuracy_sentences {accuracy:.4f}")
    print(f"figure accuracy_mean_of_languages {_mean(right[k] / totals[k] for k in known):.4f}")
    print(f"figure sure_sentences {certain / everything:.4f}")
    print(f"figure accuracy_of_sure {sum(sure_right[k] for k in known) / max(certain, 1):.4f}")
    print(f"figure MB_per_cpu_second_sentences {size / 1e6 / seconds:.1f}")
    print(f"figure MB_per_cpu_second_documents {size / 1e6 / whole_seconds:.1f}")


def _mean(values) -> float:  # noqa: ANN001
    values = list(values)
    return sum(values) / len(values)


if __name__ == "__main__":
    define_flags()
    cli.run(main)
