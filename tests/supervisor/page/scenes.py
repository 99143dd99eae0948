"""Runs for the page: a view of many nodes without one, a page over them, and a browser's requests without a browser."""

import http.client
import socket
import time
from contextlib import contextmanager

from contract import events as ev
from contract.beat import Beat, WorkerBeat
from contract.config import RunConfig
from contract.control import Control
from contract.fold import fold
from contract.history import History
from contract.layout import Root
from contract.states import AgentPhase, ControlPhase, JobState, Phase
from supervisor.core.judge import judge
from supervisor.core.observation import JobLook, NodeSeen, Observation
from supervisor.page.door import Place
from supervisor.page.page import Page
from supervisor.seen import RunSeen, Shown
from tests.supervisor.conftest import config_of


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def history_of(run: str, nodes: int, *more: ev.Body, at: float) -> History:
    members = tuple(f"n{number}" for number in range(nodes))
    bodies = (
        ev.RunCreated(run=run, config_digest="", version="0", target_steps=10_000, target_tokens=0),
        ev.AttemptIntended(attempt=1, tag="t", reason="the first attempt"),
        ev.AttemptSubmitted(attempt=1, job_id="77"),
        ev.GenerationWent(attempt=1, generation=1, members=members, master="n0", port=4000),
        ev.GenerationResumed(attempt=1, generation=1, step=0),
        ev.StateChanged(state="running", reason="all train"),
        *more,
    )
    return fold(ev.Event(seq=n, time=at, epoch=1, body=body) for n, body in enumerate(bodies, 1))


def look_at(
    run: str, *, nodes: int = 2, size: int = 8, step: int = 100, odd: dict[int, dict] | None = None, **history
) -> RunSeen:
    """A run that trains; `odd`: rank → what is different with it."""
    now = time.time()
    config: RunConfig = config_of(job={"nodes": nodes, "ranks_per_node": size, "command": ["true"]})
    told = history.get("history") or history_of(run, nodes, at=now - 600)
    seen = tuple(_node(number, size, step, odd or {}) for number in range(nodes))
    observation = Observation(
        attempt=1,
        generation=1,
        job=JobLook(state=JobState.RUNNING, job_id="77"),
        claim_job="77",
        control=Control(attempt=1, generation=1, phase=ControlPhase.PREPARE),
        members=tuple(item.node for item in seen),
        nodes=seen,
        resume_step=0,
        usual={"forward": 0.5},
        watched_s=600.0,
        running_s=600.0,
    )
    verdict = judge(observation, told, config, now)
    shown = Shown(at=now, observation=observation, verdict=verdict, actions=(), config=config)
    return RunSeen(run=run, history=told, shown=shown)


def _node(number: int, size: int, step: int, odd: dict[int, dict]) -> NodeSeen:
    workers = tuple(
        WorkerBeat(
            **{
                "rank": rank,
                "local_rank": rank % size,
                "pid": 1000 + rank,
                "step": step,
                "phase": Phase.FORWARD,
                "idle_s": 0.2,
                **odd.get(rank, {}),
            }
        )
        for rank in range(number * size, (number + 1) * size)
    )
    beat = Beat(
        node=f"n{number}", attempt=1, generation=1, sequence=9, phase=AgentPhase.RUNNING, workers=workers
    )
    return NodeSeen(node=f"n{number}", beat=beat, silent_s=0.4)


@contextmanager
def page_of(root: Root, runs, *, token: str = "", host: str = "127.0.0.1"):
    """A page over what `runs()` gives, and its port; as after a round of the supervisor."""
    said = []
    place = Place(host=host, port=free_port(), token=token)
    page = Page(place, root, runs, said.append)
    page.ticked()
    try:
        yield page, place.port
    finally:
        page.close()
        assert not said, said


def ask(port: int, path: str, method: str = "GET", **headers: str):
    """(status, headers, body) as it comes, no redirect followed. A Host header is localhost unless given."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request(method, path, headers={"Host": "localhost", **headers})
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()
    finally:
        connection.close()
