"""Evaluation of anything that has `encode(list of str) -> float array [n, dim]`.

    encoder.py          that protocol, and the checks of an encoder's vectors
    embedding_cache.py  an encoder that embeds no text twice
    scores.py           the report that a suite fills: `SuiteReport`
    suite.py            the parts of a suite: `Task`, `Metric`, `SuiteResults`
    data/               readers of published files
    metrics/            pure functions on arrays
    suites/             one module a suite; the package's docstring says what it must have
    report/             runs of several suites, tables, figures, the papers' own rows

Each imports only what stands above it. Nothing here knows how an encoder was made:
`official_cmlm.encoding.encoders` opens encoder directories and other formats.
"""
