"""Vectors from TensorFlow Serving by its REST interface; the standard library alone.

    python examples/serving_client.py --url=http://localhost:8501 "A man eats." "Someone has lunch."

Prints the cosine of each text with the first one.
"""

import argparse
import json
import urllib.request


def embed(
    url: str, texts: list[str], model: str = "sentence_encoder", signature: str = "serving_default"
) -> list[list[float]]:
    """Returns a vector for each text; raises `urllib.error.HTTPError` if the server refuses."""
    body = {"signature_name": signature, "inputs": {"text": texts}}
    request = urllib.request.Request(  # noqa: S310 - the caller's own server
        f"{url}/v1/models/{model}:predict",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request) as answer:  # noqa: S310
        return json.load(answer)["outputs"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", default="http://localhost:8501", help="(default: %(default)s)")
    parser.add_argument("texts", nargs="+")
    arguments = parser.parse_args()

    first, *others = embed(arguments.url, arguments.texts, signature="serve_normalized")
    for text, vector in zip(arguments.texts[1:], others):
        print(f"{sum(a * b for a, b in zip(first, vector)):6.3f}  {text}")


if __name__ == "__main__":
    main()
