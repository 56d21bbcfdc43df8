"""Full keys, dashboard tokens, sessions: each in one answer, nowhere else (K2, D16, D35)."""

from __future__ import annotations

import json

from .demo import (
    CLAIM,
    KEYS,
    MODELS,
    PUBLIC,
    REGISTER,
    SIGN_IN,
    SIGN_OUT,
    STATUS,
    Answer,
    Client,
    Demo,
    Organization,
    made_up_key,
)


def everything(answer: Answer) -> bytes:
    head = "\n".join(f"{name}: {value}" for name, value in answer.headers)
    return head.encode("latin-1") + b"\n\n" + answer.body


def forms(secret: str) -> list[bytes]:
    """A secret, and both ends of its random part."""
    return [secret.encode(), secret[-43:-31].encode(), secret[-12:].encode()]


def roam(client: Client, org: Organization, key: str, key_id: str) -> None:
    """Visit every kind of answer with this key and this session, well and badly."""
    session = org.session_cookie
    for path in (*PUBLIC, MODELS, STATUS, KEYS, f"{KEYS}/{key_id}", "/api/v1/account", "/nope"):
        for method in ("GET", "HEAD", "PUT", "OPTIONS"):
            client.send(method, path, key=key)
            client.send(method, path, session=session)
            client.send(method, path, key=key, session=session)
    for path in ("/api/v1/images", "/api/v1/uploads", "/api/v1/jobs", "/api/v1/catalog"):
        client.send("POST", path, key=key)
        client.send("POST", path, key=key, content=b"{")
    client.send("POST", KEYS, key=key, json_body={"name": "x"})
    client.send("POST", KEYS, key=key, session=session, content=b"{")
    bodies: list[object] = [{"name": ""}, {"name": "x", "oops": 1}, [], {"scopes": ["no"]}]
    for body in bodies:
        client.post_key(session, body)
    for header in ("Sec-Fetch-Site", "Origin"):
        headers = {header: "cross-site"}
        client.send("POST", KEYS, session=session, headers=headers, json_body={"name": "x"})
        client.send("DELETE", f"{KEYS}/{key_id}", session=session, headers=headers)
    for value in (f"Bearer {key} x", f"Bearer\t{key}", f"Token {key}", key, f"Bearer {key}\xe9"):
        client.exact("GET", MODELS, [("Authorization", value)])
    client.exact("GET", MODELS, [("Authorization", f"Bearer {key}")] * 2)
    client.exact("POST", KEYS, [("Cookie", f"__session={session}; __session={session}")])
    client.exact("POST", KEYS, [("Cookie", f"__session={session}x")])
    client.exact("GET", KEYS, [("Cookie", f"__session={key}")])
    client.exact("GET", MODELS, [("X-API-Key", key)])


def live_as_an_agent(client: Client) -> dict[Answer, set[str]]:
    """Register and sign in, well and badly; which answers gave out which secrets."""
    agent = {"agent_name": "canary", "billing_email": "canary@example.com"}
    registered = client.send("POST", REGISTER, json_body=agent).is_ok(201)
    key, token = (registered.json()[name] for name in ("api_key", "dashboard_token"))
    given = client.send("POST", SIGN_IN, json_body={"dashboard_token": token}).is_ok()
    session = given.one("set-cookie").partition("=")[2].partition(";")[0]
    for secret in (key, token):
        client.get(MODELS, key=secret)
        client.get(f"/{secret}")
        client.get(KEYS, session=secret)
        client.send("POST", CLAIM, session=session, json_body={"organizationId": secret})
        bodies: list[object] = [{"dashboard_token": f"{secret}x"}, {secret: 1}, [secret]]
        for body in bodies:
            client.send("POST", SIGN_IN, json_body=body)
        for field in (*agent, "account_type", "company_name", secret):
            client.send("POST", REGISTER, json_body={**agent, field: [{secret: secret}]})
        client.send("POST", REGISTER, json_body={**agent, "billing_email": secret})
    for path in (KEYS, CLAIM, MODELS):
        client.get(path, session=session)
    client.send("POST", SIGN_OUT, session=session).is_ok()
    return {registered: {key, token}, given: {session}}


def test_k2_no_secret_leaves(fresh: Demo) -> None:
    secrets: set[str] = set()
    answers: list[Answer] = []
    creations: dict[Answer, set[str]] = {}
    for plan in ("enterprise", "free"):  # the free one is soon refused by its limit
        org = fresh[plan]
        with fresh.client() as client:
            answer = client.post_key(org.session_cookie, {"name": "canary"}).is_ok(201)
            creations[answer] = {answer.json()["key"]}
            secrets |= {org.session_cookie, org.api_key}
            guess = made_up_key(prefix=answer.json()["key"].split("_")[2])
            secrets.add(guess)
            roam(client, org, answer.json()["key"], answer.json()["id"])
            roam(client, org, guess, answer.json()["id"])
            client.send("DELETE", f"{KEYS}/{answer.json()['id']}", session=org.session_cookie)
            roam(client, org, answer.json()["key"], answer.json()["id"])
            roam(client, org, org.api_key, answer.json()["id"])
            answers += client.answers
    with fresh.client() as client:
        creations |= live_as_an_agent(client)
        answers += client.answers
    secrets = secrets.union(*creations.values())
    assert {answer.status for answer in answers} >= {200, 201, 400, 401, 403, 404, 405, 429}
    assert fresh.stop() == 0

    for answer in answers:
        rest = everything(answer)
        for own in creations.get(answer, ()):
            assert rest.count(own.encode()) == 1
            rest = rest.replace(own.encode(), b"")
        for secret in secrets:
            for form in forms(secret):
                assert form not in rest, answer

    assert len(fresh.stdout) == 1
    stderr = fresh.stderr.encode()
    for secret in secrets:
        for form in forms(secret):
            assert form not in stderr
    announced = {org.api_key for org in fresh.organizations.values()}
    announced |= {org.session_cookie for org in fresh.organizations.values()}
    for secret in secrets - announced:
        assert secret not in fresh.stdout[0]
    for secret in announced:
        assert fresh.stdout[0].count(json.dumps(secret)) == 1
        assert secret not in fresh.stderr
