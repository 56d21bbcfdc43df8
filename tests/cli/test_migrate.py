"""``lockgate migrate``: the limits of other limiters, and what replaces them."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

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


def test_decorators_of_slowapi_become_costs_on_one_plan(found: Any) -> None:
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
        'rules={"POST /register": Rule(cost=12)}',
        'rules={"GET /models": Rule(cost=1)}',
        'public=["GET /health"]',
    ]
    assert {use["library"] for use in report["uses"]} == {"slowapi"}
    register = report["uses"][1]
    assert (register["file"], register["line"]) == ("app.py", 8)
    assert any("Gate(anonymous=)" in text for text in register["differs"])
    assert any("costs 12 units" in text for text in register["differs"])


def test_a_cost_that_makes_another_window_tighter_is_told(found: Any) -> None:
    report = found(
        app="""
        from slowapi import Limiter
        from slowapi.util import get_remote_address
        limiter = Limiter(key_func=get_remote_address, default_limits=["60/minute", "100/hour"])

        @app.post("/export")
        @limiter.limit("5/minute; 100/hour")
        def export(request): ...

        @app.post("/backup")
        @limiter.limit("1/minute")
        def backup(request): ...
        """
    )
    assert report["plan"] == {"rpm": 60, "rph": 100}
    export, backup = report["uses"][2:]
    assert export["replacement"] == 'rules={"POST /export": Rule(cost=12)}'
    assert "at this cost it may be called 8 times in an hour, which was 100" in export["differs"]
    assert (
        "at this cost it may be called once in an hour, which had no limit of its own"
        in backup["differs"]
    )


def test_a_window_that_only_some_routes_have_is_no_window_of_the_plan(found: Any) -> None:
    report = found(
        code=1,
        app="""
        from flask_limiter import Limiter
        limiter = Limiter(get_remote_address, default_limits=["200 per day", "60 per minute"])

        @app.get("/export")
        @limiter.limit("2/hour;5/day")
        def export(): ...

        @app.get("/search")
        @limiter.limit("10/minute")
        def search(): ...

        @app.get("/report")
        @limiter.limit("3/hour")
        def report(): ...
        """,
    )
    assert report["plan"] == {"rpm": 60, "rpd": 200}
    plan = 'PlanBook([Plan("free", rpm=60, rph=None, rpd=200, concurrent=None)])'
    assert replacements(report) == [
        plan,
        plan,
        'rules={"GET /export": Rule(cost=40)}',
        'rules={"GET /search": Rule(cost=6)}',
        None,
    ]
    assert (report["found"], report["replaced"]) == (5, 3)
    lost = "its limit of an hour has no replacement by a cost: rph= of the plan limits every route"
    assert lost in report["uses"][2]["differs"]
    assert report["uses"][4]["differs"] == [lost]


def test_no_cost_is_larger_than_a_window_of_the_plan(found: Any) -> None:
    report = found(
        code=1,
        app="""
        from slowapi import Limiter
        limiter = Limiter(key_func=f, default_limits=["60/minute", "200/day"])

        @app.get("/export")
        @limiter.limit("1/day")
        def export(request): ...
        """,
    )
    assert report["uses"][2]["replacement"] is None
    assert report["uses"][2]["differs"] == [
        "its limit of a day has no replacement by a cost: it would cost 200 units, and the plan "
        "has rpm=60"
    ]


def test_without_a_default_the_plan_has_the_windows_that_keep_most_limits(found: Any) -> None:
    report = found(
        code=1,
        app="""
        from slowapi import Limiter

        @app.get("/models")
        @limiter.limit("60/minute")
        def models(request): ...

        @app.get("/search")
        @limiter.limit("5/minute")
        def search(request): ...

        @app.get("/export")
        @limiter.limit("2/day")
        def export(request): ...

        @app.get("/report")
        @limiter.limit("10/minute")
        def report(request): ...
        """,
    )
    assert report["plan"] == {"rpm": 60}
    assert [one is None for one in replacements(report)] == [False, False, True, False]


def test_a_default_that_a_larger_limit_of_a_route_widens_says_so(found: Any) -> None:
    report = found(
        app="""
        from slowapi import Limiter
        limiter = Limiter(key_func=get_remote_address, default_limits=["60/minute"])

        @app.get("/models")
        @limiter.limit("100/minute")
        def models(request): ...
        """
    )
    assert report["plan"] == {"rpm": 100}
    assert (
        "a route with this default alone gets 100 in a minute at cost 1, which was 60; at cost 2 "
        "it gets 50" in report["uses"][0]["differs"]
    )


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
        'rules={"POST /alias": Rule(cost=6)}',
        'rules={"GET /alias": Rule(cost=1), "POST /alias": Rule(cost=1)}',
        "requires(cost=2) at each endpoint of the group",
        "requires(cost=1) at each endpoint of the group",
    ]
    assert any("current_user.id" in text for text in report["uses"][0]["differs"])
    assert any("rpm=60" in text for text in report["uses"][3]["differs"])


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
    assert report["plan"] == {"rpm": 24, "rph": 100}
    assert replacements(report) == [
        'rules={"GET /": Rule(cost=1)}',
        "requires(cost=1) at each endpoint of the group",
        'rules={"GET /new": Rule(cost=1)}',
        "requires(cost=1) at each endpoint of the group",
    ]


def test_throttles_of_django_rest_framework(found: Any) -> None:
    report = found(
        code=1,
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
        "requires(cost=1)",
        "requires(cost=1) at each endpoint of the group",
        "requires(cost=2) at each endpoint of the group",
        None,
        "its routes in public=",
    ]
    assert report["plan"] == {"rph": 600, "rpm": 60}


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
        "requires(cost=6) at each endpoint of the group",
        "requires(cost=3) at each endpoint of the group",
        "requires(cost=1) at each endpoint of the group",
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
    assert report["plan"] == {"rpm": 20, "rph": 7, "rpd": 100}
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
        @limiter.limit("100/month")
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
    assert 'Plan("free", rpm=5, rph=None, rpd=None, concurrent=None)' in out
    assert "1 of 1 limits have a replacement." in out
    assert main(["migrate", str(tmp_path / "missing")]) == 2


def test_a_report_of_a_project_without_limits_says_so(tmp_path: Path, capsys: Said) -> None:
    assert main(["migrate", str(tmp_path)]) == 0
    assert capsys.readouterr().out == "No limit was found.\n"


def test_a_report_for_people_counts_what_is_replaced_in_part(tmp_path: Path, capsys: Said) -> None:
    file = tmp_path / "app.py"
    file.write_text(
        'limiter = Limiter(f, default_limits=["60/minute"])\n'
        '@limiter.limit("5/minute;2/hour")\ndef x(request): ...\n'
    )
    assert main(["migrate", str(file)]) == 1
    assert "1 of 2 limits have a replacement, and 1 in part." in capsys.readouterr().out
    assert main(["migrate", str(file), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["replaced"], found["in_part"]) == (1, 1)
    assert [one["whole"] for one in found["uses"]] == [True, False]
