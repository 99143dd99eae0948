"""What is painted: changes between pictures, curves as they grow, the map of ranks, and the past of a run."""

import copy
import json
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract import events as ev
from contract.fold import fold
from contract.journal import JournalReader
from supervisor.page.changes import changes
from supervisor.page.channel import Channel
from supervisor.page.growing import GrowingCurves
from supervisor.page.pictures import RunPicture, fleet
from supervisor.page.present import group_of, row
from supervisor.page.ranks import rank_map
from supervisor.page.track import Track
from supervisor.report.curves import read_curves
from supervisor.seen import RunSeen
from tests.supervisor.conftest import bare_run
from tests.supervisor.core.make import failure
from tests.supervisor.page.scenes import history_of, look_at
from tests.supervisor.report.long_run import long_run

VALUES = st.recursive(
    st.integers() | st.text(max_size=3) | st.lists(st.integers() | st.none(), max_size=3),
    lambda inner: st.dictionaries(st.sampled_from("abcde"), inner, max_size=4),
    max_leaves=12,
)
PICTURES = st.dictionaries(st.sampled_from("abcdef"), VALUES | st.none(), max_size=5)


def merged(target, patch):
    """RFC 7386, as its pseudocode says it."""
    target = copy.deepcopy(target)
    for key, value in patch.items():
        if value is None:
            target.pop(key, None)
        elif isinstance(value, dict):
            there = target.get(key)
            target[key] = merged(there if isinstance(there, dict) else {}, value)
        else:
            target[key] = value
    return target


def without_none(value):
    if isinstance(value, dict):
        return {key: without_none(item) for key, item in value.items() if item is not None}
    return value


@given(PICTURES, PICTURES)
def test_a_patch_makes_the_new_picture_of_the_old_one(old, new) -> None:
    patch = changes(old, new)
    assert without_none(merged(without_none(old), patch)) == without_none(new)
    assert changes(new, copy.deepcopy(new)) == {}


def test_who_follows_gets_each_change_once_and_who_is_too_late_the_whole() -> None:
    channel = Channel("boot")
    assert channel.whole(0.0) is None
    channel.show({"a": 1, "rows": {"x": {"step": 1, "name": "n"}}}, 1.0, 1.0)
    first = channel.whole(0.0)
    assert channel.whole(0.0) is first, "packed once, however many ask"
    channel.show({"a": 1, "rows": {"x": {"step": 2, "name": "n"}}}, 2.0, 2.0)
    version, [event] = channel.after(first.version, 0.0)
    assert json.loads(event.split(b"data: ")[1])["patch"] == {"rows": {"x": {"step": 2}}}
    assert channel.after(version, 0.0) == (version, ())
    channel.show({"a": 1, "rows": {"x": {"step": 2, "name": "n"}}}, 3.0, 3.0)
    assert channel.after(version, 0.0) == (version, ()), "nothing has changed but when it was seen"
    assert channel.of == 3.0
    for step in range(3, 100):
        channel.show({"a": 1, "rows": {"x": {"step": step, "name": "n"}}}, 2.0, 2.0)
    assert channel.after(version, 0.0) is None
    assert channel.after("other-3", 0.0) is None
    assert channel.after("", 0.0) is None


def points(curves):
    return {
        name: {key: (one.low, one.high, one.count, pytest.approx(one.total)) for key, one in found.items()}
        for name, found in (*curves.points.items(), ("again", curves.undone))
    }


def test_curves_that_grow_are_those_of_the_report(root) -> None:
    """Bytes come in any portion, in the order of the generations; a resume takes steps back."""
    run = long_run(root, steps=3000, faults=6, spike_at=700)
    over = fold(JournalReader(run.journal).new())
    files = sorted(run.metrics.glob("*.jsonl"))
    whole = {path: path.read_bytes() for path in files}
    for path in files:
        path.unlink()
    growing = GrowingCurves(run)
    for path in files:
        for end in (1000, len(whole[path]) // 2 + 7, len(whole[path])):
            path.write_bytes(whole[path][:end])
            growing.look(over)
    found, wanted = growing.look(over), read_curves(run)
    assert points(found) == points(wanted)
    assert (found.width, found.rows, found.undone_rows) == (wanted.width, wanted.rows, wanted.undone_rows)
    assert found.points["loss"][700 // found.width].high == 77.5, "the spike stays"
    assert growing.behind == 0


def test_a_resume_takes_back_steps_that_were_drawn_already(root) -> None:
    run = bare_run(root)
    rows = [json.dumps({"step": step, "loss": float(step)}) + "\n" for step in range(1, 31)]
    run.metrics_of(1, 1).write_text("".join(rows))
    growing, begun = GrowingCurves(run), history_of("t-1", 1, at=1.0)
    assert growing.look(begun).rows == 30
    resumed = history_of("t-1", 1, ev.GenerationResumed(attempt=1, generation=2, step=20), at=1.0)
    run.metrics_of(1, 2).write_text("".join(rows[20:25]))
    found = growing.look(resumed)
    assert (found.rows, found.undone_rows) == (25, 10)
    assert sorted(found.undone) == list(range(21, 31))


def test_a_long_past_is_read_a_piece_at_a_time(root, monkeypatch) -> None:
    monkeypatch.setattr("supervisor.page.growing._AT_ONCE", 50_000)
    monkeypatch.setattr("supervisor.page.growing._BLOCK", 10_000)
    run = long_run(root, steps=3000, faults=6)
    over = fold(JournalReader(run.journal).new())
    breaths = []
    growing = GrowingCurves(run, lambda: breaths.append(1))
    growing.look(over)
    first = growing.behind
    assert first > 0
    assert 0 < len(breaths) <= 6
    while growing.behind:
        found = growing.look(over)
    assert points(found) == points(read_curves(run))


def unfolded(text: str) -> str:
    return "".join(
        letter * int(count) for part in text.split(";") if part for letter, count in [part.split(",")]
    )


def test_a_healthy_run_of_16384_ranks_is_a_few_bytes_but_for_the_names_of_its_nodes() -> None:
    seen = look_at("big", nodes=2048)
    shown = seen.shown
    found = rank_map(shown.observation, shown.verdict, shown.config)
    assert found["doing"] == "g,16384;"
    assert len(json.dumps({key: value for key, value in found.items() if key != "nodes"})) < 200


def test_the_map_tells_each_odd_rank_by_what_it_does() -> None:
    odd = {
        1: {"exit_code": 1},
        3: {"os_state": "T"},
        4: {"idle_s": 40.0},
        5: {"step": 90},
        6: {"exit_code": 0},
    }
    seen = look_at("r", nodes=2, size=4, odd=odd)
    nodes = list(seen.shown.observation.nodes)
    nodes[1] = replace(nodes[1], beat=replace(nodes[1].beat, workers=nodes[1].beat.workers[:3]))
    found = rank_map(
        replace(seen.shown.observation, nodes=tuple(nodes)), seen.shown.verdict, seen.shown.config
    )
    assert [unfolded(found["doing"])[rank] for rank in (0, 2, 3, 4, 5, 6, 7)] == list("ggzsben")
    assert unfolded(found["doing"])[1] in "xh", "failed, and suspected of it"
    assert unfolded(found["behind"]) == "000009" + "0?"
    assert unfolded(found["phase"]) == "-F-FFFF-"
    rows = {row[0]: row for row in found["rows"]}
    assert rows[4][1:] == ["n1", 1004, "s", "forward", 100, 40.0]
    assert rows[7] == [7, "n1", None, "n", None, None, None]
    assert next(iter(rows)) == 1, "the worst first"


def test_what_a_reader_should_do_follows_from_state_and_verdict() -> None:
    trains = look_at("r")
    assert group_of(trains) == "ok"
    hung = look_at("r", odd={number: {"idle_s": 1e5} for number in range(16)})
    assert hung.shown.verdict.failed
    assert group_of(hung) == "bad"
    recovering = history_of("r", 2, failure(), ev.StateChanged(state="recovering", reason="x"), at=1.0)
    assert group_of(RunSeen(run="r", history=recovering)) == "acting"
    over = history_of("r", 2, ev.StateChanged(state="failed", reason="x"), at=1.0)
    assert group_of(replace(hung, history=over)) == "needs"


def test_the_picture_of_a_run_is_json_in_both_languages_with_its_incidents(root) -> None:
    run = long_run(root, steps=500, faults=3, words="\x1b[31mred\x1b[0m words")
    over = fold(JournalReader(run.journal).new())
    picture = RunPicture(run, lambda: None).paint(RunSeen(run=run.run_id, history=over))
    text = json.dumps(picture, allow_nan=False)
    assert "\\u001b" not in text
    assert "[31m" not in text
    assert len(picture["incidents"]) == 3
    assert all(len(item["reason"]) == 2 for item in picture["incidents"].values())
    assert picture["incidents"]["1.1"]["restart_s"] is not None
    assert picture["head"]["state"] == "completed"
    assert picture["life"]["end"] == over.state_at
    assert "ranks" not in picture, "there are none any more"
    loss = picture["curves"]["series"]["loss"]
    assert math.isclose(loss["499"][0], read_curves(run).points["loss"][499].low, rel_tol=1e-4)


def test_a_row_of_all_runs_changes_by_what_moved() -> None:
    before = fleet([look_at("a", step=100), look_at("b", step=5)])
    after = fleet([look_at("a", step=101), look_at("b", step=5)])
    patch = changes(before, after)
    assert patch["rows"]["a"]["step"] == 101
    assert len(json.dumps(patch["rows"]["a"])) < 250, "and not the whole row"


def test_the_track_of_a_node_is_the_worst_of_its_ranks_while_the_nodes_stay() -> None:
    track = Track()
    track.add(replace(look_at("r", size=4).shown, at=100.0))
    track.add(replace(look_at("r", size=4, odd={5: {"idle_s": 40.0}, 6: {"step": 50}}).shown, at=110.0))
    assert track.picture() == {"nodes": ["n0", "n1"], "columns": {"100": "g,2;", "110": "g,1;s,1;"}}
    track.add(replace(look_at("r", nodes=3, size=4).shown, at=120.0))
    assert track.picture() == {"nodes": ["n0", "n1", "n2"], "columns": {"120": "g,3;"}}
    for at in range(200, 400):
        track.add(replace(look_at("r", nodes=1, size=1).shown, at=float(at)))
    assert len(track.picture()["columns"]) == 120


def test_a_start_that_was_ordered_is_told_in_the_readers_language() -> None:
    ordered = ev.GenerationIntended(attempt=1, generation=2, members=("n0", "n1"), reason="x")
    seen = look_at("r", history=history_of("r", 2, ordered, at=1.0))
    assert row(seen)["reason"] == ["generation 2 of attempt 1 is ordered", "已要求第 1 次作业的第 2 次启动"]
