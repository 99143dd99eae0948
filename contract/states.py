"""Closed vocabularies. Every word that comes from outside has UNKNOWN as its last resort."""

from enum import IntEnum, StrEnum


class Phase(IntEnum):
    """What a worker is doing. Written as a number into the worker page."""

    UNKNOWN = 0
    START = 1
    COMPILE = 2
    LOAD = 3
    DATA = 4
    FORWARD = 5
    BACKWARD = 6
    OPTIMIZER = 7
    EVALUATE = 8
    SAVE = 9
    EXIT = 10

    @classmethod
    def of(cls, number: int) -> "Phase":
        """The phase with this number, UNKNOWN for one that we do not know."""
        try:
            return cls(number)
        except ValueError:
            return cls.UNKNOWN

    @property
    def word(self) -> str:
        """The word for people and JSON."""
        return self.name.lower()

    @property
    def in_step(self) -> bool:
        """Whether this is a part of a training step."""
        return Phase.DATA <= self <= Phase.OPTIMIZER


class ExitCode(IntEnum):
    """Exit codes of agent and trainer that carry a meaning; all others are failures."""

    FINISHED = 0
    FAILED = 1
    NUMERICS = 65
    SAVED = 75
    REFUSED = 77
    CONFIG = 78


class RunState(StrEnum):
    """The state of a run as people see it."""

    PENDING = "pending"
    STARTING = "starting"
    RUNNING = "running"
    RECOVERING = "recovering"
    COMPLETED = "completed"
    FAILED = "failed"
    PAUSED = "paused"
    CANCELLED = "cancelled"
    UNKNOWN = "unknown"

    @property
    def final(self) -> bool:
        """Whether the supervisor leaves the run alone (only `resume` wakes it)."""
        return self in {RunState.COMPLETED, RunState.FAILED, RunState.PAUSED, RunState.CANCELLED}


class VerdictKind(StrEnum):
    """What one look at a run means."""

    HEALTHY = "healthy"
    PENDING = "pending"
    STARTING = "starting"
    HUNG = "hung"
    CRASHED = "crashed"
    NODE_LOST = "node-lost"
    SAVED = "saved"
    ENDED = "ended"
    REFUSED = "refused"
    SLOW = "slow"  # it trains, and people are told
    TOO_SLOW = "too-slow"  # a node is given up for its slowness
    DIVERGING = "diverging"  # its numbers look wrong, and people are told
    DIVERGED = "diverged"  # its numbers are wrong, and the policy ends this generation
    COMPLETED = "completed"
    CANCELLED = "cancelled"
    UNKNOWN = "unknown"


class Cause(StrEnum):
    """Why something failed. One vocabulary for journal, alerts, metrics and `diagnose`."""

    COMM_TIMEOUT = "comm-timeout"
    COMM_PEER = "comm-peer"
    RENDEZVOUS = "rendezvous"
    PORT = "port"
    NETWORK = "network"
    GPU_OOM = "gpu-oom"
    GPU_HARDWARE = "gpu-hardware"
    GPU_ERROR = "gpu-error"
    HOST_OOM = "host-oom"
    DISK_FULL = "disk-full"
    FILESYSTEM = "filesystem"
    DATALOADER = "dataloader"
    CONFIG = "config"
    IMPORT = "import"
    DATA = "data"
    CHECKPOINT = "checkpoint"
    TRACEBACK = "traceback"
    NAN = "nan"
    LOSS_SPIKE = "loss-spike"
    SLOW = "slow"
    LOSS_SCALE = "loss-scale"
    PREEMPTED = "preempted"
    TIME_LIMIT = "time-limit"
    NODE_FAILURE = "node-failure"
    LAUNCH = "launch"
    CANCELLED = "cancelled"
    SIGNAL = "signal"
    HANG = "hang"
    UNEXPLAINED = "unexplained"
    NONE = "none"

    @property
    def names_a_peer(self) -> bool:
        """Whether the message blames somebody else: a victim's cause (design rule 9)."""
        return self in {Cause.COMM_TIMEOUT, Cause.COMM_PEER}


class JobState(StrEnum):
    """What the queue says of a job, whatever the queue."""

    PENDING = "pending"
    RUNNING = "running"
    ENDING = "ending"
    HELD = "held"
    ENDED_OK = "ended-ok"
    ENDED_FAILED = "ended-failed"
    ENDED_LIMIT = "ended-limit"
    ENDED_PREEMPTED = "ended-preempted"
    ENDED_NODE = "ended-node"
    ENDED_CANCELLED = "ended-cancelled"
    GONE = "gone"
    UNKNOWN = "unknown"

    @property
    def alive(self) -> bool:
        """Whether processes of this job may exist or come into being."""
        return self in {JobState.PENDING, JobState.RUNNING, JobState.ENDING, JobState.HELD}

    @property
    def ended(self) -> bool:
        """Whether the queue is sure that nothing of the job is left."""
        return self.value.startswith("ended") or self is JobState.GONE


class ControlPhase(StrEnum):
    """What control.json asks of the agents."""

    PREPARE = "prepare"
    GO = "go"
    SAVE = "save"
    LEAVE = "leave"


class AgentPhase(StrEnum):
    """What a node agent says of itself in its beat."""

    STARTING = "starting"
    READY = "ready"
    RUNNING = "running"
    WAITING = "waiting"
    LEAVING = "leaving"
    UNKNOWN = "unknown"
