"""Requests and answers as types; pydantic checks the requests and describes all of them."""

from typing import Annotated, Any, Generic, Literal, NotRequired, TypeVar

from pydantic import BaseModel, BeforeValidator, Discriminator, Field, Tag, ValidationInfo
from pydantic_core import PydanticCustomError
from typing_extensions import TypedDict

TEXT, IDS = "(texts)", "(token ids)"
T = TypeVar("T")


def _list_texts(value: Any, info: ValidationInfo) -> list[Any]:
    """Returns a list of a single text or row of token ids; the context is the most that it has."""
    is_row = isinstance(value, list) and value and type(value[0]) is int
    texts = [value] if is_row or isinstance(value, str) else value
    if not isinstance(texts, list):
        raise PydanticCustomError("texts", "Input should be a string or a list of strings")
    if not 1 <= len(texts) <= info.context:
        message = f"has {len(texts)} texts; 1 to {info.context} are taken"
        raise PydanticCustomError("texts", message)
    return texts


def _get_kind(inputs: list[Any]) -> str:
    return IDS if isinstance(inputs[0], list) else TEXT


Texts = Annotated[list[str], BeforeValidator(_list_texts, json_schema_input_type=str | list[str])]
"""A text or a list of them -> the list."""
Inputs = Annotated[
    Annotated[list[str], Tag(TEXT)] | Annotated[list[list[int]], Tag(IDS)],
    Discriminator(_get_kind),
    BeforeValidator(
        _list_texts, json_schema_input_type=str | list[str] | list[int] | list[list[int]]
    ),
]
"""Texts, or rows of token ids with their special tokens, or one of either -> the list."""


class Body(BaseModel, extra="forbid", strict=True):
    """The body of a request; an unknown field is refused, as it might be to change the vectors."""


class Truncating(Body):
    """A request that says whether long texts are cut, or refused; by default the service says."""

    truncate: bool | None = None


class ClassifyBody(Truncating):
    """A request of the labels of texts."""

    model: str
    input: Inputs


class EmbeddingsBody(ClassifyBody):
    """OpenAI's request of embeddings; `dimensions` is the number of first components."""

    encoding_format: Literal["float", "base64"] | None = None
    dimensions: int | None = None
    user: str | None = None
    prompt_name: str | None = None
    input_type: Literal["query", "document", "passage"] | None = None


class SearchBody(Truncating):
    """A request of the k passages nearest to a query."""

    query: str
    k: Annotated[int, Field(ge=1, le=100)] = 10
    sentences: bool = False


class PassageBody(Body):
    """A request of a passage and those around it in its file."""

    id: str


class TokenizeBody(Body):
    """A request of texts' tokens."""

    inputs: Texts
    add_special_tokens: bool | None = None
    prompt_name: str | None = None


class SentencesToCompare(Body):
    """A sentence, and those that it is compared with."""

    source_sentence: str
    sentences: Texts


class SimilarityParameters(Truncating):
    """How the sentences are embedded."""

    prompt_name: str | None = None


class SimilarityBody(Body):
    """A request of cosines."""

    inputs: SentencesToCompare
    parameters: SimilarityParameters | None = None


class RerankBody(Truncating):
    """A request of the order of texts for a query; scores are cosines, raw or not."""

    query: str
    texts: Texts
    raw_scores: bool | None = None
    return_text: bool | None = None


class Usage(TypedDict):
    """The tokens that were read of a request, and the texts of which only a part was read."""

    prompt_tokens: int
    total_tokens: int
    truncated_inputs: int


class Answer(TypedDict, Generic[T]):
    """OpenAI's form of an answer about texts."""

    object: Literal["list"]
    data: list[T]
    model: str
    usage: Usage


class Embedding(TypedDict):
    """A vector: numbers, or the bytes of little-endian float32 in base64."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class Label(TypedDict):
    """The label of a text, its name or number, and the probabilities of all labels."""

    index: int
    label: str | int
    probs: list[float]
    num_classes: int


class Classification(Answer[Label]):
    """The labels of texts, and the name or number of each probability."""

    labels: list[str] | list[int]


class Passage(TypedDict):
    """A passage, its cosine with the query, and if asked for its sentence nearest to that."""

    id: str
    score: float
    text: str
    metadata: dict[str, Any]
    sentence: NotRequired[str]


class Passages(TypedDict):
    """Passages of the index, and the cosine from which on one is near to a query."""

    hits: list[Passage]
    near: float


class Token(TypedDict):
    """A token of a text."""

    id: int
    text: str
    special: bool


class Rank(TypedDict):
    """A text's number in the request, its cosine with the query, and the text if asked for."""

    index: int
    score: float
    text: NotRequired[str]


class Fault(TypedDict):
    """The reason of a refusal."""

    message: str
    type: str
    param: str | None
    code: str | None


class Error(TypedDict):
    """The answer to a request that is refused, in OpenAI's form."""

    error: Fault
