"""The flags of the stages between reader and records, and the options made of them."""

from absl import flags

from data_prep.engine.options import DEDUPLICATE, DEDUPLICATE_PARAGRAPHS
from data_prep.stages.duplicates import DuplicateOptions, MinHash
from data_prep.stages.language_id import DETECT_LANGUAGE, LanguageId

FLAGS = flags.FLAGS


def define() -> None:
    """Defines the flags; called as `reader_flags.define` is."""
    flags.DEFINE_bool(
        "normalise", True, "Whether to bring text to Unicode's form C, without control characters."
    )
    flags.DEFINE_enum(
        "detect_language",
        "off",
        DETECT_LANGUAGE,
        "What the language of a document is: as declared (off); as declared, and a document that is"
        " in another one is dropped (check); or what is found (set).",
    )
    flags.DEFINE_list("keep_languages", [], "Languages to keep. Default: all.")
    flags.DEFINE_float(
        "min_language_share",
        0.5,
        "Share of a document that must be in the language found, or it is dropped; 0 to 1.",
        lower_bound=0,
        upper_bound=1,
    )
    flags.DEFINE_bool(
        "quality_rules",
        False,
        "Whether to drop what is no running text by C4's and Gopher's rules.",
    )
    flags.DEFINE_string(
        "quality_model",
        "",
        "File that data_prep.train_quality_classifier wrote; drops what it scores low.",
    )
    flags.DEFINE_float(
        "quality_threshold", 0.5, "Score that is kept, 0 to 1; the model's file has a table.", 0, 1
    )
    flags.DEFINE_enum(
        "quality_level",
        "document",
        ("document", "paragraph"),
        "What the model judges: whole documents, or each paragraph.",
    )
    flags.DEFINE_enum(
        "deduplicate",
        "exact",
        DEDUPLICATE,
        "Which documents to remove that stood anywhere in the whole input before: none (off), those"
        " of the same letters (exact), or also those that share most runs of five words (near).",
    )
    flags.DEFINE_enum(
        "deduplicate_paragraphs",
        "auto",
        DEDUPLICATE_PARAGRAPHS,
        "The same for paragraphs of the documents that stay, which are cut there; auto: off where"
        " --deduplicate is, else exact. Without either the input is read in one pass.",
    )
    flags.DEFINE_float(
        "near_threshold",
        MinHash.threshold,
        "Share of all runs of five words that two texts have in common (Jaccard similarity, as"
        " estimated) from which they are near duplicates; above 0, up to 1.",
    )
    flags.DEFINE_integer(
        "near_bands",
        MinHash.bands,
        "Bands of 8 hashes, of which near duplicates must share one to be compared. With 20 bands"
        " 69% of those at a similarity of 0.7 are, 97.5% at 0.8; more bands find more, at 32 bytes"
        " of each text.",
        lower_bound=1,
    )
    flags.DEFINE_integer(
        "min_paragraph_letters",
        DuplicateOptions.min_paragraph_letters,
        "Letters that a paragraph must have to be removed as a duplicate; shorter ones stay.",
        lower_bound=0,
    )
    flags.DEFINE_integer(
        "sample_dropped",
        0,
        "Examples of each reason to drop text that are written to dropped.jsonl.",
        lower_bound=0,
    )


def language_id() -> LanguageId:
    """The stage of languages that the flags ask for; raises `UserError` for unknown languages."""
    return LanguageId(FLAGS.detect_language, tuple(FLAGS.keep_languages), FLAGS.min_language_share)
