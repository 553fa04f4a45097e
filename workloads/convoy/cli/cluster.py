"""How commands meet a cluster: their options for it, and how they end when it fails."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from convoy.client import Client, ConvoyError

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the TrainingJob.")]
Namespace = Annotated[
    str | None,
    typer.Option(
        "--namespace", "-n", metavar="NAMESPACE", help="Namespace; the kubeconfig context's by default."
    ),
]
Context = Annotated[
    str | None, typer.Option("--context", metavar="CONTEXT", help="Context of the kubeconfig.")
]


class Failure(typer.Exit):
    """Ends the command with status 1 and one sentence on stderr."""

    def __init__(self, message: str) -> None:
        typer.echo(f"error: {message}", err=True)
        super().__init__(1)


class Commands(TyperGroup):
    """Commands that end with a Failure when the client raises an error."""

    def invoke(self, ctx: Any) -> Any:
        """Runs the command that was named."""
        try:
            return super().invoke(ctx)
        except ConvoyError as error:
            raise Failure(str(error)) from error


def connect(namespace: str | None, context: str | None) -> Client:
    """The client of the user's own kubeconfig."""
    return Client(namespace=namespace, context=context)
