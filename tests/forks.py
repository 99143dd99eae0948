"""Many runs of one Python script, each in a child of a process that has imported it: a run costs milliseconds.

    with Forks(script) as forks:
        run = forks.start("save", str(place))
        assert run.wait() == 0

`stopped`: the child stands still before its first line, until it is sent SIGCONT, so that a tracer can be attached.
"""

import ctypes
import json
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

REPOSITORY = Path(__file__).resolve().parents[1]
_PR_SET_PDEATHSIG = 1
_PR_SET_PTRACER, _ANYBODY = 0x59616D61, -1


class Forks:
    """The process that forks. It must not have threads: the script's imports may start none."""

    def __init__(self, script: Path, environment: Mapping[str, str] | None = None) -> None:
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - as long as we
        own = {
            "PYTHONPATH": str(REPOSITORY),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONHASHSEED": "0",
            "OMP_NUM_THREADS": "1",
        }
        self._process = subprocess.Popen(
            [sys.executable, "-P", __file__, str(script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env={**os.environ, **own, **(environment or {})},
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait(timeout=30)
        self._errors.close()

    def start(
        self, *arguments: str, stopped: bool = False, environment: Mapping[str, str] | None = None
    ) -> "Run":
        command = {"arguments": arguments, "stopped": stopped, "environment": environment or {}}
        return Run(pid=self.ask(**command), forks=self)

    def ask(self, **command: object) -> int:
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"the script cannot be imported:\n{self.errors()}"
        return int(line)

    def errors(self) -> str:
        """What the script and its runs have written to stderr so far."""
        self._errors.seek(0)
        return self._errors.read()


@dataclass(frozen=True, kw_only=True)
class Run:
    """One child."""

    pid: int
    forks: Forks

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> int:
        """Its exit code; negative: the signal that ended it."""
        return self.forks.ask(wait=self.pid)


def _child(script: str, arguments: list[str], environment: dict[str, str], *, stopped: bool) -> None:
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if stopped:
        libc.prctl(_PR_SET_PTRACER, _ANYBODY)  # Yama: by default only an ancestor may trace
        os.kill(os.getpid(), signal.SIGSTOP)
    sys.argv = [script, *arguments]
    os.environ.update(environment)
    code: object = 70
    try:
        runpy.run_path(script, run_name="__main__")
        code = 0
    except SystemExit as error:
        code = error.code or 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 1)


def _serve(script: str) -> None:
    runpy.run_path(script, run_name="imported")
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the script prints is no answer
    for line in sys.stdin:
        command = json.loads(line)
        if "wait" in command:
            _, status = os.waitpid(command["wait"], 0)
            answer = os.waitstatus_to_exitcode(status)
        else:
            answer = os.fork()
            if answer == 0:
                _child(script, command["arguments"], command["environment"], stopped=command["stopped"])
            if command["stopped"]:
                os.waitpid(answer, os.WUNTRACED)
        print(answer, file=answers, flush=True)


if __name__ == "__main__":
    _serve(sys.argv[1])
