"""Runs of several suites, and their results as tables, figures and HTML with the papers' rows."""

from official_cmlm.common.extras import check_extra

check_extra("report", "matplotlib")
