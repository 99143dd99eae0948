"""Who may look, and what a request can reach: over HTTP, as anybody on the network would try it."""

import gzip
import json

import pytest

from contract.layout import Root
from supervisor.page.door import Door, Place, page_place
from tests.supervisor.conftest import bare_run
from tests.supervisor.page.scenes import ask, look_at, page_of

TOKEN = "0123456789abcdef0123456789abcdef"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    root = Root(path=tmp_path_factory.mktemp("runs"))
    bare_run(root)
    return root


@pytest.fixture(scope="module")
def guarded(place):
    with page_of(place, lambda: [look_at("t-1")], token=TOKEN) as (_, port):
        yield port


@pytest.fixture(scope="module")
def port(place):
    with page_of(place, lambda: [look_at("t-1")]) as (_, number):
        yield number


def test_elsewhere_only_with_a_token_that_is_one() -> None:
    assert page_place("0.0.0.0", 0, {}) is None
    with pytest.raises(ValueError, match="CIUIC_PAGE_TOKEN"):
        page_place("0.0.0.0", 80, {})
    with pytest.raises(ValueError, match="5 characters"):
        page_place("127.0.0.1", 80, {"CIUIC_PAGE_TOKEN": "short"})
    environment = {"CIUIC_PAGE_TOKEN": TOKEN, "HOME": "/h"}
    place = page_place("0.0.0.0", 80, environment)
    assert TOKEN not in repr(place)
    assert environment == {"HOME": "/h"}, "no child of ours inherits it"


def test_the_link_lets_in_once_and_for_all_and_a_wrong_one_does_not(guarded) -> None:
    for path in ("/", "/picture", "/events?since=", "/static/app.js", "/static/words.json"):
        status, headers, body = ask(guarded, path)
        assert status == 403
        assert b"t-1" not in body
        assert "Set-Cookie" not in headers
    for wrong in ("", "x", TOKEN[:-1], TOKEN + "0", "%00", "%ff", "%C3%A9"):
        status, headers, _ = ask(guarded, f"/?token={wrong}")
        assert (status, "Set-Cookie" in headers) == (403, False)
    status, headers, _ = ask(guarded, f"/?token={TOKEN}")
    assert (status, headers["Location"]) == (303, "./"), "under whatever prefix"
    assert TOKEN not in headers["Set-Cookie"], "the browser keeps what was made from it"
    assert "HttpOnly" in headers["Set-Cookie"]
    assert "SameSite" in headers["Set-Cookie"]
    cookie = headers["Set-Cookie"].partition(";")[0]
    assert ask(guarded, "/picture", Cookie=cookie)[0] == 200
    assert ask(guarded, "/picture", Cookie=cookie, Host="portal.example")[0] == 200
    assert ask(guarded, "/picture", Cookie=cookie[:-1])[0] == 403
    assert ask(guarded, "/picture", Cookie=cookie.partition("=")[0] + '="\\')[0] == 403


def test_a_cookie_is_of_one_token_and_one_port() -> None:
    place = Place(host="127.0.0.1", port=80, token=TOKEN)
    cookie = Door(place).cookie_for(TOKEN).partition(";")[0]
    assert Door(place).opens(cookie, "")
    assert not Door(Place(host="127.0.0.1", port=81, token=TOKEN)).opens(cookie, "")
    assert not Door(Place(host="127.0.0.1", port=80, token=TOKEN[::-1])).opens(cookie, "")


def test_without_a_token_a_strange_name_is_refused(port) -> None:
    """A page elsewhere may have had its own name point here: what it asks for bears that name."""
    assert ask(port, "/picture", Host="evil.example")[0] == 403
    assert ask(port, "/picture", Host="localhost.evil.example:80")[0] == 403
    for name in ("localhost", f"127.0.0.1:{port}", f"LOCALHOST:{port}", "[::1]:80"):
        assert ask(port, "/picture", Host=name)[0] == 200
    assert ask(port, "/?token=anything")[0] == 303, "a link of before leads to the page"


@pytest.mark.parametrize(
    "path",
    [
        "/static/../../../../etc/passwd",
        "/..%2f..%2fetc%2fpasswd",
        "/static/%2e%2e/door.py",
        "/door.py",
        "/static/__init__.py",
        "//etc/passwd",
        "/picture/..",
        "/t-1/journal.jsonl",
    ],
)
def test_no_path_leads_to_a_file_of_the_disk(port, path) -> None:
    assert ask(port, path)[0] == 404


@pytest.mark.parametrize("name", ["..", "../t-1", "t-1/../t-1", "%00", "no-such", "t-1%0d%0aX:%20y", "<b>"])
def test_a_run_is_one_of_the_runs(port, name) -> None:
    status, headers, body = ask(port, f"/picture?run={name}")
    assert (status, body) == (404, b"no such run\n")
    assert "X" not in headers
    assert ask(port, f"/events?run={name}")[0] == 404


def test_it_can_only_be_read(port) -> None:
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE"):
        assert ask(port, "/", method)[0] == 501
    status, headers, body = ask(port, "/", "HEAD")
    assert (status, body) == (200, b"")
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "no-referrer"


def test_under_any_prefix_whether_the_proxy_strips_it_or_not(port) -> None:
    for prefix in ("", "/node/host/8420", "/a/b"):
        status, _, index = ask(port, f"{prefix}/")
        assert status == 200
        assert b'"/' not in index, "no address of its own begins at the root"
        assert ask(port, f"{prefix}/static/app.js")[0] == 200
        status, headers, body = ask(port, f"{prefix}/picture?run=t-1", **{"Accept-Encoding": "gzip"})
        assert (status, headers["Content-Encoding"]) == (200, "gzip")
        found = json.loads(gzip.decompress(body))
        assert found["picture"]["head"]["run"] == "t-1"
        assert json.loads(ask(port, f"{prefix}/picture?run=t-1")[2])["picture"]["head"]


def test_a_file_that_has_not_changed_is_not_sent_again(port) -> None:
    tag = ask(port, "/static/app.js")[1]["ETag"]
    assert ask(port, "/static/app.js", **{"If-None-Match": tag})[0] == 304
