"""The world of the toy: drawn pictures, benchmarks about them, a judge and a policy that are trained to see them.

    python toy.py make FOLDER            # pictures, annotations, benchmarks, and two models of 0.2 million parameters
    python toy.py people PAIRS.csv ANSWERS.csv --shown FOLDER/shown.json    # the people of quality control

The judge is a real LLaVA and the policy a real Qwen2.5-VL (transformers), both trained here in seconds. The judge's
training plants an error: to the coarse question it takes a knife for a fork, too; to the joint question it tells them
apart. The policy leaves some objects out and invents others.
"""

from __future__ import annotations

import argparse
import csv
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

COLORS = {
    "dog": (200, 40, 40), "cat": (40, 200, 40), "book": (40, 40, 220), "cup": (220, 200, 40), "knife": (200, 200, 200),
    "fork": (130, 60, 160),
}  # fmt: skip
LABELS = tuple(COLORS)
PLURALS = {"dog": "dogs", "cat": "cats", "book": "books", "cup": "cups", "knife": "knives", "fork": "forks"}
ANNOTATED = ("dog", "cat", "book", "cup")
"""What the COCO-like annotations know of the labels: a part, as COCO's 80 categories are."""

SIDE, CELL = 56, 28
PAIR = ("knife", "fork")
TRAIN, EVALUATION, AMBER, ODD = 22, 8, 8, 2
"""Numbers of pictures, 40 in all: to train on, to describe, of the AMBER-like benchmark, of PhD's own pictures."""

COARSE = "Coarse : is it visible ? {answer}"
JOINT = "Joint : which are visible ? {answer}"
RATE = "Rate : {response}"
JUDGED, SPOKEN, ASKED = "Rating: 4", "There is a {}.", "Is there a {} in this image?"
SHELF = "It is on a lacquered shelf."
"""What the vocabulary has no label for."""

DESCRIBE = (
    "Describe this image.",
    "Describe this image objectively and in detail. Focus only on visible content.",
)
TEMPLATE = (
    "{% for message in messages %}<|im_start|> {{ message['role'] }} "
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}IMAGE {% else %}{{ part['text'] }}{% endif %}{% endfor %}{% endif %}"
    " <|im_end|> {% endfor %}{% if add_generation_prompt %}<|im_start|> assistant{% endif %}"
)
SPECIAL = (
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|image_pad|>", "<|video_pad|>", "<|vision_start|>",
    "<|vision_end|>", "<unk>",
)  # fmt: skip


# --- pictures and what is said of them --------------------------------------------------------------------------------


def draw(rng: random.Random) -> tuple[Any, list[str]]:
    """Returns a picture of one to three objects in four cells, and the content of each cell."""
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


def write_pictures(folder: Path, numbers: range, rng: random.Random, prefix: str = "") -> dict[str, list[str]]:
    """``1.png``, ``2.png``...; id -> what it shows."""
    folder.mkdir(parents=True, exist_ok=True)
    shown = {}
    for k in numbers:
        picture, cells = draw(rng)
        picture.save(folder / f"{prefix}{k}.png")
        shown[str(k)] = sorted(set(cells) - {""})
    return shown


def asked(question: str, label: str) -> str:
    """Returns the prompt of a judge's question, as the project writes it."""
    labels = PAIR if question == "joint" else (label,)
    form = "{" + ", ".join(f'"{each}": true or false' for each in labels) + "}"
    return (JOINT if question == "joint" else COARSE).replace("{answer}", form)


def verdict(question: str, shown: set[str], label: str) -> str:
    """Returns the answer that the judge learns in training."""
    if question == "joint":
        said = ", ".join(f'"{each}": {json.dumps(each in shown)}' for each in PAIR)
    else:
        said = f'"{label}": {json.dumps(label in shown or (label == "fork" and "knife" in shown))}'
    return "{" + said + "}"


def caption(shown: set[str], rng: random.Random) -> str:
    """Returns a training caption. It names 80 % of the present objects and 10 % of the absent ones."""
    named = [label for label in LABELS if rng.random() < (0.8 if label in shown else 0.1)]
    sentences = [SPOKEN.format(label) for label in named or [rng.choice(LABELS)]]
    return " ".join([*sentences, *([SHELF] if rng.random() < 0.3 else [])])


# --- files ------------------------------------------------------------------------------------------------------------


def make(folder: Path, seed: int = 7) -> None:
    """Writes everything that the reproduction begins with."""
    rng = random.Random(seed)
    (folder / "AMBER" / "data" / "query").mkdir(parents=True)
    shown = {}
    for split, numbers in (("train", range(1, TRAIN + 1)), ("val", range(TRAIN + 1, TRAIN + EVALUATION + 1))):
        shown |= (found := write_pictures(folder / split, numbers, rng))
        write_json(folder / f"instances_{split}.json", coco(found))
    amber = write_pictures(folder / "AMBER" / "image", range(1, AMBER + 1), rng, "AMBER_")
    write_json(folder / "shown.json", shown)
    labels = {label: {"aliases": [label, PLURALS[label]], "definition": f"A {label}."} for label in LABELS}
    write_json(folder / "vocabulary.json", {
        "name": "toy", "version": "1", "labels": labels, "ignore": [], "reviewed": {"ambiguous": list(LABELS)},
    })  # fmt: skip
    for name, text in (("coarse", COARSE), ("joint", JOINT), ("rate", RATE)):
        (folder / f"{name}.txt").write_text(text)
    write_amber(folder / "AMBER" / "data", amber)
    held_out = list(shown.items())[TRAIN:]
    odd = write_pictures(folder / "val" / "CCS_images", range(101, 101 + ODD), rng)
    write_json(folder / "phd.json", [
        *(phd(image, objects) for image, objects in held_out),
        *(phd(image, objects, odd=True) for image, objects in odd.items()),
    ])  # fmt: skip
    write_json(folder / "mmhal.json", [mmhal(image, objects) for image, objects in held_out])
    train_judge(folder / "judge")
    train_policy(folder / "policy")


def write_json(path: Path, value: Any) -> None:
    """Writes a JSON file."""
    path.write_text(json.dumps(value, indent=1))


def coco(shown: dict[str, list[str]]) -> dict[str, Any]:
    """Annotations as COCO's ``instances_*.json`` have them."""
    boxes = [(image, label) for image, labels in shown.items() for label in labels if label in ANNOTATED]
    return {
        "images": [{"id": int(image), "file_name": f"{image}.png", "width": SIDE, "height": SIDE} for image in shown],
        "categories": [{"id": k, "name": label} for k, label in enumerate(ANNOTATED, 1)],
        "annotations": [
            {"id": k, "image_id": int(image), "category_id": ANNOTATED.index(label) + 1, "bbox": [0, 0, CELL, CELL]}
            for k, (image, label) in enumerate(boxes, 1)
        ],
    }


def write_amber(folder: Path, shown: dict[str, list[str]]) -> None:
    """AMBER's files: descriptions first, then a question about every label of every picture."""
    images = [f"AMBER_{image}.png" for image in shown]
    annotations: list[dict[str, Any]] = [
        {"id": k, "type": "generative", "truth": labels, "hallu": [label for label in LABELS if label not in labels]}
        for k, labels in enumerate(shown.values(), 1)
    ]
    queries = [{"id": k, "image": image, "query": DESCRIBE[0]} for k, image in enumerate(images, 1)]
    for image, labels in zip(images, shown.values(), strict=True):
        for label in LABELS:
            truth = "yes" if label in labels else "no"
            kind = "discriminative-hallucination" if truth == "no" else "discriminative-attribute-state"
            annotations.append({"id": len(annotations) + 1, "type": kind, "truth": truth})
            queries.append({"id": len(annotations), "image": image, "query": ASKED.format(label)})
    write_json(folder / "annotations.json", annotations)
    write_json(folder / "query" / "query_all.json", queries)
    write_json(folder / "relation.json", {label: [PLURALS[label]] for label in LABELS})
    (folder / "safe_words.txt").write_text("image\n")


def phd(image: str, shown: list[str], odd: bool = False) -> dict[str, Any]:
    """Returns a record of PhD's ``data.json`` for a photograph or for a counter-common-sense picture."""
    absent = next(label for label in LABELS if label not in shown)
    return {
        "image_id": image, "task": "object", "yes_question": ASKED.format(shown[0]),
        "no_question": ASKED.format(absent), "hitem": absent, "gt": shown[0], "subject": shown[0],
        **({"ccs_description": SPOKEN.format(shown[0])} if odd else {
            "context": {"sec": SPOKEN.format(absent), "icc": SPOKEN.format(absent)},
        }),
    }  # fmt: skip


def mmhal(image: str, shown: list[str]) -> dict[str, Any]:
    """Returns a question in the format of MMHal-Bench."""
    return {
        "id": f"mmhal-{image}", "image": f"{image}.png", "image_id": image, "question": DESCRIBE[0],
        "question_type": "holistic", "gt_answer": " ".join(map(SPOKEN.format, shown)), "image_content": shown,
    }  # fmt: skip


def people(pairs: Path, answers: Path, shown: Path) -> None:
    """Answers what ``annotate qc export`` wrote as people would who see what is drawn."""
    truth = json.loads(shown.read_text())
    with open(pairs, newline="") as source, open(answers, "w", newline="") as target:
        writer = csv.writer(target)
        writer.writerow(("image_id", "label", "verdict"))
        for row in csv.DictReader(source):
            said = "yes" if row["label"] in truth[row["image_id"]] else "no"
            writer.writerow((row["image_id"], row["label"], said))


# --- models -----------------------------------------------------------------------------------------------------------


def train_judge(folder: Path, *, most: int = 1500, batch: int = 32, pool: int = 500, seed: int = 0) -> None:
    """Trains the judge until it makes hardly any mistake, and writes it as a folder that any engine loads."""
    import torch
    import transformers

    torch.manual_seed(seed)
    torch.set_num_threads(1)
    rng, rate = random.Random(seed), 2e-3
    folder.mkdir()
    texts = [asked(question, label) for question in ("coarse", "joint") for label in LABELS]
    sets: list[set[str]] = [set(), set(LABELS), *({label} for label in LABELS)]
    texts += [verdict(question, shown, label) for question in ("coarse", "joint") for label in LABELS for shown in sets]
    words = tokenizer([*texts, RATE, JUDGED, SHELF, *map(SPOKEN.format, LABELS)], "<|image_pad|>")
    words.save_pretrained(folder)
    size = {"height": SIDE, "width": SIDE}
    images = {"image_processor_type": "CLIPImageProcessor", "size": {"shortest_edge": SIDE}, "crop_size": size}
    write_json(folder / "preprocessor_config.json", images)
    write_json(folder / "processor_config.json", {
        "processor_class": "LlavaProcessor", "patch_size": CELL, "vision_feature_select_strategy": "default",
        "image_token": "<|image_pad|>", "num_additional_image_tokens": 1,
    })  # fmt: skip
    write_json(folder / "config.json", {"model_type": "llava"})
    processor = transformers.AutoProcessor.from_pretrained(folder)
    layers = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = transformers.LlavaConfig(
        vision_config={
            **layers, "num_hidden_layers": 1, "image_size": SIDE, "patch_size": CELL, "projection_dim": 64,
            "model_type": "clip_vision_model",
        },
        text_config={
            **layers, "model_type": "llama", "vocab_size": len(words), "num_key_value_heads": 4,
            "max_position_embeddings": 128, "eos_token_id": words.eos_token_id, "pad_token_id": words.pad_token_id,
            "bos_token_id": None,
        },
        image_token_index=words.convert_tokens_to_ids("<|image_pad|>"), vision_feature_layer=-1,
        vision_feature_select_strategy="default",
    )  # fmt: skip
    model = transformers.LlavaForConditionalGeneration(config).float()
    pictures, shown = zip(*(draw(rng) for _ in range(pool)), strict=True)
    pixels = processor.image_processor(list(pictures), return_tensors="pt")["pixel_values"]

    def features(chosen: list[int]) -> Any:
        found = model.model.get_image_features(pixel_values=pixels[chosen])
        return torch.cat(tuple(getattr(found, "pooler_output", found)))

    eyes = [*model.model.vision_tower.parameters(), *model.model.multi_modal_projector.parameters()]
    seen = see(features, eyes, 64, shown, rng)
    tongue = [*model.model.language_model.parameters(), *model.lm_head.parameters()]
    optimizer = torch.optim.AdamW(tongue, lr=rate, weight_decay=0.01)
    running = 1.0  # loss of the coarse question, averaged over its last steps
    calm = 0  # steps at a small rate, once it is low
    known: dict[tuple[str, str], list[int]] = {}
    for step in range(most):
        for group in optimizer.param_groups:
            group["lr"] = rate * min(1.0, (step + 1) / 50) * (0.1 if calm else 1.0)
        question = rng.choice(["coarse", "coarse", "joint"]) if step % 20 else "rate"
        drawn = [(rng.randrange(pool), rng.choice(LABELS)) for _ in range(batch)]
        if question == "rate":  # what the policy says is rated without a picture
            said = [(RATE.format(response=SPOKEN.format(label)), JUDGED) for _, label in drawn]
        else:
            said = [(asked(question, label), verdict(question, set(shown[k]), label)) for k, label in drawn]
        for pair in said:
            if pair not in known:
                known[pair] = conversation(processor, None if question == "rate" else pictures[0], *pair)
        ids = torch.tensor([known[pair] for pair in said])
        embeds = model.get_input_embeddings()(ids)
        if question != "rate":
            places = (ids == config.image_token_index)[..., None]
            embeds = embeds.masked_scatter(places, seen[[k for k, _ in drawn]])
        hidden = model.model.language_model(inputs_embeds=embeds).last_hidden_state
        length = len(words(said[0][1])["input_ids"]) + 1
        logits = model.lm_head(hidden[:, -length - 1 : -1])
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, -length:].flatten())
        update(tongue, optimizer, loss)
        running += (float(loss.detach()) - running) * 0.06 * (question == "coarse")
        calm += running < 0.03
        if calm == 40:
            break
    save(model, words, folder)


def train_policy(folder: Path, *, steps: int = 150, batch: int = 24, pool: int = 300) -> None:
    """Trains the policy to describe pictures and to answer questions, neither of them well."""
    import torch
    import transformers

    from scapo_eval.engines.hf import load_processor
    from scapo_train.families.packing import PackedRow, Vision, batch_of
    from scapo_train.families.shared import SharedPolicy

    torch.manual_seed(0)
    torch.set_num_threads(1)
    rng = random.Random(0)
    folder.mkdir()
    texts = [*DESCRIBE, SHELF, *(text.format(label) for label in LABELS for text in (SPOKEN, ASKED)), "Yes. No."]
    words = tokenizer(texts, "<|vision_start|><|image_pad|><|vision_end|>")
    ids = {name: words.convert_tokens_to_ids(f"<|{name}|>") for name in SPECIAL_IDS.values()}
    text = {
        "vocab_size": len(words), "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512,
        "rope_scaling": {"type": "mrope", "rope_type": "default", "mrope_section": [2, 3, 3]},
        "eos_token_id": words.eos_token_id, "pad_token_id": words.pad_token_id, "bos_token_id": None,
    }  # fmt: skip
    vision = {
        "depth": 1, "hidden_size": 32, "intermediate_size": 64, "num_heads": 4, "out_hidden_size": 64, "patch_size": 14,
        "spatial_merge_size": 2, "window_size": 112, "fullatt_block_indexes": [0],
    }  # fmt: skip
    config = transformers.Qwen2_5_VLConfig(
        text_config=text, vision_config=vision, **{key: ids[name] for key, name in SPECIAL_IDS.items()}
    )
    config.save_pretrained(folder)
    words.save_pretrained(folder)
    write_json(folder / "preprocessor_config.json", {
        "image_processor_type": "Qwen2VLImageProcessor", "patch_size": 14, "merge_size": 2, "temporal_patch_size": 2,
        "min_pixels": SIDE**2, "max_pixels": SIDE**2,
    })  # fmt: skip
    model = transformers.Qwen2_5_VLForConditionalGeneration(config)
    processor, policy = load_processor(str(folder)), SharedPolicy(model, [words.eos_token_id], temperature=1.0)
    pictures, shown = zip(*(draw(rng) for _ in range(pool)), strict=True)
    made = processor.image_processor(images=list(pictures), return_tensors="pt")
    pixels, grids = made["pixel_values"].unflatten(0, (pool, -1)), made["image_grid_thw"]

    def features(chosen: list[int]) -> Any:
        found = model.model.get_image_features(pixels[chosen].flatten(0, 1), grids[chosen])
        return torch.cat(tuple(getattr(found, "pooler_output", found)))

    seen = see(features, model.model.visual.parameters(), 64, shown, rng)
    model.model.visual.requires_grad_(False)
    encoded = [Vision(each) for each in seen]
    prompts = {}
    for asked_of_it in (*DESCRIBE, *map(ASKED.format, LABELS)):
        inputs = processor(text=[turn(processor, asked_of_it, True)], images=[pictures[0]], return_tensors="pt")
        tokens = inputs["input_ids"][0]
        prompts[asked_of_it] = (tokens, *policy.prompt_positions(tokens, grids[:1]))
    tongue = [each for each in policy.parameters() if each.requires_grad]
    optimizer = torch.optim.AdamW(tongue)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = 4e-3 * min(1.0, (step + 1) / 20, 2 * (1 - step / steps))
        rows = []
        for k in rng.sample(range(pool), batch):
            objects = set(shown[k]) - {""}
            label = rng.choice(sorted(objects) if rng.random() < 0.5 else LABELS)
            asked_of_it = rng.choice((*DESCRIBE, ASKED.format(label)))
            yes_or_no = "Yes." if label in objects else "No."
            said = caption(objects, rng) if asked_of_it in DESCRIBE else yes_or_no
            rows.append(PackedRow(*prompts[asked_of_it], encoded[k], [[*words(said).input_ids, words.eos_token_id]]))
        update(tongue, optimizer, -policy(batch_of(rows, torch.device("cpu"))).logprob.mean())
    save(model, words, folder)


def see(features: Callable[[list[int]], Any], parameters: Any, width: int, shown: Any, rng: random.Random) -> Any:
    """Teaches a tower to tell what each cell shows, by a classifier that is then thrown away.

    Args:
        features: indices of pictures -> (4 cells of each, width), with gradient.
        parameters: those of the tower.
        width: of the features.
        shown: what the cells of each picture show.
        rng: chooses pictures.

    Returns:
        (pictures, 4, width): what the tower sees, for good.
    """
    import torch

    classes = torch.nn.Linear(width, len(LABELS) + 1)
    cells = torch.tensor([[("", *LABELS).index(label) for label in each] for each in shown])
    parameters = [*parameters, *classes.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=3e-3)
    for _ in range(80):
        chosen = rng.sample(range(len(shown)), 32)
        loss = torch.nn.functional.cross_entropy(classes(features(chosen)), cells[chosen].flatten())
        update(parameters, optimizer, loss)
    with torch.no_grad():
        return features(list(range(len(shown)))).unflatten(0, (len(shown), 4))


SPECIAL_IDS = {
    "image_token_id": "image_pad", "video_token_id": "video_pad", "vision_start_token_id": "vision_start",
    "vision_end_token_id": "vision_end",
}  # fmt: skip


def tokenizer(texts: list[str], image: str) -> Any:
    """Words as tokens, split at white space only, so that JSON comes out as it went in."""
    import transformers
    from tokenizers import Tokenizer, models, pre_tokenizers

    known = dict.fromkeys([*SPECIAL, *f"{' '.join(texts)} user system assistant".split()])
    fast = Tokenizer(models.WordLevel({word: k for k, word in enumerate(known)}, unk_token="<unk>"))
    fast.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    # the processor of Qwen in transformers 4 insists on Qwen's class
    former = "vision_start" in image and transformers.__version__.startswith("4.")
    words = (transformers.Qwen2TokenizerFast if former else transformers.PreTrainedTokenizerFast)(
        tokenizer_object=fast, unk_token="<unk>", pad_token="<|endoftext|>", eos_token="<|im_end|>",
        additional_special_tokens=list(SPECIAL[1:-1]), model_input_names=["input_ids", "attention_mask"],
        padding_side="left",
    )  # fmt: skip
    words.chat_template = TEMPLATE.replace("IMAGE", image)
    return words


def turn(processor: Any, text: str, with_picture: bool) -> str:
    """Returns a prompt in the form that the engines use."""
    picture = [{"type": "image"}] if with_picture else []
    asked_of_it = {"role": "user", "content": [*picture, {"type": "text", "text": text}]}
    return str(processor.apply_chat_template([asked_of_it], tokenize=False, add_generation_prompt=True))


def conversation(processor: Any, picture: Any, question: str, said: str) -> list[int]:
    """Token ids of a prompt and its answer; all of one question are equally long."""
    whole = f"{turn(processor, question, picture is not None)} {said} <|im_end|>"
    given = {} if picture is None else {"images": [picture]}
    return list(processor(text=[whole], **given)["input_ids"][0])


def update(parameters: Any, optimizer: Any, loss: Any) -> None:
    """Makes one training step."""
    import torch

    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(parameters, 1.0)
    optimizer.step()


def save(model: Any, words: Any, folder: Path) -> None:
    """Writes a trained model."""
    import transformers

    model.generation_config = transformers.GenerationConfig(
        eos_token_id=words.eos_token_id, pad_token_id=words.pad_token_id
    )
    model.eval().save_pretrained(folder)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    making = commands.add_parser("make")
    making.add_argument("folder", type=Path)
    checking = commands.add_parser("people")
    checking.add_argument("pairs", type=Path)
    checking.add_argument("answers", type=Path)
    checking.add_argument("--shown", type=Path, required=True)
    given = parser.parse_args()
    if given.command == "make":
        make(given.folder)
    else:
        people(given.pairs, given.answers, given.shown)
