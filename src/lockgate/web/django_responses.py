"""Answers of WSGI applications as responses of Django."""

from io import BytesIO
from typing import Any
from wsgiref.types import WSGIApplication

from django.http import HttpRequest, HttpResponse


def response_of(
    application: WSGIApplication, environ: dict[str, Any], request: HttpRequest
) -> HttpResponse:
    """Call a WSGI application below a view, and return its answer.

    Args:
        application: answers with one value for each header.
        environ: as the application is to see it.
        request: the request of the view, whose body a middleware may have read.
    """
    # Unread, the body stays a stream: the application has its own limit and its own error for it.
    if hasattr(request, "_body"):
        body = request.body
        environ = {**environ, "wsgi.input": BytesIO(body), "CONTENT_LENGTH": str(len(body))}
    response = HttpResponse()
    del response["Content-Type"]

    def start(status: str, headers: list[tuple[str, str]], _: object = None, /) -> Any:
        response.status_code = int(status[:3])
        for name, value in headers:
            response[name] = value

    response.content = b"".join(application(environ, start))
    return response
