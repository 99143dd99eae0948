"""Whole logs in the shapes that launchers write: class, rank, node, retry."""

import tomllib
from pathlib import Path

import pytest

from supervisor.diagnose.run import diagnose

LOGS = Path(__file__).parents[2] / "data" / "logs"
EXPECTED = tomllib.loads((LOGS / "expected.toml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", EXPECTED)
def test_log(name):
    expected = EXPECTED[name]
    outcome = diagnose([str(LOGS / name)])
    assert outcome.diagnosis is not None
    assert not outcome.problems
    facts = outcome.diagnosis.json()
    found = {"class": facts["class"], "rank": facts["suspect_rank"], "node": facts["blame_node"]}
    assert found == {
        "class": expected["class"],
        "rank": expected.get("rank"),
        "node": expected.get("node"),
    }, facts
    for key, of in (("retry", "retry"), ("cause", "cause"), ("line", "line")):
        if key in expected:
            assert facts[of] == expected[key], facts
    assert (facts["file"] is None) == (expected["class"] == "none")


def test_every_log_is_expected():
    assert {path.name for path in LOGS.iterdir()} - {"expected.toml"} == set(EXPECTED)
