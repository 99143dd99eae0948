"""Profiles that the workers have written: noticed, and summed up for the journal, each once."""

from contract.config import RunConfig
from contract.events import ProfileKept
from contract.history import History
from contract.layout import RunDir
from contract.profile import read_profiles
from supervisor.core import profiles
from supervisor.core.observation import Observation


def profile_news(
    run: RunDir, history: History, observation: Observation, config: RunConfig
) -> tuple[ProfileKept, ...]:
    """Events for the profiles of the newest attempt that the journal does not know, oldest first.

    One whose ranks have not all written theirs waits, as long as they may still do so.
    """
    known = {item.path for item in history.profiles}
    done = {item.order for item in history.profiles}
    asked = any(
        item.attempt == observation.attempt and item.order not in done
        for item in history.profiles_asked.values()
    )
    if not asked and not config.profile.at_steps and not config.profile.every_steps:
        return ()
    found = []
    places = sorted(run.attempt(observation.attempt).profiles.glob("g*-step-*"))
    for place in places:
        if str(place) in known:
            continue
        written = read_profiles(place)
        if not written:
            continue
        first = written[0]
        over = place != places[-1] or first.generation != observation.generation or not observation.workers
        if over or {item.rank for item in written} >= set(first.ranks):
            found.append(profiles.kept(str(place), written))
    return tuple(found)
