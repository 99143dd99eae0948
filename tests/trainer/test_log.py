"""What a rank says: by its number, and not too often."""

import logging

import pytest

from trainer.log import MOST, PER_S, Sparing, set_level


def record(words, *figures):
    return logging.LogRecord("trainer.x", logging.WARNING, __file__, 1, words, figures, None)


def test_a_message_that_comes_too_often_is_counted_and_others_pass():
    now = 0.0
    sparing = Sparing(clock=lambda: now)
    passed = [sparing.filter(record("shard %d is slow", number)) for number in range(MOST + 100)]
    assert passed == [True] * MOST + [False] * 100, "the figures in it make no other message of it"
    assert sparing.filter(record("another"))
    now = PER_S + 1
    last = record("shard %d is slow", 7)
    assert sparing.filter(last)
    assert last.getMessage() == "shard 7 is slow (and 100 more like it were left out)"
    assert sparing.filter(record("shard %d is slow", 8)), "and the count begins anew"


def test_a_thousand_kinds_of_messages_take_no_more_room():
    sparing = Sparing(clock=lambda: 0.0)
    assert all(sparing.filter(record(f"kind {number}")) for number in range(5000))
    assert len(sparing._seen) <= 1000


@pytest.mark.parametrize(
    ("word", "levels"),
    [
        ("", ["INFO", "WARNING", "WARNING"]),
        ("usual", ["INFO", "WARNING", "WARNING"]),
        ("debug", ["DEBUG", "DEBUG", "DEBUG"]),
        ("debug:2", ["INFO", "WARNING", "DEBUG"]),
        ("error:0,1", ["ERROR", "ERROR", "WARNING"]),
    ],
)
def test_levels_are_by_rank(word, levels):
    before = logging.getLogger().level
    try:
        found = []
        for rank in range(3):
            set_level(word, rank)
            found.append(logging.getLevelName(logging.getLogger().level))
    finally:
        logging.getLogger().setLevel(before)
    assert found == levels
