# SPDX-License-Identifier: MIT
"""reveille.metrics() for Prometheus, by its official client library: ``reveille[metrics]``.

``collector()`` goes into a registry that a program has already. ``serve()`` is an endpoint of its
own, and ``write_textfile()`` a file for the textfile collector of node_exporter.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import Any

try:
    from prometheus_client import CollectorRegistry, start_http_server, write_to_textfile
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
        f"{sys.executable} finds no package prometheus_client: install reveille[metrics], or use "
        "reveille.metrics(), which needs none",
        name="prometheus_client",
    ) from error

from ._context import Path
from ._metrics import metrics
from ._sizes import path_bytes


class Collector:
    """Takes a snapshot each time that Prometheus asks."""

    def describe(self) -> Iterable[Metric]:
        """Every family, without values: a registry then sees names that are taken."""
        return list(_families())

    def collect(self) -> Iterable[Metric]:
        """Every family, with the values of now."""
        memory, used, external, backups, seconds, moved, copied, failures = families = _families()
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
            labels = [each.operation, ",".join(each.tags)]
            seconds.add_metric(labels, count_value=each.count, sum_value=each.seconds)
            moved.add_metric(labels, each.bytes)
            copied.add_metric(labels, each.copied_bytes)
        for failure in now.failures:
            failures.add_metric([failure.operation, failure.error], failure.count)
        return families


def _families() -> tuple[Any, ...]:
    of_device, of_call = ["device"], ["operation", "tags"]
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
            "reveille_transition_failures",
            "Pauses and resumes that raised an exception, by its class.",
            labels=["operation", "error"],
        ),
    )


def collector() -> Collector:
    """For a registry: ``prometheus_client.REGISTRY.register(reveille.prometheus.collector())``."""
    return Collector()


def _registry() -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(Collector())
    return registry


def serve(port: int, address: str = "127.0.0.1") -> tuple[Any, Any]:
    """An HTTP endpoint of these metrics alone; answers the client's server and its thread.

    Raises OSError if the port is taken. "0.0.0.0" lets other machines in.
    """
    return start_http_server(port, address, _registry())


def write_textfile(path: Path) -> None:
    """Writes the metrics of now into a file, whole or not at all.

    node_exporter reads files named "*.prom". Raises OSError if it cannot be written: an
    older file stays as it was.
    """
    write_to_textfile(os.fsdecode(path_bytes(path, "the file of metrics")), _registry())
