"""Readers of published evaluation data, one module a data set; `folder.py` opens the files.

They raise `MissingData` for a file or folder that is not there, and `UserError` for a file in an
unknown form. Malformed lines are left out and counted.
"""
