"""The HTTP service of `export.service.serve`: the interface of OpenAI's embeddings.

`embedder.py` computes, `batching.py` decides what is computed together, `app.py` speaks HTTP,
`connections.py` closes connections that nothing comes over.
"""
