# SPDX-License-Identifier: MIT
"""Language models that transformers has no class with a head for: they stand in the class that also reads images."""

OUTER = {f"{name}_text": name for name in ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "glm4v", "glm4v_moe")}


def enclosed(fields):
    """The config of that class around a language model's; any other config as it is."""
    outer = OUTER.get(fields["model_type"])
    if outer is None:
        return fields
    return {"model_type": outer, "text_config": fields, "tie_word_embeddings": fields["tie_word_embeddings"]}
