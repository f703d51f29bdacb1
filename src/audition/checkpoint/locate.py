"""Where a checkpoint lies: a folder, or a model id in a Hugging Face cache. Looks at names only.

The cache's layout and its environment variables: https://huggingface.co/docs/huggingface_hub/guides/manage-cache and
.../package_reference/environment_variables. The variables come as arguments, because a container has its own.

What must not live here: reading files of the checkpoint, downloading, this process's environment.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from audition.checkpoint.problem import CheckpointError, NotInCache
from audition.plain_file import read_bytes

_REF_LIMIT = 4096  # bytes; a ref holds a commit of 40
_MODEL_ID = re.compile(r"^[A-Za-z0-9][\w.-]*(/[A-Za-z0-9_][\w.-]*)?$")
_COMMIT = re.compile(r"^[0-9a-f]{40}$")
_REVISION = re.compile(r"^[\w.-]+(/[\w.-]+)*$")


@dataclass(frozen=True)
class CacheRoots:
    """The variables that say where the cache is, each as set for the engine or empty, and the home folder they fall back to."""

    home: Path
    hf_hub_cache: str = ""
    huggingface_hub_cache: str = ""
    hf_home: str = ""
    xdg_cache_home: str = ""

    def hub(self) -> Path:
        """The folder of model repositories. HF_HUB_CACHE wins over HUGGINGFACE_HUB_CACHE, that over HF_HOME."""
        if direct := self.hf_hub_cache or self.huggingface_hub_cache:
            return self._expanded(direct)
        if self.hf_home:
            return self._expanded(self.hf_home) / "hub"
        cache = self._expanded(self.xdg_cache_home) if self.xdg_cache_home else self.home / ".cache"
        return cache / "huggingface" / "hub"

    def _expanded(self, text: str) -> Path:
        return self.home / text[2:] if text.startswith("~/") else Path(text)


def locate(model: str, cache: CacheRoots, revision: str = "main") -> Path:
    """The folder that holds ``model``'s files. A folder of that name wins over a model id, as with vLLM.

    Raises CheckpointError for a path that is not there, a name that is neither, or a damaged cache; NotInCache for an id that
    the cache does not have.
    """
    folder = Path(model)
    if folder.is_dir():
        return _snapshot(folder, model, revision) if (folder / "snapshots").is_dir() else folder
    if folder.exists():
        raise CheckpointError(f"{model} is a file; a checkpoint is a folder", next_step="Name the folder that holds config.json.")
    if folder.is_absolute() or model.startswith((".", "~")) or not _MODEL_ID.match(model) or ".." in model:
        raise CheckpointError(
            f"there is no folder {model}",
            tried="as a folder of this machine",
            next_step="Name a folder or a model id such as org/name.",
        )
    hub = cache.hub()
    repository = hub / ("models--" + model.replace("/", "--"))
    if not repository.is_dir():
        raise NotInCache(
            f"{model} is not in the cache {hub}",
            tried=f"looking for {repository.name}",
            next_step=f"Download it before the window (hf download {model}), or set HF_HOME as the engine has it.",
        )
    return _snapshot(repository, model, revision)


def _snapshot(repository: Path, model: str, revision: str) -> Path:
    """The snapshot folder of a revision: a commit, or a branch or tag that ``refs/`` resolves."""
    if not _REVISION.match(revision) or ".." in revision:
        raise CheckpointError(
            f"{revision!r} is no revision of {model}", next_step="Give a branch, a tag or a commit of 40 hex digits."
        )
    snapshots = repository / "snapshots"
    commit = revision
    if not _COMMIT.match(revision):
        commit = _commit_of(repository / "refs" / revision, model, revision, snapshots)
    folder = snapshots / commit
    if not folder.is_dir():
        raise NotInCache(
            f"the cache knows {model} at {revision}, but has no snapshot {commit[:12]}",
            tried=f"looking for {folder}",
            seen=_there(snapshots),
            next_step=f"Download it again (hf download {model} --revision {revision}).",
        )
    return folder


def _commit_of(ref: Path, model: str, revision: str, snapshots: Path) -> str:
    try:
        text = read_bytes(ref, _REF_LIMIT).decode("ascii", "replace").strip()
    except FileNotFoundError as error:
        raise NotInCache(
            f"the cache has {model}, but nothing says which snapshot its revision {revision} is",
            tried=f"reading {ref}",
            seen=_there(snapshots),
            next_step=f"Give the commit as revision, or download again (hf download {model}).",
        ) from error
    except OSError as error:
        raise CheckpointError(f"{ref} cannot be read: {error.strerror}") from error
    if not _COMMIT.match(text):
        raise CheckpointError(
            f"{ref} does not hold a commit", seen=f"It holds {text[:60]!r}.", next_step=f"Download again (hf download {model})."
        )
    return text


def _there(snapshots: Path) -> str:
    """The snapshots that are there, as a sentence."""
    try:
        names = sorted(entry.name[:12] for entry in snapshots.iterdir())
    except OSError:
        names = []
    return f"Snapshots there: {', '.join(names[:5])}." if names else "There is no snapshot at all."
