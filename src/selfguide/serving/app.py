"""The routes: check, encode, answer."""

from __future__ import annotations

import base64
import time
from typing import TYPE_CHECKING, Any

import numpy as np
from fastapi import FastAPI
from pydantic_core import to_json
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from selfguide import __version__
from selfguide.engine.vector_form import cosine
from selfguide.errors import SelfguideError
from selfguide.serving import bodies
from selfguide.serving.bodies import inputs_of, parsed, sentences_of
from selfguide.serving.gate import Gate
from selfguide.serving.page import api_page, front_page
from selfguide.serving.refusals import Refusal
from selfguide.serving.state import Searcher, State, read_body

if TYPE_CHECKING:
    from numpy.typing import NDArray

_WRONG = (400, 401, 403, 408, 413, 415, 429, 503)


def make_app(state: State) -> Gate:
    """Return the server as an ASGI application.

    Args:
        state: What the routes share.

    Returns:
        The application.
    """
    app = FastAPI(
        title="selfguide", version=__version__, docs_url=None, redoc_url=None,
        description="Sentence vectors in OpenAI's format, cosines, and search.",
    )  # fmt: skip
    _add_encoding(app, state)
    if state.searcher is not None:
        _add_search(app, state)
    _add_about(app, state)
    _add_pages(app, state)
    app.exception_handler(Refusal)(_refused)
    app.exception_handler(HTTPException)(_no_route)
    app.exception_handler(Exception)(_bug)
    return Gate(app, state)


def _described(body: type[bodies.Body], answer: type[Any]) -> dict[str, Any]:
    """Return what a route's description says; its function reads the body itself, in bytes."""
    schema = {"required": True, "content": {"application/json": {"schema": body.model_json_schema()}}}
    refusals: dict[int | str, Any] = {status: {"model": bodies.ErrorAnswer} for status in (*_WRONG, 404)}
    return {
        "openapi_extra": {"requestBody": schema},
        "responses": {200: {"model": answer}, **refusals},
        "response_class": Response,
    }


def _add_encoding(app: FastAPI, state: State) -> None:
    options = state.options

    async def embeddings(request: Request) -> Response:
        """Encode sentences, in the format of OpenAI's embeddings."""
        with state.capacity.reserve() as reservation:
            body = parsed(bodies.EmbeddingsBody, await read_body(request, reservation, state))
            encoder = state.encoder(body.model)
            inputs = inputs_of(body.input, options.max_inputs)
            found = await state.encode(request, reservation, encoder, inputs, body.truncate, body.dimensions)
            return _json(_embeddings(found.values, body.encoding_format, found.encoder, found.tokens))

    async def similarity(request: Request) -> Response:
        """Return the cosine of two sentences, or of each pair of two lists."""
        with state.capacity.reserve() as reservation:
            body = parsed(bodies.SimilarityBody, await read_body(request, reservation, state))
            encoder = state.encoder(body.model)
            first = sentences_of(body.first, "first", options.max_inputs)
            second = sentences_of(body.second, "second", options.max_inputs)
            if len(first) != len(second) and 1 not in (len(first), len(second)):
                message = f"first has {len(first)} sentences and second {len(second)}: they must be pairs, or one of them one."
                raise Refusal(400, message, code="invalid_value", parameter="second")
            if len(first) + len(second) > options.max_inputs:
                message = (
                    f"first and second together have more than {options.max_inputs} sentences: send them in parts."
                )
                raise Refusal(400, message, code="too_many_inputs", parameter="second")
            found = await state.encode(request, reservation, encoder, first + second, body.truncate)
            cosines = cosine(found.values[: len(first)], found.values[len(first) :])
            scale = state.scales.get(found.encoder)
            single = isinstance(body.first, str) and isinstance(body.second, str)
            return _json(
                {
                    "object": "similarity",
                    "cosine": _plain(cosines, single),
                    "percentile": None if scale is None else _plain(scale.percentile(cosines).round(3), single),
                    "model": found.encoder,
                    "usage": _usage(found.tokens),
                }
            )

    app.post("/v1/embeddings", **_described(bodies.EmbeddingsBody, bodies.EmbeddingsAnswer))(embeddings)
    app.post("/similarity", **_described(bodies.SimilarityBody, bodies.SimilarityAnswer))(similarity)

    @app.get("/v1/models", response_model=bodies.ModelsAnswer)
    async def models() -> Response:
        """List the encoders."""
        data = [
            {
                "id": name,
                "object": "model",
                "created": state.began,
                "owned_by": "selfguide",
                "dimensions": None if encoder.known is None else encoder.known.width,
                "max_length": None if encoder.known is None else encoder.known.max_length,
            }
            for name, encoder in state.encoders.items()
        ]
        return _json({"object": "list", "data": data})


def _add_search(app: FastAPI, state: State) -> None:
    searcher = state.searcher
    assert searcher is not None

    async def search(request: Request) -> Response:
        """Search the index."""
        with state.capacity.reserve() as reservation:
            body = parsed(bodies.SearchBody, await read_body(request, reservation, state))
            if not body.query.strip():
                raise Refusal(400, "The query is empty.", code="invalid_value", parameter="query")
            started = time.perf_counter()
            vector = None
            await run_in_threadpool(refreshed, searcher)
            if body.mode != "text":
                encoder = state.index_encoder()
                vector = (await state.encode(request, reservation, encoder, [body.query], True)).values[0]
            try:
                answer = await run_in_threadpool(searcher.query, body.query, body.limit, body.filter, body.mode, vector)
            except SelfguideError as error:
                raise Refusal(400, str(error), code="invalid_query") from None
            hits = [
                {"rank": hit.rank, "text": hit.text, "score": hit.score, "cosine": hit.cosine, "columns": hit.columns}
                for hit in answer.hits
            ]
            seconds = round(time.perf_counter() - started, 6)
            return _json({"object": "search", "hits": hits, "mode": body.mode, "seconds": seconds})

    def refreshed(searcher: Searcher) -> None:
        try:
            searcher.refresh()
        except SelfguideError as error:
            raise Refusal(503, str(error), code="index_unreadable") from None

    app.post("/search", **_described(bodies.SearchBody, bodies.SearchAnswer))(search)

    @app.get("/index", response_model=bodies.IndexAnswer)
    async def index() -> Response:
        """Describe the index: its rows, and the columns that a filter can name."""
        await run_in_threadpool(refreshed, searcher)
        found = searcher.describe()
        known = {name: one.known.digest for name, one in state.encoders.items() if one.known is not None}
        model = next((name for name, digest in known.items() if digest == found["digest"]), None)
        return _json({"object": "index", "rows": found["rows"], "columns": found["columns"], "model": model})


def _add_about(app: FastAPI, state: State) -> None:
    @app.get("/health")
    async def health() -> Response:
        """Say that the server is alive."""
        return _json({"status": "alive"})

    @app.get("/ready")
    async def ready() -> Response:
        """Say whether every encoder can be used: 200 if so, otherwise 503."""
        there = {name: encoder.about is not None for name, encoder in state.encoders.items()}
        status = "ready" if all(there.values()) else "not ready"
        return _json({"status": status, "encoders": there}, 200 if all(there.values()) else 503)

    @app.get("/metrics", response_class=Response)
    async def metrics() -> Response:
        """Give counters in Prometheus' format."""
        content, kind = state.metrics.page()
        return Response(content, media_type=kind)


def _add_pages(app: FastAPI, state: State) -> None:
    @app.get("/", response_class=HTMLResponse)
    async def front() -> HTMLResponse:
        """Show a page to compare and to search."""
        return front_page(state)

    @app.get("/docs", response_class=HTMLResponse)
    async def docs() -> HTMLResponse:
        """Show this description as a page."""
        return api_page(app.openapi())

    source = state.map
    if source is not None:

        @app.get("/map", response_class=HTMLResponse)
        async def map_() -> Response:
            """Show the map of the sentences; 202 while it is being drawn."""
            page = await run_in_threadpool(source.read)
            return _json({"status": "being drawn"}, 202) if page is None else HTMLResponse(page)


# -- answers -----------------------------------------------------------------------------------------------------------


def _embeddings(values: NDArray[np.float32], form: str, model: str, tokens: int) -> dict[str, Any]:
    rows: list[Any]
    if form == "base64":
        rows = [base64.b64encode(row.astype("<f4").tobytes()).decode("ascii") for row in values]
    else:
        rows = values.tolist()
    data = [{"object": "embedding", "index": place, "embedding": row} for place, row in enumerate(rows)]
    return {"object": "list", "data": data, "model": model, "usage": _usage(tokens)}


def _usage(tokens: int) -> dict[str, int]:
    return {"prompt_tokens": tokens, "total_tokens": tokens}


def _plain(values: NDArray[np.float64], single: bool) -> float | list[float]:
    return float(values[0]) if single else values.tolist()


def _json(content: Any, status: int = 200) -> Response:
    return Response(to_json(content), status, media_type="application/json")


# -- errors ------------------------------------------------------------------------------------------------------------


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refusal)
    return error.response()


async def _no_route(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "another one")
        refusal = Refusal(405, f"This path takes {allowed}, not this method.", code="method_not_allowed")
        response = refusal.response()
        response.headers["allow"] = allowed
        return response
    if error.status_code == 404:
        return Refusal(
            404, "There is no such path here: /docs lists those that there are.", code="not_found"
        ).response()
    return Refusal(error.status_code, "The request could not be understood.", code="invalid_request").response()


async def _bug(request: Request, error: Exception) -> Response:
    message = f"Something went wrong that selfguide did not foresee ({type(error).__name__}); please report it."
    return Refusal(500, message, code="internal_error").response()
