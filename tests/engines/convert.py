"""The demo's model for servers that read no GGUF file: a folder with its weights dequantised, and the demo's template.

`python convert.py MODEL.gguf TEMPLATE.jinja FOLDER`, in the engines' own environment.
"""

import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig


def main(model: Path, template: Path, folder: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(model.parent, gguf_file=model.name)
    tokenizer.chat_template = template.read_text("utf-8")
    read = AutoModelForCausalLM.from_pretrained(
        model.parent, gguf_file=model.name, dtype=torch.bfloat16, quantization_config=GgufConfig(dequantize=True)
    )
    # As models that are made for chat have it: without it transformers takes no temperature.
    read.generation_config.do_sample = True
    read.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
