"""What is done with scores: runs of several suites, tables, figures, HTML, the papers' own rows."""

from official_cmlm.extras import check_extra

check_extra("report", "matplotlib")
