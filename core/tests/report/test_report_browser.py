# ruff: noqa: E402 - what is imported decides whether these tests can run
"""The report in a real browser, from a folder, without a network."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

REQUIRED = os.environ.get("ICML26_REQUIRE_BROWSER") == "1"

if not REQUIRED:
    pytest.importorskip("selenium", reason="selenium is not installed: pip install 'icml26[browser]'")
    pytest.importorskip("matplotlib")
BROWSER = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)
DRIVER = shutil.which("chromedriver")
if (BROWSER is None or DRIVER is None) and not REQUIRED:
    pytest.skip("no Chromium with chromedriver on the path", allow_module_level=True)

from icml26.report import build_report
from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import Select

from report.sites import HOSTILE, forecasting, hostile, reproduction


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A site with an ordinary task, a hostile one and a recipe."""
    base = tmp_path_factory.mktemp("browser")
    found = forecasting(base / "runs") + hostile(base / "runs")
    documents = [reproduction(found), reproduction(found, HOSTILE)]
    build_report(found, base / "site", reproductions=documents)
    return base / "site"


@pytest.fixture(scope="module")
def browser() -> Iterator[webdriver.Chrome]:
    """Headless Chromium that can reach nothing."""
    assert BROWSER is not None and DRIVER is not None, (
        "ICML26_REQUIRE_BROWSER=1, but there is no Chromium with chromedriver"
    )
    options = Options()
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--host-resolver-rules=MAP * ~NOTFOUND",
        "--window-size=1280,900",
    ):
        options.add_argument(argument)
    options.binary_location = BROWSER
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    yield driver
    driver.quit()


def opened(browser: webdriver.Chrome, path: Path, fragment: str = "") -> webdriver.Chrome:
    """Open a page; whatever the console says is an error."""
    browser.get("about:blank")
    browser.get(path.as_uri() + fragment)
    assert browser.get_log("browser") == [], path  # type: ignore[no-untyped-call]
    return browser


def task_page(site: Path) -> Path:
    return next(path for path in site.glob("task-*.html") if "forecasting.defense" in path.read_text())


def column(browser: webdriver.Chrome, place: int) -> list[str]:
    script = (
        "return [...document.querySelector('table.leaderboard').tBodies[0].rows].filter(row => !row.hidden)"
        ".map(row => row.cells[arguments[0]].querySelector('.number, a').textContent)"
    )
    found: list[str] = browser.execute_script(script, place)
    return found


def test_every_page_loads_without_an_error_and_nothing_hostile_runs(browser: webdriver.Chrome, site: Path) -> None:
    pages = [*site.glob("*.html"), *list((site / "runs").glob("*.html"))[-6:]]
    for path in pages:
        opened(browser, path)
        assert browser.execute_script("return window.pwned") is None, path
        assert browser.execute_script("return document.querySelector('h1').getBoundingClientRect().width") > 0
        assert browser.execute_script("return document.scripts.length") <= 2


def test_plots_are_drawn(browser: webdriver.Chrome, site: Path) -> None:
    opened(browser, task_page(site))
    boxes: list[Any] = browser.execute_script(
        "return [...document.querySelectorAll('.plot svg')].map(s => { const b = s.getBBox(), r = s.getBoundingClientRect();"
        " return [b.width, b.height, r.width, r.height, s.querySelectorAll('path').length, s.querySelectorAll('text').length] })"
    )
    assert len(boxes) >= 6
    for width, height, shown, tall, paths, texts in boxes:
        assert min(width, height, shown, tall) > 100
        assert paths > 10
        assert texts > 5
    inks = browser.execute_script(
        "return [...new Set([...document.querySelectorAll('.plot svg path')].map(p => getComputedStyle(p).stroke))].length"
    )
    assert inks >= 5, "series have colours of their own, from the page's variables"


def test_headers_sort_the_best_first_then_the_other_way(browser: webdriver.Chrome, site: Path) -> None:
    opened(browser, task_page(site))
    header = browser.find_elements(By.CSS_SELECTOR, "table.leaderboard th button")[1]
    before = column(browser, 1)
    header.click()
    ascending = [float(text) for text in column(browser, 1)]
    assert ascending == sorted(ascending)
    header.click()
    descending = [float(text) for text in column(browser, 1)]
    assert descending == sorted(ascending, reverse=True)
    assert len(before) == 4
    browser.find_elements(By.CSS_SELECTOR, "table.leaderboard th button")[0].click()
    assert column(browser, 0) == ["abl", "clean", "none", "ours"]
    assert (
        browser.execute_script("return document.querySelector('table.leaderboard th').getAttribute('aria-sort')")
        == "ascending"
    )


def test_the_filter_hides_other_methods(browser: webdriver.Chrome, site: Path) -> None:
    opened(browser, task_page(site))
    browser.find_element(By.CSS_SELECTOR, "input[data-filter]").send_keys("AB")
    assert column(browser, 0) == ["abl"]


def test_the_list_of_runs_is_filtered_sorted_and_linked(browser: webdriver.Chrome, site: Path) -> None:
    opened(browser, site / "runs.html")

    def shown() -> int:
        return len(browser.find_elements(By.CSS_SELECTOR, "#runs tbody tr"))

    assert shown() == 36
    Select(browser.find_element(By.NAME, "method")).select_by_visible_text("abl")
    assert shown() == 8
    Select(browser.find_element(By.NAME, "status")).select_by_visible_text("not succeeded")
    assert shown() == 2
    opened(browser, site / "runs.html", "#status=timed-out")
    assert shown() == 2
    opened(browser, site / "runs.html")
    browser.find_element(By.CSS_SELECTOR, "th[data-column='9'] button").click()
    cells = browser.find_elements(By.CSS_SELECTOR, "#runs tbody tr td:nth-child(6)")
    times = [float(cell.text.removesuffix(" s")) for cell in cells]
    assert times == sorted(times)
    browser.find_element(By.CSS_SELECTOR, "#runs tbody a").click()
    assert "/runs/" in browser.current_url
    assert browser.find_element(By.TAG_NAME, "h1").text


@pytest.mark.parametrize("name", ["index.html", "runs.html", "claims.html", "task"])
def test_a_phone_needs_no_sideways_scrolling(browser: webdriver.Chrome, site: Path, name: str) -> None:
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": 360, "height": 740, "deviceScaleFactor": 2, "mobile": True}
    )  # type: ignore[no-untyped-call]
    try:
        opened(browser, task_page(site) if name == "task" else site / name)
        assert browser.execute_script("return document.documentElement.scrollWidth") <= 360
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})  # type: ignore[no-untyped-call]


def test_dark_mode_follows_the_system_and_the_button(browser: webdriver.Chrome, site: Path) -> None:
    def shades() -> list[float]:
        script = (
            "const light = c => { const [r, g, b] = c.match(/[\\d.]+/g).map(Number); return (r + g + b) / 3 };"
            "return [light(getComputedStyle(document.body).backgroundColor),"
            " light(getComputedStyle(document.querySelector('.plot svg text')).fill)]"
        )
        found: list[float] = browser.execute_script(script)
        return found

    def prefer(scheme: str) -> None:
        browser.execute_cdp_cmd(
            "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        )  # type: ignore[no-untyped-call]

    prefer("dark")
    try:
        opened(browser, task_page(site))
        background, ink = shades()
        assert background < 60 < 180 < ink
        browser.find_element(By.ID, "theme").click()
        background, ink = shades()
        assert ink < 60 < 180 < background
        opened(browser, task_page(site))
        assert shades()[0] > 180, "the choice is remembered"
        browser.execute_script("localStorage.clear()")
    finally:
        prefer("light")
