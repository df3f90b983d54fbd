"""The input pipeline: pure functions from records to the batches that objectives read."""
