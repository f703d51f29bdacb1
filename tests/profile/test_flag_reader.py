"""The generator's reading, on a small package made by hand: it runs as a process and imports nothing of that package."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]

RULES = """
import argparse
import json
from vllm.config import CacheConfig, SpeculativeConfig, get_field
from vllm.utils import human_readable_int
raise SystemExit("this module was imported")

def literal_to_kwargs(type_hints):
    return {"type": str, "choices": []}

def _compute_kwargs(cls):
    if name == "max_model_len":
        kwargs[name]["type"] = human_readable_int
    contains_type(type_hints, set)
    kwargs[name]["choices"].append("None")

def get_kwargs(cls):
    return _compute_kwargs(cls)

class EngineArgs:
    seed: int = 7
    @staticmethod
    def add_cli_args(parser):
        cache_kwargs = get_kwargs(CacheConfig)
        cache_kwargs["swap"]["choices"] += ["3"]
        group = parser.add_argument_group(title="CacheConfig")
        group.add_argument("--kv-cache-dtype", **cache_kwargs["cache_dtype"])
        group.add_argument("--max-model-len", **cache_kwargs["max_model_len"])
        group.add_argument("--caching", **{**cache_kwargs["caching"], "default": None})
        group.add_argument("--swap", "-s", **cache_kwargs["swap"])
        group.add_argument("--names", **cache_kwargs["names"])
        group.add_argument("--spec", **cache_kwargs["spec"])
        if running_on_a_gpu():
            group.add_argument("--gpu-only", action="store_true", help="[DEPRECATED] Gone soon. Use --swap instead.")
        parser.add_argument("--seed", type=int, default=EngineArgs.seed)
        parser.add_argument("--where", choices=["a"] + ([device()] if device() else []))
        return parser

class AsyncEngineArgs(EngineArgs):
    @staticmethod
    def add_cli_args(parser, async_args_only=False):
        load_general_plugins()
        if not async_args_only:
            parser = EngineArgs.add_cli_args(parser)
        return parser
"""
CONFIG = '''
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Optional
if TYPE_CHECKING:
    Method = Literal["x"]
else:
    Method = str
BASE = 4
Kinds = Literal["auto", "fp8"]
AllKinds = Literal["own", Kinds]

@dataclass
class SpeculativeConfig:
    method: Optional[Literal["mtp", "ngram"]] = None
    tokens: int = BASE * 2
    hidden: int = field(default=1, init=False)

@dataclass
class CacheConfig:
    cache_dtype: AllKinds = "auto"
    """Type. It is deprecated and will be removed in v9. Please use `kv_type` instead. Nothing else."""
    max_model_len: int = None
    caching: Optional[bool] = None
    swap: Optional[Literal["1", "2"]] = None
    names: list[str] = field(default_factory=lambda: ["a", "b"])
    spec: Optional[SpeculativeConfig] = None
'''
FRONT = """
from vllm.engine.arg_utils import AsyncEngineArgs, get_kwargs
from dataclasses import dataclass
from typing import Optional

@dataclass
class BaseFrontendArgs:
    host: Optional[str] = None

    @classmethod
    def _customize_cli_kwargs(cls, kwargs):
        kwargs["host"]["type"] = str
        return kwargs

    @classmethod
    def add_cli_args(cls, parser):
        kwargs = cls._customize_cli_kwargs(get_kwargs(cls))
        for key, value in kwargs.items():
            parser.add_argument(*value.pop("flags", []), f"--{key.replace('_', '-')}", **value)
        return parser

@dataclass
class FrontendArgs(BaseFrontendArgs):
    port: int = 8000
    api_key: Optional[list[str]] = None

    @classmethod
    def _customize_cli_kwargs(cls, kwargs):
        kwargs = super()._customize_cli_kwargs(kwargs)
        del kwargs["api_key"]["nargs"]
        return kwargs

def make_arg_parser(parser):
    parser.add_argument("model_tag", type=str, nargs="?")
    parser = FrontendArgs.add_cli_args(parser)
    return AsyncEngineArgs.add_cli_args(parser)
"""
SERVE = """
from vllm.entrypoints.openai.cli_args import make_arg_parser
class ServeSubcommand:
    def subparser_init(self, subparsers):
        serve_parser = subparsers.add_parser("serve")
        return make_arg_parser(serve_parser)
"""
FILES = {
    "__init__.py": "", "engine/__init__.py": "", "engine/arg_utils.py": RULES, "config.py": CONFIG, "entrypoints/__init__.py": "",
    "entrypoints/openai/__init__.py": "", "entrypoints/openai/cli_args.py": FRONT, "entrypoints/cli/__init__.py": "",
    "entrypoints/cli/serve.py": SERVE, "utils.py": "def human_readable_int(value): ...\n",
}  # fmt: skip


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("sources")
    for name, text in FILES.items():
        path = folder / "vllm" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "benchmarks.flag_tables", "--facts", str(folder)]
    ran = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    read: dict[str, Any] = json.loads(ran.stdout)
    return read


def test_every_argument_is_found_once_in_every_place(facts: dict[str, Any]) -> None:
    assert set(facts["flags"]) == {
        "--help", "model_tag", "--host", "--port", "--api-key", "--kv-cache-dtype", "--max-model-len", "--caching", "--swap",
        "--names",         "--spec", "--gpu-only", "--seed", "--where",
    }  # fmt: skip


def test_kinds_types_choices_and_defaults(facts: dict[str, Any]) -> None:
    flags = facts["flags"]
    assert (flags["--kv-cache-dtype"]["choices"], flags["--kv-cache-dtype"]["default"]) == (["auto", "fp8", "own"], "auto")
    assert flags["--max-model-len"]["type"] == "human-int"
    assert flags["--caching"] == {"kind": "bool", "src": "vllm/engine/arg_utils.py"}
    assert (flags["--swap"]["choices"], flags["--swap"]["also"], flags["--swap"]["none"]) == (["1", "2", "3", "None"], ["-s"], True)
    assert (flags["--names"]["kind"], flags["--names"]["default"]) == ("list", ["a", "b"])
    assert (flags["--seed"]["type"], flags["--seed"]["default"]) == ("int", 7)
    assert (flags["--port"]["default"], flags["--api-key"]["kind"]) == (8000, "value")
    assert (flags["--where"]["choices"], flags["--where"]["open"]) == (["a"], True)
    assert flags["model_tag"]["kind"] == "optional"


def test_json_keys_and_words_about_going(facts: dict[str, Any]) -> None:
    config = facts["configs"]["SpeculativeConfig"]
    assert facts["flags"]["--spec"]["config"] == "SpeculativeConfig"
    assert config["extra"] == "forbid"
    assert config["keys"]["method"]["choices"] == ["mtp", "ngram"]
    assert config["keys"]["tokens"] == {"type": "int", "default": 8}
    assert "hidden" not in config["keys"]
    assert (
        facts["flags"]["--kv-cache-dtype"]["deprecated"]
        == "It is deprecated and will be removed in v9. Please use `kv_type` instead."
    )
    assert facts["flags"]["--gpu-only"]["deprecated"] == "[DEPRECATED] Gone soon. Use --swap instead."
