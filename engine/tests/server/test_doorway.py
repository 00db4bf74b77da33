"""What every request passes first: keys, CORS, spellings of paths, errors in each family's shape."""

from __future__ import annotations

from collections.abc import Iterator

import httpx2
import pytest

from engine.config import ServerSettings
from engine.server.app import build_routes
from engine.server.doorway import OPEN_PATHS
from engine.server.service import Host
from engine.tests.server.live import Live, Script, live_server
from engine.tests.server.wire import get, post

ASK = [{"role": "user", "content": "Hi"}]
PATHS = sorted({route.path for route in build_routes(Host(), ServerSettings(), fingerprint="x")})


@pytest.fixture(scope="module")
def locked() -> Iterator[Live]:
    with live_server(Script("</think>ok"), api_key="s3cret, another") as running:
        yield running


@pytest.fixture(scope="module")
def shared() -> Iterator[Live]:
    with live_server(Script("</think>ok"), cors=True) as running:
        yield running


@pytest.mark.parametrize("path", [path for path in PATHS if path not in OPEN_PATHS])
def test_every_path_but_the_health_asks_for_a_key(locked: Live, path: str) -> None:
    answers = [get(locked, path), post(locked, path, {})]
    family = "error" if "messages" in path else None

    assert [401, 401] == [answer.status_code for answer in answers]
    assert family == answers[0].json().get("type")
    assert "Bearer" == answers[0].headers["www-authenticate"]


@pytest.mark.parametrize("key", ["s3cret", "another"])
def test_each_of_several_keys_opens(locked: Live, key: str) -> None:
    assert 200 == get(locked, "/v1/models", authorization=f"Bearer {key}").status_code
    assert 200 == get(locked, "/v1/models", **{"x-api-key": key}).status_code


@pytest.mark.parametrize("key", ["s3cret, another", "s3cre", "s3cret2", "S3CRET", ",", "é"])
def test_nothing_like_a_key_opens(locked: Live, key: str) -> None:
    sent = {b"x-api-key": key.encode()}

    assert 401 == httpx2.get(f"{locked.base_url}/v1/models", headers=sent, verify=False).status_code


def test_health_is_open(locked: Live) -> None:
    assert [200, 200] == [get(locked, path).status_code for path in OPEN_PATHS]


def test_cors_headers_are_on_everything_where_they_are_wanted(shared: Live) -> None:
    chat = "/v1/chat/completions"
    answers = [
        httpx2.request("OPTIONS", shared.base_url + chat, verify=False),
        post(shared, chat, {"messages": ASK}),
        post(shared, chat, {"messages": ASK, "stream": True}),
        post(shared, chat, {}),
        get(shared, "/nothing"),
    ]

    assert [204, 200, 200, 400, 404] == [answer.status_code for answer in answers]
    assert {"*"} == {answer.headers["access-control-allow-origin"] for answer in answers}


def test_cors_is_off_by_default(locked: Live) -> None:
    answer = httpx2.request("OPTIONS", f"{locked.base_url}/v1/models", verify=False)

    assert 204 == answer.status_code
    assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize(
    ("path", "body", "status", "kind"),
    [
        ("/v1/messages", b"{", 400, "invalid_request_error"),
        ("/anthropic/v1/messages", b"{", 400, "invalid_request_error"),
        ("/v1/messages/nothing", b"{}", 404, "not_found_error"),
        ("/v1/messages/count_tokens/", b"[]", 400, "invalid_request_error"),
    ],
)
def test_errors_before_the_body_is_read_have_the_familys_shape(
    shared: Live, path: str, body: bytes, status: int, kind: str
) -> None:
    answer = post(shared, path, body)

    assert (status, "error", kind) == (
        answer.status_code,
        answer.json()["type"],
        answer.json()["error"]["type"],
    )


def test_a_wrong_method_names_the_right_one(shared: Live) -> None:
    answer = get(shared, "/v1/messages")

    assert (405, "POST") == (answer.status_code, answer.headers["allow"])
    assert "invalid_request_error" == answer.json()["error"]["type"]


@pytest.mark.parametrize("path", ["/anthropic/v1/messages", "/v1/messages/", "/v1/messages?beta=true"])
def test_common_spellings_of_the_message_path_work(shared: Live, path: str) -> None:
    assert 200 == post(shared, path, {"messages": ASK}).status_code
