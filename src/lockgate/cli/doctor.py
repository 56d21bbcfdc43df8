"""``lockgate doctor``: check an installation, and say what to do about each finding."""

import logging
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple

import click

from ..core.api_keys import ENDS_SOON
from ..core.digests import PEPPER_SCHEME, PLAIN_SCHEME
from ..core.leases import TO_LIST
from ..core.ledger import Hit, Peek
from ..core.plans import Plan
from ..core.row_seals import UNSEALED_ROWS, Rejection, rejected_scheme
from ..core.timestamps import DAY, SECOND, iso8601
from ..errors import ConfigurationError
from ..events import logger
from ..gate import Gate
from ..services.keys.keys import KeyAges
from ..services.keys.rejected_rows import REMEDIES
from ..stores.answers import UnreadableState
from ..stores.base import Store
from ..stores.cached.store import CachedStore
from ..stores.resilience.deadlines import STARTING, within
from ..stores.resilience.failures import kind_of
from .output import json_option, print_json, print_table, progress
from .settings import call, gate_of, gate_option, store_option

_CLOCK_OFFSET = 1.0
"""The difference of two clocks, in seconds, from which on it is a finding."""

_READ_AT_ONCE = 250
_WRONG_PEPPER = (
    "No live key is under a pepper of this gate, so its pepper is probably wrong: give it that of "
    "the service, by LOCKGATE_PEPPER or by the service's gate in LOCKGATE_GATE; or the store is "
    "that of another environment. "
)
_OWN = "lockgate-doctor"
"""The organization that a write is tried with. It has no key and no plan, so no list shows it."""
_OWN_PLAN = Plan(_OWN, rpm=1_000_000, rph=None, rpd=None, concurrent=None)
_NAMED = 10
"""Damaged organizations that a finding names."""


class Finding(NamedTuple):
    """The result of one check."""

    check: str
    level: Literal["ok", "note", "problem"]
    text: str
    advice: str | None = None


@click.command()
@click.option(
    "--organizations", is_flag=True, help="also read the windows and slots of each organization"
)
@gate_option
@store_option
@json_option
def doctor(named: str | None, store: str | None, *, organizations: bool, as_json: bool) -> int:
    """Check store, schema, clock, peppers, keys, Redis settings, proxies and origins of a service.

    Reads every key twice, and changes nothing but the windows of an organization of its own.
    Exit code 0: no problem; 1: a problem was found;
    3: the store does not answer, or has no file or tables that this release works with.
    """
    gate = gate_of(named, store)
    findings = call(gate, lambda: examine(gate, organizations=organizations))
    problems = sum(finding.level == "problem" for finding in findings)
    if as_json:
        entries: list[dict[str, Any]] = [finding._asdict() for finding in findings]
        print_json({"problems": problems, "findings": entries})
    else:
        rows = [(f.level, f.check, f"{f.text} {f.advice or ''}".strip()) for f in findings]
        print_table(["", "check", "finding"], rows)
    away = any(f.level == "problem" and f.check in {"store", "schema"} for f in findings)
    return 3 if away else min(problems, 1)


async def examine(gate: Gate, *, organizations: bool = False) -> list[Finding]:
    """Return a finding for each check, problems included; the settings come last.

    Args:
        gate: the gate.
        organizations: whether to read the windows and slots of every organization as well.
    """
    store = gate.store
    with _logged_advice() as advice:
        if isinstance(store, CachedStore):
            findings = await _part(gate, "The database", store.primary, advice)
            findings += await _part(gate, "Redis", store.cache, advice, has_keys=False)
        else:
            findings = await _part(gate, "The store", store, advice)
        if all(f.level != "problem" or f.check not in {"store", "schema"} for f in findings):
            findings += await _warnings(store)
            findings += _ages(gate, await gate.keys.ages())
            if organizations:
                findings.append(await _windows(gate))
    return [*findings, *_settings(gate)]


async def _part(
    gate: Gate, name: str, part: Store, advice: list[str], *, has_keys: bool = True
) -> list[Finding]:
    """Return the findings about a store, or about one store of a pair.

    Args:
        gate: the gate.
        name: the start of sentences about the store.
        part: the store.
        advice: what lockgate has logged, the latest last; it grows.
        has_keys: False for a cache.
    """
    findings: list[Finding] = []
    try:
        await part.ready()
        findings += await _clock(name, part)
        findings += await _write(name, part, advice)
        if has_keys:
            findings.append(Finding("schema", "ok", "This release works with the store as it is."))
            with progress("Reading keys") as show:
                counts = await gate.keys.census(lambda read: show(f"{read:,} keys"))
            findings += [*_keys(part, counts), *_peppers(gate, counts)]
    except ConfigurationError as mistake:
        findings.append(Finding("schema", "problem", str(mistake)))
    except Exception as failure:
        findings.append(_away(name, failure, advice))
    return findings


async def _clock(name: str, store: Store) -> list[Finding]:
    asked_at = time.time()
    now = await store.now() / SECOND
    answered_at = time.time()
    took = 1000 * (answered_at - asked_at)
    offset = max(now - answered_at, min(now - asked_at, 0.0))
    answers = Finding("store", "ok", f"{name} answers in {took:.1f} ms.")
    if abs(offset) < _CLOCK_OFFSET:
        text = f"{name} is {offset:+.3f} s off this process's clock."
        return [answers, Finding("clock", "ok", text)]
    text = (
        f"{name} is {abs(offset):.1f} s {'ahead of' if offset > 0 else 'behind'} this process's "
        "clock: limits and expiries go by the store, sessions by the process."
    )
    return [answers, Finding("clock", "problem", text, "Synchronize both, as with NTP.")]


async def _write(name: str, store: Store, advice: list[str]) -> list[Finding]:
    """Count one unit for an organization of this check: on a full disk only writes fail."""
    store = store.innermost  # A wrapper would count in the process if the store refuses.
    if store.io == "none":
        return []
    known = len(advice)
    try:
        with within(STARTING):
            await store.charge(_OWN, Hit(_OWN_PLAN.windows, 1))
    except Exception as failure:
        text = f"{name} takes no writes: {kind_of(failure)}."
        otherwise = "See to its disk, its memory, and the rights of this user."
        if isinstance(failure, UnreadableState):
            otherwise = failure.remedy
        return [Finding("writes", "problem", text, [*advice[known:], otherwise][0])]
    return [Finding("writes", "ok", f"{name} takes writes.")]


async def _windows(gate: Gate) -> Finding:
    """Read the windows and slots of every organization with a key or a plan."""
    read, cursor = 0, None
    damaged: dict[str, str] = {}
    with progress("Reading windows") as show:
        while True:
            page = await gate.organizations.list(limit=_READ_AT_ONCE, cursor=cursor)
            for one in page.organizations:
                try:
                    await gate.store.charge(one.id, Peek(one.plan.windows))
                    await gate.store.charge(one.id, TO_LIST)
                except UnreadableState as failure:
                    damaged[one.id] = failure.remedy
            read, cursor = read + len(page.organizations), page.cursor
            show(f"{read:,} organizations")
            if cursor is None:
                break
    if not damaged:
        return Finding(
            "windows", "ok", f"The windows and slots of {read:,} organizations are sound."
        )
    named = ", ".join([*damaged][:_NAMED])
    more = f" and {len(damaged) - _NAMED} more" if len(damaged) > _NAMED else ""
    text = f"{len(damaged)} of {read:,} organizations have damaged windows or slots: {named}{more}."
    advice = f"Run 'lockgate orgs reset' for windows. Otherwise: {next(iter(damaged.values()))}"
    return Finding("windows", "problem", text, advice)


async def _warnings(store: Store) -> list[Finding]:
    """Return the store's warnings, except of its clock and keys, which have checks of their own."""
    try:
        warnings = await store.warnings()
    except Exception as failure:
        return [_away("The store", failure, [])]
    return [Finding(w.kind, "problem", w.text) for w in warnings if w.kind not in {"clock", "keys"}]


def _away(name: str, failure: Exception, advice: list[str]) -> Finding:
    text = f"{name} does not answer: {kind_of(failure)}."
    otherwise = "Check the URL, the network and the server."
    return Finding("store", "problem", text, advice[-1] if advice else otherwise)


@contextmanager
def _logged_advice() -> Generator[list[str]]:
    """Collect the ERROR lines of lockgate that say how to correct a server; no events."""
    lines: list[str] = []

    def collect(record: logging.LogRecord) -> bool:
        if record.levelno >= logging.ERROR and not hasattr(record, "event"):
            lines.append(record.getMessage())
        return True

    logger.addFilter(collect)
    try:
        yield lines
    finally:
        logger.removeFilter(collect)


def _keys(store: Store, counts: dict[str, int]) -> Iterator[Finding]:
    """Yield a finding if a service over this store would know no key."""
    if store.io == "none":
        text = "memory:// keeps keys in one process, and loses them with it."
        yield Finding("keys", "problem", text, "Give the gate the URL of a database or of Redis.")
    elif not any(counts.values()):
        text = "The store has no live key."
        yield Finding("keys", "note", text, "If it should, check the URL: it may name another.")


def _peppers(gate: Gate, counts: dict[str, int]) -> Iterator[Finding]:
    """Yield a finding for each digest scheme and pepper of the census."""
    peppers = gate.format.peppers
    if not peppers.seals and gate.store.io != "none":
        text = "The gate has no pepper: any writer of the database can create keys."
        yield Finding("peppers", "problem", text, "Give Gate(peppers=[...]) 32 random bytes.")
    accepted_schemes = gate.legacy.kept_schemes | peppers.digesters.keys()
    peppered = {scheme for scheme in counts if scheme.startswith(PEPPER_SCHEME)}
    wrong = _WRONG_PEPPER if peppers.seals and not accepted_schemes & peppered else ""
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
            text = f"{text} They are refused."
            yield Finding("peppers", "problem", text, f"{wrong}{REMEDIES[why]}")
    for option, scheme in (("accept_plain", PLAIN_SCHEME), ("accept_unsealed", UNSEALED_ROWS)):
        if peppers.seals and getattr(peppers, option) and not counts.get(scheme):
            text = f"{option}=True lets a writer of the database create keys."
            yield Finding("peppers", "problem", text, "No row needs it any more: take it out.")


def _ages(gate: Gate, ages: KeyAges) -> Iterator[Finding]:
    """Yield a finding for keys that end soon, and for keys past the maximum age."""
    if ages.ending:
        named = [
            f"{key.prefix}... of {key.organization}, {iso8601(key.ends_at)}" for key in ages.first
        ]
        more = f" and {ages.ending - len(named)} more" if ages.ending > len(named) else ""
        text = (
            f"{ages.ending} live keys end within {ENDS_SOON // DAY} days: {'; '.join(named)}{more}."
        )
        yield Finding("expiry", "note", text, "Rotate them: 'lockgate keys rotate'.")
    else:
        yield Finding("expiry", "ok", f"No live key ends within {ENDS_SOON // DAY} days.")
    if ages.too_old and gate.keys.max_age is not None:
        days = f"{gate.keys.max_age / DAY:g}"
        text = f"{ages.too_old} live keys outlive max_age_days={days}: they are from before it."
        yield Finding("expiry", "note", text, "Rotate them, or give them an expiry.")


def _settings(gate: Gate) -> Iterator[Finding]:
    """Yield findings about the gate's proxies and origins."""
    if gate.addresses.trusts_any:
        yield Finding("proxy", "ok", "X-Forwarded-For of the trusted proxies is used.")
    else:
        text = "No proxy is trusted: behind one, all clients share the budget of its address."
        advice = "Give WebOptions(trusted_proxies=[...]) its addresses, if there is one."
        yield Finding("proxy", "note", text, advice)
    if not gate.session_access.uses_cookies:
        return
    if gate.origins:
        pages = b", ".join(sorted(gate.origins)).decode()
        yield Finding("origins", "ok", f"Pages of {pages} may write.")
    else:
        text = "Sessions are verified, and no page may write with one."
        advice = "Give WebOptions(public_url=...) or allowed_origins=[...] their origin."
        yield Finding("origins", "problem", text, advice)
