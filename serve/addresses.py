"""Addresses and certificates of an endpoint: tried before a model is loaded, which takes long."""

from __future__ import annotations

import errno
import socket
import ssl

from edgeserve.errors import ServeError
from edgeserve.serve.options import Options

__all__ = ["bind", "check_before", "no_tls"]


def check_before(options: Options) -> None:
    """Find out now what would end the endpoint after its models were loaded.

    Raises:
        ServeError: EDGE-SERVE-005 the certificate and its key; -001 the address of gRPC.
    """
    if options.tls_cert and options.tls_key:
        try:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(options.tls_cert, options.tls_key, password=_nobody)
        except (OSError, ValueError) as error:
            raise no_tls(str(error)) from error
    if options.grpc_port:
        _bound(options.host, options.grpc_port, "--grpc-port").close()


def bind(options: Options) -> socket.socket:
    """A socket that listens for REST.

    Raises:
        ServeError: EDGE-SERVE-001, the address cannot be had.
    """
    listening = _bound(options.host, options.port, "--port")
    listening.listen(2048)
    listening.setblocking(False)
    return listening


def no_tls(got: str) -> ServeError:
    """The coded error for a pair that is none."""
    return ServeError(
        "EDGE-SERVE-005",
        "TLS",
        got=got,
        wanted="a certificate chain and its key in PEM, without a password",
        hint="check --tls-cert and --tls-key with `openssl x509 -in FILE -noout`",
    )


def _nobody() -> str:
    """A server has nobody to ask for a password."""
    raise ValueError("the key is protected by a password")


def _bound(host: str, port: int, option: str) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    one = socket.socket(family, socket.SOCK_STREAM)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        one.bind((host, port))
        one.listen(1)  # two may bind in some systems, and only one may listen
    except OSError as error:
        one.close()
        raise ServeError(
            "EDGE-SERVE-001",
            f"address {host} port {port}",
            wanted="one to listen on",
            got=str(error),
            hint=_hint(error, option),
        ) from error
    return one


def _hint(error: OSError, option: str) -> str:
    if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
        return "--host is an address of this machine: 127.0.0.1, or 0.0.0.0 for all that it has"
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"choose another {option}: those below 1024 want a privileged user"
    return f"choose another {option}, or end what listens there"
