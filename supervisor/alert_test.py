"""One test message to each receiver: does the robot work, before the night comes."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from contract.config.alerts import Receiver
from supervisor.adapters.post import Letter
from supervisor.adapters.robots import robot_for
from supervisor.core.services import Fate, classify

_TEXTS = {
    "zh": "【ciuic】测试消息：告警通道正常。来自 {host}。",
    "en": "[ciuic] Test message: alerts arrive. From {host}.",
}
# (service, code) → what to do. Codes as in core/services.py.
_HINTS: Mapping[tuple[str, int], str] = {
    ("wecom", 93000): "the key is wrong or the robot was deleted: copy it again from the group's robot",
    ("wecom", 45009): "20 messages a minute are the robot's limit: wait a minute",
    ("feishu", 19001): "the key is wrong or the robot was deleted: copy it again from the group's robot",
    (
        "feishu",
        19021,
    ): "the signature does not fit: set secret_env to the robot's secret; is this machine's clock right?",
    ("feishu", 19022): "the robot's safety setting does not allow this machine's address",
    ("feishu", 19024): "the robot asks for a keyword: set keyword in [alerts.feishu]",
    ("dingtalk", 300001): "the token is wrong or the robot was deleted: copy it again from the group's robot",
    (
        "dingtalk",
        310000,
    ): "the robot's safety setting refuses it: set keyword or secret_env in [alerts.dingtalk]; is this machine's clock right?",
    ("dingtalk", 130101): "20 messages a minute are the robot's limit: it now refuses all for ten minutes",
}


@dataclass(frozen=True, kw_only=True)
class Trial:
    """What became of one receiver's test message. `hint`: what to do, "" when it was delivered."""

    receiver: str
    delivered: bool
    reason: str
    hint: str = ""


def try_receivers(
    receivers: Iterable[Receiver], environment: Mapping[str, str] = os.environ
) -> tuple[Trial, ...]:
    """Send each one test message, now, past rate budget and quiet hours. Never raises, shows no key."""
    return tuple(_try(receiver, environment) for receiver in receivers)


def _try(receiver: Receiver, environment: Mapping[str, str]) -> Trial:
    robot = robot_for(receiver, environment)
    if robot.problem:
        hint = f"export {receiver.key_env}=… (the robot's key or its whole URL) where the supervisor starts"
        return Trial(receiver=receiver.name, delivered=False, reason=robot.problem, hint=hint)
    text = receiver.keyword + _TEXTS[receiver.language].format(host=os.uname().nodename)
    answer = robot.send(Letter(text=text, title=text, mentions=tuple(receiver.mention)))
    good = classify(answer.errcode, answer.status, service=receiver.service) is Fate.SENT
    hint = (
        "" if good else _HINTS.get((receiver.service, answer.errcode or 0), _way_out(answer.status, receiver))
    )
    return Trial(receiver=receiver.name, delivered=good, reason=answer.reason, hint=hint)


def _way_out(status: int, receiver: Receiver) -> str:
    if status == 0:
        return f"{receiver.base_url} cannot be reached from here: set HTTPS_PROXY, or proxy in [alerts.{receiver.service}]"
    return "look the answer up in the service's manual"
