"""The supervisor's /metrics: names, values and bounds, judged by promtool; and the alert rules that rest on them."""

import json
import shutil
import socket
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from importlib.resources import files

import pytest
from prometheus_client.parser import text_string_to_metric_families

from contract import events as ev
from contract.fold import apply, fold
from contract.journal import JournalReader
from supervisor.adapters.metrics import _Runs
from supervisor.demo.robot import Robot
from supervisor.seen import RunSeen
from tests.supervisor.conftest import wait_for
from tests.supervisor.grafana import queries
from tests.supervisor.place import Place, bodies, wait_for_state, wait_for_step
from tests.supervisor.report.long_run import long_run

RULES = files("supervisor").joinpath("prometheus", "alerts.yml")
needs_promtool = pytest.mark.skipif(
    not shutil.which("promtool"), reason="promtool is not installed (Debian's package prometheus)"
)


@pytest.fixture
def place(tmp_path, robot: Robot):
    made = Place(tmp_path, robot)
    yield made
    made.close()


def scrape(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
        return answer.read().decode()


def samples(text: str) -> dict:
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def test_a_run_that_failed_and_recovered_is_counted(place) -> None:
    port = free_port()
    run = place.submit("--step-time", "0.05", "--fail-once-at", "12", steps=400)
    place.supervise(CIUIC_METRICS_PORT=str(port))
    wait_for_step(run, 20, generation=2)
    wait_for(lambda: bodies(run, ev.Recovered))
    name = ("run", run.run_id)

    def told():
        found = samples(scrape(port))
        return found if found.get(("ciuic_run_restarts_total", ("cause", "traceback"), name)) else None

    found = wait_for(told, what="the restart in /metrics")
    assert found["ciuic_runs", ("state", "running")] == 1
    assert found["ciuic_run_state", name, ("state", "running")] == 1
    assert found["ciuic_run_verdicts_total", name, ("verdict", "crashed")] == 1
    assert found["ciuic_run_detection_seconds_count", name] == 1
    recovered = bodies(run, ev.Recovered)[0]
    assert found["ciuic_run_recovery_seconds_sum", name] == recovered.restart_s
    assert found["ciuic_run_step", name] > 10, "of the generation after the failure"
    assert found["ciuic_supervisor_tick_duration_seconds_count",] > 10
    assert found["ciuic_run_target_step", name] == 400
    if shutil.which("promtool"):
        done = subprocess.run(
            ["promtool", "check", "metrics"], input=scrape(port), text=True, capture_output=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
    place.ciuic("cancel", run.run_id)
    wait_for_state(run, "cancelled")


def test_a_port_that_is_taken_is_said(place) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        done = place.ciuic("supervise", "--once", "--metrics-port", port)
        page = place.ciuic("supervise", "--once", "--page-port", port)
    assert (done.returncode, page.returncode) == (1, 1)
    assert f"--metrics-port {port}" in done.stderr
    assert f"--page-port {port}" in page.stderr


def test_series_are_bounded_however_long_the_history_and_however_many_runs(root) -> None:
    run = long_run(root, steps=400, faults=20)
    over = fold(JournalReader(run.journal).new())
    state = ev.StateChanged(state="running", reason="")
    going = apply(over, ev.Event(seq=9999, time=2e9, epoch=1, body=state))
    runs = [RunSeen(run=f"over-{n}", history=over) for n in range(300)]
    runs += [RunSeen(run=f"going-{n}", history=going) for n in range(100)]
    found = [sample for family in _Runs(lambda: runs, "1").collect() for sample in family.samples]
    labels = {name for sample in found for name in sample.labels}
    assert labels <= {"run", "state", "cause", "verdict", "result", "what", "le", "version", "phase"}
    names = {sample.labels["run"] for sample in found if "run" in sample.labels}
    assert len(names) == 120, "all that go on, and the newest of the others"
    assert len(found) < 120 * 60
    truncated = [sample.value for sample in found if sample.name == "ciuic_export_truncated"]
    assert truncated == [1.0]


UNIT = """
rule_files: [{rules}]
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
      - series: ciuic_supervisor_last_tick_timestamp_seconds
        values: '0x60'
      - series: ciuic_run_state{{run="a", state="running"}}
        values: '1x60'
      - series: ciuic_run_last_progress_timestamp_seconds{{run="a"}}
        values: '0x60'
      - series: ciuic_run_state{{run="b", state="failed"}}
        values: '0 0 1x58'
      - series: ciuic_run_restarts_total{{run="a", cause="hang"}}
        values: '0+1x60'
      - series: ciuic_alerts_oldest_pending_timestamp_seconds
        values: '0x60'
    alert_rule_test:
      - {{eval_time: 1m, alertname: CiuicRunNeedsAttention, exp_alerts: []}}
      - {{eval_time: 10m, alertname: CiuicRunNotProgressing, exp_alerts: []}}
      - {{eval_time: 2m, alertname: CiuicSupervisorSilent, exp_alerts: []}}
"""
FIRES = {
    "CiuicSupervisorSilent": "10m",
    "CiuicRunNeedsAttention": "5m",
    "CiuicRunNotProgressing": "40m",
    "CiuicRunRestartsOften": "30m",
    "CiuicAlertsNotDelivered": "20m",
}


@needs_promtool
def test_the_alert_rules_fire_when_they_should_and_not_before(tmp_path) -> None:
    done = subprocess.run(
        ["promtool", "check", "rules", str(RULES)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    unit = tmp_path / "quiet.yml"
    unit.write_text(UNIT.format(rules=RULES))
    done = subprocess.run(
        ["promtool", "test", "rules", str(unit)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for name, at in FIRES.items():  # said to be silent there: promtool must disagree
        silent = f"      - {{eval_time: {at}, alertname: {name}, exp_alerts: []}}\n"
        unit.write_text(UNIT.format(rules=RULES) + silent)
        done = subprocess.run(
            ["promtool", "test", "rules", str(unit)], capture_output=True, text=True, check=False
        )
        assert done.returncode == 1, f"{name} does not fire"
        assert name in done.stdout + done.stderr


def asked(url: str, path: str, key: str) -> list[dict]:
    try:
        with urllib.request.urlopen(f"{url}/api/v1/{path}", timeout=20) as answer:
            return json.loads(answer.read())["data"][key]
    except OSError:  # it is on its way up
        return []


def answers(url: str, query: str) -> list | None:
    """What a real Prometheus finds; None where it cannot understand the query."""
    try:
        with urllib.request.urlopen(
            f"{url}/api/v1/query?query={urllib.parse.quote(query)}", timeout=20
        ) as answer:
            found = json.loads(answer.read())
    except urllib.error.HTTPError as error:
        print(query, error.read())
        return None
    return found["data"]["result"] if found["status"] == "success" else None


def test_a_real_prometheus_takes_the_figures_and_fires_for_a_run_that_needs_a_person(place, tmp_path) -> None:
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("prometheus is not installed (Debian: apt-get install prometheus)")
    run = place.submit("--fail-at", "3", "--fail-code", "78", steps=400)
    target, port = free_port(), free_port()
    place.supervise(CIUIC_METRICS_PORT=str(target))
    config = tmp_path / "prometheus.yml"
    config.write_text(
        f"global: {{scrape_interval: 500ms, evaluation_interval: 500ms}}\nrule_files: ['{RULES}']\n"
        f"scrape_configs: [{{job_name: ciuic, static_configs: [{{targets: ['127.0.0.1:{target}']}}]}}]\n"
    )
    command = [program, f"--config.file={config}", f"--storage.tsdb.path={tmp_path / 'tsdb'}"]
    with (tmp_path / "prometheus.log").open("wb") as log:
        server = subprocess.Popen(
            [*command, f"--web.listen-address=127.0.0.1:{port}"], stdout=log, stderr=log
        )
    url = f"http://127.0.0.1:{port}"
    try:
        wait_for_state(run, "failed")

        def firing():
            found = [item for item in asked(url, "alerts", "alerts") if item["state"] == "firing"]
            return [item for item in found if item["labels"]["alertname"] == "CiuicRunNeedsAttention"]

        [alert] = wait_for(firing, what="the alert in Prometheus")
        assert alert["labels"]["run"] == run.run_id
        assert alert["annotations"]["command"] == f"ciuic explain {run.run_id}"
        # The dashboard's queries on these figures: all can be computed, and those about runs and supervisor find some.
        results = {query: answers(url, query) for query in queries()}
        assert [query for query, found in results.items() if found is None] == []
        assert results['ciuic_runs{state="failed"}']
        assert results['ciuic_run_state{run=~".*"} == 1']
        assert results["time() - ciuic_supervisor_last_tick_timestamp_seconds"]
        rules = [rule for group in asked(url, "rules", "groups") for rule in group["rules"]]
        assert len(rules) == 8
        assert {rule["health"] for rule in rules} == {"ok"}, (
            "each expression can be computed from real figures"
        )
    finally:
        server.terminate()
        server.wait(30)
