"""A run directory that looks back on weeks: jobs, restarts in place, spikes, roll-backs. Only files; nothing runs."""

import json
import math
import random
from collections.abc import Iterator

from contract import events as ev
from contract.event_lines import encode
from contract.layout import Root, RunDir
from tests.supervisor.conftest import bare_run, config_of

BEGAN = 1_760_000_000.0
CAUSES = ("hang", "node-failure", "traceback", "comm-timeout", "gpu-error", "loss-spike")


def long_run(
    root: Root,
    *,
    steps: int = 20_000,
    faults: int = 12,
    days: float = 30.0,
    words: str = "the rank stands still",
    spike_at: int = 0,
) -> RunDir:
    """A completed run. Every fault loses 100 steps; every fourth one costs a new job. `words` is the verdicts' reason."""
    run = bare_run(root, "long-1", config_of(run={"steps": steps}))
    life = _Life(run, steps, faults, days * 86_400.0 * 0.9 / steps, words)
    life.write(spike_at)
    return run


class _Life:
    def __init__(self, run: RunDir, steps: int, faults: int, pace: float, words: str) -> None:
        self.run, self.steps, self.pace, self.words = run, steps, pace, words
        self.at, self.attempt, self.generation = BEGAN, 1, 1
        self.length = steps // (faults + 1)
        self.faults = faults
        self.events: list[ev.Event] = []
        self.random = random.Random(7)

    def say(self, body: ev.Body) -> None:
        self.events.append(ev.Event(seq=len(self.events) + 1, time=self.at, epoch=1, body=body))

    def write(self, spike_at: int) -> None:
        self.say(
            ev.RunCreated(
                run=self.run.run_id,
                config_digest="",
                version="0",
                target_steps=self.steps,
                target_tokens=0,
            )
        )
        self.submit("first attempt")
        begin, failed = 0, None
        for number in range(self.faults + 1):
            last = number == self.faults
            end = self.steps if last else (number + 1) * self.length
            self.resume(begin)
            if failed:
                self.recover(failed, begin)
            self.metrics(begin, end, spike_at)
            begin, failed = max(0, end - 100), (self.attempt, self.generation, end, self.at)
            if not last:
                self.say(ev.CheckpointSeen(step=begin, attempt=self.attempt, generation=self.generation))
                self.fail(number, end)
        self.say(ev.CheckpointSeen(step=self.steps, attempt=self.attempt, generation=self.generation))
        self.say(ev.StateChanged(state="completed", reason="the target is reached"))
        self.say(ev.AttemptEnded(attempt=self.attempt, job_state="ended-ok", reason="finished"))
        self.run.journal.write_bytes(b"".join(encode(event) for event in self.events))

    def submit(self, reason: str) -> None:
        self.run.attempt(self.attempt).path.mkdir()
        self.say(ev.AttemptIntended(attempt=self.attempt, tag=f"t{self.attempt}", reason=reason))
        self.say(ev.AttemptSubmitted(attempt=self.attempt, job_id=str(1000 + self.attempt)))
        self.at += 600.0
        self.go()

    def go(self) -> None:
        self.say(
            ev.GenerationWent(
                attempt=self.attempt, generation=self.generation, members=("n1", "n2"), master="n1", port=1
            )
        )
        self.at += 20.0

    def resume(self, step: int) -> None:
        record = self.run.attempt(self.attempt).resume(self.generation)
        record.write_text(json.dumps({"version": 1, "step": step}))
        self.say(ev.GenerationResumed(attempt=self.attempt, generation=self.generation, step=step))

    def fail(self, number: int, step: int) -> None:
        self.at += 9.0
        cause = CAUSES[number % len(CAUSES)]
        self.say(
            ev.Judged(
                attempt=self.attempt,
                generation=self.generation,
                verdict="hung" if cause == "hang" else "crashed",
                cause=cause,
                reason=self.words,
                step=step,
                signature=cause,
                suspects=(3,),
                nodes=("n2",),
                detected_s=9.0,
                lines=(f"[rank3] {self.words}",),
            )
        )
        if number % 4 == 3:
            self.say(ev.AttemptEnded(attempt=self.attempt, job_state="ended-failed", reason="a node is lost"))
            self.attempt, self.generation = self.attempt + 1, 1
            self.submit("a node is lost")
            return
        self.generation += 1
        self.say(
            ev.GenerationIntended(
                attempt=self.attempt, generation=self.generation, members=("n1", "n2"), reason=cause
            )
        )
        self.at += 3.0
        self.go()

    def recover(self, failed: tuple[int, int, int, float], step: int) -> None:
        attempt, generation, reached, at = failed
        self.say(
            ev.Recovered(
                attempt=self.attempt,
                generation=self.generation,
                step=step + 1,
                failed_attempt=attempt,
                failed_generation=generation,
                detect_s=9.0,
                restart_s=self.at - at - 9.0,
                repeated_steps=reached - step,
            )
        )

    def metrics(self, begin: int, end: int, spike_at: int) -> None:
        with self.run.metrics_of(self.attempt, self.generation).open("w") as file:
            file.writelines(self.lines(begin, end, spike_at))
        self.at += (end - begin) * self.pace

    def lines(self, begin: int, end: int, spike_at: int) -> Iterator[str]:
        for step in range(begin + 1, end + 1):
            loss = 2.0 + 9.0 / math.sqrt(1 + step / 200) + 0.1 * self.random.random()
            if step == spike_at:
                loss = 77.5
            yield (
                f'{{"step": {step}, "loss": {loss:.6f}, "grad_norm": {0.5 + self.random.random():.6f}, '
                f'"lr": {3e-4 * min(1.0, step / 2000):.8f}, "lr_embedding": {3e-4 * min(1.0, step / 1000):.8f}, '
                f'"tokens": {step * 4096}, "tokens_per_s": {50_000 + 4000 * self.random.random():.1f}, '
                f'"step_s": {self.pace:.4f}, "positions": [{step * 16}, {step * 16 + 16}], '
                f'"global_batch": {16 if step < self.steps // 2 else 32}, "micro_steps": 2, "loss_scale": 1.0}}\n'
            )
