"""Chinese throughout: what explain says to a Chinese reader has no English sentence of ours in it."""

import re

import pytest

from contract.requests import RequestKind
from contract.states import JobState
from supervisor.core.decide import decide
from supervisor.core.reasons import chinese, failures_of
from supervisor.core.story import story
from supervisor.operate import Outcome
from tests.supervisor.core.world import World, small_config, training


def _scenes():
    """Runs in the tiny world, each with a fault or a wish; what they say in the journal, now, and of what comes."""
    ends = (JobState.ENDED_LIMIT, JobState.ENDED_PREEMPTED, JobState.ENDED_FAILED, JobState.ENDED_NODE, JobState.ENDED_CANCELLED)  # fmt: skip
    yield from ((f"ends {state}", lambda world, state=state: world.end_job(state), {}) for state in ends)
    kinds = (RequestKind.PAUSE, RequestKind.CANCEL, RequestKind.RESUME)
    yield from ((f"asked to {kind}", lambda world, kind=kind: world.ask(kind), {}) for kind in kinds)
    yield "killed", lambda world: world.kill_rank(1), {}
    yield "hung", lambda world: world.hang_rank(1), {}
    yield "raises", lambda world: world.raise_in_rank(1), {}
    yield "node lost", lambda world: world.lose_node(1), {}
    yield (
        "budget spent",
        lambda world: world.kill_rank(1),
        {"supervisor": {"in_place_limit": 0, "max_failures": 1}},
    )


@pytest.mark.parametrize(("name", "hurt", "sections"), list(_scenes()), ids=lambda item: item if isinstance(item, str) else "")  # fmt: skip
def test_what_explain_says_in_chinese_has_no_english_sentence_in_it(name, hurt, sections) -> None:
    world = World(config=small_config(**sections))
    world.until(training)
    hurt(world)
    said: set[str] = set()
    for _ in range(120):
        world.move()
        observation, verdict = world.look()
        failures = failures_of(world.history)
        if not verdict.failed:
            said.add(chinese(verdict.reason, failures))
        actions = decide(world.history, observation, verdict, world.config, world.wall)
        said |= {chinese(action.reason, failures) for action in actions if hasattr(action, "reason")}
        world.live_tick()
        if world.history.state.final:
            break
    lines = [*said, *story(world.journal, "zh")]
    english = [line for line in lines if re.search(r"[a-z]{2,} [a-z]{2,} [a-z]{2,}", line)]
    own_words = "RuntimeError: bug at step"  # of the program: they stay as they are
    assert [line for line in english if own_words not in line] == []


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("submitted", "由提交命令"),
        (
            "the job was cancelled, and not by the supervisor (CANCELLED)",
            "作业被取消，不是看护进程所为（CANCELLED）",
        ),
        ("the job was cancelled, and not by the supervisor", "作业被取消，不是看护进程所为"),
        ("alerts are not configured (set KEY)", "没有配置告警接收方（请设置 KEY）"),
        ("the run is paused: there is nothing to cancel", "任务已暂停，无法取消"),
        (
            "silenced by li until 2026-11-30 23:23:14Z; what happens until then is told afterwards in one message",
            "li 已静默到 2026-11-30 23:23:14Z；期间发生的事届时合并成一条告知",
        ),
        ("t-1: request pause of li: the run is paused", "t-1：li 请求暂停：任务已暂停"),
        (
            "t-1: attempt 1 generation 3 completed: all 2 workers finished, at step 160",
            "t-1：第 1 次作业第 3 次启动：已完成：2 个 worker 都已完成，第 160 步",
        ),
        (
            "not answered within 5 s; request 1-a stays open. The run is running: ",
            "5 秒内没有答复；请求 1-a 仍有效。任务训练中",
        ),
    ],
)
def test_what_status_and_the_wishes_answer_is_said_in_chinese(reason, said) -> None:
    assert chinese(reason, {}) == said


def test_an_outcome_has_the_digest_in_the_readers_language() -> None:
    outcome = Outcome(
        ok=True,
        text="/r/e\nrank 0 in f\nno recorder\nwithout n1",
        digests={"en": "rank 0 in f\nno recorder", "zh": "rank 0 在 f"},
    )
    assert outcome.told("zh") == "/r/e\nrank 0 在 f\n缺少 n1"
    assert outcome.told("en") == outcome.text


def test_reasons_with_other_peoples_words_keep_them() -> None:
    assert chinese("the job was preempted: the queue says ended-preempted (by job 7)", {}) == (
        "作业被抢占（队列状态 ended-preempted (by job 7)）"
    )
    assert chinese("sbatch: error: Invalid partition", {}) == "sbatch: error: Invalid partition"
    waits = "still pending when the time was up (squeue gave no answer: error: x (y)). The run is pending"
    assert chinese(waits, {}) == "时间已到，仍未完成（squeue 没有应答：error: x (y)）。任务排队中"
    assert chinese("waits for Slurm, for 600 s at most (--wait)", {}) == "等待 Slurm，最多 600 秒（--wait）"
    held = "job 7 held in the queue and will not start by itself (PENDING: PartitionNodeLimit)"
    assert chinese(held, {}) == "作业 7 被挂起，不会自己开始（PENDING: PartitionNodeLimit）"
    assert chinese("attempt 2 is not submitted yet", {}) == "第 2 次提交尚未完成"
    assert chinese("resumed by li; nobody knows", {}) == "li 要求继续；nobody knows"
