"""``audition schema``: the JSON schema of the spike file."""

from __future__ import annotations

import json

import click

EPILOG = """\b
Exit codes:
  0 the schema is printed
"""


@click.command("schema", epilog=EPILOG)
@click.option("--result", is_flag=True, help="The schema of result.json, which every run leaves.")
@click.option("--json", "as_json", is_flag=True, help="Accepted for uniformity: the schema is JSON anyway.")
def command(result: bool, as_json: bool) -> int:
    """Print the JSON schema of the spike file, for editors, or that of result.json.

    Put this line at the top of a spike file after writing the schema beside it:
    # yaml-language-server: $schema=./spike.schema.json
    """
    from audition.report.result_schema import result_schema  # noqa: PLC0415 - lazily: pydantic is slow to import
    from audition.spike.schema import json_schema  # noqa: PLC0415

    click.echo(json.dumps(result_schema() if result else json_schema(), indent=1, ensure_ascii=False))
    return 0
