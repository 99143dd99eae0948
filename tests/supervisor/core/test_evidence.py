"""What stacks, flight recorders and device figures of all ranks mean, and when they are taken."""

from dataclasses import replace

import pytest

from contract import events as ev
from contract.config import RunConfig
from contract.control import Order, OrderKind
from contract.evidence import Collective, Frame, NodeEvidence, Thread, WorkerEvidence
from contract.requests import Request, RequestKind
from contract.states import Cause, JobState, VerdictKind
from supervisor.core import actions as do
from supervisor.core import alerts
from supervisor.core.decide import decide
from supervisor.core.evidence import Accused, accused, device_troubles, digest, suspicion
from supervisor.core.flight import Fault, findings
from supervisor.core.observation import JobLook
from supervisor.core.stacks import groups, place, some_ranks
from supervisor.core.story import story
from supervisor.core.verdict import Verdict
from tests.supervisor.core.make import NOW, control, events, failure, history, node, seen

TORCH = "/v/lib/python3.11/site-packages/torch/distributed/"
REDUCE = (
    Frame(name="all_reduce", file=TORCH + "distributed_c10d.py", line=3252),
    Frame(name="wrapper", file=TORCH + "c10d_logger.py", line=83),
    Frame(name="sums", file="/code/trainer/step.py", line=88),
    Frame(name="main", file="/code/trainer/main.py", line=30),
)
READ = (
    Frame(name="select", file="/usr/lib/python3.11/selectors.py", line=468),
    Frame(name="next_batch", file="/code/reader.py", line=41),
)


def worker(rank: int, frames=REDUCE, **changes) -> WorkerEvidence:
    found = WorkerEvidence(
        rank=rank, pid=100 + rank, phase="forward", step=7, os_state="S", source="py-spy",
        threads=(Thread(name="MainThread", frames=frames),),
    )  # fmt: skip
    return replace(found, **changes)


def kept(*workers: WorkerEvidence, **changes) -> NodeEvidence:
    return replace(NodeEvidence(node="n0", attempt=1, generation=1, why="hung", workers=workers), **changes)


@pytest.mark.parametrize(
    ("frames", "expected"),
    [
        (REDUCE, ("all_reduce", "step.py:88")),
        (READ, ("next_batch", "reader.py:41")),
        ((Frame(name="cond_wait"), *REDUCE), ("all_reduce", "step.py:88")),
        (REDUCE[:2], ("all_reduce", "distributed_c10d.py:3252")),
        ((Frame(name="spin", file="/code/native.py", line=3),), ("spin", "native.py:3")),
        (
            (
                Frame(name="_all_gather_base", file=TORCH + "c10d.py", line=1),
                Frame(name="f", file="/a/b.py", line=2),
            ),
            ("_all_gather_base", "b.py:2"),
        ),
        ((), ("", "")),
    ],
)
def test_a_stack_is_what_the_rank_does_and_where_in_its_own_code(frames, expected) -> None:
    assert place(frames) == expected


def test_ranks_at_the_same_place_are_one_group_and_the_odd_one_stands_last() -> None:
    workers = [worker(rank) for rank in range(8) if rank != 3]
    found = groups([worker(3, READ), *workers])
    assert [(group.ranks, group.doing, group.waits) for group in found] == [
        ((0, 1, 2, 4, 5, 6, 7), "all_reduce", True),
        ((3,), "next_batch", False),
    ]
    text = digest([kept(worker(3, READ), *workers)])
    assert (
        text["en"].splitlines()[0]
        == "7 ranks in all_reduce (step.py:88); rank 3 in next_batch (reader.py:41)"
    )
    assert (
        text["zh"].splitlines()[0]
        == "7 个 rank 在 all_reduce (step.py:88)；rank 3 在 next_batch (reader.py:41)"
    )


def test_stopped_and_unreadable_ranks_are_said() -> None:
    found = digest([kept(worker(0), worker(1, READ, os_state="T"), worker(2, threads=()))])["en"]
    assert "rank 1 stopped by a signal in next_batch" in found
    assert "rank 2 in forward (no stack)" in found


def test_nothing_is_made_of_processes_that_had_ended() -> None:
    assert digest([kept(worker(0, threads=(), os_state="", problem="it has ended"))]) == {}


def test_ranks_are_written_shortly() -> None:
    assert some_ranks((3,)) == "rank 3"
    assert some_ranks((0, 1, 2, 5)) == "ranks 0-2, 5"
    assert some_ranks(tuple(range(0, 40, 2))) == "ranks 0, 2, 4, 6, 8, 10, … (20 in all)"


def calls(*entries: tuple, group: str = "0:default_pg") -> tuple[Collective, ...]:
    """(seq, name, size, done), …"""
    return tuple(
        Collective(group=group, ranks=(), seq=seq, name=name, sizes=size, done=done)
        for seq, name, size, done in entries
    )


def since(when: float, entries: tuple[Collective, ...]) -> tuple[Collective, ...]:
    return tuple(replace(entry, at=when) for entry in entries)


WAITS = calls((4, "all_reduce", "3→3", True), (5, "all_reduce", "3→3", False))
NEXT = calls((7, "barrier", "", True), (8, "barrier", "", False), group="1:control")
BEFORE = calls((3, "all_reduce", "3→3", True), (4, "all_reduce", "3→3", True))


@pytest.mark.parametrize(
    ("ranks", "expected"),
    [
        ({0: WAITS, 1: WAITS, 2: BEFORE}, (Fault.ABSENT, 5, "all_reduce 3→3", (2,), (0, 1), "")),
        ({0: WAITS, 1: BEFORE, 2: BEFORE}, (Fault.ABSENT, 5, "all_reduce 3→3", (1, 2), (0,), "")),
        ({0: WAITS, 1: WAITS}, (Fault.STUCK, 5, "all_reduce 3→3", (0, 1), (), "")),
        ({0: BEFORE, 1: BEFORE}, None),
        (  # rank 2 skipped the all-reduce of 3 and called the next one
            {0: WAITS, 1: WAITS, 2: calls((4, "all_reduce", "3→3", True), (5, "all_reduce", "1→1", False))},
            (Fault.MISMATCH, 5, "all_reduce 3→3", (2,), (0, 1), "all_reduce 1→1"),
        ),
        (
            {0: WAITS, 1: calls((4, "all_reduce", "3→3", True), (5, "barrier", "", False))},
            (Fault.MISMATCH, 5, "all_reduce 3→3", (1, 0), (0,), "barrier"),
        ),
        (  # the sender of a broadcast need not wait for those who come later
            {0: calls((5, "broadcast", "3→3", True)), 1: calls((4, "broadcast", "3→3", True))},
            None,
        ),
        ({0: (), 1: ()}, None),
    ],
)
def test_the_recorders_tell_who_did_not_come(ranks, expected) -> None:
    found = findings([worker(rank, collectives=entries) for rank, entries in ranks.items()])
    if expected is None:
        assert found == ()
        return
    [item] = found
    assert (item.fault, item.seq, item.call, item.ranks, item.others, item.instead) == expected
    assert item.group == "default_pg"


def test_who_waits_in_another_group_is_a_victim() -> None:
    """Rank 1 is absent from the pair (0, 1) because it waits for rank 2 in the pair (1, 2)."""
    pair = lambda name, *entries: calls(*entries, group=f"{name}:{name}")  # noqa: E731
    ranks = {
        0: pair("a", (1, "barrier", "", True), (2, "barrier", "", False)),
        1: pair("a", (1, "barrier", "", True))
        + pair("b", (1, "barrier", "", True), (2, "barrier", "", False)),
        2: pair("b", (1, "barrier", "", True)),
    }
    found = findings([worker(rank, collectives=entries) for rank, entries in ranks.items()])
    assert [(item.group, item.ranks) for item in found] == [("b", (2,)), ("a", (1,))]


def test_of_two_that_wait_for_each_other_the_older_wait_tells() -> None:
    """Rank 1 skipped the first group's collective, went on, and waits in the second group's."""
    other = lambda *entries: calls(*entries, group="1:control")  # noqa: E731
    ranks = {
        0: since(5.0, calls((4, "all_reduce", "3→3", True)) + other((8, "all_reduce", "4→4", False))),
        1: since(6.0, calls((4, "all_reduce", "3→3", True), (5, "all_reduce", "3→3", False)))
        + since(4.0, other((7, "all_reduce", "4→4", True))),
    }
    found = findings([worker(rank, collectives=entries) for rank, entries in ranks.items()])
    assert [(item.group, item.ranks, item.since) for item in found] == [
        ("control", (1,), 5.0),
        ("default_pg", (0,), 6.0),
    ]


@pytest.mark.parametrize(
    ("workers", "expected", "said"),
    [
        # One left out what the other waits in, and waits in the next: no step and no phase tells.
        (
            {0: {"collectives": WAITS}, 1: {"collectives": BEFORE}},
            Accused(ranks=(1,), phase="collective"),
            ("rank 1, phase collective", "rank 1，集合通信阶段"),
        ),
        (
            {
                0: {"collectives": (*since(5.0, WAITS), *NEXT[:1])},
                1: {"collectives": (*BEFORE, *since(6.0, NEXT)), "frames": READ},
            },
            Accused(ranks=(1,), phase="collective"),
            ("rank 1, phase collective", "rank 1，集合通信阶段"),
        ),
        # One never came: it stands where its page says.
        (
            {0: {"collectives": WAITS}, 1: {"collectives": BEFORE, "frames": READ, "phase": "data"}},
            Accused(ranks=(1,), phase="data"),
            ("rank 1, phase data", "rank 1，读取数据阶段"),
        ),
        (
            {
                0: {"collectives": WAITS},
                1: {"collectives": calls((4, "all_reduce", "3→3", True), (5, "barrier", "", False))},
            },
            Accused(ranks=(1, 0), phase="collective"),
            ("ranks 0-1, phase collective", "rank 0-1，集合通信阶段"),
        ),
        (
            {0: {"collectives": WAITS}, 1: {"collectives": WAITS}},
            Accused(phase="collective"),
            ("phase collective", "集合通信阶段"),
        ),
        (
            {0: {}, 1: {}},
            Accused(phase="collective"),
            ("phase collective", "集合通信阶段"),
        ),  # no recorder, but stacks
        (  # who is stopped keeps the others waiting, whatever the recorders say
            {0: {"collectives": WAITS}, 1: {"collectives": WAITS, "os_state": "T", "frames": READ}},
            Accused(ranks=(1,), phase="collective"),
            ("rank 1, phase collective", "rank 1，集合通信阶段"),
        ),
        (
            {0: {}, 1: {"frames": READ, "os_state": "T", "phase": "data"}},
            Accused(ranks=(1,), phase="data"),
            ("rank 1, phase data", "rank 1，读取数据阶段"),
        ),
        ({0: {}, 1: {"frames": READ}}, Accused(), ("", "")),
        ({0: {"collectives": BEFORE}, 1: {"frames": READ, "collectives": BEFORE}}, Accused(), ("", "")),
        ({0: {"os_state": ""}}, Accused(), ("", "")),
    ],
)
def test_who_is_accused_and_in_which_phase(workers, expected, said) -> None:
    found = accused([kept(*(worker(rank, **changes) for rank, changes in workers.items()))])
    assert found == expected
    event = ev.EvidenceKept(attempt=1, generation=1, path="p", suspects=found.ranks, phase=found.phase)
    assert (suspicion(event, "en"), suspicion(event, "zh")) == said
    past = history(replace(failure(verdict="hung", suspects=(0, 1)), limits={"phase": "optimizer"}), event)
    assert past.newest.newest.accused == (found.ranks or (0, 1), found.phase or "optimizer")


@pytest.mark.parametrize(
    ("odd", "en", "zh"),
    [
        (
            {"collectives": WAITS, "os_state": "T", "frames": READ},
            "rank 0 waits for rank 1, stopped by a signal",
            "rank 0 在等被信号暂停的 rank 1",
        ),
        (
            {
                "os_state": "T",
                "frames": READ,
                "flight": "the process is stopped",
            },  # it could not write its record
            "rank 0 waits for rank 1, stopped by a signal",
            "rank 0 在等被信号暂停的 rank 1",
        ),
        ({"collectives": WAITS, "frames": READ}, "but rank 1 stands elsewhere", "但 rank 1 停在别处"),
        ({}, "rank 0 in all_reduce 3→3 #5 (default_pg); rank 1 without", "rank 1 没有飞行记录"),
    ],
)
def test_no_network_is_blamed_while_a_rank_explains_the_wait(odd, en, zh) -> None:
    found = digest([kept(worker(0, collectives=WAITS), worker(1, **odd))])
    assert en in found["en"]
    assert "network" not in found["en"]
    assert zh in found["zh"]
    assert "网络" not in found["zh"]


def test_a_network_is_suspected_where_all_stand_in_the_same_collective() -> None:
    found = digest([kept(worker(0, collectives=WAITS), worker(1, collectives=WAITS))])
    assert "the network or a device" in found["en"]
    assert "可能是网络或设备" in found["zh"]


def test_the_second_line_names_the_collective_and_a_sick_device() -> None:
    gpus = (
        {"index": 0, "ecc_uncorrected": 0, "remapped": {"failed": 0, "pending": 0}, "slowdown": []},
        {"index": 1, "recovery_action": "node reboot", "ecc_uncorrected": 2},
    )
    found = digest([kept(worker(0, collectives=WAITS), worker(1, READ, collectives=BEFORE), gpus=gpus)])
    assert found["en"].splitlines()[1] == (
        "all_reduce 3→3 #5 (default_pg): entered by rank 0, not by rank 1; "
        "n0 GPU 1: 2 uncorrectable ECC errors, asks for: node reboot"
    )
    assert "rank 0 已进入，rank 1 没有" in found["zh"]


@pytest.mark.parametrize(
    ("figures", "said"),
    [
        ({}, ()),
        ({"recovery_action": "none", "ecc_uncorrected": 0, "slowdown": []}, ()),
        ({"remapped": {"failed": 1, "pending": 1}}, ("row remapping failed",)),
        ({"remapped": {"failed": 0, "pending": 1}}, ("row remapping pending",)),
        ({"slowdown": ["hw-thermal"]}, ("slowed down (hw-thermal)",)),
    ],
)
def test_figures_of_a_device_are_held_against_it(figures, said) -> None:
    assert device_troubles(figures) == said


HUNG = failure(
    verdict="hung", cause="hang", reason="rank 1 stands still", signature="",
    limits={"phase": "forward", "idle_s": 9.0, "limit_s": 8.0},
)  # fmt: skip
IN_PLACE = RunConfig.model_validate(
    {"run": {"name": "r", "steps": 100}, "job": {"nodes": 2, "command": ["x"]}}
)
NEW_JOB = IN_PLACE.model_copy(
    update={"supervisor": IN_PLACE.supervisor.model_copy(update={"in_place_limit": 0})}
)
SICK = Verdict(kind=VerdictKind.HUNG, reason="rank 1 stands still", cause=Cause.HANG)
ORDER = Order(id="evidence-g0001", kind=OrderKind.EVIDENCE)


def actions(known, look, config, at: float = 1.0) -> list[do.Action]:
    failed_at = known.newest.newest.failed_at
    return [
        item for item in decide(known, look, SICK, config, failed_at + at) if not isinstance(item, do.Tell)
    ]


def test_the_order_travels_with_the_restart_in_place() -> None:
    found = actions(history(HUNG), seen(), IN_PLACE)
    assert found[-1] == do.Prepare(
        attempt=1, generation=2, members=("n0", "n1"), reason="rank 1 stands still", evidence="evidence-g0001"
    )


def test_a_crash_orders_nothing() -> None:
    assert actions(history(failure()), seen(), IN_PLACE)[-1].evidence == ""


def test_before_the_job_is_ended_the_agents_look_first_and_not_for_ever() -> None:
    known = history(HUNG)
    first, wait = actions(known, seen(), NEW_JOB)
    assert first == do.TakeEvidence(
        attempt=1, order="evidence-g0001", kind=OrderKind.EVIDENCE, reason="hung: rank 1 stands still"
    )
    ordered = seen(control=control(orders=(ORDER,)))
    assert actions(known, ordered, NEW_JOB) == [wait]
    assert isinstance(actions(known, ordered, NEW_JOB, at=7.0)[-1], do.Cancel)
    done = seen(node(0, orders_done=(ORDER.id,)), node(1, orders_done=(ORDER.id,)), control=ordered.control)
    assert isinstance(actions(known, done, NEW_JOB)[-1], do.Cancel)


def test_nothing_waits_for_evidence_of_a_job_that_is_over_or_silent() -> None:
    silent = seen(node(0, silent_s=60.0), node(1, silent_s=60.0))
    assert isinstance(actions(history(HUNG), silent, NEW_JOB)[-1], do.Cancel)
    over = seen(job=JobLook(state=JobState.ENDED_FAILED, job_id="77"))
    assert not any(isinstance(item, do.TakeEvidence) for item in actions(history(HUNG), over, NEW_JOB))


def test_a_person_who_gives_up_on_the_same_hang_gets_its_evidence_first() -> None:
    same = replace(HUNG, signature="hang|forward|rank 1")
    known = history(same, ev.GenerationIntended(attempt=1, generation=2, members=("n0", "n1"), reason="x"),
                    replace(same, generation=2))  # fmt: skip
    found = actions(known, seen(generation=2, control=control(generation=2)), IN_PLACE)
    assert isinstance(found[0], do.TakeEvidence)
    assert found[0].order == "evidence-g0002"


KEPT = ev.EvidenceKept(
    attempt=1, generation=1, path="/r/evidence/g0001", nodes=("n0",), missing=("n1",),
    digest={"en": "rank 1 in f (a.py:1)\nno flight recorder", "zh": "rank 1 在 f (a.py:1)\n无飞行记录"},
)  # fmt: skip


def test_alerts_and_the_story_show_path_and_digest() -> None:
    told = alerts.failed(history(HUNG, KEPT), IN_PLACE, HUNG, "attempt", None, 2)
    assert told.text["en"].endswith("Evidence: /r/evidence/g0001\nrank 1 in f (a.py:1)\nno flight recorder")
    back = ev.Recovered(
        attempt=1,
        generation=2,
        step=9,
        failed_attempt=1,
        failed_generation=1,
        detect_s=1,
        restart_s=1,
        repeated_steps=0,
    )
    assert "当时的现场：rank 1 在 f (a.py:1)" in alerts.recovered(history(HUNG, KEPT), back).text["zh"]
    assert story(events(KEPT))[0].split("Z  ", 1)[1] == (
        "evidence in /r/evidence/g0001 (nothing from n1)\n    rank 1 in f (a.py:1)\n    no flight recorder"
    )


WISH = Request(id="9-x", kind=RequestKind.DUMP, by="li")
WELL = Verdict(kind=VerdictKind.HEALTHY, reason="all train", step=10)


def test_a_person_asks_where_the_ranks_stand() -> None:
    asked = seen(requests=(WISH,))
    assert decide(history(), asked, WELL, IN_PLACE, NOW)[0] == do.TakeEvidence(
        attempt=1, order="9-x", kind=OrderKind.DUMP, reason="asked by li"
    )
    ordered = replace(asked, control=control(orders=(Order(id="9-x", kind="dump"),)))
    assert not decide(history(), ordered, WELL, IN_PLACE, NOW)
    [answer] = decide(history(replace(KEPT, order="9-x")), ordered, WELL, IN_PLACE, NOW)
    assert answer.ok
    assert answer.outcome == "/r/evidence/g0001\nrank 1 in f (a.py:1)\nno flight recorder\nwithout n1"
    [nothing] = decide(history(replace(KEPT, order="9-x", nodes=())), ordered, WELL, IN_PLACE, NOW)
    assert not nothing.ok


def test_where_nothing_runs_there_is_nothing_to_look_at() -> None:
    gone = [replace(item, beat=replace(item.beat, workers=())) for item in (node(0), node(1))]
    [answer] = decide(history(), seen(*gone, requests=(WISH,)), WELL, IN_PLACE, NOW)
    assert not answer.ok
    assert "nothing to look at" in answer.outcome
