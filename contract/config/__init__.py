"""The configuration of a run: one file per section, one place that reads, checks and writes the whole."""

from contract.config.load import ConfigError, Problem, digest, dump, load, parse, read_resolved
from contract.config.whole import RunConfig

__all__ = ["ConfigError", "Problem", "RunConfig", "digest", "dump", "load", "parse", "read_resolved"]
