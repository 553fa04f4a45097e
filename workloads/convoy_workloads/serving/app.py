"""The HTTP application of a serving rank."""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from convoy_workloads.serving import kserve, metrics
from convoy_workloads.serving.asgi import CLOSE, ClientLeft, Receive, Scope, Send
from convoy_workloads.serving.errors import RequestError
from convoy_workloads.serving.front import Front
from convoy_workloads.serving.openai.embeddings import Embeddings
from convoy_workloads.serving.openai.endpoint import ChatEndpoint, CompletionEndpoint
from convoy_workloads.serving.protocol import ModelCard

OPENAI = ("/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/models")
KSERVE_V1 = (":predict", ":explain")
"""Ends of the paths of version 1 of KServe's protocol, which begin with /v1/models."""


class App:
    """The application. Completions and chats bypass Starlette; all other routes are Starlette's."""

    def __init__(self, front: Front, routes: Sequence[BaseRoute] = ()) -> None:
        """`routes`: public routes of the engine."""
        self._raw = {
            "/v1/completions": CompletionEndpoint(front),
            "/v1/chat/completions": ChatEndpoint(front),
        }
        self._others = others(front, routes)
        self._lifecycle = front.lifecycle

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Respond to one request."""
        if scope["type"] == "http":
            raw = self._raw.get(scope["path"])
            if raw is not None:
                await raw(scope, receive, send)
                return

        async def send_other(message: MutableMapping[str, Any]) -> None:
            """Send a message. After it, a client of a replica that is ending opens another connection."""
            if message["type"] == "http.response.start" and self._lifecycle.ending:
                message = {**message, "headers": [*message["headers"], CLOSE]}
            await send(message)

        await self._others(scope, receive, send_other)


def others(front: Front, own: Sequence[BaseRoute] = ()) -> Starlette:
    """Return the application with all routes except completions and chats. `own`: routes of the engine."""

    async def healthz(_: Request) -> Response:
        return Response("ok\n", media_type="text/plain")

    async def readyz(_: Request) -> Response:
        ready = front.lifecycle.ready
        return Response(
            "ready\n" if ready else f"{front.lifecycle.reason}\n",
            200 if ready else 503,
            media_type="text/plain",
        )

    async def exposition(_: Request) -> Response:
        return Response(front.metrics.text(), headers={"content-type": metrics.CONTENT_TYPE})

    async def models(request: Request) -> Response:
        front.authenticate(dict(request.scope["headers"]))
        front.card(None)
        found = [_entry(card) for card in front.compute.cards.values()]
        return JSONResponse({"object": "list", "data": found})

    async def model(request: Request) -> Response:
        front.authenticate(dict(request.scope["headers"]))
        return JSONResponse(_entry(front.card(request.path_params["model"])))

    routes = [
        Route("/healthz", healthz),
        Route("/readyz", readyz),
        Route("/metrics", exposition),
        Route("/v1/models", models),
        Route("/v1/models/{model:path}", model),
        Route("/v1/embeddings", Embeddings(front).embed, methods=["POST"]),
        *kserve.Routes(front).all(),
        *own,
    ]
    return Starlette(
        routes=routes,
        exception_handlers={
            RequestError: _on_request_error,
            HTTPException: _on_http_error,
            ClientLeft: _on_client_left,
        },
    )


def _entry(card: ModelCard) -> dict[str, Any]:
    """Return a model in the form of OpenAI's API, with further facts."""
    return {
        "id": card.name,
        "object": "model",
        "created": 0,
        "owned_by": "convoy",
        **({"max_model_len": card.context} if card.context else {}),
        "source": card.source,
        **card.facts,
    }


async def _on_request_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestError)  # noqa: S101 - Starlette calls this only for a RequestError
    headers = {name.decode(): value.decode() for name, value in error.headers}
    return Response(error.body(), error.status, headers, "application/json")


async def _on_client_left(_: Request, error: Exception) -> Response:
    return Response(status_code=499)  # Nobody reads the response.


def _similar(path: str) -> str:
    """Return the route that a client probably means, whose base URL has a /v1 too many or too few."""
    for route in OPENAI:
        if path.rstrip("/").endswith(route.removeprefix("/v1")):
            return f"did you mean {route}? A client's base URL is http://ADDRESS:PORT/v1"
    return "the API is below /v1, such as /v1/chat/completions"


async def _on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - Starlette calls this only for an HTTPException
    path = request.url.path
    words = {
        404: f"there is no route {path}; {_similar(path)}",
        405: f"{path} does not accept {request.method}",
    }
    message = words.get(error.status_code, str(error.detail))
    if error.status_code in words and path.endswith(KSERVE_V1):
        message = f"{path}: this server has no version 1 of KServe's protocol; use POST /v2/models/NAME/infer"
    found = RequestError(error.status_code, message)
    return Response(found.body(), error.status_code, dict(error.headers or {}), "application/json")
