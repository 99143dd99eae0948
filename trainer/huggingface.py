"""For a program that trains with Hugging Face's `Trainer`: its progress on the worker page, by one callback.

    from trainer.huggingface import Progress
    Trainer(…, callbacks=[Progress()])

Every rank marks each step and phase; without an agent it does nothing. Saving on order (pause, time limit) is the
program's own business.
"""

from typing import Any

from transformers import TrainerCallback

from contract.page import page_from_environment
from contract.states import Phase


class Progress(TrainerCallback):  # type: ignore[misc]  # transformers is not typed here
    """Marks steps, saves and evaluations; reports loss and tokens as they are logged."""

    def __init__(self) -> None:
        self._page = page_from_environment()

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        del args, control
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
        del args, state, control
        self._page.enter(Phase.DATA)

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        del args, control
        loss = (logs or {}).get("loss")
        if loss is not None:
            self._page.report(loss=float(loss), tokens=int(state.num_input_tokens_seen or 0))

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        del args, control
        self._page.mark(step=state.global_step, phase=Phase.EXIT)
