"""Times as logs write them, reduced to what can be compared: seconds since the year began, on one of two clocks. Pure."""

import re
from dataclasses import dataclass

_MONTHS = {
    name: number
    for number, name in enumerate(
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"], 1
    )
}
_DAYS_BEFORE = (0, 31, 60, 91, 121, 152, 182, 213, 244, 274, 305, 335)
_FORMS = (
    # 2024-05-01T12:00:00.123Z, 2024-05-01 12:00:00,123, 2024/05/01 12:00:00, 2024-05-01_12:00:00
    re.compile(
        r"\b\d{4}[-/](?P<mo>\d\d)[-/](?P<d>\d\d)[T _](?P<h>\d\d):(?P<m>\d\d):(?P<s>\d\d(?:[.,]\d+)?)(?P<z>Z|[+-]\d\d:?\d\d)?"
    ),
    # glog: E0501 12:00:00.123456, and torch's month without a zero: E501
    re.compile(r"(?:^|\[)[IWEF](?P<mo>\d\d?)(?P<d>\d\d) (?P<h>\d\d):(?P<m>\d\d):(?P<s>\d\d(?:\.\d+)?)"),
    # syslog and dmesg -T: May  1 12:00:00
    re.compile(r"\b(?P<name>[A-Z][a-z]{2}) +(?P<d>\d\d?) (?P<h>\d\d):(?P<m>\d\d):(?P<s>\d\d(?:\.\d+)?)"),
    # 05/01/2024 12:00:00 and 05-01 12:00:00
    re.compile(
        r"\b(?P<mo>\d\d)[/-](?P<d>\d\d)(?:[/-]\d{4})?,? (?P<h>\d\d):(?P<m>\d\d):(?P<s>\d\d(?:[.,]\d+)?)"
    ),
)


@dataclass(frozen=True, slots=True)
class Stamp:
    """`utc` says which clock: UTC, or the machine's local one, which cannot be compared with it."""

    utc: bool
    seconds: float


def find_stamp(text: str) -> Stamp | None:
    """The first time in this text. The year is left out, as half of the formats have none."""
    for form in _FORMS:
        if found := form.search(text):
            return _stamp(found)
    return None


def _stamp(found: re.Match[str]) -> Stamp | None:
    groups = found.groupdict()
    month = int(groups["mo"]) if groups.get("mo") else _MONTHS.get(groups.get("name") or "", 0)
    day, hour, minute = (int(groups[name]) for name in ("d", "h", "m"))
    if not (1 <= month <= 12 and 1 <= day <= 31 and hour < 24 and minute < 60):
        return None
    seconds = float(groups["s"].replace(",", "."))
    seconds += 60 * (minute + 60 * (hour + 24 * (_DAYS_BEFORE[month - 1] + day)))
    zone = groups.get("z") or ""
    if zone and zone != "Z":
        digits = zone[1:].replace(":", "")
        shift = 60 * (60 * int(digits[:2]) + int(digits[2:]))
        seconds += shift if zone[0] == "-" else -shift
    return Stamp(utc=bool(zone), seconds=seconds)
