# SPDX-License-Identifier: MIT
"""Results of the calls, as frozen dataclasses. Sizes are bytes, times nanoseconds."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

from . import _c
from ._sizes import format_size

Result = TypeVar("Result")


def from_struct(cls: type[Result], struct: ctypes.Structure, **given: Any) -> Result:
    """Makes a dataclass from the fields of a struct with equal names, and from given values."""
    values = dict(given)
    for each in fields(cls):  # type: ignore[arg-type]
        if each.name not in values:
            value = getattr(struct, each.name)
            values[each.name] = _c.text(value) if isinstance(value, bytes) else value
    return cls(**values)


@dataclass(frozen=True)
class Device:
    """A device of a context."""

    index: int
    name: str
    capacity_bytes: int
    granularity_bytes: int
    simulated: bool
    overcommit: bool


@dataclass(frozen=True)
class Profile:
    """A kind of GPU that can be simulated."""

    name: str
    description: str
    source: str
    capacity_bytes: int
    granularity_bytes: int
    capacity_doubt_bytes: int


@dataclass(frozen=True)
class Allocation:
    """One allocation. backup is "none", "host" or "disk"; state "active", "paused", "lost", ..."""

    addr: int
    size_bytes: int
    id: int
    tag: str
    device: int
    backup: str
    state: str
    access: tuple[int, ...]
    backup_bytes: int


@dataclass(frozen=True)
class Forecast:
    """What a pause or resume would do now, for the device with the least room. True if it fits."""

    fits: bool
    device: int
    needed_bytes: int
    free_bytes: int
    host_bytes: int
    disk_bytes: int
    allocation_count: int
    time_ns: int

    def __bool__(self) -> bool:
        return self.fits

    def __str__(self) -> str:
        verdict = "fits" if self.fits else "does not fit"
        return (
            f"{verdict}: needs {format_size(self.needed_bytes)}, {format_size(self.free_bytes)} "
            f"free on device {self.device}, about {self.time_ns / 1e9:.3f} s"
        )


@dataclass(frozen=True)
class Oom:
    """The first request on an overcommitted device that a real device would have refused."""

    stage: str
    external: bool
    tag: str
    requested_bytes: int
    free_bytes: int


@dataclass(frozen=True)
class DeviceStats:
    """Counters of a device. include/reveille/stats.h describes each."""

    index: int
    capacity_bytes: int
    used_bytes: int
    external_bytes: int
    kept_bytes: int
    stranded_bytes: int
    peak_bytes: int
    host_backup_bytes: int
    host_peak_bytes: int
    disk_backup_bytes: int
    disk_peak_bytes: int
    allocation_count: int
    alloc_calls: int
    free_calls: int
    pauses: int
    resumes: int
    backup_out_bytes: int
    backup_in_bytes: int
    transition_ns: int
    imported_bytes: int
    filled_in_bytes: int
    prepared_bytes: int
    peak_stage: str
    oom: Oom | None


def state_of(active_bytes: int, paused_bytes: int) -> str:
    """The state of a tag as one word."""
    if active_bytes and paused_bytes:
        return "mixed"
    return "paused" if paused_bytes else "active" if active_bytes else "empty"


@dataclass(frozen=True)
class TagStats:
    """Counters of a tag, over all devices. peak_bytes is the sum of the devices' peaks."""

    active_bytes: int
    paused_bytes: int
    peak_bytes: int
    host_backup_bytes: int
    allocation_count: int
    pauses: int
    resumes: int

    @property
    def state(self) -> str:
        """ "active", "paused", "mixed" if part of it is paused, or "empty"."""
        return state_of(self.active_bytes, self.paused_bytes)

    def plus(self, other: TagStats) -> TagStats:
        """The sum of both."""
        names = (each.name for each in fields(self))
        return TagStats(**{name: getattr(self, name) + getattr(other, name) for name in names})


@dataclass(frozen=True)
class StageStats:
    """One stage on one device. A stage that occurs again is named "name#2"."""

    name: str
    mark: str
    device: int
    step: int
    peak_bytes: int
    end_bytes: int
    free_at_peak_bytes: int
    host_bytes: int
    transition_ns: int


@dataclass(frozen=True)
class Holder:
    """A holder at the peak of a stage. process "external": memory that no allocation explains."""

    process: str
    tag: str
    bytes: int

    def __str__(self) -> str:
        name = f"{self.process}/{self.tag}" if self.tag else self.process
        return f"{name} {format_size(self.bytes)}"


@dataclass(frozen=True)
class HostMemory:
    """The host memory of backups."""

    used_bytes: int
    pinned_bytes: int
    pageable_bytes: int
    staged_copy_bytes: int
    registering_refused: int
    store_bytes: int
    store_found_bytes: int


@dataclass(frozen=True)
class Stats:
    """All counters of a context at one moment."""

    clock_ns: int
    devices: tuple[DeviceStats, ...]
    tags: dict[str, TagStats]
    stages: tuple[StageStats, ...]
    host: HostMemory | None


@dataclass(frozen=True)
class ReplayOom:
    """The first event of a replay that does not fit, and where it is in the trace."""

    file: str
    line: int
    stage: str
    process: str
    tag: str
    requested_bytes: int
    free_bytes: int


@dataclass(frozen=True)
class ReplayStage(StageStats):
    """A stage of a replay.

    measured_*: readings of a real device during the replay; None on a simulated one
    read_bytes: bytes really in use at the stage's last sample in the trace
    predicted_bytes: the replay's value for that instant; both are None without a sample
    """

    over_budget: bool
    holders: tuple[Holder, ...]
    measured_peak_bytes: int | None
    measured_end_bytes: int | None
    read_bytes: int | None
    predicted_bytes: int | None


@dataclass(frozen=True)
class ReplayDevice:
    """A device of a replay. profile is None if the device was given as a size."""

    device: int
    profile: str | None
    capacity_bytes: int
    peak_bytes: int
    peak_stage: str
    fits: bool
    within_budgets: bool
    oom: ReplayOom | None
    sample_count: int
    worst_sample_difference_bytes: int
    stages: tuple[ReplayStage, ...]

    def stage(self, name: str) -> ReplayStage:
        """The first stage of this name."""
        for each in self.stages:
            if each.name == name:
                return each
        raise KeyError(f"no stage {name!r}; there are {', '.join(s.name for s in self.stages)}")


@dataclass(frozen=True)
class Verdict:
    """The verdict on a run. str() gives it in the words of `reveille run`.

    kind: "fits", "tight", "survived refusals", "out of memory", "no refusals recorded", "cut off",
    "failed" or "no gpu". refused_count: requests that were refused, and not granted when retried.
    where: the line of the program with the request that the verdict names, such as "train.py:23";
    "" if unknown.
    """

    kind: str
    text: str
    spare_bytes: int
    headroom_bytes: int
    refused_count: int
    process: str
    tag: str
    stage: str
    where: str
    requested_bytes: int
    free_bytes: int

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Replay:
    """The result of a replay. json: the output of `reveille replay --json`."""

    event_count: int
    skipped_events: int
    devices: tuple[ReplayDevice, ...]
    verdict: Verdict
    json: str = field(repr=False)

    @property
    def fits(self) -> bool:
        """Whether every device always has enough memory, and no recorded program failed."""
        return all(device.fits for device in self.devices)

    @property
    def within_budgets(self) -> bool:
        """Whether every stage is within its budget."""
        return all(device.within_budgets for device in self.devices)


@dataclass(frozen=True)
class Setting:
    """A setting of a model's step. values is None for a switch, which is True or False."""

    name: str
    group: str
    values: str | None
    expected: str
    usual: str
    help: str


@dataclass(frozen=True)
class Term:
    """A group of a step's memory. doubt: "none", "assumed" (from other programs) or "left out"."""

    name: str
    bytes: int
    allocation_count: int
    doubt: str


@dataclass(frozen=True)
class ModelStep:
    """The memory that a step of a model needs on a GPU."""

    type: str
    parameter_count: int
    token_count: int
    terms: tuple[Term, ...]
    replay: Replay

    @property
    def fits(self) -> bool:
        """Whether the device has enough memory at every instant."""
        return self.replay.fits

    def term(self, name: str) -> Term:
        """The term with this name, with 0 bytes if the step does not have it."""
        found = [each for each in self.terms if each.name == name]
        return found[0] if found else Term(name, 0, 0, "none")


@dataclass(frozen=True)
class Plan:
    """What fits, and which stage limits it. include/reveille/plan.h describes each number.

    Attributes:
        state: "fits", "tight" (it leaves less than the headroom) or "does not fit"
        largest_bytes: largest size of the tag; None: any size fits
        mem_fraction: the fraction that gives an engine the largest KV cache; None: unknown
        why: why it does not fit; "": the stage shows it
    """

    state: str
    gpu_count: int
    device: int
    stage: str
    capacity_bytes: int
    peak_bytes: int
    host_bytes: int
    transition_ns: int
    largest_bytes: int | None
    traced_bytes: int
    headroom_bytes: int
    capacity_doubt_bytes: int
    assumed_bytes: int
    mem_fraction: float | None
    why: str

    @property
    def fits(self) -> bool:
        """Whether it fits and leaves the headroom."""
        return self.state == "fits"


def holder_of(struct: _c.Holder) -> Holder:
    """A holder. Its process is "external" if C has none, and its tag "" if there is none."""
    return Holder(
        process="external" if struct.process is None else _c.some_text(struct.process),
        tag=_c.some_text(struct.tag),
        bytes=struct.bytes,
    )
