"""For a program that trains with Hugging Face's `Trainer`: its progress on the worker page, by one callback.

    from trainer.huggingface import Progress
    Trainer(…, callbacks=[Progress()])

Every rank marks each step and phase. When the run is paused, or shortly before its job's time limit, all ranks save at
the same step and leave with exit code 75; the next attempt goes on from there if the program resumes from its newest
checkpoint. `Progress(save_on_order=False)` leaves that to the program. Without an agent it does nothing.
"""

from typing import Any

import torch
import torch.distributed as dist
from transformers import TrainerCallback

from contract.page import page_from_environment
from contract.states import ExitCode, Phase
from contract.stop import StopFlag


class Progress(TrainerCallback):  # type: ignore[misc]  # transformers is not typed here
    """Marks steps, saves and evaluations; reports loss and tokens as they are logged; saves and leaves when asked to."""

    def __init__(self, *, save_on_order: bool = True) -> None:
        self._page = page_from_environment()
        self._stop = StopFlag.listen() if save_on_order else StopFlag()
        self._agreement: _Agreement | None = None
        self._leaving = False

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        del args, control
        self._agreement = _Agreement()
        self._page.mark(step=state.global_step, phase=Phase.DATA)

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        del args, control
        self._page.mark(step=state.global_step, phase=Phase.FORWARD)

    def on_substep_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        del args, state, control
        self._page.enter(Phase.FORWARD)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """What comes next has its own limit: a save or an evaluation takes longer than a step."""
        del args
        assert self._agreement is not None
        if self._agreement.reached(self._stop.requested):
            self._leaving = control.should_save = True
        following = (
            Phase.SAVE if control.should_save else Phase.EVALUATE if control.should_evaluate else Phase.DATA
        )
        self._page.mark(step=state.global_step, phase=following)

    def on_prediction_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        del args, state, control
        self._page.enter(Phase.EVALUATE)

    def on_evaluate(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        del args, state
        self._page.enter(Phase.SAVE if control.should_save else Phase.DATA)

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """The checkpoint is whole once every rank is here."""
        del args, state, control
        if self._leaving:
            assert self._agreement is not None
            self._agreement.meet()
            raise SystemExit(ExitCode.SAVED)
        self._page.enter(Phase.DATA)

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        del args, control
        loss = (logs or {}).get("loss")
        if loss is not None:
            self._page.report(loss=float(loss), tokens=int(state.num_input_tokens_seen or 0))

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        del args, control
        assert self._agreement is not None
        self._agreement.close()
        self._page.mark(step=state.global_step, phase=Phase.EXIT)


class _Agreement:
    """All ranks act on the same step, whichever heard it first. What one asks at a step is answered at the next one.

    On a process group of its own on the CPU: neither device nor training waits for it.
    """

    def __init__(self) -> None:
        several = dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1
        self._group = dist.new_group(backend="gloo") if several else None
        self._asked: tuple[torch.Tensor, dist.Work] | None = None

    def reached(self, wanted: bool) -> bool:
        """Whether some rank wanted it at the step before; alone, whether we want it."""
        if self._group is None:
            return wanted
        found = False
        if self._asked is not None:
            votes, work = self._asked
            work.wait()
            found = bool(votes.item())
        votes = torch.tensor([int(wanted)])
        self._asked = votes, dist.all_reduce(votes, op=dist.ReduceOp.MAX, group=self._group, async_op=True)
        return found

    def close(self) -> None:
        """Wait for what was asked last, so that no rank leaves another one asking."""
        if self._asked is not None:
            self._asked[1].wait()
            self._asked = None

    def meet(self) -> None:
        """Return when every rank is here."""
        if self._group is not None:
            dist.barrier(group=self._group)
