# SPDX-License-Identifier: MIT
"""Language models for which transformers has no class with a head. They are part of the class that also reads images."""

OUTER = {f"{name}_text": name for name in ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "glm4v", "glm4v_moe")}


def enclosed(fields):
    """The config of that class around a language model's config. Other configs are unchanged."""
    outer = OUTER.get(fields["model_type"])
    if outer is None:
        return fields
    return {"model_type": outer, "text_config": fields, "tie_word_embeddings": fields["tie_word_embeddings"]}
