"""Copies of checkpoints at other places: when one is due, when people are told. Pure."""

from contract.copies.report import Report
from contract.copies.store import Trouble
from contract.copies.target import Kind, settings_of, wanted
from supervisor.core import troubles
from supervisor.core.actions import Action
from supervisor.core.case import Case
from supervisor.core.observation import Observation

_FIRST_WAIT_S = 5.0
_LONGEST_WAIT_S = 600.0
LINGER_S = 6 * 3600.0
"""A run that is over stays in care so long for its last copy."""


def due(case: Case) -> tuple[Kind, ...]:
    """The copies to make now: something newer is here, the period is over, and a failed try was long enough ago."""
    return tuple(kind for kind in wanted(case.config) if _is_due(case, kind))


def pending(case: Case) -> bool:
    """Whether a run that is over must be kept in care for its last copies."""
    waited = case.now - case.history.state_at
    missing = any(_is_behind(case.observation, kind) for kind in wanted(case.config))
    return missing and 0 <= waited < LINGER_S


def tell(case: Case) -> tuple[Action, ...]:
    """A copy that has been behind for too long, and the all-clear after it."""
    told: tuple[Action, ...] = ()
    for kind in wanted(case.config):
        report = case.observation.copies.get(kind)
        if report is None:
            continue
        limit = 60 * settings_of(case.config, kind).alert_minutes
        if report.behind_since and case.now - report.behind_since >= limit:
            told += case.tell(troubles.copy_behind(case.history, kind, report, case.now))
        elif troubles.copy_key(kind, report.was_behind_since) in case.history.open_keys:
            told += case.tell(troubles.copy_back(case.history, kind, report))
    return told


def trouble_of(report: Report) -> Trouble:
    """Why the copy is behind."""
    return report.trouble or Trouble.BEHIND


def _is_behind(observation: Observation, kind: Kind) -> bool:
    newest, report = observation.checkpoint, observation.copies.get(kind)
    if newest is None:
        return False
    return report is None or report.newest != (newest.step, newest.attempt, newest.generation)


def _is_due(case: Case, kind: Kind) -> bool:
    if not _is_behind(case.observation, kind):
        return False
    report = case.observation.copies.get(kind)
    if report is None:
        return True
    # A clock that was set back must not stop the copies: what lies in the future is long ago.
    since_try, since_copy = case.now - report.tried_at, case.now - report.copied_at
    wait = min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2 ** min(10, report.tries - 1)) if report.tries else 0.0
    period = 0.0 if case.history.state.final else 60 * settings_of(case.config, kind).period_minutes
    return not (0 <= since_try < wait) and not (0 <= since_copy < period)
