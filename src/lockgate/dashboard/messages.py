"""The texts of the dashboard, which a host may replace one by one."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from ..core.api_keys import DAYS_AT_MOST, SCOPES_AT_MOST
from ..errors import ConfigurationError

_DAYS: Final = f"Use a number of days greater than 0 and at most {DAYS_AT_MOST}"
MESSAGES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "skip": "Skip to content",
        "settings": "Settings",
        "navigation": "Sections",
        "nav.keys": "API keys",
        "nav.usage": "Usage",
        "nav.claim": "Connect workspace",
        "nav.operator": "Operations",
        "home": "Back to {name}",
        "sign_out": "Sign out",
        "organization": "Workspace",
        "you": "you",
        "agent": "agent",
        "actor.operator": "the service's operator",
        "actor.key": "an API key",
        "actor.scanner": "a report that the key was leaked",
        "actor.service": "the service",
        "never": "Never",
        "none": "None",
        "cancel": "Cancel",
        "restored": "This is what you entered before you signed in again. Check it and send it.",
        "pending": "The change is made. A part of the service could not be told, so the state "
        "before may still apply there until it recovers.",
        "copy": "Copy",
        "copied": "Copied",
        "copy_failed": "Select the text and copy it by hand.",
        "next": "Next page",
        "first": "First page",
        "pages": "Pages",
        "ago.now": "just now",
        "ago.minutes": "{n} min ago",
        "ago.hours": "{n} h ago",
        "ago.days": "{n} d ago",
        "in.minutes": "in {n} min",
        "in.hours": "in {n} h",
        "in.days": "in {n} d",
        "from": "from {address}",
        "state.active": "Active",
        "state.revoked": "Revoked",
        "state.expired": "Expired",
        "state.rotated": "Being replaced",
        "state.soon": "Expires soon",
        # The list
        "keys.title": "API keys",
        "keys.lead": "Keys let programs call {name} for this workspace. Keep them secret: a key "
        "does whatever its scopes allow, for whoever has it.",
        "keys.new": "Create new key",
        "keys.empty": "No API keys yet",
        "keys.empty_lead": "Create the first one to call the API from your own code.",
        "keys.search": "Name or key prefix",
        "keys.any_state": "Any state",
        "keys.search_submit": "Search",
        "keys.matching": "Keys that match “{text}”",
        "keys.filtered": "Keys with the label {label}",
        "keys.both": "Keys with the label {label} that match “{text}”",
        "keys.none_found": "There are none.",
        "keys.none_yet": "There are none among the keys that were searched so far.",
        "keys.unfilter": "Show all keys",
        "keys.caption": "The live API keys of this workspace, newest first",
        "keys.found_caption": "The API keys that were found, live ones first",
        "keys.none_live": "No key is live: programs cannot call {name}.",
        "keys.ended": "Revoked and expired keys ({n})",
        "keys.ended_newest": "Revoked and expired keys",
        "keys.all_revoked": "All revoked keys",
        "keys.all_expired": "All expired keys",
        "column.name": "Name",
        "column.key": "Key",
        "column.scopes": "Scopes",
        "column.created": "Created",
        "column.used": "Last used",
        "column.expires": "Expires",
        "column.state": "State",
        "by": "by {creator}",
        "scopes.more": "+{n}",
        "scopes.full": "Full access",
        # Create and edit
        "create.title": "Create new key",
        "create.lead": "The key is shown once, on the next page. Copy it there.",
        "create.submit": "Create key",
        "create.limits": "All keys of this workspace count together, on the plan {plan}: {limits}.",
        "limit.minute": "{n} requests a minute",
        "limit.hour": "{n} requests an hour",
        "limit.day": "{n} requests a day",
        "limit.concurrent": "{n} jobs at a time",
        "limit.any": "no limit",
        "edit.title": "Edit key",
        "edit.submit": "Save changes",
        "edit.lead": "The key itself stays the same. Changes apply from the next request on.",
        "field.name": "Name",
        "field.name_hint": "What uses the key, such as “build server”. 1 to 100 characters.",
        "field.expires": "Expiration",
        "field.expires_keep": "Keep: {date}",
        "field.expires_never": "No expiration",
        "field.expires_maximum": "The maximum: {n} days",
        "field.expires_days": "{n} days",
        "field.expires_suggested": "{n} days (suggested)",
        "field.expires_day": "1 day",
        "field.expires_year": "1 year",
        "field.expires_hint": "Then the key is refused. To replace it without an interruption, "
        "rotate it before.",
        "field.expires_custom": "Another number of days",
        "field.days": "Days",
        "field.access": "Access",
        "field.access_full": "Full access",
        "field.access_full_hint": "Every operation, also those that are added later.",
        "field.access_some": "Selected scopes",
        "field.access_some_hint": "Only what you tick below.",
        "field.advanced": "Labels and allowed addresses",
        "field.labels": "Labels",
        "field.labels_hint": "One name=value on a line, at most 16, to find the key by.",
        "field.addresses": "Allowed addresses",
        "field.addresses_hint": "One address or network on a line, such as 203.0.113.7 or "
        "2001:db8::/32. Empty: any address may use the key.",
        "problems": "The key was not saved. Please check:",
        # Sentences of errors that are for callers of the API
        f"Give 1 to {SCOPES_AT_MOST} scopes.": f"Choose at least one, at most {SCOPES_AT_MOST}.",
        f"{_DAYS}, or null.": f"{_DAYS}.",
        # Created
        "created.title": "Your new key",
        "created.lead": "Copy the key now and store it in a safe place. It is not shown again.",
        "created.rotated": "The old key works until {date}. Replace it by this one before then.",
        "created.rotated_now": "The old key no longer works.",
        "created.key": "The new key",
        "created.listed": "In lists: {prefix}…",
        "created.try": "Try it",
        "created.done": "I have stored the key",
        "created.before": "This key was created already",
        "created.before_lead": "The form was sent twice, and created one key. The first answer "
        "showed its text, which is stored nowhere.",
        "created.before_hint": "If you have not copied the text: rotate the key, and copy the text "
        "of the new one. To create another key, open the form again.",
        # One key
        "key.created": "Created",
        "key.expires": "Expires",
        "key.used": "Last used",
        "key.requests": "Requests",
        "key.scopes": "Scopes",
        "key.labels": "Labels",
        "key.addresses": "Allowed addresses",
        "key.any_address": "Any address",
        "key.id": "Key ID",
        "key.revoked": "Revoked",
        "key.predecessor": "Replaces",
        "key.successor": "Replaced by",
        "key.show_successor": "the new key",
        "key.facts": "Details",
        "key.usage": "Usage of this key",
        "key.limits": "Limits of this key",
        "key.edit": "Edit",
        "key.rotate": "Rotate",
        "key.revoke": "Revoke",
        "key.actions": "Actions",
        "done.updated": "The key was changed.",
        "done.revoked": "The key was revoked. No process accepts it any more.",
        "done.claimed": "The workspace is connected to your login.",
        "done.plan": "The plan was changed. It applies from the next request on.",
        "done.limit": "The limit was changed. It applies from the next request on.",
        "done.ended": "The temporary limit has ended. The limit of before applies again.",
        # Rotate
        "rotate.title": "Rotate key",
        "rotate.lead": "A new key with the same name, scopes, labels and addresses replaces this "
        "one. Both work during the overlap, so that nothing stops while you replace it.",
        "rotate.overlap": "The old key works for",
        "rotate.overlap_none": "0 days: it stops at once",
        "rotate.overlap_hint": "Responses to the old key announce its end in their headers.",
        "rotate.expires": "The new key expires at {date}.",
        "rotate.never": "The new key does not expire.",
        "rotate.submit": "Rotate key",
        # Revoke
        "revoke.title": "Revoke this key?",
        "revoke.lead": "Every program that uses it loses access at once. This cannot be undone.",
        "revoke.unused": "The key was never used, so nothing should break.",
        "revoke.used": "It was last used {when}{where}. Whatever sent that request stops working.",
        "revoke.week": "Requests counted in the last 7 days: {n}.",
        "revoke.rotate": "To replace it without an interruption, rotate it instead.",
        "revoke.successors": "Also revoke the key that replaces it",
        "revoke.submit": "Revoke key",
        # Usage
        "usage.title": "Usage",
        "usage.lead": "What this workspace uses of its plan {plan}. All keys count together.",
        "usage.now": "Limits now",
        "usage.unread": "What is counted cannot be read at the moment. Limits still apply.",
        "usage.unlimited": "This plan has no limit.",
        "usage.minute": "Requests, last minute",
        "usage.hour": "Requests, last hour",
        "usage.day": "Requests, last 24 hours",
        "usage.concurrent": "Jobs now",
        "usage.limits": "Other limits",
        "usage.credits": "Credits",
        "usage.named": "{name}, last {span}",
        "usage.named_period": "{name}, this {span}",
        "span.second": "second",
        "span.seconds": "{n} seconds",
        "span.minute": "minute",
        "span.minutes": "{n} minutes",
        "span.hour": "hour",
        "span.hours": "{n} hours",
        "span.day": "day",
        "span.week": "week",
        "span.month": "month",
        "span.year": "year",
        "usage.of": "{used} of {limit}",
        "usage.held": "{used} of {limit}, {held} reserved",
        "usage.used": "{used}, no limit",
        "usage.full_until": "Full until {time}",
        "usage.stale": "The service does not answer: these numbers may be old.",
        "usage.ended": "Your session has ended: these numbers may be old.",
        "usage.history": "Over time",
        "usage.by": "Span",
        "usage.by_minute": "Last hour",
        "usage.by_hour": "Last 7 days",
        "usage.by_day": "Last 90 days",
        "usage.no_history": "This service keeps no usage over time.",
        "usage.quiet": "No requests in this time.",
        "usage.elsewhere": "The key was last used {when}.",
        "usage.admitted": "Requests counted",
        "usage.limit": "{name}",
        "usage.refused": "Requests refused",
        "usage.summary": "{what}: {total}. The highest bar: {most}.",
        "usage.units": "A request counts once, or as often as its operation costs.",
        "usage.table": "Show as a table",
        "usage.time": "From",
        "usage.refusals": "Refused requests",
        "usage.refusals_none": "No request was refused in this time.",
        "usage.reason": "Reason",
        "usage.number": "Number",
        "refused.minute": "The limit of the minute was reached",
        "refused.hour": "The limit of the hour was reached",
        "refused.day": "The limit of the day was reached",
        "refused.limit": "Another limit was reached",
        "refused.named": "The limit {name} was reached",
        "refused.concurrent": "As many jobs ran as the plan allows",
        "refused.INSUFFICIENT_SCOPE": "The key lacked the scope",
        "refused.KEY_REVOKED": "The key was revoked",
        "refused.KEY_EXPIRED": "The key had expired",
        "refused.METHOD_NOT_ALLOWED": "The method is not allowed",
        "refused.NOT_FOUND": "No such path",
        "refused.other": "Another reason",
        # Claim
        "claim.title": "Connect workspace",
        "claim.lead": "Agents that registered with your e-mail address. Connect one to manage its "
        "keys with your login. Its keys, plan and usage stay as they are.",
        "claim.empty": "Nothing to connect",
        "claim.empty_lead": "No agent has registered with {email}.",
        "claim.keys": "Keys of this workspace",
        "claim.more": "The workspace has more keys than these.",
        "claim.question": "Its keys",
        "claim.keep": "I know these keys: keep them",
        "claim.revoke": "I do not know them all: revoke every key of this workspace",
        "claim.token": "Let the agent sign in with its dashboard token as before",
        "claim.submit": "Connect",
        "claim.open": "Open",
        "claim.leave": "Back to {organization}",
        "claim.connected": "Connected {when}",
        "claim.company": "Company: {name}",
        "claim.registered": "Registered {when}",
        # Signing in, and errors
        "signin.title": "Sign in",
        "signin.again": "Sign in again",
        "signin.lead": "Sign in to manage the API keys of your workspace.",
        "signin.ended": "Your session has ended. Sign in again; nothing was changed.",
        "signin.kept": "What you entered is kept for 30 minutes, and shown again after that.",
        "signin.link": "Sign in",
        "signin.agent": "Agents sign in with their dashboard token",
        "signin.token": "Dashboard token",
        "signin.token_submit": "Sign in as the agent",
        "error.title": "That did not work",
        "error.credential": "A key, a token or a session does not belong here: nothing was looked "
        "up or changed. If it is yours, rotate it, since histories and logs keep addresses.",
        "error.NOT_FOUND": "There is nothing here",
        "error.NOT_FOUND_lead": "The address is wrong, or it belongs to another workspace.",
        "error.STORE_UNAVAILABLE": "Temporarily unavailable",
        "error.STORE_UNAVAILABLE_lead": "The keys cannot be read or changed at the moment. Keys "
        "that are in use may still work. Try again in a few seconds.",
        "error.CHANGE_COMMITTED": "The change is made",
        "error.CHANGE_COMMITTED_lead": "It stays. A part of the service could not be told, so the "
        "state before may still apply there until it recovers. Do not make the change again.",
        "error.NO_ORGANIZATION": "No workspace yet",
        "error.NO_ORGANIZATION_lead": "Your login belongs to no workspace of this service.",
        "error.RATE_LIMIT_EXCEEDED": "Too many requests",
        "error.UNSUPPORTED_MEDIA_TYPE": "This form cannot be read",
        "error.UNSUPPORTED_MEDIA_TYPE_lead": "Nothing was changed. Send the form "
        "from its own page.",
        "error.INSUFFICIENT_SCOPE": "Your role does not allow this",
        "error.FORM_OUTDATED": "This form is out of date",
        "error.FORM_OUTDATED_lead": "It is from another session or workspace, or older than 12 "
        "hours. Nothing was changed: open the page again, and send the form from there.",
        "error.KEY_NOT_LIVE": "This key has ended",
        "error.KEY_NOT_LIVE_lead": "It was revoked or has expired, so it cannot be changed. Its "
        "page tells when, and what it did.",
        "error.KEY_ROTATED": "This key was rotated before",
        "error.KEY_ROTATED_lead": "Another key replaces it already. If you have not copied its "
        "text, rotate that key.",
        "error.show_key": "Show the key",
        "error.show_successor": "Show the new key",
        "error.again": "Try again",
        "error.back": "Back to the API keys",
        # Operators
        "operator.title": "Operations",
        "operator.lead": "Find an organization by a part of its name or ID, or a key by its ID, "
        "its beginning or its text.",
        "operator.search": "Organization or a part of its name or ID, key ID, prefix or key",
        "operator.search_submit": "Search",
        "operator.organizations": "Organizations",
        "operator.found": "Keys found",
        "operator.found_none": "No key begins like this, and no organization has it in its name "
        "or ID.",
        "operator.found_short": "Every key of this service begins like this: enter more "
        "characters.",
        "operator.differs": "A key begins like this text, but it could not be verified that the "
        "whole text is this key's: if it is complete, a later character differs.",
        "operator.cut": "There are more organizations than were searched: enter the whole ID.",
        "operator.by_text": "The whole text is this key's.",
        "operator.open": "Open this organization",
        "operator.unknown": "It has no plan, key, account or usage so far: is its ID right?",
        "operator.organization": "Organization",
        "operator.plan": "Plan",
        "operator.live": "Live keys",
        "operator.used": "Last use of live keys",
        "operator.refusals": "Refused in 24\N{NO-BREAK SPACE}h",
        "operator.sort": "Order",
        "operator.all": "All",
        "operator.most_refused": "Most refused",
        "operator.sorted": "Those of {n} organizations whose requests were refused in the last 24 "
        "hours, most refusals first.",
        "operator.none_refused": "No request of {n} organizations was refused in the last 24 "
        "hours.",
        "operator.none_live": "No key is live: its keys tell when they were used.",
        "operator.keys": "Keys",
        "operator.limits": "Plan and limits",
        "operator.limits_hint": "Empty: the limit of the plan applies. “+500”: 500 more than the "
        "present limit. “none”: no limit. A change ends temporary limits.",
        "operator.wrong_plan": "Choose a plan.",
        "operator.own_number": "The plan {plan} has no numbers: enter a number, or “none”.",
        "operator.confirm_new": "Nothing is known of {id}. If it is a new organization, tick the "
        "box below; if it is mistyped, go back and search for it.",
        "operator.new": "{id} is a new organization",
        "operator.impossible": "This is no ID of an organization: it has spaces or characters that "
        "cannot be seen, and nothing is known of it. Search for the organization instead.",
        "operator.replaces": "{limit}: {number} until {time} is in force already. The new limit "
        "replaces it, with its end: tick the box below if it should.",
        "operator.replace": "Replace {limit}: {number} until {time}",
        "operator.end": "End it now",
        "operator.still": "The limit was changed, but the next request would still be refused.",
        "operator.sections": "On this page",
        "operator.problems": "The limits were not changed. Please check:",
        "operator.wrong_limit": "Choose a limit.",
        "operator.wrong_end": "Choose how long the limit lasts, or enter the date and time of its "
        "end.",
        "operator.past_end": "This end is past: enter a later date and time.",
        "operator.changed_limit": "The limit is {now} by now, and was {before} when this page was "
        "opened, perhaps because the form was sent twice. Send it again to add to {now}.",
        "operator.temporary": "Temporary limit",
        "operator.temporary_limit": "Limit",
        "operator.temporary_number": "Number",
        "operator.temporary_for": "For",
        "operator.temporary_hour": "1 hour",
        "operator.temporary_hours": "{n} hours",
        "operator.temporary_until": "Until a date and time",
        "operator.temporary_end": "End",
        "operator.temporary_hint": "“+500”: 500 more than the present limit. “none”: no limit. The "
        "limit of before returns by itself at the end. A second temporary limit replaces the first "
        "one of the same name, with its end.",
        "operator.temporary_submit": "Set limit",
        "operator.temporary_now": "{limit}: {number} until {time}",
        "operator.limits_submit": "Change plan",
        "operator.explain": "The next request",
        "operator.admitted": "It would be admitted.",
        "operator.used_up_hold": "Holds and charges of {limit} are refused until {time}.",
        "operator.used_up_rule": "Requests to routes with {limit} are refused until {time}.",
        "operator.until_changed": "the limit is changed",
        "operator.unread": "The store of the windows does not answer, so what is counted is not "
        "known. Until it does, each process decides by limits of its own.",
        "operator.leased": "{units} of the requests left are leased to processes until {time}.",
        "operator.refused": "It would be refused with {code}. {cause}",
        "operator.refused_until": "This ends by itself at {time}.",
        "operator.more": "Give the organization more for some hours",
        "operator.changes": "Audit log",
        "operator.changes_none": "No changes are recorded.",
        "operator.when": "When",
        "operator.who": "Who",
        "operator.what": "What",
        "operator.changed": "Changes",
        "change.from": "{name}: {before} → {after}",
        "change.to": "{name}: {after}",
        "change.temporary": "{name}: {after} until {time}",
        "change.ended": "{name}: {before} until {time} was ended",
        "change.of_plan": "the plan's",
        "change.plan_changed": "plan changed",
        "change.limits_changed": "limits changed for good",
        "change.temporary_limit_set": "temporary limit set",
        "change.temporary_limit_ended": "temporary limit ended early",
        "operator.rpm": "Requests a minute",
        "operator.rph": "Requests an hour",
        "operator.rpd": "Requests a day",
        "operator.concurrent": "Jobs at a time",
        # The scopes of DEFAULT_SCOPES
        "scope.*": "Full access to all endpoints",
        "scope.models:*": "List models, generate and edit images",
        "scope.models:read": "List models only",
        "scope.models:write": "Generate and edit images",
        "scope.jobs:*": "Create, list and cancel jobs",
        "scope.jobs:read": "List jobs and read their status",
        "scope.jobs:write": "Create and cancel jobs",
        "scope.upload:*": "Upload files",
        "scope.account:read": "Read account and organization information",
    }
)
"""The texts in English, by name. Words in braces are filled in."""

_FREE: Final = ("error.", "plan.", "refused.", "scope.")
"""The beginnings of names that a host may add."""


class Texts:
    """The texts of one dashboard.

    Args:
        replaced: texts in place of :data:`MESSAGES`; a name with a space in it is a sentence of
            an error of lockgate's, in English.

    Raises:
        ConfigurationError: a name is unknown, or a text has a word in braces that is not filled in.
    """

    def __init__(self, replaced: Mapping[str, str]) -> None:
        for name, text in replaced.items():
            known = MESSAGES.get(name)
            if known is None and " " not in name and not name.startswith(_FREE):
                raise ConfigurationError(f"There is no message {name!r}: see dashboard.MESSAGES.")
            if known is not None:
                _check_words(name, text, known)
        self._texts: Final = {**MESSAGES, **replaced}

    def __call__(self, name: str, /, **words: object) -> str:
        """Return the text of this name with its words filled in."""
        return self._texts[name].format_map(words) if words else self._texts[name]

    def find(self, name: str) -> str | None:
        """Return the text of this name, without words; None: the name is unknown."""
        return self._texts.get(name)

    def sentence(self, text: str) -> str:
        """Return a sentence of an error in the language of the texts, if it was translated."""
        return self._texts.get(text, text)


class _Words(dict[str, object]):
    """Notes which words a text asks for."""

    def __missing__(self, name: str) -> str:
        self[name] = ""
        return ""


def _check_words(name: str, text: str, known: str) -> None:
    allowed, wanted = _Words(), _Words()
    known.format_map(allowed)
    try:
        text.format_map(wanted)
    except (ValueError, AttributeError, IndexError, KeyError) as problem:
        raise ConfigurationError(f"The message {name!r} is malformed: {problem}.") from None
    if unknown := wanted.keys() - allowed.keys():
        raise ConfigurationError(
            f"The message {name!r} has {{{min(unknown)}}}, which is not filled in: it may have "
            f"{', '.join(sorted(allowed)) or 'no word in braces'}."
        )
