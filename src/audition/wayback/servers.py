"""Makes the server object of an arm. Imports what an arm needs only when it is needed, so that the sleeping guard stays small."""

from __future__ import annotations

from audition.wayback.plan import ArmTarget
from audition.wayback.server import Server


def server_of(arm: ArmTarget, *, production: bool) -> Server:
    """The server of an arm. ``production``: one that a supervisor has started anew counts as running too."""
    if arm.process is not None:
        from audition.wayback.procs import ProcessServer  # noqa: PLC0415

        return ProcessServer(arm, adopt=production)
    from audition.wayback.docker import ContainerServer  # noqa: PLC0415

    return ContainerServer(arm)


def strangers_of(server: Server) -> list[str]:
    """Who else listens on a server's port; empty for servers that cannot tell."""
    from audition.wayback.procs import ProcessServer  # noqa: PLC0415

    if isinstance(server, ProcessServer):
        return server.strangers() if server.leader() is not None else []
    from audition.wayback.docker import ContainerServer  # noqa: PLC0415

    return server.strangers() if isinstance(server, ContainerServer) else []
