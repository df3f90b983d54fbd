"""Protocols over anything that has `encode(list of str) -> float array [n, dim]`.

A suite is a module with

- `Options`: a frozen dataclass; every field says meaning, default and source;
- `evaluate(encode, data, options, report) -> None`: reads from a `DataFolder`, embeds by `encode`
  (calling it again with the same text costs nothing), writes into a `SuiteReport`.

It wraps each task in `with report.task(name):`, so that one missing file does not stop the rest.
What it computes is a pure function on arrays in the same module, or in one that suites share. No
suite knows how the encoder was made.
"""
