"""What Slurm's and this machine's words mean."""

import json
import socket
import time
from pathlib import Path

import pytest

from contract.files import FileLock
from contract.layout import RunDir
from contract.states import JobState
from slurm.find import Finding, find_attempt
from slurm.hostlist import expand
from slurm.job import write_job
from slurm.nodes import parse_sinfo
from slurm.patience import Patience
from slurm.queue import Job, LocalQueue, SlurmQueue
from slurm.squeue import Answer, ask, parse_sacct, parse_scontrol, parse_squeue
from slurm.submit import classify
from slurm.words import Row, state_of
from tests.slurm.conftest import config_of, wait_for


@pytest.mark.parametrize(
    ("word", "reason", "state"),
    [
        ("PENDING", "Resources", JobState.PENDING),
        ("PENDING", "Dependency", JobState.PENDING),
        ("PENDING", "QOSGrpNodeLimit", JobState.PENDING),
        ("PENDING", "JobHeldUser", JobState.HELD),
        ("PENDING", "launch failed requeued held", JobState.HELD),
        ("PENDING", "PartitionTimeLimit", JobState.HELD),
        ("PENDING", "AssocMaxNodePerJobLimit", JobState.HELD),
        ("PENDING", "QOSMaxWallDurationPerJobLimit", JobState.HELD),
        ("PENDING", "launch failure limit exceeded requeued held", JobState.HELD),
        ("PENDING", "job requeued in special exit state", JobState.HELD),
        ("PENDING", "PartitionDown", JobState.HELD),
        ("PENDING", "ReqNodeNotAvail, UnavailableNodes:n[1-4]", JobState.PENDING),
        ("PENDING", "BeginTime", JobState.PENDING),
        ("STOPPED", "", JobState.HELD),
        ("SPECIAL_EXIT", "", JobState.HELD),
        ("RESV_DEL_HOLD", "", JobState.HELD),
        ("POWER_UP_NODE", "", JobState.PENDING),
        ("EXPEDITING", "", JobState.PENDING),
        ("REQUEUED", "", JobState.PENDING),
        ("REQUEUE_FED", "", JobState.PENDING),
        ("RESIZING", "", JobState.RUNNING),
        ("SIGNALING", "", JobState.RUNNING),
        ("STAGE_OUT", "", JobState.ENDING),
        ("UPDATE_DB", "", JobState.ENDING),
        ("LAUNCH_FAILED", "", JobState.ENDED_FAILED),
        ("DEADLINE", "", JobState.ENDED_LIMIT),
        ("BOOT_FAIL", "", JobState.ENDED_NODE),
        ("RECONFIG_FAIL", "", JobState.ENDED_NODE),
        ("REQUEUE_HOLD", "", JobState.HELD),
        ("SUSPENDED", "", JobState.HELD),
        ("CONFIGURING", "", JobState.PENDING),
        ("RUNNING", "None", JobState.RUNNING),
        ("COMPLETING", "None", JobState.ENDING),
        ("COMPLETED", "", JobState.ENDED_OK),
        ("FAILED", "NonZeroExitCode", JobState.ENDED_FAILED),
        ("OUT_OF_MEMORY", "", JobState.ENDED_FAILED),
        ("TIMEOUT", "", JobState.ENDED_LIMIT),
        ("NODE_FAIL", "NodeDown", JobState.ENDED_NODE),
        ("PREEMPTED", "", JobState.ENDED_PREEMPTED),
        ("CANCELLED by 1000", "", JobState.ENDED_CANCELLED),
        ("CANCELLED+", "", JobState.ENDED_CANCELLED),
        ("COMPLETININVALID", "", JobState.UNKNOWN),
        ("REVOKED", "", JobState.UNKNOWN),
        ("", "", JobState.UNKNOWN),
    ],
)
def test_states(word, reason, state):
    assert state_of(word, reason) is state


def test_squeue_rows_survive_other_peoples_text():
    text = (
        "motd of the day\n12|RUNNING|None|n[1-2]|deep-1|ciuic:deep-1:a0001\n13_4|PENDING|Priority||x|a|b|c\n"
        "15+1|PENDING|Resources||het|y\n14|X\n\n"
    )
    assert parse_squeue(text) == [
        Row(
            job_id="12",
            state=JobState.RUNNING,
            reason="RUNNING",
            nodes=("n1", "n2"),
            name="deep-1",
            comment="ciuic:deep-1:a0001",
        ),
        Row(job_id="13_4", state=JobState.PENDING, reason="PENDING: Priority", name="x", comment="a|b|c"),
        Row(job_id="15+1", state=JobState.PENDING, reason="PENDING: Resources", name="het", comment="y"),
    ]


def test_scontrol_and_sacct():
    line = "JobId=12 JobName=deep-1 UserId=a(1) JobState=FAILED Reason=NonZeroExitCode Dependency=(null) ExitCode=75:0 RunTime=1"
    row = parse_scontrol(line)
    assert (row.job_id, row.state, row.reason, row.exit) == (
        "12",
        JobState.ENDED_FAILED,
        "FAILED: NonZeroExitCode",
        "75:0",
    )
    assert parse_scontrol("nonsense") is None
    row = parse_sacct("12|CANCELLED by 0|0:15|n[1-2]|deep-1\n")
    assert (row.state, row.reason, row.exit) == (JobState.ENDED_CANCELLED, "CANCELLED by 0", "0:15")
    assert (row.nodes, row.name) == (("n1", "n2"), "deep-1")
    assert parse_sacct("") is None


class Clients:
    """Slurm's clients with canned answers; a missing one is a silent controller."""

    def __init__(self, **answers):
        self.answers, self.asked = answers, []

    def __call__(self, command):
        self.asked.append(list(command))
        return self.answers.get(command[0])


def ok(text=""):
    return Answer(code=0, out=text, err="")


def failed(text):
    return Answer(code=1, out="", err=text)


JOB = Job(run=RunDir(path=Path("/r/deep-1")), attempt=1, job_id="12")


FORGOTTEN = failed("slurm_load_jobs error: Invalid job id specified")
OTHER = "JobId=12 JobName=somebody-else JobState=RUNNING Reason=None"


@pytest.mark.parametrize(
    ("answers", "state"),
    [
        ({}, JobState.UNKNOWN),
        ({"squeue": failed("Unable to contact slurm controller")}, JobState.UNKNOWN),
        ({"squeue": ok("12|RUNNING|None|n1|deep-1|x")}, JobState.RUNNING),
        ({"squeue": ok("99|PENDING|None||deep-1|ciuic:deep-1:a0001")}, JobState.PENDING),
        ({"squeue": ok("12|FAILED|x|n1|deep-1|y")}, JobState.ENDED_FAILED),
        ({"squeue": ok("99|PENDING|None||other|ciuic:other:a0001")}, JobState.UNKNOWN),
        (
            {"squeue": ok(), "scontrol": ok("JobId=12 JobState=TIMEOUT Reason=x ExitCode=0:15")},
            JobState.ENDED_LIMIT,
        ),
        ({"squeue": ok("12|RUNNING|None|n1|somebody-else|x"), "scontrol": ok(OTHER)}, JobState.GONE),
        ({"squeue": ok(), "scontrol": failed("Socket timed out")}, JobState.UNKNOWN),
    ],
)
def test_slurm_is_believed_only_when_it_answers(answers, state):
    assert SlurmQueue(Clients(**answers)).look([JOB])[JOB.key].state is state


@pytest.mark.parametrize(
    ("sacct", "state", "said"),
    [
        (failed("Slurm accounting storage is disabled"), JobState.GONE, "forgotten"),
        (ask(["ciuic-no-such-program"]), JobState.UNKNOWN, "not installed"),
        (failed("sacct: not installed"), JobState.GONE, "forgotten"),
        (ok("12|COMPLETED|0:0|n1|deep-1\n"), JobState.ENDED_OK, "COMPLETED"),
        (ok("12|CANCELLED by 1000|0:15|n1|deep-1\n"), JobState.ENDED_CANCELLED, "by 1000"),
        # Down or behind is no word on how the job ended: a person may have cancelled it.
        (None, JobState.UNKNOWN, "accounting does not answer"),
        (
            failed("sacct: error: Problem talking to the database: Connection refused"),
            JobState.UNKNOWN,
            "Connection refused",
        ),
        (ok("12|RUNNING|0:0|n1|deep-1\n"), JobState.UNKNOWN, "RUNNING still"),
        (ok("12|PENDING|0:0|None assigned|deep-1\n"), JobState.UNKNOWN, "PENDING still"),
        (ok(""), JobState.GONE, "neither"),
        (ok("12|COMPLETED|0:0|n1|of-long-ago\n"), JobState.GONE, "given away again"),
    ],
)
def test_a_forgotten_job_is_accountings_to_tell(sacct, state, said):
    clients = Clients(squeue=ok(), scontrol=FORGOTTEN, sacct=sacct)
    seen = SlurmQueue(clients).look([JOB])[JOB.key]
    assert seen.state is state
    assert said in seen.reason


def test_the_node_that_ended_a_job_is_named_though_it_is_back():
    show = ok(
        "JobId=12 JobName=deep-1 JobState=NODE_FAIL Reason=NodeDown NodeList=n[1-2] FailedNode=n2 ExitCode=0:0"
    )
    nodes = ok("n1|idle|main*|none\nn2|idle|main*|none")
    clients = Clients(squeue=ok("12|NODE_FAIL|NodeDown|n[1-2]|deep-1|x"), scontrol=show, sinfo=nodes)
    assert SlurmQueue(clients).look([JOB])[JOB.key].dead == ("n2",)


def test_cancelling_escalates():
    clients = Clients()
    SlurmQueue(clients).cancel(JOB, force=False)
    SlurmQueue(clients).cancel(JOB, force=True)
    cancelled = [command for command in clients.asked if command[0] == "scancel"]
    assert cancelled == [["scancel", "12"], ["scancel", "--signal=KILL", "--full", "12"]]


@pytest.mark.parametrize(
    ("answers", "heard"),
    [
        ({}, False),
        ({"squeue": ok(), "scancel": failed("scancel: error: Unable to contact slurm controller")}, False),
        ({"squeue": ok(), "scancel": failed("scancel: error: Invalid job id 12")}, True),
        ({"squeue": ok(), "scancel": ok()}, True),
    ],
)
def test_whether_the_queue_has_heard_that_a_job_is_to_end(answers, heard):
    assert SlurmQueue(Clients(**answers)).cancel(JOB, force=False) is heard


def test_one_command_waits_for_slurm_once_whatever_it_asks():
    asked, now = [], [0.0]

    def silent(command, timeout_s):
        asked.append((command[0], timeout_s))
        now[0] += min(timeout_s, 3.0)
        return None if timeout_s < 4 else ok("12|RUNNING|None|n1|deep-1|x")

    patience = Patience(5.0, ask=silent, clock=lambda: now[0])
    for _ in range(4):  # four runs
        assert SlurmQueue(patience).look([JOB])[JOB.key].state is JobState.RUNNING
    assert patience.silent == ""
    patience(["scontrol", "show"])
    patience(["sacct"])
    assert asked == [("squeue", 5.0), ("scontrol", 2.0)]
    assert (now[0], patience.silent) == (5.0, "sacct: no answer within 5 s")


def test_a_client_that_tries_for_ever_is_ended(tmp_path):
    begun = time.monotonic()
    assert Patience(0.3)(["sh", "-c", f"echo $$ > {tmp_path}/pid; exec sleep 60"]) is None
    assert time.monotonic() - begun < 10
    pid = (tmp_path / "pid").read_text().strip()
    assert not Path(f"/proc/{pid}").exists()


def test_a_job_that_got_in_twice_is_seen_and_cancelled_whole():
    rows = "12|COMPLETED|None|n1|deep-1|ciuic:deep-1:a0001\n13|PENDING|Dependency||deep-1|ciuic:deep-1:a0001\n14|RUNNING|None|n2|o|x"
    clients = Clients(squeue=ok(rows), scancel=ok())
    assert SlurmQueue(clients).look([JOB])[JOB.key].job_id == "13"
    SlurmQueue(clients).cancel(JOB, force=False)
    assert clients.asked[-1] == ["scancel", "12", "13"]


@pytest.mark.parametrize(
    ("sinfo", "dead"),
    [
        ("n1|completing*|main*|none\nn2|completing*|main*|none", ("n1", "n2")),
        ("n1|completing|main*|none\nn2|down*|main*|Not responding", ("n2",)),
        ("n1|completing|main*|none\nn2|completing|a|none", ()),
        (None, ()),
    ],
)
def test_of_an_ending_job_the_nodes_that_answer_nobody_are_told(sinfo, dead):
    rows = "12|COMPLETING|None|n[1-2]|deep-1|ciuic:deep-1:a0001"
    clients = Clients(squeue=ok(rows), **({"sinfo": ok(sinfo)} if sinfo else {}))
    seen = SlurmQueue(clients).look([JOB])[JOB.key]
    assert (seen.state, seen.nodes, seen.dead) == (JobState.ENDING, ("n1", "n2"), dead)


@pytest.mark.parametrize(
    ("reason", "had_agent", "state"),
    [
        ("Prolog error", False, JobState.ENDED_FAILED),
        ("Prolog error", True, JobState.ENDED_CANCELLED),
        ("none", False, JobState.ENDED_CANCELLED),
    ],
)
def test_slurm_itself_cancels_a_job_whose_prolog_failed(run, reason, had_agent, state):
    if had_agent:
        run.attempt(1).alive_of("n2").touch()
    row = "12|CANCELLED|None|n[1-2]|deep-1|ciuic:deep-1:a0001"
    show = ok("JobId=12 JobState=CANCELLED Reason=None NodeList=n[1-2] ExitCode=0:15")
    nodes = ok(f"n1|idle|main*|none\nn2|drained|main*|{reason}")
    clients = Clients(squeue=ok(row), scontrol=show, sinfo=nodes)
    job = Job(run=run, attempt=1, job_id="12")
    seen = SlurmQueue(clients).look([job])[job.key]
    assert seen.state is state
    assert seen.failed == (("n2",) if state is JobState.ENDED_FAILED else ())


def test_nodes_of_a_partition():
    text = "n1|idle|a*|none\nn2|mixed*|a*|none\nn2|mixed*|b|none\nn3|drained|a*|Kill task failed\nn4|idle~|b|none\nrubbish"
    found = parse_sinfo(text, default_only=True)
    assert {name: (row.responds, row.usable) for name, row in found.items()} == {
        "n1": (True, True),
        "n2": (False, True),
        "n3": (True, False),
    }
    assert set(parse_sinfo(text)) == {"n1", "n2", "n3", "n4"}


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n[1-3,07]", ("n1", "n2", "n3", "n07")),
        ("gpu[1-2]-[0-1],x", ("gpu1-0", "gpu1-1", "gpu2-0", "gpu2-1", "x")),
        ("a[009-011]b", ("a009b", "a010b", "a011b")),
        ("(null)", ()),
        ("None assigned", ()),
        ("", ()),
    ],
)
def test_lists_of_nodes(text, names):
    assert expand(text) == names


@pytest.mark.parametrize(
    ("error", "permanent", "doubtful"),
    [
        ("sbatch: error: Batch job submission failed: Invalid partition name specified", True, False),
        ("sbatch: error: Batch job submission failed: Socket timed out on send/recv operation", False, True),
        ('Could not make sense of sbatch output "12"', False, True),
        ("sbatch: error: Unable to contact slurm controller (connect failure)", False, False),
        ('RuntimeError: Could not detect "srun", are you indeed on a slurm cluster?', True, False),
    ],
)
def test_errors_of_submission(error, permanent, doubtful):
    found = classify(error)
    assert (found.permanent, found.doubtful, found.reason) == (permanent, doubtful, error)
    in_lines = classify(f"FailedJobError: sbatch said:\n\n  {error}\n")
    assert in_lines.reason == f"FailedJobError: sbatch said: {error}", "a part of a sentence"
    assert (in_lines.permanent, in_lines.doubtful) == (permanent, doubtful)


@pytest.fixture
def run(tmp_path):
    run = RunDir(path=tmp_path / "deep-1")
    run.attempt(1).alive.mkdir(parents=True)
    return run


def local_state(run):
    job = Job(run=run, attempt=1)
    return LocalQueue().look([job])[job.key].state


def test_a_local_job_lives_by_its_locks(run):
    assert local_state(run) is JobState.GONE
    assert find_attempt(run, 1).finding is Finding.ABSENT
    write_job(run, 1, tag="t", executor="local", job_id="")
    assert find_attempt(run, 1).finding is Finding.ABSENT
    lock = FileLock(run.attempt(1).alive_of("0"))
    assert lock.acquire()
    assert local_state(run) is JobState.RUNNING
    lock.release()
    assert local_state(run) is JobState.GONE


def test_a_job_of_another_machine_is_unknown_and_one_of_another_boot_is_over(run):
    write_job(run, 1, tag="t", executor="local", job_id="5")
    place = run.attempt(1).job
    here = place.read_text()
    place.write_text(json.dumps({**json.loads(here), "host": "elsewhere"}))
    assert local_state(run) is JobState.UNKNOWN
    assert find_attempt(run, 1).finding is Finding.UNKNOWN
    place.write_text(json.dumps({**json.loads(here), "host": socket.gethostname(), "boot": "before"}))
    assert local_state(run) is JobState.GONE
    assert find_attempt(run, 1).finding is Finding.ABSENT
    place.write_text("{torn")
    assert local_state(run) is JobState.UNKNOWN
    assert find_attempt(run, 1).finding is Finding.UNKNOWN


def test_a_job_is_seen_from_its_start_to_its_end(start):
    trial = start(config_of("--step-time", "0.05", run={"steps": 500}))
    assert trial.state.state in {JobState.PENDING, JobState.RUNNING}
    found = find_attempt(trial.run, 1)
    assert (found.finding, found.job_id) == (Finding.FOUND, trial.job.job_id)
    trial.at_step(0, 2)
    assert trial.state.state is JobState.RUNNING
    trial.queue.cancel(trial.job, force=True)
    wait_for(lambda: trial.state.state.ended, what="the end")
    assert find_attempt(trial.run, 1).finding is Finding.FOUND  # its number is used up


def test_a_job_can_be_cancelled_before_its_agents_exist(start):
    trial = start(config_of(run={"steps": 500}))
    trial.queue.cancel(trial.job, force=False)
    seen = trial.end()  # with 0 too: submitit's own process swallows SIGTERM and may have nothing else to do
    assert seen.state is JobState.GONE or seen.state.ended


@pytest.mark.parametrize(("conf", "hinted"), [(None, True), ("/etc/s/slurm.conf", False)])
def test_a_squeue_without_configuration_says_what_is_missing(monkeypatch, conf, hinted) -> None:
    monkeypatch.delenv("SLURM_CONF", raising=False)
    if conf:
        monkeypatch.setenv("SLURM_CONF", conf)
    said = "squeue: error: fetch_config: DNS SRV lookup failed\nsqueue: fatal: Could not establish a configuration source\n"
    seen = SlurmQueue(Clients(squeue=failed(said))).look([JOB])[JOB.key]
    assert seen.state is JobState.UNKNOWN
    assert seen.reason.startswith("squeue gave no answer: fatal: Could not establish a configuration source")
    assert ("SLURM_CONF is not set" in seen.reason) is hinted
