"""[data]: the prepared token shards, their order, and the held-out part."""

from pathlib import Path

from pydantic import Field

from contract import files
from contract.config.base import Section

INDEX = "index.json"
INDEX_VERSION = 1


class Data(Section):
    """What is read, in which order, and how often the held-out part is evaluated."""

    path: str = ""
    """Directory that `ciuic trainer prepare-data` wrote. Relative: to the recipe, else to the working directory."""
    evaluate_interval_steps: int = Field(default=0, ge=0)
    """Steps between two evaluations on the held-out part; 0 never evaluates. Every evaluation costs forward passes."""
    evaluate_samples: int = Field(default=64, ge=1)
    """Samples of one evaluation, all ranks together; rounded up to whole micro-batches on every rank."""

    def missing(self) -> list[str]:
        """What keeps the data from being used, as `key: sentence`; empty when nothing does."""
        if not self.path:
            return ["path: not set; `ciuic trainer prepare-data` makes a directory of token shards"]
        problem = data_problem(Path(self.path))
        return [f"path: {problem}"] if problem else []


def data_problem(path: Path) -> str:
    """Why the directory cannot be trained from, "" when it can. Cheap: reads the index and looks at sizes.

    A directory without an index is one that no preparation finished, and counts as missing.
    """
    try:
        index = files.read_json(path / INDEX)
        if index is None:
            return f"{path}: no prepared data there (no {INDEX}); `ciuic trainer prepare-data` makes it"
        if index.get("version") != INDEX_VERSION:
            return f"{path}: {INDEX} has format version {index.get('version')!r}, this program reads {INDEX_VERSION}"
        for split in ("train", "validation"):
            for shard in index["splits"][split]["shards"]:
                size = (path / shard["file"]).stat().st_size
                if size != shard["bytes"]:
                    return f"{path}: {shard['file']} has {size} bytes, the index says {shard['bytes']}"
    except FileNotFoundError as error:
        return f"{path}: {Path(str(error.filename)).name} is missing, the index names it"
    except (OSError, ValueError, KeyError, TypeError) as error:
        return f"{path}: cannot be read: {type(error).__name__}: {error}"
    return ""
