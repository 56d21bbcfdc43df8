"""A Starlette service with a WebSocket, for the servers that speak them."""

from starlette.applications import Starlette
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket

from lockgate import PUBLIC, Gate, run
from lockgate.asgi import GateMiddleware


async def echo(socket: WebSocket) -> None:
    await socket.accept()
    await socket.send_text(socket.state.principal.organization)
    await socket.close()


gate = Gate("memory://", brand="acme")
routes = [WebSocketRoute("/echo", echo), Route("/health", lambda _: None)]
app = GateMiddleware(
    Starlette(routes=routes), gate, {"GET /echo": "jobs:read", "GET /health": PUBLIC}
)

print("key:    ", run(gate.keys.create("org_1", name="first key", scopes=["jobs:*"])).text)
print("narrow: ", run(gate.keys.create("org_1", name="other key", scopes=["models:*"])).text)
