"""Preparing and reading token shards."""

import threading
import time

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from contract.config.data import INDEX, Corpus, Data, data_problem
from contract.sampling import Sampler
from tests.supervisor.schemas import check
from trainer.batch.plan import Plan
from trainer.commands import app
from trainer.data import prepare as preparing
from trainer.data.batches import Batches
from trainer.data.corpora import Corpora
from trainer.data.prepare import PrepareError, Recipe, divide, prepare, read_documents
from trainer.data.reader import TokenReader
from trainer.errors import ConfigError

BYTES = Recipe(vocab_size=0, validation_share=0.3)


@pytest.fixture
def texts(tmp_path):
    folder = tmp_path / "texts"
    (folder / "sub").mkdir(parents=True)
    for number in range(6):
        (folder / ("sub" if number % 2 else "") / f"{number}.txt").write_text(f"text {number} äöü\n" * 40)
    (folder / "picture.bin").write_bytes(b"\0\1")
    return folder


def content(directory):
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_the_same_sources_give_the_same_bytes(texts, tmp_path):
    recipe = Recipe(vocab_size=300, validation_share=0.3)
    prepare([texts], tmp_path / "a", recipe)
    prepare([texts], tmp_path / "b", recipe)
    assert content(tmp_path / "a") == content(tmp_path / "b")


def test_every_token_is_read_back_once_across_shards(texts, tmp_path):
    index = prepare([texts], tmp_path / "a", Recipe(vocab_size=0, validation_share=0.3, shard_tokens=100))
    assert len(index["splits"]["train"]["shards"]) > 3
    train, held = divide(read_documents([texts], 0), 0.3)
    for split, documents in (("train", train), ("validation", held)):
        expected = [token for text in documents for token in [*text.text.encode(), 256]]
        reader = TokenReader(tmp_path / "a", split, length=33)
        samples = [reader.sample(number) for number in range(reader.samples)]
        assert all(sample.shape == (34,) and sample.dtype == np.int64 for sample in samples)
        joined = np.concatenate([sample[:-1] for sample in samples]).tolist()
        assert joined == expected[: len(joined)]
        assert len(expected) - len(joined) <= 33
        assert [sample[-1] for sample in samples[:-1]] == [sample[0] for sample in samples[1:]]


def test_documents_are_held_out_whole(texts):
    documents = read_documents([texts], 0)
    train, held = divide(documents, 0.3)
    assert held
    assert {document.name for document in train} | {document.name for document in held} == {
        document.name for document in documents
    }
    assert not {document.name for document in train} & {document.name for document in held}


def test_bpe_text_survives_the_round_trip(texts, tmp_path):
    from tokenizers import Tokenizer

    prepare([texts], tmp_path / "a", Recipe(vocab_size=300, validation_share=0.3))
    reader = TokenReader(tmp_path / "a", "train", length=8)
    tokenizer = Tokenizer.from_file(str(tmp_path / "a" / "tokenizer.json"))
    assert reader.vocab_size <= 300
    numbers = np.concatenate([reader.sample(number)[:-1] for number in range(reader.samples)]).tolist()
    assert tokenizer.decode(numbers, skip_special_tokens=True).startswith(
        divide(read_documents([texts], 0), 0.3)[0][0].text
    )


def test_a_second_call_finds_its_work_done(texts, tmp_path):
    first = prepare([texts], tmp_path / "a", BYTES)
    before = (tmp_path / "a" / INDEX).stat().st_mtime_ns
    assert prepare([texts], tmp_path / "a", BYTES) == first
    assert (tmp_path / "a" / INDEX).stat().st_mtime_ns == before


def test_other_data_are_never_overwritten(texts, tmp_path):
    prepare([texts], tmp_path / "a", BYTES)
    (texts / "new.txt").write_text("more\n")
    with pytest.raises(PrepareError, match="holds other data"):
        prepare([texts], tmp_path / "a", BYTES)


def test_a_preparation_that_dies_leaves_nothing_that_could_be_read(texts, tmp_path, monkeypatch):
    def full(*_arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(preparing.files, "replace_json", full)
    with pytest.raises(OSError, match="No space"):
        prepare([texts], tmp_path / "a", BYTES)
    assert [path.name for path in tmp_path.iterdir()] == ["texts"]
    assert "no prepared data" in data_problem(tmp_path / "a")


def test_what_is_wrong_with_a_directory_is_told(texts, tmp_path):
    prepare([texts], tmp_path / "a", BYTES)
    assert data_problem(tmp_path / "a") == ""
    shard = tmp_path / "a" / "train-00000.bin"
    shard.write_bytes(shard.read_bytes()[:-2])
    assert "the index says" in data_problem(tmp_path / "a")
    with pytest.raises(ConfigError, match="the index says"):
        TokenReader(tmp_path / "a", "train", length=8)
    shard.unlink()
    assert "train-00000.bin is missing" in data_problem(tmp_path / "a")
    (tmp_path / "a" / INDEX).write_text("{")
    assert "not JSON" in data_problem(tmp_path / "a")


def test_one_document_cannot_be_divided(tmp_path):
    (tmp_path / "one.txt").write_text("alone")
    with pytest.raises(PrepareError, match="at least two documents"):
        prepare([tmp_path / "one.txt"], tmp_path / "a", BYTES)


def test_the_cap_takes_a_mixture(texts):
    capped = read_documents([texts], 1000)
    assert 1 <= len(capped) < 6
    assert [document.name for document in capped] == sorted(document.name for document in capped)


def test_the_command(texts, tmp_path):
    target = str(tmp_path / "a")
    run = CliRunner().invoke(app, ["prepare-data", target, "--source", str(texts), "--vocab", "0", "--json"])
    assert run.exit_code == 0, run.output
    assert check("prepare-data", run.stdout)["tokenizer"]["vocab_size"] == 257
    assert (
        CliRunner().invoke(app, ["prepare-data", target, "--source", str(tmp_path / "none")]).exit_code == 1
    )
    assert CliRunner().invoke(app, ["prepare-data", target]).exit_code == 2


def test_corpora_are_read_as_one_and_evaluated_by_weight(texts, tmp_path):
    (tmp_path / "other").mkdir()
    for number in range(4):
        (tmp_path / "other" / f"{number}.txt").write_text(f"quite other words {number}\n" * 30)
    prepare([texts], tmp_path / "a", BYTES)
    prepare([tmp_path / "other"], tmp_path / "b", BYTES)
    readers = [TokenReader(tmp_path / name, "train", length=16) for name in "ab"]
    both = Corpora(readers, [3.0, 1.0])
    assert both.samples == readers[0].samples + readers[1].samples
    for number in range(both.samples):
        inside = number - readers[0].samples
        wanted = readers[0].sample(number) if inside < 0 else readers[1].sample(inside)
        assert (both.sample(number) == wanted).all()
    spread = both.spread(8)
    assert sum(number < readers[0].samples for number in spread) == 6
    assert len(set(spread)) == 8


def test_corpora_with_other_tokenizers_are_refused_until_prepared_alike(texts, tmp_path):
    (tmp_path / "other").mkdir()
    for number in range(4):
        (tmp_path / "other" / f"{number}.txt").write_text(f"quite other words {number}\n" * 30)

    def made(name, source, *more):
        line = ["prepare-data", str(tmp_path / name), "--source", str(source), "--validation", "0.3", *more]
        result = CliRunner().invoke(app, line)
        assert result.exit_code == 0, result.output
        return Corpus(path=str(tmp_path / name))

    first = made("a", texts, "--vocab", "300")
    data = Data(corpora=[first, made("b", tmp_path / "other", "--vocab", "300")])
    assert "another tokenizer" in data.missing()[0]
    assert f"--tokenizer {tmp_path / 'a'}" in data.missing()[0]
    alike = made("c", tmp_path / "other", "--tokenizer", str(tmp_path / "a"))
    assert Data(corpora=[first, alike]).missing() == []
    made("c", tmp_path / "other", "--tokenizer", str(tmp_path / "a"))  # finds its work done
    assert "beside corpora" in Data(path="x", corpora=[first]).missing()[0]
    assert "no prepared data" in Data(corpora=[first, Corpus(path=str(tmp_path / "none"))]).missing()[0]


class Slow:
    """A reader whose samples can be held back; counts what is read."""

    samples, vocab_size = 100, 256

    def __init__(self) -> None:
        self.read: list[int] = []
        self.go = threading.Event()
        self.go.set()
        self.fails_from = 10**9

    def sample(self, number: int) -> np.ndarray:
        assert self.go.wait(20)
        self.read.append(number)
        if len(self.read) > self.fails_from:
            raise OSError("the source is gone")
        return np.full(9, number)

    def spread(self, count: int) -> list[int]:
        return list(range(count))


def test_the_next_step_is_read_while_this_one_is_computed() -> None:
    reader, plan = Slow(), Plan(samples=(4,), micro_steps=2)
    batches = Batches(reader, Sampler(samples=100, seed=0), rank=0)
    first = batches.window(0, plan)
    wait_until(lambda: len(reader.read) == 8)
    reader.go.clear()  # nothing can be read any more, and the second step is there
    second = batches.window(first.taken.end, plan)
    assert second.taken.start == 4
    assert not torch.equal(first.micro_batches[0], second.micro_batches[0])
    reader.go.set()
    again = batches.window(0, plan)  # not what was read ahead: a step that is taken again
    assert all(map(torch.equal, first.micro_batches, again.micro_batches))
    smaller = Plan(samples=(4,), micro_steps=4)
    assert len(batches.window(again.taken.end, smaller).micro_batches) == 4


def test_an_error_of_what_is_read_ahead_is_raised_when_it_is_needed() -> None:
    reader, plan = Slow(), Plan(samples=(4,), micro_steps=2)
    reader.fails_from = 4
    batches = Batches(reader, Sampler(samples=100, seed=0), rank=0)
    first = batches.window(0, plan)
    with pytest.raises(OSError, match="the source is gone"):
        batches.window(first.taken.end, plan)


def wait_until(look) -> None:
    deadline = time.monotonic() + 20
    while not look():
        assert time.monotonic() < deadline
        time.sleep(0.002)
