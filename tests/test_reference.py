"""What is written from the code is current."""

from pathlib import Path

import pytest

from tools.reference import documents

DOCS = Path(__file__).resolve().parents[1] / "docs"
MADE = documents()


@pytest.mark.parametrize("place", MADE)
def test_what_is_made_from_the_code_is_current(place: str) -> None:
    assert (DOCS / place).read_text() == MADE[place], f"docs/{place} is stale: make reference"
