"""A supervised run with a mirror: training goes on whatever the store does, people are told, nothing is lost."""

import shutil

import pytest

from contract import events as ev
from contract.copies.fetch import examine
from contract.copies.report import read_report
from contract.copies.target import Kind, open_store
from supervisor.demo.robot import Robot
from tests.standin import expected_losses
from tests.storage import CREDENTIALS, Fault, find_secrets
from tests.supervisor.conftest import wait_for
from tests.supervisor.place import Place, bodies, wait_for_state

LABEL = '"ciuic.io/checkpoint-path" = "s3://bucket/runs"'


@pytest.fixture
def place(tmp_path, robot: Robot):
    made = Place(tmp_path, robot)
    yield made
    made.close()


def test_an_outage_of_the_store_disturbs_nobody_and_is_told_with_its_end(place, proxy, tmp_path) -> None:
    proxy.become(Fault(kind="refuse"))
    (tmp_path / "backup").mkdir()
    sections = (
        f'[mirror]\nendpoint = "{proxy.endpoint}"\nalert_minutes = 0.05\nrequest_timeout_s = 1.0\n'
        f'[backup]\ndirectory = "{tmp_path / "backup"}"\nperiod_minutes = 0.0\n'
    )
    run, config = place.create("--step-time", "0.05", steps=60, labels=LABEL, sections=sections)
    process = place.supervise("--until-done", **CREDENTIALS)
    wait_for(lambda: any("copy" in item.key for item in bodies(run, ev.AlertQueued)), seconds=60)
    (told,) = [item for item in bodies(run, ev.AlertQueued) if item.key.startswith("copy:")]
    assert "copy:mirror" in told.key
    assert "cannot be reached" in told.text["en"] or "cut off" in told.text["en"]
    facts = {item["kind"]: item for item in place.facts(run)["copies"]}
    assert facts["mirror"]["trouble"]
    assert facts["mirror"]["behind_s"] > 0
    proxy.become(Fault())
    # The run is over long before the next try; its supervisor stays for the last copy.
    wait_for_state(run, "completed")
    assert process.wait(60) == 0
    assert [item.step for item in bodies(run, ev.Recovered)] == []
    assert any("copy-back:mirror" in item.key for item in bodies(run, ev.AlertQueued))
    for kind in Kind:
        assert read_report(run, kind).newest[0] == 60
        store = open_store(config, kind, run.run_id, CREDENTIALS)
        newest = max(store.names())
        assert examine(store, newest, deep=True).valid
        assert newest.startswith("step-000000060")
    assert not find_secrets(tmp_path)
    shown = place.ciuic("checkpoints", run.run_id, **CREDENTIALS).stdout
    assert "mirror" in shown
    assert "60" in shown
    assert expected_losses(60)[60] > 0
    shutil.rmtree(tmp_path / "backup")
    listed = place.ciuic("checkpoints", run.run_id, "--verify", "--lang", "en", **CREDENTIALS)
    assert listed.returncode == 1
    assert "backup cannot be read: the place does not exist" in listed.stdout
