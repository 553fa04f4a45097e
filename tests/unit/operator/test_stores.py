"""Remote stores in the hub: who is told of one and when, who tries it, and what is believed of that."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from math import inf
from typing import Any

import pytest
import structlog

from convoy_agents.wire import hub_pb2 as wire
from convoy_agents.wire.callers import Caller
from convoy_controllers.checkpointstore.observed import Secret
from convoy_controllers.plan import Assign, MemoryTiers, PickPort, StoreUse
from convoy_controllers.testing.builders import make_job, make_store
from convoy_crds import storekeys
from convoy_operator import errors, views
from convoy_operator.hub import credentials, messages
from convoy_operator.hub.agents import Agents
from convoy_operator.hub.sessions import Sessions
from convoy_operator.keys import CHECKPOINT_STORE, TRAINING_JOB, Key
from convoy_operator.metrics import Metrics
from convoy_operator.resources import CHECKPOINT_STORES, SECRETS
from convoy_operator.settings import Settings
from convoy_operator.world import World

from .conftest import FakeApi

KEYS = {"accessKey": "AKIA-VISIBLE-1", "secretKey": "s3cr3t-VISIBLE-2"}
HOURLY = 3600.0


def secret(**data: str) -> dict[str, Any]:
    return {"data": {key: base64.b64encode(text.encode()).decode() for key, text in data.items()}}


class TestCredentials:
    @pytest.mark.parametrize(
        ("data", "found", "missing"),
        [
            (secret(**KEYS), KEYS, ()),
            (secret(accessKey=" a\n", secretKey="b\r\n", sessionToken=""),
             {"accessKey": "a", "secretKey": "b"}, ()),
            (secret(**KEYS, sessionToken="t", other="x"), {**KEYS, "sessionToken": "t"}, ()),
            (secret(accessKey="a"), {"accessKey": "a"}, ("secretKey",)),
            (secret(accessKey="\n", secretKey="b"), {"secretKey": "b"}, ("accessKey",)),
            ({"data": {"accessKey": "/w==", "secretKey": "%%%"}}, {}, ("accessKey", "secretKey")),
            ({"data": None}, {}, ("accessKey", "secretKey")),
            ({}, {}, ("accessKey", "secretKey")),
        ],
    )  # fmt: skip
    def test_what_a_secret_holds(self, data: Any, found: dict[str, str], missing: tuple[str, ...]) -> None:
        assert storekeys.decoded(data) == found
        assert storekeys.missing(storekeys.decoded(data)) == missing

    def test_the_version_is_of_everything_and_of_nothing_else(self) -> None:
        plain = {"bucket": "checkpoints", "credentialsSecret": "keys"}
        others: list[tuple[dict[str, Any], dict[str, str]]] = [
            ({}, KEYS),
            ({"bucket": "other"}, KEYS),
            ({"endpoint": "http://x"}, KEYS),
            ({"region": "eu"}, KEYS),
            ({"prefix": "p"}, KEYS),
            ({"pathStyle": True}, KEYS),
            ({}, {**KEYS, "accessKey": "a"}),
            ({}, {**KEYS, "secretKey": "b"}),
            ({}, {**KEYS, "sessionToken": "t"}),
        ]
        made = [credentials.message(make_store(s3={**plain, **s3}), keys) for s3, keys in others]
        assert len({one.version for one in made}) == len(others)
        same = make_store(ready="False", s3={**plain, "credentialsSecret": "else"}, allowedNamespaces=["a"])
        assert credentials.message(same, KEYS).version == made[0].version
        assert len(made[0].version) == 64

    def test_a_volume_has_no_keys(self) -> None:
        places = [{"claimName": "disk"}, {"claimName": "other"}, {"claimName": "disk", "path": "team"}]
        made = [credentials.message(make_store(s3=None, volume=place), {}) for place in places]
        told = [(one.volume.claim, one.volume.path, one.bucket, one.access_key) for one in made]
        assert told == [("disk", "", "", ""), ("other", "", "", ""), ("disk", "team", "", "")]
        assert len({one.version for one in made}) == len(made)
        assert not credentials.message(make_store(), KEYS).HasField("volume")


class Queue:
    def __init__(self) -> None:
        self.added: list[Key] = []

    def add(self, key: Key, delay: float = 0.0, *, high: bool = True) -> None:
        self.added.append(key)

    def take(self) -> list[Key]:
        taken, self.added = self.added, []
        return [key for key in taken if key.kind == CHECKPOINT_STORE]


class Harness:
    """A hub, one store `s3`, its Secret, and jobs that use it."""

    def __init__(self, api: FakeApi) -> None:
        self.api = api
        self.now = 1000.0
        self.world = World()
        self.queue = Queue()
        self.agents = Agents(
            self.world,
            self.queue,  # type: ignore[arg-type]
            Metrics(),
            Settings(),
            api,
            progress_delay=lambda key: 10.0,
            clock=lambda: self.now,
            wall=lambda: self.now,
        )
        self.streams: dict[str, Any] = {}
        self.keys(**KEYS)
        self.put()

    @property
    def stores(self) -> Any:
        return self.agents.stores

    def keys(self, **data: str) -> None:
        self.api.put(SECRETS, {"metadata": {"name": "keys"}, **secret(**data)}, "convoy-system")

    def put(self, *allowed: str, **s3: Any) -> None:
        body = {"bucket": "checkpoints", "credentialsSecret": "keys", **s3}
        self._put({"s3": body, "allowedNamespaces": list(allowed or ("*",))})

    def put_volume(self, **volume: Any) -> None:
        """In place of the bucket."""
        self._put({"volume": {"claimName": "disk", **volume}, "allowedNamespaces": ["*"]})

    def _put(self, spec: dict[str, Any]) -> None:
        old = self.world.checkpoint_stores.get("", "s3")
        metadata = {"name": "s3", "uid": old.uid if old else "uid-s3"}
        raw = self.api.put(CHECKPOINT_STORES, {"metadata": metadata, "spec": spec})
        self.world.checkpoint_stores.upsert(views.parent(raw))

    def job(self, node: str, name: str = "job", store: str = "s3", owner: str = "") -> None:
        tiers = {"local": {}, "remote": {"store": store}}
        raw = make_job(name, checkpoint={"tiers": tiers}).to_dict()
        raw["metadata"]["resourceVersion"] = "1"
        self.world.jobs.upsert(views.parent(raw))
        metadata = {
            "name": f"{name}-{node}",
            "namespace": "default",
            "uid": f"{name}-{node}",
            "resourceVersion": "1",
            "labels": {"convoy.dev/job": name},
            "ownerReferences": [{"uid": owner or f"uid-{name}", "controller": True}],
        }
        self.world.pods.upsert(views.pod({"metadata": metadata, "spec": {"nodeName": node}}))

    def dial(self, node: str) -> list[wire.Store]:
        """An agent dials; what it is told of stores at once."""
        self.streams[node] = self.agents.join(wire.Hello(node=node, peer_address=f"{node}:1"))
        return self.told(node)

    def told(self, node: str) -> list[wire.Store]:
        """What was said of stores to the agent of a node since the last look."""
        return [one.store for one in self.messages(node) if one.HasField("store")]

    def messages(self, node: str) -> list[wire.HubMessage]:
        box = self.streams[node].outbox
        return [box.get_nowait() for _ in range(box.qsize())]

    async def resolve(self) -> None:
        found = self.world.checkpoint_stores.get("", "s3")
        assert found is not None
        await self.agents.resolve(found)

    def look(self, seconds: float = 0.0) -> dict[str, list[wire.Store]]:
        """After so much time: who was told of stores, and what."""
        self.now += seconds
        self.stores.look()
        return {node: said for node in self.streams if (said := self.told(node))}

    def answer(self, node: str, told: wire.Store, **more: Any) -> None:
        said = {"reached": True, "conditional": True, "checksums": True, "message": "works", **more}
        self.stores.report(node, wire.StoreReport(**{"name": told.name, "version": told.version, **said}))

    def seen(self) -> Any:
        return self.agents.store(make_store())


@pytest.fixture
async def it(api: FakeApi) -> Harness:
    return Harness(api)


def assignment(node: str, store: str | None = "s3", incarnation: int = 1) -> Assign:
    use = StoreUse(store, 600, 2, 5) if store else None
    return Assign(
        node=node, pod_uid="u", job_uid="j", job="default/job", incarnation=incarnation, slot=0,
        rank_offset=0, processes=1, world_size=1, master_addr="a", master_port=1, hang_seconds=9,
        role="w", replica=0, command=("x",), members=(), memory=MemoryTiers(0, 0, store=use),
    )  # fmt: skip


class TestSecret:
    @pytest.mark.parametrize(
        ("fault", "words"),
        [
            (errors.NotFound(404, "no"), "there is none"),
            (errors.Forbidden(403, "no"), "operator.storeSecrets"),
        ],
    )
    async def test_a_secret_that_cannot_be_read_is_said(
        self, it: Harness, fault: Exception, words: str
    ) -> None:
        it.api.fail = lambda verb, plural, name: fault if plural == "secrets" else None
        it.dial("n0")
        await it.resolve()
        assert words in it.seen().secret.unreadable and it.look(60) == {}

    async def test_an_api_server_that_does_not_answer_changes_nothing(self, it: Harness) -> None:
        it.dial("n0")
        await it.resolve()
        (told,) = it.told("n0")
        it.answer("n0", told)
        it.api.fail = lambda verb, plural, name: errors.Unavailable(503, "later")
        with pytest.raises(errors.Unavailable):
            await it.resolve()
        assert it.seen().probe.reached and not it.seen().secret.unreadable

    async def test_a_secret_that_is_not_whole_is_not_sent(self, it: Harness) -> None:
        it.dial("n0")
        it.keys(accessKey="a")
        await it.resolve()
        assert it.seen().secret.missing == ("secretKey",) and it.look(60) == {}
        it.keys(**KEYS)
        await it.resolve()
        (told,) = it.told("n0")
        assert (told.access_key, told.secret_key, told.probe) == (*KEYS.values(), True)
        it.keys(accessKey="a")
        await it.resolve()
        assert it.seen().probe is None and it.seen().secret.missing == ("secretKey",)

    async def test_only_the_operators_namespace_is_asked(self, it: Harness) -> None:
        asked: list[Any] = []
        get = it.api.get

        async def note(resource: Any, namespace: Any, name: str) -> Any:
            asked.append((resource.plural, namespace, name))
            return await get(resource, namespace, name)

        it.api.get = note  # type: ignore[method-assign]
        await it.resolve()
        assert asked == [("secrets", "convoy-system", "keys")]

    async def test_a_store_that_went_meanwhile_is_not_taken_up(self, it: Harness) -> None:
        found = it.world.checkpoint_stores.get("", "s3")
        assert found is not None
        it.world.checkpoint_stores.remove(found)
        await it.agents.resolve(found)
        assert it.seen() is None
        again = it.api.put(CHECKPOINT_STORES, {"metadata": {"name": "s3", "uid": "new"}, "spec": {}})
        it.world.checkpoint_stores.upsert(views.parent(again))
        await it.agents.resolve(found)
        assert it.seen() is None, "this one is another"

    async def test_a_deleted_store_is_forgotten(self, it: Harness) -> None:
        it.job("n0")
        await it.resolve()
        found = it.world.checkpoint_stores.get("", "s3")
        assert found is not None
        it.world.checkpoint_stores.remove(found)
        assert it.seen() is None and it.dial("n0") == [] and it.look(60) == {}


class TestVolume:
    async def test_it_is_told_and_tried_without_a_secret(self, it: Harness) -> None:
        it.put_volume(path="team")
        it.api.fail = lambda verb, plural, name: errors.Forbidden(403, "no") if plural == "secrets" else None
        it.dial("n0")
        await it.resolve()
        (told,) = it.told("n0")
        assert (told.volume.claim, told.volume.path, told.probe) == ("disk", "team", True)
        assert it.seen().secret == Secret()
        it.answer("n0", told)
        assert it.seen().probe.reached and not it.seen().probe.unmounted

    async def test_an_agent_that_begins_is_asked_at_once_while_the_claim_is_missed(self, it: Harness) -> None:
        it.put_volume()
        for node in ("n0", "n1"):
            it.dial(node)
        await it.resolve()
        (told,) = it.told("n0")
        for node in ("n0", "n1", "n0"):
            it.answer(node, told, reached=False, unmounted=True)
            assert it.seen().probe.unmounted
            it.look(20)
        it.answer("n1", told, reached=False, unmounted=True)
        assert [one.probe for one in it.dial("n1")] == [True], "its claims are mounted as it starts"
        assert it.dial("n2") == [], "one at a time"
        it.answer("n1", told)
        assert it.seen().probe.reached and it.dial("n2") == []

    async def test_another_failure_is_no_reason_to_ask_who_begins(self, it: Harness) -> None:
        it.put_volume()
        it.dial("n0")
        await it.resolve()
        (told,) = it.told("n0")
        it.answer("n0", told, reached=False)
        assert it.dial("n1") == [] and list(it.look(5)) == ["n1"]


class TestWhoIsTold:
    async def test_an_agent_is_told_the_stores_of_the_jobs_on_its_node_before_anything_else(
        self, it: Harness
    ) -> None:
        await it.resolve()
        it.job("n0")
        it.job("n0", "twin")
        it.job("n1", "other", store="unknown")
        it.job("n2", "stranger", owner="somebody")
        asked = wire.PodReport(pod_uid="job-n0", launcher_connected=True)
        it.streams["n0"] = it.agents.join(wire.Hello(node="n0", peer_address="n0:1", pods=[asked]))
        first = it.messages("n0")[0]
        assert first.store.name == "s3" and not first.store.probe and not first.store.conditional
        assert it.dial("n1") == [] and it.dial("n2") == []

    @pytest.mark.parametrize(("allowed", "told"), [(("*",), 1), (("default",), 1), (("elsewhere",), 0)])
    async def test_a_store_is_for_the_jobs_of_its_namespaces(
        self, it: Harness, allowed: tuple[str, ...], told: int
    ) -> None:
        it.put(*allowed)
        await it.resolve()
        it.job("n0")
        assert len(it.dial("n0")) == told

    async def test_an_assignment_comes_after_its_store_which_is_told_once(self, it: Harness) -> None:
        it.dial("n0")
        await it.resolve()
        (probed,) = it.told("n0")
        it.answer("n0", probed)
        it.dial("n1")
        it.agents.send(PickPort("n1", "u", 1))
        it.agents.send(assignment("n1"))
        kinds = [one.WhichOneof("body") for one in it.messages("n1")]
        assert kinds == ["pick_port", "store", "assignment"]
        it.agents.send(assignment("n1", incarnation=2))
        (again,) = it.messages("n1")
        use = again.assignment.memory.store
        assert (use.name, use.every_seconds, use.keep_last, use.keep_every_steps) == ("s3", 600, 2, 5)

    @pytest.mark.parametrize("store", [None, "nobodys"])
    async def test_an_assignment_without_a_known_store_goes_alone(self, it: Harness, store: Any) -> None:
        await it.resolve()
        it.dial("n0")
        it.agents.send(assignment("n0", store))
        assert [one.WhichOneof("body") for one in it.messages("n0")] == ["assignment"]

    @pytest.mark.parametrize(
        ("allowed", "node"), [("default", "n1"), ("elsewhere", "n0")], ids=["its own", "another"]
    )
    async def test_a_store_that_becomes_whole_goes_where_its_jobs_are(
        self, it: Harness, allowed: str, node: str
    ) -> None:
        it.put(allowed)
        it.keys()
        await it.resolve()
        for one in ("n0", "n1", "n2"):
            it.dial(one)
        it.job("n1")
        it.keys(**KEYS)
        await it.resolve()
        told = it.look()
        assert set(told) == {node}, "or to whom it is to be tried by, where nobody may use it"
        assert told[node][-1].probe

    async def test_what_was_found_out_goes_to_all_who_know_it(self, it: Harness) -> None:
        await it.resolve()
        it.job("n1")
        for node in ("n0", "n1", "n2"):
            it.dial(node)
        it.job("n2")
        (probed,) = it.look()["n1"]
        it.answer("n1", probed)
        told = it.look()
        assert {node: [one.conditional for one in said] for node, said in told.items()} == {
            "n1": [True],
            "n2": [True],
        }
        assert it.look(10) == {}

    async def test_renewed_credentials_go_to_all_who_have_the_old_and_are_tried(self, it: Harness) -> None:
        await it.resolve()
        it.job("n1")
        for node in ("n0", "n1", "n2"):
            it.dial(node)
        (old,) = it.look()["n1"]
        it.answer("n1", old)
        it.look()
        await it.resolve()
        assert it.look() == {}, "nothing is new"
        it.keys(accessKey="new", secretKey="new")
        await it.resolve()
        told = it.look()
        assert set(told) == {"n1"}
        versions = {one.version for said in told.values() for one in said}
        assert len(versions) == 1 and old.version not in versions
        assert not any(one.conditional for said in told.values() for one in said), "unknown until it is tried"
        assert [one.probe for one in told["n1"]] == [False, True]
        assert it.seen().probe is None and it.seen().fresh
        it.now += 31
        assert not it.seen().fresh

    async def test_a_new_stream_knows_nothing(self, it: Harness) -> None:
        await it.resolve()
        it.job("n0")
        assert len(it.dial("n0")) == 1
        assert len(it.dial("n0")) == 1


class TestTrying:
    async def test_one_agent_at_a_time_is_asked_and_another_after_a_failure(self, it: Harness) -> None:
        for node in ("n0", "n1", "n2"):
            it.dial(node)
        await it.resolve()
        waited, order = [], []
        for _ in range(9):
            began = it.now
            while not (told := it.look()):
                it.now += 1
            ((node, (asked,)),) = told.items()
            assert asked.probe
            waited.append(it.now - began)
            order.append(node)
            it.answer(node, asked, reached=False, conditional=True, message="refused")
            assert it.queue.take() == [Key(CHECKPOINT_STORE, "", "s3")]
        assert order == ["n0", "n1", "n2"] * 3
        assert waited == [0, 5, 10, 20, 40, 80, 160, 300, 300]
        probe = it.seen().probe
        assert (probe.reached, probe.conditional, probe.message, probe.node) == (
            False,
            False,
            "refused",
            "n2",
        )

    async def test_a_store_that_was_reached_is_tried_again_each_hour_by_the_same(self, it: Harness) -> None:
        for node in ("n0", "n1"):
            it.dial(node)
        await it.resolve()
        (asked,) = it.told("n0")
        it.answer("n0", asked)
        it.look()
        assert it.look(HOURLY - 1) == {}
        assert [one.probe for one in it.look(1)["n0"]] == [True]
        it.answer("n0", asked, reached=False)
        assert not it.seen().probe.reached
        assert [one.conditional for one in it.look(5)["n1"]] == [True], "an outage says nothing of that"

    async def test_keys_go_to_the_nodes_that_use_them_before_others(self, it: Harness) -> None:
        for node in ("n0", "n1", "n2", "n3"):
            it.dial(node)
        it.job("n1")
        it.job("n3")
        await it.resolve()
        it.told("n3")
        order = []
        for _ in range(5):
            while not (told := it.look()):
                it.now += 1
            ((node, (*_, asked)),) = told.items()
            order.append(node)
            it.answer(node, asked, reached=False)
        assert order == ["n1", "n3", "n0", "n1", "n2"], "others once it has failed for all who use it"

    async def test_who_has_lost_the_use_of_a_store_is_asked_no_more(self, it: Harness) -> None:
        for node in ("n0", "n1"):
            it.dial(node)
        await it.resolve()
        (asked,) = it.told("n0")
        it.answer("n0", asked)
        it.job("n1")
        it.look()
        assert list(it.look(HOURLY)) == ["n1"]

    async def test_nobody_is_asked_before_somebody_is_there(self, it: Harness) -> None:
        await it.resolve()
        assert it.look(100) == {} and it.seen().asked == ""
        it.dial("n0")
        assert [one.probe for one in it.look()["n0"]] == [True]
        assert it.seen().asked == "n0"

    async def test_who_does_not_answer_is_asked_no_more(self, it: Harness) -> None:
        for node in ("n0", "n1"):
            it.dial(node)
        await it.resolve()
        (asked,) = it.told("n0")
        assert it.look(89) == {}
        assert it.look(1) == {} and it.seen().asked == ""
        assert list(it.look(5)) == ["n1"]
        it.answer("n0", asked)
        assert it.seen().probe is None, "too late"

    @pytest.mark.parametrize("how", ["leaves", "dials again", "is deleted"])
    async def test_with_its_stream_goes_what_an_agent_was_asked(self, it: Harness, how: str) -> None:
        for node in ("n0", "n1"):
            it.dial(node)
        await it.resolve()
        (asked,) = it.told("n0")
        if how == "leaves":
            it.agents.leave(it.streams["n0"])
        elif how == "dials again":
            it.dial("n0")
        else:
            raw = {"metadata": {"name": "n0", "uid": "x", "resourceVersion": "1"}}
            it.world.nodes.upsert(views.node(raw))
            it.world.nodes.remove(views.node(raw))
        it.answer("n0", asked)
        assert it.seen().probe is None
        assert list(it.look(5)) == ["n1"]

    @pytest.mark.parametrize(
        ("node", "change"),
        [
            ("n1", {}),
            ("", {}),
            ("n0", {"version": "0" * 64}),
            ("n0", {"version": ""}),
            ("n0", {"name": "other"}),
        ],
    )
    async def test_a_report_is_believed_of_whom_was_asked_on_what_is(
        self, it: Harness, node: str, change: dict[str, str]
    ) -> None:
        for one in ("n0", "n1"):
            it.dial(one)
        await it.resolve()
        (asked,) = it.told("n0")
        it.queue.take()
        it.answer(node, asked, **change)
        assert it.seen().probe is None and it.queue.take() == [] and it.look() == {}
        it.answer("n0", asked)
        assert it.seen().probe.conditional and it.queue.take() == [Key(CHECKPOINT_STORE, "", "s3")]
        it.answer("n0", asked, reached=False)
        assert it.seen().probe.reached, "it was asked once"

    async def test_a_report_on_the_old_credentials_says_nothing_of_the_new(self, it: Harness) -> None:
        it.dial("n0")
        await it.resolve()
        (old,) = it.told("n0")
        it.keys(accessKey="new", secretKey="new")
        await it.resolve()
        it.answer("n0", old)
        assert it.seen().probe is None

    async def test_a_report_comes_by_the_stream(self, it: Harness) -> None:
        stream = it.agents.join(wire.Hello(node="n0"))
        await it.resolve()
        asked = stream.outbox.get_nowait().store
        left = [wire.AgentMessage(store=wire.StoreReport(name="s3", version=asked.version, reached=True))]

        class Context:
            async def read(self) -> wire.AgentMessage | None:
                return left.pop(0) if left else None

        sessions = Sessions(
            it.agents, Metrics(), leads=lambda: True, leader_address=str, renewals=int, own_address="own"
        )
        await sessions._listen(Context(), stream, Caller("n0", inf))  # type: ignore[arg-type]
        assert it.seen().probe.reached and it.seen().probe.node == "n0"


class Capture:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def __call__(self, logger: Any, method: str, event: Any) -> str:
        self.lines.append(json.dumps(event, default=repr))
        return ""


@pytest.fixture
def logged() -> Iterator[list[str]]:
    capture = Capture()
    structlog.configure(processors=[capture], logger_factory=structlog.ReturnLoggerFactory())
    yield capture.lines
    structlog.reset_defaults()


async def test_no_secret_is_shown_or_logged(logged: list[str], it: Harness) -> None:
    it.job("n0")
    stream = it.agents.join(wire.Hello(node="n0"))
    await it.resolve()
    asked = [stream.outbox.get_nowait().store for _ in range(stream.outbox.qsize())][-1]
    it.agents.send(assignment("n0", incarnation=2))
    it.answer("n1", asked)
    it.answer("n0", asked)
    it.keys(accessKey="AKIA-VISIBLE-3", secretKey="x-VISIBLE-4")
    await it.resolve()
    it.look(100)
    shown = [repr(stream), repr(it.agents.stores._known), repr(it.agents.stores._lines), repr(it.seen())]
    shown += [repr(it.agents._agents), *logged]
    assert logged and asked.secret_key == KEYS["secretKey"]
    assert not [text for text in shown if "VISIBLE" in text]


def test_a_store_use_that_is_too_long_for_the_wire_is_cut() -> None:
    given = MemoryTiers(1, 0, store=StoreUse("s3", 10**12, 2, 0))
    assert messages._memory(given, str).store.every_seconds == 2**32 - 1
    assert not messages._memory(MemoryTiers(1, 0), str).HasField("store")


async def test_a_store_is_resolved_before_it_is_planned(it: Harness) -> None:
    from convoy_operator.events import Recorder
    from convoy_operator.queue import WorkQueue
    from convoy_operator.reconcile import Reconciler

    queue: WorkQueue[Key] = WorkQueue()
    metrics = Metrics()
    reconciler = Reconciler(
        gateway=it.api,
        world=it.world,
        queue=queue,
        recorder=Recorder(it.api, metrics, "test"),
        agents=it.agents,
        metrics=metrics,
        settings=Settings(),
    )
    key = Key(CHECKPOINT_STORE, "", "s3")
    it.dial("n0")

    async def reason() -> tuple[str, str]:
        await reconciler.handle(key)
        (condition,) = it.api.objects["checkpointstores", "", "s3"]["status"]["conditions"]
        return condition["status"], condition["reason"]

    assert await reason() == ("False", "NotProbed")
    (asked,) = it.told("n0")
    it.answer("n0", asked)
    assert await reason() == ("True", "Probed")
    status = it.api.objects["checkpointstores", "", "s3"]["status"]
    assert status["capabilities"] == {"conditionalWrites": True, "checksums": True}
    assert (status["probedBy"], status["probedAt"]) == ("n0", "1970-01-01T00:16:40Z")
    assert key in queue, "its Secret is looked at again"
    assert await reason() == ("True", "Probed") and it.api.count("patch_status") == 2
    del it.api.objects["secrets", "convoy-system", "keys"]
    assert await reason() == ("False", "SecretNotFound")
    assert Key(TRAINING_JOB, "default", "job") not in queue
