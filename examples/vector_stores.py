"""Texts in a vector database: Chroma, Qdrant, LanceDB or PostgreSQL with pgvector.

    python examples/vector_stores.py --encoder=work/minilm --store=qdrant \
        --texts=my/sentences.txt --query="Where did the cat sit?"

Each function stores texts with their vectors and returns those nearest to a question's vector. It
needs the package chromadb, qdrant-client, lancedb, or psycopg and pgvector with a server.
"""

import argparse
import os
import tempfile
from pathlib import Path

import numpy as np

import official_cmlm


def chroma(texts: list[str], vectors: np.ndarray, question: np.ndarray, count: int) -> list[str]:
    import chromadb

    client = chromadb.EphemeralClient()  # PersistentClient("folder") keeps it.
    collection = client.get_or_create_collection("texts", configuration={"hnsw": {"space": "ip"}})
    collection.upsert(ids=[str(i) for i in range(len(texts))], documents=texts, embeddings=vectors)
    return collection.query(query_embeddings=question, n_results=count)["documents"][0]


def qdrant(texts: list[str], vectors: np.ndarray, question: np.ndarray, count: int) -> list[str]:
    from qdrant_client import QdrantClient, models

    client = QdrantClient(":memory:")  # QdrantClient("http://localhost:6333") is a server.
    space = models.VectorParams(size=vectors.shape[1], distance=models.Distance.DOT)
    client.create_collection("texts", space)
    client.upload_collection("texts", vectors, [{"text": text} for text in texts])
    response = client.query_points("texts", question, limit=count)
    return [point.payload["text"] for point in response.points]


def lancedb(texts: list[str], vectors: np.ndarray, question: np.ndarray, count: int) -> list[str]:
    import lancedb

    with tempfile.TemporaryDirectory() as folder:  # Another folder keeps it.
        rows = [{"text": text, "vector": vector} for text, vector in zip(texts, vectors)]
        table = lancedb.connect(folder).create_table("texts", rows)
        hits = table.search(question).distance_type("dot").limit(count).to_list()
        return [row["text"] for row in hits]


def pgvector(texts: list[str], vectors: np.ndarray, question: np.ndarray, count: int) -> list[str]:
    import psycopg
    from pgvector.psycopg import register_vector

    with psycopg.connect(os.environ.get("DATABASE_URL", "")) as connection:
        connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
        register_vector(connection)
        columns = f"text text, vector vector({vectors.shape[1]})"
        connection.execute(f"CREATE TEMPORARY TABLE texts ({columns})")
        rows = list(zip(texts, vectors))
        connection.cursor().executemany("INSERT INTO texts VALUES (%s, %s)", rows)
        nearest = "SELECT text FROM texts ORDER BY vector <#> %s LIMIT %s"
        return [text for (text,) in connection.execute(nearest, (question, count))]


STORES = {"chroma": chroma, "qdrant": qdrant, "lancedb": lancedb, "pgvector": pgvector}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--encoder", required=True, help="anything that SentenceEncoder.load takes")
    parser.add_argument("--store", required=True, choices=STORES)
    parser.add_argument("--texts", required=True, type=Path, help="file with one text a line")
    parser.add_argument("--query", required=True, help="a question")
    parser.add_argument("--most", type=int, default=3, help="answers (default: 3)")
    arguments = parser.parse_args()

    encoder = official_cmlm.SentenceEncoder.load(arguments.encoder)
    texts = arguments.texts.read_text(encoding="utf-8").splitlines()
    # The vectors have length 1, so their inner product is the cosine; each side has its prompt.
    vectors = encoder.encode_document(texts, normalize_embeddings=True)
    question = encoder.encode_query(arguments.query, normalize_embeddings=True)
    print("\n".join(STORES[arguments.store](texts, vectors, question, arguments.most)))


if __name__ == "__main__":
    main()
