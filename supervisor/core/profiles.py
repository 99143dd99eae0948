"""Profiles: asked for by a person, or by a run that became slow; and what one says, in a few lines. Pure."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from contract.control import OrderKind
from contract.events import ProfileKept
from contract.profile import SLOW, RankProfile, Timing
from contract.requests import Request, RequestKind
from contract.states import ControlPhase
from supervisor.core.actions import Action, Answer, PassOn
from supervisor.core.case import Case
from supervisor.core.slow import open_notice

MOST_RANKS = 8
MOST_STEPS = 20
_SUSPECTS = 3
_TOLD = 4
REGIONS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "data": ("data", "数据"),
        "forward": ("forward", "前向"),
        "backward": ("backward", "反向"),
        "agree": ("waiting for others", "等待其他 rank"),
        "optimizer": ("optimizer", "优化器"),
        "settle": ("bookkeeping", "记录与检查"),
        "evaluate": ("evaluation", "评估"),
        "save": ("save", "保存"),
        "rest": ("not named", "其余"),
    }
)


def profile_as_asked(case: Case) -> tuple[Action, ...]:
    """What `ciuic profile` asks for with its answers, what slowness asks for, and control.json up to the journal."""
    asked = [item for item in case.observation.requests if item.kind is RequestKind.PROFILE]
    return (*_again(case), *(action for item in asked for action in _profile(case, item)), *_slow(case))


def kept_for(case: Case, request: Request) -> Answer | None:
    """The answer when the profile is there."""
    kept = next((item for item in case.history.profiles if item.order == request.id), None)
    if kept is None:
        return None
    missing = f"\nwithout ranks {', '.join(map(str, kept.missing))}" if kept.missing else ""
    return Answer(
        request=request,
        outcome=f"{kept.path}\n{kept.digest.get('en', '')}{missing}",
        ok=bool(set(kept.ranks) - set(kept.missing)),
    )


def _profile(case: Case, request: Request) -> tuple[Action, ...]:
    kept, asked = kept_for(case, request), case.history.profiles_asked.get(request.id)
    if kept is not None:
        return (kept,)
    if asked is not None:
        control = case.observation.control
        if case.failure is None and (control is None or control.at == (asked.attempt, asked.generation)):
            return ()
        outcome = "the workers ended before the profile was done; ask again when it trains"
        return (Answer(request=request, outcome=outcome, ok=False),)
    refusal = refused(case, request.args)
    if refusal:
        return (Answer(request=request, outcome=refusal, ok=False),)
    steps, ranks = _figures(request.args)
    return (order(case, request.id, f"asked by {request.by or 'a person'}", steps, ranks),)


def refused(case: Case, args: Mapping[str, object]) -> str:
    """Why no profile can be made now as asked, "" when it can."""
    if case.config.job.command:
        return "profiles are made by ciuic's own trainer; this run's program is another one"
    if not _trains(case):
        return "no worker trains now: there is nothing to profile"
    try:
        steps, ranks = _figures(args)
    except (TypeError, ValueError):
        return "steps and ranks of a profile are whole numbers"
    size = case.config.job.world_size
    if not 0 <= steps <= MOST_STEPS:
        return f"a profile has 1 to {MOST_STEPS} steps"
    if len(ranks) > MOST_RANKS or any(not 0 <= rank < size for rank in ranks):
        return f"a profile is of at most {MOST_RANKS} ranks, from 0 to {size - 1}"
    return ""


def order(case: Case, identity: str, reason: str, steps: int = 0, ranks: tuple[int, ...] = ()) -> PassOn:
    """Have the next steps profiled; the journal first (`ProfileAsked`), then control.json."""
    control = case.observation.control
    assert control is not None
    return PassOn(
        attempt=control.attempt,
        order=identity,
        kind=OrderKind.PROFILE,
        reason=reason,
        steps=steps,
        ranks=ranks,
    )


def _figures(args: Mapping[str, object]) -> tuple[int, tuple[int, ...]]:
    steps, ranks = args.get("steps", 0), args.get("ranks", ())
    if not isinstance(steps, int) or not isinstance(ranks, list | tuple):
        raise TypeError
    return steps, tuple(int(rank) for rank in ranks)


def _trains(case: Case) -> bool:
    control = case.observation.control
    going = control is not None and control.phase in {ControlPhase.GO, ControlPhase.PREPARE}
    return going and case.seen and case.verdict.trains and case.failure is None


def _again(case: Case) -> tuple[Action, ...]:
    """Orders of this generation that the journal has and control.json has not: we were killed in between."""
    control = case.observation.control
    if control is None or not case.seen:
        return ()
    there = {item.id for item in control.orders} | {item.order for item in case.history.profiles}
    return tuple(
        order(case, item.order, item.reason, item.steps, item.ranks)
        for item in case.history.profiles_asked.values()
        if (item.attempt, item.generation) == control.at and item.order not in there
    )


def _slow(case: Case) -> tuple[Action, ...]:
    """A short profile when the run is found to be slow: of who is suspected, and of one beside it to compare with."""
    notice, wanted = open_notice(case.history.notices), case.config.profile
    if notice is None or case.history.slow_profiles >= wanted.on_slow or case.config.job.command:
        return ()
    identity = f"{SLOW}{notice.number}"
    if identity in case.history.profiles_asked or not _trains(case):
        return ()
    suspects = notice.seen.suspects[:_SUSPECTS]
    beside = [rank for rank in range(case.config.job.world_size) if rank not in suspects][:1]
    ranks = (*suspects, *beside) if suspects else ()
    return (order(case, identity, f"the run is slow: {notice.seen.reason}", ranks=ranks),)


def digest(profiles: Sequence[RankProfile]) -> Mapping[str, str]:
    """Language → a line for each of the first ranks: where its time went."""
    return {
        language: "\n".join(sentence(item, language) for item in profiles[:_TOLD])
        for language in ("zh", "en")
    }


def sentence(profile: RankProfile, language: str) -> str:
    """Where one rank's time went, in a line."""
    timing, chinese = profile.timing, language == "zh"
    if timing is None:
        return f"rank {profile.rank}{'：没有分析结果，' if chinese else ': no profile, '}{profile.error}"
    largest = sorted(timing.regions, key=lambda region: -region.seconds)[:4]
    parts = ", ".join(
        f"{region_word(region.name, language)} {_share(region.seconds, timing)}" for region in largest
    )
    exposed, comm = _share(timing.exposed_s, timing), _share(timing.comm_s, timing)
    slower = (
        profile.overhead if (profile.overhead or 0.0) >= 0 else None
    )  # faster: what it is compared with is noise
    if chinese:
        cost = f"，分析使其慢 {slower:.0%}" if slower is not None else ""
        return f"rank {profile.rank}：每步 {timing.step_s:.3g} 秒{cost}；{parts}；通信 {comm}，未被计算掩盖 {exposed}"
    cost = f", {slower:.0%} more than without" if slower is not None else ""
    return (
        f"rank {profile.rank}: {timing.step_s:.3g} s a step{cost}; {parts}; "
        f"communication {comm}, not covered by computation {exposed}"
    )


def region_word(name: str, language: str) -> str:
    english, chinese = REGIONS.get(name, (name, name))
    return chinese if language == "zh" else english


def _share(seconds: float, timing: Timing) -> str:
    return f"{seconds / timing.step_s:.0%}" if timing.step_s else "-"


def kept(directory: str, profiles: Sequence[RankProfile]) -> ProfileKept:
    """The event for these summaries of one profile; there is at least one."""
    first = profiles[0]
    there = {item.rank for item in profiles if item.timing is not None}
    return ProfileKept(
        order=first.order,
        attempt=first.attempt,
        generation=first.generation,
        path=directory,
        first_step=first.first_step,
        ranks=first.ranks,
        missing=tuple(rank for rank in first.ranks if rank not in there),
        digest=digest(profiles),
    )
