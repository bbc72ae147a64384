"""Schemas of requests and responses, and the messages for invalid requests."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, WithJsonSchema

from selfguide.serving.refusals import Refusal

_TEXT_OR_IDS = {
    "description": "A sentence, a list of them, the token ids of a sentence, or a list of such lists.",
    "anyOf": [
        {"type": "string"},
        {"type": "array", "items": {"type": "string"}, "minItems": 1},
        {"type": "array", "items": {"type": "integer"}, "minItems": 1},
        {"type": "array", "items": {"type": "array", "items": {"type": "integer"}, "minItems": 1}, "minItems": 1},
    ],
}
_SENTENCES = {
    "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}],
    "description": "A sentence, or a list of them.",
}
_Model = Annotated[str | None, Field(description="Name of the encoder; without one, the first that is served.")]
_Truncate = Annotated[
    bool | None,
    Field(
        description="Truncate inputs of too many tokens (true) or refuse them (false); by default as the server is configured."
    ),
]


class Body(BaseModel):
    """A request; unknown fields are refused, so that a misspelt one is noticed."""

    model_config = ConfigDict(strict=True, extra="forbid", hide_input_in_errors=True)


class EmbeddingsBody(Body):
    """A request for vectors."""

    input: Annotated[Any, WithJsonSchema(_TEXT_OR_IDS)]
    model: _Model = None
    encoding_format: Annotated[
        Literal["float", "base64"], Field(description="Numbers, or little-endian float32 as base64.")
    ] = "float"
    dimensions: Annotated[int | None, Field(ge=1, description="Keep only this many leading dimensions.")] = None
    user: Annotated[str | None, Field(description="Ignored.")] = None
    truncate: _Truncate = None


class SimilarityBody(Body):
    """A request for cosines."""

    first: Annotated[Any, WithJsonSchema(_SENTENCES)]
    second: Annotated[Any, WithJsonSchema(_SENTENCES)]
    model: _Model = None
    truncate: _Truncate = None


class SearchBody(Body):
    """A query to the index."""

    query: Annotated[str, Field(min_length=1, description="What to look for.")]
    limit: Annotated[int, Field(ge=1, le=1000, description="Maximum number of hits.")] = 10
    filter: Annotated[
        str | None, Field(description="A condition on the columns of the index, such as year >= 2020.")
    ] = None
    mode: Annotated[
        Literal["hybrid", "vector", "text"], Field(description="By meaning and words, by meaning, or by words.")
    ] = "hybrid"


class Usage(BaseModel):
    """Tokens of a request."""

    prompt_tokens: int
    total_tokens: int


class Embedding(BaseModel):
    """One vector."""

    object: Literal["embedding"] = "embedding"
    index: int
    embedding: list[float] | str


class EmbeddingsAnswer(BaseModel):
    """The vectors of a request, in the order of its inputs."""

    object: Literal["list"] = "list"
    data: list[Embedding]
    model: str
    usage: Usage


class Model(BaseModel):
    """An encoder that is served."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "selfguide"
    dimensions: int | None
    max_length: int | None


class ModelsAnswer(BaseModel):
    """The encoders that are served."""

    object: Literal["list"] = "list"
    data: list[Model]


class SimilarityAnswer(BaseModel):
    """Cosines, one a pair; a list where the request had one."""

    object: Literal["similarity"] = "similarity"
    cosine: float | list[float]
    percentile: Annotated[
        float | list[float] | None,
        Field(
            description="Per cent of random pairs of the encoder's own text, or of the index, that are not closer; else null."
        ),
    ]
    model: str
    usage: Usage


class Hit(BaseModel):
    """A row of the index."""

    rank: int
    text: str
    score: float
    cosine: float | None
    columns: dict[str, Any]


class SearchAnswer(BaseModel):
    """Rows of the index, the best first."""

    object: Literal["search"] = "search"
    hits: list[Hit]
    mode: str
    seconds: float


class IndexColumn(BaseModel):
    """A column that a filter can name."""

    name: str
    type: str


class IndexAnswer(BaseModel):
    """What the index holds."""

    object: Literal["index"] = "index"
    rows: int
    columns: list[IndexColumn]
    model: str | None


class ErrorContent(BaseModel):
    """Why a request was refused."""

    message: str
    type: str
    param: str | None
    code: str


class ErrorAnswer(BaseModel):
    """A refusal, in the form of OpenAI's errors."""

    error: ErrorContent


Kind = TypeVar("Kind", bound=Body)


def parsed(kind: type[Kind], raw: bytes) -> Kind:
    """Read a body.

    Args:
        kind: What it must be.
        raw: The bytes.

    Returns:
        The body.

    Raises:
        Refusal: It is not JSON, or has other fields or values; nothing of it is quoted but the names of fields.
    """
    try:
        return kind.model_validate_json(raw)
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False, include_input=False)[0]
    name = str(found["loc"][0]) if found["loc"] else None
    reason = str(found["msg"])
    if found["type"] == "json_invalid":
        raise Refusal(400, f"The body is not JSON: {reason.partition(': ')[2] or reason}.", code="invalid_json")
    takes = ", ".join(kind.model_fields)
    if name is None:
        raise Refusal(400, f"The body must be a JSON object with fields out of {takes}.", code="invalid_body")
    if found["type"] == "missing":
        raise Refusal(400, f"The body has no {name}: it takes {takes}.", code="missing_field", parameter=name)
    if found["type"] == "extra_forbidden":
        shown = name if name.isascii() and name.isidentifier() and len(name) < 40 else "with another name"
        message = f"The body has a field {shown}, which there is not: it takes {takes}."
        raise Refusal(400, message, code="unknown_field", parameter=shown if shown == name else None)
    raise Refusal(400, f"{name} is wrong: {reason[0].lower()}{reason[1:]}.", code="invalid_value", parameter=name)


def inputs_of(value: Any, most: int) -> list[str] | list[list[int]]:
    """Return the inputs of a request as a list.

    Args:
        value: The field ``input``.
        most: Maximum number of inputs.

    Returns:
        Sentences, or lists of token ids.

    Raises:
        Refusal: It is none of the four forms, is empty, or has too many inputs.
    """
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list) or not value:
        raise _wrong_input("it is empty" if isinstance(value, list) else "it is neither text nor a list")
    if type(value[0]) is int:
        value = [value]
    if len(value) > most:
        message = (
            f"The request has {len(value)} inputs, and this server takes at most {most} in one: send them in parts."
        )
        raise Refusal(400, message, code="too_many_inputs", parameter="input")
    if isinstance(value[0], str):
        if not all(isinstance(item, str) for item in value):
            raise _wrong_input("some of its entries are text, others are not")
    elif not all(isinstance(item, list) and item and all(type(number) is int for number in item) for item in value):
        raise _wrong_input("some of its entries are neither text nor lists of whole numbers with at least one in each")
    return value


def sentences_of(value: Any, name: str, most: int) -> list[str]:
    """Return the sentences of a field that holds one or several; see :func:`inputs_of`."""
    found = [value] if isinstance(value, str) else value
    if not isinstance(found, list) or not found or not all(isinstance(item, str) for item in found):
        raise Refusal(
            400, f"{name} must be a sentence or a list of at least one.", code="invalid_value", parameter=name
        )
    if len(found) > most:
        message = f"{name} has {len(found)} sentences, and this server takes at most {most} in one request."
        raise Refusal(400, message, code="too_many_inputs", parameter=name)
    return found


def _wrong_input(reason: str) -> Refusal:
    message = f"input must be a sentence, a list of sentences, token ids, or a list of lists of token ids; {reason}."
    return Refusal(400, message, code="invalid_value", parameter="input")
