"""Makes a tiny Qwen 3 with random weights, a tokenizer and a chat template, as a folder that Hugging Face's libraries open.

    python model.py DIR

Nothing is downloaded, and the files are the same every time.
"""

import json
import sys
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

LAYERS, DIM, HEADS, KV_HEADS, HEAD_DIM, FF, CONTEXT = 2, 64, 4, 2, 16, 128, 512

# What the tokenizer learns its merges from: enough for a few words to be tokens.
CORPUS = [
    "You are an assistant. The user asks and the assistant answers the question with a word.",
    "Which letters are in the answer? Name the letters, then the numbers: one, two, three, four.",
    "The system tells the user what the tool said; the tool is called with a name and arguments.",
] * 4

# How GPT-4's family, and Qwen, cut a text before merging.
SPLIT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MARKS = ["<tool_call>", "</tool_call>", "<think>", "</think>"]

# The form of Qwen 3's conversations, in short.
TEMPLATE = """\
{%- if tools %}
{{- '<|im_start|>system\\n' }}
{%- if messages[0].role == 'system' %}
{{- messages[0].content + '\\n\\n' }}
{%- endif %}
{{- '# Tools\\n' }}
{%- for tool in tools %}
{{- tool | tojson + '\\n' }}
{%- endfor %}
{{- 'Call them as <tool_call>\\n{"name": …, "arguments": …}\\n</tool_call><|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
{%- set content = message.content if message.content is string else '' %}
{%- if message.role == 'tool' %}
{{- '<|im_start|>user\\n<tool_response>\\n' + content + '\\n</tool_response><|im_end|>\\n' }}
{%- elif message.role == 'assistant' %}
{{- '<|im_start|>assistant\\n' + content }}
{%- for call in message.tool_calls or [] %}
{{- '<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' }}
{{- call.function.arguments if call.function.arguments is string else call.function.arguments | tojson }}
{{- '}\\n</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>\\n' }}
{%- elif not (tools and loop.first and message.role == 'system') %}
{{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>\\n' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""


def tokenizer():
    tok = Tokenizer(models.BPE(byte_fallback=False))
    tok.normalizer = normalizers.NFC()
    tok.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(SPLIT), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])
    tok.decoder = decoders.ByteLevel()
    tok.train_from_iterator(CORPUS, trainers.BpeTrainer(
        vocab_size=300, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), special_tokens=[], show_progress=False,
    ))
    tok.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in SPECIAL])
    tok.add_tokens([AddedToken(text, special=False, normalized=False) for text in MARKS])
    return tok


def weights(vocab):
    rng = np.random.default_rng(7)

    def matrix(rows, columns):
        return (rng.standard_normal((rows, columns)) / np.sqrt(columns)).astype(np.float32)

    def ones(n):
        return np.ones(n, np.float32)

    tensors = {"model.embed_tokens.weight": matrix(vocab, DIM), "model.norm.weight": ones(DIM), "lm_head.weight": matrix(vocab, DIM)}
    for i in range(LAYERS):
        layer = f"model.layers.{i}."
        tensors |= {
            layer + "input_layernorm.weight": ones(DIM),
            layer + "post_attention_layernorm.weight": ones(DIM),
            layer + "self_attn.q_proj.weight": matrix(HEADS * HEAD_DIM, DIM),
            layer + "self_attn.k_proj.weight": matrix(KV_HEADS * HEAD_DIM, DIM),
            layer + "self_attn.v_proj.weight": matrix(KV_HEADS * HEAD_DIM, DIM),
            layer + "self_attn.o_proj.weight": matrix(DIM, HEADS * HEAD_DIM),
            layer + "self_attn.q_norm.weight": ones(HEAD_DIM),
            layer + "self_attn.k_norm.weight": ones(HEAD_DIM),
            layer + "mlp.gate_proj.weight": matrix(FF, DIM),
            layer + "mlp.up_proj.weight": matrix(FF, DIM),
            layer + "mlp.down_proj.weight": matrix(DIM, FF),
        }
    return tensors


def main():
    directory = Path(sys.argv[1])
    directory.mkdir(parents=True, exist_ok=True)
    tok = tokenizer()
    tok.save(str(directory / "tokenizer.json"))
    end = tok.token_to_id("<|im_end|>")
    files = {
        "config.json": {
            "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "dtype": "float32",
            "vocab_size": tok.get_vocab_size(), "hidden_size": DIM, "intermediate_size": FF, "num_hidden_layers": LAYERS,
            "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "head_dim": HEAD_DIM, "hidden_act": "silu",
            "max_position_embeddings": CONTEXT, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "attention_bias": False,
            "tie_word_embeddings": False, "eos_token_id": end, "bos_token_id": None,
        },
        "generation_config.json": {"eos_token_id": end},
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>",
            "model_max_length": CONTEXT, "chat_template": TEMPLATE,
        },
    }
    for name, content in files.items():
        (directory / name).write_text(json.dumps(content, indent=2, ensure_ascii=False), encoding="utf-8")
    save_file(weights(tok.get_vocab_size()), directory / "model.safetensors", metadata={"format": "pt"})


if __name__ == "__main__":
    main()
