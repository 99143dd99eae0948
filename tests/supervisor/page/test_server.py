"""What many viewers cost: each its thread, and nobody else anything."""

import contextlib
import socket

import pytest

from supervisor.page import server
from supervisor.page.channel import Channel
from supervisor.page.door import Door, Place
from tests.supervisor.conftest import wait_for
from tests.supervisor.page.scenes import ask, free_port


class One:
    """In the painter's place: one picture for whatever is asked."""

    def __init__(self) -> None:
        self.one = Channel("boot")
        self.one.show({"number": 0}, 1.0, 1.0)

    def channel(self, run: str) -> Channel:
        return self.one


@pytest.fixture
def served():
    place = Place(host="127.0.0.1", port=free_port())
    painter = One()
    made = server.Server(place, Door(place), painter)
    made.start()
    yield painter.one, place.port
    painter.one.close()
    made.close()


def follow(port: int, version: str) -> socket.socket:
    link = socket.create_connection(("127.0.0.1", port), timeout=30)
    link.sendall(f"GET /events?since={version} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    return link


def test_a_viewer_that_takes_nothing_holds_up_nobody(served) -> None:
    channel, port = served
    with contextlib.ExitStack() as held:
        for _ in range(20):
            held.enter_context(follow(port, "boot-1"))
        wait_for(lambda: channel.viewers == 20)
        quick = held.enter_context(follow(port, "boot-1"))
        came = b""
        for number in range(1, 40):  # more than any buffer on the way holds
            channel.show({"number": number, "much": "x" * 200_000 + str(number)}, 1.0, 1.0)
            while f'"number":{number},'.encode() not in came[-300_000:]:
                came += quick.recv(1 << 20)
        assert channel.viewers == 21


def test_one_more_than_can_be_served_is_told_so(served) -> None:
    channel, port = served
    with contextlib.ExitStack() as held:
        links = [held.enter_context(follow(port, "boot-1")) for _ in range(server._MOST_VIEWERS)]
        wait_for(lambda: channel.viewers == len(links))
        assert ask(port, "/events?since=boot-1")[0] == 503
        assert ask(port, "/picture")[0] == 200, "and it looks now and then"
    channel.show({"number": 1}, 2.0, 2.0)  # those that went are noticed when something is sent
    channel.show({"number": 2}, 3.0, 3.0)
    wait_for(lambda: channel.viewers == 0)
