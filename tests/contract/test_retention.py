"""Which checkpoints go: every small case is enumerated, and the rules that must hold always are asked of each."""

from itertools import product

from contract.retention import Keep, Kept, doomed

ME = (1, 1)


def made(steps: str, losses: tuple[float | None, ...] = ()) -> list[Kept]:
    """One checkpoint a letter, at steps 1, 2, …: `v` counts, `x` does not, `-` is none there."""
    return [
        Kept(
            name=f"s{step}",
            step=step,
            writer=ME,
            counts=letter == "v",
            val_loss=losses[step - 1] if losses else None,
        )
        for step, letter in enumerate(steps, start=1)
        if letter != "-"
    ]


def gone(steps: str, keep: Keep, losses: tuple[float | None, ...] = ()) -> set[str]:
    return set(doomed(made(steps, losses), keep, newest_writer=ME))


def test_rules_by_example() -> None:
    assert gone("vvvvv", Keep(last=2)) == {"s1", "s2", "s3"}
    assert gone("vxvxv", Keep(last=2)) == {"s1", "s2"}, "damage between those that are kept stays to be seen"
    assert gone("vvvvvvvvv", Keep(last=2, every_steps=3)) == {"s1", "s2", "s4", "s5", "s7"}, (
        "3 and 6 for ever"
    )
    assert gone("vvv-vvvvv", Keep(last=2, every_steps=4)) == {"s1", "s2", "s3", "s6", "s7"}, (
        "the first from 4 on"
    )
    losses = (3.0, 1.0, 2.0, None, 9.0, 9.0)
    assert gone("vvvvvv", Keep(last=2, best=1), losses) == {"s1", "s3", "s4"}
    assert gone("vvvvvv", Keep(last=2, best=2), losses) == {"s1", "s4"}
    assert gone("vxvvvv", Keep(last=2, best=1), losses) == {"s1", "s2", "s4"}, "a damaged one is not the best"
    equal = (1.0, 1.0, 1.0, 1.0, 2.0, 2.0)
    assert gone("vvvvvv", Keep(last=2, best=1), equal) == {"s1", "s2", "s3"}, "of equals the newer"


def test_what_a_later_generation_wrote_is_not_ours_to_remove() -> None:
    found = [*made("vvvv"), Kept(name="later", step=1, writer=(1, 2), counts=False)]
    assert "later" not in doomed(found, Keep(last=2), newest_writer=ME)


def test_every_case_of_six_checkpoints() -> None:
    number = 0
    for steps in product("vx-", repeat=6):
        for last, every, best in product((2, 3), (0, 2), (0, 1)):
            losses = (4.0, 1.0, 5.0, 2.0, 3.0, 6.0)
            keep = Keep(last=last, every_steps=every, best=best)
            found = made("".join(steps), losses)
            order = doomed(found, keep, newest_writer=ME)
            counting = sorted(item.step for item in found if item.counts)
            left = [item for item in found if item.name not in order]
            still = sorted(item.step for item in left if item.counts)
            assert still[-last:] == counting[-last:], "the newest that count stay"
            assert len(still) >= min(last, len(counting))
            assert not counting or still, "the last valid one never goes"
            assert doomed(left, keep, newest_writer=ME) == (), "a second time there is nothing to do"
            # Killed on the way: whatever was removed so far, a new decision removes nothing that this one keeps.
            for done in range(len(order)):
                rest = [item for item in found if item.name not in order[:done]]
                again = set(doomed(rest, keep, newest_writer=ME))
                assert not again & {item.name for item in left}
            if len(counting) >= last:
                assert all(item.counts or item.step > counting[-last] for item in left), "rubbish goes"
            number += 1
    assert number == 3**6 * 8
