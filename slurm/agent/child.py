"""A process that works beside the agent and prints lines. Nothing here waits for it."""

import contextlib
import os
import subprocess
from collections.abc import Mapping, Sequence

_MOST = 65_536
_LAST_S = 0.1


class Child:
    """`ended` once it has closed its output. Its exit code is nobody's to know: the agent reaps all its children."""

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str] | None = None,
        *,
        keep: Sequence[int] = (),
        errors: bool = False,
    ) -> None:
        """Start it. `keep`: descriptors that it inherits. `errors`: what it writes there is kept, too."""
        self._process = subprocess.Popen(
            command,
            env=environment,
            pass_fds=keep,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if errors else None,
        )
        assert self._process.stdout is not None
        self._out = self._process.stdout.fileno()
        self._err = self._process.stderr.fileno() if self._process.stderr is not None else -1
        for descriptor in (self._out, self._err):
            if descriptor >= 0:
                os.set_blocking(descriptor, False)
        self._rest = b""
        self._errors = b""
        self.ended = False

    def lines(self) -> list[bytes]:
        """Whole lines that are new, the last one also without its end once the process is done."""
        found: list[bytes] = []
        while not self.ended and (data := self._read(self._out)) is not None:
            if self._err >= 0:
                self._errors = (self._errors + (self._read(self._err) or b""))[-_MOST:]
            if data:
                *whole, self._rest = (self._rest + data).split(b"\n")
                found += whole
            else:
                self.ended = True
                found += [self._rest] if self._rest else []
        if self._err >= 0:  # a full pipe would stop it
            self._errors = (self._errors + (self._read(self._err) or b""))[-_MOST:]
        return found

    @property
    def last_words(self) -> str:
        """The last line of its errors, "" when it wrote none."""
        said = self._errors.decode(errors="replace").strip()
        return said.rsplit("\n", 1)[-1][:300]

    def end(self) -> None:
        """Kill it. In an uninterruptible call it does not even die: it is left to itself."""
        self._process.kill()
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_LAST_S)

    @staticmethod
    def _read(descriptor: int) -> bytes | None:
        """What is there, b"" at the end, None when nothing is there yet."""
        try:
            return os.read(descriptor, _MOST)
        except BlockingIOError:
            return None
