# SPDX-License-Identifier: MIT
"""An answer of a worker that is not there yet."""

from abc import ABC, abstractmethod


class AsyncModelRunnerOutput(ABC):
    @abstractmethod
    def get_output(self): ...

    @abstractmethod
    def get_kv_connector_output(self): ...
