"""DeepSpeed's JSON as it stands: what it says about batch, precision and optimizer becomes our own configuration.

A key of ours that the recipe leaves out takes the JSON's value; one that it sets must say the same.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from contract.config.deepspeed_keys import OWNED, TAKEN
from contract.config.whole import RunConfig
from contract.plain import required

_ADAMW = frozenset({"adam", "adamw"})
_RATES: Mapping[str, str] = {"lr": "lr", "eps": "eps", "weight_decay": "weight_decay"}
# Choices of a kernel that the trainer makes itself.
_IMPLEMENTATION = frozenset({"torch_adam", "adam_w_mode", "fused", "bias_correction"})


@dataclass
class _Feed:
    """The configuration as it fills up, and what is wrong (`section.key: sentence`)."""

    config: RunConfig
    problems: list[str] = field(default_factory=list)

    def is_set(self, section: str, key: str) -> bool:
        return key in getattr(self.config, section).model_fields_set

    def give(self, where: str, value: Any, said: str) -> None:
        """Our key takes this value, which the JSON says under the name `said`."""
        name, key = where.split(".")
        section = getattr(self.config, name)
        try:
            wanted = getattr(type(section).model_validate({key: value}), key)
        except ValidationError as error:
            wrong = required(error.errors(include_url=False)[0])
            self.problems.append(f"deepspeed.{said}: is {value!r}; {wrong}")
            return
        ours = getattr(section, key)
        if self.is_set(name, key) and ours != wanted:
            self.problems.append(
                f"{where}: is {ours!r}, but the DeepSpeed JSON's {said} says {wanted!r}; leave one of the two out"
            )
            return
        self.config = self.config.model_copy(update={name: section.model_copy(update={key: wanted})})


def fed(config: RunConfig) -> tuple[RunConfig, list[str]]:
    """The configuration with what the JSON says about our sections, and what contradicts."""
    try:
        settings = config.deepspeed.settings()
    except ValueError:  # told by the section itself
        return config, []
    if config.job.command or not settings:  # another program reads the JSON its own way
        return config, []
    feed = _Feed(config=config)
    _batch(feed, settings)
    _precision(feed, settings)
    _optimizer(feed, settings.get("optimizer"))
    if "gradient_clipping" in settings:
        feed.give("optimizer.gradient_clipping", _float(settings["gradient_clipping"]), "gradient_clipping")
    zero = settings.get("zero_optimization")
    if isinstance(zero, dict) and "stage" in zero:
        feed.give("deepspeed.zero_stage", zero["stage"], "zero_optimization.stage")
    apart = settings.get("expert_parallel")
    if isinstance(apart, dict) and apart.get("enabled"):
        feed.give("deepspeed.expert_parallel", apart.get("autoep_size", 1), "expert_parallel.autoep_size")
    return feed.config, feed.problems


def rest(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON without what has become ours: said twice, the two could drift apart."""
    kept = {
        key: value for key, value in settings.items() if key not in OWNED and key not in {"optimizer", "fp8"}
    }
    for name in TAKEN & kept.keys():
        inner = {key: value for key, value in kept[name].items() if key != "enabled"}
        kept.pop(name)
        if inner:
            kept["bf16" if name == "bfloat16" else name] = inner
    if isinstance(apart := kept.pop("expert_parallel", None), dict):
        further = {key: value for key, value in apart.items() if key not in {"enabled", "autoep_size"}}
        kept |= {"expert_parallel": further} if further else {}
    if isinstance(zero := kept.get("zero_optimization"), dict):
        kept["zero_optimization"] = {key: value for key, value in zero.items() if key != "stage"}
    return kept


def _batch(feed: _Feed, settings: Mapping[str, Any]) -> None:
    """Two of global batch, micro-batch and accumulation give the third, as in DeepSpeed."""
    ranks = feed.config.job.world_size
    for key in ("train_batch_size", "train_micro_batch_size_per_gpu"):
        if key in settings:
            feed.give(OWNED[key], settings[key], key)
    steps = settings.get("gradient_accumulation_steps")
    if steps is None or feed.problems:
        return
    if type(steps) is not int or steps < 1:
        feed.problems.append(f"deepspeed.gradient_accumulation_steps: is {steps!r}; at least 1 was expected")
        return
    batch, said = feed.config.batch, "gradient_accumulation_steps"
    if feed.is_set("batch", "micro_batch_size") and not feed.is_set("batch", "global_batch_size"):
        feed.give("batch.global_batch_size", batch.micro_batch_size * steps * ranks, said)
    elif batch.global_batch_size % (steps * ranks):
        feed.problems.append(
            f"batch.global_batch_size: {batch.global_batch_size} does not divide into the DeepSpeed JSON's "
            f"{said} {steps} * {ranks} ranks"
        )
    else:
        feed.give("batch.micro_batch_size", batch.global_batch_size // (steps * ranks), said)


def _precision(feed: _Feed, settings: Mapping[str, Any]) -> None:
    tables = {name: settings.get(name) for name in ("fp16", "bf16", "bfloat16", "fp8")}
    on = {
        name: table.get("enabled", False) for name, table in tables.items() if isinstance(table, dict)
    }  # what is no table is told by the section itself
    on["bf16"] = on.get("bf16", on.get("bfloat16"))
    if on.get("fp16") and (on["bf16"] or on.get("fp8")):
        feed.problems.append("deepspeed.fp16: enabled beside bf16 or fp8; enable one of them")
    elif on.get("fp8"):
        format_ = (tables["fp8"] or {}).get("format", "HYBRID")
        if format_ != "HYBRID":
            feed.problems.append(f"deepspeed.fp8.format: is {format_!r}; only HYBRID is supported")
        feed.give("precision.dtype", "fp8", "fp8.enabled")
    elif on.get("fp16"):
        feed.give("precision.dtype", "fp16", "fp16.enabled")
    elif on["bf16"] is not None:
        feed.give("precision.dtype", "bf16" if on["bf16"] else "fp32", "bf16.enabled")


def _optimizer(feed: _Feed, table: Any) -> None:
    if not isinstance(table, dict):
        return
    kind, params = table.get("type"), table.get("params") or {}
    if not isinstance(kind, str) or kind.lower() not in _ADAMW:
        offered = "AdamW is what the JSON may ask for"
        if isinstance(kind, str) and kind.lower() == "muon":
            # Its rates are not ours: DeepSpeed scales the update otherwise, and clips it after that.
            offered = 'take the table out and set [optimizer] name = "muon", with the rate of AdamW'
        feed.problems.append(f"deepspeed.optimizer.type: is {kind!r}; {offered}")
        return
    for key, value in params.items():
        if key in _RATES:
            feed.give(f"optimizer.{_RATES[key]}", _float(value), f"optimizer.params.{key}")
        elif key == "betas" and isinstance(value, list) and len(value) == 2:
            feed.give("optimizer.beta1", _float(value[0]), "optimizer.params.betas")
            feed.give("optimizer.beta2", _float(value[1]), "optimizer.params.betas")
        elif key not in _IMPLEMENTATION:
            feed.problems.append(f"deepspeed.optimizer.params.{key}: unknown key")


def _float(value: Any) -> Any:
    """JSON has no difference between 1 and 1.0."""
    return float(value) if type(value) is int else value
