"""Slurm's JSON in the shapes of its versions: samples made by hand from the documented ones (tests/data/slurm_json)."""

from pathlib import Path

import pytest

from contract.states import JobState
from slurm.queue import SlurmQueue
from slurm.slurm_json import number, read_jobs, state_of_words
from tests.slurm.test_queue import JOB, Clients, ok

KEPT = Path(__file__).resolve().parents[1] / "data" / "slurm_json"
TAG = "ciuic:deep-1:a0001"


def read(name: str):
    return {row.job_id: row for row in read_jobs((KEPT / f"{name}.json").read_text())}


@pytest.mark.parametrize(
    ("version", "states"),
    [
        ("22.05", (JobState.RUNNING, JobState.HELD, JobState.ENDED_FAILED, JobState.ENDING)),
        ("23.02", (JobState.RUNNING, JobState.HELD, JobState.ENDED_FAILED, JobState.ENDED_NODE)),
        ("23.11", (JobState.RUNNING, JobState.HELD, JobState.ENDED_FAILED, JobState.ENDING)),
        ("24.11", (JobState.RUNNING, JobState.HELD, JobState.ENDED_FAILED, JobState.ENDED_PREEMPTED)),
        # A flag that we do not know does not hide that a job runs, and does not let it pass for ended.
        ("25.11", (JobState.RUNNING, JobState.HELD, JobState.UNKNOWN, JobState.UNKNOWN)),
    ],
)
def test_squeue_of_every_version(version, states):
    found = read(f"squeue-{version}")
    assert [row.state for row in found.values()] == list(states)
    running = found["12"]
    assert (running.name, running.comment, running.nodes) == ("deep-1", TAG, ("n1", "n2"))
    assert found["14"].exit == "75:0"


def test_exit_by_signal_and_the_node_that_failed():
    assert read("squeue-22.05")["15"].exit == "0:9"
    assert read("squeue-23.11")["15"].exit == "0:9"
    assert read("squeue-24.11")["15"].exit == ""
    assert read("squeue-23.02")["15"].failed_node == "n4"
    assert read("squeue-22.05")["13"].reason == "PENDING: launch failed requeued held"


@pytest.mark.parametrize("version", ["22.05", "25.05"])
def test_sacct_of_old_and_new_versions(version):
    found = read(f"sacct-{version}")
    failed, cancelled = found["14"], found["15"]
    assert (failed.state, failed.exit, failed.comment) == (JobState.ENDED_FAILED, "75:0", TAG)
    assert (failed.nodes, cancelled.nodes) == (("n3",), ())
    assert (cancelled.state, cancelled.exit) == (JobState.ENDED_CANCELLED, "0:15")


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", '{"jobs": {}}', (KEPT / "errors-23.11.json").read_text()]
)
def test_what_is_no_answer(text):
    assert read_jobs(text) is None


def test_no_jobs_is_an_answer():
    assert read_jobs('{"errors": [], "jobs": []}') == []


@pytest.mark.parametrize(
    ("words", "state"),
    [
        ([], JobState.UNKNOWN),
        (["COMPLETED", "UPDATE_DB"], JobState.ENDING),
        (["RUNNING", "STOPPED"], JobState.HELD),
        (["RUNNING", "CONFIGURING"], JobState.PENDING),
        (["NODE_FAIL", "REQUEUED"], JobState.PENDING),
        (["CANCELLED by 1000"], JobState.ENDED_CANCELLED),
    ],
)
def test_several_words_say_one_thing(words, state):
    assert state_of_words(words) is state


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (7, 7),
        ({"set": True, "infinite": False, "number": 7}, 7),
        ({"set": False, "infinite": False, "number": 0}, None),
        ({"set": True, "infinite": True, "number": 0}, None),
        ({"number": 7}, 7),
        (None, None),
        ("7", None),
        (True, None),
    ],
)
def test_numbers(value, found):
    assert number(value) == found


class Json(Clients):
    """Text that is of no use, and the JSON behind it."""

    def __call__(self, command):
        super().__call__(command)
        return self.answers["json" if "--json" in command else command[0]]


def test_a_word_that_is_cut_or_new_is_looked_up_in_json():
    sample = ok((KEPT / "squeue-25.11.json").read_text())
    for word in ("FLAG_OF_TOMORROW", "COMPLETININVALID"):
        clients = Json(squeue=ok(f"12|{word}|None|n[1-2]|deep-1|{TAG}"), json=sample)
        assert SlurmQueue(clients).look([JOB])[JOB.key].state is JobState.RUNNING
    clients = Json(squeue=ok(), scontrol=ok("JobId=12 JobStatus=odd"), json=sample)
    assert SlurmQueue(clients).look([JOB])[JOB.key].state is JobState.RUNNING


def test_json_is_not_asked_for_what_text_tells():
    clients = Json(squeue=ok(f"12|RUNNING|None|n[1-2]|deep-1|{TAG}"), json=ok("{}"))
    assert SlurmQueue(clients).look([JOB])[JOB.key].state is JobState.RUNNING
    assert not [command for command in clients.asked if "--json" in command]


def test_without_json_an_unknown_word_stays_unknown():
    clients = Json(squeue=ok(f"12|FLAG_OF_TOMORROW|None|n1|deep-1|{TAG}"), json=None)
    assert SlurmQueue(clients).look([JOB])[JOB.key].state is JobState.UNKNOWN
