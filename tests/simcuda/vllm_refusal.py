# SPDX-License-Identifier: MIT
"""The wake-up of a whole vLLM engine is refused, under `reveille run`, and the engine stays usable.

Each rank's card is full in turn, at both levels of sleep, for a wake-up of everything and of the weights only. The caller of
LLM.wake_up() gets the cause and the remedy, twice, and no rank's memory has changed. When there is room, the same call succeeds, and the
engine generates.

    python vllm_refusal.py MODEL [--gpus N]      MODEL: small, 7b
"""
import argparse

from vllm_sleep import GIB, MODELS, Engine, check

MARK = 3.0
REMEDY = "free memory there"


def refuse(engine, tags, rank):
    """A wake-up fails, and reports why. Nothing has changed."""
    before = engine.ask("memory")
    try:
        engine.llm.wake_up(tags=tags)
    except Exception as error:
        text = str(error)
        if engine.ranks > 1:
            assert f"no rank has moved: rank {rank} of {engine.ranks} cannot wake_up(" in text, text
        assert "resume of " in text and f" free on cuda:{rank}" in text, text
        assert REMEDY in text, text
    else:
        raise AssertionError("it woke up without room")
    check(engine.ask("memory"), before, "memory after a wake-up without room")
    check(engine.llm.llm_engine.is_sleeping(), True, "is_sleeping() after it")


def cycle(engine, level, tags, rank):
    """Sleeps, is refused twice, wakes up, and works."""
    engine.ask("mark", MARK)
    engine.sleep(level)
    engine.ask("occupy", rank, GIB // 4)
    refuse(engine, tags, rank)
    refuse(engine, tags, rank)
    engine.ask("occupy", None, 0)
    engine.wake(tags)
    if tags is not None:
        engine.wake(["kv_cache"])
    if level == 1:
        check(engine.ask("mark", None), [[MARK] * 4] * engine.ranks, "a weight after refusals")
    check(engine.llm.llm_engine.is_sleeping(), False, "is_sleeping() in the end")
    engine.generate()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("--gpus", type=int, default=1)
    arguments = parser.parse_args()
    engine = Engine(argparse.Namespace(**vars(arguments), graphs=False, backend="reveille", communicators=arguments.gpus > 1))
    engine.generate()
    addresses = engine.ask("addresses")
    for level in (1, 2):
        for tags in (None, ["weights"]):
            for rank in range(engine.ranks):
                cycle(engine, level, tags, rank)
                print(f"level {level}, {tags or 'all'}, rank {rank} of {engine.ranks}: refused twice, awake", flush=True)
    check(engine.ask("addresses"), addresses, "addresses after all")
    print("all is as expected")


if __name__ == "__main__":
    main()
