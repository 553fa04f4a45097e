"""Tests of the credentials of stores: the keys of a Secret, and the places where they must not appear."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import structlog
from tests.unit.operator.store_hub import KEYS, Harness, assignment, secret

from convoy_agents.wire import hub_pb2 as wire
from convoy_controllers.resources import CHECKPOINT_STORES
from convoy_controllers.testing.builders import make_store
from convoy_crds import storekeys
from convoy_crds.checkpointstore import KIND as CHECKPOINT_STORE
from convoy_operator import errors, views
from convoy_operator.hub import credentials

from .conftest import FakeApi


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
    def test_the_fields_of_a_secret_are_validated(
        self, data: Any, found: dict[str, str], missing: tuple[str, ...]
    ) -> None:
        assert storekeys.decoded(data) == found
        assert storekeys.missing(storekeys.decoded(data)) == missing

    def test_the_version_depends_only_on_the_location_and_the_keys(self) -> None:
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
        sent = [(one.volume.claim, one.volume.path, one.bucket, one.access_key) for one in made]
        assert sent == [("disk", "", "", ""), ("other", "", "", ""), ("disk", "team", "", "")]
        assert len({one.version for one in made}) == len(made)
        assert not credentials.message(make_store(), KEYS).HasField("volume")


@pytest.fixture
async def it(api: FakeApi) -> Harness:
    return Harness(api)


class TestSecret:
    @pytest.mark.parametrize(
        ("fault", "words"),
        [
            (errors.NotFound(404, "no"), "it does not exist"),
            (errors.Forbidden(403, "no"), "operator.storeSecrets"),
        ],
    )
    async def test_an_unreadable_secret_is_reported(self, it: Harness, fault: Exception, words: str) -> None:
        it.api.fail = lambda verb, plural, name: fault if plural == "secrets" else None
        it.dial("n0")
        await it.resolve()
        assert words in it.seen().secret.unreadable and it.poll(60) == {}

    async def test_an_unavailable_api_server_changes_no_credentials(self, it: Harness) -> None:
        it.dial("n0")
        await it.resolve()
        (sent,) = it.sent("n0")
        it.report("n0", sent)
        it.api.fail = lambda verb, plural, name: errors.Unavailable(503, "later")
        with pytest.raises(errors.Unavailable):
            await it.resolve()
        assert it.seen().probe.reached and not it.seen().secret.unreadable

    async def test_an_incomplete_secret_is_not_sent(self, it: Harness) -> None:
        it.dial("n0")
        it.keys(accessKey="a")
        await it.resolve()
        assert it.seen().secret.missing == ("secretKey",) and it.poll(60) == {}
        it.keys(**KEYS)
        await it.resolve()
        (sent,) = it.sent("n0")
        assert (sent.access_key, sent.secret_key, sent.probe) == (*KEYS.values(), True)
        it.keys(accessKey="a")
        await it.resolve()
        assert it.seen().probe is None and it.seen().secret.missing == ("secretKey",)

    async def test_secrets_are_read_only_in_the_namespace_of_the_operator(self, it: Harness) -> None:
        requests: list[Any] = []
        get = it.api.get

        async def note(resource: Any, namespace: Any, name: str) -> Any:
            requests.append((resource.plural, namespace, name))
            return await get(resource, namespace, name)

        it.api.get = note  # type: ignore[method-assign]
        await it.resolve()
        assert requests == [("secrets", "convoy-system", "keys")]

    async def test_a_store_deleted_during_the_read_is_not_added(self, it: Harness) -> None:
        found = it.cache.objects(CHECKPOINT_STORE).get("", "s3")
        assert found is not None
        it.cache.objects(CHECKPOINT_STORE).remove(found)
        await it.hub.stores.resolve(found)
        assert it.seen() is None
        again = it.api.put(CHECKPOINT_STORES, {"metadata": {"name": "s3", "uid": "new"}, "spec": {}})
        it.cache.objects(CHECKPOINT_STORE).upsert(views.cached_object(again))
        await it.hub.stores.resolve(found)
        assert it.seen() is None, "this version differs"

    async def test_a_deleted_store_is_dropped(self, it: Harness) -> None:
        it.job("n0")
        await it.resolve()
        found = it.cache.objects(CHECKPOINT_STORE).get("", "s3")
        assert found is not None
        it.cache.objects(CHECKPOINT_STORE).remove(found)
        assert it.seen() is None and it.dial("n0") == [] and it.poll(60) == {}


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
    stream = it.hub.streams.join(wire.Hello(node="n0"))
    await it.resolve()
    message = [stream.outbox.get_nowait().store for _ in range(stream.outbox.qsize())][-1]
    it.hub.commands.send(assignment("n0", incarnation=2))
    it.report("n1", message)
    it.report("n0", message)
    it.keys(accessKey="AKIA-VISIBLE-3", secretKey="x-VISIBLE-4")
    await it.resolve()
    it.poll(100)
    shown = [repr(stream), repr(it.hub.stores._known), repr(it.hub.stores._streams), repr(it.seen())]
    shown += [repr(dict(it.hub.registry.items())), *logged]
    assert logged and message.secret_key == KEYS["secretKey"]
    assert not [text for text in shown if "VISIBLE" in text]
