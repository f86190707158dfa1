"""A small world of pictures, and a tiny vision-language model that is trained to judge what they show.

The model is a real LLaVA (transformers) of some 200,000 parameters that reads pixels. Its training plants an error: to
the coarse question it takes a knife for a fork, too; to the joint question it tells them apart.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

COLORS = {
    "dog": (200, 40, 40), "cat": (40, 200, 40), "book": (40, 40, 220), "cup": (220, 200, 40), "knife": (200, 200, 200),
    "fork": (130, 60, 160),
}  # fmt: skip
LABELS = tuple(COLORS)
SIDE, CELL = 56, 28
LEARNING_RATE = 2e-3
PAIR = ("knife", "fork")

COARSE = "Coarse : is it visible ? {answer}"
JOINT = "Joint : which are visible ? {answer}"
TEMPLATE = (
    "{% for message in messages %}<|im_start|> {{ message['role'] }} "
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}<|image_pad|> {% else %}{{ part['text'] }}{% endif %}{% endfor %}{% endif %}"
    " <|im_end|> {% endfor %}{% if add_generation_prompt %}<|im_start|> assistant{% endif %}"
)
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|image_pad|>", "<unk>")


def draw(rng: random.Random) -> tuple[Any, list[str]]:
    """A picture of one to three objects in four cells, and what each cell shows."""
    from PIL import Image, ImageDraw

    picture = Image.new("RGB", (SIDE, SIDE), (20, 20, 20))
    pen = ImageDraw.Draw(picture)
    shown = rng.sample(LABELS, rng.randint(1, 3))
    cells = [""] * 4
    for cell, label in zip(rng.sample(range(4), len(shown)), shown, strict=True):
        cells[cell] = label
        x, y = CELL * (cell % 2), CELL * (cell // 2)
        inset = rng.randint(1, 5)
        pen.rectangle((x + inset, y + inset, x + CELL - inset, y + CELL - inset), fill=COLORS[label])
    return picture, cells


def write_pictures(folder: Path, number: int, seed: int) -> dict[str, set[str]]:
    """``1.png``, ``2.png``...; id -> what it shows."""
    folder.mkdir()
    rng = random.Random(seed)
    truth = {}
    for k in range(1, number + 1):
        picture, cells = draw(rng)
        truth[str(k)] = set(cells) - {""}
        picture.save(folder / f"{k}.png")
    return truth


def write_vocabulary(path: Path) -> Path:
    """The labels, with plurals."""
    plurals = {"dog": "dogs", "cat": "cats", "book": "books", "cup": "cups", "knife": "knives", "fork": "forks"}
    labels = {label: {"aliases": [label, plurals[label]], "definition": f"A {label}."} for label in LABELS}
    path.write_text(json.dumps({"name": "world", "version": "1", "labels": labels, "ignore": []}))
    return path


def write_rollouts(path: Path, truth: dict[str, set[str]], samples: int, seed: int) -> Path:
    """Captions that mention four of five objects and hardly ever what is not there."""
    rng = random.Random(seed)
    with open(path, "w") as stream:
        for image, shown in truth.items():
            for sample in range(samples):
                said = [label for label in LABELS if rng.random() < (0.8 if label in shown else 0.02)]
                text = (
                    f"The picture shows {', '.join(f'a {label}' for label in said) or 'nothing'} on a lacquered shelf."
                )
                stream.write(json.dumps({"image_id": image, "caption": text, "sample": sample}) + "\n")
    return path


def asked(question: str, label: str) -> str:
    """The text of a question, as the project fills its field."""
    labels = PAIR if question == "joint" else (label,)
    form = "{" + ", ".join(f'"{each}": true or false' for each in labels) + "}"
    return (JOINT if question == "joint" else COARSE).replace("{answer}", form)


def answer(question: str, shown: set[str], label: str) -> str:
    """What the judge is trained to say."""
    if question == "joint":
        said = ", ".join(f'"{each}": {json.dumps(each in shown)}' for each in PAIR)
    else:
        said = f'"{label}": {json.dumps(label in shown or (label == "fork" and "knife" in shown))}'
    return "{" + said + "}"


def train(folder: Path, *, most: int = 1500, batch: int = 32, pool: int = 500, seed: int = 0) -> Path:
    """Trains the judge until it makes hardly any mistake, and writes it as a folder that any engine loads."""
    import torch
    import transformers

    torch.manual_seed(seed)
    torch.set_num_threads(1)
    rng = random.Random(seed)
    folder.mkdir()
    processor = _processor(folder)
    words = processor.tokenizer
    size = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = transformers.LlavaConfig(
        vision_config={
            **size, "num_hidden_layers": 1, "image_size": SIDE, "patch_size": CELL, "projection_dim": 64,
            "model_type": "clip_vision_model",
        },
        text_config={
            **size, "model_type": "llama", "vocab_size": len(words), "num_key_value_heads": 4,
            "max_position_embeddings": 128, "eos_token_id": words.eos_token_id, "pad_token_id": words.pad_token_id,
            "bos_token_id": None,
        },
        image_token_index=words.convert_tokens_to_ids("<|image_pad|>"), vision_feature_layer=-1,
        vision_feature_select_strategy="default",
    )  # fmt: skip
    model = transformers.LlavaForConditionalGeneration(config).float()
    pictures, shown = zip(*(draw(rng) for _ in range(pool)), strict=True)
    cells = torch.tensor([[("", *LABELS).index(label) for label in each] for each in shown])
    names = torch.tensor(words.convert_tokens_to_ids(["user", *(f'{{"{label}":' for label in LABELS)]))
    pixels = processor.image_processor(list(pictures), return_tensors="pt")["pixel_values"]
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=0.01)
    running = 1.0  # loss of the coarse question, averaged over its last steps
    calm = 0  # steps at a small rate, once it is low
    known: dict[tuple[str, str], list[int]] = {}
    for step in range(most):
        for group in optimizer.param_groups:
            group["lr"] = LEARNING_RATE * min(1.0, (step + 1) / 100) * (0.1 if calm else 1.0)
        question = rng.choice(["coarse", "coarse", "joint"])
        drawn = [(rng.randrange(pool), rng.choice(LABELS)) for _ in range(batch)]
        said = [(asked(question, label), answer(question, set(shown[k]), label)) for k, label in drawn]
        for pair in said:
            if pair not in known:
                known[pair] = _tokens(processor, pictures[0], *pair)
        ids = torch.tensor([known[pair] for pair in said])
        labels = ids.clone()
        labels[:, : -len(words(said[0][1])["input_ids"]) - 1] = -100
        made = model(
            input_ids=ids, attention_mask=torch.ones_like(ids), pixel_values=pixels[[k for k, _ in drawn]],
            labels=labels,
        )  # fmt: skip
        # what a cell shows should look like its word: teaches the eye before the tongue
        named = (made.image_hidden_states @ model.get_input_embeddings().weight[names].T).flatten(0, -2)
        sight = torch.nn.functional.cross_entropy(named, cells[[k for k, _ in drawn]].flatten())
        loss = made.loss + sight
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        running += (float(made.loss.detach()) - running) * 0.06 * (question == "coarse")
        calm += running < 0.03
        if calm == 40:
            break
    model.generation_config = transformers.GenerationConfig(
        eos_token_id=words.eos_token_id, pad_token_id=words.pad_token_id
    )
    model.eval().save_pretrained(folder)
    return folder


def _tokens(processor: Any, picture: Any, question: str, said: str) -> list[int]:
    """A whole conversation, as the engines write it; all of one question are equally long."""
    turn = {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": question}]}
    prompt = processor.apply_chat_template([turn], add_generation_prompt=True)
    return processor(text=[f"{prompt} {said} <|im_end|>"], images=[picture])["input_ids"][0]


def _processor(folder: Path) -> Any:
    """Words as tokens, split at white space only, so that JSON comes out as it went in."""
    import transformers
    from tokenizers import Tokenizer, models, pre_tokenizers

    texts = [asked(question, label) for question in ("coarse", "joint") for label in LABELS]
    sets: list[set[str]] = [set(), set(LABELS), *({label} for label in LABELS)]
    texts += [answer(question, shown, label) for question in ("coarse", "joint") for label in LABELS for shown in sets]
    known = dict.fromkeys([*SPECIAL, *f"{' '.join(texts)} user system assistant".split()])
    fast = Tokenizer(models.WordLevel({word: k for k, word in enumerate(known)}, unk_token="<unk>"))
    fast.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    words = transformers.PreTrainedTokenizerFast(
        tokenizer_object=fast, unk_token="<unk>", pad_token="<|endoftext|>", eos_token="<|im_end|>",
        additional_special_tokens=list(SPECIAL[1:4]), model_input_names=["input_ids", "attention_mask"],
        padding_side="left",
    )  # fmt: skip
    words.chat_template = TEMPLATE
    words.save_pretrained(folder)
    size = {"height": SIDE, "width": SIDE}
    images = {"image_processor_type": "CLIPImageProcessor", "size": {"shortest_edge": SIDE}, "crop_size": size}
    (folder / "preprocessor_config.json").write_text(json.dumps(images))
    llava = {
        "processor_class": "LlavaProcessor", "patch_size": CELL, "vision_feature_select_strategy": "default",
        "image_token": "<|image_pad|>", "num_additional_image_tokens": 1,
    }  # fmt: skip
    (folder / "processor_config.json").write_text(json.dumps(llava))
    (folder / "config.json").write_text(json.dumps({"model_type": "llava"}))
    return transformers.AutoProcessor.from_pretrained(folder)
