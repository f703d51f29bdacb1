"""Reads the arguments of `vllm serve` out of every released vLLM since 0.9.2 and writes src/audition/profile/data/flags.json.

usage: python -m benchmarks.flag_tables [--keep FOLDER] [--only VERSION,...] | --facts FOLDER

The sources are read as text, with `ast` alone; no vLLM is installed or imported. With --keep the fetched sources stay in FOLDER
(15 MB a version) and are used again; without it they are deleted after each version. --facts prints what is read from the sources
in FOLDER and writes nothing.

It also writes what the tests compare the table with, tests/profile/data/membership.json, found by a plain search for text in the
sources. Both files depend on the released packages only, so running this twice gives the same bytes.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import shutil
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks import flag_search
from benchmarks.flag_fetch import Release, fetch, released
from benchmarks.flag_fields import Rules, extra_keys, hints_of, keywords_of, rules_of
from benchmarks.flag_interpreter import Added, Interpreter, Member, ParserRef, TypeFn
from benchmarks.flag_sources import ClassRef, External, FuncRef, Opaque, Sources, class_fields, method

ROOT = Path(__file__).resolve().parents[1]
TABLE = ROOT / "src/audition/profile/data/flags.json"
SAMPLE = ROOT / "tests/profile/data/membership.json"
Record = dict[str, Any]


class Reader:
    """Reads one version."""

    def __init__(self, folder: Path) -> None:
        self.sources = Sources(folder, "vllm")
        engine = self.sources.module("vllm.engine.arg_utils")
        assert engine is not None
        self.rules: Rules = rules_of(engine)
        self.interpreter = Interpreter(self.sources, self.get_kwargs)
        self.configs: dict[str, Record] = {}

    def get_kwargs(self, interpreter: Interpreter, cls: ClassRef) -> dict[str, dict[str, Any]]:
        """The keywords of every field of a dataclass."""
        return {name: keywords_of(interpreter, known, self.rules) for name, known in class_fields(self.sources, cls).items()}

    def flags(self) -> dict[str, Record]:
        """Every argument of ``vllm serve`` by its first long name; of two of the same name the first counts."""
        serve = self.sources.module("vllm.entrypoints.cli.serve")
        assert serve is not None
        cls = self.sources.lookup(serve, "ServeSubcommand")
        entry = method(self.sources, cls, "subparser_init")
        assert isinstance(entry, FuncRef)
        self.interpreter.call(entry, [None, ParserRef()])
        out: dict[str, Record] = {"--help": {"kind": "help", "src": "argparse", "also": ["-h"]}}
        for added in self.interpreter.added:
            out.setdefault(max(added.names, key=lambda n: (n.startswith("--"), -added.names.index(n))), self.record(added))
        return dict(sorted(out.items()))

    def record(self, added: Added) -> Record:
        """One call of add_argument as facts."""
        keywords = added.keywords
        given_type = keywords.get("type")
        kind_of = given_type if isinstance(given_type, TypeFn) else self.interpreter.type_of(given_type or External("str"))
        action = keywords.get("action", "store")
        action = (
            action.dotted.split(".")[-1]
            if isinstance(action, External)
            else action.node.name
            if isinstance(action, ClassRef)
            else action
        )
        main = max(added.names, key=lambda n: (n.startswith("--"), -added.names.index(n)))
        record: Record = {"kind": _kind(action, keywords.get("nargs"), kind_of), "src": added.module.replace(".", "/") + ".py"}
        if also := [n for n in added.names if n != main]:
            record["also"] = also
        if record["kind"] not in {"switch", "bool"}:
            record["type"] = kind_of.name
        if kind_of.optional:
            record["none"] = True
        if kind_of.cls is not None:
            record["config"] = self.config(kind_of.cls)
        elif main == "--speculative-config":
            module = self.sources.module("vllm.config")
            assert module is not None
            record["config"] = self.config(self.sources.lookup(module, "SpeculativeConfig"))
        if isinstance(keywords.get("nargs"), int):
            record["count"] = keywords["nargs"]
        if record["kind"] == "bool" and (pairs := self.inverse_prefixes()):
            inverse = [new + n.removeprefix(old) for n in added.names for old, new in pairs.items() if n.startswith(old)]
            record |= {"inverse": inverse} if inverse else {}
        record |= _choices(keywords) | _default(keywords.get("default", False if action == "store_true" else None))
        if text := _deprecated(keywords):
            record["deprecated"] = text
        return record

    def inverse_prefixes(self) -> dict[str, str]:
        """Prefixes that turn each other off, as ``--enable-`` and ``--disable-``, where the version's parser pairs them.

        Told by the table in the action that the parser puts in the place of argparse's own for booleans.
        """
        module = self.sources.module("vllm.utils.argparse_utils")
        for node in ast.walk(module.tree) if module else ():
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_inverse_prefixes":
                pairs: dict[str, str] = ast.literal_eval(node.value)
                return pairs
        return {}

    def config(self, cls: ClassRef) -> str:
        """Note the keys of a dataclass that a JSON argument must fit; gives its name."""
        name = cls.node.name
        if name not in self.configs:
            self.configs[name] = {
                "extra": extra_keys(self.interpreter, cls),
                "src": cls.module.name.replace(".", "/") + ".py",
                "keys": {},
            }
            detailed = name == "SpeculativeConfig"
            for key, known in class_fields(self.sources, cls).items():
                if "init=False" in (ast.unparse(known.default) if known.default else ""):
                    continue
                hints = hints_of(self.interpreter, known, self.rules)
                fact: Record = {"type": "|".join(sorted({h.kind for h in hints}))}
                values = [v for h in hints if h.kind == "literal" for v in h.values]
                if values:
                    fact["choices"] = sorted(values, key=str)
                if detailed:
                    fact |= _default(self.interpreter.default_of(known.default, known.module))
                self.configs[name]["keys"][key] = fact
        return name

    def registered(self, folders: Iterable[str], tables: str) -> list[str]:
        """Names under which parsers are registered: by decorator, or in a table of the package."""
        names: set[str] = set()
        for folder in folders:
            for path in sorted(self.sources.root.joinpath("vllm", folder).glob("*.py")):
                for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                    if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("ParserManager.register_module"):
                        texts = [
                            c.value
                            for part in [*node.args, *[k.value for k in node.keywords]]
                            for c in ast.walk(part)
                            if isinstance(c, ast.Constant)
                        ]
                        names |= {t for t in texts if isinstance(t, str)}
                    target = (
                        node.targets[0]
                        if isinstance(node, ast.Assign)
                        else node.target
                        if isinstance(node, ast.AnnAssign)
                        else None
                    )
                    value = getattr(node, "value", None)
                    if isinstance(target, ast.Name) and re.fullmatch(tables, target.id) and isinstance(value, ast.Dict):
                        names |= {k.value for k in value.keys if isinstance(k, ast.Constant) and isinstance(k.value, str)}
        return sorted(names)

    def quantisations(self) -> list[str]:
        """The names that ``--quantization`` knows (a literal for type checkers)."""
        module = self.sources.module("vllm.model_executor.layers.quantization")
        if module is None:
            return []
        node = self.sources.lookup(module, "QuantizationMethods", typing=True)
        return sorted(v for hint in self.interpreter.hints.of(node[1], node[0]) for v in hint.values)

    def hybrid_prefix_caching(self) -> str:
        """Whether hybrid models cache prefixes by default: ``on``, ``off``, or ``unknown`` where the source does not tell.

        Told by what `is_prefix_caching_supported` returns for the hybrid attention type, and by whether the default excepts hybrid
        models; before that function existed, by the model configuration that turns it off for them.
        """
        model = self.sources.module("vllm.config.model")
        engine = self.sources.module("vllm.engine.arg_utils")
        assert engine is not None
        rule = _function(model.tree, "is_prefix_caching_supported") if model else None
        if rule is not None:
            for node in ast.walk(rule):
                if isinstance(node, ast.If) and ast.unparse(node.test) == "attn_type == 'hybrid'":
                    said = [n.value.value for n in node.body if isinstance(n, ast.Return) and isinstance(n.value, ast.Constant)]
                    excepted = re.search(r"default_prefix_caching = .*not model_config\.is_hybrid", ast.unparse(engine.tree))
                    return "on" if said == [True] and not excepted else "off"
        models = self.sources.module("vllm.model_executor.models.config")
        turned_off = [
            c.name
            for c in (models.tree.body if models else [])
            if isinstance(c, ast.ClassDef) and "Mamba" in c.name and "enable_prefix_caching = False" in ast.unparse(c)
        ]
        return "off" if turned_off else "unknown"

    def everything(self) -> Record:
        """All facts of the version."""
        flags = self.flags()
        tools = self.registered(["tool_parsers", "entrypoints/openai/tool_parsers"], r"_TOOL_PARSERS_TO_REGISTER")
        thinking = self.registered(["reasoning"], r"_REASONING_PARSERS_TO_REGISTER")
        return {
            "flags": flags,
            "configs": dict(sorted(self.configs.items())),
            "lists": {
                "tool-parsers": tools,
                "reasoning-parsers": thinking,
                "quantization": self.quantisations(),
                "hybrid-prefix-caching": [self.hybrid_prefix_caching()],
            },
        }


def _function(tree: ast.Module, name: str) -> ast.FunctionDef | None:
    return next((n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name == name), None)


def _kind(action: str, nargs: Any, kind_of: TypeFn) -> str:
    if action == "BooleanOptionalAction":
        return "bool"
    if action in {"store_true", "store_false", "store_const"}:
        return "switch"
    if action == "append":
        return "append"
    if nargs == "?":
        return "optional"
    if nargs is not None:
        return "list"
    return "json" if kind_of.name in {"json", "json-or-text"} else "value"


def _choices(keywords: dict[str, Any]) -> Record:
    out: Record = {}
    listed = keywords.get("choices")
    if isinstance(listed, list):
        texts = [",".join(c) if isinstance(c, list) else c for c in listed]
        plain = [c for c in texts if not isinstance(c, Opaque | External) and c is not None]
        out["choices"] = sorted(plain, key=str)
        if any(isinstance(c, Opaque | External) for c in texts):
            out["open"] = True
    elif listed is not None:
        out |= {"choices": [], "open": True}
    if isinstance(keywords.get("known"), list):
        out["known"] = sorted(keywords["known"], key=str)
    return out


def _default(given: Any) -> Record:
    if given is None or (isinstance(given, External) and given.dotted == "argparse.SUPPRESS"):
        return {}
    plain = _plain(given)
    return {"default": plain} if plain is not ... else {"made": getattr(given, "text", getattr(given, "dotted", str(given)))}


def _plain(given: Any) -> Any:
    if isinstance(given, Member):
        return _plain(given.value)
    if given is None or isinstance(given, bool | int | float | str):
        return given
    if isinstance(given, list | tuple) and all(_plain(g) is not ... for g in given):
        return [_plain(g) for g in given]
    if isinstance(given, dict) and all(_plain(g) is not ... for g in given.values()):
        return {str(k): _plain(v) for k, v in given.items()}
    return ...


_GOING = re.compile(
    r"\bdeprecated[:\])]|[\[(]deprecated|is deprecated|will be (removed|deprecated)|has been (removed|replaced)|no longer", re.I
)
_INSTEAD = re.compile(r"\b[Uu]se\b|\binstead\b|\breplaced by\b|\bno effect\b")


def _deprecated(keywords: dict[str, Any]) -> str:
    """The sentences of the help text that say that the argument goes and what to use instead; or the plain mark."""
    text = " ".join(str(keywords.get("help", "")).split()).replace("``", "`")
    sentences = re.split(r"(?<=[.!])\s+(?=[A-Z`-])", text)
    if not any(_GOING.search(s) for s in sentences):
        return "deprecated" if keywords.get("deprecated") else ""
    told = [s for s in sentences if _GOING.search(s) or _INSTEAD.search(s)]
    return " ".join(told)[:400]


def spans(per_version: list[Record]) -> dict[str, list[list[Any]]]:
    """name → [first index, last index, facts] for each stretch of versions in which the facts are the same."""
    out: dict[str, list[list[Any]]] = {}
    for index, facts in enumerate(per_version):
        for name, fact in facts.items():
            stretches = out.setdefault(name, [])
            if stretches and stretches[-1][1] == index - 1 and stretches[-1][2] == fact:
                stretches[-1][1] = index
            else:
                stretches.append([index, index, fact])
    return dict(sorted(out.items()))


def write(path: Path, whole: Record) -> None:
    """One line an entry, so that a difference of two versions of the file can be read."""
    parts = []
    for name, part in whole.items():
        if isinstance(part, dict):
            lines = ",\n".join(
                f"  {json.dumps(k)}: {json.dumps(v, separators=(',', ':'), ensure_ascii=False)}" for k, v in part.items()
            )
            parts.append(f" {json.dumps(name)}: {{\n{lines}\n }}")
        else:
            parts.append(f" {json.dumps(name)}: {json.dumps(part, ensure_ascii=False)}")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{\n" + ",\n".join(parts) + "\n}\n", encoding="utf-8")


def read(release: Release) -> Record:
    """All facts of one fetched release."""
    return Reader(release.folder).everything()


def main() -> int:
    """Fetch, read and write."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--keep", type=Path)
    options.add_argument("--only", default="")
    options.add_argument("--facts", type=Path)
    given = options.parse_args()
    if given.facts:
        print(json.dumps(Reader(given.facts).everything(), indent=1))
        return 0
    versions = given.only.split(",") if given.only else released()
    wanted = flag_search.example_flags(ROOT)
    releases, facts, sample = [], [], {}
    with tempfile.TemporaryDirectory() as scratch:
        keep = given.keep or Path(scratch)
        for version in versions:
            release = fetch(version, keep)
            releases.append(release)
            facts.append(read(release))
            sample[version] = flag_search.membership(release.folder, wanted)
            print(f"{version}: {len(facts[-1]['flags'])} arguments from {release.archive}", file=sys.stderr)
            if given.keep is None:
                shutil.rmtree(release.folder)
    if given.only:
        return 0
    whole = {
        "format": 1,
        "made_by": "python -m benchmarks.flag_tables",
        "versions": {r.version: {"archive": r.archive, "sha256": r.sha256} for r in releases},
        **{part: spans([f[part] for f in facts]) for part in ("flags", "configs", "lists")},
    }
    write(TABLE, whole)
    write(SAMPLE, {"made_by": "python -m benchmarks.flag_tables, by a plain search for text in the sources", "versions": sample})
    return 0


if __name__ == "__main__":
    sys.exit(main())
