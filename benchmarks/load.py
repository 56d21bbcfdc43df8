"""Load over HTTP: ``wrk`` where it is installed, and else a generator of our own."""

import re
import selectors
import shutil
import socket
import subprocess
from time import perf_counter

from .workload import HEADERS

WRK = shutil.which("wrk")
GENERATOR = "wrk" if WRK else "the built-in load generator (wrk is not installed)"
_LENGTH = re.compile(rb"\r\ncontent-length: (\d+)\r\n", re.IGNORECASE)
_ENDS = b"\r\n\r\n"


def load(port: int, path: str, connections: int, seconds: float) -> float:
    """Successful requests per second, one in flight on each connection.

    Raises:
        RuntimeError: an answer was no success.
    """
    return (_by_wrk if WRK else _by_sockets)(port, path, connections, seconds)


def _by_wrk(port: int, path: str, connections: int, seconds: float) -> float:
    command = [WRK, "-t1", f"-c{connections}", f"-d{max(1, round(seconds))}s"]
    for name, value in HEADERS:
        command += ["-H", f"{name.decode()}: {value.decode()}"]
    url = f"http://127.0.0.1:{port}{path}"
    told = subprocess.run([*command, url], check=True, capture_output=True, text=True).stdout
    if "Non-2xx" in told or "Socket errors" in told:
        raise RuntimeError(told)
    return float(re.search(r"Requests/sec: +([\d.]+)", told)[1])


def _by_sockets(port: int, path: str, connections: int, seconds: float) -> float:
    lines = [f"GET {path} HTTP/1.1".encode(), *(b": ".join(header) for header in HEADERS)]
    request = b"\r\n".join(lines) + _ENDS
    selector = selectors.DefaultSelector()
    sockets = [socket.create_connection(("127.0.0.1", port)) for _ in range(connections)]
    done = 0
    try:
        for connection in sockets:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            selector.register(connection, selectors.EVENT_READ, bytearray())
            connection.sendall(request)
        started = perf_counter()
        while perf_counter() - started < seconds:
            for ready, _ in selector.select(1):
                received = ready.data
                received += ready.fileobj.recv(65_536)
                if _whole(received):
                    received.clear()
                    done += 1
                    ready.fileobj.sendall(request)
        return done / (perf_counter() - started)
    finally:
        selector.close()
        for connection in sockets:
            connection.close()


def _whole(received: bytearray) -> bool:
    """Whether a response has come whole; it must be a success."""
    end = received.find(_ENDS)
    if end < 0:
        return False
    if not received.startswith(b"HTTP/1.1 200"):
        raise RuntimeError(received.decode(errors="replace"))
    length = int(_LENGTH.search(received, 0, end + 2)[1])
    return len(received) >= end + len(_ENDS) + length
