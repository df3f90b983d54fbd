"""Readers of published evaluation data, one module a data set; `folder.py` opens the files."""
