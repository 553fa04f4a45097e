"""Random lives of a ServingJob whose replicas are gangs: lost pods and nodes, room that comes and goes,
backends that appear and vanish, changed placement. In the end, all replicas serve.
"""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.cases import cases
from tests.unit.controllers.placement.gang_objects import PLUGINS, V1ALPHA3, V1BETA1
from tests.unit.controllers.servingjob.gang_servers import RACK, GangServers, with_cpu

from convoy_crds.servingjob_rollout import ServingRecovery

SIZE, CORES = 2, 2
APIS = st.sampled_from([(), (V1BETA1,), (V1BETA1, V1ALPHA3), (PLUGINS,)])
PACKING = st.sampled_from(["Required", "Preferred", "None"])
PICK = st.integers(0, 30)


class GangLife(RuleBasedStateMachine):
    """A life of one job on four nodes in two racks, with room for four replicas of two pods."""

    @initialize(apis=APIS, pack=PACKING, replicas=st.integers(1, 3), topology=st.booleans())
    def start(self, apis: tuple[object, ...], pack: str, replicas: int, topology: bool) -> None:
        placement = {"topologyKeys": [RACK], "pack": pack}
        roles = with_cpu(SIZE)
        self.servers = GangServers(
            *apis, topology=topology, replicas=replicas, roles=roles, placement=placement
        )  # type: ignore[arg-type]
        self.servers.job.spec.recovery = ServingRecovery(max_restarts=100)
        self.servers.step()

    @rule(count=st.integers(1, 4))
    def time_passes(self, count: int) -> None:
        self.servers.run(count)

    @rule(pick=PICK)
    def a_pod_fails(self, pick: int) -> None:
        names = sorted(one.name for one in self.servers.live() if one.node)
        if names:
            self.servers.pod(names[pick % len(names)], phase="Failed", exit_code=1, ready=False)
            self.servers.step()

    @rule()
    def all_pods_are_deleted(self) -> None:
        for one in self.servers.live():
            self.servers.pod(one.name, deleting=True, ready=False, node=one.node or "node-0")
        self.servers.step()

    @rule(pick=PICK)
    def a_node_is_lost(self, pick: int) -> None:
        self.servers.silence(f"node-{pick % 4}", 60.0)
        self.servers.step()

    @rule(pick=PICK, cores=st.integers(0, CORES))
    def the_room_changes(self, pick: int, cores: int) -> None:
        self.servers.cores[f"node-{pick % 4}"] = cores
        self.servers.step()

    @rule(apis=APIS)
    def the_apis_change(self, apis: tuple[object, ...]) -> None:
        self.servers.groups.served = frozenset(apis)  # type: ignore[arg-type]
        for key in [one for one in self.servers.groups.stored if one[0] not in apis]:
            del self.servers.groups.stored[key]
        self.servers.step()

    @rule(reading=st.booleans())
    def the_operator_starts_anew(self, reading: bool) -> None:
        self.servers.reading = reading
        self.servers.step()

    @rule(pack=PACKING)
    def the_placement_changes(self, pack: str) -> None:
        self.servers.edit(placement={"topologyKeys": [RACK], "pack": pack}).step()

    @rule(replicas=st.integers(0, 3))
    def the_number_changes(self, replicas: int) -> None:
        self.servers.edit(replicas=replicas).step()

    @invariant()
    def every_pod_is_in_the_gang_of_its_replica(self) -> None:
        records = {one.number: one for one in self.servers.records}
        for pod in self.servers.live():
            record = records.get(int(pod.labels["convoy.dev/group"]))
            linked = self.servers.link(pod.name) or pod.labels.get("scheduling.x-k8s.io/pod-group", "")
            if record is not None and linked:
                assert record.gang is not None and record.gang.name == linked

    @invariant()
    def every_podgroup_belongs_to_a_replica(self) -> None:
        names = {one.gang.name for one in self.servers.records if one.gang is not None}
        assert set(self.servers.groups.names) <= names

    def teardown(self) -> None:
        """Heal everything, and expect that all replicas serve."""
        if not hasattr(self, "servers"):
            return
        servers = self.servers
        servers.nodes, servers.reading = {}, False
        servers.cores = dict.fromkeys(servers.racks, CORES)
        servers.groups.served = frozenset({V1BETA1, PLUGINS})
        servers.edit(replicas=2)
        for _ in range(60):
            servers.schedule().step()
            servers.now += timedelta(seconds=5)
        assert servers.job.status.ready == "2/2", servers.job.status.conditions
        assert len(servers.live()) == 2 * SIZE


TestGangLife = pytest.mark.timeout(300)(GangLife.TestCase)
TestGangLife.settings = settings(
    max_examples=cases(15), stateful_step_count=12, deadline=None, suppress_health_check=list(HealthCheck)
)
