"""A server as one would write it by hand: a Starlette application that calls the model for each request. The
bench compares the engine with it.

`python -m convoy_workloads.engines.sklearn.plain_server FILE PORT` serves the model in a file of skops.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import skops.io
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from convoy_workloads.engines.sklearn.model_file import DATA_TYPES


def app(file: Path) -> Starlette:
    """Return the application for a model."""
    model = skops.io.load(file, trusted=sorted(DATA_TYPES))

    async def infer(request: Request) -> Response:
        given = (await request.json())["inputs"][0]
        table = np.array(given["data"]).reshape(given["shape"])
        # The call in the event loop is faster than in a thread pool, whose threads would share one GIL.
        found = model.predict(table)
        return JSONResponse({"outputs": [{"name": "predict", "data": found.tolist()}]})

    async def readyz(_: Request) -> Response:
        return Response()

    route = Route("/v2/models/sklearn/infer", infer, methods=["POST"])
    return Starlette(routes=[route, Route("/readyz", readyz)])


def main() -> None:
    """Serve until SIGTERM."""
    uvicorn.run(app(Path(sys.argv[1])), port=int(sys.argv[2]), log_config=None, access_log=False)


if __name__ == "__main__":
    main()
