"""Slurm: its clients and its controller; the settings are judged in `slurm_settings`."""

import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from contract.config import RunConfig
from supervisor.doctor.finding import Finding, State, ok, skipped
from supervisor.doctor.slurm_settings import judge_settings

_CLIENTS = ("sbatch", "squeue", "scontrol", "scancel", "sinfo")
_OLDEST = (20, 11)
_ASK_S = 12.0  # a client gives up on a silent controller after about nine


@dataclass(frozen=True, kw_only=True)
class SlurmSeen:
    """`config`: `scontrol show config` by name; None when the controller did not answer, then `problem` says how."""

    missing: tuple[str, ...] = ()
    version: str = ""
    config: Mapping[str, str] | None = None
    problem: str = ""


def measure_slurm(which: Callable[[str], str | None] = shutil.which) -> SlurmSeen:
    """Ask the clients; two calls, each with a limit."""
    missing = tuple(name for name in _CLIENTS if which(name) is None)
    if "scontrol" in missing:
        return SlurmSeen(missing=missing)
    version, _ = _ask("scontrol", "--version")
    text, problem = _ask("scontrol", "show", "config")
    return SlurmSeen(
        missing=missing,
        version=version.strip(),
        config=None if problem else parse_config(text),
        problem=problem,
    )


def probe_slurm(config: RunConfig | None) -> list[Finding]:
    """What concerns this recipe, or, without one, any that will be run."""
    if config is not None and config.job.executor != "slurm":
        return [
            skipped("slurm.clients", f"this recipe runs with executor {config.job.executor}: no Slurm needed")
        ]
    return judge_slurm(measure_slurm(), config)


def parse_config(text: str) -> dict[str, str]:
    """`Name = value` lines; names of plugins' sections are read like the others."""
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line)
    return {name.strip(): value.strip() for name, _, value in pairs}


def judge_slurm(seen: SlurmSeen, config: RunConfig | None) -> list[Finding]:
    """What the settings mean for a run; all is said as a warning when no recipe asks for Slurm."""
    needed = config is not None and config.job.executor == "slurm"
    if len(seen.missing) == len(_CLIENTS) and not needed:
        return [skipped("slurm.clients", "no Slurm here; runs with executor local need none")]
    if seen.missing:
        return [
            Finding(
                id="slurm.clients",
                state=State.FAIL,
                what=f"missing: {', '.join(seen.missing)}",
                why="runs are submitted, watched and ended through Slurm's clients",
                fix="install them where the supervisor runs (Debian: apt-get install slurm-client), or put them into PATH",
            )
        ]
    found = [ok("slurm.clients", "all there"), *([_version(seen.version)] if seen.version else [])]
    if seen.config is None:
        return [
            *found,
            Finding(
                id="slurm.controller",
                state=State.FAIL if needed else State.WARN,
                what=f"does not answer: {seen.problem}",
                why="no run with executor slurm can be submitted; a supervisor that hears nothing does nothing",
                fix="set SLURM_CONF, start munge, check that this host may talk to the controller",
            ),
        ]
    found.append(
        ok("slurm.controller", f"answers ({seen.config.get('ClusterName', 'a cluster without a name')})")
    )
    return [*found, *judge_settings(seen.config, config)]


def _version(text: str) -> Finding:
    numbers = re.search(r"(\d+)\.(\d+)", text)
    if numbers is None or (int(numbers[1]), int(numbers[2])) >= _OLDEST:
        return ok("slurm.version", text)
    return Finding(
        id="slurm.version",
        state=State.WARN,
        what=text,
        why="ciuic is tested with 22.05; nothing is known about versions before 20.11",
        fix="try a small run with a killed node first, or upgrade Slurm",
    )


def _ask(*command: str) -> tuple[str, str]:
    """(what it printed, "") or ("", the problem)."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=_ASK_S, check=False
        )
    except subprocess.TimeoutExpired:
        return "", f"{command[0]} did not answer within {_ASK_S:g} s"
    except OSError as error:
        return "", str(error)
    if done.returncode:
        return "", (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    return done.stdout, ""
