"""``audition bench``: the measurement alone, against any OpenAI-compatible server. Nothing is started or stopped."""

from __future__ import annotations

from pathlib import Path

import click

EPILOG = """\b
Exit codes:
  0 every workload was measured
  2 bad input; nothing was sent
  4 a workload has not one successful request; the others were measured
  5 nothing was measured: no server, no model, or not one successful request
"""


@click.command("bench", epilog=EPILOG)
@click.argument("url", metavar="URL")
@click.option("--users", metavar="N,N,...", help="Closed loops with so many users, one after the other. [default: 1,5,16]")
@click.option("--workload", "names", multiple=True, metavar="NAME", help="A ready workload, or `reference`; may be repeated.")
@click.option("--model", help="Model name. [default: the first one that the server lists]")
@click.option("--api-key-env", metavar="NAME", help="Variable that holds the API key.")
@click.option(
    "--prompts", metavar="CLASS|FILE", help="prose, code, dialogue, reasoning, tools, mixed, or a file of your own prompts."
)
@click.option("--prompt-tokens", type=int, metavar="N", help="Long documents of so many tokens as prompts.")
@click.option("--requests", type=int, metavar="N", help="Requests in each workload.")
@click.option("--duration", metavar="TIME", help="Send for so long instead, e.g. 2m.")
@click.option("--rate", type=float, metavar="N", help="Requests a second, whatever is still open, instead of users.")
@click.option("--arrivals", type=click.Choice(["constant", "poisson", "gamma"]), help="Gaps between requests of a rate.")
@click.option("--burstiness", type=float, metavar="X", help="Shape of gamma gaps; below 1 comes in bursts.")
@click.option("--trace", metavar="FILE", help="Send at the times of a file instead, one a line, in seconds.")
@click.option("--max-tokens", type=int, metavar="N", help="Longest answer. [default: 512]")
@click.option("--thinking/--no-thinking", default=None, help="`enable_thinking` of the chat template. [default: the server's]")
@click.option(
    "--sampling", type=click.Choice(["server", "greedy", "both"]), default="server", help="The server's own, temperature 0."
)
@click.option("--ignore-eos", is_flag=True, help="Force --max-tokens; flagged, because it invalidates acceptance.")
@click.option("--processes", type=int, metavar="N", help="Processes that send.")
@click.option("--out", type=click.Path(path_type=Path), metavar="FOLDER", help="Keep the records there.")
@click.option("--json", "as_json", is_flag=True, help="Print the figures, and nothing else, as JSON on standard output.")
@click.option("--quiet", is_flag=True, help="Say nothing on the way.")
def command(
    url: str, *, users: str | None, names: tuple[str, ...], sampling: str, as_json: bool, quiet: bool, **rest: object
) -> int:  # fmt: skip
    """Measure the server at URL: first tokens, speed of one stream, throughput, acceptance, and what lessens trust in them.

    \b
    audition bench http://127.0.0.1:8000 --users 1,5,16
    audition bench http://127.0.0.1:8000 --workload reference --json
    audition bench http://127.0.0.1:8000 --rate 0.5 --arrivals gamma --burstiness 0.4 --duration 5m
    """
    from audition.cli.bench import Bench, workloads_of  # noqa: PLC0415 - lazily: only when the verb runs

    model, key, out = rest.pop("model"), rest.pop("api_key_env"), rest.pop("out")
    chosen = workloads_of(users, names, rest, sampling)
    bench = Bench.at(url, model if isinstance(model, str) else None, key if isinstance(key, str) else None)
    report = bench.run(chosen, out if isinstance(out, Path) else None, quiet=quiet or as_json)
    click.echo(report.as_json() if as_json else report.as_text(), nl=False)
    return report.exit_code
