"""Each robot's adapter against a real HTTP server with the published limits."""

import logging
import os
import socket

import pytest

from contract.config.alerts import DingTalk, Feishu, Webhook, WeCom
from supervisor.adapters.post import Letter
from supervisor.adapters.robots import robot_for
from supervisor.core.services import SERVICES, Fate, classify
from supervisor.core.text import cut
from supervisor.demo.robot import Answer
from tests.supervisor.robots import DingTalkRobot, FeishuRobot, JsonServer, Proxy

WRONG = "00000000-1111-2222-3333-444444444444"
SECRET = "SEC0123456789abcdef"


def wecom(robot, key: str | None = None, **settings):
    settings = {"base_url": robot.url, **settings}
    return robot_for(WeCom(**settings), {"CIUIC_WECOM_KEY": robot.key if key is None else key})


def letter(text: str = "x", *mentions: str) -> Letter:
    return Letter(text=text, mentions=mentions)


def test_a_message_arrives_with_its_mentions(robot) -> None:
    assert wecom(robot).send(letter("训练卡住", "@all")).delivered
    assert robot.messages[0].content == "训练卡住"
    assert robot.messages[0].mentioned == ("@all",)


def test_a_whole_url_is_taken_as_the_key(robot) -> None:
    url = f"{robot.url}/cgi-bin/webhook/send?key={robot.key}"
    assert robot_for(WeCom(), {"CIUIC_WECOM_KEY": url}).send(letter("a")).delivered
    assert wecom(robot, f"https://elsewhere.example/send?key={robot.key}").send(letter("b")).delivered
    assert robot.texts() == ["a", "b"]


def test_text_that_is_too_long_is_cut_at_a_character(robot) -> None:
    assert wecom(robot).send(letter("卡" * 3000)).delivered
    text = robot.texts()[0]
    assert len(text.encode()) <= 2048
    assert text.endswith("…（已截断）")
    for length in range(20, 60):
        assert len(cut("卡a训" * 30, length).encode()) <= length


@pytest.mark.parametrize("errcode", [45009, 93000, -1, 40008])
def test_an_errcode_in_http_200_is_no_success(robot, errcode: int) -> None:
    robot.script(Answer(errcode=errcode))
    answer = wecom(robot).send(letter())
    assert (answer.errcode, answer.delivered) == (errcode, False)


def test_the_rate_limit_is_enforced(robot) -> None:
    sender = wecom(robot)
    codes = [sender.send(letter(str(number))).errcode for number in range(21)]
    assert codes == [0] * 20 + [45009]


def test_the_wrong_key_is_refused_and_an_unusable_one_is_not_tried(robot) -> None:
    assert wecom(robot, WRONG).send(letter()).errcode == 93000
    assert wecom(robot, "two words").problem
    assert wecom(robot, "").problem == "set CIUIC_WECOM_KEY"


def test_feishu_takes_a_signed_message_with_its_mentions() -> None:
    with FeishuRobot(secret=SECRET) as server:
        receiver = Feishu(base_url=server.url, secret_env="S")
        robot = robot_for(receiver, {"CIUIC_FEISHU_KEY": server.key, "S": SECRET})
        assert robot.send(letter("训练卡住", "@all", "ou_li")).delivered
        assert server.messages[0].mentioned == ("all", "ou_li")
        whole = f"{server.url}/open-apis/bot/v2/hook/{server.key}"
        assert (
            robot_for(Feishu(secret_env="S"), {"CIUIC_FEISHU_KEY": whole, "S": SECRET})
            .send(letter())
            .delivered
        )
        unsigned = robot_for(receiver, {"CIUIC_FEISHU_KEY": server.key, "S": "other"}).send(letter())
        assert (unsigned.errcode, classify(19021, 200, service="feishu")) == (19021, Fate.DROP)
        assert "one hour" in unsigned.reason  # the robot's own words: a wrong clock is the usual cause
        assert robot_for(receiver, {"CIUIC_FEISHU_KEY": server.key}).problem == "set S"


def test_feishu_limits_are_kept_and_understood() -> None:
    with FeishuRobot(keyword="训练") as server:
        robot = robot_for(Feishu(base_url=server.url), {"CIUIC_FEISHU_KEY": server.key})
        codes = [robot.send(letter("训练" * 9000)).errcode for _ in range(6)]
        assert codes == [0, 0, 0, 0, 0, 11232]
        assert classify(11232, 200, service="feishu") is Fate.RETRY
        assert robot.send(letter("别的")).errcode == 19024
        assert (
            robot_for(Feishu(base_url=server.url), {"CIUIC_FEISHU_KEY": "x"}).send(letter()).errcode == 19001
        )


def test_dingtalk_takes_a_signed_message_with_its_mentions() -> None:
    with DingTalkRobot(secret=SECRET) as server:
        receiver = DingTalk(base_url=server.url, secret_env="S")
        robot = robot_for(receiver, {"CIUIC_DINGTALK_KEY": server.key, "S": SECRET})
        assert robot.send(letter("训练卡住", "@all", "13800000000", "li")).delivered
        assert server.messages[0].mentioned == ("13800000000", "li", "@all")
        whole = f"{server.url}/robot/send?access_token={server.key}"
        again = robot_for(DingTalk(secret_env="S"), {"CIUIC_DINGTALK_KEY": whole, "S": SECRET})
        assert again.send(letter()).delivered
        wrong = robot_for(receiver, {"CIUIC_DINGTALK_KEY": server.key, "S": "other"}).send(letter())
        assert (wrong.errcode, classify(310000, 200, service="dingtalk")) == (310000, Fate.DROP)


def test_dingtalk_limits_are_kept_and_understood() -> None:
    with DingTalkRobot(keyword="训练") as server:
        robot = robot_for(DingTalk(base_url=server.url), {"CIUIC_DINGTALK_KEY": server.key})
        assert robot.send(letter("别的")).errcode == 310000
        codes = [robot.send(letter("训练" * 9000)).errcode for _ in range(21)]
        assert codes == [0] * 20 + [130101]
        assert classify(130101, 200, service="dingtalk") is Fate.RETRY
        assert SERVICES["dingtalk"].pause_s == 600


def test_a_webhook_gets_json_and_answers_with_the_http_status() -> None:
    with JsonServer(token="tok-1") as server:
        environment = {"CIUIC_WEBHOOK_URL": server.address, "T": "tok-1"}
        robot = robot_for(Webhook(secret_env="T"), environment)
        sent = Letter(text="正文", title="标题", severity="critical", runs=("a-1",), mentions=("li",))
        assert robot.send(sent).delivered
        assert server.values[0] == {
            "version": 1, "source": "ciuic", "severity": "critical", "title": "标题", "text": "正文",
            "runs": ["a-1"], "mentions": ["li"], "maybe_duplicate": False,
        }  # fmt: skip
        refused = robot_for(Webhook(), environment).send(sent)
        assert (refused.errcode, refused.status) == (None, 401)
        assert classify(None, 401, tries=1, service="webhook") is Fate.RETRY
        assert classify(None, 401, tries=5, service="webhook") is Fate.DROP
        assert classify(None, 503, tries=50, service="webhook") is Fate.RETRY
        server.script(Answer(status=429))
        assert robot.send(sent).errcode in SERVICES["webhook"].limited
        assert robot_for(Webhook(), {"CIUIC_WEBHOOK_URL": "no url"}).problem


def _closed_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def test_whatever_goes_wrong_the_key_shows_nowhere(robot, caplog, capfd) -> None:
    caplog.set_level(logging.DEBUG)
    sender = wecom(robot)
    robot.script(
        Answer(status=500), Answer(body=b"<html>"), Answer(body=b'{"errcode": true}'), Answer(hang_s=30)
    )
    answers = [sender.send(letter()) for _ in range(3)]
    answers.append(sender.send(letter(), timeout_s=0.3))
    robot.script(Answer(body=f'{{"errcode": 93000, "errmsg": "bad key {robot.key}"}}'.encode()))
    answers.append(sender.send(letter()))
    answers.append(wecom(robot, base_url=f"http://127.0.0.1:{_closed_port()}").send(letter()))
    answers.append(wecom(robot, base_url="http://no-such-host.invalid").send(letter()))
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


@pytest.mark.parametrize("kind", [Feishu, DingTalk, Webhook])
def test_no_robot_shows_its_key_or_secret(kind, caplog) -> None:
    caplog.set_level(logging.DEBUG)
    key, port = "kkkk-7777", _closed_port()
    value = f"http://127.0.0.1:{port}/{key}" if kind is Webhook else key
    receiver = (
        kind(secret_env="S") if kind is Webhook else kind(base_url=f"http://127.0.0.1:{port}", secret_env="S")
    )
    robot = robot_for(receiver, {receiver.key_env: value, "S": SECRET})
    answer = robot.send(letter())
    shown = repr([robot, answer]) + caplog.text
    assert "refused" in answer.reason
    assert key not in shown
    assert SECRET not in shown


def test_a_redirect_is_not_followed(robot) -> None:
    robot.script(Answer(status=302))
    assert wecom(robot).send(letter()).status == 302
    assert robot.requests == 1


def test_the_way_out_leads_through_the_configured_proxy(robot) -> None:
    with Proxy() as proxy:
        assert wecom(robot, proxy=proxy.url).send(letter("a")).delivered
        assert proxy.asked == [f"POST {robot.url.removeprefix('http://')}"]
        assert robot.texts() == ["a"]


def test_the_proxy_of_the_environment_is_honoured_but_not_toward_this_machine(robot, monkeypatch) -> None:
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    with Proxy() as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url.replace("//", "//user:pa55word@"))
        answer = robot_for(WeCom(base_url="https://robot.invalid"), {"CIUIC_WECOM_KEY": "k"}).send(letter())
        assert proxy.asked == ["CONNECT robot.invalid:443"]
        assert not answer.delivered
        assert "pa55word" not in answer.reason
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        assert wecom(robot).send(letter()).delivered
        assert len(proxy.asked) == 1
