"""Shapes of real machines: what is chosen on each, and what is said about the rest."""

import json
import random
import shutil

import pytest

from slurm.commands_tune import _choice
from tests.slurm.node.trees import build, described, machines

# Without a device tree the places of GPUs are unknown, and a function has no siblings: not for every shape.
NEEDS_TREE = {
    name for name in machines() if {"gpu", "what"} <= described(name).keys()
} | {"lag-renamed", "sriov-host", "mixed-layers", "laptop", "laptop-cable"}  # fmt: skip
VARIABLES = ("NCCL_SOCKET_IFNAME", "NCCL_IB_HCA", "GLOO_SOCKET_IFNAME")


@pytest.fixture(autouse=True)
def _nothing_set(monkeypatch):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def check(found: dict, expect: dict) -> None:
    socket = expect.get("socket")
    assert found["NCCL_SOCKET_IFNAME"] == (f"={socket}" if socket else None), found["reason"]
    assert found["GLOO_SOCKET_IFNAME"] == socket
    assert found["address"] == expect.get("address")
    assert found["NCCL_IB_HCA"] == expect.get("hca"), found
    why = {item["name"]: item["why"] for item in found["rejected"]}
    assert len(why) == len(found["rejected"])
    for name, text in expect.get("rejected", {}).items():
        assert name in why, (name, why)
        assert text in why[name]
    assert expect.get("probe", False) == ("a probe between the nodes decides" in found["reason"]), found[
        "reason"
    ]
    assert expect.get("warn", "") in found["reason"]
    assert "\n" not in found["reason"]


SHAPES = [(name, layout) for name in machines() for layout in ("links", "sys")]
SHAPES += [(name, "flat") for name in machines() if name not in NEEDS_TREE]


@pytest.mark.parametrize(("name", "layout"), SHAPES)
def test_machine(name, layout, tmp_path):
    machine = described(name)
    root = build(tmp_path / "root", machine, layout)
    found = _choice(root, "").as_json()
    check(found, machine["expect"])
    named = {item["name"].partition(":")[0] for item in found["rejected"]} | {found["GLOO_SOCKET_IFNAME"]}
    base = root / "sys" if layout == "sys" else root
    there = {item.name for item in (base / "class/net").iterdir()} - {"bonding_masters"}
    there |= {item.name for item in (base / "class").glob("infiniband/*")}
    taken = (found["NCCL_IB_HCA"] or "").removeprefix("=").split(",")
    assert there - named - {item.partition(":")[0] for item in taken} == set(), (
        "each one is taken or rejected"
    )


def test_there_are_enough_of_them():
    assert len(machines()) >= 20
    assert all(described(name)["what"] for name in machines())


@pytest.mark.parametrize("name", [name for name in machines() if "gpu" in described(name)])
def test_the_bus_need_not_be_recorded(name, tmp_path):
    """GPUs are then found by walking the device tree."""
    machine = described(name)
    root = build(tmp_path / "root", machine)
    shutil.rmtree(root / "bus")
    check(_choice(root, "").as_json(), machine["expect"])


def test_addresses_in_the_form_of_ip(tmp_path):
    machine = described("ethernet-10-25-100")
    root = build(tmp_path / "root", machine)
    known = json.loads((root / "addresses.json").read_text())
    listed = [{"ifname": name, "addr_info": entries} for name, entries in known["interfaces"].items()]
    (root / "addresses.json").write_text(json.dumps(listed))
    assert _choice(root, "").address == "10.0.2.2"


def test_without_addresses_it_is_refused_and_said(tmp_path):
    root = build(tmp_path / "root", "ethernet-tie")
    (root / "addresses.json").unlink()
    found = _choice(root, "")
    assert not found.ok
    assert "no addresses.json" in found.reason
    assert {item.name for item in found.rejected} == {"lo", "ens1", "ens2"}


@pytest.mark.parametrize("name", ["dgx-h100-ipoib", "oci-bonded-vlan", "bridge", "azure-nd-h100"])
def test_what_was_not_recorded_is_never_a_crash(name, tmp_path):
    """Files that are missing, empty or hold nonsense: some answer, or a refusal with a reason."""
    chance = random.Random(name)
    for number in range(12):
        root = build(tmp_path / str(number), described(name))
        files = [path for path in sorted(root.rglob("*")) if path.is_file() or path.is_symlink()]
        for path in chance.sample(files, len(files) // 4):
            what = chance.choice(["gone", "empty", "nonsense"])
            if what == "gone" or path.is_symlink():
                path.unlink()
            else:
                path.write_text("" if what == "empty" else "\xff?\n")
        found = _choice(root, "")
        assert found.reason
        assert found.ok or found.address is None
