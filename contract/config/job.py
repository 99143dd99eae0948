"""[job] and [node]: what is asked of Slurm (or of this machine) and how each node is set up."""

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from contract.config.base import Section

# What Slurm takes as a name. No blanks, quotes or shell characters: refused here, not repaired later.
Word = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.,:@/+=-]*$")]
VariableName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
SbatchKey = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_-]*$")]
# A value of an sbatch option may hold blanks and quotes (it is quoted), but a newline would end the line.
SbatchValue = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f\x7f]*$")]
Mount = Annotated[str, StringConstraints(pattern=r"^/[^\s,:]*(:/[^\s,:]*)?$")]

OWNED_BY_US = frozenset(
    {
        "job_name",
        "comment",
        "dependency",
        "requeue",
        "no_requeue",
        "no_kill",
        "signal",
        "open_mode",
        "output",
        "error",
        "export",
        "nodes",
        "ntasks_per_node",
        "chdir",
        "array",
        "parsable",
        "wait",
    }
)


class Job(Section):
    executor: Literal["local", "slurm"] = "local"
    """`slurm` submits a job; `local` starts the same agents on this machine, without Slurm."""
    nodes: Annotated[int, Field(ge=1, le=100_000)] = 1
    """Nodes that train. With `local` each "node" is one agent process on this machine."""
    spare_nodes: Annotated[int, Field(ge=0, le=1000)] = 0
    """Extra nodes in the same allocation that stand in for a lost one without a new job."""
    gpus_per_node: Annotated[int, Field(ge=0, le=64)] = 0
    """GPUs asked for on each node; 0 trains on CPU."""
    ranks_per_node: Annotated[int, Field(ge=1, le=32)] = 1
    """Workers on each node, normally one per GPU. At most 32: their lines must fit the node's beat."""
    cpus_per_node: Annotated[int, Field(ge=0)] = 0
    """CPU cores asked for on each node; 0 leaves it to the partition."""
    time_limit_min: Annotated[int, Field(ge=1)] = 7 * 24 * 60
    """Time limit of one job, in minutes. A run that needs longer chains jobs by itself."""
    signal_before_limit_s: Annotated[int, Field(ge=10, le=65_000)] = 300
    """So many seconds before the limit the workers are told to save. Slurm may be 60 s early."""
    partition: Word = ""
    account: Word = ""
    qos: Word = ""
    exclude: list[Word] = Field(default_factory=list)
    """Nodes never to use, on top of those that the supervisor excludes on evidence."""
    image: str = ""
    """Container image to run in, with ciuic in it (`make image`): a .sqsh file or [USER@][REGISTRY#]NAME for pyxis, a
    .sif file for Apptainer; "" runs on the node itself."""
    container: Literal["pyxis", "apptainer"] = "pyxis"
    """What runs the image: Slurm's pyxis plugin (enroot), or `apptainer exec` in each task."""
    image_python: str = "/opt/ciuic/bin/python"
    """Python in the image that has ciuic; `make image` puts it there."""
    mounts: list[Mount] = Field(default_factory=list)
    """Further directories that the container sees, as "/path" or "/path:/path/inside". The run's, the data's and
    [node] stage are there already, under the same paths as outside."""
    sbatch: dict[SbatchKey, SbatchValue] = Field(default_factory=dict)
    """Further sbatch options, as `key = "value"`; the ones that ciuic sets itself are refused."""
    command: list[str] = Field(default_factory=list)
    """Program of each worker; empty means ciuic's trainer. It gets the usual RANK, WORLD_SIZE, MASTER_*."""
    warm: bool = True
    """Fork workers from a process that has the heavy imports loaded: a restart saves those seconds."""
    export: list[VariableName] = Field(default_factory=list)
    """Names of environment variables of the submitter that workers should see. Values are never written down."""
    environment: dict[VariableName, str] = Field(default_factory=dict)
    """Variables for the workers, with their values (no secrets: this file is copied)."""

    @property
    def world_size(self) -> int:
        """Workers in all."""
        return self.nodes * self.ranks_per_node

    def contradictions(self) -> list[str]:
        found = []
        if self.gpus_per_node and self.ranks_per_node > self.gpus_per_node:
            found.append(
                f"ranks_per_node: {self.ranks_per_node} workers for {self.gpus_per_node} GPUs; each worker needs one of its own"
            )
        if self.signal_before_limit_s >= self.time_limit_min * 60:
            found.append(
                f"signal_before_limit_s: {self.signal_before_limit_s} s is the whole time limit of {self.time_limit_min} min"
            )
        if self.image and self.executor == "local":
            found.append(
                'image: the local executor starts no container; use executor = "slurm", or start ciuic inside'
            )
        taken = sorted(key for key in self.sbatch if key.replace("-", "_") in OWNED_BY_US)
        found += [f"sbatch.{key}: ciuic sets this option itself; remove it" for key in taken]
        return found


class Node(Section):
    interface: str = ""
    """Network interface for the process group, for example `ib0`; "" chooses (`ciuic tune --explain` says which and why)."""
    preflight: bool = True
    """Look at each node before it trains (GPUs, strangers on them, memory, disks, the run directory, the clock); a node
    that is not fit leaves, with the reason."""
    compare_s: Annotated[float, Field(ge=0, le=600)] = 0.0
    """Before an attempt's first start each node is paired with two others (all-gather, matrix product); one that is
    slow, loses packets or computes wrongly leaves, with the reason. The most seconds that this may take (60 is enough;
    usually it takes about 15, most of it for torch's imports); 0: not done. On Slurm, from three nodes on, spares included."""
    bind_cpus: bool = True
    """Keep each worker on the CPUs on its GPU's side of the machine, as far as the job has them. Without GPUs, and where
    the machine does not tell, nothing is bound."""
    stage: str = ""
    """Directory on the node's own disk, for example `/nvme` or `$TMPDIR`: the data set is copied there while training
    runs, once a node, and read from there as far as it is there and right. "" copies nothing."""
    stage_gb: Annotated[float, Field(ge=0)] = 0.0
    """The most that all copies of this user take there, in GB (10⁹ bytes); 0: until 5 % of the disk is left."""
    metrics_port: Annotated[int, Field(ge=0, le=65_000)] = 0
    """Port of the node agent's Prometheus metrics; 0 serves none. Local "nodes" count up from it."""
    metrics_address: str = "127.0.0.1"
    """Address that it listens on; 0.0.0.0 when the Prometheus server is on another machine."""
