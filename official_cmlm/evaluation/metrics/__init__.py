"""Pure functions on arrays: correlations, nearest neighbours, classifiers, geometry.

They read no files and write no scores; the suites do both.
"""
