"""Keys planted wherever a real rehearsal meets them, and looked for in every file and every line that it leaves: none is found.

Looking is done without the mask: each file is also read with URL escapes, JSON escapes, HTML entities and base64 undone.
"""

from __future__ import annotations

import base64
import html
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote, unquote

import yaml

from audition.report.mask import MASK

ENVIRONMENT = 'pl4nt/ed+"s3cret" of=the&env'
NAMED = "planted-named-9f8e7d6c"
OPTION = "hf_PlantedOptionAbCdEfGhIj"
ARGUMENT = "planted-argument-5a4b3c2d"
URL_PASSWORD = "planted-url-0p9o8i7u"
SECRETS = [ENVIRONMENT, NAMED, OPTION, ARGUMENT, URL_PASSWORD]


def printed_by_the_server() -> str:
    """A boot log that spells secrets in every way, and ends as a known failure does."""
    spelled = [
        f"env TEAM_LLM_KEY={ENVIRONMENT}",
        f"headers: {{'Authorization': 'Bearer {NAMED}'}}",
        f"config {json.dumps({'api_key': ENVIRONMENT, 'inner': json.dumps({'key': ENVIRONMENT})})}",
        f"GET /v1/models?key={quote(ENVIRONMENT, safe='')} and {quote(ENVIRONMENT)}",
        f"proxy http://bot:{NAMED}@proxy.example:3128/ and https://bot:{URL_PASSWORD}@files.example/a",
        f"basic {base64.b64encode(f'user:{ENVIRONMENT}'.encode()).decode()}",
        f"x-data: {base64.b64encode(f'{NAMED}:{NAMED}'.encode()).decode()}",
        f"x-more: {base64.urlsafe_b64encode(ENVIRONMENT.encode()).decode()}",
        f"argv ['--hf-token', '{OPTION}', '--api-key={ARGUMENT}'] {ENVIRONMENT!r}",
        f"page {html.escape(ENVIRONMENT)}",
        "Traceback (most recent call last):",
        '  File "/usr/local/lib/python3.12/dist-packages/transformers/configuration_utils.py", line 678, in get_config_dict',
        "    original_kwargs = copy.deepcopy(kwargs)",
        f"AttributeError: 'code' object has no attribute 'get' ({NAMED})",
    ]
    return "\n".join(spelled)


def spike_text() -> str:
    arms = [
        {
            "name": name,
            "role": role,
            "engine": {"kind": "process", "command": ["true", "--api-key", ARGUMENT], "env": {"TEAM_LLM_KEY": NAMED}},
            "endpoint": {"url": "http://127.0.0.1:9", "model": "tiny", "api_key_env": "TEAM_LLM_KEY"},
            "simulated": {
                "args": ["--model", "tiny", "--max-model-len", "4096", *(["--hf-token", OPTION] if role == "candidate" else [])],
                "settings": {
                    "boot_s": 0.5,
                    "step_base_ms": 2,
                    "gpu_memory_mib": 8000,
                    **({"faults": [{"kind": "boot-crash", "text": printed_by_the_server()}]} if role == "candidate" else {}),
                },
            },
        }
        for name, role in (("plain", "production"), ("mtp", "candidate"))
    ]
    spike = {
        "audition": 1,
        "name": "planted",
        "question": f"Does https://bot:{URL_PASSWORD}@files.example/a leak, or {NAMED}?",
        "arms": arms,
        "workloads": [{"name": "w", "users": 2, "requests": 4, "thinking": False, "max_tokens": 16}],
        "probes": ["canary"],
        "gates": [{"metric": "failure_share", "workload": "w", "at_most": 0}],
        "hypotheses": [
            {
                "name": "att4",
                "claim": f"It is the image ({NAMED}).",
                "refuted_by": "deepcopy-poison",
                "when_refuted": f"General, {NAMED}.",
            }
        ],
        "secrets": ["TEAM_LLM_KEY", "PLANTED_VALUE"],
        "records": {"notes": [{"file": "notes.md", "heading": "Datapoints"}]},
    }
    return yaml.safe_dump(spike, allow_unicode=True)


BASE64 = re.compile(r"[A-Za-z0-9+/_-]{12,}")


def readings(data: bytes) -> str:
    """Everything that one could read in some bytes, undoing one or two layers of each escaping."""
    text = data.decode("utf-8", "replace")
    out = [text]
    for _ in range(2):
        now = out[-1]
        escapes = re.sub(r'\\(["\\/\'])', r"\1", now)
        out.append(unquote(html.unescape(escapes)))
    for match in BASE64.finditer(text):
        for skip in range(4):
            piece = match[0][skip:].translate(str.maketrans("-_", "+/"))
            out.append(
                base64.b64decode(piece + "=" * (-len(piece) % 4 % 3), validate=False).decode("latin-1")
                if len(piece) % 4 != 1
                else ""
            )
    return "\n".join(out)


def found_in(data: bytes) -> list[str]:
    text = readings(data)
    return [secret for secret in SECRETS if secret in text or re.sub(r"\s", "", secret) in text]


def test_the_search_finds_every_form_that_is_planted() -> None:
    text = spike_text()
    assert found_in(text.encode()) == SECRETS
    for line in printed_by_the_server().splitlines()[:9]:
        assert found_in(line.encode()), line


def test_no_file_and_no_line_of_a_rehearsal_holds_a_planted_key(tmp_path: Path) -> None:
    (tmp_path / "spike.yaml").write_text(spike_text(), encoding="utf-8")
    out = tmp_path / "out"
    out.mkdir()

    done = subprocess.run(
        [sys.executable, "-m", "audition", "rehearse", str(tmp_path / "spike.yaml")],
        cwd=out, capture_output=True, timeout=280, check=False, stdin=subprocess.DEVNULL,
        env={**os.environ, "TMPDIR": str(out), "TEAM_LLM_KEY": NAMED, "PLANTED_VALUE": ENVIRONMENT},
    )  # fmt: skip

    assert done.returncode == 3, done.stderr.decode()
    (run,) = (tmp_path / "_iteration_log").iterdir()
    files = sorted(path for path in run.rglob("*") if path.is_file())
    names = {path.relative_to(run).as_posix() for path in files}
    assert names >= {"issue-draft.md", "notes-entry.md", "MANIFEST", "legs/02-mtp/engine.log", "legs/02-mtp/leg.json", "spike.yaml"}
    assert names >= {"profiles/plain.json", "profiles/mtp.json", "summary.md", "decision.md", "spike.resolved.json", "run.json"}
    assert {path.relative_to(run).as_posix(): found for path in files if (found := found_in(path.read_bytes()))} == {}
    assert (found_in(done.stdout), found_in(done.stderr)) == ([], [])
    log = (run / "legs" / "02-mtp" / "engine.log").read_text()
    assert log.count(MASK) >= 10  # what was planted came this far, and was masked here
    assert not (tmp_path / "notes.md").exists()
