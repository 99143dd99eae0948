"""A node's settings: read, applied, remembered, put back. On a copy of the files, and on this machine's own as root."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import slurm.node
from slurm.node.apply import apply, restore
from slurm.node.explain import table
from slurm.node.settings import State, read_settings, selected

NODE = Path(slurm.node.__file__).parent
REAL = Path("/sys/kernel/mm/transparent_hugepage")
THP = Path("kernel/mm/transparent_hugepage")


class Node:
    """A copy of the files, and the scripts of the cluster's administrator."""

    def __init__(self, place: Path, sys_root: Path | None = None) -> None:
        self.sys, self.proc, self.state = sys_root or place / "sys", place / "proc", place / "state"
        files = {
            self.proc / "sys/kernel/numa_balancing": "1",
            self.proc / "sys/vm/zone_reclaim_mode": "0",
            self.proc / "sys/vm/swappiness": "60",
        }
        if sys_root is None:
            files |= {
                self.sys / THP / "enabled": "always [madvise] never",
                self.sys / THP / "defrag": "always defer defer+madvise [madvise] never",
                self.sys / THP / "hugepages-64kB/enabled": "[always] inherit madvise never",
                self.sys / THP / "hugepages-2048kB/enabled": "always [inherit] madvise never",
                self.sys / "devices/system/cpu/cpu0/cpufreq/scaling_governor": "powersave",
                self.sys / "devices/system/cpu/cpu1/cpufreq/scaling_governor": "performance",
            }
        for path, text in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text + "\n")

    def thp(self, name: str = "enabled") -> str:
        return selected((self.sys / THP / name).read_text())

    def run(self, script: str, job: str = "7", **environment: str) -> str:
        known = {
            "PATH": os.environ["PATH"],
            "SLURM_JOB_ID": job,
            "SLURM_JOB_PARTITION": "gpu",
            "CIUIC_TUNE_STATE": str(self.state),
            "CIUIC_TUNE_SYS": str(self.sys),
            "CIUIC_TUNE_PROC": str(self.proc),
        }
        done = subprocess.run(
            [NODE / script], env=known | environment, capture_output=True, text=True, timeout=30, check=False
        )
        assert done.returncode == 0, "a script that fails drains the node"
        return done.stderr

    def settings(self):
        return read_settings(self.sys, self.proc)


@pytest.fixture
def node(tmp_path):
    return Node(tmp_path)


@pytest.fixture
def real(tmp_path):
    """This machine's own switches, as they were afterwards."""
    if os.geteuid() != 0 or not os.access(REAL / "enabled", os.W_OK):
        pytest.skip("needs root and a writable sysfs")
    before = {name: selected((REAL / name).read_text()) for name in ("enabled", "defrag")}
    (REAL / "enabled").write_text("madvise")  # another value than the wanted one, to start from
    (REAL / "defrag").write_text("defer")
    yield Node(tmp_path, Path("/sys"))
    for name, value in before.items():
        (REAL / name).write_text(value)


def test_what_is_wrong_is_said(node):
    found = {item.name: item for item in node.settings()}
    assert found["transparent_hugepage/enabled"].state is State.WRONG
    assert found["transparent_hugepage/enabled"].found == "madvise"
    assert found["transparent_hugepage/hugepages-64kB"].found == "always"
    assert "transparent_hugepage/hugepages-2048kB" not in found, "it follows the switch above"
    assert found["zone_reclaim_mode"].state is State.OK
    assert found["cpu governor"].found == "performance, powersave"
    assert len(found["cpu governor"].paths) == 1
    assert found["memlock limit"].paths == ()
    lines = table(node.settings())
    assert any("numa_balancing" in line and "echo 0 >" in line for line in lines)


def test_a_machine_without_a_setting(tmp_path):
    found = {item.name: item.state for item in read_settings(tmp_path, tmp_path)}
    assert found["transparent_hugepage/enabled"] is State.ABSENT
    assert found["cpu governor"] is State.ABSENT
    assert table(read_settings(tmp_path, tmp_path))


def test_applied_and_put_back(node):
    changes = apply(node.settings(), node.state, "manual")
    assert not [item for item in changes if item.problem]
    assert (node.thp(), node.thp("defrag"), node.thp("hugepages-64kB/enabled")) == ("never",) * 3
    assert all(item.state is not State.WRONG for item in node.settings() if item.paths)
    apply(node.settings(), node.state, "manual")
    changes, others = restore(node.state, "manual")
    assert not others
    assert not [item for item in changes if item.problem]
    assert (node.thp(), node.thp("defrag"), node.thp("hugepages-64kB/enabled")) == (
        "madvise",
        "madvise",
        "always",
    )
    assert (node.proc / "sys/vm/swappiness").read_text().strip() == "60"
    assert restore(node.state, "manual") == ([], [])


def test_the_last_job_puts_back(node):
    node.run("prolog.sh", "7")
    node.run("prolog.sh", "8")
    node.run("epilog.sh", "7")
    assert node.thp() == "never", "job 8 still runs"
    assert restore(node.state, "manual")[1] == ["8"]
    node.run("epilog.sh", "8")
    assert (node.thp(), node.thp("defrag")) == ("madvise", "madvise")
    assert not (node.state / "saved").exists()


def test_scripts_and_program_know_each_other(node):
    node.run("prolog.sh", "7")
    assert node.thp() == "never"
    restore(node.state, "7")
    assert node.thp() == "madvise"
    apply(node.settings(), node.state, "9")
    node.run("epilog.sh", "9")
    assert node.thp() == "madvise"
    assert selected((node.proc / "sys/kernel/numa_balancing").read_text()) == "1"


def test_what_somebody_else_changed_stays(node):
    node.run("prolog.sh")
    (node.sys / THP / "defrag").write_text("always [defer] never\n")
    assert "changed to defer by somebody else" in node.run("epilog.sh")
    assert (node.thp(), node.thp("defrag")) == ("madvise", "defer")
    assert not (node.state / "saved").exists()


def test_a_prolog_that_died_before_it_wrote_is_harmless(node):
    node.run("prolog.sh")
    for name in ("enabled", "defrag"):
        (node.sys / THP / name).write_text("always [madvise] never\n")
    assert node.run("epilog.sh") == ""
    assert node.thp() == "madvise"


def test_what_the_administrator_asks_for(node):
    node.run("prolog.sh", CIUIC_TUNE_PARTITIONS="cpu debug")
    assert node.thp() == "madvise"
    assert "bogus is not known" in node.run("prolog.sh", CIUIC_TUNE="numa governor swap bogus")
    assert node.thp() == "madvise"
    governors = node.sys.glob("devices/system/cpu/cpu*/cpufreq/scaling_governor")
    assert {path.read_text().strip() for path in governors} == {"performance"}
    assert (node.proc / "sys/kernel/numa_balancing").read_text().strip() == "0"
    assert (node.proc / "sys/vm/swappiness").read_text().strip() == "10"
    node.run("epilog.sh")
    assert (node.proc / "sys/vm/swappiness").read_text().strip() == "60"


def test_a_prolog_that_cannot_remember_changes_nothing(node):
    node.state.parent.mkdir(exist_ok=True)
    node.state.write_text("a file, not a directory")
    assert "nothing set" in node.run("prolog.sh")
    assert node.thp() == "madvise"


def test_without_root_it_says_so(node):
    if os.geteuid() != 0:
        pytest.skip("needs root to become somebody else")
    code = (
        "import encodings.ascii, os; from pathlib import Path\n"
        "from slurm.node.apply import apply; from slurm.node.settings import read_settings\n"
        "os.setuid(65534)\n"
        "print(*apply(read_settings(Path('sys'), Path('sys')), Path('open'), 'x'), sep='\\n')"
    )
    node.state.parent.chmod(0o755)
    (node.state.parent / "open").mkdir()
    (node.state.parent / "open").chmod(0o777)
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        cwd=node.state.parent,  # its parents are closed to others, what is held open is not
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert "Permission denied" in done.stdout
    assert node.thp() == "madvise"


def test_on_this_machine(real):
    real.run("prolog.sh")
    assert (real.thp(), real.thp("defrag")) == ("never", "never")
    found = {item.name: item.state for item in read_settings()}
    assert found["transparent_hugepage/enabled"] is State.OK
    real.run("epilog.sh")
    assert (real.thp(), real.thp("defrag")) == ("madvise", "defer")


def test_on_this_machine_with_a_kill_in_between(real):
    """Whoever applied dies without a word; the epilog of the job puts back."""
    code = (
        "import sys, time; from pathlib import Path\n"
        "from slurm.node.apply import apply; from slurm.node.settings import read_settings\n"
        "wanted = [s for s in read_settings() if s.name.startswith('transparent')]\n"
        "apply(wanted, Path(sys.argv[1]), '7'); print('applied', flush=True); time.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-P", "-c", code, str(real.state)], stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout.readline() == "applied\n"
        assert (real.thp(), real.thp("defrag")) == ("never", "never")
        child.send_signal(signal.SIGKILL)
    real.run("epilog.sh")
    assert (real.thp(), real.thp("defrag")) == ("madvise", "defer")


@pytest.mark.parametrize("delay_ms", range(0, 12, 1))
def test_on_this_machine_a_prolog_killed_anywhere(real, delay_ms):
    """SIGKILL at any moment of the prolog: after the epilog all is as it was."""
    environment = {"PATH": os.environ["PATH"], "SLURM_JOB_ID": "7", "CIUIC_TUNE_STATE": str(real.state)}
    with subprocess.Popen([NODE / "prolog.sh"], env=environment, start_new_session=True) as child:
        time.sleep(delay_ms / 1000)  # the moment of the blow, not a wait for something
        os.killpg(child.pid, signal.SIGKILL)
    real.run("epilog.sh")
    assert (real.thp(), real.thp("defrag")) == ("madvise", "defer")


def test_the_tmpfiles_syntax(tmp_path):
    tool = shutil.which("systemd-tmpfiles")
    lines = [line.split() for line in (NODE / "ciuic-thp.conf").read_text().splitlines()]
    rules = [line for line in lines if not line[0].startswith("#")]
    assert [(rule[0], Path(rule[1]).name, rule[-1]) for rule in rules] == [
        ("w-", "enabled", "never"),
        ("w-", "defrag", "never"),
    ]
    if tool is None:
        return
    (tmp_path / "sys" / THP).mkdir(parents=True)
    for name in ("enabled", "defrag"):
        (tmp_path / "sys" / THP / name).write_text("madvise\n")
    subprocess.run(
        [tool, "--create", f"--root={tmp_path}", str(NODE / "ciuic-thp.conf")], check=True, timeout=30
    )
    assert (tmp_path / "sys" / THP / "enabled").read_text().startswith("never")
