"""The bodies of OpenAI's completion and chat requests, and their limits.

A field that would change the result and that no engine supports may only have its neutral value. Other fields
of OpenAI's API that do not affect the result are accepted and ignored.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from convoy_workloads.serving.errors import RequestError
from convoy_workloads.serving.protocol import Tokenizer

MAX_CHOICES = 16
"""Maximum number of continuations of one request, over all its prompts."""
MAX_MESSAGES = 256
DEFAULT_MAX_TOKENS = 16
"""Default of `max_tokens` for completions, as in OpenAI's API."""

StopString = Annotated[str, Field(min_length=1, max_length=64)]
Tokens = Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)]


class StreamOptions(BaseModel):
    """Options of a streamed response."""

    model_config = ConfigDict(extra="forbid", strict=True)

    include_usage: bool = False
    include_obfuscation: bool = False


class CommonRequest(BaseModel):
    """The fields that completions and chats have in common."""

    model_config = ConfigDict(extra="forbid", strict=True)

    model: str | None = None
    n: Annotated[int, Field(ge=1, le=MAX_CHOICES)] = 1
    stream: bool = False
    stream_options: StreamOptions | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=0)] = 0
    seed: Annotated[int, Field(ge=-(2**63), le=2**63 - 1)] | None = None
    stop: StopString | Annotated[list[StopString], Field(max_length=4)] | None = None
    # Fields without a neutral value would change the result.
    presence_penalty: Annotated[float, Field(ge=0, le=0)] | None = None
    frequency_penalty: Annotated[float, Field(ge=0, le=0)] | None = None
    logit_bias: Annotated[dict[str, float], Field(max_length=0)] | None = None
    # These fields do not change the result.
    user: str | None = None
    metadata: dict[str, Any] | None = None
    store: bool | None = None
    service_tier: str | None = None

    @property
    def stops(self) -> tuple[str, ...]:
        """Return the stop strings."""
        if self.stop is None:
            return ()
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)


class CompletionRequest(CommonRequest):
    """The body of `POST /v1/completions`."""

    prompt: str | Tokens | Annotated[list[str], Field(min_length=1, max_length=MAX_CHOICES)]
    max_tokens: Annotated[int, Field(ge=1)] | None = DEFAULT_MAX_TOKENS
    logprobs: Annotated[int, Field(ge=0, le=5)] | None = None
    echo: Literal[False] | None = None
    suffix: Literal[""] | None = None
    best_of: Literal[1] | None = None

    def prompts(self, tokenizer: Tokenizer) -> list[tuple[int, ...]]:
        """Return the tokens of each prompt."""
        if isinstance(self.prompt, str):
            return [tuple(tokenizer.encode(self.prompt))]
        if isinstance(self.prompt[0], str):
            return [tuple(tokenizer.encode(str(one))) for one in self.prompt]
        return [tuple(int(one) for one in self.prompt)]


class TextPart(BaseModel):
    """A part of a chat message."""

    model_config = ConfigDict(extra="forbid", strict=True)

    type: Literal["text"]
    text: str


class ChatMessage(BaseModel):
    """A message of a conversation."""

    model_config = ConfigDict(extra="forbid", strict=True)

    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[TextPart]
    name: str | None = None

    @property
    def text(self) -> str:
        """Return the whole text of the message."""
        return self.content if isinstance(self.content, str) else "".join(one.text for one in self.content)


class ChatRequest(CommonRequest):
    """The body of `POST /v1/chat/completions`."""

    messages: Annotated[list[ChatMessage], Field(min_length=1, max_length=MAX_MESSAGES)]
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    tools: Annotated[list[Any], Field(max_length=0)] | None = None
    tool_choice: Literal["none"] | None = None
    parallel_tool_calls: bool | None = None

    def prompt(self, tokenizer: Tokenizer) -> tuple[int, ...]:
        """Return the tokens of the prompt for the conversation."""
        text = tokenizer.render_chat([(one.role, one.text) for one in self.messages])
        return tuple(tokenizer.encode(text))


def parse_completion(body: bytes) -> CompletionRequest:
    """Return the request. Raises RequestError, with the name of the wrong field."""
    try:
        return CompletionRequest.model_validate_json(body)
    except ValidationError as error:
        raise invalid(error) from error


def parse_chat(body: bytes) -> ChatRequest:
    """Return the request. Raises RequestError, with the name of the wrong field."""
    try:
        return ChatRequest.model_validate_json(body)
    except ValidationError as error:
        raise invalid(error) from error


_UNION = frozenset({"str", "int", "float", "bool", "none"})


def invalid(error: ValidationError) -> RequestError:
    """Return one error of a body as a RequestError.

    If a field accepts several types, pydantic reports an error for each of them. So an error about a value
    comes before errors about types.
    """
    found = error.errors(include_url=False, include_context=False, include_input=False)
    first = next((one for one in found if not one["type"].endswith("_type")), found[0])
    path = [str(one) for one in first["loc"] if not _names_type(str(one))]
    field = ".".join(path) or None
    if first["type"] == "json_invalid":
        return RequestError(400, f"the body is not valid JSON: {first['msg']}", code="invalid_json")
    if first["type"] == "extra_forbidden":
        return RequestError(400, f"{field}: this server does not know the field", field, "unknown_field")
    return RequestError(400, f"{field or 'body'}: {first['msg']}", field, "invalid_value")


def _names_type(part: str) -> bool:
    """Return True if a part of an error's location names a member of a union, and no field."""
    return part in _UNION or "[" in part or part.startswith("constrained-")
