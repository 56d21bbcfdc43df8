"""Every identifier and file that prose names in backticks exists.

Prose is the pages and the docstrings and comments of the package. A name that was changed in the
code and not in the prose fails here, with the line where it stands. The archived design records
keep the names of their time, and only their links are checked.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import importlib.metadata
import io
import itertools
import keyword
import re
import sys
import tokenize
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src"
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
ARCHIVE = ROOT / "docs" / "design" / "archive"
LIVING = [page for page in PAGES if ARCHIVE not in page.parents]
MODULES = sorted(PACKAGE.rglob("*.py"))

BLOCK = re.compile(r"^ *```.*?^ *```", re.DOTALL | re.MULTILINE)
FRAGMENT = re.compile(r"``([^`]+)``|(?<![`\w])`([^`\n]+)`(?!`)")
FILE = re.compile(r"[\w./-]+\.(?:py|md|lua|toml|html|svg)")
DOTTED = re.compile(r"@?([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)(\(.*\))?")
KEYWORD = re.compile(r"\b([a-z_]\w*)=")
HEADER = re.compile(r"[A-Z][A-Za-z0-9]*(?:-[A-Z][A-Za-z0-9]*)+")
LINK = re.compile(r"\]\(((?!\w+:)[^)#\s]*)#?([^)\s]*)\)")
FLAG = re.compile(r"--[a-z][a-z-]+")
WORD = re.compile(r"[A-Za-z_]\w*")
PREFIX = "lockgate"  # The default prefix of tables and metrics, which code names without it.

# Names of examples, of other systems and of their protocols, which no code here spells.
FOREIGN_NAMES = """
i0 app.py shop/gate.py shop/settings.py shop/urls.py shop/views.py shop/wsgi.py --noreload
lockgate.toml frontend R H o1 h1 d0
Origin Forwarded RateLimit X-Shadow-RateLimit-Limit X_Forwarded_For FORCE_SCRIPT_NAME
X-Shadow-RateLimit-Remaining pg_stat_activity ProxyFix max_retries
AuthenticationError PermissionDeniedError RateLimitError InternalServerError
aud iat jku jti jwk nbf sid x5c x5u Prepended_Concatenation_Mark
CASE NULL VALUES pg_locks search_path caching_sha2_password mariadbd mysqld include_object
ASK ASKING AUTH FLUSHALL LOADING MIGRATE SCRIPT SELECT TRYAGAIN Sentinel _sock _writer
allchannels noeviction discover_master
LISTEN max_prepared_statements default_pool_size
NodesManager RRCache str_if_bytes ConditionExpression cas mod_revision
CORSConfig add_middleware after_request as_view before_request cross_origin docs_url
zsh_source fish_source sentinel_kwargs
send_packed_command read_response redis_connect_func disconnect recv shutdown
CommonMiddleware errorhandler re_path subdomain_matching forwarded_allow_ips gthread spawn
lockgate_admitted_requests_total lockgate_refused_requests_total lockgate_events_total
lockgate_breaker_open lockgate_store_call_seconds le zsh_source fish_source sentinel_kwargs
master_for Deprecation healthcheck stop_grace_period FLUSHDB BGSAVE arq defer
curl LASTSAVE dump rdb appendonlydir aof maxclients
--preload --no-clear-untrusted-proxy-headers SIGKILL find_spec ps
--ws --workers-kill-timeout --lifespan
KeyGenerator secret_key_length ApiKeyService key_id_len secret_len defaultPrefix defaultKeyLength
HasAPIKey permission_classes ratelimits required_scopes
use_count --format X-API-Key headers_enabled FastAPILimiter TMPDIR
BaseHTTPMiddleware is_disconnected proxy_ignore_client_abort
--forwarded-allow-ips post_fork --timeout-graceful-shutdown --graceful-timeout
HttpOnly Domain acr acr_values amr auth_time fva org_role max_age insufficient_user_authentication
FastAPIInstrumentor FlaskInstrumentor Instrumentator OpenTelemetryMiddleware
logfire instrument_fastapi sentry_sdk init SecretStr HttpUrl anyio_backend
send_default_pii include_local_variables
server.py .mcp.json initialize ping strict_slashes
"""
FOREIGN = frozenset(FOREIGN_NAMES.split())


class Named(NamedTuple):
    """A fragment in backticks and its place, ``file:line``."""

    place: str
    text: str


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def docstrings_and_comments(path: Path) -> Iterator[tuple[int, str]]:
    """Yield each docstring and each comment of a module with its first line."""
    source = path.read_text()
    for node in ast.walk(parsed(path)):
        match node:
            case ast.Expr(value=ast.Constant(value=str() as text)):
                yield node.lineno, text
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def fragments(path: Path) -> Iterator[Named]:
    """Yield what a page or module sets in backticks, code blocks aside."""
    where = path.relative_to(ROOT)
    if path.suffix == ".py":
        texts = list(docstrings_and_comments(path))
    else:
        texts = [(1, BLOCK.sub(lambda block: "\n" * block[0].count("\n"), path.read_text()))]
    for line, text in texts:
        for found in FRAGMENT.finditer(text):
            yield Named(
                f"{where}:{line + text.count(chr(10), 0, found.start())}", found[1] or found[2]
            )


def headings(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.+)$", BLOCK.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def identifiers(tree: ast.AST) -> Iterator[str]:
    """Yield the names that code defines or uses, and its string constants of one word."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.name
            case ast.Name():
                yield node.id
            case ast.Attribute():
                yield node.attr
            case ast.arg():
                yield node.arg
            case ast.keyword(arg=str() as name):
                yield name
            case ast.alias():
                yield from (node.asname or node.name).split(".")
            case ast.ImportFrom(module=str() as module):
                yield from module.split(".")
            case ast.Constant(value=str() as text):
                yield text
            case ast.Constant(value=bytes() as data):
                yield data.decode("latin-1")


@cache
def vocabulary() -> frozenset[str]:
    """Collect the identifiers of the package, of its scripts and of the examples."""
    names: set[str] = {*dir(builtins), *keyword.kwlist, *sys.stdlib_module_names}
    for path in (*MODULES, *(ROOT / "examples").glob("*.py"), ROOT / "noxfile.py"):
        names.update(identifiers(parsed(path)))
        names.update(path.with_suffix("").relative_to(ROOT).parts)
    for script in PACKAGE.rglob("*.lua"):
        names.update(WORD.findall(script.read_text()))
    names.update(camel(name) for name in list(names) if WORD.fullmatch(name))
    names.update(
        re.findall(r"[\w\[\]-]+", str(tomllib.loads((ROOT / "pyproject.toml").read_text())))
    )
    names.update(distribution.name for distribution in importlib.metadata.distributions())
    return frozenset(names)


@cache
def headers() -> frozenset[str]:
    return frozenset(name.lower() for name in vocabulary())


@cache
def flags() -> frozenset[str]:
    texts = [path.read_text() for path in (*MODULES, ROOT / "noxfile.py")]
    texts += [
        p.read_text() for room in ("tests", "benchmarks") for p in (ROOT / room).rglob("*.py")
    ]
    return frozenset(flag for text in texts for flag in FLAG.findall(text))


@cache
def members() -> dict[str, frozenset[str]]:
    """Map each class of the package to its attributes, its bases' included."""
    own: dict[str, set[str]] = defaultdict(set)
    bases: dict[str, set[str]] = defaultdict(set)
    for path in MODULES:
        for node in ast.walk(parsed(path)):
            if not isinstance(node, ast.ClassDef):
                continue
            bases[node.name].update(
                n for base in node.bases for n in WORD.findall(ast.unparse(base))
            )
            for child in ast.walk(node):
                match child:
                    case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                        own[node.name].add(child.name)
                    case ast.AnnAssign(target=ast.Name(id=name)):
                        own[node.name].add(name)
                    case ast.Attribute(value=ast.Name(id="self"), attr=name):
                        own[node.name].add(name)
                    case ast.Assign(targets=targets):
                        own[node.name].update(t.id for t in targets if isinstance(t, ast.Name))

    def inherited(name: str, seen: frozenset[str]) -> set[str]:
        found = set(own.get(name, ()))
        for base in bases.get(name, set()) - seen:
            found |= inherited(base, seen | {base})
        return found

    return {name: frozenset(inherited(name, frozenset({name}))) for name in bases}


@cache
def located(dotted: str) -> bool:
    """Tell whether a dotted name is a module or member of an installed package."""
    parts = dotted.split(".")
    for end in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:end]))
            for part in parts[end:]:
                found = getattr(found, part)
        except (ImportError, AttributeError, ValueError, RuntimeError):
            continue
        return True
    return False


def is_file(name: str, page: Path) -> bool:
    """Tell whether a file is found from the root, the page's folder, or by the end of its path."""
    if name.startswith("."):
        return (page.parent / name).resolve().exists()
    if any((folder / name).exists() for folder in (ROOT, page.parent)):
        return True
    return name in files()


@cache
def files() -> frozenset[str]:
    """Collect the ends of the paths of all files of the package and of the tests."""
    paths = [path.parts for room in (PACKAGE, ROOT / "tests") for path in room.rglob("*.*")]
    return frozenset("/".join(parts[at:]) for parts in paths for at in range(len(parts)))


def spellings(name: str) -> set[str]:
    """Return the spellings of a name in code: tables and metrics without prefix and ``_total``."""
    bare = name.removeprefix(PREFIX)
    return {name, bare, bare.removesuffix("_total"), bare.removeprefix("_")}


def missing(text: str, page: Path, own: frozenset[str]) -> list[str]:
    """Return the names of a fragment that do not exist."""
    text = text.strip().removeprefix("~")
    if FILE.fullmatch(text):
        return [] if text in FOREIGN or is_file(text, page) else [text]
    if HEADER.fullmatch(text):
        return [] if text in FOREIGN or text.lower() in headers() else [text]
    unknown = [flag for flag in FLAG.findall(text) if flag not in flags() and flag not in FOREIGN]
    dotted = DOTTED.fullmatch(text)
    if dotted is None:
        return unknown
    name, call = dotted.groups()
    parts = name.split(".")
    if not (is_known(name, own) or located(name)):
        unknown += [
            part for part in parts if not any(is_known(each, own) for each in spellings(part))
        ]
        for owner, attribute in itertools.pairwise(parts):
            if (
                owner in members()
                and attribute not in members()[owner]
                and is_known(attribute, own)
            ):
                unknown.append(f"{owner}.{attribute}")
    return unknown + [word for word in KEYWORD.findall(call or "") if not is_known(word, own)]


def is_known(name: str, own: frozenset[str]) -> bool:
    """Tell whether a name stands in the code, on its own page or among those of other systems."""
    return name in vocabulary() or name in own or name in FOREIGN


def test_every_name_in_backticks_exists() -> None:
    found: list[str] = []
    for page in (*LIVING, *MODULES):
        own: set[str] = set()
        if page.suffix == ".md":
            for block in BLOCK.findall(page.read_text()):
                own.update(WORD.findall(block))
        else:
            own.update(identifiers(parsed(page)))
        known = frozenset(own)
        found += [
            f"{place}: {name}"
            for place, text in fragments(page)
            for name in missing(text, page, known)
        ]
    assert found == []


def test_every_relative_link_leads_to_a_file_and_a_heading() -> None:
    broken: list[str] = []
    for page in PAGES:
        for target, heading in LINK.findall(BLOCK.sub("", page.read_text())):
            file = page.parent / target if target else page
            if not file.exists() or (heading and heading not in headings(file)):
                broken.append(f"{page.relative_to(ROOT)}: {target}#{heading}")
    assert broken == []


def test_a_link_of_the_readme_is_absolute_and_names_a_file_that_exists() -> None:
    """A package index shows the README without the repository."""
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]
    home, text = urls["Source"], (ROOT / "README.md").read_text()
    targets = {*re.findall(r"\]\(([^)\s]+)\)", text), *re.findall(r"(?:src|href)=\"([^\"]+)", text)}
    assert [target for target in (*targets, *urls.values()) if target[:8] != "https://"] == []
    of_the_repository = re.compile(rf"{home}/(?:blob|tree|raw)/main/([^#]+)(?:#(.+))?$")
    for target in sorted(targets):
        link = of_the_repository.match(target)
        assert link or not target.startswith(home), f"{target} names no file"
        if link:
            assert (ROOT / link[1]).exists(), target
            assert not link[2] or link[2] in headings(ROOT / link[1]), target
    for target in urls.values():
        link = of_the_repository.match(target)
        assert target.startswith(home)
        assert link is None or (ROOT / link[1]).exists(), target
