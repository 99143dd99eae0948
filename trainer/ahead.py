"""The loss of predicting the token after the next one too: multi-token prediction of depth one (arXiv:2412.19437, 2.2).

The extra layer lies where the published weights of DeepSeek-V3 have it, after the last decoder layer and under the same
names; embedding and head are the network's own. Inference uses it to draft tokens, or leaves it out.
"""

from typing import Any

import torch
from transformers.masking_utils import create_causal_mask
from transformers.modeling_outputs import MoeCausalLMOutputWithPast
from transformers.models.deepseek_v3.modeling_deepseek_v3 import (
    DeepseekV3DecoderLayer,
    DeepseekV3ForCausalLM,
    DeepseekV3RMSNorm,
)

from trainer.head import summed_cross_entropy


class AheadLayer(DeepseekV3DecoderLayer):  # type: ignore[misc]
    """A decoder layer over the network's last state and the embedding of the token that comes next."""

    def __init__(self, config: Any) -> None:
        """One layer with experts, numbered after the network's last one."""
        super().__init__(config, config.num_hidden_layers)
        size, eps = config.hidden_size, config.rms_norm_eps
        self.enorm = DeepseekV3RMSNorm(size, eps=eps)
        self.hnorm = DeepseekV3RMSNorm(size, eps=eps)
        self.eh_proj = torch.nn.Linear(2 * size, size, bias=False)
        self.shared_head = torch.nn.ModuleDict({"norm": DeepseekV3RMSNorm(size, eps=eps)})

    def forward(self, embedded: torch.Tensor, state: torch.Tensor, **named: Any) -> torch.Tensor:
        """The states from which the head predicts; `embedded` and `state`: (samples, length, width)."""
        joined = self.eh_proj(torch.cat([self.enorm(embedded), self.hnorm(state)], dim=-1))
        found: torch.Tensor = self.shared_head["norm"](super().forward(joined, **named))
        return found


class AheadDeepseekV3(DeepseekV3ForCausalLM):  # type: ignore[misc]
    """DeepSeek-V3 with the extra layer. Without targets for it, it is the plain network."""

    ahead_loss: torch.Tensor | None = None

    def __init__(self, config: Any) -> None:
        """The network of this configuration, and one layer more."""
        super().__init__(config)
        self.model.layers.append(AheadLayer(config))  # the network's own pass stops before it
        self.post_init()

    @classmethod
    def _can_set_experts_implementation(cls) -> bool:
        """What transformers finds out by reading the source file of a class; the experts are the base class's."""
        return bool(DeepseekV3ForCausalLM._can_set_experts_implementation())  # noqa: SLF001

    def forward(
        self, input_ids: torch.Tensor | None = None, *, ahead: torch.Tensor | None = None, **named: Any
    ) -> Any:
        """The network's output. `ahead`: for each token but the last, the one after the next; its loss is kept.

        All within one pass, so that ZeRO-3 has gathered what is used.
        """
        if ahead is None or input_ids is None:
            return super().forward(input_ids=input_ids, **named)
        state = self.model(input_ids=input_ids, use_cache=False).last_hidden_state
        logits = self.lm_head(state)
        self.ahead_loss = summed_cross_entropy(self.lm_head, self._further(input_ids[:, 1:], state), ahead)
        return MoeCausalLMOutputWithPast(logits=logits)

    def _further(self, tokens: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        embedded = self.model.embed_tokens(tokens)
        places = torch.arange(1, 1 + tokens.shape[1], device=tokens.device).unsqueeze(0)
        mask = create_causal_mask(
            config=self.config, inputs_embeds=embedded, attention_mask=None, cache=None, position_ids=places
        )
        further: torch.Tensor = self.model.layers[self.config.num_hidden_layers](
            embedded,
            state[:, :-1],
            attention_mask=mask,
            position_ids=places,
            position_embeddings=self.model.rotary_emb(embedded, places),
        )
        return further


def take_ahead_loss(model: torch.nn.Module) -> torch.Tensor | None:
    """The loss of the extra layer in the pass just made, summed over its targets; None where there is none."""
    if not isinstance(model, AheadDeepseekV3):
        return None
    found, model.ahead_loss = model.ahead_loss, None
    return found
