"""What somebody has set, what the nodes agree on, and the small parts of the choice."""

import ipaddress
import socket
from dataclasses import replace

import pytest

from slurm.commands_tune import _choice
from slurm.node.addresses import kernel_addresses, parse_recorded
from slurm.node.agree import Way, agree
from slurm.node.choose import Choice
from slurm.node.explicit import matching
from slurm.node.links import Candidate, Tier
from slurm.node.machine import Place, natural
from slurm.node.nearness import Distance, distance
from slurm.node.probe import Measured, Sink, fastest, throughput
from tests.slurm.node.trees import build


@pytest.fixture
def on(tmp_path, monkeypatch):
    for name in ("NCCL_SOCKET_IFNAME", "NCCL_IB_HCA", "GLOO_SOCKET_IFNAME"):
        monkeypatch.delenv(name, raising=False)

    def choose(machine, interface="", **environment):
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        return _choice(build(tmp_path / "root", machine), interface)

    return choose


# -- explicit settings ---------------------------------------------------------------------------------------


def test_an_interface_that_is_set_wins_and_a_slow_one_is_flagged(on):
    found = on("ethernet-10-25-100", "eno1")
    assert (found.nccl_socket, found.gloo_socket, found.address) == ("=eno1", "eno1", "10.0.0.2")
    assert "eno1 runs at 10 Gb/s, ens2 at 100 Gb/s" in found.reason
    assert {item.name: item.why for item in found.rejected}["ens2"].startswith("better at 100 Gb/s")


def test_a_variable_that_is_set_is_kept_as_it_is(on):
    found = on("ethernet-10-25-100", NCCL_SOCKET_IFNAME="ens")
    assert (found.nccl_socket, found.gloo_socket, found.address) == ("ens", "ens2", "10.0.2.2")
    assert found.warnings == ()


def test_a_setting_that_matches_nothing_is_flagged(on):
    found = on("gcp-a3", NCCL_SOCKET_IFNAME="eth1", NCCL_IB_HCA="mlx5_1")
    assert found.nccl_hca == "mlx5_1"
    assert "NCCL_IB_HCA=mlx5_1 matches nothing here" in found.reason


def test_an_hca_prefix_is_flagged(on):
    found = on("oci-h100", NCCL_IB_HCA="mlx5_1")
    assert "prefix and also matches mlx5_10, mlx5_11" in found.reason
    assert "would be the choice" in found.reason


@pytest.mark.parametrize(
    ("value", "says"),
    [("=ens2", "Gloo knows no signs"), ("ens", "no interface ens here"), ("ens2,nope", "no interface nope")],
)
def test_gloos_list_is_not_nccls(on, value, says):
    found = on("ethernet-10-25-100", GLOO_SOCKET_IFNAME=value)
    assert found.gloo_socket == value
    assert says in found.reason


def test_down_ports_that_are_set_are_flagged(on):
    found = on("hgx-roce-some-down", NCCL_IB_HCA="=mlx5_0,mlx5_5")
    assert found.nccl_hca == "=mlx5_0,mlx5_5"
    assert "takes mlx5_5, which has no active port" in found.reason


def test_an_interface_that_is_down_is_obeyed_and_flagged(on):
    found = on("hgx-roce-some-down", "rdma5")
    assert (found.nccl_socket, found.address) == ("=rdma5", "10.1.5.7")
    assert "rdma5: down" in found.reason


def test_an_interface_that_is_not_there_is_a_refusal(on):
    found = on("ethernet-tie", "ib0")
    assert not found.ok
    assert (
        "[node] interface = ib0 is set, but there is no such interface here (ens1, ens2, lo)" in found.reason
    )


def test_the_loopback_can_be_set(on):
    found = on("loopback-only", "lo")
    assert (found.address, found.gloo_socket) == ("127.0.0.1", "lo")
    assert "loopback" in found.reason


@pytest.mark.parametrize(
    ("setting", "names"),
    [
        ("eth0", ["eth0", "eth01"]),
        ("=eth0", ["eth0"]),
        ("^eth0", ["ib0"]),
        ("^=eth0", ["eth01", "ib0"]),
        ("=ib0,eth01", ["eth01", "ib0"]),
        ("ib0:1", ["ib0"]),
    ],
)
def test_nccls_lists(setting, names):
    assert matching(setting, ["eth0", "eth01", "ib0"]) == names


# -- agreement -----------------------------------------------------------------------------------------------


def node(*links: str, default: str = "") -> Choice:
    """Links as `name address/prefix Gb/s`."""
    usable = []
    for text in links:
        name, address, rate = text.split()
        ip = ipaddress.ip_interface(address)
        usable.append(
            Candidate(
                name=name,
                address=ip,
                addresses=(ip,),
                tier=Tier.DATA,
                rate=None if rate == "?" else int(rate) * 1000,
                default=name == default,
                under=frozenset({name}),
            )
        )
    usable.sort(key=lambda item: item.order)
    first = usable[0] if usable else None
    return Choice(
        interface=first.name if first else "",
        address=str(first.address.ip) if first else None,
        usable=tuple(usable),
    )


def test_nodes_agree_on_the_fastest_common_network_whatever_its_name():
    found = agree(
        {
            "n1": node("eth0 10.0.0.1/24 10", "ib0 10.8.0.1/24 400", default="eth0"),
            "n2": node("eno1 10.0.0.2/24 10", "ibp1 10.8.0.2/24 400", default="eno1"),
        }
    )
    assert str(found.network) == "10.8.0.0/24"
    assert found.ways == {
        "n1": Way(interface="ib0", address="10.8.0.1"),
        "n2": Way(interface="ibp1", address="10.8.0.2"),
    }
    assert not found.rivals


def test_the_slowest_member_counts():
    found = agree(
        {
            "n1": node("a 10.1.0.1/24 100", "b 10.2.0.1/24 400"),
            "n2": node("a 10.1.0.2/24 100", "b 10.2.0.2/24 25"),
        }
    )
    assert str(found.network) == "10.1.0.0/24"


def test_a_network_that_one_node_lacks_is_not_common():
    found = agree(
        {
            "n1": node("a 10.1.0.1/24 10", "b 10.2.0.1/24 400"),
            "n2": node("a 10.1.0.2/24 10", "b 10.2.0.2/24 400"),
            "n3": node("a 10.1.0.3/24 10"),
        }
    )
    assert str(found.network) == "10.1.0.0/24"


def test_the_node_without_the_common_network_is_named():
    found = agree(
        {"n1": node("a 10.1.0.1/24 10"), "n2": node("a 10.1.0.2/24 10"), "n3": node("a 192.168.7.3/24 10")}
    )
    assert found.network is None
    assert found.missing == ("n3",)
    assert "n3 has no address in 10.1.0.0/24" in found.reason


def test_a_node_without_network_is_named():
    found = agree({"n1": node("a 10.1.0.1/24 10"), "n2": node()})
    assert (found.missing, found.ways) == (("n2",), {})


def test_routed_nodes_go_their_own_ways():
    found = agree({"n1": node("eth0 10.0.0.1/32 100"), "n2": node("eth0 10.0.9.2/32 100")})
    assert found.network is None
    assert not found.missing
    assert found.ways["n2"] == Way(interface="eth0", address="10.0.9.2")
    assert "routers" in found.reason


def test_a_wrong_prefix_length_does_not_divide():
    found = agree({"n1": node("a 10.1.0.1/16 10"), "n2": node("a 10.1.7.2/24 10")})
    assert str(found.network) == "10.1.0.0/16"
    assert found.ways["n2"].address == "10.1.7.2"


def test_equal_networks_are_rivals_and_the_default_route_stands():
    nodes = {f"n{i}": node(f"ib0 10.1.0.{i}/24 10", f"eth0 10.2.0.{i}/24 10", default="eth0") for i in (1, 2)}
    found = agree(nodes)
    assert str(found.network) == "10.2.0.0/24"
    assert [str(other) for other in found.rivals] == ["10.1.0.0/24"]
    same_cable = {
        name: replace(c, usable=tuple(replace(item, under=frozenset({"bond0"})) for item in c.usable))
        for name, c in nodes.items()
    }
    assert agree(same_cable).rivals == ()


# -- small parts ---------------------------------------------------------------------------------------------


def test_numbers_sort_as_numbers():
    names = ["mlx5_10", "mlx5_2", "mlx5_bond_0", "eth0", "mlx5_2f1"]
    assert sorted(names, key=natural) == ["eth0", "mlx5_2", "mlx5_2f1", "mlx5_10", "mlx5_bond_0"]


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("r/p/u/d1/gpu", "r/p/u/d2/nic", Distance.PIX),
        ("r/p/u/d1/v/e1/gpu", "r/p/u/d2/nic", Distance.PXB),
        ("r/p1/gpu", "r/p2/nic", Distance.PHB),
        ("r1/p/gpu", "r2/p/nic", Distance.SYS),
        ("", "r2/p/nic", Distance.SYS),
    ],
)
def test_distance(one, other, expected):
    places = [Place(path=tuple(text.split("/")) if text else ()) for text in (one, other)]
    assert distance(*places) is expected


def test_routes_and_addresses_as_recorded():
    found = parse_recorded(
        {
            "hostname": "h",
            "interfaces": {
                "eth0@if7": [{"family": "inet6", "local": "fd00::1", "prefixlen": 64, "scope": "global"}],
                "eth0:1": [{"family": "inet", "local": "10.0.0.1", "prefixlen": 24}],
                "eth1": [
                    {"local": "169.254.0.9", "prefixlen": 16, "scope": "global"},
                    {"local": "fe80::1%eth1", "prefixlen": 64},
                    {"local": "fd00::9", "prefixlen": 64, "tentative": True},
                ],
            },
            "routes": [
                {"dst": "default", "gateway": "fd00::fe", "dev": "eth1"},
                {"dst": "default", "metric": 50, "nexthops": [{"dev": "eth0"}]},
                {"dst": "10.0.0.0/8", "dev": "eth1"},
            ],
        }
    )
    assert [str(ip) for ip in found.of("eth0")] == ["10.0.0.1/24", "fd00::1/64"]
    assert found.of("eth1") == ()
    assert found.default_route == "eth0"
    with pytest.raises(ValueError, match=r"addresses\.json"):
        parse_recorded({"interfaces": 3})


def test_the_kernel_answers():
    found = kernel_addresses()
    assert found.host == socket.gethostname()
    assert "lo" not in found.interfaces


def test_a_probe_over_the_loopback_counts_what_arrived():
    with Sink(["127.0.0.1"]) as sink:
        found = throughput("127.0.0.1", "127.0.0.1", sink.ports["127.0.0.1"], size=4 << 20)
    assert not found.problem
    assert found.bits_per_s > 0
    gone = throughput("127.0.0.1", "127.0.0.1", sink.ports["127.0.0.1"], size=1 << 20)
    assert gone.bits_per_s == 0
    assert "refused" in gone.problem


def test_only_a_clearly_faster_link_replaces_the_one_that_stands():
    told = {"ib0": Measured(bits_per_s=9e9), "eth0": Measured(bits_per_s=8e9)}
    assert fastest(told, "eth0")[0] == "eth0"
    assert fastest({**told, "eth0": Measured(bits_per_s=1e8)}, "eth0")[0] == "ib0"
    assert fastest({**told, "eth0": Measured(bits_per_s=0, problem="refused")}, "eth0")[0] == "ib0"
