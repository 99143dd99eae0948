"""`ciuic profile RUN`: the profiles of a run as values and as a table."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from contract.layout import RunDir
from contract.profile import RankProfile, Timing, read_profiles, trace_of
from supervisor.core.profiles import region_word

VERSION = 1
_HEADS = {
    "en": ("region", "s a step", "share", "on the device", "peak memory"),
    "zh": ("区段", "秒/步", "占比", "设备", "内存峰值"),
}


def places(run: RunDir) -> list[Path]:
    """The directories of the run's profiles, oldest first."""
    return sorted(run.attempts.glob("*/profile/g*-step-*"))


def facts(run: RunDir, found: Sequence[Path]) -> dict[str, Any]:
    """`ciuic profile RUN --json`. Lengths in seconds a step, memory in bytes."""
    return {
        "version": VERSION,
        "run": run.run_id,
        "profiles": [{"path": str(place), "ranks": _ranks(place)} for place in found],
    }


def _ranks(place: Path) -> list[dict[str, Any]]:
    return [
        {
            **asdict(item),
            "overhead": item.overhead,
            "trace": str(trace_of(place, item.rank)) if item.timing else None,
        }
        for item in read_profiles(place)
    ]


def table(place: Path, language: str) -> str:
    """All ranks of one profile: where the time went, and which file to open."""
    return "\n\n".join("\n".join(_rank(place, item, language)) for item in read_profiles(place))


def _rank(place: Path, item: RankProfile, language: str) -> list[str]:
    chinese = language == "zh"
    steps = f"{item.first_step}-{item.first_step + item.steps - 1}"
    timing = item.timing
    if timing is None:
        return [f"rank {item.rank}: {item.error}"]
    head = (
        f"rank {item.rank}，第 {steps} 步，每步 {timing.step_s:.4g} 秒"
        if chinese
        else f"rank {item.rank}, steps {steps}, {timing.step_s:.4g} s a step"
    )
    return [
        head,
        cost(item, language),
        *_grid([_HEADS[language], *_regions(timing, language)]),
        _communication(timing, language),
        "算子（自身时间，秒/步，次数/步）：" if chinese else "operators (own time, s a step, calls a step):",
        *_grid([(one.name[:70], f"{one.seconds:.4f}", f"{one.calls:.0f}") for one in timing.operators]),
        f"trace: {trace_of(place, item.rank)}",
        "  （在 https://ui.perfetto.dev 或 TensorBoard 中打开）"
        if chinese
        else "  (open it at https://ui.perfetto.dev, or in TensorBoard)",
    ]


def cost(item: RankProfile, language: str) -> str:
    """What profiling itself has cost."""
    if item.plain_s is None:
        return (
            "分析的开销未知：之前的步数太少"
            if language == "zh"
            else "what profiling costs is not known: too few steps before it"
        )
    if item.overhead is not None and item.overhead < 0:
        return (
            f"分析的开销看不出来：之前的步（每步 {item.plain_s:.4g} 秒）太少或波动太大，分析时反而更快（{item.profiled_s:.4g} 秒）"
            if language == "zh"
            else f"what profiling costs cannot be told: the steps before it ({item.plain_s:.4g} s) are too few or too noisy "
            f"to compare with, those with it were faster ({item.profiled_s:.4g} s)"
        )
    if language == "zh":
        return (
            f"不分析时每步 {item.plain_s:.4g} 秒，分析时 {item.profiled_s:.4g} 秒（{item.overhead:+.0%}），"
            f"结束时停 {item.stopped_s:.2g} 秒"
        )
    return (
        f"without profiling {item.plain_s:.4g} s, with it {item.profiled_s:.4g} s ({item.overhead:+.0%}), "
        f"and {item.stopped_s:.2g} s of standstill at its end"
    )


def _regions(timing: Timing, language: str) -> list[tuple[str, ...]]:
    return [
        (
            region_word(region.name, language),
            f"{region.seconds:.4f}",
            f"{region.seconds / timing.step_s:.1%}" if timing.step_s else "-",
            f"{region.device_s:.4f}" if timing.device != "cpu" else "-",
            "-" if region.peak_bytes is None else f"{region.peak_bytes / 2**20:.1f} MiB",
        )
        for region in timing.regions
    ]


def _communication(timing: Timing, language: str) -> str:
    share = timing.exposed_s / timing.step_s if timing.step_s else 0.0
    if language == "zh":
        return (
            f"通信 {timing.comm_s:.4f} 秒，其中 {timing.exposed_s:.4f} 秒未被计算掩盖（占一步的 {share:.1%}）"
        )
    return (
        f"communication {timing.comm_s:.4f} s, of which {timing.exposed_s:.4f} s were not covered by computation "
        f"({share:.1%} of the step)"
    )


def _grid(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(_wide(cell) for cell in column) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        first, *rest = row
        cells = [first + " " * (widths[0] - _wide(first))]
        cells += [" " * (width - _wide(cell)) + cell for cell, width in zip(rest, widths[1:], strict=True)]
        lines.append("  " + "  ".join(cells))
    return lines


def _wide(text: str) -> int:
    """Columns in a terminal: Chinese characters take two."""
    return sum(2 if ord(char) > 0x2E7F else 1 for char in text)
