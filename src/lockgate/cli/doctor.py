"""``lockgate doctor``: check an installation, and say what to do about each finding."""

import time
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import click

from ..core.digests import PEPPER_SCHEME, PLAIN_SCHEME
from ..core.row_seals import UNSEALED_ROWS, Rejection, rejected_scheme
from ..core.timestamps import SECOND
from ..errors import ConfigurationError
from ..gate import Gate
from ..services.rejected_rows import REMEDIES
from ..stores.resilience.failures import kind_of
from .output import json_option, print_json, print_table
from .settings import call, gate_of, gate_option, store_option

_CLOCK_OFFSET = 1.0
"""The difference of two clocks, in seconds, from which on it is a finding."""


class Finding(NamedTuple):
    """The result of one check."""

    check: str
    level: Literal["ok", "note", "problem"]
    text: str
    advice: str | None = None


@click.command()
@gate_option
@store_option
@json_option
def doctor(named: str | None, store: str | None, *, as_json: bool) -> int:
    """Check store, schema, clock, peppers, Redis settings, proxies and origins of a service.

    Reads every key once and changes nothing. Exit code 0: no problem; 1: a problem was found;
    3: the store does not answer.
    """
    gate = gate_of(named, store)
    findings = call(gate, lambda: examine(gate))
    problems = sum(finding.level == "problem" for finding in findings)
    if as_json:
        entries: list[dict[str, Any]] = [finding._asdict() for finding in findings]
        print_json({"problems": problems, "findings": entries})
    else:
        rows = [(f.level, f.check, f"{f.text} {f.advice or ''}".strip()) for f in findings]
        print_table(["", "check", "finding"], rows)
    away = any((f.check, f.level) == ("store", "problem") for f in findings)
    return 3 if away else min(problems, 1)


async def examine(gate: Gate) -> list[Finding]:
    """Return a finding for each check, problems included; the settings come last."""
    findings: list[Finding] = []
    try:
        findings += await _store(gate)
        findings += _peppers(gate, await gate.keys.census())
        warnings = await gate.store.warnings()
        findings += [
            Finding(warning.kind, "problem", warning.text)
            for warning in warnings
            if warning.kind != "clock"  # Measured for every store above.
        ]
    except ConfigurationError as mistake:
        findings.append(Finding("schema", "problem", str(mistake)))
    except Exception as failure:
        text = f"The store does not answer: {kind_of(failure)}."
        advice = "See the log above, and check the URL, the network and the server."
        findings.append(Finding("store", "problem", text, advice))
    return [*findings, *_settings(gate)]


async def _store(gate: Gate) -> list[Finding]:
    await gate.store.ready()
    asked_at = time.time()
    now = await gate.store.now() / SECOND
    answered_at = time.time()
    took = 1000 * (answered_at - asked_at)
    offset = max(now - answered_at, min(now - asked_at, 0.0))
    findings = [
        Finding("store", "ok", f"It answers in {took:.1f} ms."),
        Finding("schema", "ok", "This release works with the store as it is."),
    ]
    if abs(offset) < _CLOCK_OFFSET:
        return [*findings, Finding("clock", "ok", f"It is {offset:+.3f} s off this process's.")]
    text = (
        f"The store's clock is {abs(offset):.1f} s {'ahead of' if offset > 0 else 'behind'} this "
        "process's: limits and expiries go by the first, sessions by the second."
    )
    return [*findings, Finding("clock", "problem", text, "Synchronize both, as with NTP.")]


def _peppers(gate: Gate, counts: dict[str, int]) -> Iterator[Finding]:
    """Yield a finding for each digest scheme and pepper of the census."""
    peppers = gate.format.peppers
    if not peppers.seals and gate.store.io != "none":
        text = "The gate has no pepper: any writer of the database can create keys."
        yield Finding("peppers", "problem", text, "Give Gate(peppers=[...]) 32 random bytes.")
    accepted_schemes = gate.legacy.kept_schemes | peppers.digesters.keys()
    for scheme, number in sorted(counts.items()):
        what, current = f"{number} live keys and tokens", False
        if scheme == UNSEALED_ROWS:
            accepted, why = peppers.accept_unsealed, Rejection.UNSEALED
            text, advice = f"{what} have no seal.", "Call gate.keys.seal()."
        elif scheme.startswith("seal:"):
            id = scheme.removeprefix("seal:")
            accepted, why = PEPPER_SCHEME + id in peppers.digesters, Rejection.PEPPER
            text = f"{what} are sealed with pepper {id} and digested otherwise."
            advice = "Call gate.keys.seal() before this pepper is dropped."
            current = id in peppers.current_seals
        else:
            accepted, why = scheme in accepted_schemes, rejected_scheme(scheme)
            text = f"{what} are under {scheme}."
            advice = (
                "Each moves to the newest pepper on its next use: accept it until none is left."
            )
            current = scheme in peppers.current_schemes
        if current:
            yield Finding("peppers", "ok", text)
        elif accepted:
            yield Finding("peppers", "note", text, advice)
        else:
            yield Finding("peppers", "problem", f"{text} They are refused.", REMEDIES[why])
    for option, scheme in (("accept_plain", PLAIN_SCHEME), ("accept_unsealed", UNSEALED_ROWS)):
        if peppers.seals and getattr(peppers, option) and not counts.get(scheme):
            text = f"{option}=True lets a writer of the database create keys."
            yield Finding("peppers", "problem", text, "No row needs it any more: take it out.")


def _settings(gate: Gate) -> Iterator[Finding]:
    """Yield findings about the gate's proxies and origins."""
    if gate.addresses.trusts_any:
        yield Finding("proxy", "ok", "X-Forwarded-For of the trusted proxies is used.")
    else:
        text = "No proxy is trusted: behind one, all clients share the budget of its address."
        advice = "Give Gate(trusted_proxies=[...]) its addresses, if there is one."
        yield Finding("proxy", "note", text, advice)
    if gate.sessions is None:
        return
    if gate.origins:
        pages = b", ".join(sorted(gate.origins)).decode()
        yield Finding("origins", "ok", f"Pages of {pages} may write.")
    else:
        text = "Sessions are verified, and no page may write with one."
        advice = "Give Gate(public_url=...) or Gate(allowed_origins=[...]) their origin."
        yield Finding("origins", "problem", text, advice)
