"""Text that must fit into so many bytes."""

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
    """The text as one line without control characters, in so many bytes."""
    return cut(" ".join("".join(char if char.isprintable() else " " for char in text).split()), limit)
