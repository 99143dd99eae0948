"""Sending one checkpoint: pieces, then a look at what arrived, then the manifest. Removing: the other way round."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import xxhash

from contract import manifest
from contract.copies.pace import Pace
from contract.copies.store import Held, Piece, Store, StoreError, Trouble, pieces
from contract.copies.stream import ahead
from contract.layout import parse_checkpoint_name
from contract.manifest import Checkpoint, Shard


@dataclass(kw_only=True)
class Sender:
    """Sends to one place. `guard` raises when somebody else has taken over; `moved` is told of bytes that are through."""

    store: Store
    pace: Pace
    guard: Callable[[], None]
    moved: Callable[[int], None]
    sent: int = field(default=0, init=False)  # pieces that were not there yet

    def send(self, source: Checkpoint) -> None:
        """Make the copy exist, complete and compared. What is there and right is not sent again.

        Raises:
            StoreError: it does not exist; the next try goes on from here.
        """
        assert source.manifest is not None
        name, shards = source.path.name, source.manifest.shards
        data = _read_manifest(source)
        published = self.store.manifest(name)
        held = self.store.held(name)
        if published == data and not held.flaws(shards):
            return
        if published is not None:
            self.guard()
            self.store.retire(name)
        for shard in shards:
            self._send(source, shard, held)
        flaw = self.store.held(name).flaws(shards)
        if flaw:
            raise StoreError(Trouble.CORRUPT, f"{self.store.where}{name}: {flaw}, though it was sent")
        self.guard()
        self.store.publish(name, data)

    def _send(self, source: Checkpoint, shard: Shard, held: Held) -> None:
        def put(item: tuple[Piece, bytes]) -> bool:
            piece, data = item
            if held.has(piece, data):
                return False
            self.pace.take(piece.size)
            self.store.write(source.path.name, piece, data)
            return True

        for (piece, _), new in ahead(self.store.workers, put, _contents(source, shard)):
            self.sent += new
            self.moved(piece.size)


def prune(store: Store, *, keep: int, counts: Callable[[str], bool], guard: Callable[[], None]) -> None:
    """Keep the newest `keep` complete copies that count, remove everything else, manifest first.

    Raises:
        StoreError: something could not be removed.
    """
    names = sorted(store.names(), key=lambda name: parse_checkpoint_name(name) or (0, 0, 0), reverse=True)
    complete = [name for name in names if store.manifest(name) is not None]
    kept = [name for name in complete if counts(name)][:keep]
    if not kept:
        return
    for name in names:
        if name in kept:
            continue
        guard()
        if name in complete:
            store.retire(name)
        store.clear(name)


def _read_manifest(source: Checkpoint) -> bytes:
    try:
        return (source.path / manifest.NAME).read_bytes()
    except OSError as error:
        raise StoreError(Trouble.SOURCE, str(error)) from None


def _contents(source: Checkpoint, shard: Shard) -> Iterator[tuple[Piece, bytes]]:
    """The pieces of a shard; at its end an error if the whole is not what the manifest says."""
    state = xxhash.xxh3_64()
    try:
        with (source.path / shard.path).open("rb") as file:
            for piece in pieces(shard):
                data = file.read(piece.size) or b""
                state.update(data)
                if len(data) != piece.size:
                    break
                yield piece, data
    except OSError as error:
        raise StoreError(Trouble.SOURCE, str(error)) from None
    if state.hexdigest() != shard.xxh3:
        raise StoreError(
            Trouble.SOURCE,
            f"{source.path.name}: {shard.path} is damaged here: another checksum than the manifest's",
        )
