"""The report in a real Chromium, without a network."""

import json
import shutil
import time

import pytest

from supervisor.report.make import report_facts
from supervisor.report.page import page
from tests.supervisor.report.long_run import long_run
from tests.supervisor.report.test_report import HARMFUL

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(not CHROMIUM, reason="chromium is not installed (Debian's package)")


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as running:
        opened = running.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"], timeout=120_000)
        yield opened
        opened.close()


@pytest.mark.parametrize("width", [1280, 390])
def test_it_opens_without_a_network_and_draws(root, tmp_path, browser, width) -> None:
    run = long_run(root, steps=2000, faults=5, words=HARMFUL, spike_at=700)
    facts = report_facts(run, time.time(), time.monotonic())
    place = tmp_path / "report.html"
    place.write_text(page(facts, "zh"))
    asked, trouble = [], []
    context = browser.new_context(viewport={"width": width, "height": 900}, offline=True)
    view = context.new_page()
    view.on("request", lambda request: asked.append(request.url))
    view.on("console", lambda line: trouble.append(line.text))
    view.on("pageerror", lambda error: trouble.append(str(error)))
    view.goto(place.as_uri(), timeout=60_000)
    assert asked == [place.as_uri()], "one file, and nothing else was asked for"
    assert not trouble
    assert run.run_id in view.title(), "no text of the run was carried out"
    # The element that is not executed is the only one; what it holds are the facts.
    assert view.locator("script").count() == 1
    assert json.loads(view.locator("#facts").text_content()) == json.loads(json.dumps(facts))
    boxes = [box for svg in view.locator("svg").all() if (box := svg.bounding_box())]
    assert len(boxes) == 7
    assert all(box["width"] > width * 0.6 and box["height"] > 80 for box in boxes)
    drawn = view.locator("svg path.line").evaluate_all("all => all.map(one => one.getTotalLength())")
    assert all(length > 500 for length in drawn)
    assert len(drawn) >= 8
    assert view.evaluate("document.documentElement.scrollWidth") <= width, "nothing hangs over the edge"
    sentences = [box for cell in view.locator("td.t").all() if (box := cell.bounding_box())]
    assert sentences
    assert all(box["x"] + box["width"] <= width for box in sentences), "a phone shows the reasons too"
    context.close()
