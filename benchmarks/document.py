"""docs/benchmarks.md: each benchmark's table stands between two marks, and is put there anew."""

from pathlib import Path

PAGE = Path(__file__).resolve().parents[1] / "docs" / "benchmarks.md"


def put(name: str, text: str, script: str = "", page: Path = PAGE) -> None:
    """The text between the marks of `name`, which `script` makes (without one: that of the same name).

    Raises:
        SystemExit: the page has no such marks; nothing was written, and what was measured is on the screen.
    """
    begin, end = f"<!-- {name}: made by benchmarks/{script or name}.py -->", f"<!-- /{name} -->"
    before, begun, rest = page.read_text(encoding="utf-8").partition(begin)
    _, ended, after = rest.partition(end)
    if not begun or not ended:
        raise SystemExit(f"{page} has no place for the table: {begin} … {end}")
    page.write_text(f"{before}{begin}\n{text}\n{end}{after}", encoding="utf-8")
