"""``audition init``: a commented spike file from two compose profiles, or from what runs now and one profile."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("init")
@click.option("--production", multiple=True, metavar="FILE", help="Production's compose file; repeat for several, as with -f.")
@click.option("--from-container", "container", metavar="NAME", help="Instead: the running container that is production.")
@click.option("--candidate", multiple=True, metavar="FILE", help="The candidate's compose file; may be repeated.")
@click.option("--env-file", "env_files", multiple=True, metavar="FILE", help="Env file that production is started with.")
@click.option("--candidate-env-file", multiple=True, metavar="FILE", help="Env file of the candidate. [default: production's]")
@click.option("--service", metavar="NAME", help="The service that is the server, where the file has several.")
@click.option("--candidate-service", metavar="NAME", help="The same for the candidate. [default: --service]")
@click.option("--project", metavar="NAME", help="Production's compose project, where it was started with -p.")
@click.option("--name", metavar="NAME", help="Short name of the spike. [default: the candidate's file]")
@click.option("--question", metavar="TEXT", help="The question that the spike answers.")
@click.option("--closes", metavar="INSTANT", help="When production must be back, e.g. 2026-12-06T04:00:00+01:00.")
@click.option("--slowest-cold-start", "slowest", metavar="TIME", help="Production's slowest known cold start. [default: 25m]")
@click.option("--gpus", metavar="N,N", help="GPUs that the spike uses. [default: those of the profiles]")
@click.option("--out", type=click.Path(path_type=Path), default=Path("spike.yaml"), help="The file to write; - for the terminal.")
@click.option("--force", is_flag=True, help="Write over a file that is there.")
@click.option("--no-input", is_flag=True, help="Ask nothing, also on a terminal.")
def command(*, out: Path, force: bool, no_input: bool, **given: object) -> int:
    """Write a spike file for a candidate against production, with workloads and gates that fit what is tried.

    Profiles are read by docker compose. On a terminal it asks what cannot be read off them. Exit code 0: written; 2: bad input;
    5: refused, for instance because the file is there already, or docker compose is not.

    \b
    audition init --production prod.yml --env-file prod.env --candidate mtp.yml
    audition init --from-container llm-medium --candidate mtp.yml --out spike.yaml
    """
    from audition.cli.initialising import initialise  # noqa: PLC0415 - lazily: only when the verb runs

    return initialise(out, given, force=force, no_input=no_input)
