"""How long the real judgement needs to see a fault, with the limits of a configuration."""

from contract.config import RunConfig
from contract.history import History
from supervisor.core.judge import judge
from supervisor.simulate import looks
from supervisor.simulate.scenario import Kind

_CLOSE_S = 0.01
_NEVER_S = 1e6


def notice_s(kind: Kind, config: RunConfig, history: History, usual_s: float, *, alone: bool) -> float:
    """Youngest age (s) of this fault at which a look at it is a failure. What beat and tick add is not in it.

    `history` stands where the run trains; `alone`: the job has one node, so that no other's beat tells its
    silence from a silent file system.
    """
    names = ("n0",) if alone else ("n0", "n1", "n2")
    calm = looks.training(history.at, names, step=2, resume_step=0, usual_s=usual_s)

    def is_seen(age_s: float) -> bool:
        return judge(looks.failing(calm, kind, names[:1], age_s), history, config, 0.0).failed

    if is_seen(0.0):
        return 0.0
    low, high = 0.0, 1.0
    while not is_seen(high):
        low, high = high, 2 * high
        if high > _NEVER_S:
            raise ValueError(f"the judgement never sees a fault of kind {kind}")
    while high - low > _CLOSE_S:
        middle = (low + high) / 2
        low, high = (low, middle) if is_seen(middle) else (middle, high)
    return high
