"""Readers of published evaluation data, one module a data set; `folder.py` opens the files.

They raise `MissingData` for a file or folder that is not there, and `UserError` for one in another
form than those that are known. Malformed lines are left out and counted.
"""
