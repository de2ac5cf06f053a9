"""The workload on specforge 0.2.0: its wrapper model, strategy, trainer core and optimiser; one JSON line a point.

    python specforge_step.py [--steps N] [S/A/B]...

Its own command reads a model folder and feature files first; here the features lie in memory, so that only the step is compared.
"""

import argparse

import workload  # first: settles the threads before torch is imported
import measure

import torch
from specforge.algorithms.common.dflash_family_model import OnlineDFlashModel
from specforge.modeling.draft.dflash import DFlashDraftModel
from specforge.optimizer import BF16Optimizer
from specforge.runtime.contracts import TrainBatch
from specforge.training.controller import TrainerCore
from specforge.training.strategies.base import DFlashTrainStrategy


class OneProcess:
    """What TrainerCore asks of a backend, without FSDP: NO_SHARD in one process does the same."""

    def __init__(self, model, optimizer):
        self.model, self.optimizer = model, optimizer

    def backward(self, loss, is_boundary):
        loss.backward()

    def scale_gradients(self, scale):
        for parameter in self.model.parameters():
            if parameter.grad is not None:
                parameter.grad.mul_(scale)

    def step(self):
        return self.optimizer.step()


def build(point):
    config = workload.drafter_config(
        num_target_layers=workload.TARGET_LAYERS, block_size=point.block,
        dflash_config={"target_layer_ids": workload.TAPS, "mask_token_id": workload.MASK_TOKEN})
    drafter = DFlashDraftModel(config).float()
    embedding = torch.nn.Embedding.from_pretrained(workload.target_table())
    head = torch.nn.Linear(workload.HIDDEN, workload.VOCABULARY, bias=False, device="meta")
    head.weight = embedding.weight  # tied: one tensor for both, as its loader does it
    model = OnlineDFlashModel(
        drafter, head, embedding, workload.MASK_TOKEN, block_size=point.block, attention_backend="sdpa", num_anchors=point.anchors)
    return model.train()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("points", nargs="*", default=workload.DEFAULT_POINTS)
    parser.add_argument("--steps", type=int, default=3)
    arguments = parser.parse_args()
    imports = measure.imported_after()
    torch.manual_seed(1)
    for point in map(workload.parse_point, arguments.points):
        model = build(point)
        facts = workload.check_size(model.parameters()) | {"imports": imports, "loss": "cross-entropy with data labels"}
        optimizer = BF16Optimizer(model.draft_model, lr=1e-4, total_steps=1000)
        core = TrainerCore(DFlashTrainStrategy(model), OneProcess(model, optimizer))
        tokens, taps, _ = workload.features(point)
        batch = TrainBatch(["row"], "dflash", {"input_ids": tokens, "hidden_states": taps, "loss_mask": torch.ones_like(tokens)})
        measure.report("specforge", point, lambda: core.train_step(batch), arguments.steps, facts)


if __name__ == "__main__":
    main()
