"""Copies of a state in the host's memory, so that training may change the state while the copy is written.

The memory is taken once and used again by every save: one copy of what this rank writes, never two.
"""

import copy
import logging
import mmap
from collections.abc import Callable, Iterator
from typing import Any

import torch

log = logging.getLogger(__name__)

_ALIGNMENT = 64  # bytes; what vector instructions like
_Identity = tuple[int, torch.Size, tuple[int, ...], torch.dtype]


class _Arena:
    """Memory for the tensors of one file. On CUDA it is locked (pinned), so that the copy runs at the bus's speed."""

    def __init__(self, size: int, *, pin: bool) -> None:
        self.size = size
        self._memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._pinned = pin and self._registered()

    def tensor(self, offset: int, like: torch.Tensor) -> torch.Tensor:
        """A contiguous tensor like this one, with a storage of its own: torch.save writes storages whole."""
        count = like.numel() * like.element_size()
        raw = torch.frombuffer(self._memory, dtype=torch.uint8, offset=offset, count=count)
        return raw.view(like.dtype).view(like.shape)

    def release(self) -> None:
        if self._pinned:
            torch.cuda.cudart().cudaHostUnregister(self._address())
            self._pinned = False

    def _registered(self) -> bool:
        error = torch.cuda.cudart().cudaHostRegister(self._address(), self.size, 0)
        if int(error) != 0:
            log.warning("%d MB of memory could not be pinned (%s): saves are slower", self.size >> 20, error)
        return int(error) == 0

    def _address(self) -> int:
        return int(torch.frombuffer(self._memory, dtype=torch.uint8).data_ptr())


class HostCopies:
    """Makes copies, one for each name at a time: the next copy of a name overwrites the one before."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._arenas: dict[str, _Arena] = {}

    def take(self, name: str, state: Any, moved: Callable[[], None]) -> Any:
        """The same state with every tensor, and every object that could change, copied. Complete when it returns."""
        offsets: dict[_Identity, int] = {}
        total = 0
        for tensor in _tensors(state):
            if _identity(tensor) not in offsets:
                offsets[_identity(tensor)] = total
                size = tensor.numel() * tensor.element_size()
                total += -(-size // _ALIGNMENT) * _ALIGNMENT
        arena = self._arena(name, total)
        copies: dict[_Identity, torch.Tensor] = {}

        def copied(tensor: torch.Tensor) -> torch.Tensor:
            identity = _identity(tensor)
            if identity not in copies:  # tied weights stay tied
                moved()
                target = arena.tensor(offsets[identity], tensor)
                copies[identity] = target.copy_(tensor.detach(), non_blocking=True)
            return copies[identity]

        found = _mapped(state, copied)
        if self._device.type == "cuda":
            torch.cuda.current_stream(self._device).synchronize()
        return found

    def _arena(self, name: str, size: int) -> _Arena:
        arena = self._arenas.get(name)
        if arena is None or arena.size < size:
            if arena is not None:
                arena.release()
            self._arenas.pop(name, None)  # freed before the larger one is taken
            arena = self._arenas[name] = _Arena(max(size, mmap.PAGESIZE), pin=self._device.type == "cuda")
        return arena


def _identity(tensor: torch.Tensor) -> _Identity:
    return (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype)


def _plain(value: Any) -> bool:
    """Whether this is a tensor that a copy of its numbers describes."""
    dense = isinstance(value, torch.Tensor) and type(value) in {torch.Tensor, torch.nn.Parameter}
    return dense and value.layout is torch.strided and not value.is_meta and value.numel() > 0


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if _plain(value):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _tensors(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)


def _mapped(value: Any, copied: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """The same structure; what is no container and no plain tensor is copied deeply."""
    if _plain(value):
        return copied(value)
    if isinstance(value, dict):
        made = copy.copy(value)  # an OrderedDict from a module has attributes too, a defaultdict its factory
        for key, item in value.items():
            made[key] = _mapped(item, copied)
        for key, item in getattr(value, "__dict__", {}).items():
            setattr(made, key, copy.deepcopy(item))
        return made
    if isinstance(value, (list, tuple)):
        items = [_mapped(item, copied) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return copy.deepcopy(value)
