"""[supervisor]: what the supervisor may do."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from contract.config.base import Section
from contract.states import Cause


def _class_of_failure(word: object) -> Cause:
    known = [cause for cause in Cause if cause is not Cause.NONE]
    for cause in known:
        if word == cause.value:
            return cause
    raise ValueError(f"no class of failures; the classes are {', '.join(known)}")


class Rule(Section):
    """What is done about one class of failures."""

    retry: Literal["catalogue", "never", "unless-same", "always"] = "catalogue"
    """never: stop at once; unless-same: until it comes back at the same step; always: only budgets stop it;
    catalogue: never for config, else unless-same where the failure's entry says that repetition is proof."""
    budget: Annotated[int, Field(ge=0, le=10_000)] = 0
    """Failures of this class without a new checkpoint between them after which the run is stopped. 0: the
    general limits alone."""


class Supervisor(Section):
    tick_s: Annotated[float, Field(ge=0.05, le=300)] = 1.0
    """Seconds between two looks at this run."""
    queue_s: Annotated[float, Field(ge=1, le=3600)] = 15.0
    """Seconds between two questions to Slurm (one question serves all runs)."""
    submit_timeout_s: Annotated[float, Field(ge=2, le=600)] = 45.0
    """An sbatch that has not answered after so long is given up, and its job looked for. Less than a minute: then
    another host may take a supervisor that waits for dead."""
    max_failures: Annotated[int, Field(ge=1, le=1000)] = 8
    """Failures without a new checkpoint between them after which the run is stopped."""
    same_failure_limit: Annotated[int, Field(ge=1, le=100)] = 2
    """The same cause at the same step so many times in a row is deterministic: stop and say so."""
    max_infrastructure_failures: Annotated[int, Field(ge=1, le=10_000)] = 50
    """Budget of its own for time limit, preemption and node loss without progress between them."""
    rules: dict[Annotated[Cause, BeforeValidator(_class_of_failure)], Rule] = Field(default_factory=dict)
    """Own rules by class of failure, as in [supervisor.rules.gpu-oom]."""
    backoff_s: Annotated[float, Field(ge=0, le=3600)] = 1.0
    """Wait before the second restart without progress; doubles each time, give or take a quarter. The first restart
    does not wait."""
    backoff_max_s: Annotated[float, Field(ge=0, le=86_400)] = 600.0
    """Longest wait between two restarts."""
    in_place_limit: Annotated[int, Field(ge=0, le=1000)] = 4
    """Restarts in place without a new checkpoint between them before a new job is tried instead. 0: always a new job."""
    exclude_share: Annotated[float, Field(ge=0, le=1)] = 0.1
    """At most this share of the partition's nodes is excluded on evidence, though one node always may be; 0: none."""
    exclude_hours: Annotated[float, Field(gt=0, le=24 * 30)] = 24.0
    """An exclusion expires so long after the newest evidence against the node; after each further one later by double."""
    blame_hours: Annotated[float, Field(gt=0, le=24 * 90)] = 168.0
    """A failure that a bad machine may have caused counts against its node for so long; progress does not wipe it out."""
    storm_runs: Annotated[int, Field(ge=0, le=10_000)] = 5
    """So many runs of one supervisor that fail together, for causes that are hardly their own (network, storage,
    nodes, controller), are restarted one after the other. 0: never."""
    storm_window_s: Annotated[float, Field(ge=1, le=86_400)] = 300.0
    """Together means within so long of each other."""
    storm_at_once: Annotated[int, Field(ge=1, le=10_000)] = 4
    """So many of them restart at the same time."""
    orphan_s: Annotated[float, Field(ge=10, le=86_400)] = 1800.0
    """Agents end the job when a failure has waited so long and no supervisor is there to answer it."""
    observe_only: bool = False
    """Judge and tell, but do nothing."""
