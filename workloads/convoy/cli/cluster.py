"""Options and errors shared by the commands that use a cluster."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from convoy.client import Client, ConvoyError

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the TrainingJob.")]
Namespace = Annotated[
    str | None,
    typer.Option(
        "--namespace",
        "-n",
        metavar="NAMESPACE",
        help="Namespace. Default: the namespace of the kubeconfig context.",
    ),
]
Context = Annotated[
    str | None,
    typer.Option("--context", metavar="CONTEXT", help="Kubeconfig context. Default: the current context."),
]


class Failure(typer.Exit):
    """Ends the command with exit status 1 and prints an error message on stderr."""

    def __init__(self, message: str) -> None:
        typer.echo(f"error: {message}", err=True)
        super().__init__(1)


class Commands(TyperGroup):
    """A group of commands that reports an error of the Convoy client as a Failure."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command that the user selected. Raises Failure for a ConvoyError."""
        try:
            return super().invoke(ctx)
        except ConvoyError as error:
            raise Failure(str(error)) from error


def connect(namespace: str | None, context: str | None) -> Client:
    """Return a client that uses the user's own kubeconfig."""
    return Client(namespace=namespace, context=context)
