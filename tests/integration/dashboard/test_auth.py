"""Tests of authentication and authorization. A real API server makes the reviews."""

from __future__ import annotations

import http.client
import re
from typing import Any
from urllib.parse import urlencode

import pytest
from tests.integration.dashboard.conftest import Browser, Cluster, Process, Starter, eventually
from tests.integration.dashboard.samples import training_job
from tests.integration.dashboard.viewers import Viewers

pytestmark = pytest.mark.timeout(180)
LIST_JOBS = [{"apiGroups": ["convoy.dev"], "resources": ["trainingjobs"], "verbs": ["list"]}]
ALL = [*LIST_JOBS, {"apiGroups": ["convoy.dev"], "resources": ["nodehealths"], "verbs": ["list"]}]


@pytest.fixture(scope="module")
def guarded(starter: Starter) -> Process:
    return starter("TokenReview", recheck_seconds="1")


@pytest.fixture(scope="module")
def other(cluster: Cluster, guarded: Process) -> str:
    """The name of a second namespace. Both namespaces contain a job, and the cluster has one node."""
    cluster.clear()
    name = str(cluster.plane.namespace("other"))
    cluster.make("trainingjobs", training_job("here") | {"status": {"phase": "Running"}})
    cluster.make("trainingjobs", training_job("there", name) | {"status": {"phase": "Running"}})
    cluster.plane.request("POST", "/api/v1/nodes", {"metadata": {"name": "node-1"}})
    return name


def request(
    process: Process, method: str, path: str, headers: dict[str, str] | None = None, **form: str
) -> tuple[int, dict[str, str], str]:
    """Send a request and return the status, the headers and the body of the response. Redirects are not
    followed.
    """
    connection = http.client.HTTPConnection("127.0.0.1", process.port, timeout=10)
    body = urlencode(form) if form else None
    own = {"Content-Type": "application/x-www-form-urlencoded"} if form else {}
    connection.request(method, path, body, {**own, **(headers or {})})
    response = connection.getresponse()
    found = (
        response.status,
        {key.lower(): value for key, value in response.getheaders()},
        response.read().decode(),
    )
    connection.close()
    return found


def log_in(process: Process, browser: Browser, token: str) -> None:
    browser.open(process.url)
    field = browser.find("#token")
    field.send_keys(token)
    browser.find("button[type=submit]").click()


def test_without_a_session_only_the_login_is_served(other: str, guarded: Process) -> None:
    for path, back in (("/", ""), ("/jobs/default/here", "?back=%2Fjobs%2Fdefault%2Fhere")):
        status, headers, _ = request(guarded, "GET", path)
        assert (status, headers["location"]) == (303, "/login" + back)
    assert request(guarded, "GET", "/_nicegui_ws/socket.io/?EIO=4&transport=polling")[0] == 401
    assert request(guarded, "GET", "/docs")[0] == 404
    assert request(guarded, "GET", "/openapi.json")[0] == 404
    status, headers, body = request(guarded, "GET", "/login")
    assert status == 200 and "<script" not in body
    assert headers["cache-control"] == "no-store"


def test_a_wrong_token_is_rejected_and_a_valid_one_logs_in(
    other: str, cluster: Cluster, guarded: Process, browser: Browser
) -> None:
    log_in(guarded, browser, "not-a-token")
    browser.wait_for_text("rejected this token")
    token = cluster.account("all-seeing", ALL)
    browser.find("#token").send_keys(token)
    browser.find("button[type=submit]").click()
    browser.wait_for_text("default/here")
    browser.wait_for_text(f"{other}/there")
    browser.wait_for_text("node-1")
    browser.wait_for_text("default/all-seeing")
    cookie = browser.driver.get_cookie(f"convoy-session-{guarded.port}")
    assert cookie["httpOnly"] and cookie["sameSite"] == "Strict"
    assert token not in cookie["value"]
    eventually(lambda: [one for one in browser.all("header button") if one.text == "Log out"])[0].click()
    eventually(lambda: "/login" in browser.driver.current_url)
    assert "default/here" not in browser.text
    assert token not in guarded.log.read_text()


def test_only_permitted_namespaces_are_shown(
    other: str, cluster: Cluster, guarded: Process, browser: Browser
) -> None:
    log_in(guarded, browser, cluster.account("of-one", LIST_JOBS, namespace=other))
    browser.wait_for_text(f"{other}/there")
    assert "default/here" not in browser.text and "node-1" not in browser.text
    browser.open(guarded.url + "/jobs/default/here")
    browser.wait_for_text("There is no such job, or you may not see it.")
    browser.open(guarded.url + "/nodes/node-1")
    browser.wait_for_text("There is no such node, or you may not see it.")
    browser.open(guarded.url + f"/jobs/{other}/there")
    browser.wait_for_text("Logs")
    eventually(lambda: [one for one in browser.all("button") if one.text == "Follow"])[0].click()
    browser.wait_for_text(f"you may not read logs in namespace {other}")


def test_a_reader_without_permissions_sees_nothing(
    other: str, cluster: Cluster, guarded: Process, browser: Browser
) -> None:
    log_in(guarded, browser, cluster.account("of-none", []))
    user = "system:serviceaccount:default:of-none"
    browser.wait_for_text(f"There are no TrainingJobs that {user} may list.")
    browser.wait_for_text(f"--clusterrole=convoy-trainingjobs-viewer --user={user}")
    assert f"{other}/there" not in browser.text and "node-1" not in browser.text


def test_a_revoked_token_ends_the_session(
    other: str, cluster: Cluster, guarded: Process, browser: Browser
) -> None:
    log_in(guarded, browser, cluster.account("short-lived", LIST_JOBS))
    browser.wait_for_text("default/here")
    browser.find("section[aria-labelledby=jobs] input").send_keys("her")
    eventually(lambda: browser.driver.current_url.endswith("/?jobs.words=her"))
    assert browser.find("header input[name=back]").get_attribute("value") == "/?jobs.words=her"
    cluster.plane.request("DELETE", "/api/v1/namespaces/default/serviceaccounts/short-lived")
    eventually(lambda: "/login" in browser.driver.current_url, 45)
    browser.wait_for_text("Your session has ended")
    assert browser.find("input[name=back]").get_attribute("value") == "/?jobs.words=her"


def test_an_idle_session_ends(other: str, cluster: Cluster, starter: Starter, browser: Browser) -> None:
    process = starter("TokenReview", idle_seconds="15")
    token = cluster.account("idler", LIST_JOBS)
    cookie = request(process, "POST", "/login", {"Origin": process.url}, token=token)[1]["set-cookie"]
    # This client ignores the redirect to the login page, so the dashboard must disconnect it.
    with Viewers(process.url, 1, cookie.partition(";")[0]) as stays:
        log_in(process, browser, token)
        browser.wait_for_text("default/here")
        eventually(lambda: "/login" in browser.driver.current_url)
        eventually(lambda: stays.lost == 1)
    assert "Traceback" not in process.log.read_text()
    process.stop()


def test_a_session_that_ends_before_its_page_is_connected_leads_to_the_login(
    other: str, cluster: Cluster, starter: Starter, browser: Browser
) -> None:
    process = starter("TokenReview")
    browser.driver.execute_cdp_cmd("Network.setBlockedURLs", {"urls": ["*socket.io.min.js*"]})
    try:
        log_in(process, browser, cluster.account("idler", LIST_JOBS))
        eventually(lambda: browser.driver.current_url == process.url + "/")
        browser.wait_for_text("Connection lost", 30)
        browser.driver.execute_cdp_cmd("Network.clearBrowserCookies", {})
        eventually(lambda: "/login" in browser.driver.current_url, 30)
    finally:
        browser.driver.execute_cdp_cmd("Network.setBlockedURLs", {"urls": []})
        process.stop()


def test_after_a_restart_an_open_page_returns_through_the_login(
    other: str, cluster: Cluster, starter: Starter, browser: Browser
) -> None:
    token = cluster.account("all-seeing", ALL)
    first = starter("TokenReview")
    browser.open(first.url + "/jobs/default/here")
    assert "/login" in browser.driver.current_url
    browser.find("#token").send_keys(token)
    browser.find("button[type=submit]").click()
    eventually(lambda: browser.driver.current_url == first.url + "/jobs/default/here")
    browser.wait_for_text("default/here")
    first.stop()
    browser.wait_for_text("Connection lost")
    again = starter("TokenReview", port=str(first.port))
    browser.wait_for_text("Log in with a token")
    browser.find("#token").send_keys(token)
    browser.find("button[type=submit]").click()
    eventually(lambda: browser.driver.current_url == first.url + "/jobs/default/here")
    again.stop()


def test_pages_are_bounded(other: str, starter: Starter) -> None:
    process = starter(most_pages="3")
    # Request pages that do not exist. They must not count as open pages.
    for path in ("/login.php", "/_nicegui/x", "/_nicegui/x/y", "/static/x/y", "/static/x") * 2:
        assert request(process, "GET", path)[0] == 404, path
    assert request(process, "GET", "/", {"Host": "rebound.example.com"})[0] == 403
    statuses = [request(process, "GET", "/nodes/node-1")[0] for _ in range(4)]
    assert statuses == [200, 200, 200, 503]
    status, headers, _ = request(process, "GET", "/static/convoy.css")
    assert (status, headers["cache-control"]) == (200, "no-cache")
    process.stop()


@pytest.mark.parametrize("origin", ["https://elsewhere.example", "null", None])
def test_requests_from_other_sites_are_refused(other: str, guarded: Process, origin: str | None) -> None:
    headers = {"Origin": origin} if origin else {}
    assert request(guarded, "POST", "/login", headers, token="x")[0] == 403
    upgrade = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
               "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA=="}  # fmt: skip
    path = "/_nicegui_ws/socket.io/?EIO=4&transport=websocket"
    assert request(guarded, "GET", path, {**headers, **upgrade})[0] == 403


def test_failed_logins_are_limited(other: str, cluster: Cluster, starter: Starter) -> None:
    process = starter("TokenReview")
    headers = {"Origin": process.url}
    statuses = [
        request(process, "POST", "/login", headers, token=f"wrong-{number}")[0] for number in range(7)
    ]
    assert statuses == [401] * 5 + [429] * 2
    token = cluster.account("locked-out", LIST_JOBS)
    assert request(process, "POST", "/login", headers, token=token)[0] == 429
    metrics = process.get("/metrics", process.metrics_port)
    assert 'convoy_dashboard_logins_total{outcome="refused"} 5.0' in metrics
    process.stop()


def test_user_headers_are_trusted_only_from_the_proxy_address(
    other: str, cluster: Cluster, starter: Starter
) -> None:
    subject = {"kind": "User", "name": "ada", "apiGroup": "rbac.authorization.k8s.io"}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "all-seeing"}
    cluster.account("all-seeing", ALL)
    cluster.plane.request(
        "POST",
        "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
        {"metadata": {"name": "ada"}, "subjects": [subject], "roleRef": role},
    )
    near = starter("Proxy", proxy_cidrs="127.0.0.0/8", most_pages_each="2")
    far = starter("Proxy", proxy_cidrs="10.0.0.0/8")
    user = {"X-Forwarded-User": "ada"}
    status, _, body = request(near, "GET", "/", user)
    assert status == 200 and "default/here" in body
    statuses: list[Any] = [
        request(near, "GET", "/")[0],
        request(near, "GET", "/", {"X-Forwarded-User": "system:admin"})[0],
        request(far, "GET", "/", user)[0],
    ]
    assert statuses == [403, 403, 403]
    nobody = request(near, "GET", "/", {"X-Forwarded-User": "eve", "X-Forwarded-Groups": "system:masters"})[2]
    assert "default/here" not in nobody
    assert [request(near, "GET", "/", user)[0] for _ in range(2)] == [200, 503], (
        "a user may open only so many pages"
    )
    assert request(near, "GET", "/", {"X-Forwarded-User": "eve"})[0] == 200
    near.stop()
    far.stop()


HEADERS = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
}


OURS = r"'none'|'self'|'nonce-[\w-]{16,}'"
"""Pattern of the allowed sources in the Content-Security-Policy. Other hosts and inline content without a
nonce are not allowed.
"""
ALLOWED = {"img-src": r"'self'|data:", "style-src-attr": r"'unsafe-hashes'|'sha256-[\w+/]{43}='"}


def test_the_content_security_policy_forbids_other_hosts(dashboard: Process, guarded: Process) -> None:
    for process, path in ((dashboard, "/"), (guarded, "/login"), (guarded, "/static/convoy.css")):
        _, headers, _ = request(process, "GET", path)
        policy = headers["content-security-policy"]
        for one in policy.split("; "):
            name, *sources = one.split(" ")
            assert sources and all(re.fullmatch(ALLOWED.get(name, OURS), source) for source in sources), one
        assert {name: headers[name] for name in HEADERS} == HEADERS
        assert "server" not in headers
