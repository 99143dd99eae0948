"""What a worker finds in its environment, and which interface it is given."""

import json
import socket

import pytest

from contract.control import Control
from contract.states import ControlPhase
from slurm.agent.environment import Placement, base_environment, visible_devices, worker_environment
from slurm.agent.identity import identify
from slurm.agent.network import Link, choose_link, hold_port
from slurm.submit import submitter_environment
from tests.slurm.conftest import config_of

LO = Link(interface="lo", address="127.0.0.1")


def place(**changes):
    known = {
        "run_dir": "/r/x",
        "attempt": 2,
        "generation": 3,
        "node": "n2",
        "node_rank": 1,
        "nodes": 2,
        "local_rank": 1,
        "local_world": 4,
        "master": "10.0.0.1",
        "port": 4242,
        "page": "/dev/shm/p",
    }
    return Placement(**{**known, **changes})


def test_a_worker_knows_its_place():
    control = Control(
        attempt=2, generation=3, phase=ControlPhase.GO, min_step=1, max_step=40, skip_windows=((3, 5),)
    )
    found = worker_environment({"A": "b"}, place(), control, LO)
    assert found == {
        "A": "b",
        "GLOO_SOCKET_IFNAME": "lo",
        "NCCL_SOCKET_IFNAME": "lo",
        "RANK": "5",
        "WORLD_SIZE": "8",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "4",
        "LOCAL_SIZE": "4",
        "MASTER_ADDR": "10.0.0.1",
        "MASTER_PORT": "4242",
        "CIUIC_RUN_DIR": "/r/x",
        "CIUIC_ATTEMPT": "2",
        "CIUIC_GENERATION": "3",
        "CIUIC_NODE": "n2",
        "CIUIC_PAGE": "/dev/shm/p",
        "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": "/dev/shm/p.nccl-",
        "TORCH_FR_DUMP_TEMP_FILE": "/dev/shm/p.nccl-",
        "CIUIC_MIN_STEP": "1",
        "CIUIC_MAX_STEP": "40",
        "CIUIC_SKIP_WINDOWS": "[[3, 5]]",
    }
    assert json.loads(found["CIUIC_SKIP_WINDOWS"]) == [[3, 5]]


def test_the_users_choice_of_interface_stays():
    assert worker_environment({"GLOO_SOCKET_IFNAME": "ib1"}, place(), None, LO)["GLOO_SOCKET_IFNAME"] == "ib1"


def test_secrets_and_submitit_stay_out_and_settings_come_in():
    config = config_of(
        job={"environment": {"OMP_NUM_THREADS": "4", "X": "y"}}, alerts={"wecom": {"key_env": "ROBOT"}}
    )
    ours = {"ROBOT": "secret", "SUBMITIT_EXECUTOR": "local", "PATH": "/bin", "OPENBLAS_NUM_THREADS": "2"}
    found = base_environment(ours, config, 0, local=True)
    assert "secret" not in found.values()
    assert not any(name.startswith("SUBMITIT_") for name in found)
    assert (found["OMP_NUM_THREADS"], found["OPENBLAS_NUM_THREADS"], found["X"]) == ("4", "2", "y")
    assert (found["DS_ACCELERATOR"], found["CUDA_VISIBLE_DEVICES"]) == ("cpu", "")
    assert found["PYTHONSAFEPATH"] == "1"


@pytest.mark.parametrize(
    ("given", "gpus", "index", "local", "devices"),
    [
        ("4,5,6,7", 4, 3, False, "4,5,6,7"),
        ("", 2, 0, False, "0,1"),
        ("0,1,2,3", 2, 1, True, "2,3"),
        ("0,1,2,3", 2, 2, True, "0,1"),
        ("GPU-aa,GPU-bb", 1, 1, True, "GPU-bb"),
        ("0,1", 0, 0, True, ""),
    ],
)
def test_devices(given, gpus, index, local, devices):
    assert visible_devices({"CUDA_VISIBLE_DEVICES": given}, gpus, index, local=local) == devices


def test_identity():
    local = identify(
        {"SUBMITIT_EXECUTOR": "local", "SUBMITIT_LOCAL_GLOBALID": "2", "SUBMITIT_LOCAL_JOB_ID": "77"}
    )
    assert (local.node, local.index, local.job_id, local.restart, local.local) == ("2", 2, "77", 0, True)
    slurm = {"SLURMD_NODENAME": "n4", "SLURM_PROCID": "3", "SLURM_JOB_ID": "12", "SLURM_RESTART_COUNT": "1"}
    found = identify({**slurm, "SUBMITIT_EXECUTOR": "slurm"})
    assert (found.node, found.index, found.job_id, found.restart, found.local) == ("n4", 3, "12", 1, False)
    with pytest.raises(KeyError, match="SLURMD_NODENAME"):
        identify({})


def test_nccl_gets_exact_names_and_the_hcas():
    link = Link(interface="eth0", address="10.0.0.1", nccl="=eth0", hcas="=mlx5_0,mlx5_1")
    found = worker_environment({}, place(), None, link)
    assert (found["GLOO_SOCKET_IFNAME"], found["NCCL_SOCKET_IFNAME"]) == ("eth0", "=eth0")
    assert found["NCCL_IB_HCA"] == "=mlx5_0,mlx5_1"
    assert worker_environment({"NCCL_IB_HCA": "mlx5_7"}, place(), None, link)["NCCL_IB_HCA"] == "mlx5_7"


def test_a_held_port_cannot_be_taken():
    assert choose_link(local=True, wanted="ib0") == LO
    asked = choose_link(local=False, wanted="lo", environment={})
    assert (asked.interface, asked.address, asked.nccl) == ("lo", "127.0.0.1", "=lo")
    assert "loopback" in asked.note
    with pytest.raises(OSError, match="interface 'nope0'"):
        choose_link(local=False, wanted="nope0", environment={})
    with hold_port(LO) as held, socket.socket() as other, socket.socket() as early:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with pytest.raises(OSError, match="in use"):
            other.bind(held.getsockname())
        with pytest.raises(
            ConnectionRefusedError
        ):  # a rank that is there before rank 0 must be able to try again
            early.connect(held.getsockname())


def test_a_submitter_inherits_no_job_and_no_secret():
    ours = {
        "PATH": "/bin",
        "SLURM_JOB_ID": "1",
        "SLURM_CONF": "/c",
        "CIUIC_WECOM_KEY": "s",
        "NOTIFY_SOCKET": "n",
    }
    assert submitter_environment(ours) == {
        "PATH": "/bin",
        "SLURM_CONF": "/c",
        "PYTHONSAFEPATH": "1",
        "SUBMITIT_PREEMPT_SIGNAL": "USR1",
    }
