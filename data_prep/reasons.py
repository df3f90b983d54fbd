"""What the counters of a run count: their units, and which of them count no loss."""

# Counters of what went on, changed or as it was: name -> unit.
NOTED = {
    "exclude/unread_file": "evaluation files",
    "language/not_checked": "documents",
    "normalise/hyphens_mended": "words",
    "read/not_utf8": "byte sequences",
    "records/sentence_cut": "cuts",
}
# Units of what was left out, by the name of a counter or what it begins with; all others count
# documents.
_UNITS = {
    "duplicates/exact_paragraph": "paragraphs",
    "duplicates/near_paragraph": "paragraphs",
    "exclude/row": "rows",
    "exclude/sentence": "sentences",
    "normalise/empty_paragraph": "paragraphs",
    "pairs/": "rows",
    "quality/paragraph_": "paragraphs",
    "read/unreadable_file": "files",
    "read/unreadable_record": "records",
    "read/not_http": "records",
    "read/not_html": "records",
    "read/other_http_status": "records",
    "read/without_both_languages": "rows",
    "records/sentence_without_tokens": "sentences",
}


def is_loss(name: str) -> bool:
    """Whether a counter counts what was left out, and not what only changed or was noted."""
    return name not in NOTED


def unit(name: str) -> str:
    """What one of a counter is, in the plural; empty for names of releases without units."""
    if name in NOTED:
        return NOTED[name]
    if "/" not in name:
        return ""
    return next((unit for start, unit in _UNITS.items() if name.startswith(start)), "documents")
