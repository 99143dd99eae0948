"""A light stand-in for the training program: it speaks the whole contract and needs no torch.

Run it through `[job] command = [sys.executable, "-P", "tests/standin.py", …]` with the arguments below. More arguments can
come from the environment variable STANDIN_ARGS (`[job] environment`), which are read first.

    --steps N            optimiser steps in all (default: [run] steps of run.toml)
    --step-time S        seconds a step takes (default 0.02)
    --save-every N       steps between saves (default: [checkpoint] interval_steps, else 100)
    --save-time S        seconds between the shards and the manifest of a save (default 0)
    --start-time S       seconds before the resume (default 0)
    --fail-at STEP       raise RuntimeError at that step, in every generation
    --fail-once-at STEP  the same, but only in attempt 1, generation 1
    --fail-rank R        rank that fails (default 0)
    --fail-code C        exit with this code instead of raising
    --hang-at STEP       stop moving at that step (only in --hang-generation, default 1; rank --hang-rank, default 0)
    --faults KIND,…      in attempt 1: what happens to rank 1 in generation 1, 2, … some steps after its start:
                         loader (asleep while it reads), lock (waits for its own lock), gil (computes for ever in C and
                         lets nobody else run), memory (joins the memory group --group and takes more than it has)
    --group DIR          directory of that control group
    --nan-at STEP        exit with 65 (numerics) at that step while its position is not in a skip window
    --absent-once R      rank R does not come to the meeting of attempt 1, generation 1
    --take-port-once     rank 0 finds its port taken in attempt 1, generation 1
    --deaf-once          rank 0 comes and does not listen in attempt 1, generation 1
    --twice-once R       the rank after R says that it is R in attempt 1, generation 1
    --gather-s S         seconds for which rank 0 waits for the others (default 60)
    --ignore-usr1        keep SIGUSR1 at its default, as a program that knows nothing of saving
    --child              start a child process that outlives the worker unless its group is killed
    --hurry FILE         once this file exists, steps take no time
    --chatter N          lines of output of every rank at every step (default 0)

Ranks are tied together as in a collective: rank 0 listens on MASTER_ADDR:MASTER_PORT, every step is a round trip of
all ranks. A dead rank fails the others ("Connection closed by peer", exit 1); a stopped one stops them all.

One step consumes one sampler position. Loss and state follow from the positions seen so far, so a recovered run
has bitwise the losses of an undisturbed one: `expected_losses` computes them.
"""

import argparse
import contextlib
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

from contract import files
from contract.config import read_resolved
from contract.layout import RunDir
from contract.manifest import Bounds, Manifest, Shard, candidates, digest_file, publish
from contract.page import page_from_environment
from contract.states import ExitCode, Phase

SEED = 0x9E3779B97F4A7C15
MASK = (1 << 64) - 1


def advance(state: int, position: int) -> int:
    """The state after one more sample."""
    state = (state ^ (position * SEED)) & MASK
    state = (state * 6364136223846793005 + 1442695040888963407) & MASK
    return state ^ (state >> 29)


def next_batch() -> None:
    """The guilty frame of a rank asleep in its data loader."""
    time.sleep(3600)


def update_shared_state() -> None:
    """The guilty frame of a deadlock."""
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def multiply_matrices() -> int:
    """The guilty frame of a loop in C: a power of so many digits takes hours, with the interpreter held."""
    return pow(3, 10**9)


def load_everything(group: str) -> None:
    """The guilty frame of a rank that takes more memory than there is."""
    (Path(group) / "cgroup.procs").write_text(str(os.getpid()))
    taken = []
    while True:
        taken.append(bytearray(1 << 20))


FAULTS = {"loader": next_batch, "lock": update_shared_state, "gil": multiply_matrices}


def loss_of(step: int, state: int) -> float:
    return 8.0 / (1.0 + 0.05 * step) + (state >> 40) / (1 << 24) * 0.1


def next_position(position: int, skip: list[list[int]]) -> int:
    """The first position from `position` on that lies in no window."""
    for start, end in sorted(skip):
        if start <= position < end:
            position = end
    return position


def expected_losses(steps: int, skip: list[list[int]] = ()) -> dict[int, float]:
    """step → loss of an undisturbed run."""
    state, position, losses = SEED, 0, {}
    for step in range(1, steps + 1):
        position = next_position(position, list(skip))
        state = advance(state, position)
        position += 1
        losses[step] = loss_of(step, state)
    return losses


class RendezvousError(RuntimeError):
    """The trainer's word for ranks that do not find each other."""


class Group:
    """A collective: every rank brings a small object, rank 0 sees all, and every rank gets rank 0's answer."""

    def __init__(self, rank: int, world: int, patience: float = 60.0) -> None:
        self.rank, self.world, self.peers = rank, world, {}
        if world == 1:
            return
        address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
        if rank == 0:
            held = os.environ.get("CIUIC_MASTER_FD")
            with (
                socket.socket(fileno=int(held))
                if held
                else socket.create_server(address, backlog=world) as server
            ):
                server.settimeout(patience)
                while len(self.peers) < world - 1:
                    try:
                        connection, _ = server.accept()
                    except TimeoutError:
                        missing = ", ".join(str(one) for one in range(1, world) if one not in self.peers)
                        raise RendezvousError(f"rank {missing} did not come within {patience:g} s") from None
                    stream = connection.makefile("rwb")
                    who = json.loads(stream.readline())
                    if who in self.peers:
                        raise RendezvousError(f"rank {who} is there more than once")
                    self.peers[who] = stream
        else:
            deadline = time.monotonic() + patience
            while True:
                try:
                    connection = socket.create_connection(address)
                    break
                except ConnectionRefusedError:
                    if time.monotonic() > deadline:
                        place = f"{address[0]}:{address[1]}"
                        raise RendezvousError(
                            f"rank {rank} cannot reach rank 0 at {place} (the master) within {patience:g} s"
                        ) from None
                    time.sleep(0.01)
            self.peers[0] = connection.makefile("rwb")
            self._send(self.peers[0], rank)

    def round(self, mine, answer=lambda values: values):
        """Everybody's value to rank 0, and `answer(values by rank)` of rank 0 to everybody."""
        if self.rank == 0:
            values = {0: mine, **{rank: self._receive(peer) for rank, peer in self.peers.items()}}
            reply = answer(values)
            for peer in self.peers.values():
                self._send(peer, reply)
            return reply
        self._send(self.peers[0], mine)
        return self._receive(self.peers[0])

    @staticmethod
    def _send(stream, value) -> None:
        try:
            stream.write(json.dumps(value).encode() + b"\n")
            stream.flush()
        except OSError as error:
            raise RuntimeError(f"Connection closed by peer: {error}") from None

    @staticmethod
    def _receive(stream):
        try:
            line = stream.readline()
        except OSError as error:
            raise RuntimeError(f"Connection closed by peer: {error}") from None
        if not line:
            raise RuntimeError("Connection closed by peer")
        return json.loads(line)


class Standin:
    """One rank."""

    def __init__(self, options) -> None:
        env = os.environ
        self.options = options
        self.rank, self.world = int(env["RANK"]), int(env["WORLD_SIZE"])
        self.run = RunDir(path=Path(env["CIUIC_RUN_DIR"]))
        self.attempt, self.generation = int(env["CIUIC_ATTEMPT"]), int(env["CIUIC_GENERATION"])
        self.bounds = Bounds(min_step=int(env["CIUIC_MIN_STEP"]), max_step=int(env["CIUIC_MAX_STEP"]))
        self.skip = json.loads(env["CIUIC_SKIP_WINDOWS"])
        self.page = page_from_environment()
        self.step, self.state, self.position = 0, SEED, 0
        self.saved_at, self.stop = -1, False
        self.orders_seen, self.orders_done = 0, set()
        config = read_resolved(self.run.config)
        self.steps = options.steps or config.run.steps
        self.interval = options.save_every or config.checkpoint.interval_steps or 100

    def main(self) -> int:
        if not self.options.ignore_usr1:
            signal.signal(signal.SIGUSR1, self._asked_to_stop)
        if self.options.child:
            subprocess.Popen(["sleep", "600"])
        time.sleep(self.options.start_time)
        first = (self.attempt, self.generation) == (1, 1)
        if first and (self.rank == self.options.absent_once or (self.options.deaf_once and self.rank == 0)):
            time.sleep(3600)
        address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
        taken = (
            socket.create_server(address)
            if first and self.options.take_port_once and self.rank == 0
            else None
        )
        twin = first and self.rank == self.options.twice_once + 1 > 0
        self.group = Group(self.rank - twin, self.world, self.options.gather_s)
        assert taken is None
        self.page.mark(step=0, phase=Phase.LOAD)
        refused = self._resume()
        if refused:
            self.page.exception("Refused", refused)
            print(f"refused: {refused}", flush=True)
            return ExitCode.REFUSED
        return self._train()

    def _asked_to_stop(self, *_) -> None:
        self.stop = True

    def _resume(self) -> str:
        """Rank 0 chooses and tells; "" when it went well."""
        found = self.group.round(None, lambda _: self._choose())
        if isinstance(found, str):
            return found
        self.step, self.state, self.position = found
        self.saved_at = self.step or -1
        self.began = self.step
        print(f"rank {self.rank}: starts at step {self.step}", flush=True)
        return ""

    def _choose(self):
        before = (self.attempt, self.generation)
        skipped = lambda item: print(f"skipped {item.path.name}: {item.reason}", flush=True)  # noqa: E731
        best = next(candidates(self.run, before=before, bounds=self.bounds, deep=True, skipped=skipped), None)
        if best is None and self.bounds.min_step > 0:
            return f"no valid checkpoint from step {self.bounds.min_step} on"
        found = [0, SEED, 0]
        if best is not None:
            found = json.loads((best.path / "rank-0.json").read_bytes())
        place = self.run.attempt(self.attempt).resume(self.generation)
        if not files.create_json(place, {"version": 1, "step": found[0]}):
            return f"{place.name} exists: another rank 0 started this generation"
        return found

    def _train(self) -> int:
        metrics = None
        if self.rank == 0:
            self.run.metrics.mkdir(exist_ok=True)
            metrics = self.run.metrics_of(self.attempt, self.generation).open("a")
        with metrics or contextlib.nullcontext():
            while self.step < self.steps:
                loss = self._one_step()
                if metrics:
                    row = {
                        "step": self.step,
                        "loss": loss,
                        "tokens": self.position,
                        "position": self.position - 1,
                    }
                    metrics.write(json.dumps(row) + "\n")
                    metrics.flush()
                if self._save_now():
                    self._save(loss)
                if self.told_to_stop and self.step < self.steps:
                    self.page.mark(step=self.step, phase=Phase.EXIT)
                    return ExitCode.SAVED
        self.page.mark(step=self.step, phase=Phase.EXIT)
        return ExitCode.FINISHED

    def _one_step(self) -> float:
        step = self.step + 1
        self.page.mark(step=self.step, phase=Phase.DATA)
        self.position = next_position(self.position, self.skip)
        self._misbehave(step)
        self._suffer(step, in_data=True)
        self.page.mark(step=self.step, phase=Phase.FORWARD, micro_step=1)
        self._suffer(step, in_data=False)
        if not (self.options.hurry and Path(self.options.hurry).exists()):
            time.sleep(self.options.step_time)
        for line in range(self.options.chatter):
            print(f"step {step} line {line}", flush=True)
        self.page.mark(step=self.step, phase=Phase.BACKWARD, micro_step=1)
        wishes = [self.stop, self._ordered_to_save()]
        self.told_to_stop, self.told_to_save = self.group.round(
            wishes, lambda values: [any(column) for column in zip(*values.values(), strict=True)]
        )
        self.state = advance(self.state, self.position)
        self.position += 1
        self.step = step
        loss = loss_of(step, self.state)
        self.page.report(loss=loss, tokens=self.position)
        self.page.mark(step=step, phase=Phase.OPTIMIZER)
        return loss

    def _suffer(self, step: int, *, in_data: bool) -> None:
        """The fault of this generation, at its place in the step."""
        kinds = [kind for kind in self.options.faults.split(",") if kind]
        due = self.rank == 1 and self.attempt == 1 and step == self.began + 7
        if not due or self.generation > len(kinds):
            return
        kind = kinds[self.generation - 1]
        if in_data is (kind == "loader"):
            FAULTS[kind]() if kind in FAULTS else load_everything(self.options.group)

    def _misbehave(self, step: int) -> None:
        options, first = self.options, (self.attempt, self.generation) == (1, 1)
        if self.rank == options.fail_rank and (
            step == options.fail_at or (first and step == options.fail_once_at)
        ):
            if options.fail_code is not None:
                sys.exit(options.fail_code)
            raise RuntimeError(f"stand-in was told to fail at step {step}")
        if (
            self.rank == options.hang_rank
            and step == options.hang_at
            and self.generation == options.hang_generation
        ):
            print(f"rank {self.rank}: hangs at step {step}", flush=True)
            while True:
                time.sleep(3600)
        if step == options.nan_at and self.position == step - 1:
            self.page.exception("Numerics", f"loss is nan at step {step}")
            sys.exit(ExitCode.NUMERICS)

    def _ordered_to_save(self) -> bool:
        sequence = self.page.orders_sequence()
        if sequence == self.orders_seen:
            return False
        self.orders_seen = sequence
        orders = {
            item["id"] for item in self.page.orders()[1].get("orders", []) if item["kind"] == "checkpoint"
        }
        new = orders - self.orders_done
        self.orders_done |= orders
        return bool(new)

    def _save_now(self) -> bool:
        due = (
            self.step % self.interval == 0
            or self.step == self.steps
            or self.told_to_stop
            or self.told_to_save
        )
        return due and self.saved_at != self.step

    def _save(self, loss: float) -> None:
        self.page.mark(step=self.step, phase=Phase.SAVE)
        place = self.run.checkpoint(self.step, self.attempt, self.generation)
        place.mkdir(parents=True, exist_ok=True)
        shard = place / f"rank-{self.rank}.json"
        with shard.open("w") as file:
            json.dump([self.step, self.state, self.position], file)
            file.flush()
            os.fsync(file.fileno())
        time.sleep(self.options.save_time)
        self.group.round(None, lambda _: self._publish(place, loss))
        self.saved_at = self.step
        self.page.mark(step=self.step, phase=Phase.SAVE)

    def _publish(self, place: Path, loss: float) -> None:
        names = [f"rank-{rank}.json" for rank in range(self.world)]
        shards = tuple(
            Shard(path=name, size=(place / name).stat().st_size, xxh3=digest_file(place / name))
            for name in names
        )
        manifest = Manifest(
            run=self.run.run_id,
            step=self.step,
            attempt=self.attempt,
            generation=self.generation,
            world_size=self.world,
            tokens=self.position,
            position=self.position,
            shards=shards,
            facts={"loss": loss},
        )
        publish(place, manifest)


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    for name in ("steps", "save-every", "chatter", "fail-rank", "hang-rank"):
        parser.add_argument(f"--{name}", type=int, default=0)
    for name in ("absent-once", "twice-once", "fail-at", "fail-once-at", "hang-at", "nan-at"):
        parser.add_argument(f"--{name}", type=int, default=-1)
    parser.add_argument("--fail-code", type=int)
    for name in ("hurry", "faults", "group"):
        parser.add_argument(f"--{name}", default="")
    parser.add_argument("--hang-generation", type=int, default=1)
    parser.add_argument("--step-time", type=float, default=0.02)
    parser.add_argument("--gather-s", type=float, default=60.0)
    parser.add_argument("--save-time", type=float, default=0.0)
    parser.add_argument("--start-time", type=float, default=0.0)
    for name in ("ignore-usr1", "child", "take-port-once", "deaf-once"):
        parser.add_argument(f"--{name}", action="store_true")
    return parser.parse_args(shlex.split(os.environ.get("STANDIN_ARGS", "")) + arguments)


def main() -> int:
    worker = Standin(parse(sys.argv[1:]))
    try:
        return worker.main()
    except Exception as error:
        worker.page.exception(type(error).__name__, str(error))
        raise


if __name__ == "__main__":
    sys.exit(main())
