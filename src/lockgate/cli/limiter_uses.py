"""Find the uses of slowapi, Flask-Limiter, fastapi-limiter and DRF throttles in source code.

The code is parsed, never imported. Rates may be constants of any file of the project.
"""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from .limit_rates import Kind, Rate, Use, read_rates

_SHOWN: Final = 100
_METHODS: Final = {"get", "post", "put", "patch", "delete", "head", "options", "route", "api_route"}
_UNITS: Final = {"milliseconds": 0.001, "seconds": 1, "minutes": 60, "hours": 3600, "days": 86_400}
_DURATIONS: Final = {"SECOND": 1, "MINUTE": 60, "HOUR": 3600, "DAY": 86_400, "WEEK": 604_800}
_BY_ADDRESS: Final = {"get_remote_address", "get_ipaddr"}
_SCOPES: Final = {"UserRateThrottle": "user", "AnonRateThrottle": "anon"}
_SKIPPED: Final = {".git", ".venv", "venv", "node_modules", "site-packages", "__pycache__"}
_Function = ast.FunctionDef | ast.AsyncFunctionDef


class _Throttle(NamedTuple):
    """A throttle class of a project."""

    rate: str | None
    scope: str | None
    base: str | None


class _File(NamedTuple):
    path: str
    tree: ast.Module


class Project:
    """The parsed files of a project, and the constants and throttles that they define.

    Args:
        root: a folder or a file.
    """

    def __init__(self, root: Path) -> None:
        self.files: Final[list[_File]] = []
        self.unreadable: Final[list[str]] = []
        """Files that are not Python of this version."""
        self._constants: dict[str, Any] = {}
        self._rates: dict[str, str] = {}
        """DEFAULT_THROTTLE_RATES, by scope."""
        self._throttles: dict[str, _Throttle] = {}
        self._libraries: set[str] = set()
        paths = [root] if root.is_file() else sorted(root.rglob("*.py"))
        for path in paths:
            if _SKIPPED.isdisjoint(path.parts):
                self._read(path, root)
        for file in self.files:
            for node in ast.walk(file.tree):
                self._learn(node)
        self._learn_throttles()

    def uses(self) -> Iterator[Use]:
        """Yield every use, by file and line."""
        for file in self.files:
            yield from sorted(self._uses_in(file), key=lambda use: use.line)

    def _read(self, path: Path, root: Path) -> None:
        name = path.name if path == root else str(path.relative_to(root))
        try:
            self.files.append(_File(name, ast.parse(path.read_bytes())))
        except (SyntaxError, ValueError, RecursionError, OSError):
            self.unreadable.append(name)

    def _learn(self, node: ast.AST) -> None:
        """Note constants, rates, throttles and imported libraries."""
        match node:
            case ast.Assign(targets=[target], value=value):
                self._assign(target, value)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self._assign(target, value)
            case ast.ImportFrom(module=str(module)) | ast.Import(names=[ast.alias(name=module)]):
                self._libraries.add(module.partition(".")[0])
            case ast.Dict():
                for key, value in zip(node.keys, node.values, strict=True):
                    if _constant(key) == "DEFAULT_THROTTLE_RATES" and isinstance(value, ast.Dict):
                        self._add_rates(value)
            case _:
                pass

    def _learn_throttles(self) -> None:
        """Note the classes that derive from a throttle, also through others of the project."""
        nodes = [node for file in self.files for node in ast.walk(file.tree)]
        classes = [node for node in nodes if isinstance(node, ast.ClassDef)]
        known = -1
        while known < len(self._throttles):
            known = len(self._throttles)
            for node in classes:
                names = [name for name in map(_last, node.bases) if name]
                throttles = (n for n in names if n.endswith("Throttle") or n in self._throttles)
                base = next(throttles, None)
                if base is not None:
                    fields = _fields(node)
                    rate, scope = (self._text(fields.get(name)) for name in ("rate", "scope"))
                    self._throttles.setdefault(node.name, _Throttle(rate, scope, base))

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        name = _last(target)
        if name is None:
            return
        if name == "DEFAULT_THROTTLE_RATES" and isinstance(value, ast.Dict):
            self._add_rates(value)
        known = _constant(_default_of(value))
        if isinstance(known, str | int):
            self._constants.setdefault(name, known)

    def _add_rates(self, rates: ast.Dict) -> None:
        for key, value in zip(rates.keys, rates.values, strict=True):
            scope, rate = _constant(key), self._text(value)
            if isinstance(scope, str) and rate is not None:
                self._rates.setdefault(scope, rate)

    def _text(self, node: ast.expr | None) -> str | None:
        """Evaluate a text of constants."""
        match node:
            case ast.Constant(value=str() as text):
                return text
            case ast.Constant(value=int() as number):
                return str(number)
            case ast.Name(id=name) | ast.Attribute(attr=name):
                found = self._constants.get(name)
                return None if found is None else str(found)
            case ast.JoinedStr(values=values):
                parts = [self._text(value) for value in values]
                return "".join(p or "" for p in parts) if None not in parts else None
            case ast.FormattedValue(value=value):
                return self._text(value)
            case _:
                return None

    def _uses_in(self, file: _File) -> Iterator[Use]:
        """Yield the uses in a file; a use in a decorator has the routes of its function."""
        owners: dict[int, _Function | ast.ClassDef] = {}
        for node in ast.walk(file.tree):
            if isinstance(node, _Function | ast.ClassDef):
                for decorator in node.decorator_list:
                    for part in ast.walk(decorator):
                        owners.setdefault(id(part), node)
        groups = {id(n.func) for n in ast.walk(file.tree) if isinstance(n, ast.Call)}
        for node in ast.walk(file.tree):
            owner = owners.get(id(node))
            if isinstance(node, ast.Call):
                yield from self._call(file.path, node, owner, is_group=id(node) in groups)
            elif isinstance(node, ast.Attribute) and owner is not None:
                is_called = id(node) in groups
                if node.attr == "exempt" and not is_called and _is_limiter(node.value):
                    yield self._use(file.path, node, "exempt", None, owner)
            elif isinstance(node, ast.ClassDef):
                yield from self._view(file.path, node)
            elif isinstance(node, ast.Dict):
                for key, value in zip(node.keys, node.values, strict=True):
                    if _constant(key) == "DEFAULT_THROTTLE_CLASSES":
                        yield from self._throttled(file.path, value, value, None, None)

    def _call(
        self, path: str, call: ast.Call, owner: _Function | ast.ClassDef | None, *, is_group: bool
    ) -> Iterator[Use]:
        name = _last(call.func)
        options = {word.arg: word.value for word in call.keywords}
        if isinstance(call.func, ast.Attribute) and _is_limiter(call.func.value):
            if name in {"limit", "shared_limit"} and (call.args or "limit_value" in options):
                value = call.args[0] if call.args else options["limit_value"]
                kind: Kind = "group" if is_group or owner is None else "route"
                yield self._use(path, call, kind, self._read_text(value), owner, options)
            elif name == "exempt":
                yield self._use(path, call, "exempt", None, owner)
        elif name == "Limiter":
            for option in ("default_limits", "application_limits"):
                limits = options.get(option)
                if isinstance(limits, ast.List | ast.Tuple):
                    for limit in limits.elts:
                        use = self._use(path, limit, "default", self._read_text(limit), None)
                        use.counts_by = _counter(options) or "address"
                        yield use
        elif (
            name is not None
            and name.endswith("RateLimiter")
            and "fastapi_limiter" in self._libraries
        ):
            rates = self._read_times(call, options)
            if rates is not None or call.args or call.keywords:
                kind = "group" if owner is None else "route"
                yield self._use(path, call, kind, rates, owner, {})
        elif name == "throttle_classes" and owner is not None and call.args:
            yield from self._throttled(path, call, call.args[0], owner, None)

    def _view(self, path: str, node: ast.ClassDef) -> Iterator[Use]:
        """Yield the throttles of a class of views."""
        fields = _fields(node)
        scope = self._text(fields.get("throttle_scope"))
        classes = fields.get("throttle_classes")
        if classes is not None:
            yield from self._throttled(path, classes, classes, node, scope)
        elif "throttle_scope" in fields:
            rates = read_rates(self._rates.get(scope or "", ""))
            use = self._use(path, fields["throttle_scope"], "group", rates, None)
            use.counts_by = "user"  # And by address without one.
            yield use

    def _throttled(
        self,
        path: str,
        place: ast.expr,
        classes: ast.expr,
        owner: _Function | ast.ClassDef | None,
        scope: str | None,
    ) -> Iterator[Use]:
        if not isinstance(classes, ast.List | ast.Tuple):
            return
        if not classes.elts:
            yield self._use(path, place, "exempt", None, owner)
        for element in classes.elts:
            name = _last(element) or str(_constant(element)).rpartition(".")[2]
            if owner is None and name.endswith("ScopedRateThrottle"):
                continue  # It counts where a view names a scope.
            rate, is_anonymous = self._rate_of(name, scope)
            kind: Kind = "group" if isinstance(owner, ast.ClassDef) else "route"
            kind = "default" if owner is None else kind
            rates = None if rate is None else read_rates(rate)
            use = self._use(path, place, "anonymous" if is_anonymous else kind, rates, None)
            use.counts_by = "address" if is_anonymous else "user"
            yield use

    def _rate_of(self, name: str, scope: str | None) -> tuple[str | None, bool]:
        """Return the rate of a throttle class, and whether it counts callers without a user."""
        rate, own, known = None, None, self._throttles.get(name)
        for _ in range(9):
            if known is None:
                break
            rate = rate or known.rate
            own = own or known.scope
            name = known.base or ""
            known = self._throttles.get(name)
        scope = own or _SCOPES.get(name) or scope
        return rate or self._rates.get(scope or ""), name == "AnonRateThrottle"

    def _read_text(self, node: ast.expr) -> tuple[Rate, ...] | None:
        text = self._text(node)
        return None if text is None else read_rates(text)

    def _read_times(
        self, call: ast.Call, options: dict[str | None, ast.expr]
    ) -> tuple[Rate, ...] | None:
        """Read fastapi-limiter's ``times=, seconds=``, or its ``Rate(5, Duration.MINUTE)``."""
        rates: list[Rate] = []
        for node in ast.walk(call):
            if isinstance(node, ast.Call) and _last(node.func) == "Rate" and len(node.args) == 2:
                count, span = self._text(node.args[0]), _duration(node.args[1])
                if count is None or span is None:
                    return None
                rates.append(Rate(int(count), span))
        times = self._text(options.get("times"))
        if times is not None and times.isdigit():
            parts = {unit: self._text(options.get(unit)) for unit in _UNITS}
            if all(part is None or part.isdigit() for part in parts.values()):
                seconds = sum(_UNITS[unit] * int(part) for unit, part in parts.items() if part)
                rates.append(Rate(int(times), max(1, round(seconds))))
        return tuple(rates) or None

    def _use(
        self,
        path: str,
        node: ast.expr,
        kind: Kind,
        rates: tuple[Rate, ...] | None,
        owner: _Function | ast.ClassDef | None,
        options: dict[str | None, ast.expr] | None = None,
    ) -> Use:
        given = options or {}
        named = _strings(given.get("methods"))
        routes = tuple(
            route
            for route in _routes(owner)
            if not named or route.partition(" ")[0] in {m.upper() for m in named} | {"*"}
        )
        notes = [
            f"its {option}= has no counterpart"
            for option in ("exempt_when", "deduct_when", "on_breach", "cost", "per_method")
            if option in given
        ]
        source = " ".join(ast.unparse(node).split())[:_SHOWN]
        counts_by = _counter(given) or "address"
        return Use(
            path,
            node.lineno,
            self._library(node),
            source,
            kind,
            rates,
            routes,
            counts_by,
            (*notes,),
        )

    def _library(self, node: ast.expr) -> str:
        if "throttle" in ast.unparse(node).lower():
            return "djangorestframework"
        for module, name in _LIBRARIES.items():
            if module in self._libraries:
                return name
        return "unknown"


_LIBRARIES: Final = {
    "slowapi": "slowapi",
    "flask_limiter": "Flask-Limiter",
    "fastapi_limiter": "fastapi-limiter",
    "rest_framework": "djangorestframework",
}


def _last(node: ast.expr | None) -> str | None:
    """Return the last word of a dotted name."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return None


def _fields(node: ast.ClassDef) -> dict[str, ast.expr]:
    """Return the values that the body of a class assigns, by name."""
    fields: dict[str, ast.expr] = {}
    for line in node.body:
        match line:
            case ast.Assign(targets=targets, value=value):
                fields |= {name: value for name in map(_last, targets) if name}
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                fields[name] = value
            case _:
                pass
    return fields


def _default_of(node: ast.expr) -> ast.expr | None:
    """Return the default in ``Field(default=...)``, ``os.getenv(name, ...)`` or ``x or ...``."""
    if isinstance(node, ast.BoolOp):
        return node.values[-1]
    if not isinstance(node, ast.Call):
        return node
    default = next((word.value for word in node.keywords if word.arg == "default"), None)
    positional = node.args if _last(node.func) == "Field" else node.args[1:]
    return default or (positional[-1] if positional else None)


def _constant(node: ast.expr | None) -> object:
    return node.value if isinstance(node, ast.Constant) else None


def _is_limiter(node: ast.expr) -> bool:
    return (_last(node) or "").lower().endswith(("limiter", "limit"))


def _counter(options: dict[str | None, ast.expr]) -> str | None:
    """Return what a limiter counts by; None: its default, the address."""
    node = options.get("key_func")
    if node is None or _last(node) in _BY_ADDRESS:
        return None
    return " ".join(ast.unparse(node).split())[:_SHOWN]


def _strings(node: ast.expr | None) -> list[str]:
    if not isinstance(node, ast.List | ast.Tuple | ast.Set):
        return []
    return [value for value in map(_constant, node.elts) if isinstance(value, str)]


def _duration(node: ast.expr) -> int | None:
    """Return ``Duration.SECOND * 5`` in seconds."""
    match node:
        case ast.Attribute(attr=unit) if unit in _DURATIONS:
            return _DURATIONS[unit]
        case ast.BinOp(left=left, op=ast.Mult(), right=ast.Constant(value=int() as number)):
            span = _duration(left)
            return None if span is None else span * number
        case ast.Constant(value=int() as milliseconds):
            return max(1, milliseconds // 1000)
        case _:
            return None


def _routes(owner: _Function | ast.ClassDef | None) -> Iterator[str]:
    """Yield the rules of the routes that decorators of a function name."""
    for decorator in owner.decorator_list if owner is not None else ():
        method = _last(decorator.func) if isinstance(decorator, ast.Call) else None
        if method not in _METHODS or not isinstance(decorator, ast.Call) or not decorator.args:
            continue
        path = _constant(decorator.args[0])
        if not isinstance(path, str):
            continue
        named = next((k.value for k in decorator.keywords if k.arg == "methods"), None)
        plain = "GET" if method in {"route", "api_route"} else method.upper()
        for verb in _strings(named) or [plain]:
            yield f"{verb.upper()} {path or '/'}"
