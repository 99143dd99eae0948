"""How this node meets the others: its network, the port that it holds for rank 0, the probe, and the comparison."""

import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from contract.beat import Beat
from contract.config import RunConfig
from contract.layout import AttemptDir
from slurm.agent.common_network import addresses, agreement, facts, gone, network_of, over, rivals, towards
from slurm.agent.compare import Comparison
from slurm.agent.identity import Identity
from slurm.agent.network import Link, hold_port
from slurm.agent.probing import Probing
from slurm.node.agree import Agreement
from slurm.node.probe import Sink, fastest


class Meeting:
    """`link` is this node's way to the others, as far as it is known."""

    def __init__(
        self,
        place: AttemptDir,
        config: RunConfig,
        me: Identity,
        environment: Mapping[str, str],
        link: Link,
        *,
        tell: Callable[[str], None],
        note: Callable[[str], None],
    ) -> None:
        """`tell`: log and beat; `note`: the log only."""
        self.link = link
        self.comparison = Comparison(place, config, me, environment, tell)
        self._me, self._tell, self._note = me, tell, note
        self._listener: socket.socket | None = None
        self._sink: Sink | None = None
        self._probing: Probing | None = None
        self._said = ""
        if where := addresses(link):
            self._sink = Sink(where)

    @property
    def port(self) -> int:
        """The port that we hold, 0 while we hold none."""
        return 0 if self._listener is None else int(self._listener.getsockname()[1])

    def hold(self) -> None:
        """Hold a port on our link, a new one."""
        self.let_go()
        self._listener = hold_port(self.link)

    def let_go(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    def hand_over(self) -> socket.socket | None:
        """The socket that holds the port: whoever gets it closes it."""
        found, self._listener = self._listener, None
        return found

    def facts(self) -> dict[str, Any]:
        """For the beat, until the start."""
        return facts(self.link, {} if self._sink is None else self._sink.ports)

    def look(self, now: float, peers: Mapping[str, Beat]) -> None:
        """One turn of the comparison."""
        heard = {node for node, beat in peers.items() if beat.health.get("comparison", {}).get("began")}
        self.comparison.look(now, self.link, heard)

    def compare(self, nodes: Sequence[str], peers: Mapping[str, Beat]) -> None:
        """Call these nodes to be compared, once the network is known."""
        if not self.comparison.called and self.agree(nodes, peers):
            self.comparison.call(nodes, hold_port(self.link), self.link)

    def agree(self, members: Sequence[str], peers: Mapping[str, Beat]) -> bool:
        """Take the network that these have in common; False while a probe is on its way."""
        known = {node: beat.health.get("network", {}) for node, beat in peers.items()}
        published = {node: (known | {self._me.node: self.facts()}).get(node, {}) for node in members}
        found = agreement(published)
        if found is None or not self.link.usable:
            return True
        between = rivals(found, self.link)
        if between and (self._probing is None or self._probing.networks != between):
            others = {node: its for node, its in published.items() if node != self._me.node}
            self._probing = Probing(self.link, between, others)
        if between and self._probing is not None and self._probing.results is None:
            return False
        link = self._decided(found, between)
        if link.address != self.link.address:
            self.link = link
            self.hold()
        self.link = link
        return True

    def start(self, master: str) -> str:
        """Our way to the master. Why it cannot be gone any more, "" when it can."""
        link, odd = towards(self.link, master)
        if why := gone(link):
            return why
        if odd:
            self._tell(odd)
        self.link = link
        self.end()
        return ""

    def end(self) -> None:
        """Nothing more is found out about networks and nodes."""
        self.comparison.end()
        if self._sink is not None:
            self._sink.close()
            self._sink = None

    def _decided(self, found: Agreement, between: Sequence[Any]) -> Link:
        if found.network is None or not between:
            self._say(found.reason)
            return self.link if found.network is None else over(self.link, found.network)
        assert self._probing is not None
        assert self._probing.results is not None
        measured = {str(network): what for network, what in self._probing.results.items()}
        standing = network_of(self.link, between) if self.link.fixed else found.network
        best, why = fastest(measured, str(standing))
        if self.link.fixed and best != str(standing):
            self._flag(f"{self.link.interface} is set and obeyed, though {why}")
        else:
            self._say(f"{found.reason}: {why}")
        return over(self.link, next(network for network in between if str(network) == best))

    def _say(self, text: str) -> None:
        if text and text != self._said and not self.link.fixed:
            self._said = text
            self._note(f"network: {text}")

    def _flag(self, text: str) -> None:
        if text != self._said:
            self._said = text
            self._tell(f"network: {text}")
