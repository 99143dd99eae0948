"""What was measured, judged: tables of what an administrator would be told."""

from dataclasses import replace

import pytest

from contract.config import RunConfig
from supervisor.adapters.lag import Mount
from supervisor.doctor.finding import Finding, State, exit_code, report
from supervisor.doctor.machine import MachineSeen, judge_machine
from supervisor.doctor.packages import PackagesSeen, judge_packages
from supervisor.doctor.slurm import SlurmSeen, judge_slurm, parse_config, probe_slurm
from supervisor.doctor.storage import StorageSeen, judge_storage

SLURM = {
    "ClusterName": "c",
    "JobRequeue": "1",
    "KillWait": "30 sec",
    "MinJobAge": "300 sec",
    "SlurmdTimeout": "300 sec",
    "MessageTimeout": "10 sec",
    "UnkillableStepTimeout": "60 sec",
    "ProctrackType": "proctrack/cgroup",
    "AccountingStorageType": "accounting_storage/slurmdbd",
    "PrologFlags": "Alloc,Contain",
}


def on_slurm(**job) -> RunConfig:
    base = RunConfig()
    return base.model_copy(update={"job": base.job.model_copy(update={"executor": "slurm", **job})})


def judged(values: dict[str, str], config: RunConfig | None = None) -> dict[str, Finding]:
    seen = SlurmSeen(version="slurm 22.05.8", config={**SLURM, **values})
    return {finding.id: finding for finding in judge_slurm(seen, config)}


def test_slurm_s_defaults_are_in_order() -> None:
    assert {finding.state for finding in judged({}).values()} == {State.OK}


@pytest.mark.parametrize(
    ("values", "id_", "word"),
    [
        ({"PrologFlags": "Contain,ForceRequeueOnFail"}, "slurm.requeue", "ForceRequeueOnFail"),
        ({"KillWait": "5 sec"}, "slurm.kill-wait", "KillWait=30"),
        ({"MinJobAge": "10 sec"}, "slurm.min-job-age", "accounting is asked"),
        (
            {"MinJobAge": "10 sec", "AccountingStorageType": "(null)"},
            "slurm.min-job-age",
            "no accounting to ask",
        ),
        ({"SlurmdTimeout": "0 sec"}, "slurm.slurmd-timeout", "never taken out"),
        ({"SlurmdTimeout": "10 sec"}, "slurm.slurmd-timeout", "stalls"),
        ({"SlurmdTimeout": "3600 sec"}, "slurm.slurmd-timeout", "allocated"),
        ({"MessageTimeout": "100 sec"}, "slurm.message-timeout", "silent controller"),
        ({"ProctrackType": "proctrack/linuxproc"}, "slurm.proctrack", "outlives"),
        ({"UnkillableStepTimeout": "10 sec"}, "slurm.unkillable", "drained"),
        ({"AccountingStorageType": "accounting_storage/none"}, "slurm.accounting", "MinJobAge"),
    ],
)
def test_a_setting_that_hurts_is_named_with_its_reason_and_fix(values, id_, word) -> None:
    finding = judged(values)[id_]
    assert finding.state is State.WARN
    assert finding.fix
    assert word in f"{finding.what} {finding.why} {finding.fix}"


def test_a_recipe_decides_what_is_late() -> None:
    assert judged({"MinJobAge": "0 sec"})["slurm.min-job-age"].state is State.OK, "0 means: never forgotten"
    late = judged({}, on_slurm(signal_before_limit_s=60))["slurm.time-limit-signal"]
    assert late.state is State.WARN


@pytest.mark.parametrize(
    ("seen", "config", "expected"),
    [
        (SlurmSeen(missing=("sbatch", "squeue", "scontrol", "scancel", "sinfo")), None, State.SKIPPED),
        (SlurmSeen(missing=("sbatch", "squeue", "scontrol", "scancel", "sinfo")), on_slurm(), State.FAIL),
        (SlurmSeen(missing=("sinfo",)), None, State.FAIL),
        (SlurmSeen(problem="Unable to contact slurm controller"), None, State.WARN),
        (SlurmSeen(problem="Unable to contact slurm controller"), on_slurm(), State.FAIL),
    ],
)
def test_no_slurm_matters_only_to_who_needs_it(seen, config, expected) -> None:
    assert judge_slurm(seen, config)[-1].state is expected


def test_a_recipe_that_needs_no_slurm_hears_nothing_of_it(tmp_path, monkeypatch) -> None:
    for name in ("sbatch", "squeue", "scontrol", "scancel", "sinfo"):
        (tmp_path / name).write_text("#!/bin/sh\necho 'Unable to contact slurm controller' >&2; exit 1\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    (only,) = probe_slurm(RunConfig())
    assert (only.state, "no Slurm needed" in only.what) == (State.SKIPPED, True)
    assert probe_slurm(on_slurm())[-1].state is State.FAIL
    assert probe_slurm(None)[-1].state is State.WARN


def test_scontrol_is_read() -> None:
    text = "Configuration data as of 2026-01-01\nKillWait                = 30 sec\nPrologFlags  = (null)\n"
    assert parse_config(text) == {"KillWait": "30 sec", "PrologFlags": "(null)"}


GOOD = StorageSeen(
    root="/shared/runs",
    exists=True,
    mount=Mount(kind="nfs4", options=("rw", "relatime")),
    fsync_s=0.004,
    rename_s=0.001,
    free=200 << 30,
    free_inodes=1_000_000,
    inodes=2_000_000,
)


def test_a_good_file_system_is_in_order_and_nfs_s_lag_is_said() -> None:
    findings = judge_storage(GOOD)
    assert {finding.state for finding in findings} == {State.OK}
    assert "60 s" in findings[0].why


@pytest.mark.parametrize(
    ("change", "id_", "expected"),
    [
        ({"problem": "[Errno 30] Read-only file system"}, "storage.write", State.FAIL),
        ({"locks": False}, "storage.lock", State.FAIL),
        ({"mount": Mount(kind="lustre", options=("rw", "localflock"))}, "storage.lock", State.WARN),
        ({"links": False}, "storage.create", State.FAIL),
        ({"fsync_s": 0.6}, "storage.fsync", State.WARN),
        ({"rename_s": 0.6}, "storage.rename", State.WARN),
        ({"clock_s": -40.0}, "storage.clock", State.WARN),
        ({"free": 20 << 30}, "storage.space", State.WARN),
        ({"free": 1 << 20}, "storage.space", State.FAIL),
        ({"free_inodes": 12}, "storage.space", State.WARN),
    ],
)
def test_what_a_file_system_lacks(change, id_, expected) -> None:
    found = {finding.id: finding for finding in judge_storage(replace(GOOD, **change))}
    assert (found[id_].state, bool(found[id_].fix)) == (expected, True)


def test_stacks_and_clock() -> None:
    fine = judge_machine(MachineSeen(clock=0, yama="1", stacks=""))
    assert [finding.state for finding in fine] == [State.OK, State.OK]
    clock, stacks = judge_machine(MachineSeen(clock=5, yama="2", stacks="py-spy: Permission denied"))
    assert clock.state is stacks.state is State.WARN
    assert "ptrace_scope=1" in stacks.fix
    contained = judge_machine(MachineSeen(clock=-1, yama="", stacks="py-spy: Permission denied"))
    assert contained[0].state is State.SKIPPED
    assert "SYS_PTRACE" in contained[1].fix


def test_versions_against_what_ciuic_asks_for() -> None:
    seen = PackagesSeen(
        versions={"torch": "2.9.1+cu128", "deepspeed": "0.19.8", "nvidia-nccl-cu12": "2.27.5"},
        wanted={"torch": "2.11", "deepspeed": "0.19.3"},
        python="/opt/ciuic/.venv",
        operators="/opt/ciuic/.venv/share/ciuic/torch_extensions",
        built=False,
    )
    found = {finding.id: finding for finding in judge_packages(seen, None)}
    assert {id_: finding.state for id_, finding in found.items()} == {
        "packages.torch": State.WARN,
        "packages.deepspeed": State.OK,
        "packages.transformers": State.WARN,
        "packages.nccl": State.OK,
        "packages.rdma": State.SKIPPED,
        "packages.operators": State.WARN,
    }
    assert "2.27.5" in found["packages.nccl"].what
    assert "trainer.ops" in found["packages.operators"].fix


def test_the_exit_code_and_the_order_of_the_report() -> None:
    warn = Finding(id="b", state=State.WARN, what="so", why="because", fix="this")
    good = Finding(id="a", state=State.OK, what="fine")
    assert (exit_code([good, warn], strict=False), exit_code([good, warn], strict=True)) == (0, 1)
    lines = report([warn, good])
    assert lines[0].startswith("OK")
    assert lines[-1] == "0 fail, 1 warn, 1 ok, 0 skipped"
    assert "because" in lines[2]
    assert "this" in lines[3]
