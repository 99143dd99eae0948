"""Nodes compare themselves before generation 1: one calls, each named runs its part, the caller judges, all obey.

The call and its outcome are files that are created exclusively: whoever calls second joins the first call. What cannot
be found out holds nothing up: it is told, and the training starts.
"""

import contextlib
import json
import socket
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from contract import files
from contract.config import RunConfig
from contract.layout import AttemptDir
from slurm.agent.child import Child
from slurm.agent.common_network import towards
from slurm.agent.environment import network_variables
from slurm.agent.identity import Identity
from slurm.agent.network import Link
from slurm.agent.spawner import MASTER_FD
from slurm.node.pairing import Findings, judge, judge_missing, read

LEAST = 3  # of two nodes nobody can say which one it is
_MARGIN_S = 15.0  # those who do not call wait so much longer
_POLL_S = 0.5
_TOLD = 8  # sentences in one line of the log; the file has all
_MODULE = "trainer.measure.pairs"


@dataclass(frozen=True, kw_only=True)
class Call:
    """Who takes part, the caller first, and where they meet."""

    nodes: tuple[str, ...]
    master: str
    port: int


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """`bad`: node → why it must not train. `said`: what is only told."""

    bad: Mapping[str, str] = field(default_factory=dict)
    said: tuple[str, ...] = ()


class Comparison:
    """`over` once nothing is to be waited for. `unfit`: why this node must not train; `bad`: which ones must not."""

    def __init__(
        self,
        place: AttemptDir,
        config: RunConfig,
        me: Identity,
        environment: Mapping[str, str],
        tell: Callable[[str], None],
    ) -> None:
        self._limit_s = config.node.compare_s
        self.over = not self._limit_s or me.local or config.job.nodes + config.job.spare_nodes < LEAST
        self.bad: Mapping[str, str] = {}
        self._place, self._me, self._tell = place, me, tell
        self._environment = environment
        self._backend = "nccl" if config.job.gpus_per_node else "gloo"
        self._call: Call | None = None
        self._began_at = self._looked_at = float("-inf")
        self._socket: socket.socket | None = None
        self._child: Child | None = None
        self._said = b""

    @property
    def unfit(self) -> str:
        return self.bad.get(self._me.node, "")

    @property
    def began(self) -> bool:
        """Whether our part runs, or has run: for the beat, so that the caller knows who heard the call."""
        return self._child is not None or self._said != b""

    def call(self, nodes: Sequence[str], held: socket.socket, link: Link) -> None:
        """Call these nodes together, here, once. `held`: a bound port, which is ours from now on."""
        if self.called or self.over or len(nodes) < LEAST:
            held.close()
            if not self.over and len(nodes) < LEAST:
                self._end(f"nodes are not compared: only {len(nodes)} are ready")
            return
        self._socket = held
        mine = Call(nodes=tuple(nodes), master=link.address, port=held.getsockname()[1])
        self._looked_at = float("-inf")  # there is something to read
        self._write(self._place.comparison, asdict(mine))

    def look(self, now: float, link: Link, heard: Collection[str]) -> None:
        """Take part in what was called, and take in what came of it. `heard`: nodes whose part runs or has run."""
        if self.over:
            return
        if now - self._looked_at >= _POLL_S:
            self._looked_at = now
            self._read(now, link)
        if self._call is None or self.over:
            return
        self._hear()
        late = now - self._began_at > self._limit_s
        if self.called_here and self._child is not None and (self._child.ended or late):
            outcome = _outcome(self._call.nodes, self._said, heard)
            why = f"no end within {self._limit_s:.0f} s" if late else self._child.last_words
            self._publish(outcome or Outcome(said=(f"no result: {why or 'it ended without one'}",)))
        elif now - self._began_at > self._limit_s + _MARGIN_S:
            self._end("nodes are not compared: whoever called has not told the outcome in time")

    def end(self) -> None:
        """Nothing more is found out."""
        self.over = True
        if self._child is not None:
            self._child.end()
            self._child = None
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    @property
    def called(self) -> bool:
        """Whether we know of a call, or have made one and not read it back yet."""
        return self._call is not None or self._socket is not None

    @property
    def called_here(self) -> bool:
        """Whether it is ours."""
        return self._call is not None and self._call.nodes[0] == self._me.node

    def _read(self, now: float, link: Link) -> None:
        try:
            if self._call is None and (found := files.read_json(self._place.comparison)) is not None:
                self._call = Call(
                    nodes=tuple(found["nodes"]), master=str(found["master"]), port=int(found["port"])
                )
                self._began_at = now
                self._begin(self._call, link)
            if self._call is not None and (told := files.read_json(self._place.compared)) is not None:
                self._obey(Outcome(bad=dict(told["bad"]), said=tuple(told["said"])))
        except (OSError, ValueError, KeyError, TypeError) as error:  # also a program that cannot be started
            self._end(f"nodes are not compared: {type(error).__name__}: {error}")

    def _begin(self, call: Call, link: Link) -> None:
        if self._me.node not in call.nodes:
            return
        rank = call.nodes.index(self._me.node)
        environment = {
            **self._environment,
            **network_variables(self._environment, towards(link, call.master)[0]),
            "RANK": str(rank),
            "WORLD_SIZE": str(len(call.nodes)),
            "LOCAL_RANK": "0",
            "MASTER_ADDR": call.master,
            "MASTER_PORT": str(call.port),
            "CIUIC_NODE": self._me.node,
            "PYTHONWARNINGS": "ignore",  # the last line of its errors is to say what ended it
        }
        keep: tuple[int, ...] = ()
        if rank == 0 and self._socket is not None:
            self._socket.listen(len(call.nodes))
            keep = (self._socket.fileno(),)
            environment[MASTER_FD] = str(keep[0])
        facts = (self._backend, self._me.node, str(self._limit_s))
        command = [sys.executable, "-P", "-m", _MODULE, *facts]
        self._child = Child(command, environment, keep=keep, errors=True)
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _hear(self) -> None:
        if self._child is None:
            return
        new = b"".join(self._child.lines())
        self._said += new
        if new and not self.called_here:
            with contextlib.suppress(ValueError, KeyError, TypeError):
                self._tell(f"comparison of nodes: {json.loads(self._said)['said']}")

    def _publish(self, outcome: Outcome) -> None:
        self._write(self._place.compared, asdict(outcome))
        self._obey(outcome)

    def _write(self, path: Path, value: dict[str, Any]) -> None:
        try:
            files.create_json(path, value)
        except OSError as error:
            self._end(f"nodes are not compared: {path}: {error.strerror or error}")

    def _obey(self, outcome: Outcome) -> None:
        self.bad = {node: f"compared with others: {why}" for node, why in outcome.bad.items()}
        words = [*(f"{node} {why}" for node, why in outcome.bad.items()), *outcome.said]
        if len(words) > _TOLD:
            words = [*words[:_TOLD], f"and {len(words) - _TOLD} more"]
        self._end(f"nodes are compared: {'; '.join(words) or 'all are alike'}")

    def _end(self, text: str) -> None:
        self._tell(text)
        self.end()


def _outcome(nodes: Sequence[str], said: bytes, heard: Collection[str]) -> Outcome | None:
    """What the caller's part printed, judged; None when it says nothing."""
    try:
        found: Any = json.loads(said)
    except ValueError:
        return None
    if isinstance(found, list):
        findings = judge(*read(found))
    elif found["missing"]:
        findings = judge_missing(nodes, found["missing"], heard)
    else:
        return Outcome(said=(f"no result: {found['said']}",))
    return Outcome(bad=dict(findings.bad), said=_doubts(findings))


def _doubts(findings: Findings) -> tuple[str, ...]:
    return tuple(
        f"{one} or {other}, or the way between them: {why}" for (one, other), why in findings.doubtful.items()
    ) + tuple(findings.absent)
