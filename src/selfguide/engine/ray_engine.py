"""Make parts on a Ray cluster: Ray Data gives each actor the numbers of the parts it makes, and starts lost ones again.

Nothing but numbers travels through Ray: an actor reads its slices of the text and writes its parts itself, so every machine must
see the text, the encoder and the folder under the same paths. Because a part is made whole or not at all
(:mod:`selfguide.engine.parts`), an actor, a machine or this process may be killed at any moment.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from typing import Any

from selfguide.engine.parts import Manifest, PartsJob, make_parts
from selfguide.errors import SelfguideError, UsageError
from selfguide.progress import counted
from selfguide.system import cores


class PartsActor:
    """An actor with an encoder; Ray Data calls it with part numbers."""

    def __init__(self, job: PartsJob) -> None:
        self.job = job
        self.manifest = Manifest.from_folder(job.folder)
        self.model = job.load()

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Make the parts of a batch.

        Args:
            batch: Their numbers, under ``part``.

        Returns:
            The numbers, how many rows were encoded now, and the error message if something failed.
        """
        numbers = [int(number) for number in batch["part"]]
        try:
            made, problem = dict(make_parts(self.job, self.manifest, self.model, numbers)), ""
        except SelfguideError as error:  # Ray would wrap it in messages of its own
            made, problem = {}, str(error)
        rows = [self.manifest.slices[number].rows for number in numbers]
        done = [number in made for number in numbers]
        return {"part": numbers, "rows": rows, "done": done, "problem": [problem] * len(numbers)}


def make_with_ray(
    job: PartsJob,
    numbers: Sequence[int],
    workers: int | None,
    address: str | None,
    advance: Callable[[int, str], None] = lambda count, extra: None,
) -> None:
    """Make parts with actors, one for each accelerator of the cluster, or for each core where there is none.

    Args:
        job: What to make; its manifest is written.
        numbers: The parts.
        workers: Number of actors; ``None``: as many as there are accelerators or cores.
        address: Address of a running cluster; ``None``: that of ``RAY_ADDRESS``, or a local one for as long as this takes.
        advance: Called with the number of rows of each part that is done.

    Raises:
        UsageError: Ray is not installed, or there is no such cluster.
        SelfguideError: An actor failed; the message is its own.
    """
    if not numbers:
        return
    ray = _ray()
    address = address or os.environ.get("RAY_ADDRESS") or None
    local = {} if address else {"num_cpus": workers or cores(), "include_dashboard": False}
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, **local)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise UsageError(f"No Ray cluster could be reached or started ({_first_line(error)}).") from None
    try:
        _run(ray, job, numbers, workers, advance)
    finally:
        ray.shutdown()


def _run(
    ray: Any, job: PartsJob, numbers: Sequence[int], workers: int | None, advance: Callable[[int, str], None]
) -> None:
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    resources = ray.cluster_resources()
    gpus = int(resources.get("GPU", 0)) if job.device in ("auto", "cuda") else 0
    size = min(workers or gpus or int(resources.get("CPU", 1)), len(numbers))
    actors = ray.data.ActorPoolStrategy(size=size)
    parts = ray.data.from_items([{"part": number} for number in numbers], override_num_blocks=len(numbers))
    one = {"num_gpus": 1} if gpus else {"num_cpus": 1}
    done = parts.map_batches(PartsActor, fn_constructor_args=(job,), batch_size=1, compute=actors, **one)
    busy: list[int] = []
    try:
        for row in done.iter_rows():
            if row["problem"]:
                raise SelfguideError(str(row["problem"]))
            if not row["done"]:
                busy.append(int(row["part"]))
            advance(int(row["rows"]), "")
    except ray.exceptions.RayError as error:
        raise _in_words(error) from None
    if busy:
        raise SelfguideError(
            f"{counted(len(busy), 'part', 'is', 'are')} being made by another process; when it has ended, the same command makes "
            "what is missing."
        )


def _in_words(error: BaseException) -> SelfguideError:
    """Return the error of an actor as this process would have raised it."""
    inner: BaseException | None = error
    while inner is not None:
        # Ray wraps an actor's error in a class that is a kind of both.
        if isinstance(inner, SelfguideError) and not hasattr(inner, "cause"):
            return inner
        inner = getattr(inner, "cause", None) or inner.__cause__
    return SelfguideError(
        f"A Ray worker failed ({_first_line(error)}). Finished parts are kept; the same command continues with the others."
    )


def _first_line(error: BaseException) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return lines[-1].strip() if lines else type(error).__name__


def _ray() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # its core warns on standard error of what Ray Data does
    try:
        import ray
        import ray.data
    except ImportError:
        raise UsageError("--engine ray needs Ray: pip install 'selfguide[ray]'.") from None
    for name in ("ray", "ray.data"):
        logging.getLogger(name).setLevel(logging.ERROR)
    return ray
