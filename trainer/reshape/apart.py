"""Experts that ranks have apart (DeepSpeed's AutoEP), under the names and in the shapes of the whole model. Pure.

AutoEP keeps three stacks of matrices, w1 (gate), w2 (down) and w3 (up), of a share of the experts on each rank: rank r
has share r % size. The whole model keeps gate and up of an expert one behind the other in one parameter.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

Shape = tuple[int, ...]

_STACK = re.compile(r"(.*\.mlp)\.experts\.w([123])\Z")
_ROUTER = re.compile(r"(.*\.mlp)\.router\.(gate\.weight|e_score_correction_bias)\Z")
_WHOLE = re.compile(r"(.*\.mlp)\.experts\.(gate_up_proj|down_proj)\Z")


@dataclass(frozen=True, kw_only=True)
class Run:
    """`count` elements of the parameter `name` from `at` on."""

    name: str
    at: int
    count: int


def is_apart(name: str) -> bool:
    """Whether each rank has its share of this parameter of AutoEP."""
    return _STACK.match(name) is not None


def whole_name(name: str) -> str:
    """What the whole model calls this parameter or buffer of AutoEP."""
    if stack := _STACK.match(name):
        return f"{stack[1]}.experts.{'down_proj' if stack[2] == '2' else 'gate_up_proj'}"
    router = _ROUTER.match(name)
    return f"{router[1]}.gate.{router[2].removeprefix('gate.')}" if router else name


def whole_shape(name: str, share: Shape, size: int) -> Shape:
    """The whole model's shape of the parameter to which this one of AutoEP belongs; `size` ranks divide the experts."""
    stack = _STACK.match(name)
    if stack is None:
        return share
    experts, rows, columns = share
    return experts * size, rows if stack[2] == "2" else 2 * rows, columns


def to_whole(name: str, share: Shape, which: int, at: int, count: int) -> Iterator[Run]:
    """Where these elements of the share number `which` lie in the whole model, in their order."""
    stack = _STACK.match(name)
    whole = whole_name(name)
    if stack is None:
        yield Run(name=whole, at=at, count=count)
        return
    experts, rows, columns = share
    first = which * experts * rows * columns + at
    if stack[2] == "2":
        yield Run(name=whole, at=first, count=count)
        return
    matrix, half = rows * columns, int(stack[2] == "3")
    while count > 0:
        expert, inside = divmod(first, matrix)
        some = min(count, matrix - inside)
        yield Run(name=whole, at=(2 * expert + half) * matrix + inside, count=some)
        first, count = first + some, count - some


def to_stack(name: str, whole: Shape, at: int) -> Run:
    """Where element `at` of this parameter of the whole model lies in AutoEP's, all shares one after the other.

    `count` elements lie behind each other there.
    """
    found = _WHOLE.match(name)
    if found is None:
        router = re.match(r"(.*\.mlp)\.gate\.weight\Z", name)
        return Run(name=f"{router[1]}.router.gate.weight" if router else name, at=at, count=-1)
    experts, rows, columns = whole
    if found[2] == "down_proj":
        return Run(name=f"{found[1]}.experts.w2", at=at, count=experts * rows * columns - at)
    matrix = rows // 2 * columns
    number, inside = divmod(at, matrix)
    expert, up = divmod(number, 2)
    return Run(
        name=f"{found[1]}.experts.w{3 if up else 1}", at=expert * matrix + inside, count=matrix - inside
    )
