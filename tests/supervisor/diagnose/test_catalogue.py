"""Every entry explains its samples and leaves the near misses alone; the gate lets every sample through."""

import time
import tomllib
from pathlib import Path

import pytest

from supervisor.diagnose.catalogue import CatalogueError, Tier, catalogue_of, load, parse
from supervisor.diagnose.lines import clean
from supervisor.diagnose.lines import parse as parse_line
from supervisor.diagnose.scan import gate_of

SAMPLES = tomllib.loads((Path(__file__).parent / "samples.toml").read_text(encoding="utf-8"))
CATALOGUE = load()
NAMED = [entry for entry in CATALOGUE.entries if entry.patterns]


def _matched(text, frames=""):
    message = parse_line(clean(text.encode())).message if "\n" not in text else text
    match = CATALOGUE.match(message, frames)
    return match.entry.name if match else None


@pytest.mark.parametrize("entry", NAMED, ids=lambda entry: entry.name)
def test_samples(entry):
    samples = SAMPLES[entry.name]
    assert samples["yes"]
    assert samples["no"]
    for text in samples["yes"]:
        assert _matched(text, samples.get("frames", "")) == entry.name, text
    for text in samples["no"]:
        assert _matched(text) != entry.name, text


@pytest.mark.parametrize(
    "entry", [e for e in NAMED if e.tier is not Tier.NOISE], ids=lambda entry: entry.name
)
def test_the_gate_opens(entry):
    gate = gate_of(CATALOGUE)
    for text in SAMPLES[entry.name]["yes"]:
        assert gate.opens(text.split("\n")[0].encode()), text
        assert set(gate.keys_in(text.lower().encode())) & set(entry.keys), text


def test_samples_name_entries_that_exist():
    assert set(SAMPLES) == {entry.name for entry in NAMED}


@pytest.mark.parametrize("entry", CATALOGUE.entries, ids=lambda entry: entry.name)
def test_texts(entry):
    if entry.tier not in {Tier.NOISE, Tier.SUCCESS}:
        assert len(entry.en) > 20
        assert any("\u4e00" <= letter <= "\u9fff" for letter in entry.zh)
    for key in entry.keys:
        assert key == key.lower()
        assert len(key) > 2 or key == "s3" or not key.isascii(), key


def test_a_wrong_entry_is_refused():
    good = {
        "name": "x",
        "class": "nan",
        "tier": "root",
        "keys": ["x"],
        "patterns": ["x"],
        "zh": "好",
        "en": "good",
    }
    assert next(iter(parse({"entry": [good]}, "here"))).name == "x"
    for change in ({"class": "odd"}, {"tier": "odd"}, {"patterns": ["("]}, {"more": 1}, {"retry": "maybe"}):
        with pytest.raises(CatalogueError, match="x"):
            parse({"entry": [{**good, **change}]}, "here")
    assert catalogue_of(parse({"entry": [good]}, "here")).match("a x") is not None


@pytest.mark.parametrize("entry", NAMED, ids=lambda entry: entry.name)
def test_no_pattern_explodes(entry):
    """A window of a line is 6,000 characters; a pattern that backtracks over it takes a hundred times this limit."""
    for filler in (
        "y",
        "a b ",
        "loss nan error ",
        "1",
        "rank ",
        "xid (0:0): ",
        "data ",
        "a.b.",
        "checkpoint ",
        " ",
    ):
        text = filler * (6000 // len(filler))
        before = time.process_time()
        for pattern in entry.patterns:
            pattern.search(text)
        assert time.process_time() - before < 0.1, filler
