"""The workload on speculators 0.9.0: its drafter and optimiser in the order of Trainer.train_epoch; one JSON line a point.

    python speculators_step.py [--steps N] [--loss ce|kl_div] [S/A/B]...

Its trainer asks for a GPU, so the calls of one iteration are made here. Its default loss is kl_div; `ce` is the one that draftsmith's compares
with, and the cheaper one.
"""

import argparse
import types

import workload  # first: settles the threads before torch is imported
import measure

import torch
from speculators.models.dflash import DFlashSpeculatorConfig
from speculators.models.dflash.core import DFlashDraftModel
from speculators.train.optimizers import build_optimizers
from transformers import get_linear_schedule_with_warmup


def build(point):
    config = DFlashSpeculatorConfig(
        transformer_layer_config=workload.drafter_config(), draft_vocab_size=workload.VOCABULARY, block_size=point.block,
        aux_hidden_state_layer_ids=workload.TAPS, mask_token_id=workload.MASK_TOKEN)
    model = DFlashDraftModel(config).float()
    table = workload.target_table()
    for part in (model.embed_tokens, model.lm_head, model.verifier_lm_head):  # three copies, as its loader makes them
        part.weight.data.copy_(table)
    return model.train()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("points", nargs="*", default=workload.DEFAULT_POINTS)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--loss", choices=["ce", "kl_div"], default="ce")
    arguments = parser.parse_args()
    imports = measure.imported_after()
    torch.manual_seed(1)
    for point in map(workload.parse_point, arguments.points):
        model = build(point)
        facts = workload.check_size(model.parameters()) | {"imports": imports, "loss": f"{arguments.loss} against the teacher"}
        optimizers = build_optimizers(model, types.SimpleNamespace(optimizer="adamw", lr=1e-4, weight_decay=0.01))
        schedulers = [get_linear_schedule_with_warmup(o, 10, 1000) for o in optimizers]
        keywords, _ = DFlashDraftModel.get_trainer_kwargs(loss_fn=arguments.loss, loss_implementation="eager", max_anchors=point.anchors)
        tokens, taps, last = workload.features(point)
        batch = dict(
            input_ids=tokens, hidden_states=taps, verifier_last_hidden_states=last, loss_mask=torch.ones_like(tokens),
            document_ids=torch.zeros_like(tokens), position_ids=torch.arange(point.tokens)[None])

        def step():
            _, loss, metrics = model(**batch, **keywords)
            for optimizer in optimizers:
                optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            for optimizer, scheduler in zip(optimizers, schedulers):
                optimizer.step()
                scheduler.step()
            return {name: value.item() for name, value in metrics.items()}

        measure.report(f"speculators {arguments.loss}", point, step, arguments.steps, facts)


if __name__ == "__main__":
    main()
