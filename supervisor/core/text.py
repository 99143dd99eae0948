"""Text that must fit into so many bytes."""

import re

_COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")  # what programs write for a terminal
CUT = "…（已截断）"


def size(text: str) -> int:
    """Bytes in UTF-8, as the robot counts them."""
    return len(text.encode(errors="replace"))


def cut(text: str, limit: int, note: str = CUT) -> str:
    """The text in at most `limit` bytes, cut at a character's border, with a note that it was cut."""
    data = text.encode(errors="replace")
    if len(data) <= limit:
        return data.decode()
    if size(note) >= limit:
        return data[:limit].decode(errors="ignore")
    return data[: limit - size(note)].decode(errors="ignore") + note


def one_line(text: str, limit: int = 300) -> str:
    """The text as one line without colours and control characters, in so many bytes."""
    plain = "".join(char if char.isprintable() else " " for char in _COLOUR.sub("", text))
    return cut(" ".join(plain.split()), limit)


def duration(seconds: float, language: str) -> str:
    """A length of time as people say it: 48 seconds, 12.5 minutes, 3.1 hours, 2.4 days."""
    units = (
        (86_400.0 * 2, 86_400.0, "天", "days"),
        (7200.0, 3600.0, "小时", "h"),
        (120.0, 60.0, "分钟", "min"),
    )
    for least, unit, chinese, english in units:
        if seconds >= least:
            return f"{seconds / unit:.1f} {chinese if language == 'zh' else english}"
    return f"{seconds:.0f} {'秒' if language == 'zh' else 's'}"
