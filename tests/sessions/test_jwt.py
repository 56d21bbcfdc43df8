"""Tokens of an identity provider: verified by PyJWT, minted by joserfc (D12, R4)."""

from __future__ import annotations

import base64
import hmac
import json
import subprocess
import sys
import time
import warnings
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from joserfc.errors import SecurityWarning
from joserfc.jwk import ECKey, Key, OKPKey, RSAKey

from lockgate import ConfigurationError, Gate, run
from lockgate.asgi import GateMiddleware as AsgiMiddleware
from lockgate.sessions import ClaimMap, Session, SessionVerifier
from lockgate.sessions.jwt import ALGORITHMS, JwtSessions
from lockgate.wsgi import GateMiddleware as WsgiMiddleware

from .provider import AUDIENCE, EC, ED, ISSUER, KEYS, RSA, claims, jwks, mint, sign

ADA = Session("org_1", "user_ada", "ada@example.com")
ALL = jwks(RSA, EC, ED)


def sessions(keys: Any = ALL, **fields: Any) -> JwtSessions:
    return JwtSessions(keys, **{"issuer": ISSUER, "audience": AUDIENCE, **fields})


def verify(token: str, keys: Any = ALL, **fields: Any) -> Session | None:
    return run(sessions(keys, **fields).verify(token))


def segment(value: object) -> str:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


@pytest.fixture(autouse=True)
def _old_names() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SecurityWarning)
        yield


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_token_of_another_library_is_a_session(algorithm: str) -> None:
    assert verify(mint(KEYS[algorithm], algorithm)) == ADA


def test_a_token_whose_key_was_given_is_verified_offline() -> None:
    assert sessions().verifies_offline(mint())
    assert sessions(session_is_live=lambda _: True).verifies_offline(mint())
    for token in ("", "x", "a.b.c", "x" * 5000):
        assert not sessions().verifies_offline(token)


def test_a_token_whose_session_an_async_function_looks_up_is_not_verified_offline() -> None:
    async def is_live(_: Any) -> bool:
        return True

    assert not sessions(session_is_live=is_live).verifies_offline(mint())


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_no_changed_character_is_accepted(algorithm: str) -> None:
    token = mint(KEYS[algorithm], algorithm)
    verifier = sessions()
    places = range(0, len(token), 5)
    for place in [*places, len(token) - 1]:
        changed = token[:place] + ("A" if token[place] != "A" else "B") + token[place + 1 :]
        assert run(verifier.verify(changed)) is None, place


REFUSED: dict[str, list[Any]] = {
    "iss": ["https://evil.example", ISSUER + "/", [ISSUER], None],
    "aud": ["https://other.example", [], {"a": AUDIENCE}, [AUDIENCE, 1], None],
    "exp": [None, "soon", [], True, float("nan")],
    "nbf": ["later"],
    "iat": [{}],
    "sub": [None, "", 7, "u" * 256],
    "org_id": ["", 1, ["org_1"], "o" * 129],
}


@pytest.mark.parametrize(
    "changes", [{name: value} for name, values in REFUSED.items() for value in values], ids=repr
)
def test_claims_that_are_not_accepted(changes: dict[str, Any]) -> None:
    assert verify(sign(json.dumps(claims(**changes)).encode())) is None


def test_a_token_counts_in_its_time_only_and_the_clocks_may_differ_by_the_leeway() -> None:
    now = int(time.time())
    for name, side in (("exp", -1), ("nbf", 1), ("iat", 1)):
        outside: dict[str, Any] = {name: now + side * (60 if name == "exp" else 86_400)}
        assert verify(mint(**outside)) is None
        near: dict[str, Any] = {name: now + side * 150}
        differing = mint(**near)
        assert verify(differing, leeway=300) == ADA
        assert verify(differing, leeway=10) is None


def test_a_token_must_name_this_application_as_audience_or_party() -> None:
    several = mint(aud=["https://other.example", AUDIENCE])
    assert verify(several) == ADA
    assert verify(several, audience=["x", "https://other.example"]) == ADA
    nobody, us, them = mint(aud=None, azp=None), mint(aud=None), mint(aud=None, azp="https://x")
    parties = {"audience": (), "authorized_parties": [AUDIENCE, "http://localhost:3000"]}
    assert verify(us, **parties) == ADA
    assert verify(them, **parties) is None
    assert verify(nobody, **parties) is None
    assert verify(mint(aud=None, azp=[AUDIENCE]), **parties) is None
    # A token with another audience is refused, independently of its azp.
    assert verify(mint(), **parties) is None
    assert verify(nobody, audience=(), unaddressed=True) == ADA
    assert verify(mint(), audience=(), unaddressed=True) is None
    assert verify(mint(azp="https://x"), authorized_parties=[AUDIENCE]) is None


# --- the key decides, not the token ------------------------------------------------------


def forged(secret: bytes, algorithm: str, **header: Any) -> str:
    signed = f"{segment({'alg': algorithm, **header})}.{segment(claims())}"
    digest = {"HS256": "sha256", "HS384": "sha384", "HS512": "sha512"}[algorithm]
    return f"{signed}.{segment(hmac.digest(secret, signed.encode(), digest))}"


@pytest.mark.parametrize("key", [RSA, EC, ED], ids=["rsa", "ec", "ed"])
@pytest.mark.parametrize("algorithm", ["HS256", "HS384", "HS512"])
def test_r4_a_public_key_is_no_shared_secret(key: Any, algorithm: str) -> None:
    public = key.as_dict(private=False)
    secrets = [
        key.as_pem(private=False),
        key.as_der(private=False),
        json.dumps(public).encode(),
        base64.urlsafe_b64decode(public.get("n", public.get("x")) + "=="),
    ]
    for secret in secrets:
        for kid in (key.kid, None):
            assert verify(forged(secret, algorithm, kid=kid)) is None
            assert verify(forged(secret, algorithm)) is None


@pytest.mark.parametrize(
    "algorithm", ["none", "None", "NONE", "nOnE", "", None, 0, [], {}, ["ES256"]], ids=repr
)
def test_r4_an_unsigned_token_is_refused(algorithm: object) -> None:
    for header in ({"alg": algorithm, "kid": "ec", "typ": "JWT"}, {"kid": "ec"}):
        for signature in ("", "AAAA"):
            assert verify(f"{segment(header)}.{segment(claims())}.{signature}") is None


def test_r4_a_key_signs_by_its_own_algorithm_only() -> None:
    assert verify(sign(json.dumps(claims()).encode(), RSA, "PS256")) is None
    for algorithm in ("RS384", "RS512", "ES384", "ES256K", "HS256"):
        head, _, rest = mint(RSA, "RS256").partition(".")
        header = json.loads(base64.urlsafe_b64decode(head + "=="))
        assert verify(f"{segment({**header, 'alg': algorithm})}.{rest}") is None
    # Another algorithm of the allow-list, by the kid of a key that is not for it.
    for algorithm, key in KEYS.items():
        for other in KEYS.values():
            token = mint(key, algorithm, {"kid": other.kid})
            assert verify(token) == (ADA if other is key else None)
            only = verify(token, algorithms=["RS256"])
            assert only == (ADA if other is key is RSA else None)
    foreign: list[tuple[Key, str]] = [
        (ECKey.generate_key("P-256"), "ES256"),
        (OKPKey.generate_key("Ed25519"), "EdDSA"),
    ]
    for stranger, algorithm in foreign:
        for kid in ("ec", "ed", None, "other"):
            assert verify(mint(stranger, algorithm, {"kid": kid})) is None


PURPOSES: dict[str, list[Any]] = {
    "use": ["enc", 1],
    "key_ops": [["sign"], []],
    "alg": ["ES384", "HS256", "none", ["ES256"]],
    "kty": ["oct", "RSA", None],
    "crv": ["P-384", "P-999"],
    "x": ["AAAA", 7],
    "d": ["AAAA"],
}


@pytest.mark.parametrize(
    "changes", [{name: value} for name, values in PURPOSES.items() for value in values], ids=repr
)
def test_a_key_for_another_purpose_verifies_no_token(changes: dict[str, Any]) -> None:
    entry = {**jwks(EC)["keys"][0], "k": "c2VjcmV0", **changes}
    assert verify(mint(), {"keys": [entry, jwks(RSA)["keys"][0]]}) is None
    with pytest.raises(ConfigurationError, match="no public key"):
        sessions({"keys": [entry]})


@pytest.mark.parametrize(
    "document",
    [
        *({}, {"keys": []}, {"keys": None}, {"keys": "x"}, {"keys": [1, None, [], "x"]}),
        {"keys": [EC.as_dict(private=True)]},
    ],
    ids=["none", "empty", "null", "text", "no objects", "private"],
)
def test_a_set_without_a_key_is_refused(document: Any) -> None:
    with pytest.raises(ConfigurationError, match="no public key for ES256, EdDSA, RS256"):
        sessions(document)


@pytest.mark.filterwarnings("ignore:Key size should be")
def test_a_short_rsa_key_verifies_no_token() -> None:
    short = RSAKey.generate_key(1024, parameters={"kid": "short"})
    assert verify(mint(short, "RS256"), jwks(short)) is None


def test_urls_in_a_token_are_never_fetched_and_critical_extensions_refused() -> None:
    """The key is the attacker's, with the kid of a good key, and the URL would answer."""
    mine = ECKey.generate_key("P-256", parameters={"kid": "ec"})
    public = jwks(mine)["keys"][0]
    headers: list[dict[str, Any]] = [
        {"jwk": public},
        {"jku": "http://127.0.0.1:1/jwks.json"},
        {"x5u": "http://127.0.0.1:1/cert.pem"},
        {"x5c": ["AAAA"]},
        {"kid": "../../../../dev/null"},
        {"kid": "' OR 1=1 --"},
        {"crit": ["exp"], "exp": 1},
        {"b64": False, "crit": ["b64"]},
    ]
    for header in headers:
        assert verify(sign(json.dumps(claims()).encode(), mine, **header)) is None
    ours: dict[str, Any] = {"crit": ["urn:x"], "urn:x": True}
    assert verify(sign(json.dumps(claims()).encode(), **ours)) is None
    # With a valid signature they have no effect.
    assert verify(mint(header={"jwk": public, "jku": "http://127.0.0.1:1/"})) == ADA


@pytest.mark.parametrize(
    ("kind", "good"),
    [("JWT", True), ("jwt", True), ("at+jwt", True), ("application/at+JWT", True),
     ("logout+jwt", False), ("dpop+jwt", False), ("secevent+jwt", False), ("", False)],
)  # fmt: skip
def test_only_session_types_of_tokens_are_accepted(kind: str, good: bool) -> None:
    assert (verify(mint(header={"typ": kind})) is not None) is good


def test_a_token_without_kid_needs_a_single_key_of_its_algorithm() -> None:
    """Verified by the only key for its algorithm; with two keys it is refused."""
    second = ECKey.generate_key("P-256", parameters={"kid": "ec-2"})
    for kid in (1, ["ec"], {"a": 1}, True):
        header = segment({"alg": "ES256", "kid": kid})
        assert verify(f"{header}.{segment(claims())}.AAAA") is None
    token = mint(header={"kid": None})
    assert verify(token) == ADA
    assert verify(token, jwks(EC)) == ADA
    assert verify(token, jwks(EC, second)) is None
    assert verify(token, jwks(RSA)) is None
    assert verify(mint(second, header={"kid": None})) is None


def test_a_kid_of_two_keys_is_refused() -> None:
    rsa = {**jwks(RSA)["keys"][0], "kid": "ec"}
    twin = {**jwks(ECKey.generate_key("P-256", parameters={"kid": "ec"}))["keys"][0]}
    own = jwks(EC)["keys"][0]
    assert verify(mint(), {"keys": [rsa, own]}) == ADA
    assert verify(mint(), {"keys": [twin, own]}) is None


# --- garbage -------------------------------------------------------------------------------


@given(st.text(st.characters(max_codepoint=127), max_size=300))
def test_garbage_is_no_session(value: str) -> None:
    assert verify(value) is None


@given(st.binary(max_size=60), st.binary(max_size=60), st.binary(max_size=80))
def test_garbage_in_segments_is_no_session(header: bytes, payload: bytes, signature: bytes) -> None:
    assert verify(".".join(map(segment, (header, payload, signature)))) is None


@pytest.mark.parametrize(
    "payload",
    [b"", b"[]", b"null", b"1", b'"x"', b"{", b"\xff", b"[" * 2000, b"9" * 2000],
    ids=["empty", "list", "null", "number", "text", "cut", "bytes", "deep", "large number"],
)  # fmt: skip
def test_a_good_signature_over_a_malformed_payload_is_refused(payload: bytes) -> None:
    assert verify(sign(payload)) is None
    deep = f"{segment(payload)}.{segment(claims())}.AAAA"
    assert verify(deep) is None


def test_an_oversized_token_is_no_session_even_if_well_signed() -> None:
    fits = mint(padding="x" * 2000)
    large = mint(padding="x" * 3500)
    assert len(fits) <= 4096 < len(large)
    assert verify(fits) == ADA
    assert verify(large) is None


# --- mapping of claims ---------------------------------------------------------------------


def test_claims_are_found_by_name_path_list_or_function() -> None:
    clerk = mint(org_id=None, o={"id": "org_2", "rol": "admin"}, v=2)
    assert verify(clerk) == Session("org_2", "user_ada", "ada@example.com")
    namespaced: dict[str, Any] = {"https://example.com/team": "org_3"}
    auth0 = mint(org_id=None, **namespaced)
    team = ClaimMap(organization="https://example.com/team")
    assert verify(auth0, claims=team) == Session("org_3", "user_ada", "ada@example.com")
    assert verify(auth0) == Session(None, "user_ada", "ada@example.com")
    nested = mint(app={"tenant": {"id": "org_4"}}, user={"mail": "a@b.example", "ok": True})
    deep = ClaimMap("app.tenant.id", "sub", "user.mail", "user.ok")
    assert verify(nested, claims=deep) == Session("org_4", "user_ada", "a@b.example")
    own = ClaimMap(lambda claims: f"person-{claims['sub']}")
    found = verify(mint(org_id=None), claims=own)
    assert found is not None
    assert found.organization == "person-user_ada"
    for path in ("o.id.x", "o.x", "x.id", "o..id", ".", ""):
        assert verify(clerk, claims=ClaimMap(path)) == Session(None, *ADA[1:])


@pytest.mark.parametrize(
    "changes",
    [
        *({"email_verified": value} for value in ("true", 1, None, False, [True], {"a": 1})),
        *({"email": value} for value in (None, "", 7, ["ada@example.com"])),
    ],
    ids=repr,
)
def test_an_email_is_verified_only_by_a_text_and_the_value_true(changes: dict[str, Any]) -> None:
    assert verify(mint(**changes)) == Session("org_1", "user_ada")


# --- signing out ---------------------------------------------------------------------------


def test_r4_a_signed_out_session_is_refused() -> None:
    out: set[str] = set()
    verifier = sessions(session_is_live=lambda claims: claims["sid"] not in out)
    token = mint(sid="sess_1")
    assert run(verifier.verify(token)) == ADA
    out.add("sess_1")
    assert run(verifier.verify(token)) is None


async def test_session_is_live_may_be_async() -> None:
    seen: list[object] = []

    async def live(claims: Any) -> bool:
        seen.append(claims["sid"])
        return bool(claims["sid"] == "good")

    verifier = sessions(session_is_live=live)
    assert await verifier.verify(mint(sid="good")) == ADA
    assert await verifier.verify(mint(sid="bad")) is None
    assert await verifier.verify(mint(sid="good", iss="https://evil.example")) is None
    assert seen == ["good", "bad"]
    gate = Gate(brand="acme", sessions=verifier)
    AsgiMiddleware(None, gate)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - never called
    with pytest.raises(ConfigurationError, match="JwtSessions needs an event loop"):
        WsgiMiddleware(lambda environ, start: [], gate)


# --- errors at construction ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"algorithms": ["HS256"]}, "RS256, ES256, EdDSA"),
        ({"algorithms": ["ES256", "none"]}, "RS256, ES256, EdDSA"),
        ({"algorithms": []}, "RS256, ES256, EdDSA"),
        ({"audience": ()}, "audience"),
        ({"audience": ""}, "not empty"),
        ({"audience": [AUDIENCE, ""]}, "not empty"),
        ({"issuer": ""}, "not empty"),
        ({"authorized_parties": AUDIENCE}, "a list"),
        ({"leeway": -1}, "leeway"),
        ({"leeway": 3600}, "leeway"),
        ({"timeout": 0}, "timeout"),
        ({"cool_down": -1}, "below 0"),
        ({"keys": "https://user:secret@idp.example/jwks"}, "without a user"),
        *(
            ({"keys": url}, "https://")
            for url in ("http://idp.example/jwks", "ftp://127.0.0.1/jwks")
        ),
        *(({"keys": url}, "https://") for url in ("file:///etc/passwd", "idp.example", "https://")),
        *(
            ({"keys": f"https://{url}"}, "https://")
            for url in ("[::1", "idp.example:x/", "idp/a b")
        ),
        ({"keys": "http://127.0.0.1.evil.example/"}, "https://"),
        ({"keys": "http://localhost.evil.example/"}, "https://"),
    ],
)
def test_inconsistent_arguments_are_refused_with_the_reason(
    fields: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigurationError, match=said):
        sessions(**{"keys": ALL, **fields})


def test_it_is_a_session_verifier_and_shows_no_key() -> None:
    verifier: SessionVerifier = sessions()
    assert verifier.io == "none"
    assert repr(verifier) == f"<JwtSessions of {ISSUER}>"
    assert sessions("https://idp.example/jwks").io == "both"


WITHOUT = """
import sys
for library in ("cryptography", "jwt"):
    sys.modules[library] = None
    try:
        import lockgate.sessions.jwt
    except ImportError as error:
        print(error)
    del sys.modules[library]
"""


def test_a_missing_library_is_named_with_its_extra() -> None:
    """``pip install jwt`` would bring another package."""
    ran = subprocess.run(
        [sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=True
    )
    assert ran.stdout.count("pip install 'lockgate[jwt]'") == 2
