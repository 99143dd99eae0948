"""Real training processes for the tests: two ranks on CPU, forked from one warm process."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from contract import config as configuration
from contract.layout import RunDir
from contract.page import PageReading, WorkerPage
from trainer.data.prepare import Recipe, prepare

REPOSITORY = Path(__file__).resolve().parents[2]
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "PYTHONPATH": str(REPOSITORY),
    "PYTHONDONTWRITEBYTECODE": "1",
}


class Warm:
    """The warm process of one test session."""

    def __init__(self, extensions: Path) -> None:
        environment = {**os.environ, **ENVIRONMENT, "TORCH_EXTENSIONS_DIR": str(extensions)}
        self.process = subprocess.Popen(
            [sys.executable, "-P", str(Path(__file__).with_name("warm.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            text=True,
        )
        self.threads = self._answer()["threads"]

    def ask(self, **command):
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()
        return self._answer()

    def _answer(self):
        line = self.process.stdout.readline()
        assert line, "the warm process has died"
        return json.loads(line)

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait(timeout=30)
        self.process.stdout.close()


@dataclass(kw_only=True)
class Generation:
    """Running ranks of one generation."""

    warm: Warm
    pids: list[int]
    pages: list[WorkerPage]
    log: Path

    def signal(self, number: signal.Signals, ranks: list[int] | None = None) -> None:
        for rank in ranks if ranks is not None else range(len(self.pids)):
            os.kill(self.pids[rank], number)

    def until(
        self, reached: Callable[[PageReading], bool], *, rank: int = 0, timeout: float = 60
    ) -> PageReading:
        deadline = time.monotonic() + timeout
        while not reached(reading := self.pages[rank].read()):
            assert time.monotonic() < deadline, f"not reached: {reading}\n{self.log.read_text()}"
            time.sleep(0.002)
        return reading

    def codes(self) -> list[int]:
        return self.warm.ask(wait=self.pids)

    def text(self) -> str:
        return self.log.read_text()


@dataclass(kw_only=True)
class Bench:
    """A run directory, and generations of it."""

    warm: Warm
    run: RunDir
    world_size: int
    generations: int = 0
    extra: dict[str, str] = field(default_factory=dict)

    def start(self, *, generation: int = 0, **variables: str) -> Generation:
        self.generations = generation or self.generations + 1
        self.run.attempt(1).path.mkdir(parents=True, exist_ok=True)
        log = self.run.path / f"log-{self.generations}.txt"
        pages = []
        environments = []
        for rank in range(self.world_size):
            path = self.run.path / f"page-{self.generations}-{rank}"
            pages.append(WorkerPage.create(path, rank=rank))
            environments.append(
                {
                    "RANK": str(rank),
                    "WORLD_SIZE": str(self.world_size),
                    "LOCAL_RANK": str(rank),
                    "LOCAL_WORLD_SIZE": str(self.world_size),
                    "CIUIC_RUN_DIR": str(self.run.path),
                    "CIUIC_ATTEMPT": "1",
                    "CIUIC_GENERATION": str(self.generations),
                    "CIUIC_NODE": "0",
                    "CIUIC_PAGE": str(path),
                    **self.extra,
                    **variables,
                }
            )
        pids = self.warm.ask(start={"environments": environments, "log": str(log)})
        return Generation(warm=self.warm, pids=pids, pages=pages, log=log)

    def train(self, **variables: str) -> Generation:
        """One generation that must finish."""
        generation = self.start(**variables)
        assert generation.codes() == [0] * self.world_size, generation.text()
        return generation

    def steps(self, generation: int) -> list[dict]:
        path = self.run.metrics_of(1, generation)
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def merged(self) -> dict[int, dict]:
        """Step → line, the later generation counting."""
        found: dict[int, dict] = {}
        for generation in range(1, self.generations + 1):
            found.update({line["step"]: line for line in self.steps(generation)})
        return found

    def losses(self) -> list[float]:
        merged = self.merged()
        assert sorted(merged) == list(range(1, len(merged) + 1))
        return [merged[step]["loss"] for step in sorted(merged)]


@pytest.fixture(scope="session")
def extensions(tmp_path_factory) -> Path:
    """An empty directory for compiled operators: it must stay empty."""
    return tmp_path_factory.mktemp("extensions")


@pytest.fixture(scope="session")
def warm(extensions) -> Iterator[Warm]:
    process = Warm(extensions)
    yield process
    process.close()


@pytest.fixture(scope="session")
def corpus(tmp_path_factory) -> Path:
    """Prepared tokens of some of the repository's own sources."""
    target = tmp_path_factory.mktemp("corpus") / "tokens"
    prepare(
        [REPOSITORY / "contract", REPOSITORY / "trainer"], target, Recipe(vocab_size=0, validation_share=0.1)
    )
    return target


@pytest.fixture
def bench(tmp_path, warm, corpus) -> Callable[..., Bench]:
    """Make a run of a very small model; keyword arguments are sections of the configuration.

    `shape` is [model] altogether.
    """

    def make(name: str = "run", *, world_size: int = 2, shape: dict | None = None, **sections) -> Bench:
        small = {"hidden_size": 32, "intermediate_size": 64, "moe_intermediate_size": 16, "layers": 2}
        # The router's update takes signs: one token more or less by rounding, and two runs are told apart by it.
        small["router_bias_speed"] = 0.0
        value = {
            "run": {"steps": 8},
            "job": {"ranks_per_node": world_size},
            "data": {"path": str(corpus), "evaluate_interval_steps": 4, "evaluate_samples": 8},
            "model": {**small, "q_lora_rank": 16, "kv_lora_rank": 16, "routed_experts": 4},
            "batch": {"global_batch_size": 8, "micro_batch_size": 2, "sequence_length": 32},
            "schedule": {"warmup": 2},
            "checkpoint": {"interval_steps": 3},
        }
        for section, keys in sections.items():
            value[section] = {**value.get(section, {}), **keys}
        if shape is not None:
            value["model"] = shape
        run = RunDir(path=tmp_path / name)
        run.path.mkdir()
        run.config.write_text(configuration.dump(configuration.parse(value, source=name, bases=[tmp_path])))
        return Bench(warm=warm, run=run, world_size=world_size)

    return make
