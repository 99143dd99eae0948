"""What every section of the configuration has in common."""

from typing import ClassVar

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """One table of run.toml: frozen, no unknown keys, no null (TOML has none: 0 or "" means "not set")."""

    model_config: ClassVar[ConfigDict] = ConfigDict(
        frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True, allow_inf_nan=False
    )

    def contradictions(self) -> list[str]:
        """Problems inside this section that no single key shows; each `key: sentence`."""
        return []
