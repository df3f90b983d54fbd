"""The Model Garden task that sums objectives."""
