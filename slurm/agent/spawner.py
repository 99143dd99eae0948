"""The warm process: holds the heavy imports, forks a worker on order, reports its end. One thread, no CUDA.

    python -P -m slurm.agent.spawner AGENT_PID SOCKET_FD [MODULE_TO_PRELOAD]

Orders and reports are packets of JSON on a Unix socket (see `slurm.agent.warm`, the other end). It knows the training
program by name only. The kernel ends it with the agent, and its workers with it.
"""

import contextlib
import ctypes
import gc
import importlib
import json
import os
import selectors
import signal
import socket
import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from slurm.node.affinity import VARIABLE, parsed

PACKET = 512 * 1024
MASTER_FD = "CIUIC_MASTER_FD"
_PR_SET_PDEATHSIG = 1
_PR_SET_PTRACER = 0x59616D61


def die_with_parent(parent: int) -> None:
    """Have the kernel kill us when our parent ends; leave at once when it has ended already."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def let_look(agent: int) -> None:
    """Allow the agent and its children to look at this process where Yama lets only ancestors do so."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PTRACER, agent, 0, 0, 0)  # fails where there is no Yama


def preload(module: str) -> str:
    """Import the heavy part of the training program. Returns why forking from here is not safe, "" when it is."""
    if not module:
        return ""
    try:
        importlib.import_module(module)
    except Exception as error:  # whatever a program's imports raise; its workers will show it in full
        return f"{module} could not be imported: {type(error).__name__}: {error}"
    threads = sum(1 for _ in Path("/proc/self/task").iterdir())
    if threads != 1:
        return f"{threads} threads after importing {module}, a fork would copy only one"
    torch: Any = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return f"importing {module} initialised CUDA, which does not survive a fork"
    gc.collect()
    gc.freeze()  # the children's collector would otherwise copy the pages of everything imported
    return ""


class Spawner:
    """The loop: orders in, exits out."""

    def __init__(self, agent: socket.socket) -> None:
        self._agent = agent
        self._children: dict[int, int] = {}  # pid → worker
        self._ending = False
        self._wake_read, self._wake_write = socket.socketpair()
        self._wake_read.setblocking(False)
        self._wake_write.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake_write.fileno(), warn_on_full_buffer=False)

    def serve(self) -> None:
        """Until the agent closes its end."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._agent, selectors.EVENT_READ)
            selector.register(self._wake_read, selectors.EVENT_READ)
            while True:
                for key, _ in selector.select():
                    if key.fileobj is self._wake_read:
                        self._wake_read.recv(4096)
                    elif not self._obey(selector):
                        return
                self._reap()

    def report(self, **event: Any) -> None:
        """Tell the agent. If it is gone, so are we in a moment."""
        with contextlib.suppress(OSError):
            self._agent.send(json.dumps(event).encode())

    def kill(self) -> None:
        """Kill the process groups of all workers, stopped ones too."""
        for pid in self._children:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)

    def _obey(self, selector: selectors.BaseSelector) -> bool:
        data, descriptors, _, _ = socket.recv_fds(self._agent, PACKET, 2)
        if not data:
            return False
        order = json.loads(data)
        match order["order"]:
            case "spawn":
                self._spawn(order, descriptors, selector)
            case "signal":
                for pid in [pid for pid, worker in self._children.items() if worker == order["worker"]]:
                    os.kill(pid, order["signal"])
            case "end":
                self._reap()  # who is dead already was not ended by us
                self._ending = True
                self.kill()
        return True

    def _spawn(
        self, order: Mapping[str, Any], descriptors: Sequence[int], selector: selectors.BaseSelector
    ) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        ourselves, agent = os.getpid(), os.getppid()
        pid = os.fork()
        if pid == 0:
            let_look(agent)
            selector.close()
            for ours in (self._agent, self._wake_read, self._wake_write):
                ours.close()
            become_worker(order, descriptors, ourselves)
        with contextlib.suppress(OSError):  # the child does it too: whoever is first
            os.setpgid(pid, pid)
        for descriptor in descriptors:
            os.close(descriptor)
        self._children[pid] = order["worker"]
        self.report(event="started", worker=order["worker"], pid=pid)

    def _reap(self) -> None:
        for pid, worker in list(self._children.items()):
            if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                continue
            with contextlib.suppress(ProcessLookupError):
                os.killpg(
                    pid, signal.SIGKILL
                )  # what it leaves behind; its pid cannot be reused before waitpid
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            del self._children[pid]
            ordered = self._ending and code == -signal.SIGKILL
            self.report(event="exited", worker=worker, code=code, ordered=ordered)
        if self._ending and not self._children:
            self._ending = False
            self.report(event="ended")


def become_worker(order: Mapping[str, Any], descriptors: Sequence[int], parent: int) -> NoReturn:
    """In the child: a process group, output and signals of its own, then the program."""
    code = 1
    try:
        os.setpgid(0, 0)
        die_with_parent(parent)
        _reset_signals()
        _stay_beside_the_gpu(order["environment"])
        _redirect(descriptors[0])
        environment = dict(order["environment"])
        if len(descriptors) > 1:
            os.set_inheritable(descriptors[1], True)
            environment[MASTER_FD] = str(descriptors[1])
        if order["command"]:
            os.execvpe(order["command"][0], order["command"], environment)  # noqa: S606
        os.environ.clear()
        os.environ.update(environment)
        code = _call(order["entry"])
    except BaseException:  # the process edge: nothing may return into the loop of the parent
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _stay_beside_the_gpu(environment: Mapping[str, str]) -> None:
    """Before the first thread and the first page of memory: both stay on that side."""
    if cpus := parsed(environment.get(VARIABLE, "")):
        with contextlib.suppress(OSError):  # a control group may have become smaller meanwhile
            os.sched_setaffinity(0, cpus)


def _reset_signals() -> None:
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        if callable(signal.getsignal(number)) or signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # as in every Python program
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _redirect(output: int) -> None:
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    for descriptor in {nothing, output} - {0, 1, 2}:
        os.close(descriptor)


def _call(entry: str) -> int:
    """Run `module:function`; its result or SystemExit is the exit code."""
    module, _, function = entry.partition(":")
    sys.argv = [module]
    try:
        result = getattr(importlib.import_module(module), function)()
    except SystemExit as leaving:
        result = leaving.code
    if result is None or isinstance(result, int):
        return int(result or 0)
    sys.stderr.write(f"{result}\n")
    return 1


def main(arguments: Sequence[str]) -> int:
    """Serve one agent."""
    agent_pid, descriptor, *modules = arguments
    die_with_parent(int(agent_pid))
    # Slurm signals every process of a step; what concerns the workers is forwarded by the agent.
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    spawner = Spawner(socket.socket(fileno=int(descriptor)))
    why_not = preload(modules[0] if modules else "")
    spawner.report(event="ready", why_not_warm=why_not)
    spawner.serve()
    spawner.kill()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
