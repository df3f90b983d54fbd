"""Embeddings of millions of texts: texts from files, in parts, to files of vectors.

The division of the texts into parts depends on the input alone. A part is embedded by one call of
`encode` in one process and written as a file that is complete or absent, so a part can be computed
by any process, twice, or not at all if its file exists.
"""
