"""The lists of DeepSpeed's keys against the installed DeepSpeed. Nothing else tells when they go out of date."""

import pytest

from contract.config.deepspeed_keys import BF16, ELSEWHERE, FP16, KNOWN, OWNED, PASSED, REMOVED, TAKEN, ZERO


class Recording(dict):
    """A JSON that remembers for what it was asked."""

    def __init__(self) -> None:
        super().__init__(train_batch_size=1)
        self.asked: set[str] = set()

    def get(self, key, default=None):
        self.asked.add(key)
        return super().get(key, default)

    def __contains__(self, key) -> bool:
        self.asked.add(key)
        return super().__contains__(key)

    def __getitem__(self, key):
        self.asked.add(key)
        return super().__getitem__(key)


@pytest.fixture(scope="module")
def asked() -> set[str]:
    """The top-level keys that DeepSpeed looks for."""
    from deepspeed.runtime.config import DeepSpeedConfig

    config, settings = DeepSpeedConfig.__new__(DeepSpeedConfig), Recording()
    config.mesh_device = None
    config._initialize_params(settings)
    return settings.asked


def test_what_deepspeed_reads_is_known_here(asked):
    assert asked - KNOWN - set(ELSEWHERE) == set()


def test_what_we_pass_on_deepspeed_reads(asked):
    import inspect
    from pathlib import Path

    import deepspeed
    from deepspeed.runtime import config

    # Some tables are looked for by the key's presence in code that only runs with it.
    source = "".join(path.read_text() for path in Path(deepspeed.__path__[0]).rglob("*.py"))
    for key in sorted((PASSED | set(OWNED) | TAKEN - {"fp8"}) - asked):
        assert f'"{key}"' in source or f"'{key}'" in source, key
    assert set(config._REMOVED_TOP_LEVEL_CONFIG_KEYS) == REMOVED
    assert "fp8" not in inspect.getsource(config)


def test_the_tables():
    from deepspeed.runtime.precision_config import DeepSpeedBF16Config, DeepSpeedFP16Config
    from deepspeed.runtime.zero.config import DeepSpeedZeroConfig

    fields = DeepSpeedZeroConfig.model_fields
    assert {*fields, *(field.alias for field in fields.values() if field.alias)} == ZERO
    assert set(DeepSpeedFP16Config.model_fields) == FP16
    assert set(DeepSpeedBF16Config.model_fields) == BF16
