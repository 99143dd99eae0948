"""`make slurm-up` on a cluster that is up: a job of somebody's runs there."""

from tests.cluster import slurm_cluster
from tests.cluster.conftest import wait_for
from tests.cluster.slurm_cluster import Cluster


def test_a_cluster_that_is_up_is_reported_and_left_alone(cluster: Cluster, monkeypatch, capsys) -> None:
    job = cluster.run("sbatch", "--parsable", "--wrap=sleep 60", "-w", "n1", "-o", "/dev/null")
    wait_for(lambda: "RUNNING" in cluster.run("squeue", "-h", "-j", job, "-o", "%T"), 30, "the job")
    monkeypatch.setattr(slurm_cluster, "default_directory", lambda: cluster.directory)

    def make(*words: str) -> list[str]:
        monkeypatch.setattr("sys.argv", ["slurm_cluster.py", *words])
        assert slurm_cluster.main() == 0
        return capsys.readouterr().out.splitlines()

    try:
        assert make("kill-node", "n4") == [
            "n4: killed its daemon and all that ran there; bring it back with: make slurm-start-node NODE=n4"
        ]
        said = make("up")
        assert "is up already" in said[0]
        assert said[1:] == [
            "n4 is down; bring it back with: make slurm-start-node NODE=n4",
            f"export SLURM_CONF={cluster.conf}",
        ]
        assert "RUNNING" in cluster.run("squeue", "-h", "-j", job, "-o", "%T")
        assert "started" in make("start-node", "n4")[0]
        assert make("start-node", "n4") == ["n4: runs already"]
    finally:
        cluster.heal()
