# SPDX-License-Identifier: MIT
"""Two Ray actors, each with its own GPU: one trains, and one scores what the other generates."""

import ray
import torch


@ray.remote(num_gpus=1)
class Trainer:
    def __init__(self):
        from gpt import GPT

        self.model = GPT(layers=6).cuda()
        self.optimizer = torch.optim.AdamW(self.model.parameters())

    def train(self, batch):
        with torch.cuda.nvtx.range("stage: train"):
            self.model.loss(torch.randint(self.model.words, (batch, 513), device="cuda")).backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
        return torch.cuda.max_memory_allocated()


@ray.remote(num_gpus=1)
class Scorer:
    def __init__(self):
        from gpt import GPT

        self.model = GPT(layers=2).cuda().bfloat16()

    @torch.no_grad()
    def score(self, batch):
        with torch.cuda.nvtx.range("stage: score"):
            self.model(torch.randint(self.model.words, (batch, 512), device="cuda"))
        return torch.cuda.max_memory_allocated()


ray.init(include_dashboard=False, log_to_driver=True)
trainer, scorer = Trainer.remote(), Scorer.remote()
for _ in range(3):
    print(ray.get([trainer.train.remote(4), scorer.score.remote(16)]))
ray.shutdown()
