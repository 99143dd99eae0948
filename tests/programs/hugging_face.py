"""A stock `Trainer` script: everything but the lines with the page and with Progress is what anybody writes."""

import sys
from pathlib import Path

from contract.page import page_from_environment

page_from_environment()  # before the heavy imports: from here on it is known to start

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

from trainer.huggingface import Progress


class Numbers(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 4096

    def __getitem__(self, index: int) -> dict:
        tokens = (torch.arange(16) * 7 + index) % 64
        return {"input_ids": tokens, "labels": tokens}


out = Path(sys.argv[1])
model = LlamaForCausalLM(
    LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
    )
)
arguments = TrainingArguments(
    output_dir=str(out),
    max_steps=int(sys.argv[2]),
    per_device_train_batch_size=2,
    save_steps=10,
    logging_steps=5,
    use_cpu=True,
    report_to=[],
    disable_tqdm=True,
    dataloader_pin_memory=False,
)
trainer = Trainer(model=model, args=arguments, train_dataset=Numbers(), callbacks=[Progress()])
trainer.train(resume_from_checkpoint=get_last_checkpoint(out) if out.is_dir() else None)
