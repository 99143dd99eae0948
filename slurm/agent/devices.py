"""Health of this node's GPUs by NVML, in a process of its own: a driver that hangs must hang nobody else.

python -P -m slurm.agent.devices      # one line of JSON: a list of figures
"""

import contextlib
import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

# What NVML calls the repair that it wants (field NVML_FI_DEV_GET_GPU_RECOVERY_ACTION).
_ACTIONS = {
    0: "none",
    1: "gpu reset",
    2: "node reboot",
    3: "drain p2p",
    4: "drain and reset",
    5: "recover imex domain",
    6: "bus reset",
    7: "system reboot",
}
# Reasons of a lower clock that point to a fault rather than to an idle or a capped GPU.
_SLOWDOWNS = {0x8: "hw-slowdown", 0x20: "sw-thermal", 0x40: "hw-thermal", 0x80: "hw-power-brake"}


_LAST_S = 0.1


class DevicesError(Exception):
    """Why there are no figures, in words."""


def ask(*, seconds: float) -> tuple[dict[str, Any], ...]:
    """Figures of each GPU.

    Raises:
        DevicesError: no driver, or no answer in so many seconds.
    """
    child = subprocess.Popen(
        [sys.executable, "-P", "-m", "slurm.agent.devices"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        out, said = child.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        child.kill()
        for pipe in (child.stdout, child.stderr):
            if pipe is not None:
                pipe.close()
        with contextlib.suppress(subprocess.TimeoutExpired):  # in an uninterruptible call it does not die
            child.wait(_LAST_S)
        raise DevicesError(f"NVML did not answer within {seconds:.1f} s") from None
    if child.returncode:
        last = said.decode(errors="replace").strip().rsplit("\n", 1)[-1]
        raise DevicesError(f"NVML: {last[:200] or f'exit code {child.returncode}'}")
    found: list[dict[str, Any]] = json.loads(out)
    return tuple(found)


def figures(nvml: Any) -> list[dict[str, Any]]:
    """Of every device, through this module (`pynvml`). A figure that a device does not have is left out."""
    nvml.nvmlInit()
    return [_device(nvml, number) for number in range(nvml.nvmlDeviceGetCount())]


def _device(nvml: Any, number: int) -> dict[str, Any]:
    handle = nvml.nvmlDeviceGetHandleByIndex(number)
    reads: dict[str, Callable[[], Any]] = {
        "uuid": lambda: nvml.nvmlDeviceGetUUID(handle),
        "busy_percent": lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu,
        "memory_used_mib": lambda: nvml.nvmlDeviceGetMemoryInfo(handle).used >> 20,
        "memory_total_mib": lambda: nvml.nvmlDeviceGetMemoryInfo(handle).total >> 20,
        "celsius": lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
        "ecc_uncorrected": lambda: nvml.nvmlDeviceGetTotalEccErrors(
            handle, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
        ),
        "remapped": lambda: dict(
            zip(
                ("corrected", "uncorrected", "pending", "failed"),
                map(int, nvml.nvmlDeviceGetRemappedRows(handle)),
                strict=True,
            )
        ),
        "slowdown": lambda: _slowdowns(nvml.nvmlDeviceGetCurrentClocksEventReasons(handle)),
        "processes": lambda: [
            {"pid": int(one.pid), "mib": (one.usedGpuMemory or 0) >> 20}
            for one in nvml.nvmlDeviceGetComputeRunningProcesses(handle)
        ],
        "recovery_action": lambda: _action(nvml, handle),
    }
    found: dict[str, Any] = {"index": number}
    for name, read in reads.items():
        try:
            found[name] = read()
        except nvml.NVMLError as error:
            if "not supported" not in str(error).lower():
                found[f"{name}_problem"] = str(error)
    return found


def _slowdowns(mask: int) -> list[str]:
    return [word for bit, word in _SLOWDOWNS.items() if mask & bit]


def _action(nvml: Any, handle: Any) -> str:
    [field] = nvml.nvmlDeviceGetFieldValues(handle, [nvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION])
    if field.nvmlReturn != nvml.NVML_SUCCESS:
        raise nvml.NVMLError(field.nvmlReturn)
    number = int(field.value.uiVal)
    return _ACTIONS.get(number, f"action {number}")


def main() -> int:
    """Print the figures."""
    import pynvml  # noqa: PLC0415 - only this process needs it

    try:
        sys.stdout.write(json.dumps(figures(pynvml)) + "\n")
    except pynvml.NVMLError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
