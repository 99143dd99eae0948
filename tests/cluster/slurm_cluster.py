"""A real Slurm on one machine: a controller and a few node daemons of Debian's packages, with own ports and own munge.

    python tests/cluster/slurm_cluster.py up            # ends with a line `export SLURM_CONF=…`
    python tests/cluster/slurm_cluster.py up --accounting  # with slurmdbd and a MariaDB of its own: sacct tells the past
    python tests/cluster/slurm_cluster.py kill-node n2  # the node daemon with its processes (--keep: the daemon only)
    python tests/cluster/slurm_cluster.py start-node n2
    python tests/cluster/slurm_cluster.py down

Processes are ended by pid, and only those that this cluster started. All "nodes" share one kernel and one /tmp.
"""

import argparse
import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # run by hand, with -P

from tests.cluster import accounting
from tests.cluster.accounting import Accounting

PROGRAMS = ("slurmctld", "slurmd", "sbatch", "squeue", "munged")
PACKAGES = "slurmctld slurmd slurm-client munge"
MARK = "CIUIC_TEST_NODE"
_BACK = "bring it back with: make slurm-start-node NODE="
_STARTED: list[subprocess.Popen[bytes]] = []  # so that nobody warns of processes that are meant to outlive us

CONF = """\
ClusterName=ciuic
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={directory}/munge/socket
CryptoType=crypto/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobAcctGatherType=jobacct_gather/none
{storage}
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=2,bf_interval=2
ReturnToService=2
KillWait=5
SlurmdTimeout=30
MinJobAge={min_job_age}
UnkillableStepTimeout=20
MailProg=/bin/true
StateSaveLocation={directory}/state
SlurmdSpoolDir={directory}/spool/%n
SlurmctldPidFile={directory}/slurmctld.pid
SlurmdPidFile={directory}/slurmd-%n.pid
SlurmctldLogFile={directory}/slurmctld.log
SlurmdLogFile={directory}/slurmd-%n.log
Prolog={directory}/prolog.sh
GresTypes=gpu
{nodes}
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP PreemptMode=OFF
PartitionName=spot Nodes=ALL MaxTime=INFINITE State=UP PreemptMode=REQUEUE
PartitionName=scavenge Nodes=ALL MaxTime=INFINITE State=UP PreemptMode=CANCEL
PartitionName=urgent Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=10 PreemptMode=OFF
"""

PROLOG = """\
#!/bin/sh
# A file named fail-<node> makes the prolog of that node fail, as a broken disk or GPU would.
[ ! -e "{directory}/fail-$SLURMD_NODENAME" ]
"""


def missing_programs(programs: Iterable[str] = PROGRAMS) -> list[str]:
    """What must be installed first; empty when everything is there."""
    return [name for name in programs if shutil.which(name, path=_path()) is None]


def _user() -> str:
    return subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip()


def _path() -> str:
    return os.environ.get("PATH", "") + ":/usr/sbin:/sbin"


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        found = []
        for _ in range(count):
            listener = stack.enter_context(socket.socket())
            listener.bind(("127.0.0.1", 0))
            found.append(listener.getsockname()[1])
        return found


def wait_until(condition: Callable[[], object], seconds: float, what: str) -> None:
    """Poll until it holds; an error names what did not come about."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {seconds:g} s")
        time.sleep(0.05)


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """One cluster in one directory; everything about it can be rebuilt from there."""

    directory: Path

    @property
    def conf(self) -> Path:
        return self.directory / "slurm.conf"

    @property
    def nodes(self) -> list[str]:
        text = self.conf.read_text()
        return [
            line.split()[0].partition("=")[2] for line in text.splitlines() if line.startswith("NodeName=")
        ]

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "SLURM_CONF": str(self.conf), "PATH": _path()}

    def run(self, *command: str, check: bool = True) -> str:
        """A Slurm client's output."""
        done = subprocess.run(
            command, env=self.environment, capture_output=True, text=True, timeout=60, check=False
        )
        if check and done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.returncode}: {done.stderr.strip()}")
        return done.stdout.strip()

    # starting

    def up(
        self,
        nodes: int = 4,
        cpus: int = 4,
        gpus: int = 2,
        *,
        accounted: bool = False,
        min_job_age_s: int = 120,
    ) -> None:
        """Write the configuration, start munge, controller and node daemons, and wait until all nodes are idle.

        `accounted`: with a database and slurmdbd before them.
        """
        for name in ("state", "spool", "munge"):
            (self.directory / name).mkdir(parents=True, exist_ok=True)
        storage = self._write_accounting() if accounted else "AccountingStorageType=accounting_storage/none"
        self._write(nodes, cpus, gpus, storage=storage, min_job_age=min_job_age_s)
        self._start_munge()
        if accounted:
            self._start_database()
            self.start_accounting()
            self.run("sacctmgr", "--immediate", "add", "cluster", "ciuic")
        self.start_controller()
        for node in self.nodes:
            self.start_node(node)
        wait_until(lambda: self._idle() == set(self.nodes), 60, f"idle nodes (see {self.directory}/*.log)")

    def _write(self, nodes: int, cpus: int, gpus: int, *, storage: str, min_job_age: int) -> None:
        controller, *ports = _free_ports(nodes + 1)
        host = socket.gethostname().split(".")[0]
        lines = [
            f"NodeName=n{index} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} "
            f"CPUs={cpus} RealMemory=2000 Gres=gpu:{gpus}"
            for index, port in enumerate(ports, start=1)
        ]
        self.conf.write_text(
            CONF.format(
                host=host,
                port=controller,
                user=_user(),
                directory=self.directory,
                nodes="\n".join(lines),
                storage=storage,
                min_job_age=min_job_age,
            )
        )
        # Device files that exist everywhere stand for GPUs; nothing opens them.
        devices = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random"][:gpus]
        (self.directory / "gres.conf").write_text("".join(f"Name=gpu File={device}\n" for device in devices))
        prolog = self.directory / "prolog.sh"
        prolog.write_text(PROLOG.format(directory=self.directory))
        prolog.chmod(0o755)

    def _start_munge(self) -> None:
        home = self.directory / "munge"
        key = home / "key"
        if not key.exists():
            key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o400)
        home.chmod(0o755)
        self._spawn(
            "munged",
            "munged",
            "--force",
            f"--key-file={key}",
            f"--socket={home}/socket",
            f"--pid-file={home}/pid",
            f"--log-file={home}/log",
            f"--seed-file={home}/seed",
            "--foreground",
        )
        wait_until((home / "socket").exists, 20, "munge's socket")

    def _write_accounting(self) -> str:
        """The accounting's files; returns its lines for slurm.conf."""
        port, storage_port = _free_ports(2)
        Accounting(directory=self.directory).write(user=_user(), port=port, storage_port=storage_port)
        return accounting.STORAGE.format(port=port, directory=self.directory)

    def _start_database(self) -> None:
        database = Accounting(directory=self.directory)
        port = database.storage_port
        self._spawn("mariadbd", *database.database_command(user=_user(), storage_port=port))
        wait_until(lambda: _listens(port), 60, f"the database (see {self.directory}/mariadbd.out)")

    def start_accounting(self) -> None:
        self._spawn("slurmdbd", "slurmdbd", "-D")
        wait_until(self._accounting_answers, 60, f"slurmdbd (see {self.directory}/slurmdbd.log)")

    def _accounting_answers(self) -> bool:
        done = subprocess.run(
            ["sacctmgr", "-n", "list", "cluster"],
            env=self.environment,
            capture_output=True,
            timeout=60,
            check=False,
        )
        return done.returncode == 0

    def stop_accounting(self) -> None:
        """slurmdbd only; the controller keeps what it has to tell it, and sacct gets no answer."""
        self._end("slurmdbd")

    def start_controller(self) -> None:
        self._spawn("slurmctld", "slurmctld", "-D", "-f", str(self.conf))
        wait_until(lambda: "UP" in self.run("scontrol", "ping", check=False), 30, "the controller")

    def start_node(self, node: str) -> None:
        self._spawn(f"slurmd-{node}", "slurmd", "-D", "-f", str(self.conf), "-N", node, mark=node)

    def _spawn(self, name: str, *command: str, mark: str = "") -> None:
        environment = {**self.environment, **({MARK: f"{self.directory}:{mark}"} if mark else {})}
        with (self.directory / f"{name}.out").open("ab") as output:
            process = subprocess.Popen(
                command,
                env=environment,
                stdout=output,
                stderr=output,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                cwd=self.directory,
            )
        _STARTED.append(process)
        (self.directory / f"{name}.started").write_text(str(process.pid))

    def _idle(self) -> set[str]:
        rows = self.run("sinfo", "-h", "-N", "-o", "%N %T", check=False).splitlines()
        return {row.split()[0] for row in rows if row.endswith(" idle")}

    # faults

    def stop_controller(self) -> None:
        self._end("slurmctld")

    def kill_node(self, node: str, *, keep: bool = False) -> None:
        """SIGKILL the node daemon; unless `keep`, also its step daemons and tasks, as a power cut would."""
        self._end(f"slurmd-{node}", signal.SIGKILL)
        if not keep:
            self.kill_processes(node)

    def kill_processes(self, node: str) -> None:
        """SIGKILL what still runs on a node (the zombies that `keep` left)."""
        # All at once, as a power cut: who is left for a moment would tell the others.
        for pid in list(self._processes_of(node)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _processes_of(self, node: str) -> Iterator[int]:
        """Step daemons carry our mark from the node daemon; tasks carry Slurm's own name of node and of this cluster."""
        mark = f"{MARK}={self.directory}:{node}".encode()
        name, conf = f"SLURMD_NODENAME={node}".encode(), f"SLURM_CONF={self.conf}".encode()
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            try:
                variables = set((entry / "environ").read_bytes().split(b"\0"))
            except OSError:
                continue
            if mark in variables or {name, conf} <= variables:
                yield int(entry.name)

    def fail_prolog(self, node: str, *, fail: bool = True) -> None:
        flag = self.directory / f"fail-{node}"
        flag.touch() if fail else flag.unlink(missing_ok=True)

    def heal(self) -> None:
        """Every node daemon runs again, every node is idle, and nobody's job is left."""
        self.run("scancel", "--user", _user(), check=False)
        for node in self.nodes:
            if not self.node_runs(node):
                self.kill_processes(node)
                self.start_node(node)

        began = time.monotonic()

        def idle() -> bool:
            rows = self.run("sinfo", "-h", "-N", "-o", "%N %T", check=False).splitlines()
            for row in rows:
                name, _, state = row.partition(" ")
                if state.startswith(("drain", "down")):
                    self._set_node(name, "resume")
                elif state.startswith("completing") and time.monotonic() - began > 3:
                    # A node that was dead is told of its job's end once a minute only; "down" forgets the job.
                    self._set_node(name, "down")
            return self._idle() == set(self.nodes)

        wait_until(idle, 90, f"idle nodes after the test (see {self.directory}/*.log)")

    def heal_drained(self) -> None:
        """Put back into service what Slurm has drained."""
        rows = self.run("sinfo", "-h", "-N", "-o", "%N %T").splitlines()
        for name in [row.split()[0] for row in rows if "drain" in row]:
            self._set_node(name, "resume")

    def _set_node(self, node: str, state: str) -> None:
        self.run("scontrol", "update", f"nodename={node}", f"state={state}", "reason=test", check=False)

    def node_runs(self, node: str) -> bool:
        return self._daemon_runs(f"slurmd-{node}")

    def _daemon_runs(self, name: str) -> bool:
        started = self.directory / f"{name}.started"
        return started.exists() and _runs(int(started.read_text()), name.partition("-")[0])

    @property
    def lives(self) -> bool:
        """Whether a daemon of it runs: then somebody's jobs may."""
        daemons = ["slurmctld", *(f"slurmd-{node}" for node in self.nodes)] if self.conf.exists() else []
        return any(self._daemon_runs(name) for name in daemons)

    def report(self, *, accounted: bool) -> list[str]:
        """What whoever asks for a cluster needs to know of the one that is up; the last line is to be copied."""
        lines = ["a cluster is up already; it and its jobs are left as they are (make slurm-down ends them)"]
        lines += [f"{node} is down; {_BACK}{node}" for node in self.nodes if not self.node_runs(node)]
        if not self._daemon_runs("slurmctld"):
            lines.append("its controller does not run: make slurm-down, then make slurm-up")
        if accounted and not self._daemon_runs("slurmdbd"):
            lines.append("it has no accounting: make slurm-down, then make slurm-up ACCOUNTING=1")
        return [*lines, f"export SLURM_CONF={self.conf}"]

    # stopping

    def down(self) -> None:
        """End everything that this cluster started."""
        for node in self.nodes if self.conf.exists() else []:
            self.kill_node(node)
        for name in ("slurmctld", "slurmdbd", "mariadbd", "munged"):
            self._end(name)

    def _end(self, name: str, number: signal.Signals = signal.SIGTERM) -> None:
        started = self.directory / f"{name}.started"
        if not started.exists():
            return
        pid = int(started.read_text())
        program = name.partition("-")[0]
        if _runs(pid, program):
            os.kill(pid, number)
            deadline = time.monotonic() + 15
            while _runs(pid, program):
                for process in _STARTED:
                    process.poll()
                if time.monotonic() > deadline:
                    os.kill(pid, signal.SIGKILL)
                time.sleep(0.02)
        started.unlink()


def _listens(port: int) -> bool:
    with socket.socket() as client:
        client.settimeout(1)
        return client.connect_ex(("127.0.0.1", port)) == 0


def _runs(pid: int, program: str) -> bool:
    """Whether this pid is (still) that program: a number may have been given to another process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    name, _, rest = stat.partition("(")[2].rpartition(")")
    return name.startswith(program[:15]) and rest.split()[0] != "Z"


def default_directory() -> Path:
    """Where `make slurm-up` keeps its cluster; one per user."""
    return Path(tempfile.gettempdir()) / f"ciuic-slurm-{os.getuid()}"


def main() -> int:
    """The command line that the Makefile calls."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("action", choices=["up", "down", "kill-node", "start-node"])
    parser.add_argument("node", nargs="?", default="")
    parser.add_argument("--keep", action="store_true", help="leave the node's processes alive")
    parser.add_argument("--accounting", action="store_true", help="up: with slurmdbd and MariaDB")
    options = parser.parse_args()
    missing = missing_programs((*PROGRAMS, *(accounting.PROGRAMS if options.accounting else ())))
    if missing:
        packages = f"{PACKAGES} {accounting.PACKAGES}" if options.accounting else PACKAGES
        print(f"missing: {', '.join(missing)}; on Debian: apt-get install {packages}", file=sys.stderr)
        return 1
    cluster = Cluster(directory=default_directory())
    if options.action in {"kill-node", "start-node"} and (
        not cluster.conf.exists() or options.node not in cluster.nodes
    ):
        known = " ".join(cluster.nodes) if cluster.conf.exists() else "none: make slurm-up first"
        print(f"NODE={options.node or '?'}: no such node; there are: {known}", file=sys.stderr)
        return 2
    match options.action:
        case "up" if cluster.lives:
            print("\n".join(cluster.report(accounted=options.accounting)))
        case "up":
            cluster.down()
            shutil.rmtree(cluster.directory, ignore_errors=True)
            cluster.up(accounted=options.accounting)
            print(cluster.run("sinfo"))
            print(f"export SLURM_CONF={cluster.conf}")
        case "down":
            cluster.down()
            shutil.rmtree(cluster.directory, ignore_errors=True)
        case "kill-node":
            what = "its daemon" if options.keep else "its daemon and all that ran there"
            ran = cluster.node_runs(options.node)
            cluster.kill_node(options.node, keep=options.keep)
            print(f"{options.node}: {f'killed {what}' if ran else 'was down already'}; {_BACK}{options.node}")
        case "start-node" if cluster.node_runs(options.node):
            print(f"{options.node}: runs already")
        case "start-node":
            cluster.start_node(options.node)
            print(f"{options.node}: started; `sinfo` shows it idle in a few seconds")
    return 0


if __name__ == "__main__":
    sys.exit(main())
