"""The report says what journal and metrics say, harms nobody, and stays small."""

import html
import json
import re
import time

import pytest

from contract import events as ev
from contract.journal import JournalReader
from contract.metrics import merged
from supervisor.report.make import report_facts
from supervisor.report.page import page
from tests.supervisor.conftest import bare_run
from tests.supervisor.report.long_run import long_run
from tests.supervisor.schemas import check

HARMFUL = '</script><script>document.title="harmed"</script><img src=x onerror=alert(1)> & "it"'


def facts_of(run) -> dict:
    return check("report", json.loads(json.dumps(report_facts(run, time.time(), time.monotonic()))))


def bodies(run, kind) -> list:
    return [event.body for event in JournalReader(run.journal).new() if isinstance(event.body, kind)]


def test_its_values_are_those_of_the_journal_and_the_metrics(root) -> None:
    run = long_run(root, steps=2000, faults=5, spike_at=777)
    facts = facts_of(run)
    recovered = bodies(run, ev.Recovered)
    assert [(item["step"], item["detection_s"]) for item in facts["faults"]] == [
        (item.step, item.detect_s) for item in recovered
    ]
    assert [item["step"] for item in facts["checkpoints"]] == [
        item.step for item in bodies(run, ev.CheckpointSeen)
    ]
    failed = [item for attempt in facts["attempts"] for item in attempt["generations"] if item["verdict"]]
    assert [(item["cause"], item["failed_step"]) for item in failed] == [
        (item.cause, item.step) for item in bodies(run, ev.Judged)
    ]
    assert (facts["state"], facts["step"], len(facts["attempts"])) == ("completed", 2000, 2)
    assert sum(row["faults"] for row in facts["lost_time"]) == len(recovered)
    assert sum(row["repeated_steps"] for row in facts["lost_time"]) == 500

    metrics, rows = facts["metrics"], merged(run)
    assert metrics["rows"] == len(rows) == 2000
    assert metrics["rows_done_again"] == 500
    loss, width = metrics["series"]["loss"], metrics["steps_in_bucket"]
    for at, low, high in zip(loss["step"], loss["low"], loss["high"], strict=True):
        values = [row["loss"] for step, row in rows.items() if step // width * width == at]
        assert (low, high) == pytest.approx((min(values), max(values)), rel=1e-5)
    assert max(loss["high"]) == 77.5, "one step's spike is still there"


def test_lost_time_adds_up_to_the_ratio(root) -> None:
    facts = facts_of(long_run(root, steps=2000, faults=5))
    time_, rows = facts["effective_time"], facts["lost_time"]
    for key in ("detection_s", "restart_s", "repeated_s"):
        assert time_[key] == pytest.approx(sum(row[key] for row in rows), abs=0.01)
    lost = time_["detection_s"] + time_["restart_s"] + time_["repeated_s"]
    assert time_["lost_s"] == pytest.approx(lost, abs=0.01)
    assert time_["ratio"] == pytest.approx(1 - lost / time_["elapsed_s"], abs=1e-4)
    assert time_["queue_s"] == 1200.0, "two jobs, ten minutes each, which count on neither side"


@pytest.mark.parametrize("language", ["en", "zh"])
def test_markup_in_the_runs_words_stays_text(root, language) -> None:
    facts = facts_of(long_run(root, steps=500, faults=2, words=HARMFUL))
    text = page(facts, language)
    assert "<script>document" not in text
    assert "<img" not in text
    assert html.escape(HARMFUL) in text, "and it is there to read"
    found = re.search(r'<script type="application/json" id="facts">(.*?)</script>', text, re.DOTALL)
    assert json.loads(found[1]) == facts
    shown = text.replace(html.escape(HARMFUL), "").replace(found[0], "")
    assert not re.search(r"src=|href=|url\(|@import|https?://", shown), "it fetches nothing"


def test_a_run_that_has_just_begun_has_a_report(root) -> None:
    run = bare_run(root)
    facts = facts_of(run)
    assert facts["effective_time"]["ratio"] is None
    assert "<h1>t-1</h1>" in page(facts, "en")


def test_torn_and_foreign_rows_are_left_out(root) -> None:
    run = long_run(root, steps=300, faults=0)
    path = run.metrics_of(1, 1)
    rows = path.read_text().splitlines()
    rows[10] = '{"step": 11, "loss": null}'
    rows[20] = '{"step": 21, "loss": NaN, "grad_norm": "much"}'
    path.write_text("\n".join([*rows, "[1]", '{"step": "x"}', '{"step": 301, "lo']))
    metrics = facts_of(run)["metrics"]
    assert metrics["rows"] == 300
    assert [item["step"] for item in metrics["not_finite"]] == [11, 21]


@pytest.mark.slow
def test_thirty_days_with_400_faults_and_two_million_steps(root) -> None:
    run = long_run(root, steps=2_000_000, faults=400, spike_at=1_234_567)
    began = time.process_time()
    facts = facts_of(run)
    text = page(facts, "en")
    assert time.process_time() - began < 60
    assert len(text) < 4_000_000
    assert max(facts["metrics"]["series"]["loss"]["high"]) == 77.5
    assert len(facts["faults"]) == 400
