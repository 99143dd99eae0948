"""The settings of a node that cost training time when they are wrong: what is there, what is wanted. Reads only."""

import os
import re
import resource
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from slurm.node.machine import natural

_THP = Path("kernel/mm/transparent_hugepage")
_OPEN_FILES = 65_536
_SWAPPINESS = 10


class State(StrEnum):
    """ABSENT: this kernel or machine has no such setting. UNKNOWN: it cannot be read."""

    OK = "ok"
    WRONG = "wrong"
    ABSENT = "absent"
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True)
class Setting:
    """`paths` are where root writes `value`; none for limits, which come with the process."""

    name: str
    found: str
    wanted: str
    state: State
    why: str
    fix: str = ""
    value: str = ""
    paths: tuple[Path, ...] = ()


def read_settings(
    sys: Path = Path("/sys"), proc: Path = Path("/proc"), environment: Mapping[str, str] = os.environ
) -> list[Setting]:
    """All of them, of this node and this process."""
    return [
        *_huge_pages(sys),
        _one(
            "numa_balancing",
            proc / "sys/kernel/numa_balancing",
            "0",
            "it moves pages that are pinned to their GPU's side anyway",
        ),
        _one(
            "zone_reclaim_mode",
            proc / "sys/vm/zone_reclaim_mode",
            "0",
            "with it the page cache of a data set stalls allocations",
        ),
        _swappiness(proc),
        _governor(sys),
        _memlock(),
        _open_files(),
        _threads(environment),
    ]


def selected(text: str) -> str:
    """The value in force: of `always [madvise] never` the one in brackets."""
    found = re.search(r"\[([^\]]*)\]", text)
    return found.group(1) if found else text.strip()


def _huge_pages(sys: Path) -> Iterator[Setting]:
    """Both switches; and sizes that have a switch of their own which does not follow (kernel 6.8 and later)."""
    why = "the kernel compacts memory in the middle of steps"
    for name in ("enabled", "defrag"):
        yield _one(f"transparent_hugepage/{name}", sys / _THP / name, "never", why)
    sizes = sorted((sys / _THP).glob("hugepages-*kB/enabled"), key=lambda path: natural(path.parent.name))
    for path in sizes:
        item = _one(f"transparent_hugepage/{path.parent.name}", path, "never", why)
        if item.found != "inherit" and item.state is State.WRONG:
            yield item


def _one(name: str, path: Path, wanted: str, why: str) -> Setting:
    try:
        found = selected(path.read_text(encoding="ascii"))
    except FileNotFoundError:
        return Setting(name=name, found="", wanted=wanted, state=State.ABSENT, why=why)
    except (OSError, ValueError) as error:
        return Setting(name=name, found=f"({error})", wanted=wanted, state=State.UNKNOWN, why=why)
    right = found == wanted
    return Setting(
        name=name,
        found=found,
        wanted=wanted,
        state=State.OK if right else State.WRONG,
        why=why,
        fix="" if right else f"as root: echo {wanted} > {path}",
        value=wanted,
        paths=(path,),
    )


def _swappiness(proc: Path) -> Setting:
    path = proc / "sys/vm/swappiness"
    item = _one("swappiness", path, str(_SWAPPINESS), "swapped-out pages of a rank make all the others wait")
    low = item.found.isdecimal() and int(item.found) <= _SWAPPINESS
    if not low:
        return item
    return Setting(name=item.name, found=item.found, wanted=f"≤ {_SWAPPINESS}", state=State.OK, why=item.why)


def _governor(sys: Path) -> Setting:
    name, wanted, why = "cpu governor", "performance", "the launch of kernels waits for a sleepy core"
    paths = sorted((sys / "devices/system/cpu").glob("cpu[0-9]*/cpufreq/scaling_governor"), key=str)
    items = [_one(name, path, wanted, why) for path in paths]
    if not items:
        return Setting(name=name, found="", wanted=wanted, state=State.ABSENT, why=why)
    found = ", ".join(sorted({item.found for item in items}))
    wrong = tuple(path for item in items if item.state is State.WRONG for path in item.paths)
    state = State.WRONG if wrong else min((item.state for item in items), key=list(State).index)
    fix = f"as root: cpupower frequency-set -g {wanted}" if wrong else ""
    return Setting(
        name=name, found=found, wanted=wanted, state=state, why=why, fix=fix, value=wanted, paths=wrong
    )


def _memlock() -> Setting:
    soft, hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    right = soft == resource.RLIM_INFINITY
    return Setting(
        name="memlock limit",
        found=_limit(soft) + ("" if soft == hard else f" (hard {_limit(hard)})"),
        wanted="unlimited",
        state=State.OK if right else State.WRONG,
        why="RDMA pins its buffers",
        fix=""
        if right
        else "LimitMEMLOCK=infinity in slurmd.service, PropagateResourceLimitsExcept=MEMLOCK in slurm.conf",
    )


def _open_files() -> Setting:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    right = soft == resource.RLIM_INFINITY or soft >= _OPEN_FILES
    return Setting(
        name="open files limit",
        found=_limit(soft) + ("" if soft == hard else f" (hard {_limit(hard)})"),
        wanted=f"≥ {_OPEN_FILES}",
        state=State.OK if right else State.WRONG,
        why="loaders, sockets and shards all hold files open",
        fix=""
        if right
        else f"LimitNOFILE={_OPEN_FILES} in slurmd.service, PropagateResourceLimitsExcept=NOFILE in slurm.conf",
    )


def _threads(environment: Mapping[str, str]) -> Setting:
    """Where it is set, it is handed on to the workers; else they get 1."""
    name, wanted, why = (
        "OMP_NUM_THREADS",
        "1",
        "every rank starts so many threads, and all ranks share the cores",
    )
    found = environment.get(name, "")
    right = found in {"", wanted}
    return Setting(
        name=name,
        found=found or "not set: 1 for workers",
        wanted=wanted,
        state=State.OK if right else State.WRONG,
        why=why,
        fix="" if right else f"unset {name}, or set it in [job] environment to cores divided by ranks",
    )


def _limit(value: int) -> str:
    return "unlimited" if value == resource.RLIM_INFINITY else str(value)
