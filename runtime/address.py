"""Addresses of a runtime: ``ipc:///path`` and ``tcp://host:port``, with CURVE keys where bytes leave the machine."""

from __future__ import annotations

import ipaddress
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import zmq

from .errors import BackendError, InvalidValue

#: A Unix socket's path may be this long, in bytes (Linux allows 107).
MAX_PATH_BYTES = 100
KEY_VARIABLE = "PLAIT_CURVE_KEY"


@dataclass(frozen=True)
class Address:
    """``endpoint`` is what ZeroMQ is given. ``key``: value of ``?curve=``, or of $PLAIT_CURVE_KEY; "" for none."""

    endpoint: str
    path: Path | None  # of ipc
    loopback: bool  # never leaves the machine
    key: str


def parse(address: str) -> Address:
    """Raises InvalidValue naming what is wrong with it."""
    try:
        parts = urlsplit(address)
    except (AttributeError, ValueError):  # not a str; an unclosed bracket
        raise InvalidValue(f"address {address!r} must read ipc:///path or tcp://host:port", "address") from None
    options = parse_qs(parts.query, keep_blank_values=True)
    unknown = sorted(set(options) - {"curve"})
    if unknown:
        raise InvalidValue(f"address {address!r}: unknown option {unknown[0]!r} (known: curve)", "address")
    key = options.get("curve", [os.environ.get(KEY_VARIABLE, "")])[-1]
    if parts.scheme == "ipc":
        name = parts.netloc + parts.path
        if not name:
            raise InvalidValue(f"address {address!r} has no path; write ipc:///path/to/socket", "address")
        path = Path(name)
        if len(os.fsencode(path)) > MAX_PATH_BYTES:
            raise InvalidValue(
                f"the socket path {name} has {len(os.fsencode(path))} bytes, at most {MAX_PATH_BYTES} are possible: "
                "choose a shorter folder",
                "address",
            )
        return Address(f"ipc://{name}", path, True, "")
    if parts.scheme != "tcp":
        raise InvalidValue(f"address {address!r} must begin with ipc:// or tcp://", "address")
    host, colon, port = parts.netloc.rpartition(":")
    if not colon or not host or not port.isdigit() or not 0 <= int(port) < 65536:
        raise InvalidValue(f"address {address!r} must read tcp://host:port", "address")
    return Address(f"tcp://{host}:{port}", None, is_loopback(host), key)


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def bind(socket: zmq.Socket[bytes], address: Address) -> str:
    """Bind a server's socket; returns the endpoint (with the port chosen, for port 0).

    Makes the folder of an ipc path with mode 0700, and refuses one that other users may write to. tcp beyond this
    machine needs ``?curve=FILE``: the server's key pair, made on first use; whoever has its public key
    (``FILE.pub``) may connect. Raises BackendError or InvalidValue.
    """
    if address.path is not None:
        _prepare(address.path)
    elif address.key:
        _serve_curve(socket, Path(address.key).expanduser())
    elif not address.loopback:
        raise InvalidValue(
            f"{address.endpoint} can be reached from other machines: add ?curve=FILE (a key pair, made on first use) "
            "and give clients the key in FILE.pub, or bind 127.0.0.1",
            "address",
        )
    try:
        socket.bind(address.endpoint)
    except zmq.ZMQError as error:
        raise BackendError(f"cannot listen at {address.endpoint}: {error}") from error
    if address.path is not None:
        address.path.chmod(0o600)
    last = socket.getsockopt(zmq.LAST_ENDPOINT)
    assert isinstance(last, bytes)
    return last.rstrip(b"\0").decode()


def connect(socket: zmq.Socket[bytes], address: Address) -> None:
    """Connect a client's socket. ``?curve=KEY`` is the server's public key, or the file that holds it."""
    if address.key:
        key = address.key
        file = Path(key).expanduser()
        if file.is_file() or len(key) != 40:  # a key may look like a path
            try:
                key = file.read_text("ascii").strip()
            except (OSError, ValueError) as error:
                raise InvalidValue(
                    f"curve: neither a public key of 40 characters nor its file ({error})", "address"
                ) from error
        public, secret = zmq.curve_keypair()
        try:
            socket.curve_serverkey = key.encode("ascii")
            socket.curve_publickey, socket.curve_secretkey = public, secret
        except (zmq.ZMQError, ValueError) as error:
            raise InvalidValue(f"curve: {key!r} is not a public key", "address") from error
    elif not address.loopback:
        raise InvalidValue(
            f"{address.endpoint} is another machine: add ?curve=KEY (the server's public key, from its FILE.pub) "
            f"or set ${KEY_VARIABLE}",
            "address",
        )
    socket.connect(address.endpoint)


def _prepare(path: Path) -> None:
    import socket as sockets

    try:
        if not path.parent.exists():
            path.parent.mkdir(mode=0o700, parents=True)
        mode = path.parent.stat().st_mode
    except OSError as error:
        raise BackendError(f"cannot make the folder of the socket {path}: {error}") from error
    if mode & (stat.S_IWGRP | stat.S_IWOTH) and not mode & stat.S_ISVTX:
        raise InvalidValue(f"the folder {path.parent} is writable by others: choose one that is yours alone", "address")
    if path.exists():
        with sockets.socket(sockets.AF_UNIX) as probe:
            try:
                probe.connect(str(path))
            except OSError:
                return  # left behind by a server that was killed; bind replaces it
        raise BackendError(f"another server listens at {path} already")


def _serve_curve(socket: zmq.Socket[bytes], path: Path) -> None:
    try:
        if not path.exists():
            public, secret = zmq.curve_keypair()
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(secret + b"\n")
            path.with_name(path.name + ".pub").write_bytes(public + b"\n")
        if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise InvalidValue(f"the key file {path} may be read by others: chmod 600 it", "address")
        secret = path.read_bytes().strip()
        public = zmq.curve_public(secret)
        socket.curve_secretkey, socket.curve_publickey = secret, public
        socket.curve_server = True
    except (OSError, zmq.ZMQError, ValueError) as error:
        if isinstance(error, InvalidValue):
            raise
        raise InvalidValue(f"curve: {path} cannot be used as a key pair: {error}", "address") from error
