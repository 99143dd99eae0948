"""Bad configurations: everything that is wrong, in one go, each with its place and what would be right."""

import tomllib
from pathlib import Path

import pytest

from contract.config import ConfigError, dump, load, parse, read_resolved
from contract.config.amend import amended

GOOD = '[run]\nname = "tiny"\nsteps = 10\n[job]\ncommand = ["true"]\n'


def _problems(tmp_path: Path, text: str, overrides: tuple[str, ...] = ()) -> dict[str, str]:
    path = tmp_path / "run.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load(path, overrides)
    return {problem.where: problem.what for problem in caught.value.problems}


def test_all_problems_come_in_one_go(tmp_path: Path) -> None:
    found = _problems(
        tmp_path,
        """
        [run]
        steps = "many"
        stepz = 3
        [jobs]
        [job]
        nodes = 0
        [batch]
        global_batch_size = 10
        micro_batch_size = 4
        """,
    )
    assert "valid integer" in found["run.steps"]
    assert "'many'" in found["run.steps"]
    assert found["run.stepz"] == 'unknown key; did you mean "steps"?'
    assert 'did you mean "job"' in found["jobs"]
    assert "greater than or equal to 1" in found["job.nodes"]


def test_contradictions_are_told_beside_wrong_types(tmp_path: Path) -> None:
    found = _problems(
        tmp_path,
        """
        [run]
        steps = "many"
        [job]
        gpus_per_node = 1
        ranks_per_node = 3
        [batch]
        global_batch_size = 10
        micro_batch_size = 4
        """,
    )
    assert set(found) >= {"run.steps", "job.ranks_per_node", "batch.global_batch_size", "data.path"}


def test_a_place_for_copies_that_cannot_be_is_told_without_what_was_written(tmp_path: Path) -> None:
    found = _problems(
        tmp_path,
        GOOD
        + """
        [metadata.labels]
        "ciuic.io/checkpoint-path" = "s3://AKIAKEY:hunter2@bucket/x"
        [mirror]
        endpoint = "https://AKIAKEY:hunter2@host"
        [backup]
        directory = "elsewhere"
        """,
    )
    assert found["metadata.labels"].endswith('takes "s3://bucket/prefix" and nothing else')
    assert "without bucket, path or user" in found["mirror.endpoint"]
    assert "not an absolute path" in found["backup.directory"]
    assert "hunter2" not in str(found)


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("[run]\nsteps = 1\ntokens = 1", "run.steps"),
        ("[run]", "run.steps"),
        ("[run]\nsteps = 1\nname = 'a; rm -rf x'", "run.name"),
        ("[run]\nsteps = 1\n[job]\npartition = 'a; rm -rf x'", "job.partition"),
        ("[run]\nsteps = 1\n[job]\nexecutor = 'kubernetes'", "job.executor"),
        ("[run]\nsteps = 1\n[job.sbatch]\ndependency = 'singleton'", "job.sbatch.dependency"),
        ('[run]\nsteps = 1\n[job.sbatch]\nreservation = "a\\nb"', "job.sbatch.reservation"),
        ("[run]\nsteps = 1\n[metadata.labels]\n\"ciuic.io/watchdog\" = 'no'", "metadata.labels"),
        ("[run]\nsteps = 1\n[alerts.wecom]\nkey_env = 'https://host?key=x'", "alerts.wecom.key_env"),
        (
            "[run]\nsteps = 1\n[[alerts.wecom]]\n[[alerts.wecom]]\nper_minute = 30",
            "alerts.wecom.1.per_minute",
        ),
        ("[run]\nsteps = 1\n[[alerts.wecom]]\n[[alerts.wecom]]", "alerts.wecom.key_env"),
        ("[run]\nsteps = 1\n[alerts.feishu]\nkey = 'x'", "alerts.feishu.key"),
        ("[run]\nsteps = 1\n[alerts.dingtalk]\nquiet = '22-8'", "alerts.dingtalk.quiet"),
        ("[run]\nsteps = 1\n[alerts.wecom]\ndigest = '09:00'\ntime_zone = 'Mars'", "alerts.wecom.time_zone"),
        ("[run]\nsteps = 1\n[alerts.wecom]\nproxy = 'http://me:pw@proxy:80'", "alerts.wecom.proxy"),
        ("[run]\nsteps = nan", "run.steps"),
        ("[run\nsteps", "file"),
    ],
)
def test_each_bad_value_is_refused_at_its_place(tmp_path: Path, text: str, where: str) -> None:
    assert any(found.startswith(where) for found in _problems(tmp_path, text))


def test_a_missing_file_and_bad_overrides_are_problems_too(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        load(tmp_path / "nothing.toml")
    assert "--set run.steps" in _problems(tmp_path, GOOD, ("run.steps",))
    assert "run.steps" in _problems(tmp_path, GOOD, ("run.steps=x",))


def test_overrides_take_toml_values_and_bare_words(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text(GOOD)
    config = load(path, ("run.steps=20", "run.name=other", 'job.exclude=["n1"]', "alerts.wecom.per_minute=5"))
    assert (config.run.steps, config.run.name, config.job.exclude) == (20, "other", ["n1"])
    assert config.alerts.wecom[0].per_minute == 5


def test_who_is_told_when_nobody_one_or_several_are_named(tmp_path: Path) -> None:
    def names(text: str) -> list[str]:
        path = tmp_path / "run.toml"
        path.write_text(GOOD + text)
        config = load(path)
        assert read_resolved(_written(tmp_path, dump(config))).alerts == config.alerts
        return [receiver.name for receiver in config.alerts.receivers]

    assert names("") == ["wecom:CIUIC_WECOM_KEY"]
    assert names("[alerts.wecom]\nlanguage = 'en'") == ["wecom:CIUIC_WECOM_KEY"]
    assert names("[alerts.feishu]") == ["feishu:CIUIC_FEISHU_KEY"]
    assert names("[[alerts.wecom]]\n[[alerts.wecom]]\nkey_env = 'OPS'\n[alerts.webhook]") == [
        "wecom:CIUIC_WECOM_KEY",
        "wecom:OPS",
        "webhook:CIUIC_WEBHOOK_URL",
    ]
    assert names("[alerts]\nwecom = []") == []


def _written(folder: Path, text: str) -> Path:
    path = folder / "resolved.toml"
    path.write_text(text)
    return path


def test_the_resolved_file_reads_back_the_same(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text(GOOD)
    config = load(path)
    resolved = tmp_path / "resolved.toml"
    resolved.write_text(dump(config))
    assert read_resolved(resolved) == config
    assert tomllib.loads(resolved.read_text())["supervisor"]["max_failures"] == 8


def test_deepspeed_json_is_taken_in_so_that_the_run_stands_alone(tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text('{"zero_optimization": {"stage": 1}}')
    (tmp_path / "run.toml").write_text(GOOD + '[deepspeed]\nconfig = "ds.json"\n')
    config = load(tmp_path / "run.toml")
    assert config.deepspeed.config == ""
    assert config.deepspeed.inline == {"zero_optimization": {"stage": 1}}


def test_an_unknown_deepspeed_key_is_an_error_not_a_silent_pass(tmp_path: Path) -> None:
    found = _problems(tmp_path, GOOD + "[deepspeed.inline]\nzero_optimisation = 1\n")
    assert "zero_optimisation" in str(found)


@pytest.mark.parametrize("path", sorted(Path("configs").glob("*.toml")), ids=lambda path: path.name)
def test_every_recipe_is_sound(path: Path, tmp_path: Path) -> None:
    value = tomllib.loads(path.read_text())
    try:
        parse(value, source=str(path), bases=[Path.cwd()])
    except ConfigError as error:
        # The data of a recipe is prepared by its user; everything else must be right.
        assert {problem.where for problem in error.problems} == {"data.path"}  # noqa: PT017


def test_rules_by_class_of_failure_have_closed_keys_and_survive_the_run_directory(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text(
        GOOD + '[supervisor.rules.gpu-oom]\nretry = "never"\n[supervisor.rules.hang]\nbudget = 3\n'
    )
    config = load(path)
    assert {cause.value: rule.budget for cause, rule in config.supervisor.rules.items()} == {
        "gpu-oom": 0,
        "hang": 3,
    }
    path.write_text(dump(config))
    assert read_resolved(path).supervisor.rules == config.supervisor.rules
    wrong = '[supervisor.rules]\ngpu-oom = {retry = "nevr", budget = -1}\nnone = {}\noom = {}\nnan = {colour = 1}\n'
    assert {where.removeprefix("supervisor.rules.") for where in _problems(tmp_path, GOOD + wrong)} == {
        "gpu-oom.retry", "gpu-oom.budget", "none.[key]", "oom.[key]", "nan.colour",
    }  # fmt: skip


def test_settings_of_a_run_change_between_two_attempts(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text(GOOD)
    config = load(path)
    found, changes = amended(config, ["job.nodes=3", "run.steps=10"], source="r")
    assert found.job.nodes == 3
    assert [str(item) for item in changes] == ["job.nodes: 1 → 3"]
    again, none = amended(found, ["job.nodes=3"], source="r")
    assert (again, none) == (found, ())
    with pytest.raises(ConfigError) as caught:
        amended(config, ["run.seed=4", "job.executor=slurm", "jobs.nodes=2", "x"], source="r")
    told = {problem.where: problem.what for problem in caught.value.problems}
    assert "lose or repeat samples" in told["run.seed"]
    assert {"job.executor", "--set x"} <= set(told)
    with pytest.raises(ConfigError, match='did you mean "job"'):
        amended(config, ["jobs.nodes=2"], source="r")


def test_ranks_that_the_global_batch_does_not_divide_by_are_refused_with_what_would(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text("[run]\nsteps = 3\n[job]\nranks_per_node = 2\n")
    config = load(path, only=frozenset({"run"}))
    with pytest.raises(ConfigError, match="12 or 24 would be"):
        amended(config, ["job.ranks_per_node=3"], source="r")


def test_what_only_our_trainer_does_is_refused_for_another_program(tmp_path: Path) -> None:
    text = GOOD + '[profile]\nat_steps = [3]\nevery_steps = 9\n[trackers]\ntensorboard = "on"\n'
    found = _problems(tmp_path, text)
    assert set(found) >= {"profile.at_steps", "profile.every_steps", "trackers.tensorboard"}
    assert "[job] command" in found["profile.at_steps"]


def test_ranks_of_a_profile_are_ranks_of_the_run(tmp_path: Path) -> None:
    text = "[run]\nsteps = 1\n[job]\nranks_per_node = 2\n[batch]\nglobal_batch_size = 8\n[profile]\nranks = [0, 2]\n"
    assert _problems(tmp_path, text)["profile.ranks"] == "2 of 2 ranks, counted from 0"
