"""What `--json` prints, against the schema that the repository keeps for it."""

import json
from importlib.resources import files

import jsonschema


def check(name: str, printed: str | dict) -> dict:
    """The value, which fits supervisor/schemas/NAME.json."""
    value = json.loads(printed) if isinstance(printed, str) else printed
    schema = json.loads(files("supervisor").joinpath("schemas", f"{name}.json").read_text())
    jsonschema.Draft202012Validator(schema).validate(value)
    return value
