"""Marks by folder: what is pure or small is `quick`; real training is `train`."""

from pathlib import Path

import pytest

QUICK = (
    "tests/contract",
    "tests/supervisor/core",
    "tests/supervisor/diagnose",
    "tests/supervisor/simulate",
    "tests/trainer/batch",
)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    root = config.rootpath
    for item in items:
        place = str(Path(item.path).relative_to(root))
        slow = {"train", "slow", "slurm", "gpu", "netns"} & {mark.name for mark in item.iter_markers()}
        if place.startswith(QUICK) and not slow:
            item.add_marker(pytest.mark.quick)
