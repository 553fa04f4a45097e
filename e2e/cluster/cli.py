"""The command line of the local cluster."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from e2e.cluster import binaries as programs
from e2e.cluster import files, kueue, versions
from e2e.cluster.cluster import DEFAULT_NAME, Cluster
from e2e.cluster.control_plane import COMPONENTS
from e2e.cluster.errors import ClusterError
from e2e.cluster.progress import Progress
from e2e.cluster.state import all_states
from e2e.images.build import Builder
from e2e.images.recipes import RECIPES, chart_values

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="A real multi-node Kubernetes cluster on this machine, without Docker.",
)
nodes_app = typer.Typer(no_args_is_help=True, help="Add a node, or inject a fault into one.")
app.add_typer(nodes_app, name="node")

Name = Annotated[str, typer.Option("--name", help="Name of the cluster in this checkout.")]
NodeName = Annotated[str, typer.Argument(help="For example node-2.")]


@app.command()
def binaries(
    tools: Annotated[
        list[str] | None, typer.Argument(help=f"Further programs: {', '.join(versions.TOOLS)}.")
    ] = None,
) -> None:
    """Download or build the cluster's programs, and print their folder.

    They are downloaded if the internet is reachable, and otherwise built with Go.
    """
    progress = Progress()
    print(programs.ensure(progress))
    for tool in tools or []:
        print(programs.tool(tool, progress))


@app.command(name="kueue")
def build_kueue() -> None:
    """Build Kueue with Go for the tests of queues, and print its folder."""
    print(kueue.ensure(Progress()))


@app.command()
def up(
    nodes: Annotated[int, typer.Option(min=1, max=16, help="Number of nodes.")] = 3,
    name: Name = DEFAULT_NAME,
    audit: Annotated[
        str, typer.Option(help="Log the API requests of this namespace's service accounts.")
    ] = "",
) -> None:
    """Create the cluster, wait until its nodes are Ready, and print the kubeconfig's path."""
    print(Cluster.up(nodes, name, audit=audit).kubeconfig)


@app.command()
def down(
    name: Name = DEFAULT_NAME,
    everything: Annotated[bool, typer.Option("--all", help="All clusters of this checkout.")] = False,
) -> None:
    """Delete the cluster completely, even if `up` was interrupted."""
    checkout = str(files.CHECKOUT)
    names = [state.name for state in all_states() if state.checkout == checkout] if everything else [name]
    for one in names:
        Cluster(one).down()


@app.command()
def status(name: Name = DEFAULT_NAME) -> None:
    """Show processes, addresses and Ready conditions. The exit code is 1 if a process is down."""
    cluster = Cluster(name)
    state = cluster.state()
    print(f"cluster     {name} ({state.phase}), {state.addresses.network}, {cluster.folder}")
    print(f"kubeconfig  {cluster.kubeconfig}")
    dead = 0
    for component in COMPONENTS:
        alive = cluster.components.alive(component)
        dead += not alive
        pid = state.processes[component].pid if alive else "-"
        print(f"{component:<24}  {'running' if alive else 'DOWN':<8}  pid {pid}")
    try:
        conditions = cluster.node_conditions()
    except ClusterError:
        conditions = {}
    for node in cluster.nodes:
        dead += not node.alive
        cut = ", cut off" if node.record.cut else ""
        what = f"running{cut}  pid {node.pid}" if node.alive else "DOWN"
        print(f"{node.name:<24}  {what}  {node.address}  Ready={conditions.get(node.name, 'not registered')}")
    raise typer.Exit(1 if dead else 0)


@app.command()
def kubeconfig(name: Name = DEFAULT_NAME) -> None:
    """Print the path of the administrator's kubeconfig."""
    cluster = Cluster(name)
    cluster.state()
    print(cluster.kubeconfig)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def kubectl(context: typer.Context, name: Name = DEFAULT_NAME) -> None:
    """Run kubectl against the cluster. Everything after `--` goes to kubectl."""
    cluster = Cluster(name)
    os.environ["KUBECONFIG"] = str(cluster.kubeconfig)
    program = cluster.binaries / "kubectl"
    os.execv(program, [str(program), *context.args])


@app.command()
def images(
    names: Annotated[list[str] | None, typer.Argument(help="Images to build; default: all.")] = None,
    tag: Annotated[str, typer.Option(help="Tag of every image.")] = "dev",
    push: Annotated[str, typer.Option(help="Registry and prefix to push the images to.")] = "",
    load: Annotated[
        bool, typer.Option(help="Load changed images into the nodes if the cluster is up.")
    ] = True,
    name: Name = DEFAULT_NAME,
) -> None:
    """Build the images whose inputs changed, and load them into the cluster's nodes if it is up."""
    progress = Progress()
    builder = Builder(tag, progress=progress)
    builder.build(names or ())
    cluster = Cluster(name, progress=progress)
    if load and cluster.exists:
        cluster.update_images([recipe.reference(tag) for recipe in RECIPES])
    if push:
        for address in builder.push(push, names or ()):
            print(address)
        print(f"for helm: {chart_values(push, tag)}")


@nodes_app.command("add")
def node_add(name: Name = DEFAULT_NAME) -> None:
    """Add one more node and wait until it is Ready."""
    print(Cluster(name).add_node().name)


@nodes_app.command("kill")
def node_kill(node: NodeName, name: Name = DEFAULT_NAME) -> None:
    """Crash a node."""
    Cluster(name).node(node).kill()


@nodes_app.command("reboot")
def node_reboot(node: NodeName, name: Name = DEFAULT_NAME) -> None:
    """Start a node with its previous disk. A running node is crashed first."""
    Cluster(name).node(node).reboot()


@nodes_app.command("cut")
def node_cut(node: NodeName, name: Name = DEFAULT_NAME) -> None:
    """Cut a node off the network."""
    Cluster(name).node(node).cut()


@nodes_app.command("heal")
def node_heal(node: NodeName, name: Name = DEFAULT_NAME) -> None:
    """Reconnect a node to the network."""
    Cluster(name).node(node).heal()


@nodes_app.command("throttle")
def node_throttle(
    node: NodeName,
    pod_uid: Annotated[str, typer.Argument(help="The pod's metadata.uid.")],
    fraction: Annotated[
        float, typer.Argument(help="Processors, such as 0.25; 0 restores the previous limit.")
    ],
    name: Name = DEFAULT_NAME,
) -> None:
    """Limit the processor time of a running pod."""
    Cluster(name).node(node).throttle(pod_uid, fraction)


def main() -> None:
    """Run the command line. Errors that a person can act on are printed without a traceback."""
    try:
        app()
    except ClusterError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)
