"""What a run is at, what comes next and what a person can do, in sentences: `explain` and the page say the same."""

from collections.abc import Sequence

from contract.history import History
from contract.states import JobState, RunState
from supervisor.core.actions import Action
from supervisor.core.failure_words import sentence
from supervisor.core.job_words import never_clears
from supervisor.core.observation import Observation
from supervisor.core.phrases import STATES, VERDICTS, word
from supervisor.core.reasons import chinese, failures_of
from supervisor.core.verdict import Verdict
from supervisor.record import judgement
from supervisor.words import text


def meaning(history: History, observation: Observation, verdict: Verdict, lang: str) -> str:
    """What the look means: the run's state when it is over, else the verdict, with the reason."""
    final = history.state.final
    if lang != "zh":
        said = (history.state.value, history.reason) if final else (verdict.kind.value, verdict.reason)
        return ": ".join(part for part in said if part)
    if final:
        said = (word(STATES, history.state, lang), chinese(history.reason, failures_of(history)))
    else:
        said = (word(VERDICTS, verdict.kind, lang), reason_of(history, observation, verdict, lang))
    return "：".join(part for part in said if part)


def reason_of(history: History, observation: Observation, verdict: Verdict, lang: str) -> str:
    """The verdict's reason in the reader's language."""
    if lang != "zh":
        return verdict.reason
    if verdict.failed or verdict.told:
        return sentence(judgement(observation, verdict), lang)
    return chinese(verdict.reason, failures_of(history))


def coming(actions: Sequence[Action], lang: str, history: History) -> list[str]:
    """What is done, or would be, each with its reason."""
    failures = failures_of(history)
    found = []
    for action in actions:
        name, reason = text(type(action).__name__, lang), getattr(action, "reason", "")
        said = chinese(reason, failures) if lang == "zh" else reason
        found.append(f"{name}{'：' if lang == 'zh' else ': '}{said}" if said else name)
    return found


def for_people(history: History, observation: Observation) -> str:
    """Key of the text that says what a person can do where nothing is done by itself."""
    job = observation.job
    if history.state is RunState.FAILED:
        return "fix"
    if job.state is JobState.HELD and not history.state.final:
        return "never-starts" if never_clears(job.reason) else "held"
    return "nothing"
