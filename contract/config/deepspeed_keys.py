"""Every key of DeepSpeed's JSON, and what becomes of it. Kept equal to the installed DeepSpeed by a test.

DeepSpeed itself ignores a top-level key that it does not know: a misspelt one would silently do nothing.
"""

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

# Top-level keys whose value becomes that of a key of ours (contract/config/feed.py).
OWNED: Mapping[str, str] = {
    "train_batch_size": "batch.global_batch_size",
    "train_micro_batch_size_per_gpu": "batch.micro_batch_size",
    "gradient_accumulation_steps": "batch",
    "gradient_clipping": "optimizer.gradient_clipping",
}
# Tables that are read into our sections as well.
TAKEN: frozenset[str] = frozenset({"optimizer", "fp16", "bf16", "bfloat16", "fp8"})
# Keys whose meaning belongs to us: refused, with the place where it is said.
ELSEWHERE: Mapping[str, str] = {
    "scheduler": "[schedule]",
    "data_efficiency": "[data]",
    "dataloader_drop_last": "[data]",
    "datastates_ckpt": "[checkpoint]",
    "managed_gradient_accumulation": "nothing: the trainer divides gradients itself",
    "gradient_allreduce_op": "nothing: the trainer divides gradients itself",
    "pipeline": "nothing: pipelines are not supported",
    "tensor_parallel": "nothing: tensor parallelism is not supported",
    "hybrid_engine": "nothing: it serves generation, which is not supported",
    "weight_quantization": "nothing: it serves inference, which is not supported",
    "autotuning": "nothing: `ciuic trainer fit` looks for the micro-batch",
}
# Keys of older versions, which DeepSpeed refuses today.
REMOVED: frozenset[str] = frozenset(
    {
        "amp",
        "compression_training",
        "curriculum_learning",
        "eigenvalue",
        "elasticity",
        "graph_harvesting",
        "nebula",
        "progressive_layer_drop",
        "quantize_training",
        "sparse_attention",
        "sparse_gradients",
    }
)
# What DeepSpeed reads and we pass on.
PASSED: frozenset[str] = frozenset(
    {
        "activation_checkpointing",
        "aio",
        "checkpoint",
        "comet",
        "comms_logger",
        "communication_data_type",
        "compile",
        "csv_monitor",
        "data_types",
        "disable_allgather",
        "disable_python_gc",
        "dump_state",
        "expert_parallel",
        "flops_profiler",
        "gradient_predivide_factor",
        "log_level",
        "memory_breakdown",
        "prescale_gradients",
        "seed",
        "seq_parallel_communication_data_type",
        "steps_per_print",
        "tensorboard",
        "timers",
        "torch_autocast",
        "use_data_before_expert_parallelism",
        "wall_clock_breakdown",
        "wandb",
        "zero_allow_untested_optimizer",
        "zero_force_ds_cpu_optimizer",
        "zero_optimization",
    }
)
FP16: frozenset[str] = frozenset(
    {
        "auto_cast",
        "consecutive_hysteresis",
        "enabled",
        "fp16_master_weights_and_grads",
        "hysteresis",
        "initial_scale_power",
        "loss_scale",
        "loss_scale_window",
        "min_loss_scale",
    }
)
BF16: frozenset[str] = frozenset(
    {
        "bf16_master_weights_and_grads",
        "bf16_optimizer_states",
        "check_grad_overflow",
        "enabled",
        "immediate_grad_update",
    }
)
# Ours: DeepSpeed has no such table.
FP8: frozenset[str] = frozenset({"enabled", "format"})
ZERO: frozenset[str] = frozenset(
    {
        "allgather_bucket_size",
        "allgather_partitions",
        "allgather_sequential",
        "compute_grad_norm",
        "contiguous_gradients",
        "cpu_offload",
        "cpu_offload_param",
        "cpu_offload_use_pin_memory",
        "elastic_checkpoint",
        "enable_sanity_checks",
        "gather_16bit_weights_on_model_save",
        "ignore_unused_parameters",
        "leaf_module",
        "legacy_stage1",
        "load_from_fp32_weights",
        "log_trace_cache_warnings",
        "max_live_parameters",
        "max_reuse_distance",
        "memory_efficient_linear",
        "model_persistence_threshold",
        "module_granularity_threshold",
        "offload_optimizer",
        "offload_param",
        "overlap_comm",
        "override_module_apply",
        "param_persistence_threshold",
        "parameter_alignment",
        "pipeline_loading_checkpoint",
        "prefetch_bucket_size",
        "reduce_bucket_size",
        "reduce_scatter",
        "round_robin_gradients",
        "save_muon_momentum_buffer_in_memory",
        "stage",
        "stage3_allgather_sequential",
        "stage3_gather_16bit_weights_on_model_save",
        "stage3_gather_fp16_weights_on_model_save",
        "stage3_max_live_parameters",
        "stage3_max_reuse_distance",
        "stage3_model_persistence_threshold",
        "stage3_module_granularity_threshold",
        "stage3_param_persistence_threshold",
        "stage3_prefetch_bucket_size",
        "stage3_use_all_reduce_for_fetch_params",
        "sub_group_size",
        "use_all_reduce_for_fetch_params",
        "use_multi_rank_bucket_allreduce",
        "zenflow",
        "zero_hpz_partition_size",
        "zero_quantized_gradients",
        "zero_quantized_nontrainable_weights",
        "zero_quantized_weights",
    }
)
OPTIMIZER: frozenset[str] = frozenset({"type", "params"})
_TABLES: Mapping[str, frozenset[str]] = {
    "zero_optimization": ZERO,
    "fp16": FP16,
    "bf16": BF16,
    "bfloat16": BF16,
    "fp8": FP8,
    "optimizer": OPTIMIZER,
}
KNOWN: frozenset[str] = frozenset({*OWNED, *TAKEN, *PASSED})


def unusable(settings: Mapping[str, Any]) -> list[str]:
    """What cannot be used of these settings, as `key: sentence`."""
    found: list[str] = []
    for key, value in settings.items():
        if key in ELSEWHERE:
            found.append(f"{key}: belongs into {ELSEWHERE[key]}")
        elif key in REMOVED:
            found.append(f"{key}: DeepSpeed has removed this feature; take the key out")
        elif key not in KNOWN:
            found.append(
                f"{key}: DeepSpeed has no such top-level key (it would ignore it silently){_close(key, KNOWN)}"
            )
        elif key in _TABLES:
            found += _in_table(key, value)
    return found


def _in_table(name: str, value: Any) -> list[str]:
    if not isinstance(value, dict):
        return [f"{name}: is {value!r}; a table was expected"]
    known = _TABLES[name]
    return [f"{name}.{key}: unknown key{_close(key, known)}" for key in value if key not in known]


def _close(key: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(key, sorted(known), n=1)
    return f'; did you mean "{close[0]}"?' if close else ""
