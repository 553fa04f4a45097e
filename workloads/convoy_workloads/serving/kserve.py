"""The routes of the Open Inference Protocol (KServe V2). A text model has one input, `text_input`, and one
output, `text_output`. The card of a tensor model lists its inputs and outputs.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from convoy_workloads.serving import kserve_tensors
from convoy_workloads.serving.asgi import ClientLeft, read_body
from convoy_workloads.serving.errors import RequestError, not_ready
from convoy_workloads.serving.front import (
    Front,
    Request,
    check_length,
    failure,
    outputs_of,
    random_seed,
)
from convoy_workloads.serving.kserve_tensors import RequestId
from convoy_workloads.serving.openai.requests import DEFAULT_MAX_TOKENS, MAX_CHOICES, StopString, parse_body
from convoy_workloads.serving.protocol import Inference, ModelCard, Sampling, TensorSpec
from convoy_workloads.serving.tensor_work import TensorWork

INPUT, OUTPUT = "text_input", "text_output"
TEXT = (TensorSpec(INPUT, "BYTES", (-1,)),)
TEXT_OUT = (TensorSpec(OUTPUT, "BYTES", (-1,)),)
VERSION = "1"
"""The only version of a model, because a replica serves one."""


class Parameters(BaseModel):
    """The parameters of an inference request."""

    model_config = ConfigDict(extra="forbid", strict=True)

    max_tokens: Annotated[int, Field(ge=1)] = DEFAULT_MAX_TOKENS
    temperature: Annotated[float, Field(ge=0, le=2)] = 1.0
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    top_k: Annotated[int, Field(ge=0)] = 0
    seed: Annotated[int, Field(ge=-(2**63), le=2**63 - 1)] | None = None
    stop: Annotated[list[StopString], Field(max_length=4)] = Field(default_factory=list)


class Input(BaseModel):
    """The input tensor of texts."""

    model_config = ConfigDict(extra="forbid", strict=True)

    name: Literal["text_input"]
    shape: Annotated[list[int], Field(min_length=1, max_length=2)]
    datatype: Literal["BYTES"]
    data: Annotated[list[str], Field(min_length=1, max_length=MAX_CHOICES)]
    parameters: dict[str, Any] | None = None


class OutputName(BaseModel):
    """A requested output tensor."""

    model_config = ConfigDict(extra="forbid", strict=True)

    name: Literal["text_output"]
    parameters: dict[str, Any] | None = None


class TextInference(BaseModel):
    """The body of `POST /v2/models/NAME/infer` for a text model."""

    model_config = ConfigDict(extra="forbid", strict=True)

    id: RequestId | None = None
    parameters: Parameters = Field(default_factory=Parameters)
    inputs: Annotated[list[Input], Field(min_length=1, max_length=1)]
    outputs: Annotated[list[OutputName], Field(max_length=1)] | None = None


class Routes:
    """The routes of one replica."""

    def __init__(self, front: Front) -> None:
        self._front = front

    def all(self) -> list[Route]:
        """Return the routes."""
        model = "/v2/models/{model}"
        version = f"{model}/versions/{{version}}"
        found = [
            Route("/v2", self.server),
            Route("/v2/health/live", self.live),
            Route("/v2/health/ready", self.ready),
        ]
        for base in (model, version):
            found += [
                Route(base, self.metadata),
                Route(f"{base}/ready", self.model_ready),
                Route(f"{base}/infer", self.infer, methods=["POST"]),
            ]
        return found

    async def server(self, _: HttpRequest) -> Response:
        """Return the name of the server."""
        return JSONResponse({"name": "convoy", "version": VERSION, "extensions": ["binary_tensor_data"]})

    async def live(self, _: HttpRequest) -> Response:
        """Return that the server runs."""
        return JSONResponse({"live": True})

    async def ready(self, _: HttpRequest) -> Response:
        """Return whether the model is ready for requests."""
        ready = self._front.lifecycle.ready
        return JSONResponse({"ready": ready}, 200 if ready else 503)

    async def metadata(self, request: HttpRequest) -> Response:
        """Return the inputs and outputs of the model."""
        self._front.authenticate(dict(request.scope["headers"]))
        card = self._card(request)
        return JSONResponse(
            {
                "name": card.name,
                "versions": [VERSION],
                "platform": "convoy",
                "inputs": [asdict(one) for one in card.inputs or TEXT],
                "outputs": [asdict(one) for one in card.outputs or TEXT_OUT],
            }
        )

    async def model_ready(self, request: HttpRequest) -> Response:
        """Return whether the model is ready for requests."""
        card = self._card(request)
        ready = self._front.lifecycle.ready
        return JSONResponse({"name": card.name, "ready": ready}, 200 if ready else 503)

    async def infer(self, http: HttpRequest) -> Response:
        """Compute the outputs for the inputs in a request."""
        front = self._front
        headers: dict[bytes, bytes] = dict(http.scope["headers"])
        front.check(headers)
        deadline = front.deadline(headers)
        card = self._card(http)
        body = await read_body(headers, http.receive, front.limits.body_bytes, deadline)
        with front.request(headers, http.receive) as request:
            if card.inputs:
                return await self._tensors(request, card, (body, headers), deadline)
            return await self._texts(request, card, body, deadline)

    async def _texts(self, request: Request, card: ModelCard, body: bytes, deadline: float) -> Response:
        """Continue each text of the input."""
        front = self._front
        wanted = parse_body(TextInference, body)
        given, options = wanted.inputs[0], wanted.parameters
        _check_shape(given)
        prompts = []
        for number, text in enumerate(given.data):
            tokens = tuple(front.tokenizer.encode(text))
            length = check_length(tokens, options.max_tokens, card, f"inputs.0.data.{number}")
            seed = random_seed() if options.seed is None else options.seed
            sampling = Sampling(length, seed, options.temperature, options.top_p, options.top_k)
            prompts.append((tokens, sampling))
        request.id = wanted.id or request.id
        front.submit_prompts(request, prompts, tuple(options.stop), deadline)
        texts = await _texts(request, len(prompts))
        output = {"name": OUTPUT, "datatype": "BYTES", "shape": given.shape, "data": texts}
        answer = {**_head(request, card), "outputs": [output]}
        return JSONResponse(answer, headers={"x-request-id": request.id})

    async def _tensors(
        self, request: Request, card: ModelCard, message: tuple[bytes, dict[bytes, bytes]], deadline: float
    ) -> Response:
        """Compute the output tensors. `message`: the body and the headers of the request."""
        front = self._front
        wanted = kserve_tensors.parse(*message, card)
        request.id = wanted.id or request.id
        inference = Inference(front.new_id(), card.name, wanted.inputs, wanted.outputs, wanted.rows)
        front.submit(request, [TensorWork(inference, deadline, request.push)])
        outputs = await outputs_of(request)
        content, headers = kserve_tensors.render(_head(request, card), wanted, card, outputs)
        response = Response(content)
        response.raw_headers = [
            (b"content-length", str(len(content)).encode()),
            (b"x-request-id", request.id.encode()),
            *headers,
        ]
        return response

    def _card(self, request: HttpRequest) -> ModelCard:
        """Return the model that the path names. Raises RequestError if there is none."""
        version = request.path_params.get("version", VERSION)
        card = self._front.compute.card
        if card is None:
            raise not_ready(self._front.lifecycle.reason)
        if version != VERSION:
            raise RequestError(404, f"version: the model has only version {VERSION}", "version", "not_found")
        return self._front.card(request.path_params["model"])


def _head(request: Request, card: ModelCard) -> dict[str, str]:
    """Return the first entries of a response."""
    return {"model_name": card.name, "model_version": VERSION, "id": request.id}


def _check_shape(given: Input) -> None:
    """Raise RequestError if the shape does not match the number of texts."""
    count = 1
    for size in given.shape:
        count *= size
    if count != len(given.data):
        raise RequestError(
            400,
            f"inputs.0.shape: {given.shape} does not match {len(given.data)} texts",
            "inputs.0.shape",
            "invalid_value",
        )


async def _texts(request: Request, count: int) -> list[str]:
    """Return the texts of the choices when all of them have ended. Raises RequestError if one has failed, and
    ClientLeft.
    """
    texts: list[list[str]] = [[] for _ in range(count)]
    left = count
    while left:
        deltas = await request.next()
        if not deltas:
            raise ClientLeft
        for index, delta in deltas:
            if error := failure(delta):
                raise error
            texts[index].append(delta.text)
            left -= bool(delta.finish)
    return ["".join(one) for one in texts]
