"""The agent's decision, by enumeration. Everything is an argument, so every case is a line."""

from dataclasses import replace
from itertools import product

import pytest

from contract.beat import Beat
from contract.control import Control, Go
from contract.layout import by_number
from contract.states import AgentPhase, ControlPhase
from slurm.agent.decide import (
    SPARES_GRACE_S,
    TERMINATED,
    TOGETHER_S,
    Compare,
    Elect,
    Leave,
    Prepare,
    Save,
    Situation,
    Stage,
    Start,
    Wait,
    decide,
)

GO = Go(attempt=1, generation=1, members=("0", "1"), master="127.0.0.1", port=5)
PREPARE = Control(attempt=1, generation=1, phase=ControlPhase.PREPARE)


def at(stage=Stage.STARTED, **changes):
    base = Situation(
        node="0",
        index=0,
        attempt=1,
        generation=1,
        nodes=2,
        spares=0,
        stage=stage,
        control=PREPARE,
        go=GO,
        alive=1,
    )
    return replace(base, **changes)


def peer(node="1", *, ready_for=0, port=7, done=None, generation=1):
    return Beat(
        node=node,
        attempt=1,
        generation=generation,
        sequence=1,
        phase=AgentPhase.READY,
        ready_for=ready_for,
        port=port,
        done_code=done,
    )


def peers(*beats):
    return {beat.node: beat for beat in beats}


def control(phase, generation=1, attempt=1, **changes):
    return Control(attempt=attempt, generation=generation, phase=phase, **changes)


READY = at(Stage.READY, go=None, alive=0)
TWO_GO = control(ControlPhase.GO, 2, members=("1", "0"), master="h", port=9)


@pytest.mark.parametrize(
    ("situation", "action"),
    [
        # generation 1 elects itself
        (READY, Wait()),
        (replace(READY, peers=peers(peer(ready_for=1))), Elect(members=("0", "1"))),
        (replace(READY, peers=peers(peer(ready_for=1, port=0))), Wait()),
        (replace(READY, peers=peers(peer(ready_for=1)), index=1), Wait()),
        (replace(READY, peers=peers(peer(ready_for=1)), control=None), Wait()),
        (replace(READY, peers=peers(peer(ready_for=1)), control=control(ControlPhase.GO)), Wait()),
        (replace(READY, nodes=1), Elect(members=("0",))),
        (replace(READY, nodes=2, spares=1, peers=peers(peer("2", ready_for=1))), Wait()),
        (
            replace(READY, nodes=2, spares=1, peers=peers(peer("2", ready_for=1)), ready_s=SPARES_GRACE_S),
            Elect(members=("0", "2")),
        ),
        (
            replace(READY, nodes=2, spares=1, peers=peers(peer("10", ready_for=1), peer("9", ready_for=1))),
            Elect(members=("0", "9")),
        ),
        # nodes are compared first, spares too; who must not train is not elected
        (
            replace(
                READY, spares=1, compares=True, peers=peers(peer("2", ready_for=1), peer("1", ready_for=1))
            ),
            Compare(nodes=("0", "1", "2")),
        ),
        (replace(READY, index=1, node="1", compares=True, peers=peers(peer("0", ready_for=1))), Wait()),
        (
            replace(
                READY, misfits={"1": "slow"}, peers=peers(peer("2", ready_for=1), peer("1", ready_for=1))
            ),
            Elect(members=("0", "2")),
        ),
        (replace(READY, misfits={"1": "slow"}, peers=peers(peer(ready_for=1))), Wait()),
        # starting, standing by
        (replace(READY, go=GO), Start(go=GO)),
        (replace(READY, go=GO, node="5"), Wait()),
        (replace(READY, go=GO, control=None), Start(go=GO)),
        (replace(READY, go=GO, node="5", peers=peers(peer("0", done=0), peer("1"))), Wait()),
        (
            replace(READY, go=GO, node="5", peers=peers(peer("0", done=0), peer("1", done=75))),
            Leave(code=75, why="the members have left"),
        ),
        # generation 2
        (at(control=control(ControlPhase.PREPARE, 2)), Prepare(generation=2)),
        (at(control=TWO_GO), Prepare(generation=2)),
        (
            replace(READY, generation=2, control=control(ControlPhase.PREPARE, 2, members=("0",), port=3)),
            Wait(),
        ),
        (replace(READY, generation=2, go=GO, control=PREPARE), Wait()),
        (
            replace(READY, generation=2, control=TWO_GO),
            Start(go=Go(attempt=1, generation=2, members=("1", "0"), master="h", port=9)),
        ),
        (at(Stage.CLEARING, generation=2, control=TWO_GO), Wait()),
        # running, done, crashed
        (at(), Wait()),
        (at(alive=0, codes=(0,)), Wait(done=0)),
        (at(alive=0, codes=(0, 75)), Wait(done=75)),
        (at(alive=0, codes=(0,), peers=peers(peer(done=0))), Leave(code=0, why="all are done")),
        (
            at(alive=0, codes=(0,), since_done_s=TOGETHER_S + 1),
            Leave(code=0, why="done, and waited long enough for 1"),
        ),
        *[(at(alive=alive, codes=(code,)), Wait()) for alive, code in product((0, 1), (1, -9, 65, 77, 78))],
        (at(alive=0, codes=(0, 1), since_done_s=TOGETHER_S + 1), Wait()),
        (at(alive=1, codes=(), peers=peers(peer(done=1))), Leave(code=1, why="1 has given up")),
        # saving
        (at(save_signal=True), Save()),
        (at(control=control(ControlPhase.SAVE)), Save()),
        (
            at(save_signal=True, alive=0, codes=(75,), peers=peers(peer(done=75))),
            Leave(code=75, why="all are done"),
        ),
        (at(save_signal=True, alive=0, codes=(-10,)), Wait(done=75)),
        (at(alive=0, codes=(-10,)), Wait()),
        (replace(READY, save_signal=True, go=GO), Wait(done=75)),
        (replace(READY, save_signal=True, nodes=1), Leave(code=75, why="all are done")),
        # leaving
        (at(terminated=True), Leave(code=TERMINATED, why="told to end by a signal")),
        (at(control=control(ControlPhase.LEAVE)), Leave(code=1, why="ordered to leave")),
        (at(control=control(ControlPhase.LEAVE), alive=0, codes=(0,)), Leave(code=0, why="ordered to leave")),
        (
            at(control=control(ControlPhase.LEAVE, 3), alive=0, codes=(1,)),
            Leave(code=1, why="ordered to leave"),
        ),
        (
            at(control=control(ControlPhase.PREPARE, attempt=2)),
            Leave(code=77, why="attempt 2 has taken over"),
        ),
        (at(control=control(ControlPhase.LEAVE, 9, attempt=0)), Wait()),
        (at(generation=3, control=control(ControlPhase.LEAVE, 2)), Wait()),
    ],
)
def test_decision(situation, action):
    assert decide(situation) == action


@pytest.mark.parametrize("stage", [Stage.READY, Stage.STARTED])
def test_nobody_there_after_a_failure(stage):
    waiting = at(stage, alive=0, codes=(1,), go=None, nodes=3, orphan_s=30, unattended_s=31)
    assert decide(waiting) == Leave(code=1, why="nothing runs here, and no supervisor has moved for 31 s")
    assert decide(replace(waiting, unattended_s=29)) == Wait()


def test_a_lost_supervisor_does_not_end_a_healthy_run():
    assert decide(at(orphan_s=30, unattended_s=1e6)) == Wait()


def test_no_situation_starts_workers_without_being_ready_or_a_member():
    phases = [None, *[control(phase, generation) for phase in ControlPhase for generation in (1, 2)], TWO_GO]
    for stage, order, go, node, save in product(Stage, phases, (None, GO), ("0", "5"), (False, True)):
        action = decide(at(stage, control=order, go=go, node=node, save_signal=save, alive=0))
        if isinstance(action, Start):
            assert stage is Stage.READY
            assert node in action.go.members
            assert not save


def test_nodes_sort_by_number():
    assert sorted(["n10", "n9", "gpu-2-1", "gpu-10-1"], key=by_number) == ["gpu-2-1", "gpu-10-1", "n9", "n10"]
    assert sorted(["10", "2"], key=by_number) == ["2", "10"]
