"""A data set in object storage: staged from there, read from there while it is not staged, and never trusted."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from contract.config import ConfigError, parse
from contract.config.data import INDEX
from contract.copies.bucket import CREDENTIALS as NAMES
from contract.copies.bucket import Bucket
from contract.layout import RunDir
from contract.sources import open_source
from slurm.agent.staging_child import stagers_of, turn
from slurm.commands_bench import app
from slurm.request import build_request
from tests.storage import CREDENTIALS, KEY, SECRET, Fault
from tests.supervisor.schemas import check
from trainer.data.corpora import open_split
from trainer.data.prepare import Recipe, prepare
from trainer.data.reader import TokenReader
from trainer.errors import ConfigError as StartError

LENGTH = 50


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("set")
    numbers = np.random.default_rng(1)
    for name in "abc":
        (folder / f"{name}.txt").write_text(" ".join(map(str, numbers.integers(0, 1 << 30, size=9000))))
    prepare([folder], folder / "data", Recipe(vocab_size=0, validation_share=0.2, shard_tokens=60_000))
    return folder / "data"


@pytest.fixture
def stored(prepared, endpoint, tmp_path, monkeypatch):
    """A configuration whose data set was copied to the store as it is."""
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    config = config_of(endpoint, f"s3://bucket/sets/{tmp_path.name}")
    put(prepared, config, endpoint)
    return config


def config_of(address, path, **node):
    sections = {
        "run": {"name": "t", "steps": 10}, "data": {"path": path, "store": {"endpoint": address}},
        "batch": {"sequence_length": LENGTH}, "node": node,
    }  # fmt: skip
    return parse(sections, source="t", bases=())


def put(prepared, config, endpoint):
    _, _, name, prefix = config.data.path.split("/", 3)
    bucket = Bucket(name, "", config.data.store.model_copy(update={"endpoint": endpoint}), CREDENTIALS)
    for path in prepared.iterdir():
        bucket.client.put(f"{prefix}/{path.name}", path.read_bytes())


def samples(reader):
    return np.stack([reader.sample(number) for number in range(0, reader.samples, 7)])


def staged_once(config, stage):
    stage.mkdir(exist_ok=True)
    return turn(stagers_of(config, RunDir(path=stage / "no-run"), stage), lambda _: None)


def test_it_is_read_from_the_store_and_once_staged_from_the_disk(prepared, stored, tmp_path):
    right = samples(TokenReader(prepared, "train", length=LENGTH))
    stage = tmp_path / "stage"
    reader = open_split(stored, "train", stage)
    assert (samples(reader) == right).all()
    assert reader.bytes.from_copies == 0
    done = staged_once(stored, stage)
    assert (done.complete, done.problem) == (True, "")
    before = reader.bytes.from_source
    assert (samples(reader) == right).all()
    assert reader.bytes.from_source == before, "nothing is asked for any more"


def test_a_store_that_goes_away_half_way(prepared, stored, proxy, tmp_path):
    right = samples(TokenReader(prepared, "train", length=LENGTH))
    config, stage = config_of(proxy.endpoint, stored.data.path, stage_gb=0.0002), tmp_path / "stage"
    done = staged_once(config, stage)
    assert 0 < done.shards < done.of
    reader = open_split(config, "train", stage)
    proxy.become(Fault(kind="refuse"))
    here, start = 0, 0
    for shard in reader._shards:  # never silently short or wrong
        numbers = range(-(-start // LENGTH), (start + shard.size // 2 - 1) // LENGTH)
        start += shard.size // 2
        if list(stage.glob(f"*/*/{shard.file}")):
            here += 1
            assert all((reader.sample(at) == right[at // 7]).all() for at in numbers if at % 7 == 0)
        else:
            with pytest.raises(OSError, match=f"s3://bucket/sets.*{shard.file}") as caught:
                reader.sample(numbers[0])
            assert SECRET not in str(caught.value)
    assert here
    assert staged_once(config, stage).problem
    proxy.become(Fault())
    assert (samples(reader) == right).all()


def test_what_is_wrong_there_is_named_and_nothing_of_it_staged(prepared, stored, endpoint, tmp_path):
    broken = Path(shutil.copytree(prepared, tmp_path / "broken"))
    shard = broken / "train-00001.bin"
    shard.write_bytes(shard.read_bytes()[:-1] + b"x")
    put(broken, stored, endpoint)
    done = staged_once(stored, tmp_path / "stage")
    assert "train-00001.bin is not what its index says" in done.problem
    assert done.shards == done.of - 1


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "no credentials: AWS_ACCESS_KEY_ID"),
        ({"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": "wrong"}, "HTTP 403"),
    ],
)
def test_a_start_without_the_right_keys_says_so(stored, monkeypatch, changes, said, tmp_path):
    for name in CREDENTIALS:
        monkeypatch.delenv(name)
    for name, value in changes.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(StartError, match=said) as caught:
        open_split(stored, "train", None)
    assert SECRET not in str(caught.value)
    assert said in staged_once(stored, tmp_path / "stage").problem


def test_a_set_that_is_not_there(stored):
    source = open_source(f"{stored.data.path}/nowhere", stored.data.store, CREDENTIALS)
    assert source.problem().endswith(f"no prepared data there (no {INDEX})")


@pytest.mark.quick
def test_the_recipe_and_the_job():
    config = config_of("https://oss.example.com", "s3://bucket/sets/x")
    assert config.data.path == "s3://bucket/sets/x", "no path of this machine"
    names = build_request(RunDir(path=Path("/r/x")), config, 1).export
    assert set(CREDENTIALS) <= set(names)
    for wrong in ("s3://key:secret@host/x", "s3:///x"):
        with pytest.raises(ConfigError) as caught:
            config_of("", wrong)
        assert "secret" not in str(caught.value)
        assert 'takes "s3://bucket/prefix"' in str(caught.value)


def test_bench_read_compares_the_store_of_a_recipe_with_the_disk(stored, tmp_path):
    stage, recipe = tmp_path / "stage", tmp_path / "stored.toml"
    staged_once(stored, stage)
    lines = [
        '[run]\nname = "t"\nsteps = 10',
        f'[data]\npath = "{stored.data.path}"',
        f'[data.store]\nendpoint = "{stored.data.store.endpoint}"',
        f'[node]\nstage = "{stage}"',
        f"[batch]\nsequence_length = {LENGTH}",
    ]
    recipe.write_text("\n".join(lines) + "\n")
    told = CliRunner().invoke(app, ["read", str(recipe), "--samples", "20", "--json"])
    assert told.exit_code == 0, told.output
    found = check("bench-read", told.stdout)
    assert (found["length"], found["staged_share"]) == (LENGTH, 1.0)
    assert found["source"]["p50_s"] > found["staged"]["p50_s"], "a request against a page of a file"


def test_bench_read_says_in_a_line_what_it_cannot_read(stored, tmp_path):
    recipe = tmp_path / "wrong.toml"
    recipe.write_text("[run]\nnme = 1\n")
    for place, said in ((recipe, "nme"), (tmp_path / "none", "no prepared data")):
        told = CliRunner().invoke(app, ["read", str(place)])
        assert told.exit_code == 1
        assert said in told.output
        assert "Traceback" not in told.output
