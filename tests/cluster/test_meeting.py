"""Process group set-up over the nodes of a real Slurm (operation B1): whoever keeps the ranks from meeting is named."""

import pytest

from contract import events as ev
from contract.layout import RunDir
from contract.states import Cause
from tests.cluster.conftest import Field, bodies, events, history, losses
from tests.standin import expected_losses

pytestmark = pytest.mark.timeout(200)

WITHIN_S = 3.0
STEPS = 30
# What goes wrong in generation 1: the stand-in's arguments, the cause, the rank to blame, its member, the words.
FAULTS = {
    "port": (("--take-port-once",), Cause.PORT, 0, 0, "Address already in use"),
    "master": (("--deaf-once",), Cause.RENDEZVOUS, 0, 0, "cannot reach rank 0 at"),
    "missing": (("--absent-once", "3"), Cause.RENDEZVOUS, 3, 1, "rank 3 did not come"),
    "twice": (("--twice-once", "2"), Cause.RENDEZVOUS, 2, 1, "rank 2 is there more than once"),
}


def test_ranks_that_do_not_meet_are_named_and_meet_the_next_time(field: Field) -> None:
    """Four runs of four ranks on two nodes beside each other, each with its own reason not to begin."""
    runs: dict[str, RunDir] = {}
    for name, (arguments, *_) in FAULTS.items():
        config = field.config(
            *arguments,
            "--gather-s",
            str(WITHIN_S),
            run={"steps": STEPS, "name": name},
            job={"ranks_per_node": 2},
        )
        runs[name] = field.submit(config)
    field.supervise()
    for name, (_, cause, rank, place, said) in FAULTS.items():
        run = runs[name]
        assert field.until_end(run) == "completed", name
        verdicts = bodies(run, ev.Judged)
        assert len(verdicts) == 1, verdicts
        verdict, node = verdicts[0], bodies(run, ev.GenerationWent)[0].members[place]
        assert (verdict.cause, verdict.suspects[0], verdict.nodes[0]) == (cause, rank, node), (name, verdict)
        assert said in verdict.reason
        assert judged_after(run) < 3 * WITHIN_S + 5, "the time limit of the meeting"
        assert f"({cause}): {verdict.reason}" in field.explain(run)
        assert losses(run) == expected_losses(STEPS)
        assert len(history(run).attempts) == 1, "a new generation was enough"
        field.until_gone(run)


def judged_after(run: RunDir) -> float:
    """Seconds from the start of the generation to the verdict."""
    went = next(event.time for event in events(run) if isinstance(event.body, ev.GenerationWent))
    return next(event.time for event in events(run) if isinstance(event.body, ev.Judged)) - went
