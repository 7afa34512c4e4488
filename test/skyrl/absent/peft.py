"""Stands where peft would: SkyRL's JAX backend has it write one file that says what an adapter is."""

import json
import os


class LoraConfig:
    def __init__(self, base_model_name_or_path, r, lora_alpha):
        self.members = {
            "base_model_name_or_path": base_model_name_or_path, "bias": "none", "lora_alpha": lora_alpha, "lora_dropout": 0.0,
            "peft_type": "LORA", "r": r, "target_modules": None, "task_type": "CAUSAL_LM",
        }

    def save_pretrained(self, directory):
        with open(os.path.join(directory, "adapter_config.json"), "w", encoding="utf-8") as file:
            json.dump(self.members, file, indent=2)
