"""A TCP proxy that goes wrong on purpose."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import Self


class Proxy:
    """Passes bytes between clients and a server until told to cut.

    With ``cut_at`` set, the next bytes of a client that contain it are passed on, the server's
    answer is awaited and thrown away, and the connection is closed: the server did it, and the
    client will never know.

    While ``swallows`` is set, connections stand and whatever is sent on them is lost: on both ways,
    and for connections opened in the meantime. After ``forget()`` that holds for the connections of
    before, as behind a NAT that has forgotten them.
    """

    def __init__(self, port: int) -> None:
        self._target = ("127.0.0.1", port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.cut_at: bytes | None = None
        self.cuts = 0
        self._sockets: set[socket.socket] = set()
        self.swallows = False
        self._forgotten: set[socket.socket] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(self._target)
            except OSError:  # Nobody is there, and the client learns as much.
                client.close()
                continue
            threading.Thread(target=self._pass, args=(client, server), daemon=True).start()

    def welcome(self, client: socket.socket) -> socket.socket:
        """The connection of a client, once it may be spoken on."""
        return client

    def _pass(self, client: socket.socket, server: socket.socket) -> None:
        """Pass bytes both ways until either side hangs up."""
        try:
            client = self.welcome(client)
        except OSError:
            client.close()
            server.close()
            return
        self._sockets |= {client, server}
        cut = threading.Event()
        down = threading.Thread(target=self._pump, args=(server, client, cut, False), daemon=True)
        down.start()
        self._pump(client, server, cut, True)
        down.join()
        self._sockets -= {client, server}
        client.close()
        server.close()

    def _pump(
        self, source: socket.socket, target: socket.socket, cut: threading.Event, upward: bool
    ) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if upward and self.cut_at is not None and self.cut_at in data:
                    self.cut_at = None
                    self.cuts += 1
                    cut.set()
                elif not upward and cut.is_set():
                    break
                if not self.swallows and source not in self._forgotten:
                    target.sendall(data)
        self._hang_up(source)
        self._hang_up(target)

    @staticmethod
    def _hang_up(peer: socket.socket) -> None:
        with suppress(OSError):  # The other side was quicker.
            peer.shutdown(socket.SHUT_RDWR)

    def forget(self) -> None:
        """Lose whatever is sent on the present connections from now on, without a word."""
        self._forgotten |= self._sockets

    def drop_all(self) -> None:
        """Cut every connection there is."""
        for peer in tuple(self._sockets):
            self._hang_up(peer)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        self.drop_all()
        for peer in tuple(self._sockets):
            peer.close()
