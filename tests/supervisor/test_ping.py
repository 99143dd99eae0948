"""The dead-man signal: it comes while the loop is healthy, and its silence is the alarm."""

import os
import signal
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from supervisor.adapters.ping import Ping
from supervisor.demo.robot import Robot
from tests.supervisor.conftest import bare_run, wait_for
from tests.supervisor.place import Place


class Waiting:
    """Somebody who waits for signs of life."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.status, self.hang = 200, threading.Event()
        self.hang.set()
        waiting = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                waiting.hang.wait(10)
                waiting.seen.append(self.path)
                self.send_response(waiting.status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/ping/s3cret-uuid"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def waiting():
    made = Waiting()
    yield made
    made.close()


@pytest.fixture
def place(tmp_path, robot: Robot):
    made = Place(tmp_path, robot)
    yield made
    made.close()


def test_it_comes_so_often_and_only_while_healthy(waiting) -> None:
    now, lines = [0.0], []
    ping = Ping({"CIUIC_PING_URL": waiting.url}, 60.0, lines.append, lambda: now[0])
    for at in (0.0, 1.0, 59.0, 61.0):
        now[0] = at
        ping.beat(healthy=True)
        ping.wait(5)
    assert waiting.seen == ["/ping/s3cret-uuid"] * 2
    now[0] = 200.0
    ping.beat(healthy=False)
    ping.wait(5)
    assert len(waiting.seen) == 2
    ping.beat(healthy=True)
    ping.wait(5)
    assert len(waiting.seen) == 3
    assert lines == []


def test_nobody_waits_for_a_slow_one_and_a_failing_one_is_said_once_without_its_address(waiting) -> None:
    lines: list[str] = []
    ping = Ping({"CIUIC_PING_URL": waiting.url}, 0.0, lines.append)
    waiting.hang.clear()
    began = time.monotonic()
    ping.beat(healthy=True)
    ping.beat(healthy=True)
    assert time.monotonic() - began < 1
    waiting.status = 500
    waiting.hang.set()
    for _ in range(3):
        ping.wait(5)
        ping.beat(healthy=True)
    ping.wait(5)
    assert lines == ["the dead-man signal does not arrive: HTTP status 500"]
    silent = Ping({}, 0.0, lines.append)
    silent.beat(healthy=True)
    assert len(lines) == 1


def test_the_daemon_gives_signs_of_life_until_it_is_stopped_or_a_run_is_broken(place, waiting) -> None:
    process = place.supervise("--ping-every", "1", CIUIC_PING_URL=waiting.url)
    wait_for(lambda: len(waiting.seen) >= 2)
    os.kill(process.pid, signal.SIGSTOP)
    time_to_settle = len(waiting.seen)
    wait_for(lambda: _quiet(waiting), seconds=15, what="no sign of life from a stopped supervisor")
    os.kill(process.pid, signal.SIGCONT)
    wait_for(lambda: len(waiting.seen) > time_to_settle + 1)
    bare_run(place.root).config.write_text("nothing that can be read")
    wait_for(lambda: _quiet(waiting), seconds=40, what="no sign of life while a run is broken")
    assert "s3cret-uuid" not in place.log.read_text()


def _quiet(waiting: Waiting, seconds: float = 3.0) -> bool:
    """Whether nothing came for three times as long as usual."""
    before, until = len(waiting.seen), time.monotonic() + seconds
    while time.monotonic() < until:
        if len(waiting.seen) > before:
            return False
        time.sleep(0.05)
    return True
