"""`ciuic simulate`: what a cluster's faults cost a run that this supervisor watches. Touches no run."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from contract.options import Lang

_LAW = "seconds, or a law as in lognormal:60,0.5 (median, sigma)"

Config = Annotated[
    Path | None, typer.Argument(help="run.toml whose nodes, spares, limits and policy are simulated.")
]
Name = Annotated[str, typer.Option("--preset", help="Scenario to begin with; --list names them.")]
Show = Annotated[bool, typer.Option("--list", help="The presets, with their sources.")]
Days = Annotated[float | None, typer.Option(help="Days to simulate.")]
Nodes = Annotated[int | None, typer.Option(help="Nodes that train.")]
Gpus = Annotated[int | None, typer.Option(help="GPUs of a node (for GPU-hours).")]
Rate = Annotated[float | None, typer.Option(help="Failures per 1,000 node-days.")]
Mtbf = Annotated[float | None, typer.Option(metavar="HOURS", help="Hours between failures of the job.")]
Trace = Annotated[Path | None, typer.Option(help="Faults from a file: CSV `seconds[,kind]` or a JSON list.")]
Interval = Annotated[
    str, typer.Option(help="Training between two saves (s); auto: the best; config: run.toml's.")
]
Cost = Annotated[float | None, typer.Option(help="Standstill of a save (s).")]
Detect = Annotated[
    str, typer.Option(help=f"Until a crash, lost node or hang is known: {_LAW}; auto: as judged.")
]
HangDetect = Annotated[str, typer.Option(help="The same, for hangs.")]
HangShare = Annotated[float | None, typer.Option(help="Share of faults that are hangs, 0 to 1.")]
Restart = Annotated[str, typer.Option(help=f"Restart in place: {_LAW}.")]
Start = Annotated[str, typer.Option(help=f"Cold start of a new job: {_LAW}.")]
Load = Annotated[str, typer.Option(help=f"Loading of a checkpoint: {_LAW}.")]
Queue = Annotated[str, typer.Option(help=f"Wait of a new job in the queue: {_LAW}.")]
Spares = Annotated[int | None, typer.Option(help="Spare nodes in the job.")]
Cluster = Annotated[int | None, typer.Option(help="Nodes of the partition; 0: always enough.")]
Repair = Annotated[str, typer.Option(help="Until a lost node is back: hours, or a law in seconds.")]
Lemons = Annotated[int | None, typer.Option(help="Nodes that fail far more often.")]
Assign = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Any key of the scenario, or of run.toml's policy sections."
    ),
]
Replicas = Annotated[int, typer.Option(min=1, max=1000, help="Repetitions with other random numbers.")]
Seed = Annotated[int, typer.Option(help="The same seed gives the same result.")]
Sensitivity = Annotated[bool, typer.Option("--sensitivity", help="What one changed number does.")]
Json = Annotated[bool, typer.Option("--json", help="Facts for programs.")]


def simulate(  # noqa: PLR0913, PLR0917 - an option each
    config: Config = None,
    preset: Name = "slurm-default",
    show: Show = False,
    days: Days = None,
    nodes: Nodes = None,
    gpus_per_node: Gpus = None,
    rate: Rate = None,
    mtbf: Mtbf = None,
    trace: Trace = None,
    checkpoint_interval: Interval = "",
    checkpoint_cost: Cost = None,
    detect: Detect = "",
    hang_detect: HangDetect = "",
    hang_share: HangShare = None,
    restart: Restart = "",
    start: Start = "",
    load: Load = "",
    queue: Queue = "",
    spares: Spares = None,
    cluster: Cluster = None,
    repair: Repair = "",
    lemons: Lemons = None,
    assign: Assign = None,
    replicas: Replicas = 3,
    seed: Seed = 1,
    sensitivity: Sensitivity = False,
    as_json: Json = False,
    lang: Lang = "",
) -> None:
    """What faults cost: a cluster of this kind, simulated with the supervisor's own decisions."""
    if show:
        _list(as_json=as_json)
        return
    told = {
        "days": days,
        "nodes": nodes,
        "gpus_per_node": gpus_per_node,
        "rate": rate,
        "mtbf_h": mtbf,
        "interval": checkpoint_interval,
        "checkpoint_cost": checkpoint_cost,
        "hang_share": hang_share,
        "restart": restart,
        "start": start,
        "load": load,
        "queue": queue,
        "spares": spares,
        "cluster": cluster,
        "lemons": lemons,
    }
    options = {key: value for key, value in told.items() if value not in {None, ""}}
    found, scenario = _scenario(
        preset, config, lambda: options | _more(detect, hang_detect, repair, trace, options), assign or []
    )
    _run(found, scenario, replicas, seed, {"sensitivity": sensitivity, "json": as_json}, lang)


def _more(detect: str, hang: str, repair: str, trace: Path | None, options: dict[str, Any]) -> dict[str, Any]:
    """Options that stand for more than one key, or in another unit."""
    from supervisor.simulate.scenario import DAY_S, HOUR_S
    from supervisor.simulate.told import read_trace

    found: dict[str, Any] = {}
    times = dict.fromkeys(("crash", "node", "hang"), detect) if detect else {}
    times |= {"hang": hang} if hang else {}
    if times:
        found["detect"] = times
    if repair:
        try:
            found["repair"] = float(repair) * HOUR_S
        except ValueError:
            found["repair"] = repair
    if {"rate", "mtbf_h"} & options.keys():  # told here: whatever else the preset says of when faults come
        found |= {"stops": 0, "mtbf_h": options.get("mtbf_h", 0.0)}
    if trace is not None:
        arrivals = read_trace(trace)
        found |= {"trace": arrivals, "stops": 0}
        if "days" not in options:
            found["days"] = max(max(item.at_s for item in arrivals) / DAY_S, 1 / 24)
    return found


def _scenario(
    name: str, config: Path | None, options: Callable[[], dict[str, Any]], assign: list[str]
) -> tuple[Any, Any]:
    """Preset and scenario; exit 2 with the reason when there is none."""
    from supervisor.simulate.told import ScenarioError, find_preset, scenario_of

    try:
        preset = find_preset(name)
        return preset, scenario_of(preset.scenario, config, options(), assign)
    except ScenarioError as error:
        typer.echo(f"simulate: {error}", err=True)
        raise typer.Exit(error.exit_code) from None


def _run(preset: Any, scenario: Any, replicas: int, seed: int, wanted: dict[str, bool], lang: str) -> None:
    from contract.language import language
    from supervisor.simulate.render import lines
    from supervisor.simulate.results import advice, facts, sensitivity, simulate

    result = simulate(scenario, replicas=replicas, seed=seed)
    found = facts(result)
    changes = sensitivity(result) if wanted["sensitivity"] else ()
    if wanted["json"]:
        about = {"preset": preset.name, "published": preset.published, "sources": list(preset.sources)}
        told = [
            {"what": item.what, "ettr": round(item.ettr, 6), "gain": round(item.gain, 6)} for item in changes
        ]
        typer.echo(json.dumps({**about, **found, "sensitivity": told}, ensure_ascii=False))
        return
    found["bottleneck"]["what"] = advice(result, language(lang))
    for line in lines(found, changes, preset.published, language(lang)):
        typer.echo(line)


def _list(*, as_json: bool) -> None:
    from dataclasses import asdict

    from supervisor.simulate.presets import presets
    from supervisor.simulate.render import catalogue

    known = presets().values()
    if as_json:
        typer.echo(
            json.dumps({"version": 1, "presets": [asdict(item) for item in known]}, ensure_ascii=False)
        )
        return
    for line in catalogue(known):
        typer.echo(line)
