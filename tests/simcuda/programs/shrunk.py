# SPDX-License-Identifier: MIT
"""A model's config with only its first layers and experts, and all widths unchanged: it fits where the whole model does not."""

EXPERTS = ("num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts")
NUMBERS = ("attn_layer_indices", "full_attn_idxs")  # of layers
SIGNS = "hybrid_override_pattern"


def shrunk(fields, layers=None, experts=None):
    """None: unchanged. Also cuts lists with an item for each layer, and Nemotron-H's string of signs."""
    if "text_config" in fields and (layers or experts):
        return {**fields, "text_config": shrunk(fields["text_config"], layers, experts)}
    if not layers and not experts:
        return fields
    count = fields["num_hidden_layers"]
    layers = layers or count
    cut = {key: value[:layers] for key, value in fields.items() if isinstance(value, list) and len(value) == count}
    cut.update((key, [number for number in fields[key] if number < layers]) for key in NUMBERS if key in fields)
    if SIGNS in fields:
        cut[SIGNS] = fields[SIGNS][:layers]
    fewer = {key: experts for key in EXPERTS if experts and key in fields}
    return {**fields, **cut, **fewer, "num_hidden_layers": layers}
