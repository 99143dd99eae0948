"""The page in a real Chromium: a live run, a daemon that goes and comes, hostile words, keys, and what a blind reader hears."""

import re
import shutil
import time

import pytest

from contract import events as ev
from contract.fold import apply, fold
from contract.journal import JournalReader
from contract.metrics import merged
from supervisor.demo.robot import Robot
from supervisor.seen import RunSeen
from tests.supervisor.conftest import bare_run, wait_for
from tests.supervisor.page.scenes import free_port, look_at, page_of
from tests.supervisor.place import Place, bodies, events, wait_for_state, wait_for_step, workers
from tests.supervisor.report.long_run import long_run
from tests.supervisor.report.test_report import HARMFUL

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(not CHROMIUM, reason="chromium is not installed (Debian's package)")
PATIENCE = 60_000  # ms; a condition is waited for, and the machine may be busy


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as running:
        opened = running.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"], timeout=120_000)
        yield opened
        opened.close()


@pytest.fixture
def place(tmp_path, robot: Robot):
    made = Place(tmp_path, robot)
    yield made
    made.close()


@pytest.fixture
def view(browser):
    """A page in the browser; whatever it complains of fails the test."""
    trouble = []
    context = browser.new_context(viewport={"width": 1280, "height": 900}, locale="en-US")
    context.set_default_timeout(PATIENCE)
    opened = context.new_page()
    opened.on(
        "console", lambda line: trouble.append(line.text) if line.type in {"error", "warning"} else None
    )
    opened.on("pageerror", lambda error: trouble.append(str(error)))
    opened.trouble = trouble
    yield opened
    context.close()
    assert not [
        line for line in trouble if "ERR_CONNECTION_REFUSED" not in line and "ERR_INCOMPLETE" not in line
    ]


def text_of(view, selector: str) -> str:
    return view.locator(selector).inner_text()


def drawn_loss(view) -> dict[int, float]:
    """What the chart of the loss says under the cursor, step by step, as a person with arrow keys reads it."""
    plot = view.locator('figure[data-chart="loss"] .plot')
    found: dict[int, float] = {}
    view.mouse.move(0, 0)
    plot.press("Home")  # focus; the key itself means nothing here
    for _ in range(40):
        plot.press("ArrowLeft")
        said = text_of(view, 'figure[data-chart="loss"] .values')
        step = int(re.search(r"step ([\d,]+)", said)[1].replace(",", ""))
        value = re.search(r"training ([\d.]+)", said)
        if value:
            found[step] = float(value[1])
    return found


def map_as_the_beats_say(run, view) -> None:
    view.locator(".legend", has_text="moves: 3").wait_for()
    beats = workers(run, generation=2)
    cells = view.locator("#ranks tbody tr").evaluate_all(
        "all => all.map(row => [...row.cells].map(cell => cell.innerText))"
    )
    assert [(int(row[0]), int(row[2])) for row in cells] == [(rank, beats[rank].pid) for rank in range(3)]
    view.locator("#ranks canvas").focus()
    view.keyboard.press("ArrowRight")
    view.keyboard.press("ArrowRight")
    assert text_of(view, "#ranks .cell") == "rank 1 on 0: moves"


def test_a_run_that_crashes_and_recovers_is_followed_without_a_reload(place, view) -> None:
    """From all runs to this one, through crash, recovery, the daemon's death and its return; values as in the files."""
    port = free_port()
    hurry = place.root.path.parent / "hurry"
    arguments = ("--step-time", "0.1", "--fail-once-at", "7", "--fail-rank", "2", "--hurry", str(hurry))
    run = place.submit(*arguments, steps=400, ranks=3)
    other = place.submit("--fail-at", "3", "--fail-code", "78", steps=400)
    daemon = place.supervise(CIUIC_PAGE_PORT=str(port))
    wait_for(lambda: f"page: http://127.0.0.1:{port}/" in place.log.read_text())
    view.goto(f"http://127.0.0.1:{port}/#/")
    view.evaluate("window.mark = 'not reloaded'")
    view.locator(f"tr.needs a >> text={other.run_id}").wait_for()
    assert view.locator(".fleet a").first.inner_text() == other.run_id, "who needs a person stands first"
    view.locator(f".fleet a >> text={run.run_id}").click()
    view.locator(".verdict .word").wait_for()
    view.locator("text=stand-in was told to fail at step 7").first.wait_for()
    view.locator("section .life rect.restart").first.wait_for(state="attached")
    wait_for_step(run, 12, generation=2)
    view.locator(".verdict.ok .word", has_text="Training").wait_for()
    [judged] = bodies(run, ev.Judged)
    assert view.locator("rect.verdict").count() == 1
    assert judged.suspects == (2,)
    assert view.locator("text=suspects: rank 2").count() == 1
    map_as_the_beats_say(run, view)

    daemon.kill()
    daemon.wait()
    view.locator("body[data-status=gone]").wait_for()
    assert "The supervisor does not answer" in text_of(view, "#age")
    place.supervise(CIUIC_PAGE_PORT=str(port))
    view.locator("body[data-status=live]").wait_for()

    hurry.touch()
    wait_for_state(run, "completed")
    view.locator(".verdict.done .word", has_text="Finished").wait_for()
    view.locator("text=400 / 400").wait_for()
    assert view.evaluate("window.mark") == "not reloaded"
    rows = merged(run)
    shown = drawn_loss(view)
    assert len(shown) > 20
    for step, value in shown.items():
        assert value == pytest.approx(rows[step]["loss"], rel=1e-4), step
    told = [line for line in events(run) if isinstance(line.body, ev.CheckpointSeen)]
    assert int(view.locator("summary").last.inner_text()) > 0
    assert view.locator("td.n", has_text=str(told[-1].body.step)).count()


def test_words_of_a_run_do_no_harm(root, view) -> None:
    run = long_run(root, steps=300, faults=3, words=HARMFUL)
    over = fold(JournalReader(run.journal).new())
    state = ev.StateChanged(state="failed", reason=HARMFUL)
    failed = apply(over, ev.Event(seq=9999, time=2e9, epoch=1, body=state))
    runs = [RunSeen(run=run.run_id, history=failed), RunSeen(run=HARMFUL, history=failed)]
    with page_of(root, lambda: runs) as (_, port):
        view.goto(f"http://127.0.0.1:{port}/#/")
        view.locator(".fleet tbody tr").nth(1).wait_for()
        assert HARMFUL in view.locator(".fleet a").all_inner_texts()
        view.goto(f"http://127.0.0.1:{port}/?lang=zh#/{run.run_id}")
        view.locator(".verdict.needs").wait_for()
        assert HARMFUL in view.locator(".reason").inner_text()
        assert view.locator("img").count() == 0
        assert view.locator("script").count() == 1
        assert view.title() == f"{run.run_id} · ciuic"


def many(root, count: int):
    for number in range(count):
        bare_run(root, f"r-{number:03}")
    kinds = [{}, {5: {"exit_code": 1}}, {3: {"idle_s": 1e5, "os_state": "T"}}]
    return [look_at(f"r-{number:03}", odd=kinds[number % 3], step=number) for number in range(count)]


def test_keys_and_filters_lead_through_a_hundred_runs(root, view) -> None:
    runs = many(root, 100)
    with page_of(root, lambda: runs) as (page, port):
        view.goto(f"http://127.0.0.1:{port}/")
        view.locator(".fleet tbody tr").nth(99).wait_for()
        before = view.locator(".fleet tbody tr").evaluate_all("all => all.map(row => row.className)")
        order = ["needs", "bad", "acting", "watch", "ok", "waiting", "done"]
        assert [order.index(kind) for kind in before] == sorted(order.index(kind) for kind in before)
        view.keyboard.press("/")
        view.keyboard.type("r-04")
        assert view.locator(".fleet tbody tr").count() == 10
        view.keyboard.press("Tab")
        view.keyboard.press("j")
        assert view.evaluate("document.activeElement.textContent").startswith("r-04")
        name = view.evaluate("document.activeElement.textContent")
        view.keyboard.press("Enter")
        view.locator("h1", has_text=name).wait_for()
        view.locator(".command button").focus()
        runs[int(name[2:])] = look_at(name, step=8888)
        page.ticked()
        view.locator("text=8,888").first.wait_for()
        assert view.evaluate("document.activeElement.closest('.command') !== null"), "the focus stays"
        view.keyboard.press("g")
        view.locator("h1", has_text="All runs").wait_for()
        view.keyboard.press("p")
        runs[0] = look_at("r-000", step=9777)
        page.ticked()
        view.wait_for_function("document.getElementById('hold').getAttribute('aria-pressed') === 'true'")
        assert view.locator("text=9,777").all_inner_texts() == [], "it holds still"
        view.keyboard.press("p")
        view.locator("td", has_text="9,777").first.wait_for()


@pytest.mark.parametrize(("width", "scheme", "language"), [(1280, "light", "zh"), (390, "dark", "en")])
def test_nothing_hangs_over_the_edge_and_axe_finds_no_serious_fault(
    root, browser, width, scheme, language
) -> None:
    axe = pytest.importorskip(
        "axe_playwright_python.sync_playwright", reason="axe-playwright-python is missing"
    )
    run = long_run(root, steps=500, faults=6)
    over = fold(JournalReader(run.journal).new())
    trains = ev.StateChanged(state="running", reason="")
    going = apply(over, ev.Event(seq=9999, time=time.time(), epoch=1, body=trains))
    live = look_at(run.run_id, odd={3: {"idle_s": 40.0}, 5: {"exit_code": 1}}, history=going)
    runs = [live, *many(root, 3)]
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme=scheme, bypass_csp=True
    )
    context.set_default_timeout(PATIENCE)
    view = context.new_page()
    with page_of(root, lambda: runs) as (_, port):
        for place, there in (("", ".fleet tbody tr"), (run.run_id, "rect.verdict")):
            view.goto("about:blank")
            view.goto(f"http://127.0.0.1:{port}/?lang={language}#/{place}")
            view.locator(there).first.wait_for(state="attached")
            assert view.evaluate("document.documentElement.scrollWidth") <= width
            found = axe.Axe().run(view).response["violations"]
            serious = [
                (item["id"], item["nodes"][0]["html"])
                for item in found
                if item["impact"] in {"serious", "critical"}
            ]
            assert not serious, place
    context.close()


# Whether cells 1, 2 and 3 of the map are of one grey, below the number in them.
LOOK = """() => {
  const canvas = document.querySelector("#ranks canvas"), side = 28 * devicePixelRatio, wide = canvas.width;
  const data = canvas.getContext("2d").getImageData(0, 0, wide, side).data;
  const grey = (x, y) => { const at = (y * wide + x) * 4; return 0.3 * data[at] + 0.6 * data[at + 1] + 0.1 * data[at + 2]; };
  return [1, 2, 3].map((rank) => {
    const found = [0.2, 0.5, 0.8].map((share) => grey(Math.round((rank + share) * side), Math.round(side / 2)));
    return Math.max(...found) - Math.min(...found) < 5;
  });
}"""


def test_states_are_told_by_words_and_shapes_besides_colours(root, view) -> None:
    run = bare_run(root, "r-1")
    odd = {1: {"exit_code": 1}, 2: {"os_state": "T"}, 5: {"idle_s": 40.0}}
    with page_of(root, lambda: [look_at(run.run_id, odd=odd)]) as (_, port):
        view.goto(f"http://127.0.0.1:{port}/#/{run.run_id}")
        view.locator(".legend .key").first.wait_for()
        legend = view.locator(".legend .key").all_inner_texts()
        assert {line.partition(":")[0] for line in legend} >= {
            "moves",
            "stopped by a signal",
            "no progress for half of its limit",
        }
        # Without any colour a failed rank still differs from one that moves: it has a hole.
        flat = view.evaluate(LOOK)
        assert flat == [False, False, True], "1 has failed, 2 is stopped, 3 moves"


def test_16384_ranks_are_drawn_and_a_rank_is_found_under_the_pointer(root, view) -> None:
    run = bare_run(root, "big-1")
    odd = {9000: {"exit_code": 1}, **{rank: {"idle_s": 40.0} for rank in range(80, 88)}}
    with page_of(root, lambda: [look_at(run.run_id, nodes=2048, odd=odd)]) as (_, port):
        view.goto(f"http://127.0.0.1:{port}/")
        view.locator(".legend", has_text="16,375").wait_for()
        assert view.evaluate("document.querySelectorAll('*').length") < 1500, "no element a rank"
        row = view.locator("#ranks tbody tr").first.locator("td").all_inner_texts()
        assert row[:2] == ["9000", "n1125"]
        assert "Rows that were odd: 2" in text_of(view, "#track")
        view.locator("#ranks canvas").focus()
        for _ in range(81):
            view.keyboard.press("ArrowRight")
        assert text_of(view, "#ranks .cell") == "rank 80 on n10: no progress for half of its limit"
        view.locator("select").select_option("still")
        view.locator(".legend", has_text="50 – 75 %").or_(view.locator(".legend", has_text="75 – 100 %")).or_(
            view.locator(".legend", has_text="beyond")
        ).wait_for()
