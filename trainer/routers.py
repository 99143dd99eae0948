"""How evenly the routers load their experts: counted on the device, evened out after each step, told in the metrics.

The update without an auxiliary loss and the sequence-wise loss are those of DeepSeek-V3 (arXiv:2412.19437, 2.1.2).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from contract.config.model import Model
from trainer.errors import ConfigError
from trainer.model import ROUTER_BIAS


@dataclass(frozen=True, kw_only=True)
class Load:
    """How one step's tokens fell on the experts, layer by layer.

    `violation` is the fullest expert's load over the mean, minus one (0: even); `starved` counts experts without a
    token.
    """

    violation: tuple[float, ...]
    starved: tuple[int, ...]


def load_of(counts: list[list[int]]) -> Load:
    """The figures of these counts: tokens by layer and expert."""
    return Load(
        violation=tuple(max(layer) * len(layer) / max(1, sum(layer)) - 1 for layer in counts),
        starved=tuple(layer.count(0) for layer in counts),
    )


class Routers:
    """The routers of a network. Nothing here waits for the device but `settle`, once a step."""

    def __init__(self, model: torch.nn.Module, wanted: Model, device: torch.device) -> None:
        """Watch the routers of this network, if it has any.

        Raises:
            ConfigError: a balance is asked for that these routers cannot have.
        """
        self._speed, self._weight = wanted.router_bias_speed, wanted.balance_loss_weight
        # transformers' own, and what DeepSpeed puts in its place under expert parallelism.
        self._routers = [m for m in model.modules() if type(m).__name__.lower().endswith("topkrouter")]
        if self._speed and not all(map(_has_bias, self._routers)):
            raise ConfigError(
                "[model] router_bias_speed: these routers have no bias; use balance_loss_weight"
            )
        experts: int = max((router.num_experts for router in self._routers), default=0)
        self._counts = torch.zeros(len(self._routers), experts, dtype=torch.int64, device=device)
        self._logits: list[torch.Tensor] = []
        self._watching = False
        self._gated: torch.Tensor | None = None
        for layer, router in enumerate(self._routers):
            gate = getattr(router, "gate", None)
            if gate is None:
                router.register_forward_hook(
                    lambda _, __, told, layer=layer: self._see(layer, told[0], told[2])
                )
            else:
                router.register_forward_hook(partial(self._see_divided, layer))
                gate.register_forward_hook(self._keep)

    def _see(self, layer: int, logits: torch.Tensor, chosen: torch.Tensor) -> None:
        if not self._watching:
            return
        places = chosen.detach().flatten()
        self._counts[layer].scatter_add_(0, places, torch.ones_like(places))
        if self._weight:
            self._logits.append(logits)

    def _see_divided(self, layer: int, _router: Any, _inputs: Any, told: tuple[torch.Tensor, ...]) -> None:
        """DeepSpeed's router gives no logits; its gate has just computed them."""
        logits, self._gated = self._gated, None
        assert logits is not None
        self._see(layer, logits, told[1])

    def _keep(self, _gate: Any, _inputs: Any, logits: torch.Tensor) -> None:
        self._gated = logits

    @property
    def have_loss(self) -> bool:
        """Whether a balance loss is trained on."""
        return bool(self._weight and self._routers)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Around a forward pass of the training. Passes that recompute activations, or evaluate, do not count."""
        self._watching = True
        try:
            yield
        finally:
            self._watching = False

    def balance_loss(self, sequences: int) -> torch.Tensor | None:
        """The balance loss of the pass just watched, summed over its tokens; None where none is asked for.

        A sum like that of the loss beside it: unequal micro-batches give the gradient of one device. Computed here
        and not where the router is, so that a recomputed activation needs none of it.
        """
        seen, self._logits = self._logits, []
        if not seen:
            return None
        losses = [
            sequence_loss(logits, sequences, experts_per_token=router.top_k, sigmoid=_has_bias(router))
            for logits, router in zip(seen, self._routers, strict=True)
        ]
        return self._weight * torch.stack(losses).sum()

    def forget(self) -> None:
        """What was counted belongs to a step that begins again."""
        self._counts.zero_()
        self._logits.clear()

    def settle(self, *, applied: bool) -> Load | None:
        """After a step: the load over all ranks and micro-steps, and unless it was dropped the biases' update by it.

        All ranks add up the same whole numbers, so their biases stay equal to the last bit.
        """
        if not self._routers:
            return None
        dist.all_reduce(self._counts)
        if applied and self._speed:
            counts = self._counts.float()
            steps = self._speed * torch.sign(counts.mean(dim=1, keepdim=True) - counts)
            for router, step in zip(self._routers, steps, strict=True):
                getattr(router, ROUTER_BIAS).add_(step)
        found = load_of(self._counts.tolist())
        self._counts.zero_()
        return found


def _has_bias(router: torch.nn.Module) -> bool:
    return getattr(router, ROUTER_BIAS, None) is not None


def sequence_loss(
    logits: torch.Tensor, sequences: int, *, experts_per_token: int, sigmoid: bool
) -> torch.Tensor:
    """Equations 17 to 20: sum over experts of share chosen times mean affinity, times tokens, summed over sequences.

    Both factors are 1/experts in an even sequence, scaled so that the loss per token is 1 then.
    """
    experts = logits.shape[-1]
    scores = logits.float().view(sequences, -1, experts)
    scores = scores.sigmoid() if sigmoid else scores.softmax(dim=-1)
    tokens = scores.shape[1]
    with torch.no_grad():
        chosen = scores.topk(experts_per_token, dim=-1).indices.flatten(1)
        share = torch.zeros_like(scores[:, 0]).scatter_add_(
            1, chosen, torch.ones_like(chosen, dtype=scores.dtype)
        )
        share *= experts / (experts_per_token * tokens)
    affinity = (scores / scores.sum(dim=-1, keepdim=True)).mean(dim=1)
    return (share * affinity).sum() * tokens
