"""The robot's adapter against a real HTTP server with the published limits."""

import logging
import socket

import pytest

from supervisor.adapters.wecom import OFFICIAL, Robot
from supervisor.core.text import cut
from supervisor.demo.robot import Answer

WRONG = "00000000-1111-2222-3333-444444444444"


def test_a_message_arrives_with_its_mentions(robot) -> None:
    answer = Robot(base_url=robot.url, secret=robot.key).send("训练卡住", ("@all",))
    assert answer.delivered
    assert robot.messages[0].content == "训练卡住"
    assert robot.messages[0].mentioned == ("@all",)


def test_a_whole_url_is_taken_as_the_key(robot) -> None:
    url = f"{robot.url}/cgi-bin/webhook/send?key={robot.key}"
    assert Robot(base_url=OFFICIAL, secret=url).send("a").delivered
    assert (
        Robot(base_url=robot.url, secret=f"https://elsewhere.example/send?key={robot.key}")
        .send("b")
        .delivered
    )
    assert robot.texts() == ["a", "b"]


def test_text_that_is_too_long_is_cut_at_a_character(robot) -> None:
    assert Robot(base_url=robot.url, secret=robot.key).send("卡" * 3000).delivered
    text = robot.texts()[0]
    assert len(text.encode()) <= 2048
    assert text.endswith("…（已截断）")
    for length in range(20, 60):
        assert len(cut("卡a训" * 30, length).encode()) <= length


@pytest.mark.parametrize("errcode", [45009, 93000, -1, 40008])
def test_an_errcode_in_http_200_is_no_success(robot, errcode: int) -> None:
    robot.script(Answer(errcode=errcode))
    answer = Robot(base_url=robot.url, secret=robot.key).send("x")
    assert (answer.errcode, answer.delivered) == (errcode, False)


def test_the_rate_limit_is_enforced(robot) -> None:
    sender = Robot(base_url=robot.url, secret=robot.key)
    codes = [sender.send(str(number)).errcode for number in range(21)]
    assert codes == [0] * 20 + [45009]


def test_the_wrong_key_is_refused_and_an_unusable_one_is_not_tried(robot) -> None:
    assert Robot(base_url=robot.url, secret=WRONG).send("x").errcode == 93000
    assert Robot(base_url=robot.url, secret="two words").problem
    assert Robot(base_url=robot.url, secret="").problem


def _closed_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def test_whatever_goes_wrong_the_key_shows_nowhere(robot, caplog, capfd) -> None:
    caplog.set_level(logging.DEBUG)
    sender = Robot(base_url=robot.url, secret=robot.key)
    robot.script(
        Answer(status=500), Answer(body=b"<html>"), Answer(body=b'{"errcode": true}'), Answer(hang_s=30)
    )
    answers = [sender.send("x") for _ in range(3)]
    answers.append(sender.send("x", timeout_s=0.3))
    robot.script(Answer(body=f'{{"errcode": 93000, "errmsg": "bad key {robot.key}"}}'.encode()))
    answers.append(sender.send("x"))
    answers.append(Robot(base_url=f"http://127.0.0.1:{_closed_port()}", secret=robot.key).send("x"))
    answers.append(Robot(base_url="http://no-such-host.invalid", secret=robot.key).send("x"))
    assert [(answer.errcode, answer.status) for answer in answers[:4]] == [
        (None, 500),
        (None, 200),
        (None, 200),
        (None, 0),
    ]
    assert "Timeout" in answers[3].reason
    assert "refused" in answers[5].reason
    out, err = capfd.readouterr()
    assert robot.key not in " ".join([repr(sender), *map(repr, answers), caplog.text, out, err])


def test_a_redirect_is_not_followed(robot) -> None:
    robot.script(Answer(status=302))
    assert Robot(base_url=robot.url, secret=robot.key).send("x").status == 302
    assert robot.requests == 1
