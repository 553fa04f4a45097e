"""The route `POST /v1/embeddings`, for models that turn a text into the output tensor `embedding`."""

from __future__ import annotations

import base64
from typing import Annotated, Any, Literal

import numpy as np
import orjson
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from convoy_workloads.serving.asgi import read_body
from convoy_workloads.serving.errors import RequestError
from convoy_workloads.serving.front import Front, Request, outputs_of
from convoy_workloads.serving.openai.requests import parse_body
from convoy_workloads.serving.protocol import Inference, ModelCard
from convoy_workloads.serving.tensor_work import TensorWork

OUTPUT = "embedding"
MAX_TEXTS = 2048
"""Maximum number of texts of a request, as in OpenAI's API."""


class EmbeddingRequest(BaseModel):
    """The body of a request."""

    model_config = ConfigDict(extra="forbid", strict=True)

    model: str
    input: str | Annotated[list[str], Field(min_length=1, max_length=MAX_TEXTS)]
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: Annotated[int, Field(ge=1)] | None = None
    # This field does not change the result.
    user: str | None = None


class Embeddings:
    """The route `POST /v1/embeddings`."""

    def __init__(self, front: Front) -> None:
        self._front = front

    async def embed(self, http: HttpRequest) -> Response:
        """Return the embedding of each text."""
        front = self._front
        headers: dict[bytes, bytes] = dict(http.scope["headers"])
        front.check(headers)
        deadline = front.deadline(headers)
        body = await read_body(headers, http.receive, front.limits.body_bytes, deadline)
        wanted = parse_body(EmbeddingRequest, body)
        card = front.card(wanted.model)
        _check(card, wanted)
        texts = [wanted.input] if isinstance(wanted.input, str) else wanted.input
        inputs = {card.inputs[0].name: np.array(texts, dtype=object)}
        with front.request(headers, http.receive) as request:
            inference = Inference(front.new_id(), card.name, inputs, (OUTPUT,), len(texts))
            front.submit(request, [TensorWork(inference, deadline, request.push)])
            outputs = await outputs_of(request)
        return _response(request, card, wanted, outputs[OUTPUT])


def _check(card: ModelCard, wanted: EmbeddingRequest) -> None:
    """Raise RequestError if the model has no embeddings, or none of the wanted size."""
    found = next((one for one in card.outputs if one.name == OUTPUT), None)
    if found is None or len(card.inputs) != 1 or card.inputs[0].datatype != "BYTES":
        raise RequestError(
            400, f"model: {card.name!r} does not turn texts into embeddings", "model", "invalid_value"
        )
    if wanted.dimensions not in (None, found.shape[-1]):
        raise RequestError(
            400,
            f"dimensions: the embeddings of {card.name!r} have {found.shape[-1]}",
            "dimensions",
            "invalid_value",
        )


def _response(
    request: Request, card: ModelCard, wanted: EmbeddingRequest, table: np.ndarray[Any, np.dtype[Any]]
) -> Response:
    values = table.astype("<f4", copy=False)
    entries = [
        {
            "object": "embedding",
            "index": number,
            "embedding": base64.b64encode(row.tobytes()).decode()
            if wanted.encoding_format == "base64"
            else row.tolist(),
        }
        for number, row in enumerate(values)
    ]
    texts = [wanted.input] if isinstance(wanted.input, str) else wanted.input
    count = sum(len(text.encode("utf-8", "replace")) for text in texts)
    answer = {
        "object": "list",
        "data": entries,
        "model": card.name,
        "usage": {"prompt_tokens": count, "total_tokens": count},
    }
    return Response(orjson.dumps(answer), 200, {"x-request-id": request.id}, "application/json")
