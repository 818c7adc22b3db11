# SPDX-License-Identifier: MIT
"""Where Reveille finds the store of all ranks, and process groups with their communicators."""


class _World:
    def __init__(self):
        self.rank, self.size, self.store = 0, 1, None
        self.pg_map = {}
        self.pg_group_ranks = {}


_world = _World()


def _get_default_store():
    return _world.store


class Group:
    """A process group of NCCL that was used; of gloo, if it has no communicator."""

    def __init__(self, pointer, ranks):
        self.pointer = pointer
        _world.pg_map[self] = ("nccl", None)
        _world.pg_group_ranks[self] = {rank: i for i, rank in enumerate(ranks)}

    def _get_backend(self, _device):
        if self.pointer is None:
            raise RuntimeError("No backend type associated with device type cuda")
        return self

    def _comm_ptr(self):
        return self.pointer
