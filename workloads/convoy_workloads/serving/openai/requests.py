"""The bodies of OpenAI's completion and chat requests, and their limits.

A field that would change the result and that no engine supports may only have its neutral value. Other fields
of OpenAI's API that do not affect the result are accepted and ignored. Any other field may only be null. A
field that is null counts as absent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails, from_json

from convoy_workloads.serving.errors import RequestError
from convoy_workloads.serving.protocol import Tokenizer

MAX_CHOICES = 16
"""Maximum number of continuations of one request, over all its prompts."""
MAX_MESSAGES = 256
DEFAULT_MAX_TOKENS = 16
"""Default of `max_tokens` for completions, as in OpenAI's API."""

StopString = Annotated[str, Field(min_length=1, max_length=64)]
Tokens = Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)]

NEUTRAL = {
    "presence_penalty": "0",
    "frequency_penalty": "0",
    "repetition_penalty": "1",
    "logit_bias": "{}",
    "min_p": "0",
    "min_tokens": "0",
    "ignore_eos": "false",
    "use_beam_search": "false",
    "response_format": '{"type": "text"}',
    "modalities": '["text"]',
    "echo": "false",
    "suffix": '""',
    "best_of": "1",
    "tools": "[]",
    "tool_choice": '"none"',
}
"""The only value that each of these fields may have, because no engine supports another one."""


class StreamOptions(BaseModel):
    """Options of a streamed response."""

    model_config = ConfigDict(extra="forbid", strict=True)

    include_usage: bool = False
    include_obfuscation: bool = False


class TextFormat(BaseModel):
    """The neutral value of `response_format`."""

    model_config = ConfigDict(extra="forbid", strict=True)

    type: Literal["text"]


class CommonRequest(BaseModel):
    """The fields that completions and chats have in common."""

    model_config = ConfigDict(extra="forbid", strict=True)

    model: str | None = None
    n: Annotated[int, Field(ge=1, le=MAX_CHOICES)] = 1
    stream: bool = False
    stream_options: StreamOptions | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=-1)] | None = None
    seed: Annotated[int, Field(ge=-(2**63), le=2**63 - 1)] | None = None
    stop: StopString | Annotated[list[StopString], Field(max_length=4)] | None = None
    # The fields in NEUTRAL would change the result.
    presence_penalty: Annotated[float, Field(ge=0, le=0)] | None = None
    frequency_penalty: Annotated[float, Field(ge=0, le=0)] | None = None
    repetition_penalty: Annotated[float, Field(ge=1, le=1)] | None = None
    logit_bias: Annotated[dict[str, float], Field(max_length=0)] | None = None
    min_p: Annotated[float, Field(ge=0, le=0)] | None = None
    min_tokens: Literal[0] | None = None
    ignore_eos: Literal[False] | None = None
    use_beam_search: Literal[False] | None = None
    response_format: TextFormat | None = None
    # These fields do not change the result.
    user: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    metadata: dict[str, Any] | None = None
    store: bool | None = None
    service_tier: str | None = None

    @property
    def stops(self) -> tuple[str, ...]:
        """Return the stop strings."""
        if self.stop is None:
            return ()
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)

    @property
    def candidates(self) -> int:
        """Return the number of most probable tokens to choose from; 0 means all. Clients of vLLM send -1."""
        return max(0, self.top_k or 0)


class CompletionRequest(CommonRequest):
    """The body of `POST /v1/completions`."""

    prompt: (
        str
        | Tokens
        | Annotated[list[str], Field(min_length=1, max_length=MAX_CHOICES)]
        | Annotated[list[Tokens], Field(min_length=1, max_length=MAX_CHOICES)]
    )
    max_tokens: Annotated[int, Field(ge=1)] | None = DEFAULT_MAX_TOKENS
    logprobs: Annotated[int, Field(ge=0, le=5)] | None = None
    echo: Literal[False] | None = None
    suffix: Literal[""] | None = None
    best_of: Literal[1] | None = None

    def prompts(self, tokenizer: Tokenizer) -> list[tuple[int, ...]]:
        """Return the tokens of each prompt."""
        given: Sequence[Any] = self.prompt
        several = not isinstance(given, str) and not isinstance(given[0], int)
        prompts: Sequence[Any] = given if several else [given]
        return [tuple(tokenizer.encode(one) if isinstance(one, str) else one) for one in prompts]


class TextPart(BaseModel):
    """A part of a chat message."""

    model_config = ConfigDict(extra="forbid", strict=True)

    type: Literal["text"]
    text: str


class ChatMessage(BaseModel):
    """A message of a conversation. Clients send earlier responses back as they got them."""

    model_config = ConfigDict(extra="forbid", strict=True)

    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[TextPart] | None
    name: str | None = None
    tool_calls: Annotated[list[Any], Field(max_length=0)] | None = None
    annotations: list[Any] | None = None

    @property
    def text(self) -> str:
        """Return the whole text of the message."""
        if isinstance(self.content, list):
            return "".join(one.text for one in self.content)
        return self.content or ""


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
    modalities: Annotated[list[Literal["text"]], Field(max_length=1)] | None = None

    def prompt(self, tokenizer: Tokenizer) -> tuple[int, ...]:
        """Return the tokens of the prompt for the conversation."""
        text = tokenizer.render_chat([(one.role, one.text) for one in self.messages])
        return tuple(tokenizer.encode(text))


def parse_completion(body: bytes) -> CompletionRequest:
    """Return the request. Raises RequestError, with the name of the wrong field."""
    return parse_body(CompletionRequest, body)


def parse_chat(body: bytes) -> ChatRequest:
    """Return the request. Raises RequestError, with the name of the wrong field."""
    return parse_body(ChatRequest, body)


_Body = TypeVar("_Body", bound=BaseModel)


def parse_body(kind: type[_Body], body: bytes) -> _Body:
    """Return a body in JSON. A field that is null counts as absent, because some clients send null for every
    field that they know and do not use. Raises RequestError, with the name of the wrong field.
    """
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        if not _nulls(error):
            raise invalid(error) from error
    return parse_content(kind, from_json(body))


def parse_content(kind: type[_Body], content: Any) -> _Body:
    """Return a body, as `parse_body` does, from the content of its JSON, which it may change."""
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        unused = _nulls(error)
        if not unused:
            raise invalid(error) from error
    try:
        return kind.model_validate(_without(content, unused))
    except ValidationError as error:
        raise invalid(error) from error


def _nulls(error: ValidationError) -> list[list[str | int]]:
    """Return the paths of the fields that are null and must not be."""
    return [path for one in _details(error) if (path := _null(one))]


def _null(error: ErrorDetails) -> list[str | int]:
    """Return the path of a field that is null; an empty list for another error, also of a list's element."""
    path = [part for part in error["loc"] if not _names_type(str(part))]
    null = error["input"] is None and error["type"] != "json_invalid"
    return path if null and path and isinstance(path[-1], str) else []


def _without(content: Any, paths: list[list[str | int]]) -> Any:
    """Return the content of a body without some of its fields."""
    for *parents, field in paths:
        holder = content
        for part in parents:
            holder = holder[part]
        holder.pop(field, None)
    return content


def _details(error: ValidationError) -> list[ErrorDetails]:
    return error.errors(include_url=False, include_context=False)


_UNION = frozenset({"str", "int", "float", "bool", "none"})


def invalid(error: ValidationError) -> RequestError:
    """Return one error of a body as a RequestError.

    If a field accepts several types, pydantic reports an error for each of them. So an error about a value
    comes before errors about types.
    """
    found = _details(error)
    first = next((one for one in found if not one["type"].endswith("_type")), found[0])
    path = [str(one) for one in first["loc"] if not _names_type(str(one))]
    field = ".".join(path) or None
    if first["type"] == "json_invalid":
        return RequestError(400, f"the body is not valid JSON: {first['msg']}", code="invalid_json")
    if first["type"] == "extra_forbidden":
        return RequestError(400, f"{field}: this server does not know the field", field, "unknown_field")
    if path and path[0] in NEUTRAL:
        why = f"this server does not support the field: leave it out, or set it to {NEUTRAL[path[0]]}"
        return RequestError(400, f"{path[0]}: {why}", path[0], "unsupported_value")
    return RequestError(400, f"{field or 'body'}: {first['msg']}", field, "invalid_value")


def _names_type(part: str) -> bool:
    """Return True if a part of an error's location names a member of a union, and no field."""
    return part in _UNION or "[" in part or part.startswith("constrained-")
