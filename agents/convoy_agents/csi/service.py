"""The gRPC services of the driver: csi.v1 Identity and Node, and the kubelet's plugin registration."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import structlog
from google.protobuf.wrappers_pb2 import BoolValue

from convoy_agents import metrics
from convoy_agents.csi.volumes import InvalidVolume, NoSpace, Volumes
from convoy_agents.wire import csi_pb2, csi_pb2_grpc, pluginregistration_pb2, pluginregistration_pb2_grpc
from convoy_crds import terms

STOP_SECONDS = 5.0
"""Maximum seconds that running calls may still take when the agent stops."""
CALLS_AT_ONCE = 64

log = structlog.get_logger()


class Identity:
    """The gRPC service csi.v1.Identity. Its methods have the names of the .proto file."""

    def __init__(self, version: str) -> None:
        self._version = version

    async def GetPluginInfo(
        self, request: csi_pb2.GetPluginInfoRequest, context: object
    ) -> csi_pb2.GetPluginInfoResponse:
        """Return the driver's name and version."""
        return csi_pb2.GetPluginInfoResponse(name=terms.CSI_DRIVER, vendor_version=self._version)

    async def GetPluginCapabilities(
        self, request: csi_pb2.GetPluginCapabilitiesRequest, context: object
    ) -> csi_pb2.GetPluginCapabilitiesResponse:
        """Return no capabilities: the driver has no controller part."""
        return csi_pb2.GetPluginCapabilitiesResponse()

    async def Probe(self, request: csi_pb2.ProbeRequest, context: object) -> csi_pb2.ProbeResponse:
        """Report the driver as ready. A driver that handles this call is ready."""
        return csi_pb2.ProbeResponse(ready=BoolValue(value=True))


class Node:
    """The gRPC service csi.v1.Node for inline ephemeral volumes. Its methods have the names of the .proto
    file.
    """

    def __init__(self, node: str, volumes: Volumes) -> None:
        self._node = node
        self._volumes = volumes

    async def NodePublishVolume(
        self,
        request: csi_pb2.NodePublishVolumeRequest,
        context: grpc.aio.ServicerContext[
            csi_pb2.NodePublishVolumeRequest, csi_pb2.NodePublishVolumeResponse
        ],
    ) -> csi_pb2.NodePublishVolumeResponse:
        """Mount the pod's folder, always read-only.

        Fails with INVALID_ARGUMENT, RESOURCE_EXHAUSTED (no space or memory) or INTERNAL.
        """
        async with self._report_errors("NodePublishVolume", context):
            await self._volumes.publish(request.volume_id, request.target_path, dict(request.volume_context))
        return csi_pb2.NodePublishVolumeResponse()

    async def NodeUnpublishVolume(
        self,
        request: csi_pb2.NodeUnpublishVolumeRequest,
        context: grpc.aio.ServicerContext[
            csi_pb2.NodeUnpublishVolumeRequest, csi_pb2.NodeUnpublishVolumeResponse
        ],
    ) -> csi_pb2.NodeUnpublishVolumeResponse:
        """Unmount the pod's folder. Succeed also if it was not mounted. Fails with INVALID_ARGUMENT or
        INTERNAL.
        """
        async with self._report_errors("NodeUnpublishVolume", context):
            await self._volumes.unpublish(request.volume_id, request.target_path)
        return csi_pb2.NodeUnpublishVolumeResponse()

    async def NodeGetCapabilities(
        self, request: csi_pb2.NodeGetCapabilitiesRequest, context: object
    ) -> csi_pb2.NodeGetCapabilitiesResponse:
        """Return no capabilities: the driver does not stage, measure or expand volumes."""
        return csi_pb2.NodeGetCapabilitiesResponse()

    async def NodeGetInfo(
        self, request: csi_pb2.NodeGetInfoRequest, context: object
    ) -> csi_pb2.NodeGetInfoResponse:
        """Return the node's name."""
        return csi_pb2.NodeGetInfoResponse(node_id=self._node)

    @asynccontextmanager
    async def _report_errors(
        self, method: str, context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[None]:
        started, code, why = time.monotonic(), grpc.StatusCode.OK, ""
        try:
            yield
        except InvalidVolume as error:
            code, why = grpc.StatusCode.INVALID_ARGUMENT, str(error)
        except NoSpace as error:
            code, why = grpc.StatusCode.RESOURCE_EXHAUSTED, str(error)
        except OSError as error:
            code, why = grpc.StatusCode.INTERNAL, str(error)
        finally:
            metrics.CSI_CALLS.labels(method, code.name).inc()
            metrics.CSI_SECONDS.labels(method).observe(time.monotonic() - started)
        if code is not grpc.StatusCode.OK:
            await context.abort(code, f"convoy agent on node {self._node}: {why}")


class Registration:
    """The gRPC service pluginregistration.Registration, through which the kubelet finds the driver's
    socket.
    """

    def __init__(self, endpoint: Path) -> None:
        self._endpoint = endpoint

    async def GetInfo(
        self, request: pluginregistration_pb2.InfoRequest, context: object
    ) -> pluginregistration_pb2.PluginInfo:
        """Return the plugin's type, name, socket and CSI version."""
        return pluginregistration_pb2.PluginInfo(
            type="CSIPlugin",
            name=terms.CSI_DRIVER,
            endpoint=str(self._endpoint),
            supported_versions=["1.0.0"],
        )

    async def NotifyRegistrationStatus(
        self, request: pluginregistration_pb2.RegistrationStatus, context: object
    ) -> pluginregistration_pb2.RegistrationStatusResponse:
        """Log the kubelet's result of the registration. After a failure the kubelet retries by itself."""
        metrics.REGISTERED.set(int(request.plugin_registered))
        if request.plugin_registered:
            log.info("registered with the kubelet", driver=terms.CSI_DRIVER)
        else:
            log.error("the kubelet refused the driver", driver=terms.CSI_DRIVER, why=request.error)
        return pluginregistration_pb2.RegistrationStatusResponse()


class CsiServers:
    """The driver's gRPC server, and the server through which the kubelet registers the driver."""

    def __init__(self, kubelet_dir: Path, node: str, version: str, volumes: Volumes) -> None:
        self._socket = kubelet_dir / "plugins" / terms.CSI_DRIVER / "csi.sock"
        self._registration_socket = kubelet_dir / "plugins_registry" / f"{terms.CSI_DRIVER}-reg.sock"
        self._made = 0
        self._driver = grpc.aio.server(maximum_concurrent_rpcs=CALLS_AT_ONCE)
        csi_pb2_grpc.add_IdentityServicer_to_server(Identity(version), self._driver)
        csi_pb2_grpc.add_NodeServicer_to_server(Node(node, volumes), self._driver)
        self._registration = grpc.aio.server(maximum_concurrent_rpcs=CALLS_AT_ONCE)
        pluginregistration_pb2_grpc.add_RegistrationServicer_to_server(
            Registration(self._socket), self._registration
        )

    async def start(self) -> None:
        """Start the driver's server, then the registration server. Raises OSError if a folder or a socket
        cannot be created.
        """
        await _listen(self._driver, self._socket)
        self._made = self._socket.stat().st_ino
        await _listen(self._registration, self._registration_socket)

    @property
    def folder(self) -> Path:
        """The folder that contains the driver's socket."""
        return self._socket.parent

    def superseded(self) -> bool:
        """Return True if another agent on this node has replaced the driver's socket file."""
        try:
            return self._socket.stat().st_ino != self._made
        except FileNotFoundError:
            return False

    async def stop(self) -> None:
        """Remove the registration socket, so that the kubelet unregisters the driver. Then stop both
        servers.
        """
        await asyncio.to_thread(_clear, self._registration_socket)
        await self._registration.stop(STOP_SECONDS)
        await self._driver.stop(STOP_SECONDS)


async def _listen(server: grpc.aio.Server, path: Path) -> None:
    await asyncio.to_thread(_clear, path)
    try:
        server.add_insecure_port(f"unix:{path}")
    except RuntimeError as error:
        raise OSError(f"cannot listen on {path}: {error}") from error
    await server.start()


def _clear(path: Path) -> None:
    path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
