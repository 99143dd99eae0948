"""`ciuic simulate` as it is called."""

import re

import pytest
import typer
from typer.testing import CliRunner

from supervisor.commands import mount
from tests.supervisor.schemas import check

APP = typer.Typer()
mount(APP)


def call(*words: str):
    return CliRunner().invoke(APP, ["simulate", *words])


def facts(*words: str) -> dict:
    found = call("--replicas", "1", "--json", *words)
    assert found.exit_code == 0, found.output
    return check("simulate", found.stdout)


def test_the_54_days():
    found = facts("--preset", "llama3-54d")
    assert 0.95 < found["ettr"] < 1
    assert sum(found["losses"].values()) + found["useful_s"] == pytest.approx(54 * 86_400, abs=1)
    assert sum(found["loss_shares"].values()) == pytest.approx(1 - found["ettr"], abs=1e-4)
    assert found["bottleneck"]["cause"] in found["losses"]
    assert sum(found["faults"].values()) == 419
    assert found["sources"]


def test_options_reach_the_scenario():
    found = facts(
        *(
            "--days",
            "3",
            "--nodes",
            "10",
            "--gpus-per-node",
            "4",
            "--rate",
            "50",
            "--spares",
            "2",
            "--cluster",
            "20",
        ),
        *("--checkpoint-interval", "600", "--checkpoint-cost", "5", "--detect", "30", "--hang-detect", "600"),
        *(
            "--restart",
            "uniform:10,20",
            "--start",
            "90",
            "--load",
            "7",
            "--queue",
            "exponential:100",
            "--repair",
            "2",
        ),
        *("--hang-share", "0.25", "--lemons", "1", "--seed", "4", "--set", "supervisor.max_failures=20"),
        *("--set", "step_s=3", "--set", "detect.sdc=60"),
    )
    told = found["inputs"]
    assert (told["days"], told["nodes"], told["gpus_per_node"], told["rate"]) == (3, 10, 4, 50)
    assert (told["spares"], told["cluster"], told["interval"], told["checkpoint_cost"]) == (2, 20, 600, 5)
    assert told["detect"] == {
        "crash": "30",
        "node": "30",
        "hang": "600",
        "slow": "lognormal:1800,1",
        "sdc": "60",
    }
    assert (told["restart"], told["start"], told["load"], told["queue"]) == (
        "uniform:10,20",
        "90",
        "7",
        "exponential:100",
    )
    assert (told["repair"], told["lemons"], told["step_s"], found["seed"]) == ("7200", 1, 3, 4)
    assert told["kinds"]["hang"] == 0.25
    assert told["policy"]["supervisor"] == {"max_failures": 20}


def test_a_rate_replaces_what_the_preset_says_of_faults():
    assert facts("--preset", "llama3-54d", "--days", "2", "--rate", "0")["faults"] == {}
    found = facts("--preset", "byterobust-dense", "--days", "2", "--mtbf", "1000")
    assert found["inputs"]["mtbf_h"] == 1000


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("t.csv", "# seconds, kind\n3600,crash\n7200,hang\n9000\n"),
        ("t.json", '[{"at_s": 3600, "kind": "crash"}, {"at_s": 7200, "kind": "hang"}, 9000]'),
    ],
)
def test_a_trace(tmp_path, name, text):
    path = tmp_path / name
    path.write_text(text)
    found = facts("--preset", "hpn-network", "--trace", str(path), "--days", "1")
    assert found["faults"] == {"crash": 1, "hang": 2}
    assert facts("--trace", str(path))["elapsed_s"] == 9000


def test_a_configuration(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text(
        '[run]\nsteps = 100\n[job]\nexecutor = "slurm"\nnodes = 3\nspare_nodes = 1\ncommand = ["true"]\n'
        "[checkpoint]\ninterval_steps = 50\n[supervisor]\nmax_failures = 3\n"
    )
    found = facts(str(path), "--days", "1")
    assert (found["inputs"]["nodes"], found["inputs"]["spares"], found["interval_s"]) == (3, 1, 500)
    assert found["inputs"]["policy"]["supervisor"]["max_failures"] == 3
    path.write_text("[run]\nstepz = 1\n")
    found = call(str(path))
    assert found.exit_code == 78
    assert "stepz" in found.output


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_words(lang):
    found = call("--replicas", "2", "--days", "5", "--rate", "40", "--sensitivity", "--lang", lang)
    assert found.exit_code == 0, found.output
    for word in {
        "en": ("Effective training time", "Bottleneck", "halved"),
        "zh": ("有效训练时间", "瓶颈", "只改一个数"),
    }[lang]:
        assert word in found.stdout
    if lang == "zh":
        [worst] = [line for line in found.stdout.splitlines() if "瓶颈" in line]
        assert not re.search(r"[a-z]{2,} [a-z]{2,}", worst)


def test_the_list():
    text = call("--list").stdout
    assert "llama3-54d: " in text
    assert "source: " in text
    names = [item["name"] for item in check("presets", call("--list", "--json").stdout)["presets"]]
    assert {"llama3-54d", "rsc1-hw", "stepfun-2024", "slurm-default"} <= set(names)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--preset", "nope"], "llama3-54d"),
        (["--days", "-1"], "days"),
        (["--days", "many"], "days"),
        (["--nodes", "0"], "nodes"),
        (["--rate", "nan"], "rate"),
        (["--restart", "soon"], "restart"),
        (["--hang-share", "1.5"], "hang share"),
        (["--replicas", "0"], "replicas"),
        (["--cluster", "5"], "cluster"),
        (["--lemons", "1000"], "lemons"),
        (["--set", "foo=1"], "foo"),
        (["--set", "nodes"], "key=value"),
        (["--set", "supervisor.max_failures=0"], "max_failures"),
        (["--trace", "missing.csv"], "missing.csv"),
        (["--checkpoint-interval", "often"], "interval"),
    ],
)
def test_what_cannot_be_simulated_exits_2_and_says_why(words, said):
    found = call(*words)
    assert found.exit_code == 2
    assert said in found.output


@pytest.mark.parametrize("text", ["", "x\n", "5,meteor\n", "-3\n"])
def test_a_bad_trace(tmp_path, text):
    path = tmp_path / "t.csv"
    path.write_text(text)
    found = call("--trace", str(path))
    assert found.exit_code == 2
    assert "t.csv" in found.output


def test_failures_by_the_minute_leave_nothing_and_break_no_arithmetic():
    assert facts("--preset", "llama3-published", "--days", "0.02")["expected"] == 0.0
