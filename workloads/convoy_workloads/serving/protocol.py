"""The protocol between the serving front and an engine. An engine generates tokens, or computes tensors.

The compute thread calls all methods of an engine, except those of its tokenizer. So an engine needs no lock.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from convoy_workloads.runtime.errors import ExplainedError

if TYPE_CHECKING:
    import numpy as np

    from convoy_workloads.serving.errors import RequestError


class SelfTestFailed(ExplainedError):
    """Raised if an engine computes wrong results on this machine. The message names the check."""


class ModelError(ExplainedError):
    """Raised if the model cannot be loaded. The message names the file or the tensor."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """The choice of the next token from the model's distribution."""

    max_tokens: int
    seed: int
    temperature: float = 1.0
    """0 always chooses the most likely token."""
    top_p: float = 1.0
    top_k: int = 0
    """Number of the most likely tokens to choose from; 0 to choose from all tokens."""
    logprobs: int | None = None
    """Number of alternatives to report with each token; None to report no probabilities."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt to continue."""

    id: int
    tokens: tuple[int, ...]
    sampling: Sampling


@dataclass(frozen=True, slots=True)
class Token:
    """A token that the engine has generated for a sequence."""

    sequence: int
    """Id of the sequence's prompt."""
    token: int
    logprob: float = 0.0
    """Natural logarithm of the token's probability, if the sequence requests it."""
    alternatives: tuple[tuple[int, float], ...] = ()
    """The most likely tokens and the logarithms of their probabilities, if the sequence requests them."""
    reused: int | None = None
    """Number of the prompt's tokens whose keys and values were in the cache. Only the first token has it."""


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """The form of an input or an output of a model."""

    name: str
    datatype: str
    """Datatype of the Open Inference Protocol, such as FP64 or BYTES."""
    shape: tuple[int, ...]
    """Sizes of the dimensions. -1 stands for any size. The first dimension counts the rows."""


@dataclass(frozen=True, slots=True)
class Inference:
    """A request to compute output tensors from input tensors. The front has checked the inputs against the
    model's card.
    """

    id: int
    model: str
    """Name of the model in the request."""
    inputs: Mapping[str, np.ndarray[Any, np.dtype[Any]]]
    """The input tensors by name. Tensors of BYTES are arrays of str objects."""
    outputs: tuple[str, ...]
    """Names of the outputs to compute."""
    rows: int
    """Size of the first dimension of all inputs."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """The result of an inference."""

    sequence: int
    """Id of the inference."""
    outputs: Mapping[str, np.ndarray[Any, np.dtype[Any]]] = field(default_factory=dict)
    error: RequestError | None = None
    """Error of this inference alone, such as an input that the model refuses."""


@dataclass(frozen=True)
class ModelCard:
    """Facts about the loaded model."""

    name: str
    context: int
    """Maximum number of tokens of a prompt and its continuation together; 0 if the model serves tensors."""
    source: str
    """Origin of the weights, in one sentence for users."""
    facts: Mapping[str, object] = field(default_factory=dict)
    """Further facts for `/v1/models`, such as the job and the step of the checkpoint."""
    inputs: tuple[TensorSpec, ...] = ()
    """The input tensors; empty if the model continues text."""
    outputs: tuple[TensorSpec, ...] = ()
    """The output tensors. A request that names none gets the first."""


@dataclass(frozen=True, slots=True)
class Usage:
    """The engine's use of its resources."""

    running: int = 0
    """Number of sequences or inferences in the batch."""
    preempted: int = 0
    """Number of admitted sequences or inferences that wait."""
    cache_share: float = 0.0
    """Share of the cache that running sequences use, from 0 to 1."""


class Decoder(Protocol):
    """The state of turning the tokens of one sequence into text."""

    def feed(self, token: int) -> str:
        """Return the text that the token completes. It may be empty, because a character may consist of
        several tokens.
        """
        ...

    def flush(self) -> str:
        """Return the text of the tokens that completed no character."""
        ...


class Tokenizer(Protocol):
    """The conversion between text and tokens. All threads may use it."""

    @property
    def vocabulary(self) -> int:
        """Return the number of tokens."""
        ...

    @property
    def ends(self) -> frozenset[int]:
        """Return the tokens that end a text; empty if the model has none."""
        ...

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text."""
        ...

    def decoder(self) -> Decoder:
        """Return the decoder for a new sequence."""
        ...

    def bytes_of(self, token: int) -> bytes:
        """Return the bytes that a token stands for."""
        ...

    def render_chat(self, messages: Sequence[tuple[str, str]]) -> str:
        """Return the prompt for a conversation. Each message is a role and a text."""
        ...


Payload_contra = TypeVar("Payload_contra", contravariant=True)
Result_co = TypeVar("Result_co", covariant=True)


class Engine(Protocol[Payload_contra, Result_co]):
    """An engine that computes many requests at a time."""

    def load(self, renew: Callable[[], None]) -> ModelCard:
        """Load the model. Call `renew` at least once a second as long as the load makes progress.

        Raises ModelError if the model cannot be loaded. A second call replaces the model.
        """
        ...

    def self_test(self) -> None:
        """Compute known results. Raises SelfTestFailed if they are wrong on this machine."""
        ...

    def admit(self, payload: Payload_contra) -> bool:
        """Add a payload to the batch. Return False if the batch is full; the front then retries later."""
        ...

    def step(self) -> Sequence[Result_co]:
        """Run one iteration and return its results. Each has the id of its payload as `sequence`. A payload
        stays in the batch until the front cancels it, which the front also does when it has ended.
        """
        ...

    def cancel(self, sequence: int) -> None:
        """Remove a payload from the batch. An unknown id is ignored."""
        ...

    def idle(self) -> None:
        """Keep the engine's other ranks alive. The front calls this at least once a second if the batch is
        empty.
        """
        ...

    def usage(self) -> Usage:
        """Return the current use of the engine's resources."""
        ...

    def close(self) -> None:
        """Release the engine's resources at the end of the process."""
        ...


class ServingEngine(Engine[Prompt, Token], Protocol):
    """An engine that continues sequences, one token for each in an iteration."""

    tokenizer: Tokenizer


class TensorEngine(Engine[Inference, Prediction], Protocol):
    """An engine that computes output tensors from input tensors."""
