"""Every path of a run, and nothing else. Pure: it names files, it never opens one."""

import re
from dataclasses import dataclass
from pathlib import Path

_CHECKPOINT = re.compile(r"step-(\d{9,})-a(\d{4,})-g(\d{4,})\Z")
_METRICS = re.compile(r"a(\d{4,})-g(\d{4,})\.jsonl\Z")
RUN_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,62}\Z")


def by_number(name: str) -> tuple[tuple[int, int | str], ...]:
    """Sort key for names of nodes and files: `n9` before `n10`, task 2 before task 10."""
    parts = [part for part in re.split(r"(\d+)", name) if part]
    return tuple((0, int(part)) if part.isdecimal() else (1, part) for part in parts)


def tag(attempt: int, generation: int) -> str:
    """`a0001-g0002`, the mark of fencing in every name that a generation writes."""
    return f"a{attempt:04d}-g{generation:04d}"


def checkpoint_name(step: int, attempt: int, generation: int) -> str:
    """Directory name of a checkpoint; two generations never share one (design rule 6)."""
    return f"step-{step:09d}-{tag(attempt, generation)}"


def parse_checkpoint_name(name: str) -> tuple[int, int, int] | None:
    """(step, attempt, generation) of a checkpoint directory's name, None if it is not one."""
    found = _CHECKPOINT.match(name)
    return (int(found[1]), int(found[2]), int(found[3])) if found else None


def parse_metrics_name(name: str) -> tuple[int, int] | None:
    """(attempt, generation) of a metrics file's name, None if it is not one."""
    found = _METRICS.match(name)
    return (int(found[1]), int(found[2])) if found else None


@dataclass(frozen=True, kw_only=True)
class AttemptDir:
    """The files of one attempt (one job)."""

    path: Path

    @property
    def claim(self) -> Path:
        return self.path / "claim"

    @property
    def job(self) -> Path:
        return self.path / "job.json"

    @property
    def submission(self) -> Path:
        """Submitit's folder: sbatch script, pickles, output of the job's shell."""
        return self.path / "submission"

    @property
    def alive(self) -> Path:
        return self.path / "alive"

    @property
    def beats(self) -> Path:
        return self.path / "beats"

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @property
    def exits(self) -> Path:
        return self.path / "exits"

    @property
    def comparison(self) -> Path:
        """Which nodes compare themselves before generation 1, and where they meet. Agents only."""
        return self.path / "comparison.json"

    @property
    def compared(self) -> Path:
        """What came of it."""
        return self.path / "compared.json"

    def go(self, generation: int) -> Path:
        return self.path / f"go-g{generation:04d}.json"

    def resume(self, generation: int) -> Path:
        return self.path / f"resume-g{generation:04d}.json"

    def oom(self, generation: int, rank: int) -> Path:
        """Left by a rank that ran out of memory: with which micro-batch."""
        return self.path / f"oom-g{generation:04d}-r{rank:05d}.json"

    def model_change(self, generation: int) -> Path:
        """What a generation took over from the checkpoint of another model, name by name."""
        return self.path / f"model-change-g{generation:04d}.json"

    def alive_of(self, node: str) -> Path:
        return self.alive / node

    def beat(self, node: str) -> Path:
        return self.beats / node

    def log(self, node: str) -> Path:
        return self.logs / f"{node}.log"

    def exit_record(self, generation: int, node: str) -> Path:
        return self.exits / f"g{generation:04d}-{node}.json"

    def evidence(self, generation: int) -> Path:
        return self.path / "evidence" / f"g{generation:04d}"

    @property
    def profiles(self) -> Path:
        return self.path / "profile"

    def profile(self, generation: int, step: int) -> Path:
        """Where the ranks keep the profile that begins with this step."""
        return self.profiles / f"g{generation:04d}-step-{step:09d}"


@dataclass(frozen=True, kw_only=True)
class RunDir:
    """The directory of one run on the shared file system."""

    path: Path

    @property
    def run_id(self) -> str:
        return self.path.name

    @property
    def config(self) -> Path:
        return self.path / "run.toml"

    @property
    def lock(self) -> Path:
        return self.path / "lock"

    @property
    def journal(self) -> Path:
        return self.path / "journal.jsonl"

    @property
    def requests(self) -> Path:
        return self.path / "requests"

    @property
    def control(self) -> Path:
        return self.path / "control.json"

    @property
    def attempts(self) -> Path:
        return self.path / "attempts"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def copies(self) -> Path:
        """What is known of the checkpoints' copies at other places: a report and a lock for each place."""
        return self.path / "copies"

    @property
    def metrics(self) -> Path:
        return self.path / "metrics"

    @property
    def start(self) -> Path:
        """What the run keeps of the weights that it started from: config.json, the tokenizer, a record."""
        return self.path / "start"

    @property
    def exports(self) -> Path:
        return self.path / "exports"

    @property
    def trackers(self) -> Path:
        """What the processes that feed services on the network keep: how far each was heard."""
        return self.path / "trackers"

    def events_of(self, attempt: int, generation: int) -> Path:
        """TensorBoard's file of a generation; TensorBoard reads the directory in the order of the names."""
        name = f"events.out.tfevents.{attempt:06d}{generation:06d}.ciuic"
        return self.path / "tensorboard" / name

    def attempt(self, number: int) -> AttemptDir:
        return AttemptDir(path=self.attempts / f"{number:04d}")

    def checkpoint(self, step: int, attempt: int, generation: int) -> Path:
        return self.checkpoints / checkpoint_name(step, attempt, generation)

    def metrics_of(self, attempt: int, generation: int) -> Path:
        return self.metrics / f"{tag(attempt, generation)}.jsonl"


@dataclass(frozen=True, kw_only=True)
class Root:
    """The directory that holds the runs of one team."""

    path: Path

    def run(self, run_id: str) -> RunDir:
        return RunDir(path=self.path / run_id)

    def supervisor(self, uid: int) -> "SupervisorDir":
        return SupervisorDir(path=self.path / ".supervisor" / str(uid))


@dataclass(frozen=True, kw_only=True)
class SupervisorDir:
    """Where the one supervisor of a user and root keeps its lock, epochs and counter."""

    path: Path

    @property
    def lock(self) -> Path:
        return self.path / "lock"

    @property
    def beat(self) -> Path:
        return self.path / "beat"

    def epoch(self, number: int) -> Path:
        return self.path / f"epoch-{number}"
