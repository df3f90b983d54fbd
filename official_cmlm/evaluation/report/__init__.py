"""What is done with scores: runs of several suites, tables, figures, HTML, the papers' own rows."""
