"""The flags of the stages between reader and records, and the options made of them."""

from absl import flags

from data_prep.engine.options import DEDUPLICATE
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
        "Which duplicates to remove over the whole input; the earliest stays: none (off), documents"
        " and paragraphs of the same letters (exact), or also documents that share most runs of"
        " five words (near). Off reads the input in one pass.",
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
