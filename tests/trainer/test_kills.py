"""The real trainer, killed at some twenty points spread over a save, a removal and the ranks (minutes: slow)."""

import signal

import pytest

from contract import manifest

pytestmark = [pytest.mark.train, pytest.mark.slow]

# Dies at the n-th call of a function on one rank, before it begins or after it has returned.
DYING = """
import importlib, os, signal, threading
import trainer.preload
module, _, path = {target!r}.partition(":")
owner = importlib.import_module(module)
*parents, name = path.split(".")
for parent in parents:
    owner = getattr(owner, parent)
plain, calls, lock = getattr(owner, name), 0, threading.Lock()
def dying(*arguments, **named):
    global calls
    with lock:
        calls += 1
        now = calls == {number}
    if now and {before}:
        os.kill(os.getpid(), signal.SIGKILL)
    found = plain(*arguments, **named)
    if now:
        os.kill(os.getpid(), signal.SIGKILL)
    return found
if os.environ["RANK"] == "{rank}":
    setattr(owner, name, dying)
"""
TAKE, WRITE, BYTES = (
    "trainer.snapshot:HostCopies.take",
    "trainer.shards:write_shard",
    "trainer.publish:ShardFile.write",
)
PUBLISH, PRUNE, REMOVE = "contract.manifest:publish", "trainer.checkpoint:prune", "contract.manifest:remove"
THREAD = "trainer.background:Background._run"
# Of each save rank 0 has four files and rank 1 two: calls 5 to 8, or 3 and 4, are the second save's.
POINTS = [
    (0, BYTES, 3, True), (1, BYTES, 3, False),  # the very first save
    (0, TAKE, 5, True), (0, TAKE, 7, False), (1, TAKE, 3, True), (1, TAKE, 4, False),
    (0, THREAD, 2, True), (1, THREAD, 2, True), (1, THREAD, 2, False),
    (0, WRITE, 5, True), (0, WRITE, 6, False), (0, WRITE, 8, False), (1, WRITE, 3, True), (1, WRITE, 3, False),
    (1, WRITE, 4, False), (0, PUBLISH, 2, True), (0, PUBLISH, 2, False), (0, PRUNE, 2, False),
    (0, REMOVE, 1, True), (0, REMOVE, 1, False), (0, THREAD, 4, False),
]  # fmt: skip


@pytest.fixture(scope="module")
def calm() -> dict[str, list[float]]:
    """Losses of the run without a fault, made once."""
    return {}


@pytest.mark.parametrize(("rank", "target", "number", "before"), POINTS)
def test_killed_anywhere_training_continues_exactly(bench, calm, rank, target, number, before):
    settings = {"checkpoint": {"interval_steps": 2, "keep_last": 2}}
    if not calm:
        whole = bench("whole", **settings)
        whole.train()
        calm["losses"] = whole.losses()
    run = bench(**settings)
    first = run.start(CIUIC_TEST_BEFORE=DYING.format(target=target, number=number, before=before, rank=rank))
    assert run.warm.ask(wait=[first.pids[rank]]) == [-signal.SIGKILL], first.text()
    first.signal(signal.SIGKILL, ranks=[1 - rank])
    run.warm.ask(wait=[first.pids[1 - rank]])
    for directory in manifest.directories(run.run):
        found = manifest.examine(directory, deep=True)
        assert found.valid or found.manifest is None, found.reason
    run.train()
    assert run.losses() == calm["losses"]
