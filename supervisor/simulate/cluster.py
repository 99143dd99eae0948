"""The nodes: which are up, which are in repair, and which of them Slurm gives to a new job."""

from itertools import count

from supervisor.core.placement import affordable


class Cluster:
    """Nodes by name. `size` 0: there is always another node, as in a partition much larger than the job.

    `share`: at most so much of the partition may be excluded.
    """

    def __init__(self, size: int, share: float = 1.0) -> None:
        self._size, self._share = size, share
        self._back_at: dict[str, float] = {}

    def lose(self, node: str, back_at: float) -> None:
        """The node is in repair until then."""
        self._back_at[node] = max(back_at, self._back_at.get(node, 0.0))

    def in_repair(self, now: float) -> int:
        return sum(at > now for at in self._back_at.values())

    def allocate(self, wanted: int, exclude: tuple[str, ...], now: float) -> tuple[tuple[str, ...], float]:
        """So many nodes, and the time (s) that must pass until they are up. The lowest numbers first, as Slurm does.

        No nodes when what is not excluded can never hold the job.
        """
        self._back_at = {node: at for node, at in self._back_at.items() if at > now}
        left_out = self._left_out(wanted, exclude)
        found: list[str] = []
        later: list[tuple[float, str]] = []
        for number in range(self._size) if self._size else count():
            node = f"n{number}"
            if node in left_out:
                continue
            if node in self._back_at:
                later.append((self._back_at[node], node))
                continue
            found.append(node)
            if len(found) == wanted:
                return tuple(found), 0.0
        missing = sorted(later)[: wanted - len(found)]
        if len(found) + len(missing) < wanted:
            return (), 0.0
        chosen = (*found, *(node for _, node in missing))
        return tuple(sorted(chosen, key=_number)), missing[-1][0] - now

    def _left_out(self, wanted: int, exclude: tuple[str, ...]) -> frozenset[str]:
        """What the shell keeps of an exclusion: never so much that the job cannot start."""
        if not self._size:
            return frozenset(exclude)
        known = frozenset(f"n{number}" for number in range(self._size))
        return frozenset(affordable(exclude, known - self._back_at.keys(), known, wanted, self._share))


def _number(node: str) -> int:
    return int(node[1:])
