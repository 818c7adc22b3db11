# SPDX-License-Identifier: MIT
"""Small tensors in the backward pass, where few operators need to be intercepted.

PyTorch's engine takes the modes of its caller to its own threads. So _reveille_tensors.py intercepts operators of the backward pass,
too. But there, this costs more than the rest of a node of the graph. In a training step, gradients come from weights and activations, so
they are unknown. So a hook before each node looks at its inputs. If all of them are unknown, the hook removes the mode from the thread,
and the engine restores it after the node.

Some nodes always keep the mode: Python's own functions, which may do anything; leaves, since other code may add hooks to them; and nodes
that depend on data that they saved. Hooks of a tensor run before those of its node. Hooks that unpack saved data run inside a node, and
get the mode there.
"""

import collections
import math

import torch
from torch.autograd import graph

# Parts of the names of nodes that depend on saved masks, indices, lengths or zeros, or have several results.
_KEPT = (
    *("Ctc", "Embedding", "Index", "Mask", "Nested", "Pack", "Prod", "prod", "Segment", "Sparse"),
    *("Split", "Unbind"),
)

_length = torch._C._len_torch_dispatch_stack
_at = torch._C._get_dispatch_stack_at
_pop = torch._C._pop_torch_dispatch_stack
_push = torch._C._push_on_torch_dispatch_stack


class Backward:
    """knows(address) tells whether the first byte of a gradient is known. Above the limit, in bytes, no gradient is known."""

    def __init__(self, mode, knows, limit):
        self.mode, self.limit = mode, limit
        self.kept = {}  # by type of node
        self.before = self.make_before(knows, limit)

    def is_alone(self):
        """Whether no other mode is active. Otherwise all modes stay for the whole pass."""
        return _length() == 1 and _at(0) is self.mode

    # ---- Around a node ----

    @staticmethod
    def make_before(knows, limit):
        """Called for most nodes, so all that it needs is local, and the usual case comes first."""
        plain, strided, length, pop = torch.Tensor, torch.strided, _length, _pop

        def before(gradient):
            if type(gradient) is not plain or gradient.layout is not strided:
                return  # None, too: another result of the node has a gradient
            if gradient.nbytes <= limit and (not gradient.is_cuda or knows(gradient.data_ptr())):
                return
            if length():
                pop(None)

        return before

    def unpacking(self, unpack):
        def unpack_with_mode(*args):
            if _length() or torch._C._current_autograd_node() is None:
                return unpack(*args)
            _push(self.mode)
            try:
                return unpack(*args)
            finally:
                _pop(None)

        return unpack_with_mode

    # ---- The whole graph ----

    def hook(self, roots, carrier):
        """Adds the hooks, through the carrier's dictionary."""
        keep, nodes, fed = set(), set(), {}
        left = [each.node if isinstance(each, graph.GradientEdge) else each.grad_fn for each in roots]
        while left:
            node = left.pop()
            if node is None or node in nodes:
                continue
            nodes.add(node)
            following = node.next_functions
            if not following or self.keeps(node):
                keep.add(node)
            for edge in following:
                if edge[0] is None:
                    continue
                if edge in fed and not self.is_large(edge):
                    keep.update((fed[edge], node))  # part of the sum may be known
                fed[edge] = node
                left.append(edge[0])
        for node in nodes - keep:
            node._register_hook_dict(carrier)

    def is_large(self, edge):
        into, number = edge
        kind = into._input_metadata[number]
        return math.prod(kind.shape) * kind.dtype.itemsize > self.limit

    def keeps(self, node):
        """Whether operators of the node are intercepted regardless of its inputs."""
        kind = type(node)
        kept = self.kept.get(kind)
        if kept is None:
            own, name = isinstance(node, torch._C._FunctionBase), node.name()
            kept = own or kind.__name__ not in name or any(part in name for part in _KEPT)
            self.kept[kind] = kept
        return kept

    def run(self, engine):
        def run_with_hooks(roots, *args, **kwargs):
            if not self.is_alone() or torch._C._functorch.peek_interpreter_stack() is not None:
                return engine(roots, *args, **kwargs)
            carrier = torch.empty(0, device="cpu")
            hooks = carrier._backward_hooks = collections.OrderedDict({0: self.before})
            self.hook(roots, carrier)
            try:
                return engine(roots, *args, **kwargs)
            finally:
                hooks.clear()

        return run_with_hooks


def begin(mode, knows, limit):
    backward = Backward(mode, knows, limit)
    torch.autograd._engine_run_backward = backward.run(torch.autograd._engine_run_backward)
    make = graph.saved_tensors_hooks.__init__

    def make_with_mode(hooks, pack_hook, unpack_hook):
        make(hooks, pack_hook, backward.unpacking(unpack_hook))

    graph.saved_tensors_hooks.__init__ = make_with_mode
