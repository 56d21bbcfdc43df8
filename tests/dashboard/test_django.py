"""The dashboard in the URL configuration of a Django project."""

from __future__ import annotations

import pytest
from django.urls import reverse

from lockgate.dashboard.django_urls import urls
from lockgate.errors import ConfigurationError

from .consoles import AT, Console, Place, in_django_asgi_urls, in_django_urls, make_gate


@pytest.mark.parametrize("place", [in_django_urls, in_django_asgi_urls])
def test_the_pages_pass_the_middleware_of_the_project(place: Place) -> None:
    with place(name="Acme") as person:
        assert reverse("lockgate-dashboard", args=["keys"]) == f"{AT}/keys"
        page = person.get("/keys")
        assert page.answer.headers["x-frame-options"] == "DENY"
        assert page.answer.headers["referrer-policy"] == "same-origin"
        assert page.answer.headers.get_list("content-type") == ["text/html; charset=utf-8"]
        for odd in ("/%ff", "/keys/%ff", "//", "/%2e%2e/models", "/K%C3%BCche"):
            assert person.client.get(AT + odd).status_code in {400, 401, 404}, odd


def test_a_gate_in_the_place_of_its_dashboard_is_found_when_the_urls_are_made() -> None:
    with pytest.raises(ConfigurationError, match=r"wsgi_dashboard\(gate\)"):
        urls(make_gate("https://example.com"))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - a mistake


def test_a_body_that_a_middleware_has_read_reaches_the_form(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from . import consoles

    layers = ["tests.dashboard.test_django.read_first", *consoles.DJANGO["MIDDLEWARE"]]
    monkeypatch.setitem(consoles.DJANGO, "MIDDLEWARE", layers)
    with in_django_urls() as person:
        _created(person)


def read_first(get_response):  # type: ignore[no-untyped-def]
    def layer(request):  # type: ignore[no-untyped-def]
        assert request.body is not None
        return get_response(request)

    return layer


def _created(person: Console) -> None:
    assert person.status_with(person.create("after a middleware")) == 200
