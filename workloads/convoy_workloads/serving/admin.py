"""The admin routes. They are only on a Unix socket, so only processes of the container can use them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from convoy_workloads.serving.compute import Unavailable
from convoy_workloads.serving.front import Front


def app(front: Front, drain: Callable[[], None], routes: Sequence[BaseRoute] = ()) -> Starlette:
    """Return the application. `drain` ends the process as SIGTERM does. `routes`: routes of the engine."""

    async def status(_: Request) -> Response:
        usage = front.compute.usage()
        card = front.compute.card
        return JSONResponse(
            {
                "state": front.lifecycle.state,
                "reason": front.lifecycle.reason,
                "model": card.name if card else None,
                "source": card.source if card else None,
                "requests": front.in_flight,
                "waiting": front.compute.waiting,
                "running": usage.running,
                "preempted": usage.preempted,
                "cacheShare": round(usage.cache_share, 4),
            }
        )

    async def cancel(request: Request) -> Response:
        number = front.cancel(request.path_params["request"])
        return JSONResponse({"cancelled": number}, 200 if number else 404)

    async def start_drain(_: Request) -> Response:
        drain()
        return JSONResponse({"state": front.lifecycle.state})

    async def reload(_: Request) -> Response:
        if front.lifecycle.ending:
            return JSONResponse({"error": front.lifecycle.reason}, 409)
        try:
            card = await front.compute.reload()
        except Exception as error:  # The engine may raise any error; the process ends after it.
            return JSONResponse({"error": str(error)}, 500)
        return JSONResponse({"model": card.name, "source": card.source})

    return Starlette(
        routes=[
            Route("/status", status),
            Route("/cancel/{request:path}", cancel, methods=["POST"]),
            Route("/drain", start_drain, methods=["POST"]),
            Route("/reload", reload, methods=["POST"]),
            *routes,
        ],
        exception_handlers={Unavailable: _on_unavailable},
    )


async def _on_unavailable(_: Request, error: Exception) -> Response:
    return JSONResponse({"error": f"{error}: send the request again"}, 503)
