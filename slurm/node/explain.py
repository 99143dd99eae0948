"""The choice of a node's network and its settings in words for people. Pure."""

from collections.abc import Sequence

from rich.cells import cell_len, set_cell_size

from slurm.node.chinese import NODE
from slurm.node.choose import Choice
from slurm.node.settings import Setting, State


def summary(choice: Choice, to: str = "en") -> list[str]:
    """What is exported, and the one sentence that says why, in the language `to`."""
    exported = [f"{name}={value}" for name, value in choice.variables().items()]
    what = ", ".join([*exported, f"address {choice.address}"]) if choice.ok else "none usable"
    return [NODE.told(f"network: {what}", to), f"  {NODE.told(choice.reason, to)}"]


def story(choice: Choice, to: str = "en") -> list[str]:
    """The summary, then everything that was not taken and why."""
    lines = summary(choice, to)
    if choice.undecided:
        names = ", ".join((choice.interface, *choice.undecided))
        lines.append("  " + NODE.told(f"undecided until probed: {names}", to))
    if choice.rejected:
        width = max(len(item.name) for item in choice.rejected)
        lines.append(NODE.told("not taken:", to))
        lines += [f"  {item.name:<{width}}  {NODE.told(item.why, to)}" for item in choice.rejected]
    return lines


def table(settings: Sequence[Setting], to: str = "en") -> list[str]:
    """Rows for people: setting, found, wanted, whether it is right or how to make it so."""
    rows = [("setting", "found", "wanted", "")]
    for item in settings:
        last = {
            State.OK: "ok",
            State.WRONG: f"{item.fix or 'wrong'} ({item.why})",
            State.ABSENT: "not on this machine",
            State.UNKNOWN: "cannot be read",
        }[item.state]
        rows.append((item.name, item.found or "-", item.wanted, last))
    told = [[NODE.told(cell, to) for cell in row] for row in rows]
    widths = [max(cell_len(row[column]) for row in told) for column in range(3)]
    return [
        "  ".join(
            [*(set_cell_size(cell, width) for cell, width in zip(row[:3], widths, strict=True)), row[3]]
        ).rstrip()
        for row in told
    ]
