"""[alerts]: whom the supervisor tells, through which robot, in which language, and when not.

Each of `wecom`, `feishu`, `dingtalk`, `webhook` is a table, or an array of tables for several robots of a kind.
"""

import zoneinfo
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, StringConstraints, model_validator

from contract.config.base import Section
from contract.config.job import VariableName

Address = Annotated[str, StringConstraints(pattern=r"^https?://[^\s?#@]+$")]
# A proxy's password would stand in the run directory: it belongs into HTTPS_PROXY.
Proxy = Annotated[str, StringConstraints(pattern=r"^(https?://[^\s?#@]+)?$")]
Clock = Annotated[str, StringConstraints(pattern=r"^(([01]\d|2[0-3]):[0-5]\d)?$")]
Span = Annotated[str, StringConstraints(pattern=r"^(([01]\d|2[0-3]):[0-5]\d-([01]\d|2[0-3]):[0-5]\d)?$")]
Severity = Literal["info", "warning", "critical"]


class Receiver(Section):
    """What all robots have in common. `name` stands in the journal; it holds the variable's name, never its value."""

    service: ClassVar[str] = ""

    key_env: VariableName = ""
    """Name of the environment variable that holds the robot's key (or its whole URL). Never the key itself."""
    secret_env: VariableName | Literal[""] = ""
    """Name of the variable with the signing secret (webhook: a bearer token). "": the robot checks no signature."""
    base_url: Address = "https://unset.invalid"
    """Where the robot's API lives; change it for an egress gateway or a test server."""
    per_minute: Annotated[int, Field(ge=1, le=600)] = 15
    """Messages per minute; more are folded or wait."""
    min_severity: Severity = "info"
    """The least that this receiver is told: info, warning or critical."""
    mention: list[str] = Field(default_factory=list)
    """User ids to mention when a person must act; `@all` for everybody."""
    keyword: Annotated[str, StringConstraints(max_length=40)] = ""
    """The word that the robot's safety setting asks for; put in front of a message that lacks it."""
    language: Literal["zh", "en"] = "zh"
    """Language of the alerts."""
    proxy: Proxy = ""
    """HTTP proxy on the way out. "": HTTPS_PROXY and NO_PROXY of the environment are honoured."""
    quiet: Span = ""
    """Quiet hours of the reader, as in "22:00-08:00": all but critical messages wait for their end."""
    digest: Clock = ""
    """Time of day of the daily digest, as in "09:00"; "": none."""
    time_zone: str = "Asia/Shanghai"
    """Time zone of the reader, for `quiet` and `digest`."""

    @property
    def name(self) -> str:
        return f"{self.service}:{self.key_env}"

    @property
    def secrets(self) -> tuple[str, ...]:
        """Names of the environment variables that nobody else needs."""
        return tuple(name for name in (self.key_env, self.secret_env) if name)

    def problems(self) -> list[str]:
        """Contradictions of this table, each `key: sentence`."""
        try:
            zoneinfo.ZoneInfo(self.time_zone)
        except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
            if self.quiet or self.digest:
                known = 'a name such as "Asia/Shanghai" or "UTC" (system package tzdata)'
                return [f"time_zone: {self.time_zone!r} is not known here; {known}"]
        return []


class WeCom(Receiver):
    service: ClassVar[str] = "wecom"

    key_env: VariableName = "CIUIC_WECOM_KEY"
    base_url: Address = "https://qyapi.weixin.qq.com"
    per_minute: Annotated[int, Field(ge=1, le=20)] = 15
    """Messages per minute; the robot itself refuses more than 20."""


class Feishu(Receiver):
    service: ClassVar[str] = "feishu"

    key_env: VariableName = "CIUIC_FEISHU_KEY"
    base_url: Address = "https://open.feishu.cn"
    per_minute: Annotated[int, Field(ge=1, le=100)] = 30
    """Messages per minute; the robot itself refuses more than 100."""


class DingTalk(Receiver):
    service: ClassVar[str] = "dingtalk"

    key_env: VariableName = "CIUIC_DINGTALK_KEY"
    base_url: Address = "https://oapi.dingtalk.com"
    per_minute: Annotated[int, Field(ge=1, le=20)] = 15
    """Messages per minute; after more than 20 the robot refuses everything for ten minutes."""


class Webhook(Receiver):
    """Any server that takes JSON. Its whole URL is the key: such URLs often hold a token."""

    service: ClassVar[str] = "webhook"

    key_env: VariableName = "CIUIC_WEBHOOK_URL"
    per_minute: Annotated[int, Field(ge=1, le=600)] = 60


def _listed(value: Any) -> Any:
    """One table is a list of one."""
    return [value] if isinstance(value, Mapping | Receiver) else value


class Alerts(Section):
    wecom: Annotated[list[WeCom], BeforeValidator(_listed)] = Field(default_factory=list)
    """Group robots of WeChat Work (企业微信)."""
    feishu: Annotated[list[Feishu], BeforeValidator(_listed)] = Field(default_factory=list)
    """Custom robots of Feishu (飞书)."""
    dingtalk: Annotated[list[DingTalk], BeforeValidator(_listed)] = Field(default_factory=list)
    """Custom robots of DingTalk (钉钉)."""
    webhook: Annotated[list[Webhook], BeforeValidator(_listed)] = Field(default_factory=list)
    """Servers that take JSON: `{"title", "text", "severity", "run", ...}`."""

    @model_validator(mode="before")
    @classmethod
    def _somebody(cls, value: Any) -> Any:
        """Where nobody is named, the WeChat Work robot of CIUIC_WECOM_KEY is told. `wecom = []` is nobody."""
        return {"wecom": [{}]} if isinstance(value, Mapping) and not value else value

    @property
    def receivers(self) -> tuple[Receiver, ...]:
        return (*self.wecom, *self.feishu, *self.dingtalk, *self.webhook)

    @property
    def secrets(self) -> frozenset[str]:
        """Names of the environment variables that hold keys: nobody below the supervisor needs them."""
        return frozenset(name for receiver in self.receivers for name in receiver.secrets)

    def contradictions(self) -> list[str]:
        found, seen = [], set()
        for receiver in self.receivers:
            found += [f"{receiver.service}.{text}" for text in receiver.problems()]
            if receiver.name in seen:
                found.append(
                    f"{receiver.service}.key_env: two robots take their key from {receiver.key_env}; "
                    "name another variable for the second"
                )
            seen.add(receiver.name)
        return found
