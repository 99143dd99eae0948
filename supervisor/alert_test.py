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
_WRONG_KEY = (
    "the key is wrong or the robot was deleted: copy it again from the group's robot",
    "key 不对，或机器人已被删除：从群机器人处重新复制",
)
HINTS: Mapping[tuple[str, int], tuple[str, str]] = {
    ("wecom", 93000): _WRONG_KEY,
    ("wecom", 45009): (
        "20 messages a minute are the robot's limit: wait a minute",
        "机器人每分钟最多 20 条：等一分钟",
    ),
    ("feishu", 19001): _WRONG_KEY,
    ("feishu", 19021): (
        "the signature does not fit: set secret_env to the robot's secret; is this machine's clock right?",
        "签名不符：把 secret_env 设为机器人的密钥；并检查本机时钟",
    ),
    ("feishu", 19022): (
        "the robot's safety setting does not allow this machine's address",
        "机器人的安全设置不允许本机地址",
    ),
    ("feishu", 19024): (
        "the robot asks for a keyword: set keyword in [alerts.feishu]",
        "机器人要求关键词：在 [alerts.feishu] 中设置 keyword",
    ),
    ("dingtalk", 300001): (
        "the token is wrong or the robot was deleted: copy it again from the group's robot",
        "token 不对，或机器人已被删除：从群机器人处重新复制",
    ),
    ("dingtalk", 310000): (
        "the robot's safety setting refuses it: set keyword or secret_env in [alerts.dingtalk]; is the clock right?",
        "机器人的安全设置拒绝了它：在 [alerts.dingtalk] 中设置 keyword 或 secret_env；并检查本机时钟",
    ),
    ("dingtalk", 130101): (
        "20 messages a minute are the robot's limit: it now refuses all for ten minutes",
        "机器人每分钟最多 20 条：之后十分钟内全部拒绝",
    ),
}


@dataclass(frozen=True, kw_only=True)
class Trial:
    """What became of one receiver's test message. `hint`: what to do, "" when it was delivered."""

    receiver: str
    delivered: bool
    reason: str
    hint: str = ""


def try_receivers(
    receivers: Iterable[Receiver], environment: Mapping[str, str] = os.environ, lang: str = "en"
) -> tuple[Trial, ...]:
    """Send each one test message, now, past rate budget and quiet hours. Never raises, shows no key."""
    return tuple(_try(receiver, environment, lang == "zh") for receiver in receivers)


def _try(receiver: Receiver, environment: Mapping[str, str], chinese: bool) -> Trial:
    robot = robot_for(receiver, environment)
    if robot.problem:
        hint = (
            f"在启动看护进程的地方 export {receiver.key_env}=…（机器人的 key 或完整 URL）"
            if chinese
            else f"export {receiver.key_env}=… (the robot's key or its whole URL) where the supervisor starts"
        )
        return Trial(receiver=receiver.name, delivered=False, reason=robot.problem, hint=hint)
    text = receiver.keyword + _TEXTS[receiver.language].format(host=os.uname().nodename)
    answer = robot.send(Letter(text=text, title=text, mentions=tuple(receiver.mention)))
    good = classify(answer.errcode, answer.status, service=receiver.service) is Fate.SENT
    hints = HINTS.get((receiver.service, answer.errcode or 0)) or _way_out(answer.status, receiver)
    return Trial(
        receiver=receiver.name, delivered=good, reason=answer.reason, hint="" if good else hints[chinese]
    )


def _way_out(status: int, receiver: Receiver) -> tuple[str, str]:
    if status == 0:
        where = f"[alerts.{receiver.service}]"
        return (
            f"{receiver.base_url} cannot be reached from here: set HTTPS_PROXY, or proxy in {where}",
            f"从这里连不上 {receiver.base_url}：设置 HTTPS_PROXY，或 {where} 中的 proxy",
        )
    return ("look the answer up in the service's manual", "在该服务的手册中查这个应答")
