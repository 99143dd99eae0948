"""The dashboard for Grafana: what it must have to be one, and figures that there are. Its queries run in test_metrics.py."""

import json
import re

import pytest

from contract.fold import fold
from contract.journal import JournalReader
from slurm.agent.exporter import NodeCollector, Samples
from supervisor.adapters.metrics import Exporter
from supervisor.seen import RunSeen
from tests.supervisor.conftest import bare_run
from tests.supervisor.grafana import BOARD, panels, queries
from tests.supervisor.page.scenes import look_at
from tests.supervisor.report.long_run import long_run

NAME = re.compile(r"ciuic_[a-z_]+")


def test_it_is_what_grafana_calls_a_dashboard() -> None:
    assert BOARD["schemaVersion"] >= 36
    assert BOARD["uid"]
    assert BOARD["title"]
    variables = {item["name"]: item for item in BOARD["templating"]["list"]}
    assert variables["datasource"]["type"] == "datasource"
    assert variables["run"]["allValue"] == ".*", "a list of all names is too long for a server"
    identities = [panel["id"] for panel in BOARD["panels"]]
    assert len(set(identities)) == len(identities)
    taken = set()
    for panel in BOARD["panels"]:
        place = panel["gridPos"]
        assert 0 <= place["x"] < place["x"] + place["w"] <= 24
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, f"{panel['title']} lies on another"
        taken |= cells
    for panel in panels():
        assert panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"]
        assert panel["fieldConfig"]["defaults"]["noValue"], "absence is told, never shown as zero"
        assert {target["datasource"]["uid"] for target in panel["targets"]} == {"${datasource}"}


def test_grafanas_own_schema_knows_all_of_it() -> None:
    """Read into the types that Grafana publishes and written again, nothing is lost or changed."""
    dashboard = pytest.importorskip(
        "grafana_foundation_sdk.models.dashboard", reason="grafana-foundation-sdk is not installed"
    )
    from grafana_foundation_sdk.cog.encoder import JSONEncoder
    from grafana_foundation_sdk.cog.plugins import register_default_plugins

    register_default_plugins()
    again = json.loads(JSONEncoder().encode(dashboard.Dashboard.from_json(BOARD)))
    open_ = {"titleFormat", "textFormat", "step"}  # of Prometheus's annotations, which the types leave open
    assert [path for path in lost(BOARD, again) if path.rpartition(".")[2] not in open_] == []


def lost(one, other, path=""):
    """Where they differ."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key, value in one.items():
            yield from lost(value, other[key], f"{path}.{key}") if key in other else [f"{path}.{key}"]
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for number, (value, found) in enumerate(zip(one, other, strict=True)):
            yield from lost(value, found, f"{path}[{number}]")
    elif one != other:
        yield path


def test_every_figure_that_it_asks_for_is_exported(root) -> None:
    """Names in the queries against those that both exporters give."""
    over = fold(JournalReader(long_run(root, steps=300, faults=3).journal).new())
    exporter = Exporter(lambda: [RunSeen(run="long-1", history=over), look_at("r-1")], "1")
    exporter.round(0.1)
    device = {
        "index": 0,
        "busy_percent": 1,
        "memory_used_mib": 1,
        "memory_total_mib": 2,
        "celsius": 30,
        "ecc_uncorrected": 0,
    }
    node = NodeCollector(Samples(devices=[device]), bare_run(root, "r-1"), 1, "n1")
    given = {
        name
        for families in (exporter._registry.collect(), node.collect())
        for family in families
        for name in (family.name, *(sample.name for sample in family.samples))
    }
    asked = {name for query in queries() for name in NAME.findall(query)}
    assert len(asked) > 20
    assert asked - given == set()
