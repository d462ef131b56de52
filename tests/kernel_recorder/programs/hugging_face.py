"""A Llama by Hugging Face's Trainer, then text from it."""

import tempfile

import torch
from digest import print_digest
from transformers import LlamaConfig, LlamaForCausalLM, PrinterCallback, Trainer, TrainingArguments

torch.manual_seed(11)
sizes = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
model = LlamaForCausalLM(LlamaConfig(**sizes, max_position_embeddings=64))
data = [{"input_ids": row, "labels": row} for row in torch.randint(64, (64, 16))]
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        folder, per_device_train_batch_size=2, gradient_accumulation_steps=2, max_steps=14, report_to=[],
        use_cpu=not torch.cuda.is_available(), save_strategy="no", logging_strategy="no", disable_tqdm=True,
    )  # fmt: skip
    trainer = Trainer(model, arguments, train_dataset=data)
    trainer.remove_callback(PrinterCallback)  # which prints times
    print(f"{trainer.train().training_loss:.6f}")
print_digest(model)
