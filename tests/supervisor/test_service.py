"""The supervisor as a service: units that systemd accepts, what it is told, what it hands in. No systemd runs here."""

import getpass
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from supervisor.adapters.systemd import credentials
from supervisor.demo.robot import Robot
from tests.supervisor.conftest import wait_for
from tests.supervisor.place import Place, wait_for_state


@pytest.fixture
def place(tmp_path, robot: Robot):
    made = Place(tmp_path, robot)
    yield made
    made.close()


CHECKOUT = Path(__file__).parents[2]
analyze = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None,
    reason="systemd-analyze is missing (Debian: apt-get install systemd)",
)


def service(action: str, folder: Path, **variables: str) -> subprocess.CompletedProcess:
    """`make install-service` or `uninstall-service`, as make calls it, with an environment that has a ciuic."""
    program = folder / "venv" / "bin" / "ciuic"
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    given = {
        "VENV": str(folder / "venv"),
        "ROOT": str(folder / "runs"),
        "HOME": "/home/u",
        "PATH": os.environ["PATH"],
    }
    return subprocess.run(
        ["bash", "tools/service.sh", action],
        cwd=CHECKOUT,
        env=given | {"DESTDIR": str(folder / "dest")} | variables,
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )


FLAVOURS = {
    "user": ({}, "home/u/.config/systemd/user/ciuic-supervisor.service"),
    "system": (
        {"SYSTEM": "1", "RUN_AS": getpass.getuser(), "PREFIX": "/opt/x"},
        "opt/x/lib/systemd/system/ciuic-supervisor.service",
    ),
}


@analyze
@pytest.mark.parametrize("flavour", FLAVOURS)
def test_what_is_installed_is_accepted_by_systemd_and_can_be_removed(flavour, tmp_path) -> None:
    variables, place = FLAVOURS[flavour]
    done = service("install", tmp_path, **variables)
    assert done.returncode == 0, done.stderr
    unit = tmp_path / "dest" / place
    text = unit.read_text()
    assert f"CIUIC_ROOT={tmp_path / 'runs'}" in text
    assert f"ExecStart={tmp_path / 'venv/bin/ciuic'} supervise" in text
    assert ("User=" + getpass.getuser() in text) == (flavour == "system")
    assert "/shared/runs" not in text
    checked = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *(["--user"] if flavour == "user" else []), unit],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)},
    )
    ours = [line for line in checked.stderr.splitlines() if "ciuic-supervisor" in line]
    assert not ours
    assert service("uninstall", tmp_path, **variables).returncode == 0
    assert not unit.exists()
    assert service("uninstall", tmp_path, **variables).returncode == 1


@analyze
def test_the_system_service_is_hardened() -> None:
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--threshold=40", "supervisor/supervisor.service"],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout[-300:]


def test_a_path_that_a_unit_cannot_hold_is_refused(tmp_path) -> None:
    done = service("install", tmp_path, ROOT=f"{tmp_path}/with blank")
    assert done.returncode == 1
    assert "blanks" in done.stderr


def test_each_credential_is_a_variable(tmp_path) -> None:
    (tmp_path / "ciuic_CIUIC_WECOM_KEY").write_text("k-1\n")
    (tmp_path / "other").write_text("x")
    assert credentials({"CREDENTIALS_DIRECTORY": str(tmp_path)}) == {"CIUIC_WECOM_KEY": "k-1"}
    assert credentials({}) == {}


def test_ready_comes_after_the_first_look_and_a_reload_takes_all_up_afresh(
    place, tmp_path, tmp_path_factory
) -> None:
    """On a real socket, with a key that only systemd knows."""
    run = place.submit("--step-time", "0.05", steps=150)
    hand_in = tmp_path_factory.mktemp("credentials")
    (hand_in / "ciuic_CIUIC_WECOM_KEY").write_text(place.robot.key)
    heard: list[str] = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.settimeout(20)
        listening.bind(str(tmp_path / "notify"))
        process = place.supervise(
            NOTIFY_SOCKET=str(tmp_path / "notify"), CREDENTIALS_DIRECTORY=str(hand_in), CIUIC_WECOM_KEY=""
        )

        def hear(word: str) -> None:
            while word not in heard:
                heard.extend(listening.recv(4096).decode().splitlines())

        hear("READY=1")
        assert "STATUS=1 of 1 runs in care" in heard, "not ready before the run was looked at"
        heard.clear()
        process.send_signal(signal.SIGHUP)
        hear("RELOADING=1")
        assert any(line.startswith("MONOTONIC_USEC=") for line in heard)
        hear("READY=1")
        assert heard.count("WATCHDOG=1") >= 1
        assert process.poll() is None
        wait_for_state(run, "completed")
        wait_for(lambda: place.robot.messages, what="the notice, sent with the key of the credential")
        while select.select([listening], [], [], 0)[0]:
            listening.recv(4096)  # nobody read for a while: in a full queue the next word would be lost
        process.send_signal(signal.SIGTERM)
        hear("STOPPING=1")
        assert process.wait(20) == 0


def test_a_mistyped_root_is_said_not_made(tmp_path) -> None:
    wrong = tmp_path / "typo"
    command = [sys.executable, "-P", "-m", "ciuic", "supervise", "--once", "--root", wrong]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert "is no directory" in done.stderr
    assert not wrong.exists()
