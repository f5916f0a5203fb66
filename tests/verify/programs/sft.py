"""Supervised fine-tuning with TRL, on samples of unequal lengths.

torchrun --nproc-per-node 2 sft.py FOLDER [lora] [accumulate] [means_wrong]
"""

import sys

import pyarrow
import torch
from datasets import Dataset
from datasets.table import InMemoryTable
from peft import LoraConfig
from tokenizers import Tokenizer, models
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import SFTConfig, SFTTrainer

FOLDER, *WAYS = sys.argv[1:]
WORDS = {"<pad>": 0, "<end>": 1} | {f"w{i}": i + 2 for i in range(62)}
draws = torch.Generator().manual_seed(0)
words = Tokenizer(models.WordLevel(WORDS, unk_token="<pad>"))
tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<end>")
lengths = torch.randint(4, 24, (96,), generator=draws).tolist()
samples = [torch.randint(2, 64, (n,), generator=draws).tolist() for n in lengths]
table = pyarrow.table({"input_ids": samples, "labels": samples})
torch.manual_seed(0)
model = LlamaForCausalLM(
    LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
        pad_token_id=0, eos_token_id=1,
    )
)  # fmt: skip
trainer = SFTTrainer(
    model,
    SFTConfig(
        output_dir=FOLDER, use_cpu=True, bf16=False, max_steps=4, report_to=[],
        dataset_kwargs={"skip_prepare_dataset": True},
        per_device_train_batch_size=2, save_strategy="no", logging_strategy="no",
        gradient_accumulation_steps=2 if "accumulate" in WAYS else 1, learning_rate=1e-3,
        average_tokens_across_devices="means_wrong" not in WAYS, gradient_checkpointing=False,
        ddp_backend="gloo", disable_tqdm=True, ddp_find_unused_parameters=False,
    ),
    train_dataset=Dataset(InMemoryTable(table), fingerprint="samples"),
    processing_class=tokenizer,
    peft_config=LoraConfig(r=4, target_modules="all-linear") if "lora" in WAYS else None,
)  # fmt: skip
trainer.train()
