"""The one combined test that decides which lines of a gigabyte are looked at at all.

Python's `re` tries an alternation at every position. Tried only where a word begins, and with the words folded
into a tree, the same test is twice as fast; the few stems that also stand inside words are searched for plainly.
"""

import re
from collections.abc import Iterable, Iterator, Sequence

# Stems inside longer words ("RuntimeError"), found by a plain search; a key that holds one needs nothing else.
INSIDE = ("error", "exception")
# Short words that begin or stand in harmless ones ("info", Megatron's "nan iterations: 0").
_WHOLE = {
    "nan": r"nan(?![a-z_]| iterations)",
    "inf": r"inf(?![a-z_])",
    "ecc": r"ecc(?![a-z])",
    "s3": r"s3(?![a-z0-9])",
}
_STEMS = tuple(stem.encode() for stem in INSIDE)
_Tree = dict[str, "_Tree"]


class Gate:
    """Finds where in lower-case bytes one of the keys may stand, and which keys a line may hold."""

    def __init__(self, keys: Iterable[str]) -> None:
        every = sorted(set(keys))
        self._inside = tuple(key for key in every if any(stem in key for stem in INSIDE))
        words = [key for key in every if key not in self._inside]
        pattern = "|".join(
            (_pattern(_tree(set(words) - set(_WHOLE))), *(_WHOLE[word] for word in words if word in _WHOLE))
        )
        self._words = re.compile(rb"[^a-z0-9_](?:" + pattern.encode() + rb")")
        self._each = re.compile(rb"[^a-z0-9_](?=(" + pattern.encode() + rb"))")
        self._begun_by = {
            word.encode(): tuple(key for key in words if key.startswith(word)) for word in words
        }

    def places(self, lower: bytes) -> "Places":
        """A cursor over these bytes. They must begin with a line break: a word needs something before it."""
        return Places(lower, self._words, _STEMS)

    def opens(self, line: bytes) -> bool:
        """Whether this one line would be looked at."""
        return self.places(b"\n" + line.lower()).next(0) >= 0

    def keys_in(self, lower: bytes) -> Iterator[str]:
        """The keys that this line may hold: a little too many, never too few."""
        for found in self._each.finditer(b"\n" + lower):
            yield from self._begun_by.get(found[1], ())
        if any(stem in lower for stem in _STEMS):
            text = lower.decode(errors="replace")
            yield from (key for key in self._inside if key in text)


class Places:
    """A cursor: `next` gives the first hit at or after a position, searching each part only once."""

    def __init__(self, lower: bytes, words: re.Pattern[bytes] | None, stems: Sequence[bytes]) -> None:
        self._lower, self._words, self._stems = lower, words, stems
        self._found = [self._find(number, 0) for number in range(len(stems) + 1)]

    def next(self, position: int) -> int:
        """The first hit at or after `position`, -1 for none. Positions only grow."""
        for number, place in enumerate(self._found):
            if 0 <= place < position:
                self._found[number] = self._find(number, position)
        return min((place for place in self._found if place >= 0), default=-1)

    def _find(self, number: int, position: int) -> int:
        if number < len(self._stems):
            return self._lower.find(self._stems[number], position)
        match = self._words.search(self._lower, position) if self._words else None
        return -1 if match is None else match.start() + 1


def _tree(words: Iterable[str]) -> _Tree:
    tree: _Tree = {}
    for word in words:
        branch = tree
        for letter in word:
            branch = branch.setdefault(letter, {})
        branch[""] = {}
    return tree


def _pattern(tree: _Tree) -> str:
    if "" in tree:  # the shorter word decides; the longer ones are checked where it stands
        return ""
    parts = [re.escape(letter) + _pattern(branch) for letter, branch in sorted(tree.items())]
    return parts[0] if len(parts) == 1 else "(?:" + "|".join(parts) + ")"
