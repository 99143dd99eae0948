"""Log files as blocks of whole lines, whatever they are packed in. Memory stays bounded for files of any size."""

import bz2
import codecs
import contextlib
import gzip
import io
import lzma
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from contract.layout import by_number
from supervisor.diagnose.own import is_record, own_logs, record_lines

BLOCK = 1 << 20
LONGEST_LINE = 8 << 20  # a line longer than this is cut: nothing that people wrote is
MOST_FILES = 20_000
# Why something is not read, where we say it.
EMPTY = "is empty"
NO_TEXT = "is no text: nothing that can be read as a log"
NO_LOGS = "the directory holds no file that may be a log"
ZSTD = "packed with zstd; unpack it first (zstd -d)"
# What training directories hold beside logs.
_NOT_LOGS = frozenset(
    [
        ".pt",
        ".pth",
        ".bin",
        ".safetensors",
        ".ckpt",
        ".npy",
        ".npz",
        ".png",
        ".jpg",
        ".pdf",
        ".so",
        ".o",
        ".pyc",
        ".pkl",
        ".pickle",
        ".parquet",
        ".arrow",
        ".idx",
        ".py",
        ".toml",
    ]
)
_HEAD = 4096
_TELLING = 64  # bytes; fewer do not tell text from noise
_IN_TEXT = bytes([0, 8, 9, 10, 11, 12, 13, 27, *range(32, 127), *range(128, 256)])
_UNPACKED = (OSError, EOFError, zlib.error, lzma.LZMAError, tarfile.TarError, zipfile.BadZipFile)


@dataclass(frozen=True, kw_only=True)
class Source:
    """One log. `stream` is good until the next source is asked for."""

    name: str
    stream: IO[bytes]


@dataclass(frozen=True, kw_only=True)
class Problem:
    """What could not be read, and why."""

    name: str
    why: str


def sources(paths: list[str], stdin: IO[bytes] | None = None) -> Iterator[Source | Problem]:
    """Every log in these files, archives and directories, in order; `-` is standard input."""
    for path in paths:
        try:
            if path == "-":
                yield from _opened("-", stdin or sys.stdin.buffer)
            else:
                files = _files(Path(path))
                if not files:
                    yield Problem(name=path, why=NO_LOGS)
                for file in files:
                    yield from _file(file)
        except _UNPACKED as error:
            yield Problem(name=path, why=_why(error))


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    next(path.iterdir(), None)  # that it cannot be listed is said; of what lies below it is passed over
    found = own_logs(path)
    if found is None:
        found = list(_walked(path))
    return sorted(found, key=lambda file: by_number(str(file)))[:MOST_FILES]


def _walked(path: Path) -> Iterator[Path]:
    """Every file that may be a log; of a run of ours only its logs."""
    inside: list[Path] = []
    with contextlib.suppress(PermissionError):
        inside += path.iterdir()
    for file in inside:
        if file.is_dir():
            if not file.is_symlink():
                own = own_logs(file)
                yield from _walked(file) if own is None else own
        elif file.is_file() and file.suffix.lower() not in _NOT_LOGS:
            yield file


def _file(path: Path) -> Iterator[Source | Problem]:
    try:
        with path.open("rb") as file:
            if file.peek(4)[:4] == b"PK\3\4":
                yield from _zipped(str(path), file)
            elif is_record(path.as_posix()) and (lines := record_lines(path.read_bytes())) is not None:
                yield Source(name=str(path), stream=io.BytesIO(lines))
            else:
                yield from _opened(str(path), file)
    except _UNPACKED as error:
        yield Problem(name=str(path), why=_why(error))


def _zipped(name: str, file: IO[bytes]) -> Iterator[Source | Problem]:
    with zipfile.ZipFile(file) as archive:
        for member in sorted(archive.namelist(), key=by_number):
            if not member.endswith("/"):
                with archive.open(member) as stream:
                    yield from _opened(f"{name}:{member}", stream)


def _opened(name: str, raw: IO[bytes], depth: int = 0) -> Iterator[Source | Problem]:
    """Look at the first bytes: packed, an archive, or the log itself."""
    stream = raw if isinstance(raw, io.BufferedReader) else io.BufferedReader(_Raw(raw), BLOCK)
    head = stream.peek(8)[:8]
    unpack: Callable[[IO[bytes]], IO[bytes]] | None = None
    if head.startswith(b"\x1f\x8b"):
        unpack = _gzip
    elif head.startswith(b"BZh"):
        unpack = bz2.BZ2File
    elif head.startswith(b"\xfd7zXZ"):
        unpack = lzma.LZMAFile
    elif head.startswith(b"\x28\xb5\x2f\xfd"):
        yield Problem(name=name, why=ZSTD)
        return
    if unpack is not None and depth < 3:
        yield from _opened(name, io.BufferedReader(_Raw(unpack(stream)), BLOCK), depth + 1)
    elif stream.peek(512)[257:262] == b"ustar" and depth < 3:
        yield from _archived(name, stream, depth)
    elif _binary(stream.peek(_HEAD)[:_HEAD]):
        yield Problem(name=name, why=NO_TEXT)
    else:
        yield Source(name=name, stream=stream)


def _binary(head: bytes) -> bool:
    """Whether these bytes are no text in any encoding: control characters among them. Zeros are holes in a log."""
    return not _wide(head) and len(head) >= _TELLING and len(head.translate(None, _IN_TEXT)) > len(head) // 20


def _gzip(stream: IO[bytes]) -> IO[bytes]:
    return cast("IO[bytes]", gzip.GzipFile(fileobj=stream, mode="rb"))


def _archived(name: str, stream: IO[bytes], depth: int) -> Iterator[Source | Problem]:
    """An archive as a stream: members come in the order in which they were packed."""
    with tarfile.open(fileobj=stream, mode="r|") as archive:
        for member in archive:
            if member.isfile() and Path(member.name).suffix.lower() not in _NOT_LOGS:
                file = archive.extractfile(member)
                if file is not None:
                    yield from _opened(f"{name}:{member.name}", file, depth + 1)


class _Raw(io.RawIOBase):
    """Reads on through what is packed until it breaks off: half a log is better than none."""

    def __init__(self, inner: IO[bytes]) -> None:
        # One step at a time, so that what comes before the break is not lost with it.
        self._read: Callable[[int], bytes] = getattr(inner, "read1", inner.read)
        self._any = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        try:
            data = self._read(len(buffer))
        except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile):
            if not self._any:
                raise
            return 0
        self._any = self._any or bool(data)
        buffer[: len(data)] = data
        return len(data)


def blocks(stream: IO[bytes]) -> Iterator[bytes]:
    """Blocks that end where a line ends (the last one: where the file ends), in UTF-8."""
    left = b""
    for data in _utf8(stream):
        whole = left + data
        cut = whole.rfind(b"\n") + 1
        if cut == 0 and len(whole) > LONGEST_LINE:
            cut = len(whole)
        if cut:
            yield whole[:cut]
        left = whole[cut:]
    if left:
        yield left


def _utf8(stream: IO[bytes]) -> Iterator[bytes]:
    data = stream.read(BLOCK)
    encoding = _wide(data[:4096])
    decoder = codecs.getincrementaldecoder(encoding)("replace") if encoding else None
    while data:
        yield decoder.decode(data).encode(errors="replace") if decoder else data
        data = stream.read(BLOCK)


def _wide(head: bytes) -> str:
    """UTF-16 by its mark or by the zero in every other byte; "" for all that is ASCII's kin."""
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "utf-16"
    if len(head) >= 64 and head.count(b"\0") > len(head) // 3:
        even, odd = head[::2].count(b"\0"), head[1::2].count(b"\0")
        if odd > 4 * (even + 1):
            return "utf-16-le"
        if even > 4 * (odd + 1):
            return "utf-16-be"
    return ""


def _why(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return f"{type(error).__name__}: {error}"
