"""Engines as the spike file writes them: how an arm's server is started, stopped and observed. Keys only, nothing acts here."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from audition.spike.values import Argv, Strict, Words


class ProcessEngine(Strict):
    """A server started as a process of this machine."""

    kind: Literal["process"] = Field(description="Engine kind: a process of this machine.")
    command: Argv = Field(description="Command line, as a list or as one text split like a shell does.")
    env: dict[str, str] = Field(default={}, description="Variables added to the environment of the server.")
    env_files: list[str] = Field(default=[], description="Files of NAME=value lines, read before `env`.")
    cwd: str = Field(default=".", description="Working folder, relative to the spike file.")


class ComposeEngine(Strict):
    """A server defined in docker compose profiles."""

    kind: Literal["compose"] = Field(description="Engine kind: docker compose profiles.")
    files: list[str] = Field(min_length=1, description="Compose files, in the order of `-f`.")
    env_files: list[str] = Field(default=[], description="Files given with `--env-file`, exactly as production was started.")
    project: str | None = Field(default=None, description="Compose project name; default: as compose derives it.")
    service: str = Field(description="The service that is the server.")
    container_name: Literal["own", "production"] = Field(
        default="own",
        description="Candidates: a name of their own, or production's name (production's container is renamed aside).",
    )
    context: str | None = Field(default=None, description="Docker context; default: the current one, or DOCKER_HOST.")


class SimulatedEngine(Strict):
    """The simulated server shipped with audition: vLLM-shaped, no GPU."""

    kind: Literal["simulated"] = Field(description="Engine kind: the simulated server.")
    args: Words = Field(default=[], description="vLLM's arguments.")
    settings: dict[str, Any] = Field(default={}, description="Settings of the simulation; see `audition.simulated.settings`.")


EngineSpec = Annotated[ProcessEngine | ComposeEngine | SimulatedEngine, Field(discriminator="kind")]
