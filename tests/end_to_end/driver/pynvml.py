"""Stands in for NVIDIA's driver: one GPU whose figures are in the JSON file that SCRIPTED_GPU names."""

import json
import os
import time
from pathlib import Path
from types import SimpleNamespace

NVML_TEMPERATURE_GPU = 0
NVML_MEMORY_ERROR_TYPE_UNCORRECTED = NVML_VOLATILE_ECC = 1


class NVMLError(Exception):
    pass


def __getattr__(name):
    if name.startswith(("nvml", "NVML")):
        return lambda *_: (_ for _ in ()).throw(NVMLError("Not Supported"))
    raise AttributeError(name)


def figures():
    found = json.loads(Path(os.environ["SCRIPTED_GPU"]).read_text())
    if found.get("hangs"):
        time.sleep(3600)
    return found


def nvmlInit():  # noqa: N802 - NVML's names
    pass


def nvmlDeviceGetCount():  # noqa: N802
    return 1


def nvmlDeviceGetHandleByIndex(number):  # noqa: N802
    return number


def nvmlDeviceGetUUID(handle):  # noqa: N802
    return f"GPU-{handle}"


def nvmlDeviceGetUtilizationRates(_handle):  # noqa: N802
    return SimpleNamespace(gpu=figures()["busy"])


def nvmlDeviceGetMemoryInfo(_handle):  # noqa: N802
    return SimpleNamespace(used=figures()["used"] << 30, total=80 << 30)


def nvmlDeviceGetTemperature(_handle, _sensor):  # noqa: N802
    return figures()["celsius"]
