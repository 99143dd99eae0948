"""The dashboard's panels and queries, as its tests and those of the figures read them."""

import json
from importlib.resources import files

BOARD = json.loads(files("supervisor").joinpath("prometheus", "grafana.json").read_text(encoding="utf-8"))


def panels() -> list[dict]:
    return [panel for panel in BOARD["panels"] if panel["type"] != "row"]


def queries() -> list[str]:
    """Every expression, with the variable as Grafana fills it in for all runs."""
    found = [target["expr"] for panel in panels() for target in panel["targets"]]
    found += [item["expr"] for item in BOARD["annotations"]["list"]]
    return [query.replace("$run", ".*") for query in found]
