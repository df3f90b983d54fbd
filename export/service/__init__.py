"""The HTTP service of `cmlm serve`: the interface of OpenAI's embeddings.

A request passes `app.py` (who may ask, how a body is read), `routes.py` (a function an address),
`service.py` (texts to tokens) and `batching.py` (the queue); `serve.py` starts all of it.
"""
