"""The dashboard: pages on which people create, rotate and revoke the keys of their organization.

app.mount("/settings", dashboard(gate, name="Acme"))  # Starlette, FastAPI

app = mount(app, "/settings", dashboard(gate))  # any other ASGI application: Litestar, Quart

app.wsgi_app = wsgi_mount(app.wsgi_app, "/settings", wsgi_dashboard(gate))  # Flask
"""

from ..core.extras import extra
from .messages import MESSAGES
from .mounting import mount, wsgi_mount
from .options import Options

with extra("dashboard", "lockgate[dashboard]", "jinja2"):
    from .application import dashboard, wsgi_dashboard

__all__ = ["MESSAGES", "Options", "dashboard", "mount", "wsgi_dashboard", "wsgi_mount"]
