"""The choice of a node's network in words for people. Pure."""

from slurm.node.choose import Choice


def summary(choice: Choice) -> list[str]:
    """What is exported, and the one sentence that says why."""
    exported = [f"{name}={value}" for name, value in choice.variables().items()]
    first = "network: " + (
        ", ".join([*exported, f"address {choice.address}"]) if choice.ok else "none usable"
    )
    return [first, f"  {choice.reason}"]


def story(choice: Choice) -> list[str]:
    """The summary, then everything that was not taken and why."""
    lines = summary(choice)
    if choice.undecided:
        lines.append(f"  undecided until probed: {', '.join((choice.interface, *choice.undecided))}")
    if choice.rejected:
        width = max(len(item.name) for item in choice.rejected)
        lines += ["not taken:", *(f"  {item.name:<{width}}  {item.why}" for item in choice.rejected)]
    return lines
