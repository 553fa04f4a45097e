"""Tests of identities, login limits, sessions and permissions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from ipaddress import ip_network
from typing import Any

import pytest

from convoy_operator import errors
from convoy_operator.dashboard.auth.access import (
    RETRY_SECONDS,
    WAIT_SECONDS,
    AccessReviews,
    FullAccess,
    ReviewedAccess,
)
from convoy_operator.dashboard.auth.identity import (
    AUTHENTICATED,
    Identity,
    address_of,
    from_headers,
    from_review,
    within,
)
from convoy_operator.dashboard.auth.login_limit import (
    ADDRESS_BURST,
    OVERALL_BURST,
    TRIES,
    TRIES_BURST,
    LoginLimit,
)
from convoy_operator.dashboard.auth.request_guard import same_site
from convoy_operator.dashboard.auth.session_resolver import SessionResolver, cookie_of
from convoy_operator.dashboard.auth.sessions import MAX_SESSIONS, MAX_SESSIONS_PER_USER, Session, Sessions
from convoy_operator.dashboard.page_limit import is_reached
from convoy_operator.dashboard.settings import LOCAL_NAMES, DashboardSettings, from_environment
from convoy_operator.settings import SettingError

ADA = Identity("ada", ("team",))


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize(
    ("status", "found"),
    [
        ({"authenticated": True, "user": {"username": "ada", "groups": ["team"]}}, ADA),
        ({"authenticated": True, "user": {"username": "ada"}}, Identity("ada")),
        (
            {
                "authenticated": True,
                "user": {"username": "ada", "uid": "7", "groups": ["b", "a"], "extra": {"k": ["2", "1"]}},
            },
            Identity("ada", ("a", "b"), "7", (("k", ("1", "2")),)),
        ),
        ({"authenticated": True, "user": {}}, None),
        ({"authenticated": False, "user": {"username": "ada"}}, None),
        ({"authenticated": "true", "user": {"username": "ada"}}, None),
        ({}, None),
    ],
)
def test_the_user_of_a_review(status: dict[str, Any], found: Identity | None) -> None:
    assert from_review(status) == found


@pytest.mark.parametrize(
    ("user", "groups", "found"),
    [
        ("ada", "team, ops,,team", Identity("ada", ("team", "ops", AUTHENTICATED))),
        ("ada", "", Identity("ada", (AUTHENTICATED,))),
        ("ada", "system:masters,team", Identity("ada", ("team", AUTHENTICATED))),
        ("system:admin", "", None),
        ("", "team", None),
        ("a" * 600, "", None),
    ],
)
def test_the_user_that_a_proxy_names(user: str, groups: str, found: Identity | None) -> None:
    assert from_headers(user, groups) == found


@pytest.mark.parametrize(
    ("address", "inside"),
    [
        ("10.1.2.3", True), ("::ffff:10.1.2.3", True), ("11.0.0.1", False), ("fd00::1", True), ("", False),
        ("x", False),
    ],
)  # fmt: skip
def test_addresses_of_proxies(address: str, inside: bool) -> None:
    assert within(address, (ip_network("10.0.0.0/8"), ip_network("fd00::/8"))) is inside


def test_the_failure_limit_of_an_address_refills_over_time() -> None:
    clock = Clock()
    limit = LoginLimit(clock)
    assert [limit.acquire("a") for _ in range(ADDRESS_BURST + 1)] == [True] * ADDRESS_BURST + [False]
    assert limit.acquire("b")
    clock.now += 12
    assert [limit.acquire("a"), limit.acquire("a")] == [True, False]


def logins(limit: LoginLimit, address: str, tries: int) -> int:
    """Return how many of `tries` successful logins are allowed."""
    return sum(limit.acquire(address) and (limit.refund_failure(address) or True) for _ in range(tries))


def test_successful_logins_have_a_higher_limit() -> None:
    clock = Clock()
    limit = LoginLimit(clock)
    assert logins(limit, "a", 10 * TRIES_BURST) == TRIES_BURST > 10 * ADDRESS_BURST
    assert logins(limit, "b", 1) == 1
    clock.now += 60
    assert logins(limit, "a", 10 * TRIES_BURST) == 60 * TRIES


def test_refused_logins_cost_no_tokens() -> None:
    clock = Clock()
    limit = LoginLimit(clock)
    assert sum(limit.acquire("a") for _ in range(10 * TRIES_BURST)) == ADDRESS_BURST
    clock.now += 12
    assert limit.acquire("a")
    clock.now += 12 * ADDRESS_BURST
    assert logins(limit, "a", 1) == 1


def test_many_addresses_share_a_limit() -> None:
    limit = LoginLimit(Clock())
    assert sum(limit.acquire(str(number)) for number in range(3 * OVERALL_BURST)) == OVERALL_BURST


@pytest.mark.parametrize(
    ("steps", "alive"), [([50, 59], True), ([60], False), ([59, 59, 59, 59], False), ([59, 59, 50], True)]
)
def test_sessions_end_when_idle_and_after_their_longest_lifetime(steps: list[float], alive: bool) -> None:
    clock = Clock()
    sessions = Sessions(idle=60, longest=200, clock=clock)
    session = sessions.start(ADA, FullAccess(), "secret")
    ended: list[str] = []
    session.on_end.append(lambda: ended.append("over"))
    for step in steps:
        clock.now += step
        if found := sessions.find(session.id):
            sessions.use(found)
    assert (sessions.find(session.id) is session, session.over, session.token is None) == (
        alive, not alive, not alive
    )  # fmt: skip
    assert ended == ([] if alive else ["over"])


def test_ids_are_long_and_tokens_are_not_shown() -> None:
    sessions = Sessions(60, 600)
    one, two = (sessions.start(ADA, FullAccess(), "s3cret") for _ in range(2))
    assert one.id != two.id and len(one.id) >= 40
    assert "s3cret" not in repr(one) and one.id not in repr(one)


class UserSessions:
    """Sessions of several users. Each session starts a moment after the previous one."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.sessions = Sessions(600, 6000, self.clock)

    def start(self, user: str) -> Session:
        self.clock.now += 0.001
        return self.sessions.start(Identity(user), FullAccess())

    def of(self, user: str) -> int:
        return sum(one.identity.user == user for one in self.sessions.all())


def test_repeated_logins_end_only_sessions_of_the_same_user() -> None:
    users = UserSessions()
    other = users.start("eve")
    own = [users.start("ada") for _ in range(MAX_SESSIONS_PER_USER)]
    users.clock.now += 1
    users.sessions.use(own[0])
    for _ in range(2 * MAX_SESSIONS):
        users.start("ada")
        assert users.of("ada") == MAX_SESSIONS_PER_USER and not other.over
    users = UserSessions()
    own = [users.start("ada") for _ in range(MAX_SESSIONS_PER_USER)]
    users.clock.now += 1
    users.sessions.use(own[0])
    users.start("ada")
    assert [one.over for one in own[:3]] == [False, True, False], "the one that was idle longest"


def test_at_the_session_limit_a_user_with_the_most_sessions_loses_one() -> None:
    users = UserSessions()
    first = users.start("ada")
    for number in range(MAX_SESSIONS // MAX_SESSIONS_PER_USER):
        for _ in range(MAX_SESSIONS_PER_USER - 1):
            users.start(f"greedy-{number}")
    while len(users.sessions) < MAX_SESSIONS:
        users.start(f"single-{len(users.sessions)}")
    for number in range(MAX_SESSIONS // MAX_SESSIONS_PER_USER):
        users.start(f"new-{number}")
        assert (
            len(users.sessions) == MAX_SESSIONS and users.of(f"greedy-{number}") == MAX_SESSIONS_PER_USER - 2
        )
    assert not first.over, "it was idle longest, and is the only one of its user"


@pytest.mark.parametrize(
    ("pages", "own", "is_full"),
    [
        (0, 0, False),
        (49, 49, False),
        (50, 50, True),
        (100, 49, False),
        (101, 49, True),
        (149, 0, False),
        (149, 1, True),
        (150, 0, True),
        (160, 0, True),
    ],
)
def test_pages_that_a_reader_may_open(pages: int, own: int, is_full: bool) -> None:
    assert is_reached(pages, own, limit=150, limit_each=50) is is_full


def test_a_few_readers_cannot_occupy_all_pages() -> None:
    for greedy in (1, 3, 10, 30):
        held = [0] * greedy
        for _ in range(1000):
            for one in range(greedy):
                held[one] += not is_reached(sum(held), held[one], limit=150, limit_each=50)
        assert sum(held) < 150 and min(held) > 0, greedy


class Reviewer:
    def __init__(self, allowed: dict[str, set[str]]) -> None:
        self.allowed = allowed
        self.requests = 0
        self.away = False
        self.fault: Exception | None = None
        self.free = asyncio.Event()
        self.free.set()
        self.users = {"good": {"authenticated": True, "user": {"username": "ada", "groups": ["team"]}}}

    async def review_access(self, identity: Identity, wanted: Mapping[str, str]) -> dict[str, Any]:
        self.requests += 1
        await self.free.wait()
        if self.fault is not None:
            raise self.fault
        if self.away:
            raise errors.Unavailable(0, "away")
        assert identity == ADA
        where = wanted.get("namespace", "*")
        return {"allowed": where in self.allowed.get(f"{wanted['verb']} {wanted['resource']}", set())}

    async def review_token(self, token: str) -> dict[str, Any]:
        if self.away:
            raise errors.Unavailable(0, "away")
        return self.users.get(token, {"authenticated": False})


def test_reviews_are_cached_and_hold_during_an_outage() -> None:
    clock, reviewer = Clock(), Reviewer({"list trainingjobs": {"a"}, "get pods": {"a"}})
    access = ReviewedAccess(AccessReviews(reviewer, 60, clock, lambda: 0.0), ADA)

    async def play() -> None:
        assert await access.namespaces(["a", "b"]) == {"a"}
        assert reviewer.requests == 3
        assert await access.namespaces(["a", "b"]) == {"a"}
        assert (await access.everywhere(), reviewer.requests) == (False, 3)
        assert (await access.nodes(), await access.logs("a"), await access.logs("b")) == (False, True, False)
        reviewer.away, clock.now = True, clock.now + 61
        assert await access.namespaces(["a", "b", "new"]) == {"a"}
        before, reviewer.away = reviewer.requests, False
        clock.now += RETRY_SECONDS - 1
        assert await access.namespaces(["a", "b", "new"]) == {"a"} and reviewer.requests == before
        clock.now += 2
        reviewer.allowed = {"list trainingjobs": {"*"}}
        assert await access.namespaces(["a", "b"]) == {"a", "b"} and await access.everywhere()
        assert not await access.logs("a")

    asyncio.run(play())


def test_all_sessions_of_a_user_share_one_review() -> None:
    reviewer = Reviewer({"list trainingjobs": {"*"}})
    reviews = AccessReviews(reviewer, 60)

    async def play() -> None:
        many = [ReviewedAccess(reviews, ADA) for _ in range(30)]
        assert all(await asyncio.gather(*(one.everywhere() for one in many)))
        assert reviewer.requests == 1

    asyncio.run(play())


def test_cached_decisions_expire_at_different_times() -> None:
    clock, reviewer, rolled = Clock(), Reviewer({"list trainingjobs": {"a"}}), iter([0.0, 0.0, 1.0] * 9)
    access = ReviewedAccess(AccessReviews(reviewer, 60, clock, lambda: next(rolled)), ADA)

    async def play() -> None:
        await access.namespaces(["a", "b"])
        clock.now += 59
        await access.namespaces(["a", "b"])
        assert reviewer.requests == 3 + 1

    asyncio.run(play())


def test_a_page_stops_waiting_for_a_slow_review(
    virtual: Callable[[Coroutine[Any, Any, None]], None],
) -> None:
    async def play() -> None:
        clock = asyncio.get_running_loop().time
        reviewer = Reviewer({"list trainingjobs": {"*"}})
        access = ReviewedAccess(AccessReviews(reviewer, 60, clock), ADA)
        reviewer.free.clear()
        start = clock()
        assert not await access.everywhere() and access.undecided
        assert clock() - start == pytest.approx(WAIT_SECONDS)
        assert not await access.everywhere() and clock() - start == pytest.approx(WAIT_SECONDS)
        assert reviewer.requests == 1, "the one that waits in line is not asked again"
        reviewer.free.set()
        await asyncio.sleep(0.1)
        assert await access.everywhere() and not access.undecided
        assert reviewer.requests == 1

    virtual(play())


@pytest.mark.parametrize(
    ("fault", "stays"),
    [
        (errors.Unavailable(0, "away"), True),
        (errors.TooManyRequests(429, "busy"), True),
        (errors.Forbidden(403, "no right to ask"), False),
    ],
)
def test_an_expired_grant_holds_only_while_the_server_is_unavailable(fault: Exception, stays: bool) -> None:
    clock, reviewer = Clock(), Reviewer({"list nodehealths": {"*"}})
    access = ReviewedAccess(AccessReviews(reviewer, 60, clock), ADA)

    async def play() -> None:
        assert await access.nodes()
        reviewer.fault, clock.now = fault, clock.now + 61
        assert await access.nodes() is stays
        assert access.undecided is not stays

    asyncio.run(play())


@pytest.mark.parametrize(
    ("peer", "forwarded", "address"),
    [
        ("1.2.3.4", "", "1.2.3.4"),
        ("1.2.3.4", "9.9.9.9", "1.2.3.4"),
        ("10.0.0.1", "", "10.0.0.1"),
        ("10.0.0.1", "9.9.9.9", "9.9.9.9"),
        ("10.0.0.1", "8.8.8.8, 9.9.9.9, 10.0.0.2", "9.9.9.9"),
        ("10.0.0.1", "8.8.8.8, nonsense", "10.0.0.1"),
        ("10.0.0.1", "10.0.0.3", "10.0.0.1"),
    ],
)
def test_the_client_address_behind_a_proxy(peer: str, forwarded: str, address: str) -> None:
    assert address_of(peer, forwarded, (ip_network("10.0.0.0/8"),)) == address


def session_resolver(mode: str, **settings: Any) -> tuple[SessionResolver, Reviewer]:
    reviewer = Reviewer({})
    return SessionResolver(DashboardSettings(auth_mode=mode, **settings), reviewer), reviewer


@pytest.mark.parametrize("token", ["", "bad", "x" * 20_000, "go\nod", "gööd"])
def test_an_invalid_token_creates_no_session(token: str) -> None:
    assert asyncio.run(session_resolver("TokenReview")[0].log_in(token)) is None


def test_a_login_creates_a_session_that_its_cookie_finds() -> None:
    found = session_resolver("TokenReview")[0]
    session = asyncio.run(found.log_in(" good\n"))
    assert session is not None and session.identity == ADA
    headers = {"cookie": f'odd[1]="; other=1; convoy-session={session.id}'}
    assert found.resolve("1.2.3.4", lambda name: headers.get(name, "")) is session
    headers["host"] = "localhost:8090"
    assert found.resolve("1.2.3.4", lambda name: headers.get(name, "")) is None
    headers["cookie"] = f"convoy-session-8091=x; convoy-session-8090={session.id}"
    assert found.resolve("1.2.3.4", lambda name: headers.get(name, "")) is session
    assert found.resolve("1.2.3.4", lambda name: "") is None


def test_user_headers_count_only_from_a_trusted_proxy() -> None:
    headers = {"x-forwarded-user": "ada"}

    def header(name: str) -> str:
        return headers.get(name, "")

    assert session_resolver("TokenReview")[0].resolve("10.0.0.1", header) is None
    behind = session_resolver("Proxy", proxy_cidrs="10.0.0.0/8")[0]
    assert behind.resolve("11.0.0.1", header) is None
    session = behind.resolve("10.0.0.1", header)
    assert session is not None and session is behind.resolve("10.0.0.2", header)
    headers["x-forwarded-groups"] = "ops"
    assert behind.resolve("10.0.0.1", header) is not session


def test_a_secure_cookie_is_limited_to_one_host() -> None:
    found = session_resolver("TokenReview", secure_cookie=True)[0]
    assert found.cookie("convoy.example.com") == "__Host-convoy-session"
    assert found.cookie("[::1]:8443") == "__Host-convoy-session-8443"


@pytest.mark.parametrize("header", ["", "a", "convoy-session", ";;;", "convoy-sessions=x"])
def test_invalid_cookies_are_ignored(header: str) -> None:
    assert cookie_of(header, "convoy-session") == ""


@pytest.mark.parametrize(
    ("headers", "same"),
    [
        ({"origin": "http://a:1", "host": "a:1"}, True),
        ({"origin": "https://a", "host": "a"}, True),
        ({"origin": "http://a:2", "host": "a:1"}, False),
        ({"origin": "http://a.evil", "host": "a"}, False),
        ({"origin": "null", "host": "a"}, False),
        ({"origin": "null", "host": ""}, False),
        ({"host": "a"}, False),
        ({}, False),
    ],
)
def test_cross_site_requests_are_refused(headers: dict[str, str], same: bool) -> None:
    assert same_site(lambda name: headers.get(name, "")) is same


@pytest.mark.parametrize(
    ("environ", "wrong"),
    [
        ({}, ""),
        ({"AUTH_MODE": "None"}, ""),
        ({"AUTH_MODE": ""}, "AUTH_MODE"),
        ({"AUTH_MODE": "none"}, "AUTH_MODE"),
        ({"AUTH_MODE": "Proxy"}, "PROXY_CIDRS"),
        ({"AUTH_MODE": "Proxy", "PROXY_CIDRS": "10.0.0.0/8, fd00::/8"}, ""),
        ({"AUTH_MODE": "Proxy", "PROXY_CIDRS": "10.0.0.1/8"}, "PROXY_CIDRS"),
        ({"PROXY_CIDRS": "x"}, "PROXY_CIDRS"),
        ({"LOGS": "maybe"}, "LOGS"),
        ({"PORT": "-1"}, "PORT"),
        ({"IDLE_SECONDS": "an hour"}, "IDLE_SECONDS"),
    ],
)
def test_settings(environ: dict[str, str], wrong: str) -> None:
    given = {f"CONVOY_DASHBOARD_{name}": value for name, value in environ.items()}
    if not wrong:
        assert from_environment(given).auth_mode == environ.get("AUTH_MODE", "TokenReview")
        return
    with pytest.raises(SettingError, match=f"CONVOY_DASHBOARD_{wrong}"):
        from_environment(given)


@pytest.mark.parametrize(
    ("environ", "address", "hosts"),
    [
        ({}, "", set()),
        ({"BIND": "10.0.0.1"}, "10.0.0.1", set()),
        ({"HOSTS": "A.example.com, b"}, "", {"a.example.com", "b"}),
        ({"AUTH_MODE": "None"}, "127.0.0.1", LOCAL_NAMES),
        ({"AUTH_MODE": "None", "PAGES_BIND": "::", "HOSTS": "c"}, "::", {"c"}),
    ],
)
def test_without_authentication_pages_listen_on_the_loopback(
    environ: dict[str, str], address: str, hosts: set[str]
) -> None:
    found = from_environment({f"CONVOY_DASHBOARD_{name}": value for name, value in environ.items()})
    assert (found.pages_address, found.allowed_hosts) == (address, hosts)


def test_boolean_settings_are_parsed_from_words() -> None:
    found = from_environment({"CONVOY_DASHBOARD_LOGS": "false", "CONVOY_DASHBOARD_SECURE_COOKIE": "True"})
    assert (found.logs, found.secure_cookie) == (False, True)
