"""The server that most people write first: FastAPI and one ``SentenceTransformer.encode`` a request.

    python -m experiments.serving.plain_server FOLDER --port 8001

The endpoint is a plain ``def``, so FastAPI runs it in its pool of 40 threads; libraries and PyTorch keep their defaults, except
that the encoder is loaded in fp32. With
``--async`` it is an ``async def``, which runs one request after the other.
"""

from __future__ import annotations

from typing import Any

import torch
import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel
from sentence_transformers import SentenceTransformer

from experiments.provenance import command_parser


class Body(BaseModel):
    """What OpenAI's clients send."""

    input: str | list[str]
    model: str = ""


def main() -> None:
    """Serve until SIGTERM."""
    parser = command_parser(__doc__)
    parser.add_argument("folder")
    parser.add_argument("--port", type=int, default=8001)
    parser.add_argument("--async", dest="one_by_one", action="store_true")
    arguments = parser.parse_args()
    # Weights that are kept in fp16 would be computed in fp16 too, which is slow on a CPU; selfguide serve computes in fp32.
    encoder = SentenceTransformer(arguments.folder, device="cpu", model_kwargs={"dtype": torch.float32})
    app = FastAPI()

    def answer(body: Body) -> dict[str, Any]:
        texts = [body.input] if isinstance(body.input, str) else body.input
        vectors = encoder.encode(texts, show_progress_bar=False)
        data = [{"object": "embedding", "index": n, "embedding": row.tolist()} for n, row in enumerate(vectors)]
        return {"object": "list", "data": data, "model": body.model}

    if arguments.one_by_one:

        @app.post("/v1/embeddings")
        async def one_by_one(body: Body) -> dict[str, Any]:
            return answer(body)

    else:
        app.post("/v1/embeddings")(answer)

    @app.get("/ready")
    def ready() -> dict[str, str]:
        return {"status": "ready"}

    uvicorn.run(app, host="127.0.0.1", port=arguments.port, log_level="warning", access_log=False)


if __name__ == "__main__":
    main()
