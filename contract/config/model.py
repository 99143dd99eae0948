"""[model]: the shape of the DeepSeek network. The defaults are the small model of the demo."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from contract.config.base import Section

# Shapes by name; keys that a recipe sets beside the name count. tiny: the defaults. 100m: ours, with a vocabulary of
# 32k about 100 million parameters. v2-lite: arXiv:2405.04434, appendix B. v3: arXiv:2412.19437, 4.2.
PRESETS: Mapping[str, Mapping[str, Any]] = {
    "tiny": {},
    "100m": {
        "hidden_size": 512,
        "intermediate_size": 1536,
        "moe_intermediate_size": 256,
        "layers": 9,
        "attention_heads": 8,
        "q_lora_rank": 192,
        "kv_lora_rank": 128,
        "qk_nope_head_dim": 64,
        "qk_rope_head_dim": 32,
        "v_head_dim": 64,
        "routed_experts": 16,
        "experts_per_token": 4,
    },
    "v2-lite": {
        "family": "deepseek_v2",
        "vocab_size": 102400,
        "hidden_size": 2048,
        "intermediate_size": 10944,
        "moe_intermediate_size": 1408,
        "layers": 27,
        "attention_heads": 16,
        "q_lora_rank": 0,
        "kv_lora_rank": 512,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
        "routed_experts": 64,
        "shared_experts": 2,
        "experts_per_token": 6,
        "balance_loss_weight": 0.001,
        "initializer_range": 0.006,
    },
    "v3": {
        "vocab_size": 129280,
        "hidden_size": 7168,
        "intermediate_size": 18432,
        "moe_intermediate_size": 2048,
        "layers": 61,
        "dense_layers": 3,
        "attention_heads": 128,
        "q_lora_rank": 1536,
        "kv_lora_rank": 512,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
        "routed_experts": 256,
        "experts_per_token": 8,
        "expert_groups": 8,
        "groups_per_token": 4,
        "routed_scaling_factor": 2.5,
        "balance_loss_weight": 0.0001,
        "initializer_range": 0.006,
    },
}


class Model(Section):
    """Shape and initialisation. A changed shape resumes from older checkpoints if [checkpoint] model_change allows."""

    preset: Literal["", "tiny", "100m", "v2-lite", "v3"] = ""
    """A shape by name: tiny (the defaults), 100m, and the published v2-lite (16B) and v3 (671B). Keys set beside it
    count."""
    hf_config: str = ""
    """A config.json in Hugging Face format whose shape and details the network takes, with new weights. Read once, as
    init_from is."""
    family: Literal["deepseek_v3", "deepseek_v2"] = "deepseek_v3"
    """V3 routes by sigmoid with a bias that keeps its experts in use; V2 by softmax, with the balance loss for that."""
    init_from: str = ""
    """Directory with DeepSeek-V2 or V3 weights in Hugging Face format; the shape is theirs then. Read once: a resume
    loads checkpoints. Download it first (huggingface-cli with HF_ENDPOINT for a mirror, or modelscope)."""

    vocab_size: int = Field(default=0, ge=0)
    """Rows of the embedding. 0 takes the vocabulary of the prepared data; set it to leave room for later tokens."""
    hidden_size: int = Field(default=128, ge=8)
    """Width of the residual stream. The first thing to raise for a stronger model."""
    intermediate_size: int = Field(default=384, ge=8)
    """Width of the dense layers' feed-forward part; about 3 times hidden_size."""
    moe_intermediate_size: int = Field(default=64, ge=8)
    """Width of one expert. Many narrow experts are DeepSeek's choice over few wide ones."""
    layers: int = Field(default=3, ge=1)
    """Number of decoder layers."""
    dense_layers: int = Field(default=1, ge=0)
    """The first so many layers have no experts (DeepSeek-V3: 3 of 61); routing is unstable near the input."""
    attention_heads: int = Field(default=4, ge=1)
    """Heads of the latent attention; every head has its own keys and values."""
    q_lora_rank: int = Field(default=48, ge=0)
    """Rank of the compressed queries. 0 leaves queries uncompressed (DeepSeek-V2-Lite)."""
    kv_lora_rank: int = Field(default=32, ge=1)
    """Rank of the compressed keys and values: what attention would have to cache for each token."""
    qk_nope_head_dim: int = Field(default=16, ge=1)
    """Size of the part of a head's query and key that carries no position."""
    qk_rope_head_dim: int = Field(default=16, ge=2, multiple_of=2)
    """Size of the part that carries the rotary position; even."""
    v_head_dim: int = Field(default=32, ge=1)
    """Size of a head's value."""
    routed_experts: int = Field(default=8, ge=2)
    """Experts of each mixture layer among which the router chooses."""
    shared_experts: int = Field(default=1, ge=1)
    """Experts that every token passes."""
    experts_per_token: int = Field(default=2, ge=1)
    """Experts that the router chooses for each token."""
    expert_groups: int = Field(default=1, ge=1)
    """Groups into which the experts are cut (on a cluster: one for each node)."""
    groups_per_token: int = Field(default=1, ge=1)
    """Groups from which a token's experts may come; limits the traffic between nodes."""
    routed_scaling_factor: float = Field(default=1.0, gt=0)
    """Factor on the routed experts' output (DeepSeek-V3: 2.5); keeps it in proportion to the shared expert."""
    router_bias_speed: float = Field(default=0.001, ge=0)
    """How far the bias of a router moves after each step against the load of its experts (DeepSeek-V3: 0.001, and 0
    for the last 3 % of its tokens); 0 leaves it alone. V2 has no such bias."""
    balance_loss_weight: float = Field(default=0.0, ge=0)
    """Weight of the balance loss within each sequence (DeepSeek-V3: 0.0001); 0 has none. V2 has nothing else that
    keeps its experts in use."""
    mtp_loss_weight: float = Field(default=0.0, ge=0)
    """Weight of the loss of predicting the token after the next one too, by one layer more (DeepSeek-V3: 0.3, and 0.1
    for its last third); 0 has no such layer. It trains the network to plan ahead, and can draft tokens in inference."""
    compile_layers: bool = False
    """Let torch compile each decoder layer: faster on a GPU once it is done. The first step of a node takes minutes
    (kept in TORCHINDUCTOR_CACHE_DIR for the next start); needs a C++ compiler on the node."""
    initializer_range: float = Field(default=0.02, gt=0)
    """Standard deviation of the initial weights. Small models learn faster with 0.02, V3 itself uses 0.006."""

    def contradictions(self) -> list[str]:
        """Problems between keys of this section."""
        found: list[str] = []
        if self.dense_layers > self.layers:
            found.append(f"dense_layers: {self.dense_layers} is more than the {self.layers} layers there are")
        if self.mtp_loss_weight and self.family == "deepseek_v2":
            found.append("mtp_loss_weight: DeepSeek-V2 has no layer for it; use family deepseek_v3, or 0")
        if self.routed_experts % self.expert_groups:
            found.append(
                f"expert_groups: {self.routed_experts} experts do not divide into {self.expert_groups}"
            )
        if self.groups_per_token > self.expert_groups:
            found.append(f"groups_per_token: {self.groups_per_token} of {self.expert_groups} groups")
        reachable = self.routed_experts // self.expert_groups * min(self.groups_per_token, self.expert_groups)
        if self.experts_per_token > reachable:
            found.append(
                f"experts_per_token: {self.experts_per_token}, a token can reach {reachable} experts"
            )
        return found
