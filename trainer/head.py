"""The output head: logits, or the loss in portions so that the logits of a micro-batch never exist at once."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.utils.checkpoint import checkpoint


class ChunkedHead(torch.nn.Linear):  # type: ignore[misc]
    """The output head, which gives the summed loss instead of logits while it has targets.

    The logits of one portion live at a time, in the backward pass too, which computes them again. The weight is used
    inside this module's own forward pass, so ZeRO-3 has gathered it.
    """

    portion: int
    _targets: torch.Tensor | None = None

    @contextmanager
    def towards(self, targets: torch.Tensor) -> Iterator[None]:
        """The next pass gives the loss of predicting these."""
        self._targets = targets
        try:
            yield
        finally:
            self._targets = None

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Logits, or the loss summed over all targets in float32."""
        if self._targets is None:
            return super().forward(hidden)
        portions = zip(
            hidden.flatten(0, 1).split(self.portion), self._targets.flatten().split(self.portion), strict=True
        )
        losses = [
            checkpoint(self._loss, part, targets, use_reentrant=False, preserve_rng_state=False)
            for part, targets in portions
        ]
        return torch.stack(losses).sum()

    def _loss(self, hidden: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        logits = torch.nn.functional.linear(hidden, self.weight)
        return torch.nn.functional.cross_entropy(logits.float(), targets, reduction="sum")


def summed_cross_entropy(head: torch.nn.Module, hidden: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """The loss of predicting these targets by this head, summed, in float32."""
    if isinstance(head, ChunkedHead):
        with head.towards(targets):
            chunked: torch.Tensor = head(hidden)
        return chunked
    return torch.nn.functional.cross_entropy(
        head(hidden).float().flatten(0, 1), targets.flatten(), reduction="sum"
    )
