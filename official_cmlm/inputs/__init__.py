"""Views: pure functions from records to the batches that objectives read."""
