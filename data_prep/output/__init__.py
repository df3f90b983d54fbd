"""The output of data preparation: records of documents and of pairs, their folder, reports."""
