"""``lockgate migrate``: the limits of other limiters, and what replaces them."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from lockgate import Limit, Plan, PlanBook, Rule
from lockgate.cli import main
from lockgate.cli.limit_rates import Rate, read_rates

Said = pytest.CaptureFixture[str]


@pytest.fixture
def found(tmp_path: Path, capsys: Said) -> Any:
    """A function that migrates files, and returns the report."""

    def find(code: int = 0, **files: str) -> Any:
        for name, text in files.items():
            (tmp_path / f"{name}.py").write_text(dedent(text))
        capsys.readouterr()
        assert main(["migrate", str(tmp_path), "--json"]) == code
        return json.loads(capsys.readouterr().out)

    return find


def replacements(report: Any) -> list[str | None]:
    return [use["replacement"] for use in report["uses"]]


@pytest.mark.parametrize(
    ("text", "rates"),
    [
        ("5/minute", [(5, 60)]),
        ("5 per minute", [(5, 60)]),
        ("100/day;50/hour;5/minute", [(100, 86_400), (50, 3600), (5, 60)]),
        ("12000 per 5 minutes, 1/second", [(12_000, 300), (1, 1)]),
        ("10/m", [(10, 60)]),
        ("10/hour", [(10, 3600)]),
        ("1000/d", [(1000, 86_400)]),
        ("1 per 1 month", [(1, 30 * 86_400)]),
        ("5/15minutes", [(5, 900)]),
        ("often", None),
        ("5/fortnight", None),
        ("", None),
    ],
)
def test_rates_are_read_as_other_limiters_write_them(text: str, rates: Any) -> None:
    assert read_rates(text) == (None if rates is None else tuple(Rate(*rate) for rate in rates))


def test_decorators_of_slowapi_become_named_limits_beside_one_plan(found: Any) -> None:
    report = found(
        app="""
        from slowapi import Limiter
        from slowapi.util import get_remote_address

        limiter = Limiter(key_func=get_remote_address, default_limits=["60/minute"])

        @router.post("/register", status_code=201)
        @limiter.limit("5/minute")
        async def register(request: Request): ...

        @router.get("/models")
        @limiter.limit("60/minute")
        async def models(request: Request): ...

        @router.get("/health")
        @limiter.exempt
        async def health(request: Request): ...
        """
    )
    assert report["plan"] == {"rpm": 60}
    assert replacements(report) == [
        'PlanBook([Plan("free", rpm=60, rph=None, rpd=None, concurrent=None)])',
        'rules={"POST /register": Rule(limits=[Limit("register", "5/minute", by="address")])}',
        'rules={"GET /models": Rule(limits=[Limit("models", "60/minute", by="address")])}',
        'public=["GET /health"]',
    ]
    assert {use["library"] for use in report["uses"]} == {"slowapi"}
    register = report["uses"][1]
    assert (register["file"], register["line"]) == ("app.py", 8)
    assert register["differs"] == []
    assert any("Gate(anonymous=)" in text for text in report["uses"][0]["differs"])


def test_each_rate_of_a_route_keeps_its_number_and_its_span(found: Any) -> None:
    report = found(
        app="""
        from flask_limiter import Limiter
        limiter = Limiter(get_remote_address, default_limits=["200 per day", "60 per minute"])

        @app.get("/export")
        @limiter.limit("2/hour;5/day")
        def export(): ...

        @app.get("/search/<word>")
        @limiter.limit("3 per 5 seconds, 20 per 90 minutes")
        def search(word): ...

        @app.post("/export")
        @limiter.limit("100/month")
        def make_export(): ...
        """,
    )
    assert report["plan"] == {"rpm": 60, "rpd": 200}
    plan = 'PlanBook([Plan("free", rpm=60, rph=None, rpd=200, concurrent=None)])'
    assert replacements(report) == [
        plan,
        plan,
        'rules={"GET /export": Rule(limits=[Limit("export", "2/hour;5/day", by="address")])}',
        'rules={"GET /search/<word>": Rule(limits=[Limit("search", "3/5 seconds;20/90 minutes", '
        'by="address")])}',
        'rules={"POST /export": Rule(limits=[Limit("export-2", "100/month", by="address")])}',
    ]
    assert (report["found"], report["replaced"]) == (5, 5)


def test_a_limit_that_is_proposed_can_be_made(found: Any) -> None:
    report = found(
        app="""
        from slowapi import Limiter
        limiter = Limiter(key_func=f, default_limits=["60/minute", "1000/month"])

        @app.get("/{a}/{b:path}")
        @limiter.limit("2/5 seconds;7/year")
        def any(request): ...
        """,
    )
    names = {"PlanBook": PlanBook, "Plan": Plan, "Rule": Rule, "Limit": Limit}
    _, monthly, route = replacements(report)
    assert monthly is not None
    assert route is not None
    book = eval(monthly, names)
    assert book.default.limits == (Limit("default", "1000/month"),)
    rules = eval(route.removeprefix("rules="), names)
    (rule,) = rules.values()
    assert rule.limits == (Limit("all", "2/5 seconds;7/year", by="address"),)


def test_limits_of_flask_limiter_by_method_user_and_blueprint(found: Any) -> None:
    report = found(
        app="""
        from flask_limiter import Limiter

        @bp.route("/alias", methods=["GET", "POST"])
        @limiter.limit("10/minute", methods=["POST"], key_func=lambda: current_user.id)
        @limiter.limit("100/hour")
        def alias(): ...

        limiter.limit("60/hour")(bp)

        class View(MethodView):
            decorators = [limiter.limit("1/second")]
        """
    )
    assert replacements(report) == [
        'rules={"POST /alias": Rule(limits=[Limit("alias", "10/minute")])}',
        'rules={"GET /alias": Rule(limits=[Limit("alias-2", "100/hour", by="address")]), '
        '"POST /alias": Rule(limits=[Limit("alias-2", "100/hour", by="address")])}',
        'requires(limits=[Limit("app", "60/hour", by="address")]) at each endpoint of the group',
        'requires(limits=[Limit("app-2", "1/second", by="address")]) at each endpoint of the group',
    ]
    assert any("current_user.id" in text for text in report["uses"][0]["differs"])
    assert any("share one count" in text for text in report["uses"][3]["differs"])


def test_dependencies_of_fastapi_limiter(found: Any) -> None:
    report = found(
        app="""
        from fastapi_limiter.depends import RateLimiter, WebSocketRateLimiter

        @app.get("/", dependencies=[Depends(RateLimiter(times=2, seconds=5))])
        async def index(): ...

        fast = Depends(RateLimiter(limiter=Limiter(Rate(24, Duration.SECOND * 60))))

        @app.get("/new", dependencies=[Depends(RateLimiter(Rate(24, Duration.MINUTE)))])
        async def new(): ...

        router = APIRouter(dependencies=[Depends(RateLimiter(times=100, hours=1))])
        """
    )
    assert report["plan"] == {}
    assert replacements(report) == [
        'rules={"GET /": Rule(limits=[Limit("all", "2/5 seconds", by="address")])}',
        'requires(limits=[Limit("app", "24/minute", by="address")]) at each endpoint of the group',
        'rules={"GET /new": Rule(limits=[Limit("new", "24/minute", by="address")])}',
        'requires(limits=[Limit("app-2", "100/hour", by="address")]) at each endpoint of the group',
    ]


def test_throttles_of_django_rest_framework(found: Any) -> None:
    report = found(
        settings="""
        REST_FRAMEWORK = {
            "DEFAULT_THROTTLE_CLASSES": ["rest_framework.throttling.AnonRateThrottle"],
            "DEFAULT_THROTTLE_RATES": {"anon": "20/m", "user": "600/hour", "burst": "60/min",
                                       "exports": "6/hour"},
        }
        """,
        views="""
        from rest_framework.throttling import UserRateThrottle

        class Burst(UserRateThrottle):
            scope = "burst"

        class Fixed(UserRateThrottle):
            rate = "30/min"

        @throttle_classes([UserRateThrottle])
        def one(request): ...

        class Two(APIView):
            throttle_classes = [Burst, Fixed]

        class Three(APIView):
            throttle_scope = "exports"

        @throttle_classes([])
        def four(request): ...
        """,
    )
    anonymous = 'Plan("anonymous", rpm=20, rph=None, rpd=None, concurrent=None)'
    assert replacements(report) == [
        f"Gate(anonymous={anonymous})",
        'requires(limits=[Limit("views", "600/hour")])',
        'requires(limits=[Limit("views-2", "60/minute")]) at each endpoint of the group',
        'requires(limits=[Limit("views-3", "30/minute")]) at each endpoint of the group',
        'requires(limits=[Limit("views-4", "6/hour")]) at each endpoint of the group',
        "its routes in public=",
    ]


def test_throttles_are_followed_through_the_base_classes_of_a_project(found: Any) -> None:
    report = found(
        settings="""
        REST_FRAMEWORK = {"DEFAULT_THROTTLE_RATES": {"burst": "60/min", "slow": "20/min"}}
        """,
        bases="""
        from rest_framework.throttling import AnonRateThrottle, UserRateThrottle

        class Base(UserRateThrottle):
            scope = "burst"

        class Visitors(AnonRateThrottle): ...
        """,
        throttles="""
        class Fixed(Mixin, Base):
            rate: str = "10/min"

        class Slow(Base):
            scope = "slow"

        class Guests(Visitors):
            rate = "5/min"
        """,
        models="""
        class Base(DeclarativeBase):
            rate = 3
        """,
        views="""
        class One(APIView):
            throttle_classes = [Fixed, Slow, Base, Guests]
        """,
    )
    assert replacements(report) == [
        'requires(limits=[Limit("views", "10/minute")]) at each endpoint of the group',
        'requires(limits=[Limit("views-2", "20/minute")]) at each endpoint of the group',
        'requires(limits=[Limit("views-3", "60/minute")]) at each endpoint of the group',
        'Gate(anonymous=Plan("anonymous", rpm=5, rph=None, rpd=None, concurrent=None))',
    ]


def test_a_rate_is_found_in_any_file(found: Any) -> None:
    report = found(
        config="""
        LOGIN: str = "5/minute"
        NUMBER = 7
        ALIAS = os.environ.get("ALIAS") or "100/day"

        class Settings(BaseSettings):
            search: str = Field(default="20/minute", description="x")
            upload = os.getenv("UPLOAD", "2/hour")
        """,
        routes="""
        from slowapi import Limiter

        @app.post("/login")
        @limiter.limit(config.LOGIN)
        @limiter.limit(settings.search)
        @limiter.limit(settings.upload)
        @limiter.limit(ALIAS)
        @limiter.limit(f"{NUMBER}/hour")
        async def login(request: Request): ...
        """,
    )
    assert report["replaced"] == 5


def test_limits_without_a_replacement_are_told_with_the_reason(found: Any) -> None:
    report = found(
        code=1,
        app="""
        from slowapi import Limiter

        @app.post("/a")
        @limiter.limit(rate_of_today)
        def a(request): ...

        @app.post("/b")
        @limiter.limit("100/2 months")
        def b(request): ...

        @app.post("/c")
        @limiter.limit("5/minute", key_func=lambda: request.form["username"])
        def c(request): ...
        """,
    )
    reasons = [use["differs"][0] for use in report["uses"]]
    assert replacements(report) == [None, None, None]
    assert "run time" in reasons[0]
    assert "longer than a day" in reasons[1]
    assert "username" in reasons[2]


def test_files_that_are_not_python_and_other_code_are_passed_over(found: Any) -> None:
    report = found(
        broken="def (",
        other="""
        rows = query.limit("5")
        delimiter = text.limit(3)
        bucket = RateLimiter(times=5)
        """,
    )
    assert (report["found"], report["unreadable"]) == (0, ["broken.py"])


def test_a_report_for_people_names_each_place_and_the_plan(tmp_path: Path, capsys: Said) -> None:
    file = tmp_path / "app.py"
    file.write_text('@app.get("/x")\n@limiter.limit("5/minute")\ndef x(request): ...\n')
    assert main(["migrate", str(file)]) == 0
    out = capsys.readouterr().out
    assert "app.py:2: unknown: limiter.limit" in out
    assert 'Limit("x", "5/minute", by="address")' in out
    assert "No default limit was found" in out
    assert "1 of 1 limits have a replacement." in out
    assert main(["migrate", str(tmp_path / "missing")]) == 2


def test_a_report_of_a_project_without_limits_says_so(tmp_path: Path, capsys: Said) -> None:
    assert main(["migrate", str(tmp_path)]) == 0
    assert capsys.readouterr().out == "No limit was found.\n"
