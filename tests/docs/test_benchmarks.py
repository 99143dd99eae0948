"""Each benchmark finds its place in docs/benchmarks.md, and a page without one loses nothing."""

import re
from pathlib import Path

import pytest

from benchmarks.document import PAGE, put

ROOT = Path(__file__).resolve().parents[2]
CALL = re.compile(r'^\s+put\("(\w+)", \w+(?:, script="(\w+)")?\)$', re.MULTILINE)
MADE = {path.stem: CALL.findall(path.read_text()) for path in sorted((ROOT / "benchmarks").glob("*.py"))}


@pytest.mark.parametrize(("script", "calls"), [item for item in MADE.items() if item[1]])
def test_a_benchmark_writes_between_its_own_marks(script: str, calls, tmp_path: Path) -> None:
    page = tmp_path / "benchmarks.md"
    before = PAGE.read_text()
    page.write_text(before)
    for name, named in calls:
        assert (named or name) == script
        put(name, "measured anew", named, page)
        begin, end = f"<!-- {name}: made by benchmarks/{script}.py -->", f"<!-- /{name} -->"
        assert f"{begin}\nmeasured anew\n{end}" in page.read_text()
    rest = re.compile(r"<!-- (\w+): made by .*?<!-- /\1 -->", re.DOTALL)
    assert rest.sub("", page.read_text()) == rest.sub("", before)


def test_all_tables_of_the_page_are_made_by_a_benchmark() -> None:
    found = re.findall(r"<!-- (\w+): made by", PAGE.read_text())
    assert sorted(found) == sorted(name for calls in MADE.values() for name, _ in calls)


def test_a_page_without_the_marks_is_left_alone(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Benchmarks\n\n<!-- slurm: made by benchmarks/slurm_faults.py -->\nno end\n")
    before = page.read_text()
    with pytest.raises(SystemExit, match="has no place for the table"):
        put("slurm", "text", "slurm_faults", page)
    assert page.read_text() == before
