"""What must hold for every scenario, and that the real decisions are what answers."""

import dataclasses
import math
import re
from itertools import pairwise

import pytest

from contract import events as ev
from supervisor.core import lost_time
from supervisor.simulate import closed_forms as forms
from supervisor.simulate import looks
from supervisor.simulate.cluster import Cluster
from supervisor.simulate.faults import Faults, Streams, exact_kinds
from supervisor.simulate.laws import Law, parse
from supervisor.simulate.ledger import Loss, segment
from supervisor.simulate.presets import presets
from supervisor.simulate.render import changed
from supervisor.simulate.results import Result, advice, facts, sensitivity, simulate
from supervisor.simulate.scenario import DAY_S, Kind, Scenario
from supervisor.simulate.world import World
from tests.supervisor.simulate.rows import PATIENT, run

MIXED = {"kinds": {"node": 5, "crash": 2, "hang": 2, "slow": 0.5, "sdc": 0.5}, "rate": 30, "nodes": 64}


def scenario(**told) -> Scenario:
    return Scenario.model_validate(told)


def ettr(*, replicas: int = 3, **told) -> float:
    return simulate(scenario(**told), replicas=replicas, seed=5).ettr


# --- closed ends


def test_without_failures_only_saves_cost():
    found = simulate(scenario(rate=0, interval=1000, checkpoint_cost=10, days=5), replicas=1, seed=1)
    assert found.ettr == pytest.approx(1000 / 1010, abs=1e-4)
    assert found.expected is None


def test_best_interval_is_the_best_of_the_simulated_curve():
    best = scenario(nodes=1, mtbf_h=7.9, checkpoint_cost=120, interval="auto")
    assert best.interval_s(best.config) == pytest.approx(42.22 * 60, abs=1)
    curve = {factor: run(474, 0, 42.22 * factor, 2).ettr for factor in (0.4, 0.7, 1.0, 1.5, 2.5)}
    assert max(curve, key=lambda factor: curve[factor]) == 1.0


# --- invariants


@pytest.mark.parametrize("name", presets())
def test_presets_keep_every_second(name):
    told = scenario(**{**presets()[name].scenario, "days": 8})
    world = World(told, seed=2)
    world.run()
    assert world.ledger.elapsed_s == pytest.approx(world.scenario.horizon_s, abs=1e-3)
    assert all(seconds >= 0 for seconds in world.ledger.lost_s.values())
    assert 0 < world.ledger.ettr < 1


def test_the_same_seed_gives_the_same_result():
    one, again = (facts(simulate(scenario(**MIXED), replicas=2, seed=9)) for _ in range(2))
    other = facts(simulate(scenario(**MIXED), replicas=2, seed=10))
    assert one == again
    assert one["losses"] != other["losses"]


def test_more_faults_never_help():
    found = [ettr(**{**MIXED, "rate": rate}, spares=4) for rate in (0, 2, 8, 30, 100)]
    assert found == sorted(found, reverse=True)


def test_more_spares_never_hurt():
    told = {**MIXED, "kinds": {"node": 1}, "repair": 3600.0, "days": 30}
    found = [ettr(**told, spares=spares) for spares in (0, 2, 8, 32)]
    assert all(after >= before - 2e-4 for before, after in pairwise(found))
    assert found[-1] > found[0]


def test_what_decisions_forget_changes_nothing():
    told = scenario(**MIXED, spares=8, days=120)
    kept, forgetful = World(told, 1, keep_journal=True), World(told, 1)
    kept.run()
    forgetful.run()
    assert sum(kept.counts.faults.values()) > 150
    assert kept.ledger.lost_s == pytest.approx(forgetful.ledger.lost_s)
    many, few = (
        sum(len(attempt.generations) for attempt in world.pilot.history.attempts)
        for world in (kept, forgetful)
    )
    assert few < many


def test_the_journal_tells_the_same_ratio():
    """`status` computes its own from the journal: without saves and queues it must agree."""
    told = scenario(
        nodes=4, rate=900, days=20, checkpoint_cost=0, interval=600, kinds={"crash": 1}, policy=PATIENT
    )
    world = World(told, 1, keep_journal=True)
    world.run()
    at, history = world.pilot.history.at, world.pilot.history
    look = looks.training(at, world.members, world._step(), 0, told.step_s)
    assert lost_time.ettr(history, look, world.now) == pytest.approx(world.ledger.ettr, abs=0.005)


# --- the real decisions


def bodies(world: World, kind: type) -> list:
    return [event.body for event in world.pilot.journal if isinstance(event.body, kind)]


def lived(**told) -> World:
    world = World(scenario(**told), 4, keep_journal=True)
    world.run()
    return world


def test_a_lost_node_is_replaced_by_a_spare_and_without_one_by_a_new_job():
    trace = [{"at_s": 30_000, "kind": "node"}]
    spare = lived(nodes=8, spares=1, days=1, trace=trace)
    assert (spare.counts.in_place, spare.counts.jobs) == (1, 1)
    assert len(spare.members) == 8
    bare = lived(nodes=8, days=1, trace=trace)
    assert (bare.counts.in_place, bare.counts.jobs) == (0, 2)
    lost = bodies(bare, ev.Judged)[0].nodes
    assert bodies(bare, ev.AttemptIntended)[1].exclude == lost
    assert not set(lost) & set(bare.members)
    assert bare.ledger.lost_s[Loss.QUEUE] == 60


def test_only_dead_nodes_do_not_hold_up_the_next_job():
    """The dead node is excluded, so that the next job does not wait for Slurm's time-out."""
    world = lived(nodes=8, days=1, trace=[{"at_s": 30_000, "kind": "node"}])
    assert world.ledger.lost_s[Loss.ENDING] < 60
    barred = {"supervisor": {"exclude_hours": 1e-6}}
    slow = lived(nodes=8, days=1, trace=[{"at_s": 30_000, "kind": "node"}], policy=barred)
    assert slow.ledger.lost_s[Loss.ENDING] == pytest.approx(300, abs=20)


def test_a_lemon_that_fails_twice_without_progress_is_left_out():
    told = {"nodes": 16, "rate": 0.5, "lemons": 1, "lemon_factor": 200_000, "interval": 7200, "days": 3}
    world = lived(**told, spares=2)
    lemon = next(iter(world.faults.lemons))
    assert world.counts.lemon_faults == 2
    assert lemon not in world.members
    assert world.counts.jobs == 1
    alone = lived(**told)  # nobody can stand in
    assert alone.counts.lemon_faults > 2


def test_a_lemon_that_fails_between_checkpoints_is_left_out_too():
    """Every few hours, with many saves between: progress forgives the program, not the machine."""
    told = {"nodes": 64, "rate": 0.5, "lemons": 2, "lemon_factor": 8_000, "interval": 600, "days": 7}
    world = lived(**told, spares=4)
    assert world.counts.lemon_faults <= 8  # twice each, and again when the exclusion has expired
    alone = lived(**told)  # nobody can stand in
    assert alone.counts.lemon_faults > 20


def test_a_lemon_is_excluded_from_the_next_job():
    told = {"nodes": 16, "rate": 0.5, "lemons": 1, "lemon_factor": 400_000, "interval": 7200, "days": 2}
    world = lived(**told, policy={"supervisor": {"in_place_limit": 1}})
    lemon = next(iter(world.faults.lemons))
    assert lemon in world.counts.excluded
    assert any(lemon in body.exclude for body in bodies(world, ev.AttemptIntended))
    assert lemon not in world.members


def test_a_run_without_progress_is_given_up_and_resumed_by_a_person():
    world = lived(nodes=4, rate=200_000, kinds={"crash": 1}, interval=7200, days=3)
    assert world.counts.gave_up > 0
    assert world.ledger.lost_s[Loss.STOPPED] > 3600
    assert world.ledger.lost_s[Loss.BACKOFF] > 0
    assert any(body.reason.startswith("8 failures") for body in bodies(world, ev.StateChanged))


def test_the_time_limit_chains_jobs_without_lost_steps():
    world = lived(nodes=4, rate=0, days=3, policy={"job": {"time_limit_min": 24 * 60}})
    assert (world.counts.time_limits, world.counts.jobs) == (3, 4)
    assert world.ledger.lost_s[Loss.REPEATED] == 0
    assert world.ledger.lost_s[Loss.QUEUE] == 180


def test_nodes_in_repair_are_waited_for_when_the_partition_is_small():
    world = lived(nodes=8, cluster=8, days=2, trace=[{"at_s": 30_000, "kind": "node"}], repair=7200)
    lost = world.ledger.lost_s
    assert lost[Loss.NODES] + lost[Loss.STOPPED] >= 7000  # given up, where the exclusion leaves too few nodes
    roomy = lived(nodes=8, cluster=9, days=2, trace=[{"at_s": 30_000, "kind": "node"}], repair=7200)
    assert roomy.ledger.lost_s[Loss.NODES] == 0


def test_a_single_node_waits_for_slurms_word():
    world = lived(nodes=1, days=1, trace=[{"at_s": 30_000, "kind": "node"}])
    assert world.ledger.lost_s[Loss.DETECTION] >= 300
    assert world.counts.jobs == 2


def test_detection_follows_the_limits_of_the_run():
    hang = {"nodes": 4, "days": 1, "trace": [{"at_s": 30_000, "kind": "hang"}]}
    assert 8 < lived(**hang, step_s=0.5).ledger.lost_s[Loss.DETECTION] < 11  # the floor
    assert 80 < lived(**hang, step_s=10).ledger.lost_s[Loss.DETECTION] < 83  # eight times the usual
    assert 300 < lived(**hang, step_s=60).ledger.lost_s[Loss.DETECTION] < 303  # the ceiling
    floor = {"monitor": {"hang_floor_s": 60.0}}
    assert 60 < lived(**hang, step_s=0.5, policy=floor).ledger.lost_s[Loss.DETECTION] < 63
    node = lived(**{**hang, "trace": [{"at_s": 30_000, "kind": "node"}]}, spares=1)
    assert 12 <= node.ledger.lost_s[Loss.DETECTION] < 15


# --- parts


@pytest.fixture(scope="module")
def llama() -> Result:
    return simulate(scenario(**presets()["llama3-54d"].scenario), replicas=1, seed=1)


def test_every_stop_of_a_preset_strikes(llama):
    assert llama.replicas[0].faults == {"node": 309, "hang": 42, "crash": 56, "slow": 6, "sdc": 6}


def test_the_54_days_reach_98_percent_or_name_what_is_in_the_way(llama):
    found = facts(llama)
    worst = found["bottleneck"]
    assert found["ettr"] >= 0.98 or (worst["share"] > 0 and worst["what"])
    assert found["ettr"] == pytest.approx(found["expected"], abs=0.003)
    assert found["ettr_with_spares"] == pytest.approx(found["ettr"] * 2048 / 2064, abs=1e-5)
    fast = scenario(
        **{
            **presets()["llama3-54d"].scenario,
            "load": 5,
            "checkpoint_lag": 5,
            "spares": 40,
            "detect": {"sdc": 600},
        }
    )
    assert simulate(fast, replicas=1, seed=1).ettr >= 0.98


def test_sensitivity_changes_one_number_at_a_time():
    result = simulate(scenario(**MIXED, days=10), replicas=1, seed=1)
    changes = {change.what: change.gain for change in sensitivity(result)}
    assert changes["half as many faults"] > 0 > changes["twice as many faults"]
    assert changes["checkpoint_cost halved"] > 0
    assert [what for what in changes if changed(what, "zh") == what] == [], "each has its Chinese words"
    assert changes["hangs seen after 600 s (PyTorch's time-out)"] < 0


@pytest.mark.parametrize("loss", Loss)
def test_every_loss_has_its_advice(loss):
    result = simulate(scenario(**MIXED, days=1), replicas=1, seed=1)
    lost = dict.fromkeys(Loss, 0.0) | {loss: 10.0}
    replica = dataclasses.replace(result.replicas[0], lost_s=lost)
    found = dataclasses.replace(result, replicas=(replica,))
    assert advice(found) != advice(found, "zh")
    assert not re.search(r"[a-z]{2,} [a-z]{2,}", advice(found, "zh"))


def test_unequal_nodes_carry_the_published_shares():
    """Gamma with shape 0.88: the worst 1, 5 and 20 % of nodes carry 6.0, 21.2 and 54.3 % of the rate."""
    faults = Faults(scenario(spread=0.88), Streams(1, 0))
    rates = sorted((faults._factor(f"n{number}") for number in range(8000)), reverse=True)
    for share, carried in ((0.01, 0.060), (0.05, 0.212), (0.20, 0.543)):
        assert sum(rates[: int(8000 * share)]) / sum(rates) == pytest.approx(carried, abs=0.02)


def test_kinds_keep_the_counts_of_a_table():
    kinds = exact_kinds({Kind.NODE: 309, Kind.HANG: 42, Kind.CRASH: 68}, 419)
    assert [kinds.count(kind) for kind in (Kind.NODE, Kind.HANG, Kind.CRASH)] == [309, 42, 68]
    assert len(exact_kinds({Kind.NODE: 1, Kind.HANG: 1, Kind.CRASH: 1}, 10)) == 10


def test_bursts_take_several_nodes():
    faults = Faults(scenario(nodes=32, bursts=1, kinds={"node": 1}), Streams(1, 0))
    members = tuple(f"n{number}" for number in range(32))
    found = [faults.strike(members).nodes for _ in range(50)]
    assert all(len(nodes) == len(set(nodes)) >= 2 for nodes in found)
    assert max(map(len, found)) > 3


def test_segment():
    part = segment(1000, 300, 50, 0)
    assert (part.durable_s, part.open_s, part.stall_s) == (600, 300, 100)
    part = segment(1000, 300, 50, 320)  # the second save was not durable yet
    assert (part.durable_s, part.open_s, part.stall_s) == (300, 600, 100)
    part = segment(340, 300, 50, 0)  # in the middle of a save
    assert (part.durable_s, part.open_s, part.stall_s) == (0, 300, 40)


def test_cluster_gives_the_lowest_nodes_that_are_up():
    cluster = Cluster(5)
    cluster.lose("n1", 100)
    assert cluster.allocate(3, ("n0",), 0) == (("n2", "n3", "n4"), 0)
    assert cluster.allocate(4, ("n0",), 0) == (
        ("n0", "n2", "n3", "n4"),
        0,
    )  # an exclusion never stops the job
    assert cluster.allocate(5, (), 40) == (("n0", "n1", "n2", "n3", "n4"), 60)
    assert Cluster(0).allocate(2, ("n0",), 0) == (("n1", "n2"), 0)


@pytest.mark.parametrize(
    ("text", "mean"),
    [
        ("90", 90),
        ("exponential:60", 60),
        ("uniform:10,30", 20),
        ("lognormal:60,0.5", 60 * math.exp(0.125)),
        ("weibull:2,100", 88.62),
    ],
)
def test_laws(text, mean):
    law = parse(text)
    random = Streams(1, 0)["law"]
    assert law.mean == pytest.approx(mean, abs=0.01)
    assert sum(law.draw(random) for _ in range(4000)) / 4000 == pytest.approx(mean, rel=0.05)
    assert law.scaled(2).mean == pytest.approx(2 * mean, abs=0.03)
    assert parse(str(law)) == law


@pytest.mark.parametrize(
    "text", ["", "abc", "uniform:3,1", "uniform:1", "lognormal:1,2,3", "weibull:0,5", "-3", "nan", "cauchy:1"]
)
def test_what_is_no_law(text):
    with pytest.raises(ValueError, match=r"duration|unknown|numbers"):
        parse(text)


def test_a_law_is_itself():
    assert parse(Law(first=3.0)) == Law(first=3.0)


def test_many_spares():
    assert forms.spares_needed(600) == pytest.approx(600 + 2.33 * math.sqrt(600), abs=3)
    assert DAY_S == 86_400
