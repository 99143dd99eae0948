"""A checkpoint resumes on other ranks, another ZeRO stage and in another model. Real processes on CPU."""

import json
import random
import shutil
import signal

import pytest
import torch
from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint

from contract import config as configuration
from contract import manifest
from trainer.errors import ReadError
from trainer.export import export
from trainer.groups import Layout, counted_by
from trainer.reshape.stored import Kind, open_stored

pytestmark = pytest.mark.train

# Another number of ranks sums the gradient in another order. In float32 that is a few units in the last place, which
# ten small steps do not multiply far; in bfloat16 each rank's gradient is rounded to 8 bits before it is summed.
TOLERANCE = {"fp32": 1e-6, "bf16": 5e-4}
ADAMW = (Kind.WEIGHT, Kind.MEAN, Kind.SQUARE)
LEAVE_AFTER = """
import trainer.preload
from trainer.loop import Training
Training.finished = lambda self, progress: progress.step >= {step}
"""


def change(run, /, **sections):
    """Rewrite the run's configuration, as a resume with other settings does."""
    value = configuration.read_resolved(run.run.config).model_dump(mode="json")
    for section, keys in sections.items():
        value[section] |= keys
    run.run.config.write_text(
        configuration.dump(configuration.parse(value, source="test", bases=[run.run.path]))
    )


def train_until(run, step, before=""):
    return run.train(CIUIC_TEST_BEFORE=LEAVE_AFTER.format(step=step) + before).text()


def newest(run):
    return manifest.directories(run.run)[0]


def stored(directory, ranks):
    return open_stored(directory, ranks=ranks, order=lambda d: counted_by(d, Layout.BY_LAYER))


def follow(bench, dtype, legs, *, before="", **more):
    """One run without interruption, and one whose every two steps run on other ranks and another stage."""
    keys = {"precision": {"dtype": dtype}, "batch": {"global_batch_size": 8, "micro_batch_size": 1}, **more}
    steps = {"run": {"steps": 2 * len(legs)}, "data": {"evaluate_interval_steps": 0}}
    whole = bench("whole", deepspeed={"zero_stage": legs[0][1]}, **keys, **steps)
    whole.train(CIUIC_TEST_BEFORE=before)
    parts = bench("parts", deepspeed={"zero_stage": legs[0][1]}, **keys, **steps)
    for number, (ranks, stage, *apart) in enumerate(legs):
        parts.world_size = ranks
        keys = {"zero_stage": stage, "expert_parallel": apart[0] if apart else 1}
        change(parts, deepspeed=keys, job={"ranks_per_node": ranks})
        text = train_until(parts, 2 * number + 2, before)
        assert number == 0 or f"to {ranks}, zero-{stage}" in text
    found, wanted = parts.merged(), whole.merged()
    assert [found[step]["positions"] for step in found] == [wanted[step]["positions"] for step in wanted]
    assert parts.losses() == pytest.approx(whole.losses(), rel=TOLERANCE[dtype])
    return parts


@pytest.mark.parametrize(
    ("dtype", "legs"),
    [
        ("fp32", [(2, 0), (1, 3), (4, 3), (2, 2), (1, 1), (2, 0)]),
        ("bf16", [(2, 2), (4, 1), (1, 1), (2, 3), (1, 2)]),
    ],
)
def test_other_ranks_and_stages_one_after_the_other(bench, dtype, legs):
    follow(bench, dtype, legs)


def test_the_momentum_of_muon_goes_along(bench):
    """Computed in float32, see test_reference.py."""
    follow(
        bench,
        "fp32",
        [(2, 2), (4, 3), (1, 0)],
        before="\nimport torch; torch.Tensor.bfloat16 = torch.Tensor.float\n",
        optimizer={"name": "muon", "lr": 0.02},
    )


def test_experts_that_ranks_have_apart_are_those_of_the_whole_model(bench, tmp_path):
    """Against a run that never divides them, with the router's update and a layer more; to other shares and back."""
    run = follow(
        bench,
        "fp32",
        [(2, 3, 2), (4, 2, 2), (1, 1, 1), (2, 2, 2)],
        model={"mtp_loss_weight": 0.3, "router_bias_speed": 0.001},
    )
    assert "divided over 2 ranks" in (run.run.path / "log-4.txt").read_text()
    own = stored(newest(run), 2)
    assert own.shapes["model.layers.1.mlp.experts.gate_up_proj"] == (4, 32, 32)
    assert own.buffers["model.layers.1.mlp.gate.e_score_correction_bias"].any()
    export(
        run.run, step=-1, target=tmp_path / "hub", dtype="fp32"
    )  # compares with the model that it describes


def test_a_run_goes_over_to_muon_and_back(bench):
    """What the two keep differs: the state begins anew, weights and counters go on."""
    run = bench(world_size=1, run={"steps": 6}, data={"evaluate_interval_steps": 0})
    train_until(run, 2)
    for step, update in ((4, "muon"), (6, "adamw")):
        change(run, optimizer={"name": update})
        before, run.extra = stored(newest(run), 1), {"CIUIC_TEST_DUMP": str(run.run.path / "dump.pt")}
        text = train_until(run, step, DUMP)
        assert "setting changed since" in text
        held = torch.load(run.run.path / "dump.pt")
        for name in before.shapes:
            assert torch.equal(held[f"{name} weight"], before.whole(name, Kind.WEIGHT).flatten()), name
        assert held["model.norm.weight step"] == step - 2
        kept = held.get("model.layers.1.mlp.experts.down_proj exp_avg", torch.zeros(1))
        assert not kept.any()
    assert [row["step"] for row in run.merged().values()] == [1, 2, 3, 4, 5, 6]


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 4])
@pytest.mark.parametrize(
    ("dtype", "stage"),
    [("fp32", 0), ("fp32", 1), ("fp32", 2), ("fp32", 3), ("bf16", 1), ("bf16", 2), ("bf16", 3)],
)
def test_other_ranks(bench, dtype, stage, ranks):
    follow(bench, dtype, [(2, stage), (ranks, stage), (2, stage)])


@pytest.mark.parametrize(("dtype", "stage"), [("bf16", 1), ("fp32", 2), ("bf16", 3)])
def test_weights_are_those_that_deepspeed_reads(bench, dtype, stage):
    """DeepSpeed's own consolidation against ours; and a carried-over engine holds all of it bit by bit."""
    run = bench(
        world_size=3,
        precision={"dtype": dtype},
        deepspeed={"zero_stage": stage},
        batch={"global_batch_size": 12},
        run={"steps": 1},
    )
    run.train()
    ours = stored(newest(run), 3)
    if (dtype, stage) == (
        "bf16",
        1,
    ):  # DeepSpeed's own tool cannot read what its optimizer for this case writes
        module = torch.load(newest(run) / "mp_rank_00_model_states.pt", weights_only=False)["module"]
        assert all(
            torch.equal(ours.whole(name, Kind.WEIGHT).bfloat16(), module[name]) for name in ours.shapes
        )
    else:
        theirs = get_fp32_state_dict_from_zero_checkpoint(str(run.run.checkpoints), tag=newest(run).name)
        assert set(ours.shapes) | set(ours.buffers) == set(theirs)
        assert all(torch.equal(ours.whole(name, Kind.WEIGHT), theirs[name]) for name in ours.shapes)
    change(run, run={"steps": 2}, deepspeed={"zero_stage": 2})
    run.world_size = 1
    run.extra = {"CIUIC_TEST_DUMP": str(run.run.path / "dump.pt")}
    run.train(CIUIC_TEST_BEFORE=DUMP)
    held = torch.load(run.run.path / "dump.pt")
    for name in ours.shapes:
        for kind in ADAMW:
            assert torch.equal(held[f"{name} {kind}"], ours.whole(name, kind).flatten()), (name, kind)
        assert held[f"{name} step"] == 1


DUMP = """
import os, torch, trainer.preload
import trainer.checkpoint as checkpoint
from trainer.reshape.places import inner_optimizer, places, put_state
from trainer.reshape.stored import Kind
carry = checkpoint.carry_into
def carry_and_dump(engine, *arguments, **named):
    change = carry(engine, *arguments, **named)
    held, optimizer = {}, inner_optimizer(engine)
    for place in places(engine):
        held[f"{place.name} {Kind.WEIGHT}"] = place.weight.clone()
        state = optimizer.state[place.keeper]
        held[f"{place.name} step"] = float(state.get("step", 0))
        for kind in Kind:
            if kind.value in state:
                held[f"{place.name} {kind}"] = put_state(optimizer, place, kind).clone()
    torch.save(held, os.environ["CIUIC_TEST_DUMP"])
    return change
checkpoint.carry_into = carry_and_dump
"""


@pytest.mark.parametrize(("dtype", "stage"), [("fp32", 2), ("bf16", 3)])
def test_changed_model(bench, dtype, stage):
    keys = {"precision": {"dtype": dtype}, "deepspeed": {"zero_stage": stage}, "run": {"steps": 2}}
    run = bench(**keys, data={"evaluate_interval_steps": 0})
    run.train()
    before = stored(newest(run), 2)
    change(run, run={"steps": 3}, model={"layers": 3, "vocab_size": 300, "moe_intermediate_size": 24})
    refused = run.start()
    assert refused.codes() == [78, 78], refused.text()
    for page in refused.pages:
        text = page.read().exception["text"]
        assert "model.layers.2.mlp.down_proj.weight" in text or "model.layers.2" in text
        assert "(257, 32) → (300, 32)" in text
        assert "model_change" in text
    change(run, checkpoint={"model_change": "allow"})
    run.extra = {"CIUIC_TEST_DUMP": str(run.run.path / "dump.pt")}
    change(run, job={"ranks_per_node": 1})
    run.world_size = 1
    text = run.train(CIUIC_TEST_BEFORE=DUMP).text()
    assert "is of another model" in text
    facts = json.loads(run.run.attempt(1).model_change(run.generations).read_text())
    assert "model.layers.0.input_layernorm.weight" in facts["loaded"]
    assert "model.layers.2.mlp.experts.down_proj" in facts["new"]
    assert facts["resized"]["model.embed_tokens.weight"] == [[257, 32], [300, 32]]
    assert facts["mismatched"]["model.layers.1.mlp.experts.down_proj"] == [[4, 32, 16], [4, 32, 24]]
    held = torch.load(run.run.path / "dump.pt")
    for name in facts["loaded"]:
        if name in before.shapes:
            for kind in ADAMW:
                assert torch.equal(held[f"{name} {kind}"], before.whole(name, kind).flatten()), (name, kind)
    rows = before.whole("model.embed_tokens.weight", Kind.MEAN).flatten()
    grown = held[f"model.embed_tokens.weight {Kind.MEAN}"]
    assert torch.equal(grown[: len(rows)], rows)
    assert not grown[len(rows) :].any()
    assert not held[f"model.layers.1.mlp.experts.down_proj {Kind.MEAN}"].any()
    change(run, run={"steps": 2}, model={"layers": 2}, checkpoint={"model_change": "allow"})
    run.extra = {}
    assert "dropped (model.layers.2" in run.train().text()


def test_killed_while_another_shape_is_loaded(bench):
    """Nothing is written while a checkpoint is carried over, so a kill at any point leaves it as it was."""
    run = bench(batch={"micro_batch_size": 1}, run={"steps": 4}, deepspeed={"zero_stage": 3})
    train_until(run, 2)
    source = newest(run)
    content = {path.name: path.read_bytes() for path in source.iterdir()}
    run.world_size = 4
    for point in (3, 17, 40):
        generation = run.start()
        generation.until(lambda page, point=point: page.micro_step >= point or page.step > 2, rank=1)
        generation.signal(signal.SIGKILL, ranks=[point % 4])
        generation.signal(signal.SIGKILL)
        generation.codes()
        assert {path.name: path.read_bytes() for path in source.iterdir()} == content
    run.train()
    assert [line["positions"] for line in run.merged().values()] == [[8 * n, 8 * n + 8] for n in range(4)]


def test_files_that_do_not_hold_what_they_should_are_never_loaded(bench):
    """Beyond checksums: files that are whole but not of this checkpoint, on every rank the same end."""
    run = bench(run={"steps": 2}, deepspeed={"zero_stage": 2})
    run.train()
    other = bench("other", run={"steps": 2}, world_size=1, model={"hidden_size": 16})
    other.train()
    [ours] = newest(run).glob("*zero_pp_rank_0*")
    [strange] = newest(other).glob("*zero_pp_rank_0*")
    ours.write_bytes(strange.read_bytes())
    forge(newest(run))
    run.world_size = 4
    change(run, run={"steps": 3}, job={"ranks_per_node": 4}, batch={"micro_batch_size": 1})
    generation = run.start()
    assert generation.codes() == [1] * 4, generation.text()
    assert {page.read().exception["type"] for page in generation.pages} == {"ReadError"}


def forge(directory):
    """Make the manifest say that the files are right."""
    found = json.loads((directory / manifest.NAME).read_text())
    for shard in found["shards"]:
        path = directory / shard["path"]
        shard |= {"size": path.stat().st_size, "xxh3": manifest.digest_file(path)}
    found["xxh3"] = manifest._own_digest(found)
    (directory / manifest.NAME).write_text(json.dumps(found))


def test_fuzzed_files_are_read_right_or_not_at_all(bench, tmp_path):
    run = bench(run={"steps": 1}, deepspeed={"zero_stage": 3}, model={"layers": 1, "dense_layers": 1})
    run.train()
    names = [path.name for path in newest(run).iterdir() if "zero_pp" in path.name]
    good = stored(newest(run), 2)
    wanted = {name: good.whole(name, Kind.WEIGHT) for name in good.shapes}
    dice = random.Random(5)
    refused = 0
    for _ in range(60):
        place = tmp_path / "fuzz"
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(newest(run), place)
        what = dice.choice(["gone", "swapped", "ranks", "group", "shape", "short"])
        states = torch.load(place / "zero_pp_rank_0_mp_rank_00_model_states.pt", weights_only=False)
        ranks = 2
        if what == "gone":
            (place / dice.choice(names)).unlink()
        elif what == "swapped":
            first = dice.choice([name for name in names if "optim" in name])
            second = dice.choice([name for name in names if "optim" not in name])
            (place / first).rename(place / "x")
            (place / second).rename(place / first)
            (place / "x").rename(place / second)
        elif what == "ranks":
            ranks = dice.choice([1, 3])
        elif what == "group":
            states["param_shapes"].pop(dice.randrange(len(states["param_shapes"])))
        elif what == "shape":
            group = dice.choice(states["param_shapes"])
            name = dice.choice(list(group))
            group[name] = torch.Size([*group[name], 3])
        else:
            path = place / dice.choice([name for name in names if "optim" in name])
            found = torch.load(path, weights_only=False)
            flats = found["optimizer_state_dict"]["fp32_flat_groups"]
            slot = dice.randrange(len(flats))
            flats[slot] = flats[slot][:-3].clone()
            torch.save(found, path)
        if what in {"group", "shape"}:
            torch.save(states, place / "zero_pp_rank_0_mp_rank_00_model_states.pt")
        try:
            found = stored(place, ranks)
            read = {name: found.whole(name, Kind.WEIGHT) for name in found.shapes}
        except ReadError:
            refused += 1
            continue
        assert all(torch.equal(read[name], wanted[name]) for name in wanted), what
    assert refused > 30
