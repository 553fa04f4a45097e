"""Tests of every page with invented data, in a real browser."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from tests.integration.dashboard import llama, machines, samples, times
from tests.integration.dashboard.conftest import Browser, Cluster, Process, Starter, eventually
from tests.integration.dashboard.cuttable_proxy import CuttableProxy

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def research(cluster: Cluster, dashboard: Process) -> str:
    """The name of the second namespace of the invented cluster."""
    cluster.clear()
    name = str(cluster.plane.namespace("research"))
    samples.fill(cluster, name, 12)
    return name


PAGES = (
    ("/", ["llama-8b", "Store not ready", "Breaker open", "Job failed", "Job stuck", "Detector blind",
           "Node quarantined", "10 nodes", "8 jobs", "1 ServingJob", "Rollout halted",
           "convoy why servingjob/chat", "1 experiment", "2 Supported, 1 Undecided",
           "Spot pools", "Spot pool held up", "convoy spot pools harvest"]),
    ("/jobs/default/llama-8b", [f"{llama.step(1):,}", "rank 5", "Thermal", "straggler: ", "RankKilled",
                                "NodeLost", "Recorded since", "llama-8b-worker-2", "r2", "6-7", "(problem)",
                                "every 1 min 35 s", "held_out_loss", "nats", "Share of the tokens"]),
    ("/serving/default/chat", ["Halted", "2/3", "convoy rollout undo chat", "server-2", "chat-5c",
                               "rank 0 exited with code 3", "ran in all replicas", "41,000",
                               "(objective 400 ms)", "Recorded since"]),
    ("/experiments/default/autoscalers", ["Succeeded", "worse-with-lag", "lag 60 s", "Undecided", "JobFailed",
                                          "sha256:5e5e", "offered requests", "Effect on late", "20/20",
                                          "convoy experiment report autoscalers"]),
    ("/nodes/node-06", ["Suspect", "gemm-bf16", "worse", "sweep-64", "running", "Qualified → Suspect",
                        "default/llama-8b", f"{machines.COST:,} GPU-s"]),
    ("/cluster", ["CheckpointStore", "NotReady", "BreakerOpen", "sweep-64", "Engines", "Hardware classes"]),
    ("/spot/harvest", ["Problem", "PriceStale", "7 ready, 1 noticed", "node-09", "Taint, AWS (3 repeats)",
                       "default/llama-8b", "PoolFull", "45.00 of 100 USD", "20% of it unused",
                       "namespace research", "10 with, 2 without notice", "median 118 s"]),
)  # fmt: skip


@pytest.mark.parametrize(("path", "signs"), PAGES)
@pytest.mark.parametrize("width", [1280, 390])
def test_every_page_shows_its_data_and_loads_nothing_from_other_hosts(
    research: str, dashboard: Process, browser: Browser, path: str, signs: list[str], width: int
) -> None:
    browser.size(width)
    browser.open(dashboard.url + path)
    for sign in signs:
        browser.wait_for_text(sign)
    assert browser.console_errors() == []
    hosts = {urlsplit(url).netloc for url in browser.requested_urls() if not url.startswith("data:")}
    assert hosts == {urlsplit(dashboard.url).netloc}
    assert browser.run("return document.documentElement.scrollWidth") <= width


def test_charts_are_drawn(research: str, dashboard: Process, browser: Browser) -> None:
    drawn = (
        "return [...document.querySelectorAll('.chart canvas')].map((canvas) => canvas.getContext('2d')"
        ".getImageData(0, 0, canvas.width, canvas.height).data.some((value) => value > 0))"
    )
    for path, number in (("/jobs/default/llama-8b", 5), ("/serving/default/chat", 3),
                         ("/experiments/default/autoscalers", 4), ("/nodes/node-06", 1)):  # fmt: skip
        browser.open(dashboard.url + path)
        eventually(lambda number=number: browser.run(drawn) == [True] * number, what=f"charts of {path}")


def test_charts_follow_the_window(research: str, dashboard: Process, browser: Browser) -> None:
    beyond = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
    wide = "return Math.max(...[...document.querySelectorAll('.chart canvas')].map((one) => one.clientWidth))"
    browser.size(1600)
    browser.open(dashboard.url + "/jobs/default/llama-8b")
    eventually(lambda: browser.run(wide) > 1000, what="charts are drawn")
    for width in (900, 390):
        browser.size(width)
        eventually(lambda: browser.run(beyond) == 0, what=f"all fits into {width} pixels")
        eventually(lambda width=width: browser.run(wide) < width, what="charts are drawn anew")


def test_missing_objects_are_reported(research: str, dashboard: Process, browser: Browser) -> None:
    browser.open(dashboard.url + "/jobs/default/nobody")
    browser.wait_for_text("There is no such job, or you may not see it.")
    browser.open(dashboard.url + "/nodes/nowhere")
    browser.wait_for_text("There is no such node, or you may not see it.")
    browser.open(dashboard.url + "/spot/nowhere")
    browser.wait_for_text("There is no such SpotPool, or you may not see it.")
    browser.open(dashboard.url + "/cluster/engines/nothing")
    browser.wait_for_text("There is no such Engine, or you may not see it.")


def test_jobs_are_filtered_sorted_and_opened_by_keyboard(
    research: str, dashboard: Process, browser: Browser
) -> None:
    browser.open(dashboard.url)
    browser.wait_for_text("llama-8b")
    press = ActionChains(browser.driver)
    focus = "const one = document.activeElement; return one.getAttribute('aria-label') || one.innerText"
    press.send_keys(Keys.TAB).perform()
    assert browser.run(focus) == "Skip to content"
    outline = "return getComputedStyle(document.activeElement).outlineStyle"
    assert browser.run(outline) == "solid"
    press.send_keys(Keys.ENTER).perform()
    assert browser.run("return document.activeElement.id") == "content"

    def reach(name: str) -> None:
        for _ in range(60):
            if browser.run(focus) == name:
                assert browser.run(outline) == "solid"
                return
            press.send_keys(Keys.TAB).perform()
        pytest.fail(f"{name} was not reached")

    reach("Filter jobs by words")
    press.send_keys("default").perform()
    eventually(lambda: "5 of 8 rows" in browser.text)
    jobs = "section[aria-labelledby=jobs] "
    names = (
        f"return [...document.querySelectorAll('{jobs}tbody th')].map((one) => one.innerText.split('/')[1])"
    )
    reach("Step")
    press.send_keys(Keys.ENTER).perform()
    eventually(lambda: browser.find(jobs + "th[aria-sort=ascending]").text.startswith("Step"))
    eventually(lambda: browser.run(names)[-1] == "gpt2-baseline")
    press.send_keys(Keys.ENTER).perform()
    eventually(lambda: browser.run(names)[0] == "gpt2-baseline")
    reach("default/gpt2-baseline")
    press.send_keys(Keys.ENTER).perform()
    eventually(lambda: browser.driver.current_url.endswith("/jobs/default/gpt2-baseline"))
    browser.wait_for_text("Completed: all roles are complete")


def test_focus_stays_while_rows_move(
    research: str, cluster: Cluster, dashboard: Process, browser: Browser
) -> None:
    browser.open(dashboard.url)
    browser.wait_for_text("llama-8b")
    browser.run("document.querySelector(\"tr[data-key='default/moe-sweep-b'] a\").focus()")
    cluster.status("trainingjobs", "moe-sweep-b", {"ready": "7/8"}, "default")
    eventually(lambda: browser.row("default/moe-sweep-b")[2] == "7/8")
    focused = "return document.activeElement.innerText"
    assert browser.run(focused) == "default/moe-sweep-b"
    # Sort by restarts and then give the job the most restarts, so that its row moves to the first position.
    # The focus must stay on the row.
    order = (
        "const jobs = [...document.querySelectorAll('section[aria-labelledby=jobs] tbody tr')];"
        "return jobs.map((one) => one.dataset.key).indexOf('default/moe-sweep-b')"
    )
    head = "section[aria-labelledby=jobs] th:nth-child(7) button"
    browser.run("document.querySelector(arguments[0]).click()", head)
    browser.run("document.querySelector(arguments[0]).click()", head)
    eventually(lambda: browser.find("th[aria-sort=descending]").text == "Restarts")
    before = browser.run(order)
    browser.run("document.querySelector(\"tr[data-key='default/moe-sweep-b'] a\").focus()")
    cluster.status("trainingjobs", "moe-sweep-b", {"restarts": {"total": 999}}, "default")
    eventually(lambda: browser.run(order) == 0 != before)
    assert browser.run(focused) == "default/moe-sweep-b"
    cluster.status("trainingjobs", "moe-sweep-b", {"ready": "8/8", "restarts": {"total": 0}}, "default")


def test_dark_mode_follows_the_system_and_can_be_chosen(
    research: str, dashboard: Process, browser: Browser
) -> None:
    def ground() -> str:
        return browser.run("return getComputedStyle(document.body).backgroundColor")

    light, dark = "rgb(246, 247, 249)", "rgb(14, 19, 25)"
    browser.open(dashboard.url)
    eventually(lambda: ground() == light)
    browser.dark(True)
    eventually(lambda: ground() == dark)

    def press(label: str) -> None:
        eventually(lambda: [one for one in browser.all("header button") if one.text == label])[0].click()

    press("Theme: Auto")
    eventually(lambda: ground() == light)
    press("Theme: Light")
    eventually(lambda: ground() == dark)
    browser.dark(False)
    browser.open(dashboard.url + "/nodes/node-06")
    eventually(lambda: ground() == dark)
    assert browser.console_errors() == []


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize(("path", "sign"), [(path, signs[-1]) for path, signs in PAGES])
def test_text_has_enough_contrast(
    research: str, dashboard: Process, browser: Browser, path: str, sign: str, dark: bool
) -> None:
    browser.dark(dark)
    browser.open(dashboard.url + path)
    browser.wait_for_text(sign)
    assert browser.run(CONTRAST) == []


def test_texts_of_objects_are_never_executed(cluster: Cluster, dashboard: Process, browser: Browser) -> None:
    cluster.clear()
    evil = (
        "<script>window.harm=1</script><img src=x onerror='window.harm=2'>`${window.harm=3}`</script>{{harm}}"
        "\u202egnp.exe"
    )
    body = samples.training_job("evil", spec={}) | {
        "status": {
            "phase": "Failed", "reason": "RankFailed", "message": evil,
            "conditions": [machines.condition("Running", "False", "RankFailed", evil)],
            "restarts": {"total": 1, "last": {"reason": evil, "message": evil, "node": evil, "rank": 1,
                                              "at": times.at(minutes=1)}},
            "stragglers": [{"cause": evil, "place": "rank", "ranks": [1], "nodes": [evil]}],
            "goodput": {"seconds": {"<b>x": 3.0, "productive": 3.0}},
        }
    }  # fmt: skip
    body["spec"].pop("spec", None)
    cluster.make("trainingjobs", body)
    for path in ("/", "/jobs/default/evil", "/jobs/default/%3Cscript%3Ewindow.harm=4%3Cb%3E"):
        browser.open(dashboard.url + path)
        browser.wait_for_text("<script>window.harm=")
        assert browser.run("return window.harm") is None
        assert "\u202e" not in browser.run("return document.querySelector('#app').innerHTML")
        assert browser.run("return document.querySelectorAll('#app img, #app script, #app b').length") == 0
        assert browser.console_errors() == []


def test_an_outage_is_reported_and_data_stay(cluster: Cluster, starter: Starter, browser: Browser) -> None:
    cluster.clear()
    cluster.make("trainingjobs", samples.training_job("stays") | {"status": {"phase": "Running"}})
    proxy = CuttableProxy(urlsplit(cluster.plane.url).port or 0)
    config = cluster.plane.kubeconfig()
    config.write_text(config.read_text().replace(cluster.plane.url, f"https://127.0.0.1:{proxy.port}"))
    process = starter(kubeconfig=config)
    try:
        browser.open(process.url)
        browser.wait_for_text("default/stays")
        eventually(lambda: not browser.find(".banner").is_displayed())
        proxy.cut()
        browser.wait_for_text("The API server has not answered since", 30)
        assert (
            "default/stays" in browser.text and browser.find("#content").get_attribute("data-stale") == "true"
        )
        cluster.status("trainingjobs", "stays", {"phase": "Succeeded"}, "default")
        proxy.mend()
        eventually(lambda: not browser.find(".banner").is_displayed(), 30)
        eventually(lambda: browser.row("default/stays")[1] == "Succeeded", 60)
        assert browser.find("#content").get_attribute("data-stale") is None
    finally:
        process.stop()
        proxy.end()


def test_a_list_of_many_jobs_comes_in_pages(cluster: Cluster, dashboard: Process, browser: Browser) -> None:
    cluster.clear()
    for number in range(60):
        cluster.make("trainingjobs", samples.training_job(f"many-{number:03d}"))
    browser.open(dashboard.url)
    jobs = "section[aria-labelledby=jobs] "
    eventually(lambda: browser.find(jobs + ".pager span").text == "1 to 50 of 60")
    assert len(browser.all(jobs + "tbody tr")) == 50
    browser.find(jobs + ".pager button:last-child").click()
    eventually(lambda: browser.find(jobs + ".pager span").text == "51 to 60 of 60")
    eventually(lambda: browser.driver.current_url.endswith("/?jobs.page=2"))
    browser.open(dashboard.url + "/?jobs.page=2&jobs.words=many&jobs.sort=-1")
    eventually(lambda: browser.find(jobs + ".pager span").text == "51 to 60 of 60")
    assert browser.find(jobs + "tbody th").text == "default/many-009"
    assert browser.find(jobs + "input").get_attribute("value") == "many"
    browser.find(jobs + ".pager button").click()
    eventually(lambda: browser.driver.current_url.endswith("/?jobs.words=many&jobs.sort=-1"))
    assert browser.console_errors() == []
    browser.open(dashboard.url + "/?jobs.page=2")
    eventually(lambda: browser.find(jobs + ".pager span").text == "51 to 60 of 60")
    assert len(browser.find(jobs).find_elements(By.CSS_SELECTOR, "tbody tr")) == 10


CONTRAST = """
const parse = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
const light = (rgb) => {
  const linear = (v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  const [r, g, b] = rgb.map((v) => linear(v / 255));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const ground = (one) => {
  for (; one; one = one.parentElement) {
    const [r, g, b, a] = parse(getComputedStyle(one).backgroundColor);
    if (a === undefined || a > 0.9) return [r, g, b];
  }
  return [255, 255, 255];
};
const bad = [];
for (const one of document.querySelectorAll("#app *, header *")) {
  const own = [...one.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
  if (!own || !one.offsetParent || one.disabled) continue;
  const [ink, under] = [parse(getComputedStyle(one).color).slice(0, 3), ground(one)].map(light);
  const ratio = (Math.max(ink, under) + 0.05) / (Math.min(ink, under) + 0.05);
  if (ratio < 4.5) bad.push(one.innerText.slice(0, 40) + " " + ratio.toFixed(2));
}
return bad;
"""
