"""The dashboard in the URL configuration of a Django project."""

from __future__ import annotations

import pytest
from django.urls import reverse

from lockgate.dashboard.django_urls import urls
from lockgate.errors import ConfigurationError

from .consoles import ADA, AT, Console, Place, in_django_asgi_urls, in_django_urls, make_gate


@pytest.mark.parametrize("place", [in_django_urls, in_django_asgi_urls])
def test_the_pages_pass_the_middleware_of_the_project(place: Place) -> None:
    with place(name="Acme") as person:
        assert reverse("lockgate-dashboard", args=["keys"]) == f"{AT}/keys"
        person.create("in urlpatterns")
        page = person.get("/keys")
        page.sees("in urlpatterns", "Acme")
        assert page.answer.headers["x-frame-options"] == "DENY"
        assert page.answer.headers["referrer-policy"] == "same-origin"
        assert page.answer.headers.get_list("content-type") == ["text/html; charset=utf-8"]
        assert person.client.get("/settings/", follow_redirects=True).url.path == f"{AT}/keys"
        assert person.client.head(f"{AT}/keys").text == ""
        for odd in ("/%ff", "/keys/%ff", "//", "/%2e%2e/models", "/K%C3%BCche"):
            assert person.client.get(AT + odd).status_code in {400, 401, 404}, odd


@pytest.mark.parametrize("place", [in_django_urls, in_django_asgi_urls])
def test_no_view_of_the_project_becomes_public_beside_the_pages(place: Place) -> None:
    with place() as person:
        key = person.create()
        assert person.status_with(key) == 200
        assert person.client.get("/models").status_code == 401
        assert person.client.get("/settingsx").status_code == 401
        person.sign_in(None)
        person.get("/keys", 401).sees("Sign in")
        person.sign_in(ADA)
        person.get("/keys")


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
