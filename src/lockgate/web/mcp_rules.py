"""The rules of an MCP server: by ``"tools/call NAME"``, closed by default (D49, D31)."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import reduce
from typing import Any, Final, NamedTuple

from ..core.access_rule import PUBLIC, Rule, both, bound
from ..core.limits import check_names
from ..core.scopes import Catalogue
from ..errors import ConfigurationError
from .audit import Audit, AuditedRoute, unaffordable
from .guard import Guard
from .mcp_calls import NAMED_BY
from .requirements import check_decorators, declaration

ANY_NAME: Final = "*"
READ: Final = "resources/read"


class Component(NamedTuple):
    """A tool, a resource or a prompt of a server."""

    method: str
    """The method that runs it: ``tools/call``, ``resources/read`` or ``prompts/get``."""
    name: str
    """Its name; the URI of a resource, or the template of many."""
    function: Callable[..., Any] | None = None
    """The function that it runs; None: not known."""
    matches: Callable[[str], object] | None = None
    """Reads a URI by a template, and returns None if it does not fit; None: it is no template."""

    @property
    def key(self) -> tuple[str, str]:
        """The method and the name."""
        return self.method, self.name

    def read(self, uri: str) -> str | None:
        """Return the parameters of a URI that a template fits, as a text; None: it does not fit.

        URIs of different spelling may have the same parameters: the server decodes them.
        """
        assert self.matches is not None, "only templates are asked"
        try:
            found = self.matches(uri)
        except Exception:  # It fits, and the server refuses a parameter of it.
            return ""
        return None if found is None else repr(found)


class _Template(NamedTuple):
    """A template of a server, and the rules for its URIs."""

    component: Component
    rule: Rule
    single: dict[str, Rule]
    """The rules that name one URI, by its parameters."""

    def match(self, uri: str) -> Rule | None:
        """Return the rule for a URI; None: it does not fit the template."""
        read = self.component.read(uri)
        return None if read is None else self.single.get(read, self.rule)


class CallRules:
    """All rules of an MCP server; for a guard, what a :class:`RuleBook` is for routes.

    Args:
        rules: by ``"tools/call NAME"``, ``"prompts/get NAME"``, ``"resources/read URI"``, where the
            URI may be a template of the server, or by another method alone, such as
            ``"tools/list"``. With the name ``*`` a rule is for each call of the method that no
            other rule names.
        catalogue: the scopes that exist.
        default: the rule of calls that no rule names.

    Raises:
        ConfigurationError: a key is none of these, a scope does not exist, or two different limits
            have one name.
    """

    by_host: Final = False
    """No rule is for one host only."""

    def __init__(
        self, rules: Mapping[str, Rule | str], catalogue: Catalogue, default: Rule
    ) -> None:
        self._catalogue: Final = catalogue
        self._default: Final = bound(default)
        self._given: Final = {_key(key): self._checked(key, rule) for key, rule in rules.items()}
        self._rules: dict[tuple[str, str], Rule] = {}
        self._keys: dict[int, str] = {}
        self._templates: list[_Template] = []
        self._merged: dict[tuple[int, ...], Rule] = {}
        self.components: list[Component] = []
        """The components that the server is known to have."""
        self.known: set[tuple[str, str]] = set()
        """The method and the name of each of them."""
        self.learn(())

    def __iter__(self) -> Iterator[tuple[str, str, Rule]]:
        """Yield every rule: the method, the name (``""``: the method has none), the rule."""
        for (method, name), rule in self._rules.items():
            yield method, name, rule

    def route_of(self, rule: Rule) -> str | None:
        """Return a rule of :meth:`match` as it is named; None: it is the default, or merged."""
        return self._keys.get(id(rule))

    def match(self, method: str, name: str, *_: object) -> Rule:
        """Return the rule for a call of a method, with the name or the URI of what is called."""
        rule = self._rules.get((method, name))
        if rule is not None:
            return rule
        if self._templates and method == READ:
            rule = self._of_templates(name)
            if rule is not None:
                return rule
        return self._rules.get((method, ANY_NAME), self._default)

    def learn(self, components: Iterable[Component]) -> None:
        """Learn what the server has, and what its functions declare with ``requires``.

        Raises:
            ConfigurationError: a function requires a scope that does not exist, a rule makes
                public what requires a key, or a function is served without its decorator.
        """
        self.components = list(components)
        check_decorators((" ".join(c.key), c.function) for c in self.components)
        found = {key: bound(rule) for key, rule in self._given.items()}
        for component in self.components:
            rule = declaration(component.function).rule
            if rule is not None:
                self._add(found, component.key, rule)
        default = found.get((READ, ANY_NAME), self._default)
        templates = [
            _Template(component, found.get(component.key, default), {})
            for component in self.components
            if component.matches is not None
        ]
        self.known = {component.key for component in self.components}
        for key in found.keys() - self.known:
            if key[0] == READ:
                self._add_to_templates(found, key, templates)
        self._templates, self._merged = templates, {}
        self._keys = {id(rule): " ".join(filter(None, key)) for key, rule in found.items()}
        self._rules = found
        check_names(limit for rule in found.values() for limit in rule.limits)

    def names(self, component: Component) -> bool:
        """Return whether a rule is for a component."""
        return component.key in self._rules or (component.method, ANY_NAME) in self._rules

    def of(self, component: Component) -> Rule:
        """Return the rule of a component."""
        any_name = self._rules.get((component.method, ANY_NAME), self._default)
        return self._rules.get(component.key, any_name)

    def fits(self, uri: str) -> bool:
        """Return whether a template of the server matches a URI."""
        return self._of_templates(uri) is not None

    @property
    def has_public(self) -> bool:
        """Whether some calls need no key."""
        return any(rule.public for rule in self._rules.values())

    def _add(self, found: dict[tuple[str, str], Rule], key: tuple[str, str], rule: Rule) -> None:
        """Add what a function declares to the rule that is given for it."""
        shown = " ".join(key)
        self._checked(shown, rule)
        standing = found.get(key)
        if standing is not None and standing.public:
            raise ConfigurationError(
                f"The rule {shown!r} is public, and its function requires {rule!r}: take one out."
            )
        found[key] = bound(rule) if standing is None else bound(both(standing, rule))

    def _add_to_templates(
        self, found: dict[tuple[str, str], Rule], key: tuple[str, str], templates: list[_Template]
    ) -> None:
        """Have a URI that a rule names keep the rules of the templates that fit it.

        The function of the template reads it, whichever way it is spelled.
        """
        fitting = [(t, read) for t in templates if (read := t.component.read(key[1])) is not None]
        if fitting:
            found[key] = bound(_strictest([found[key], *(t.rule for t, _ in fitting)]))
        for template, read in fitting:
            template.single[read] = _strictest([found[key], template.single.get(read, found[key])])

    def _of_templates(self, uri: str) -> Rule | None:
        """Return the rule for a URI that templates match; None: none does."""
        matched = (template.match(uri) for template in self._templates)
        found = [rule for rule in matched if rule is not None]
        if len(found) < 2:
            return found[0] if found else None
        key = tuple(map(id, found))
        if key not in self._merged:
            self._merged[key] = _strictest(found)
        return self._merged[key]

    def _checked(self, key: str, rule: Rule | str) -> Rule:
        made = Rule(rule, accepts=self._default.accepts) if isinstance(rule, str) else rule
        if made.requires is not None:
            try:
                self._catalogue.check_requirement(made.requires)
            except ConfigurationError as problem:
                raise ConfigurationError(f"{key}: {problem}") from None
        return made


def audit_calls(guard: Guard, book: CallRules) -> Audit:
    """Compare what a server has with the rules for it."""
    components = sorted(book.components, key=lambda component: component.key)
    audited = [AuditedRoute(*c.key, book.of(c), book.names(c)) for c in components]
    problems = [
        f"No rule names {r.method} {r.path}: any valid key is admitted, whatever its scopes."
        for r in audited
        if not r.named
    ]
    problems += [
        f"The rule '{method} {name}' names nothing that the server has."
        for method, name, _ in book
        if components and name not in {"", ANY_NAME} and (method, name) not in book.known
        if method != READ or not book.fits(name)
    ]
    return Audit(audited, [*problems, *unaffordable(guard)])


def _key(key: str) -> tuple[str, str]:
    method, _, name = key.partition(" ")
    if not method or (method in NAMED_BY) != bool(name):
        raise ConfigurationError(
            f"The rule {key!r} names no call: write 'tools/call NAME', 'prompts/get NAME', "
            "'resources/read URI', or another method alone, such as 'tools/list'; routes beside "
            "MCP are named 'GET /health'."
        )
    return method, name


def _strictest(rules: list[Rule]) -> Rule:
    guarded = [rule for rule in rules if not rule.public]
    return reduce(both, guarded) if guarded else PUBLIC
