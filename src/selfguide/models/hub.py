"""Encoders by name: what a name means on the Hugging Face hub, and why it cannot be loaded.

The hub's own client tries for more than a minute where there is no network. A name is asked for once here, with a time limit.
"""

from __future__ import annotations

import difflib
import time
from functools import lru_cache
from pathlib import Path

from selfguide.data.messages import first_line

_TIMEOUT_S = 10.0
_REMEMBERED_S = 60.0
_FILES = ("modules.json", "config.json")


def repository(name: str) -> str:
    """Return the repository that a name stands for: short ones are completed as sentence-transformers does.

    Args:
        name: Such as ``all-MiniLM-L6-v2``, ``bert-base-uncased`` or ``BAAI/bge-small-en``.

    Returns:
        The name with its owner, or the name itself.
    """
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.util import ORIGINAL_TRANSFORMER_MODELS

    owner = SentenceTransformer.default_huggingface_organization
    if owner is None or "/" in name or "\\" in name or name.lower() in ORIGINAL_TRANSFORMER_MODELS:
        return name
    return f"{owner}/{name}"


def why_missing(name: str) -> str | None:
    """Return why a name that is not a folder cannot be loaded.

    Args:
        name: What was given as an encoder.

    Returns:
        A sentence with advice; ``None`` where there may be one: it is in the hub's cache, or the hub has it.
    """
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

    found = repository(name)
    start = f"There is no encoder called {name!r}:"
    try:
        validate_repo_id(found)
    except HFValidationError:
        return f"{start} there is no such folder. {_near(name)}Check the path; the working folder is {Path.cwd()}."
    if _cached(found):
        return None
    reason = _refusal(found, time.monotonic() // _REMEMBERED_S)
    if reason is None:
        return None
    return (
        f"{start} it is not 'mini', not a folder here, and the model hub did not give it ({reason}). {_near(name)}"
        "Check the name; without a network, download it elsewhere and pass its folder."
    )


def _cached(name: str) -> bool:
    from huggingface_hub import try_to_load_from_cache

    return any(isinstance(try_to_load_from_cache(name, file), str) for file in _FILES)


@lru_cache(maxsize=16)
def _refusal(name: str, period: float) -> str | None:
    """Return why the hub does not give a repository; ``None`` where it does, or only loading can tell.

    A command asks several times, so an answer is kept for a period.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import GatedRepoError, OfflineModeIsEnabled, RepositoryNotFoundError

    try:
        HfApi().model_info(name, timeout=_TIMEOUT_S)
    except GatedRepoError:
        return None
    except RepositoryNotFoundError:
        return f"it has no {name}, or it is private"
    except OfflineModeIsEnabled:
        return f"offline, as HF_HUB_OFFLINE says, and {name} is not in the cache"
    except Exception as error:  # the HTTP library's own errors, which differ between versions
        return f"it cannot be reached: {first_line(error)}"
    return None


def _near(name: str) -> str:
    """Return a question with the folder whose name is nearest, or nothing."""
    path = Path(name)
    try:
        folders = [entry.name for entry in path.parent.iterdir() if entry.is_dir()]
    except OSError:
        return ""
    close = difflib.get_close_matches(path.name, folders, 1)
    return f"Did you mean {str(path.parent / close[0])!r}? " if close else ""
