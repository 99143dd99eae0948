"""`ciuic doctor` asks a real controller."""

import pytest

from supervisor.doctor.finding import State
from supervisor.doctor.slurm import judge_slurm, measure_slurm


@pytest.mark.slow
def test_a_real_controller_s_settings_are_judged(cluster) -> None:
    seen = measure_slurm()
    found = {finding.id: finding for finding in judge_slurm(seen, None)}
    assert found["slurm.controller"].state is State.OK
    assert "slurm" in found["slurm.version"].what
    # What this test cluster is short of, so that its tests take seconds.
    assert found["slurm.slurmd-timeout"].state is State.WARN
    assert found["slurm.accounting"].state is State.WARN
