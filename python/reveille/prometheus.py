# SPDX-License-Identifier: MIT
"""reveille.metrics() for Prometheus, with its official client library (the extra ``metrics``).

Add ``collector()`` to a registry that your program already has. ``serve()`` starts a separate
endpoint. ``write_textfile()`` writes a file for node_exporter's textfile collector.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import Any

try:
    from prometheus_client import (
        CollectorRegistry,
        generate_latest,
        start_http_server,
        write_to_textfile,
    )
    from prometheus_client.core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        Metric,
        SummaryMetricFamily,
    )
except ModuleNotFoundError as error:
    if error.name != "prometheus_client":
        raise
    raise ModuleNotFoundError(
        f"{sys.executable} finds no package prometheus_client: `pip install prometheus_client`, "
        "or use reveille.metrics(), which needs none",
        name="prometheus_client",
    ) from error

from ._context import Path
from ._metrics import StoreMetrics, metrics
from ._sizes import path_bytes


class Collector:
    """Takes a snapshot whenever Prometheus asks."""

    def describe(self) -> Iterable[Metric]:
        """All families without values, so that a registry detects names in use."""
        return list(_families())

    def collect(self) -> Iterable[Metric]:
        """All families with current values."""
        families = _families()
        memory, used, external, backups, seconds, moved, copied, filled, failures = families[:9]
        of_stores = families[9:]
        now = metrics()
        for tag in now.tags:
            memory.add_metric([tag.device, tag.tag, "active"], tag.active_bytes)
            memory.add_metric([tag.device, tag.tag, "paused"], tag.paused_bytes)
        for device in now.devices:
            used.add_metric([device.device], device.used_bytes)
            external.add_metric([device.device], device.external_bytes)
            backups.add_metric([device.device, "host"], device.host_backup_bytes)
            backups.add_metric([device.device, "disk"], device.disk_backup_bytes)
        for each in now.transitions:
            labels = [each.operation, _list_of(each.tags)]
            seconds.add_metric(labels, count_value=each.count, sum_value=each.seconds)
            moved.add_metric(labels, each.bytes)
            copied.add_metric(labels, each.copied_bytes)
            filled.add_metric(labels, each.filled_bytes)
        for failure in now.failures:
            failures.add_metric([failure.operation, failure.error], failure.count)
        for store in now.stores:
            _add_store(store, *of_stores)
        return families


def _list_of(tags: Iterable[str]) -> str:
    """Joins tags with commas. Escapes commas within a tag: `a,b` is not the tags a and b."""
    return ",".join(tag.replace("\\", "\\\\").replace(",", "\\,") for tag in tags)


def _add_store(
    store: StoreMetrics, up: Any, held: Any, budget: Any, refused: Any, refusals: Any
) -> None:
    """Adds a store. If it does not reply, its contents are unknown and have no values."""
    up.add_metric([store.path], int(store.answers))
    held.add_metric([store.path, "own"], store.own_bytes)
    held.add_metric([store.path, "found"], store.own_found_bytes)
    if not store.answers:
        return
    held.add_metric([store.path, "kept"], store.kept_bytes)
    held.add_metric([store.path, "shared"], store.shared_bytes)
    held.add_metric([store.path, "referenced"], store.referenced_bytes)
    if store.budget_bytes > 0:
        budget.add_metric([store.path], store.budget_bytes)
    refused.add_metric([store.path], store.refused_bytes)
    refusals.add_metric([store.path], store.refused_count)


def _families() -> tuple[Any, ...]:
    of_device, of_call, of_store = ["device"], ["operation", "tags"], ["store"]
    return (
        GaugeMetricFamily(
            "reveille_memory_bytes",
            "Memory of tags: active is on the device, paused has addresses alone.",
            labels=["device", "tag", "state"],
        ),
        GaugeMetricFamily(
            "reveille_device_used_bytes",
            "Device memory in use as far as Reveille knows, external included.",
            labels=of_device,
        ),
        GaugeMetricFamily(
            "reveille_device_external_bytes",
            "Device memory in use that no allocation explains.",
            labels=of_device,
        ),
        GaugeMetricFamily(
            "reveille_backup_bytes", "What backups hold now.", labels=["device", "kind"]
        ),
        SummaryMetricFamily(
            "reveille_transition_seconds", "Pauses and resumes that succeeded.", labels=of_call
        ),
        CounterMetricFamily(
            "reveille_transition_bytes",
            "Device memory that pauses gave up and resumes took.",
            labels=of_call,
        ),
        CounterMetricFamily(
            "reveille_transition_copied_bytes",
            "Content that pauses and resumes copied to and from backups.",
            labels=of_call,
        ),
        CounterMetricFamily(
            "reveille_transition_filled_bytes",
            "Content that resumes of replicas had from other ranks.",
            labels=of_call,
        ),
        CounterMetricFamily(
            "reveille_transition_failures",
            "Pauses and resumes that raised an exception, by its class.",
            labels=["operation", "error"],
        ),
        GaugeMetricFamily(
            "reveille_store_up", "Whether the node's store at a path answers.", labels=of_store
        ),
        GaugeMetricFamily(
            "reveille_store_bytes",
            "Host memory in the node's store: kept by it; shared by users, part of kept; "
            "referenced, what users would take without it; own, of this process; found, the part "
            "of own that was there already.",
            labels=["store", "kind"],
        ),
        GaugeMetricFamily(
            "reveille_store_budget_bytes",
            "What all users of the node's store may take together; missing without a limit.",
            labels=of_store,
        ),
        CounterMetricFamily(
            "reveille_store_refused_bytes",
            "What the node's store had no room for, since it was started.",
            labels=of_store,
        ),
        CounterMetricFamily(
            "reveille_store_refusals",
            "How often the node's store had no room, since it was started.",
            labels=of_store,
        ),
    )


def collector() -> Collector:
    """A collector: ``prometheus_client.REGISTRY.register(reveille.prometheus.collector())``."""
    return Collector()


def _registry() -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(Collector())
    return registry


def serve(port: int, address: str = "127.0.0.1") -> tuple[Any, Any]:
    """Starts an HTTP endpoint for only these metrics. Returns the client's server and its thread.

    Raises OSError if the port is in use. "0.0.0.0" allows connections from other machines.
    """
    return start_http_server(port, address, _registry())


def write_textfile(path: Path) -> None:
    """Writes the current metrics to a file, whole or not at all.

    node_exporter reads files named "*.prom". Raises OSError if the file cannot be written; an older
    file stays as it was. Follows a link, which stays. Writes directly to a pipe or a device: the
    client's own function would replace it with a file.
    """
    name = os.path.realpath(os.fsdecode(path_bytes(path, "the file of metrics")))
    if os.path.isfile(name) or not os.path.exists(name):
        write_to_textfile(name, _registry())
    else:
        with open(name, "wb") as there:
            there.write(generate_latest(_registry()))
