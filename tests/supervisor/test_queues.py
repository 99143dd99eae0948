"""How Slurm is asked: in the background, once for all runs, less often when it is silent; and which answers count."""

import itertools
import threading
from pathlib import Path

from contract.layout import RunDir
from contract.states import JobState
from slurm.queue import JobSeen
from supervisor.adapters.queues import Queues
from tests.supervisor.conftest import wait_for
from tests.supervisor.core.world import small_config


class Slurm:
    """A queue that answers when it is told to."""

    def __init__(self) -> None:
        self.state = JobState.RUNNING
        self.questions: list[list[str]] = []
        self.go = threading.Event()
        self.go.set()

    def look(self, jobs):
        self.questions.append([f"{job.run.run_id}:{job.job_id}" for job in jobs])
        state = self.state
        self.go.wait(10)
        return {job.key: JobSeen(state=state, job_id=job.job_id) for job in jobs}

    def cancel(self, job, *, force):
        raise AssertionError


class Desk:
    def __init__(self, queue_s: float = 10.0) -> None:
        self.now, self.slurm = 1000.0, Slurm()
        self.queues = Queues(lambda: self.now, self.slurm)
        self.config = small_config(supervisor={"queue_s": queue_s})

    def look(self, run: str = "r", attempt: int = 1, job_id: str = "7"):
        return self.queues.look(RunDir(path=Path("/runs") / run), self.config, attempt, job_id)

    def answered(self, *arguments, **keywords):
        return wait_for(
            lambda: (
                seen if (seen := self.look(*arguments, **keywords)).state is not JobState.UNKNOWN else None
            )
        )


def test_an_answer_from_before_the_submission_says_nothing_of_the_job():
    desk = Desk()
    desk.slurm.state = JobState.GONE
    assert desk.answered(job_id="").state is JobState.GONE
    desk.slurm.state = JobState.PENDING
    assert desk.look(job_id="7").state is not JobState.GONE
    assert desk.answered(job_id="7").state is JobState.PENDING


def test_nor_does_one_that_was_under_way_when_the_job_was_handed_in():
    desk = Desk()
    desk.slurm.state = JobState.GONE
    desk.slurm.go.clear()
    assert desk.look(job_id="").state is JobState.UNKNOWN
    wait_for(lambda: desk.slurm.questions)
    desk.slurm.state = JobState.RUNNING
    assert desk.look(job_id="7").state is JobState.UNKNOWN
    desk.slurm.go.set()
    assert desk.answered(job_id="7").state is JobState.RUNNING


def test_one_question_for_all_runs_and_not_at_each_look():
    desk = Desk()
    desk.answered("a")
    desk.answered("b")
    for _ in range(5):
        desk.look("a")
        desk.look("b")
    assert desk.slurm.questions == [["a:7"], ["a:7", "b:7"]]
    desk.now += 12
    desk.answered("a")
    wait_for(lambda: len(desk.slurm.questions) == 3)


def test_a_silent_controller_is_asked_less_often_and_its_last_word_grows_old():
    desk = Desk()
    desk.answered()
    desk.slurm.state = JobState.UNKNOWN
    asked = []
    for second in range(200):
        desk.now += 1
        before = len(desk.slurm.questions)
        seen = desk.look()
        wait_for(lambda: desk.queues._asking is None or not desk.queues._asking.is_alive())
        if len(desk.slurm.questions) > before:
            asked.append(second)
        if second < 60:
            assert (seen.state, seen.age_s) == (JobState.RUNNING, second + 1.0)
    assert seen.state is JobState.UNKNOWN
    assert "Slurm has not answered for" in seen.reason
    gaps = [later - earlier for earlier, later in itertools.pairwise(asked)]
    assert min(gaps) >= 17, gaps
    assert max(gaps) <= 45, gaps


def test_a_job_that_was_just_handed_in_may_not_show_itself_at_once():
    desk = Desk(queue_s=1.0)
    desk.slurm.state = JobState.GONE
    desk.look()
    wait_for(lambda: not desk.queues._asking.is_alive())
    assert desk.look().state is JobState.UNKNOWN
    for _ in range(4):
        desk.now += 10
        desk.look()
        wait_for(lambda: not desk.queues._asking.is_alive())
    assert desk.look().state is JobState.GONE


def test_who_never_had_an_answer_tells_how_long_it_has_waited():
    """A supervisor that is started while the controller is silent: people are told after a while all the same."""
    desk = Desk()
    desk.slurm.state = JobState.UNKNOWN
    ages = []
    for _ in range(3):
        seen = desk.look()
        ages.append((seen.state, seen.age_s))
        wait_for(lambda: not desk.queues._asking.is_alive())
        desk.now += 40
    assert ages == [(JobState.UNKNOWN, 0.0), (JobState.UNKNOWN, 40.0), (JobState.UNKNOWN, 80.0)]
    assert desk.look(job_id="8").age_s == 0.0, "another job, another wait"


def test_whoever_waits_for_an_answer_has_the_next_question_asked_sooner():
    desk = Desk()
    desk.answered()
    desk.now += 3
    desk.look()
    assert len(desk.slurm.questions) == 1
    desk.queues.hurry()
    wait_for(lambda: desk.look() and len(desk.slurm.questions) == 2)
    desk.queues.hurry()
    for _ in range(5):
        desk.look()
    assert len(desk.slurm.questions) == 2, "never more often than every two seconds"


def test_a_controller_that_does_not_answer_is_not_hurried():
    desk = Desk()
    desk.answered()
    desk.slurm.state = JobState.UNKNOWN
    desk.now += 12
    wait_for(lambda: desk.look() and len(desk.slurm.questions) == 2)
    wait_for(lambda: not desk.queues._asking.is_alive())
    desk.queues.hurry()
    desk.now += 5
    desk.look()
    assert len(desk.slurm.questions) == 2
