"""Errors of the system and of pydantic as sentences for people: what is wrong, where, what to do."""

import errno
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

# errno → (English, Chinese); `{place}`: the file, for what concerns the file system its directory.
_SYSTEM: Mapping[int, tuple[str, str]] = MappingProxyType(
    {
        errno.ENOENT: ("{place} does not exist: is the path right?", "{place} 不存在，请检查路径"),
        errno.ENOTDIR: ("{place}: a part of the path is no directory", "{place}：路径中有一段不是目录"),
        errno.EISDIR: ("{place} is a directory; name a file", "{place} 是目录，请指定文件"),
        errno.EACCES: (
            "{place}: you have no permission for it; ask its owner, or take another place",
            "{place}：没有权限，请联系所有者或换一个位置",
        ),
        errno.EPERM: (
            "{place}: you have no permission for it; ask its owner, or take another place",
            "{place}：没有权限，请联系所有者或换一个位置",
        ),
        errno.EEXIST: ("{place} is there already; take another name", "{place} 已存在，请换一个名字"),
        errno.EROFS: (
            "{place} is on a read-only file system; run the command where it can be written",
            "{place} 所在的文件系统只读，请在能写的机器上运行",
        ),
        errno.ENOSPC: ("{place}: no space is left there; make room", "{place}：空间已满，请先腾出空间"),
        errno.EDQUOT: ("{place}: your quota there is used up; make room", "{place}：配额已满，请先腾出空间"),
    }
)
_OF_THE_PLACE = frozenset({errno.EROFS, errno.ENOSPC, errno.EDQUOT})
_NO_TEXT = ("is no text in UTF-8: is it the right file?", "不是 UTF-8 文本，请检查文件是否正确")
# What a value must look like → in words. Patterns of the configuration that people meet.
_PATTERNS: Mapping[str, str] = MappingProxyType(
    {
        r"^[a-z0-9][a-z0-9-]{0,39}$": "at most 40 of a-z, 0-9 and -, beginning with a letter or a digit",
        r"^[A-Za-z0-9_.,:@/+=-]*$": "letters, digits and _ . , : @ / + = - only, no spaces",
        r"^[A-Za-z_][A-Za-z0-9_]*$": "a variable's name: letters, digits and _, not beginning with a digit",
        r"^[a-z][a-z0-9_-]*$": "an option of sbatch without its dashes, as in gres or cpus-per-task",
        r"^[^\x00-\x1f\x7f]*$": "one line without control characters",
        r"^/[^\s,:]*(:/[^\s,:]*)?$": "/path or /path:/path/inside",
        r"^https?://[^\s?#@]+$": "an address that begins with http:// or https://, without a query",
        r"^(https?://[^\s?#@]+)?$": "empty, or an address that begins with http:// or https://",
        r"^(([01]\d|2[0-3]):[0-5]\d)?$": "empty, or a time of the day as 08:30",
        r"^(([01]\d|2[0-3]):[0-5]\d-([01]\d|2[0-3]):[0-5]\d)?$": "empty, or hours of the day as 22:00-08:00",
    }
)


def plainly(error: Exception, language: str = "en") -> str:
    """The error as a sentence; what is no error of the system or a decoder says its own."""
    zh = int(language == "zh")
    if isinstance(error, UnicodeDecodeError):
        return _NO_TEXT[zh]
    if not isinstance(error, OSError) or error.errno is None:
        return str(error)
    place = _place(error)
    form = _SYSTEM.get(error.errno)
    if form is None or not place:
        return f"{place}: {error.strerror}" if place else error.strerror or str(error)
    return form[zh].format(place=place)


def _place(error: OSError) -> str:
    """The path that it is about; a file that we were about to make stands for its directory."""
    if error.filename is None:
        return ""
    path = (
        Path(error.filename2 or error.filename)
        if isinstance(error.filename, str)
        else Path(str(error.filename))
    )
    if error.errno == errno.ENOENT and not path.parent.exists():
        return str(path.parent)  # of a file that was to be written the directory is missing
    return str(path.parent if error.errno in _OF_THE_PLACE or path.name.startswith(".") else path)


def required(item: Any) -> str:
    """What one error of pydantic asks for, in our words."""
    message = str(item["msg"]).removeprefix("Value error, ")
    context = item.get("ctx") or {}
    match item["type"]:
        case "dict_type" | "model_type" | "model_attributes_type":
            return "a table of keys belongs here, as in [section] or {key = value}"
        case "string_pattern_mismatch" if context.get("pattern") in _PATTERNS:
            return f"write {_PATTERNS[context['pattern']]}"
        case _:
            return f"{message[0].lower()}{message[1:]}"
