"""NumPy on embeddings: precision, similarity, nearest neighbours."""
